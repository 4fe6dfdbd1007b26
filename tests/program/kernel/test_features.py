"""What a kernel is made of, counted on five lines of IR."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.program.kernel.features import (
    FEATURES,
    INPUTS,
    RANGE_INPUTS,
    SUMMARY,
    asks_for_its_place,
    family_of,
    features_of,
    fingerprint,
    grewe_ratios,
    inputs_of,
    nodes_of,
    vector_of,
)
from apportion.program.llvm import graph_of_ir

SCALE = """
declare i64 @_Z13get_global_idj(i32)
define void @scale(float* %x) {
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, float* %x, i64 %i
  %v = load float, float* %p
  %w = fmul float %v, 2.0
  store float %w, float* %p
  ret void
}
"""
NESTED = """
define void @f(i32 %n) {
entry:
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %i1, %latch ]
  br label %inner
inner:
  %j = phi i32 [ 0, %outer ], [ %j1, %inner ]
  %j1 = add i32 %j, 1
  %c = icmp slt i32 %j1, %n
  br i1 %c, label %inner, label %latch
latch:
  %i1 = add i32 %i, 1
  %d = icmp slt i32 %i1, %n
  br i1 %d, label %outer, label %exit
exit:
  %k = mul i32 %n, %n
  ret void
}
"""


def test_counts_are_logarithms_of_what_is_there() -> None:
    found = features_of(graph_of_ir(SCALE))
    assert found["instruction load"] == found["instruction store"] == math.log1p(1)
    assert found["call get_global_id"] == math.log1p(1)
    assert found["share of memory"] == pytest.approx(2 / 6)
    assert "instruction add" not in found


def test_a_vector_has_a_number_for_each_name() -> None:
    vector = vector_of(graph_of_ir(SCALE))
    assert vector.shape == (len(FEATURES),)
    assert vector[FEATURES.index("instruction fmul")] == math.log1p(1)
    assert len(set(FEATURES)) == len(FEATURES)
    assert set(SUMMARY) < set(FEATURES)
    assert np.isfinite(vector).all()


def test_instructions_are_told_apart_by_the_loops_they_stand_in() -> None:
    found = features_of(graph_of_ir(NESTED))
    assert found["deepest loop"] == 2
    assert found["integer at depth 0"] == math.log1p(1)
    assert found["integer at depth 1"] == math.log1p(1)
    assert found["integer at depth 2"] == math.log1p(1)


def test_markers_that_no_machine_executes_are_not_counted() -> None:
    marked = (
        SCALE.replace("  ret void", "  call void @llvm.lifetime.start.p0i8(i64 4, i8* null)\n  ret void")
        + "declare void @llvm.lifetime.start.p0i8(i64, i8*)\n"
    )
    assert features_of(graph_of_ir(marked))["instruction call"] == math.log1p(1)


def test_address_spaces_and_typed_pointers_change_nothing_that_is_counted() -> None:
    spaced = SCALE.replace("float*", "float addrspace(1)*")
    plain, other = vector_of(graph_of_ir(SCALE)), vector_of(graph_of_ir(spaced))
    assert plain.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("printed", "family"),
    [
        ("%1 = call i64 @_Z12get_local_idj(i32 0)", "get_local_id"),
        ("call void @_Z7barrierj(i32 1)", "barrier"),
        ("%2 = call float @llvm.fmuladd.f32(float %a, float %b, float %c)", "fused"),
        ("%3 = call float @_Z4sqrtf(float %a)", "root"),
        ("%4 = call i32 @_Z10atomic_addPU3AS1Vii(i32* %p, i32 1)", "atomic"),
        ("%5 = call i32 @helper(i32 1)", "other"),
        ("%6 = call i32 %f(i32 1)", "other"),
    ],
)
def test_calls_belong_to_families_by_what_they_call(printed: str, family: str) -> None:
    assert family_of(printed) == family


def test_a_kernel_that_never_asks_for_an_id_is_noticed() -> None:
    assert asks_for_its_place(features_of(graph_of_ir(SCALE)))
    assert not asks_for_its_place(features_of(graph_of_ir(NESTED)))


def test_grewes_ratios_divide_by_what_there_is() -> None:
    counts = {"comp": 6, "rational": 0, "mem": 2, "localmem": 1, "coalesced": 1, "atomic": 0}
    assert grewe_ratios(counts, 80, 4).tolist() == [10, 0.5, 2, 3]
    assert grewe_ratios(dict.fromkeys(counts, 0), 80, 4).tolist() == [0, 0, 0, 0]


def test_inputs_are_logarithms() -> None:
    assert inputs_of(0, 0).tolist() == [0, 0, 0, 0, 0]
    assert len(inputs_of(4096, 64)) == len(INPUTS)
    # 4096 can be halved twelve times, 48 four times.
    assert inputs_of(4096, 48).tolist()[3:] == [12, 4]


def test_the_range_of_a_launch_adds_inputs_where_it_is_known() -> None:
    ranged = dict(zip((*INPUTS, *RANGE_INPUTS), inputs_of(4096, 64, 1024).tolist(), strict=True))
    assert ranged["work-items"] == math.log1p(1024)
    assert ranged["work-groups"] == math.log1p(1024) - math.log1p(64)


def test_every_count_names_the_nodes_it_was_counted_on() -> None:
    for text in (SCALE, NESTED):
        graph = graph_of_ir(text)
        nodes, found = nodes_of(graph), features_of(graph)
        for name in ("instruction load", "instruction add", "variable i32", "call get_global_id", "arrays"):
            assert found.get(name, 0.0) == math.log1p(len(nodes.get(name, ())))
        assert all(graph.text(node) == "add" for node in nodes.get("instruction add", ()))
    inner = nodes_of(graph_of_ir(NESTED))["deepest loop"]
    assert {graph_of_ir(NESTED).text(node) for node in inner} == {"phi", "add", "icmp", "br"}


def test_shares_and_extremes_name_their_nodes_too() -> None:
    graph = graph_of_ir("define i32 @f() {\n  %a = add i32 7, 100\n  ret i32 %a\n}\n")
    nodes = nodes_of(graph)
    assert [graph.text(node) for node in nodes["share of integer"]] == ["add"]
    assert [graph.full_text(node) for node in nodes["largest constant"]] == ["i32 100"]
    assert len(nodes["mean constant"]) == 2
    assert "nodes" not in nodes


def test_names_do_not_change_a_fingerprint_and_operands_do() -> None:
    one = fingerprint(graph_of_ir(SCALE))
    assert fingerprint(graph_of_ir(SCALE.replace("%v", "%value").replace("@scale", "@grow"))) == one
    assert fingerprint(graph_of_ir(SCALE.replace("fmul", "fadd"))) != one


def test_extents_of_arrays_do_not_change_a_fingerprint() -> None:
    small = "define void @f([12 x i32]* %a) {\n  %v = load [12 x i32], [12 x i32]* %a\n  ret void\n}\n"
    assert fingerprint(graph_of_ir(small)) == fingerprint(graph_of_ir(small.replace("12", "64")))
