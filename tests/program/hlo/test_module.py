"""HLO modules as graphs with the published features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.cli import main
from apportion.data.published import tpugraphs, tuning_data
from apportion.errors import MalformedInput
from apportion.program import wire
from apportion.program.hlo.module import OPCODES, graph_of_hlo

F32 = 11


def instruction(opcode: str, identity: int, operands: tuple[int, ...] = (), *more: wire.Field) -> bytes:
    layout = wire.message([(1, wire.packed([1, 0]))])
    shape = wire.message([(2, F32), (3, wire.packed([4, 6])), (5, layout)])
    inner: list[wire.Field] = [(2, opcode.encode()), (3, shape), (35, identity), *more]
    return wire.message([*inner, (36, wire.packed(operands))] if operands else inner)


def computation(name: str, identity: int, root: int, *instructions: bytes) -> bytes:
    return wire.message([(1, name.encode()), *((2, one) for one in instructions), (5, identity), (6, root)])


def module(*computations: bytes) -> bytes:
    return wire.message([(1, b"m"), *((3, one) for one in computations)])


SQUARE = module(
    computation("inner", 1, 11, instruction("parameter", 10), instruction("multiply", 11, (10, 10))),
    computation("while_body", 2, 20, instruction("parameter", 20, (), (9, 3))),
    computation(
        "main", 3, 32,
        instruction("constant", 30), instruction("parameter", 31),
        instruction("fusion", 32, (31, 30), (38, wire.packed([1]))),
    ),
)  # fmt: skip


def test_instructions_are_nodes_and_consume_operands_once_and_the_roots_they_call():
    graph = graph_of_hlo(SQUARE)
    names = list(OPCODES)
    assert [names[opcode - 1] for opcode in graph.node_opcode] == [
        "parameter", "multiply", "parameter", "constant", "parameter", "fusion"
    ]  # fmt: skip
    assert graph.edge_index.tolist() == [[1, 0], [5, 1], [5, 3], [5, 4]]
    assert graph.node_splits.tolist() == [0, 3, 6]
    assert graph.name == "m"


def test_features_say_root_type_shape_layout_and_parameter():
    row = graph_of_hlo(SQUARE).node_feat[2]
    assert row[0] == 1
    assert np.flatnonzero(row[2:21]).tolist() == [11]
    assert row[21:29].tolist() == [4, 6, 0, 0, 0, 0, 10, 24]
    assert row[30] == 3
    assert row[134:].tolist() == [1, 0, 0, 0, 0, 0]
    assert [int(i) for i in np.flatnonzero(row[37:134] == 1) + 37] == [
        44,
        52,
        60,
        68,
        76,
        84,
        112,
        116,
        120,
        124,
        128,
        132,
    ]


def test_a_window_a_slice_and_a_padding_have_their_places():
    window = wire.message([(1, wire.message([(1, 3), (2, 2), (3, 1), (5, 1), (6, 1), (7, 1)]))])
    pieces = wire.message([(1, 2), (2, 8), (3, 3)])
    padding = wire.message([(1, wire.message([(1, 5), (2, 7)]))])
    one = instruction("slice", 1, (), (15, window), (17, pieces), (17, pieces), (21, padding), (60, 1))
    row = graph_of_hlo(module(computation("main", 1, 1, one))).node_feat[0]
    assert row[37:45].tolist() == [3, 0, 0, 0, 0, 0, 3, 3]
    assert row[85:93].tolist() == [1, 0, 0, 0, 0, 0, 1, 0]
    assert row[109:121].tolist() == [2, 2, 4, 4, 3, 3, 6, 9, 8, 8, 16, 64]
    assert (row[125:133].tolist(), row[133]) == ([5, 0, 5, 5, 7, 0, 7, 7], 1)


def test_an_opcode_without_a_number_is_zero_and_named():
    graph = graph_of_hlo(module(computation("main", 1, 1, instruction("ragged-dot", 1))))
    assert graph.node_opcode.tolist() == [0]
    assert graph.unknown_opcodes == ("ragged-dot",)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (SQUARE[:-5], "cut short"),
        (b"", "it has no instructions"),
        (
            module(computation("main", 1, 1, instruction("add", 1, (9,)))),
            "instruction 1 uses 9, which is not in",
        ),
        (module(wire.message([(2, wire.message([(2, 7)]))])), "a number stands where a text"),
    ],
)
def test_what_is_no_module_is_refused_with_its_name(data, problem):
    with pytest.raises(MalformedInput, match=f"x.pb: .*{problem}"):
        graph_of_hlo(data, name="x.pb")


@given(st.integers(0, len(SQUARE) - 1), st.integers(0, 255), st.integers(0, len(SQUARE)))
def test_a_damaged_module_is_read_or_refused_and_nothing_else(place, byte, end):
    data = bytearray(SQUARE)
    data[place] = byte
    try:
        graph = graph_of_hlo(bytes(data[:end]))
    except MalformedInput:
        return
    assert graph.node_feat.shape == (len(graph.node_opcode), 140)


def test_the_command_writes_the_arrays_of_a_graph(tmp_path, capsys):
    dot = module(computation("main", 1, 1, instruction("dot", 1), instruction("odd", 2)))
    (tmp_path / "m.pb").write_bytes(wire.message([(1, dot)]))  # an HloProto has the module inside
    with pytest.raises(SystemExit) as leaving:
        main(["rank", "featurise", str(tmp_path / "m.pb"), "--out", str(tmp_path / "m.npz"), "--json"])
    assert not leaving.value.code
    printed = json.loads(capsys.readouterr().out)
    assert (printed["nodes"], printed["configurable"], printed["unknown_opcodes"]) == (2, 1, ["odd"])
    with np.load(tmp_path / "m.npz") as arrays:
        assert arrays["node_config_ids"].tolist() == [0]
        assert arrays["node_feat"].shape == (2, 140)


def test_the_raw_samples_become_the_npz_samples_bit_by_bit(shared_data: Path):
    samples = shared_data / "tpugraphs"
    if not samples.is_dir():
        pytest.skip(f"no TpuGraphs samples at {samples}")
    raw = tuning_data.read_module_tuning_data(samples / "module_tuning_data_layout.pb")
    layout = tpugraphs.read_layout(samples / "layout-main-10904.npz")
    pairs = [(raw, layout)]
    pairs += [
        (kernel, tpugraphs.read_tile(samples / "tile" / f"{kernel.name}.npz"))
        for kernel in tuning_data.read_op_tuning_data(samples / "op_tuning_data.pb")
    ]
    assert sum(published.graph.nodes for _, published in pairs) > 3_163
    for data, published in pairs:
        ours = tuning_data.as_file(data)
        assert type(ours) is type(published)
        for name in ("node_opcode", "node_feat", "edge_index", "node_splits"):
            mine, theirs = getattr(ours.graph, name), getattr(published.graph, name)
            assert mine.dtype == theirs.dtype
            assert np.array_equal(mine, theirs), (data.name, name)
        assert np.array_equal(ours.config_runtime, published.config_runtime)
    assert np.array_equal(graph_of_hlo(raw.module).configurable, layout.node_config_ids)
