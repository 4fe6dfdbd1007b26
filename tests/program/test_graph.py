from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InvalidGraph
from apportion.program.graph import Flow, ProgramGraph, StringTable


def test_a_string_table_gives_back_its_strings() -> None:
    table = StringTable.of(["add", "", "i32*", "größer", "add"])
    assert list(table) == ["add", "", "i32*", "größer", "add"]
    assert len(table) == 5
    assert table[3] == table[-2] == "größer"
    assert table[1:3] == ["", "i32*"]
    assert len(StringTable.of([])) == 0


def test_a_string_table_keeps_bytes_that_are_not_utf8() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert StringTable.of([name]).data.tobytes() == b"caf\xe9"
    assert StringTable.of([name])[0] == name


@pytest.mark.parametrize("index", [2, -3])
def test_a_string_outside_the_table_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match="of 2"):
        StringTable.of(["a", "b"])[index]


@pytest.mark.parametrize(
    ("data", "offsets", "message"),
    [
        (np.zeros(3, np.uint8), np.array([0, 2]), "run from 0 to the length"),
        (np.zeros(3, np.uint8), np.array([1, 3]), "run from 0 to the length"),
        (np.zeros(3, np.uint8), np.array([], np.int64), "run from 0 to the length"),
        (np.zeros(3, np.uint8), np.array([0, 2, 1, 3]), "must not fall"),
        (np.zeros(3, np.int64), np.array([0, 3]), "must hold uint8, not int64"),
        (np.zeros(3, np.uint8), np.array([0.0, 3.0]), "must hold int64, not float64"),
    ],
)
def test_a_string_table_checks_itself(data: Any, offsets: Any, message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        StringTable(data, offsets)


def test_a_graph_tells_its_size_and_its_texts(twice: ProgramGraph) -> None:
    assert twice.size == (5, 7)
    assert twice.texts() == ["[external]", "add", "ret", "i32", "i32"]
    assert twice.full_texts() == [None, "%b = add i32 %a, %a", "ret i32 %b", "i32 %b", "i32 %a"]
    assert (twice.text(1), twice.full_text(1), twice.full_text(0)) == ("add", "%b = add i32 %a, %a", None)
    assert twice.edges_of(Flow.CALL).tolist() == [[0, 2], [1, 0]]


def test_the_arrays_of_a_graph_cannot_be_changed(twice: ProgramGraph) -> None:
    with pytest.raises(ValueError, match="read-only"):
        twice.node_block[0] = 7
    with pytest.raises(TypeError):
        twice.node_features[0] = {}  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        twice.functions = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"node_type": np.array([0, 0, 0, 1, 4], np.uint8)},
            "node_type must hold numbers from 0 to 3, not 4",
        ),
        ({"edge_flow": np.full(7, 9, np.uint8)}, "edge_flow must hold numbers from 0 to 3, not 9"),
        ({"node_text": np.full(5, 8, np.int32)}, "node_text must hold numbers from 0 to 7, not 8"),
        ({"node_text": np.full(5, -1, np.int32)}, "node_text must hold numbers from 0 to 7, not -1"),
        (
            {"node_full_text": np.full(5, -2, np.int32)},
            "node_full_text must hold numbers from -1 to 7, not -2",
        ),
        ({"node_function": np.full(5, 1, np.int32)}, "node_function must hold numbers from 0 to 0, not 1"),
        ({"node_block": np.full(5, -1, np.int32)}, "node_block must hold numbers from 0, not -1"),
        ({"node_block": np.zeros(4, np.int32)}, r"node_block has shape \(4,\), not \(5,\)"),
        ({"edge_position": np.full(7, -1, np.int32)}, "edge_position must hold numbers from 0, not -1"),
        ({"edge_position": np.zeros(6, np.int32)}, r"must be \(7,\) and \(2, 7\)"),
        ({"edges": np.full((2, 7), 5, np.int32)}, "edges must hold numbers from 0 to 4, not 5"),
        ({"edges": np.zeros((7, 2), np.int32)}, r"must be \(7,\) and \(2, 7\)"),
        ({"edges": np.zeros((2, 7), np.int64)}, "edges must hold int32, not int64"),
        ({"node_type": np.zeros(5, np.float32)}, "node_type must hold uint8, not float32"),
        ({"node_features": {5: {}}}, "not among the 5 there are"),
    ],
)
def test_a_graph_checks_itself(twice: ProgramGraph, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraph, match=message):
        replace(twice, **change)


def test_two_graphs_are_equal_when_their_texts_are_however_the_tables_are_ordered(
    twice: ProgramGraph,
) -> None:
    turned = StringTable.of(list(twice.strings)[::-1])
    same = replace(
        twice,
        strings=turned,
        node_text=(7 - twice.node_text).astype(np.int32),
        node_full_text=np.where(twice.node_full_text < 0, -1, 7 - twice.node_full_text).astype(np.int32),
    )
    assert same == twice
    assert replace(twice, strings=turned) != twice
    assert replace(twice, edges=twice.edges[:, ::-1].copy()) != twice
    assert twice != "a graph"


@given(data=st.data())
def test_a_graph_survives_pickling_and_stays_frozen(data: st.DataObject, program_graphs: Any) -> None:
    graph = data.draw(program_graphs)
    for copied in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert copied == graph
        assert not copied.edges.flags.writeable
        assert not copied.strings.data.flags.writeable


def test_strings_are_chosen_by_their_numbers_many_at_once() -> None:
    table = StringTable.of(["i32", "", "größe", "br"])
    assert table.chosen(np.array([2, 0, 2, 1])) == ["größe", "i32", "größe", ""]
    assert table.chosen(np.zeros(0, np.int64)) == []
