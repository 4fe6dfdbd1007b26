from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import MalformedInput, UnreadableFile
from apportion.program import tables
from apportion.program.graph import Function, ProgramGraph
from apportion.program.tables import (
    SCHEMA,
    GraphRow,
    digests,
    merge,
    read_graphs,
    read_rows,
    write_graphs,
    write_part,
)


@given(data=st.data())
def test_any_graphs_survive_parquet(
    data: st.DataObject, program_graphs: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graphs = [
        (f"graph {n}", graph) for n, graph in enumerate(data.draw(st.lists(program_graphs, max_size=3)))
    ]
    path = tmp_path_factory.getbasetemp() / "graphs.parquet"
    assert write_graphs(path, iter(graphs)) == len(graphs)
    assert list(read_graphs(path)) == graphs


def test_graphs_are_equal_in_length_or_not(twice: ProgramGraph, tmp_path: Path) -> None:
    # Polars makes a fixed-size Array of equally long arrays unless it is kept from it.
    for number in (1, 2, 3):
        write_graphs(tmp_path / "graphs.parquet", [(str(n), twice) for n in range(number)])
        assert pl.read_parquet_schema(tmp_path / "graphs.parquet") == SCHEMA


def test_many_graphs_are_written_in_parts_and_kept_in_order(
    twice: ProgramGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PART_BYTES", 2000)
    graphs = [(f"{n}.c", replace(twice, functions=(Function(f"f{n}"),))) for n in range(100)]
    waiting = []

    def watched() -> Iterator[tuple[str, ProgramGraph]]:
        for graph in graphs:
            waiting.append(len(list(tmp_path.glob(".graphs.parquet.*/*.parquet"))))
            yield graph

    path = tmp_path / "graphs.parquet"
    assert write_graphs(path, watched()) == 100
    assert waiting[-1] > 5  # parts were on disk long before the end
    assert list(read_graphs(path)) == graphs
    assert list(tmp_path.iterdir()) == [path]


def test_an_iterable_that_raises_leaves_the_old_file(twice: ProgramGraph, tmp_path: Path) -> None:
    path = tmp_path / "graphs.parquet"
    write_graphs(path, [("old", twice)])

    def broken() -> Iterator[tuple[str, ProgramGraph]]:
        yield "new", twice
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_graphs(path, broken())
    assert [name for name, _ in read_graphs(path)] == ["old"]
    assert list(tmp_path.iterdir()) == [path]


def test_parts_are_merged_and_rows_chosen_by_digest(twice: ProgramGraph, tmp_path: Path) -> None:
    one = write_part(tmp_path / "one.parquet", [GraphRow("a", twice, "1"), GraphRow("b", twice, "2")])
    two = write_part(tmp_path / "two.parquet", [GraphRow("c", twice, "3")])
    merge([one, two], tmp_path / "all.parquet")
    assert digests(tmp_path / "all.parquet") == {"a": "1", "b": "2", "c": "3"}
    merge([tmp_path / "all.parquet"], tmp_path / "all.parquet", digests=["3", "1"])
    assert [(row.name, row.digest) for row in read_rows(tmp_path / "all.parquet")] == [("a", "1"), ("c", "3")]
    merge([], tmp_path / "none.parquet")
    assert list(read_graphs(tmp_path / "none.parquet")) == []


def test_a_file_that_is_not_there_or_no_parquet_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="Cannot read"):
        list(read_graphs(tmp_path / "nothing.parquet"))
    (tmp_path / "text.parquet").write_text("PAR1 but not really, no, not at all PAR1")
    with pytest.raises(UnreadableFile, match=r"Cannot read .*text\.parquet as Parquet"):
        list(read_graphs(tmp_path / "text.parquet"))


def test_a_file_cut_short_is_unreadable_wherever_it_was_cut(twice: ProgramGraph, tmp_path: Path) -> None:
    path = tmp_path / "graphs.parquet"
    write_graphs(path, [("a", twice)])
    whole = path.read_bytes()
    for length in range(0, len(whole), 211):
        path.write_bytes(whole[:length])
        with pytest.raises(UnreadableFile):
            list(read_graphs(path))


def test_a_parquet_file_of_something_else_says_so(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pl.DataFrame({"x": [1]}).write_parquet(path)
    with pytest.raises(MalformedInput, match="A Parquet file, but not one of program graphs"):
        list(read_graphs(path))
    pl.DataFrame({"x": [1]}).write_parquet(path, metadata={"apportion.program_graphs": "9"})
    with pytest.raises(MalformedInput, match="version 9, but this apportion reads version 1"):
        list(read_graphs(path))
    pl.DataFrame({"name": ["a"]}).write_parquet(path, metadata={"apportion.program_graphs": "1"})
    with pytest.raises(MalformedInput, match="The column 'digest' is missing"):
        list(read_graphs(path))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("edge_source", [9] * 7, "is no graph: edges must hold numbers from 0 to 4, not 9"),
        ("edge_source", [1], "is no graph"),
        ("node_block", [0, 0, 0, 0, 0], "is damaged: its checksum is wrong"),
        ("node_block", [0, 0, None, 0, 1], "is no graph"),
        ("records", "{", "is no graph"),
        ("records", None, "has a value missing"),
    ],
)
def test_a_row_that_is_no_graph_is_named(
    column: str, value: Any, message: str, twice: ProgramGraph, tmp_path: Path
) -> None:
    path = tmp_path / "graphs.parquet"
    write_graphs(path, [("good.c", twice), ("bad.c", twice)])
    frame = pl.read_parquet(path)
    good, changed = (
        frame.head(1),
        frame.tail(1).with_columns(pl.Series(column, [value], dtype=SCHEMA[column])),
    )
    pl.concat([good, changed]).write_parquet(path, metadata={"apportion.program_graphs": "1"})
    rows = read_graphs(path)
    assert next(rows)[0] == "good.c"
    with pytest.raises(MalformedInput, match=f"Row 1.*{message}"):
        next(rows)


def test_a_place_that_cannot_be_written_is_reported(twice: ProgramGraph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableFile, match="Cannot write"):
        write_graphs(tmp_path / "file" / "graphs.parquet", [("a", twice)])
