"""HLO text becomes the module that its serialized form is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import MalformedInput
from apportion.program.hlo.module import OPCODES, HloGraph, graph_of_hlo
from apportion.program.hlo.text import is_hlo_text, module_of_text

TEXT = """HloModule jit_f, entry_computation_layout={(f32[8,4]{1,0})->f32[8]{0}}

%region_0.1 (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %add.2 = f32[] add(f32[] %x, f32[] %y), metadata={op_name="a, {b" source_file="f.py"}
}

ENTRY main.5 {
  a = f32[8,4]{1,0} parameter(0)
  zero = f32[] constant(0)
  part = f32[8,2]{1,0} slice(a), slice={[0:8], [0:4:2]}
  ROOT sum = f32[8]{0} reduce(part, zero), dimensions={1}, to_apply=%region_0.1
}
"""


def opcodes(graph: HloGraph) -> list[str]:
    names = list(OPCODES)
    return [names[number - 1] for number in graph.node_opcode]


def test_computations_instructions_operands_and_calls_are_read():
    graph = graph_of_hlo(module_of_text(TEXT))
    assert graph.name == "jit_f"
    assert opcodes(graph) == ["parameter", "parameter", "add", "parameter", "constant", "slice", "reduce"]
    assert graph.edge_index.tolist() == [[2, 0], [2, 1], [5, 3], [6, 2], [6, 4], [6, 5]]
    assert graph.node_feat[:, 0].tolist() == [0, 0, 1, 0, 0, 0, 1]
    assert graph.node_feat[5, 109:121].tolist() == [0, 0, 0, 0, 1, 2, 3, 2, 8, 4, 12, 32]
    assert graph.node_feat[6, 31] == 1


def test_a_window_and_the_labels_of_a_convolution_have_their_places():
    line = (
        "ENTRY e {\n  x = f32[2,9,9,4]{3,2,1,0} parameter(0)\n  w = f32[3,3,4,8]{3,2,1,0} parameter(1)\n"
        "  ROOT c = f32[2,5,5,8]{3,2,1,0} convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x0_-1}, "
        "dim_labels=b01f_01io->b01f\n}\n"
    )
    row = graph_of_hlo(module_of_text(line)).node_feat[2]
    assert row[37:45].tolist() == [3, 3, 0, 0, 0, 0, 6, 9]
    assert row[45:47].tolist() == [2, 2]
    assert row[53:55].tolist() == [1, 0]
    assert row[61:63].tolist() == [1, -1]
    assert row[93:107].tolist() == [0, 3, 1, 2, 0, 0, 2, 3, 0, 1, 0, 0, 0, 3]
    assert row[107:109].tolist() == [1, 1]


def test_tuples_and_comments_and_instructions_over_several_lines_are_read():
    text = """HloModule m
ENTRY e {
  p = (f32[2]{0}, s32[], token[]) parameter(0)
  c = f32[2,2]{1,0} constant({
    { 1, 2 },
    { 3, 4 } })
  ROOT t = (f32[2]{0}, f32[2,2]{1,0}) tuple(p, /*index=1*/c)
}
"""
    graph = graph_of_hlo(module_of_text(text))
    assert opcodes(graph) == ["parameter", "constant", "tuple"]
    assert graph.node_feat[:, 29].tolist() == [3, 0, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("HloModule m\n", "x.hlo: this is no HLO text: it has no computations"),
        ("ENTRY e {\n  a = f32[2] parameter(0)\n", "does not end"),
        ("ENTRY e {\n  a = q7[2] parameter(0)\n}\n", "x.hlo:2: .*is no shape"),
        ("ENTRY e {\n  a = f32[2] parameter(zero)\n}\n", "x.hlo:2: .*'zero' is no whole number"),
        ("ENTRY e {\n  b = f32[2] negate(a)\n}\n", "x.hlo:2: 'b' uses the operand 'a', which is not there"),
        ("ENTRY e {\n  b = f32[2] call(), to_apply=f\n}\n", "'b' uses the computation 'f'"),
        ("ENTRY e {\n  nonsense\n}\n", "x.hlo:2: .*'nonsense' is no instruction"),
    ],
)
def test_what_is_no_hlo_is_refused_with_its_line(text: str, problem: str):
    with pytest.raises(MalformedInput, match=problem):
        module_of_text(text, name="x.hlo")


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii"), st.integers(0, len(TEXT)))
def test_a_damaged_text_is_read_or_refused_and_nothing_else(place: int, letter: str, end: int):
    try:
        module = module_of_text((TEXT[:place] + letter + TEXT[place + 1 :])[:end])
    except MalformedInput:
        return
    assert module


def test_text_is_told_from_serialized_modules():
    assert is_hlo_text(TEXT.encode())
    assert not is_hlo_text(module_of_text(TEXT))


def test_jax_writes_the_same_module_in_both_forms():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    lax = jax.lax

    def f(x, w, i):
        y = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = lax.reduce_window(y, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")
        y = jax.numpy.sort(jax.numpy.pad(y, ((0, 0), (1, 2), (0, 0), (0, 0))), axis=1)
        y = lax.fori_loop(0, 3, lambda _, a: a * 2 + lax.dynamic_slice(y, (i, 0, 0, 0), y.shape), y)
        return jax.nn.softmax(y.reshape(y.shape[0], -1) @ y.reshape(y.shape[0], -1).T)

    shapes = [jax.ShapeDtypeStruct(dims, "float32") for dims in ((2, 9, 9, 4), (3, 3, 4, 8))]
    lowered = jax.jit(f).lower(*shapes, jax.ShapeDtypeStruct((), "int32"))
    module = lowered.compiler_ir("hlo").as_hlo_module()
    one = graph_of_hlo(module.as_serialized_hlo_module_proto())
    other = graph_of_hlo(module_of_text(module.to_string()))
    assert len(one.node_opcode) > 60
    for name in ("node_opcode", "node_feat", "edge_index", "node_splits"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
