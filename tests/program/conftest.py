"""Program graphs for the tests of what is done with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from apportion.program.graph import Function, Module, ProgramGraph, StringTable


@st.composite
def _graphs(draw: st.DrawFn) -> ProgramGraph:
    """Any graph that ProgramGraph accepts, sensible or not: odd texts, no edges, repeated strings."""
    # Through bytes, because a name in a program need not be UTF-8.
    text = st.binary(max_size=6).map(lambda data: data.decode("utf-8", "surrogateescape")) | st.text(
        st.characters(exclude_categories=["Cs"]), max_size=6
    )
    features = st.dictionaries(text, st.integers(-(2**60), 2**60) | text, max_size=2)
    some_features = st.dictionaries(text, st.integers(), min_size=1, max_size=2)
    strings = draw(st.lists(text, min_size=1, max_size=6))
    functions = draw(st.lists(st.builds(Function, text, features), max_size=3))
    count = draw(st.integers(0, 8))
    links = draw(st.integers(0, 12)) if count else 0

    def numbers(size: int, low: int, high: int, kind: type = np.int32) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)), kind)

    return ProgramGraph(
        node_type=numbers(count, 0, 3, np.uint8),
        node_text=numbers(count, 0, len(strings) - 1),
        node_full_text=numbers(count, -1, len(strings) - 1),
        node_function=numbers(count, 0, max(len(functions), 1) - 1),
        node_block=numbers(count, 0, 2**31 - 1),
        edge_flow=numbers(links, 0, 3, np.uint8),
        edge_position=numbers(links, 0, 2**31 - 1),
        edges=numbers(2 * links, 0, max(count, 1) - 1).reshape(2, links),
        strings=StringTable.of(strings),
        functions=tuple(functions),
        modules=tuple(draw(st.lists(st.builds(Module, text, features), max_size=2))),
        node_features=draw(st.dictionaries(st.integers(0, count - 1), some_features, max_size=2))
        if count
        else {},
    )


@pytest.fixture(scope="session")
def program_graphs() -> st.SearchStrategy[ProgramGraph]:
    """A Hypothesis strategy of graphs; draw from it with `data.draw`."""
    return _graphs()


@pytest.fixture
def twice() -> ProgramGraph:
    """`int twice(int a) { return a + a; }`: the addition has two parallel edges from its argument."""
    strings = ["[external]", "add", "%b = add i32 %a, %a", "ret", "ret i32 %b", "i32", "i32 %b", "i32 %a"]
    return ProgramGraph(
        node_type=np.array([0, 0, 0, 1, 1], np.uint8),
        node_text=np.array([0, 1, 3, 5, 5], np.int32),
        node_full_text=np.array([-1, 2, 4, 6, 7], np.int32),
        node_function=np.zeros(5, np.int32),
        node_block=np.array([0, 0, 0, 0, 1], np.int32),
        edge_flow=np.array([0, 1, 1, 1, 1, 2, 2], np.uint8),
        edge_position=np.array([0, 0, 0, 0, 1, 0, 0], np.int32),
        edges=np.array([[1, 1, 3, 4, 4, 0, 2], [2, 3, 2, 1, 1, 1, 0]], np.int32),
        strings=StringTable.of(strings),
        functions=(Function("twice"),),
        modules=(Module("twice.c", {"llvm_target_triple": "spir64-unknown-unknown"}),),
    )
