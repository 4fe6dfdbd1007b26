"""The long table of counters: what it refuses, how it is kept, and how it becomes a matrix."""

from __future__ import annotations

import polars as pl
import pytest

from apportion.data.counter_table import AIWC, SCHEMA, TABLE_I, CounterTable, Row, System
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile

ROWS = [
    Row("a", "xz", "", "small", "here", 0, "instructions", 100.0, "perf", "exact"),
    Row("a", "xz", "", "small", "here", 1, "instructions", 104.0, "perf", "exact"),
    Row("a", "xz", "", "small", "here", 0, "branch_miss_ratio", None, "perf", "exact"),
    Row("a", "xz", "", "small", "here", 0, "instructions", 90.0, "callgrind", "simulated"),
    Row("b", "bfs", "visit", "large", "", 0, "branch_entropy_yokota", 4.0, "aiwc", "exact"),
]


def test_a_table_survives_being_written_and_read(tmp_path):
    here = System("here", "cpu", "Intel", {"cores": 16.0, "name": "Xeon"})
    CounterTable.of(ROWS, [here]).write(tmp_path / "counters.parquet")
    found = CounterTable.read(tmp_path / "counters.parquet")
    assert found.frame.rows() == [tuple(row) for row in ROWS]
    assert dict(found.systems) == {"here": here}


def test_a_matrix_has_a_column_for_each_pair_of_counter_and_source():
    wide = CounterTable.of(ROWS).wide()
    assert wide.runs["run"].to_list() == ["a", "b"]
    assert list(zip(wide.counters, wide.sources, strict=True)) == [
        ("instructions", "perf"), ("branch_miss_ratio", "perf"),
        ("instructions", "callgrind"), ("branch_entropy_yokota", "aiwc"),
    ]  # fmt: skip
    assert wide.values.tolist() == [[102, 0, 90, 0], [0, 0, 0, 4]]
    assert wide.mask.tolist() == [[True, False, True, False], [False, False, False, True]]


def test_repeats_can_be_kept_apart():
    wide = CounterTable.of(ROWS).about(sources=["perf"], counters=["instructions"]).wide(per="repeat")
    assert wide.runs["repeat"].to_list() == [0, 1]
    assert wide.values.tolist() == [[100], [104]]


def test_times_stand_beside_each_other_by_system():
    def row(run, system, repeat, seconds):
        return Row(run, run, "", "", system, repeat, "seconds", seconds, "clock", "exact")

    rows = [
        row("c", "cpu", 0, 3.0),
        row("c", "cpu", 1, 1.0),
        row("c", "gpu", 0, 0.5),
        row("d", "gpu", 0, 4.0),
    ]
    times = CounterTable.of([*rows, *ROWS[4:]]).times()
    assert times.runs["run"].to_list() == ["c", "d"]
    assert times.systems == ("cpu", "gpu")
    assert times.seconds.tolist() == [[2.0, 0.5], [0.0, 4.0]]
    assert times.mask.tolist() == [[True, True], [False, True]]


def test_a_counter_of_two_sources_is_no_single_column():
    wide = CounterTable.of(ROWS).wide()
    with pytest.raises(InvalidSetting, match=r"several sources \(perf, callgrind\)"):
        wide.column("instructions")
    values, mask = wide.column("branch_entropy_yokota")
    assert (values.tolist(), mask.tolist()) == ([0, 4], [False, True])
    with pytest.raises(UnknownName, match="Did you mean 'instructions'"):
        wide.column("instruction")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ROWS[0], "is there twice from the source 'perf'"),
        (ROWS[0]._replace(repeat=2, program="gzip"), "different programs"),
        (ROWS[0]._replace(repeat=2, value=float("nan")), "a missing value is null"),
        (ROWS[0]._replace(repeat=-1), "repeat must be 0 or more"),
        (ROWS[0]._replace(run="c", source=""), "'source' is empty"),
        (ROWS[0]._replace(run="c", exactness="good"), "No exactness called 'good'"),
    ],
)
def test_a_table_refuses_what_is_no_counter(row, problem):
    with pytest.raises((InvalidSetting, UnknownName), match=problem):
        CounterTable.of([*ROWS, row])


def test_joined_tables_keep_all_rows_and_refuse_doubles():
    first, second = CounterTable.of(ROWS[:2]), CounterTable.of(ROWS[2:])
    assert first.joined(second).frame.rows() == [tuple(row) for row in ROWS]
    with pytest.raises(InvalidSetting, match="there twice"):
        first.joined(first)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.parquet"
    with pytest.raises(UnreadableFile):
        CounterTable.read(path)
    pl.DataFrame({"x": [1]}).write_parquet(path)
    with pytest.raises(MalformedInput, match="not one of counters"):
        CounterTable.read(path)
    pl.DataFrame({"x": [1]}).write_parquet(path, metadata={"apportion.measure.counters": "1"})
    with pytest.raises(MalformedInput, match="the column 'run' is missing"):
        CounterTable.read(path)
    pl.DataFrame(schema=SCHEMA).write_parquet(path, metadata={"apportion.measure.counters": "7"})
    with pytest.raises(MalformedInput, match="version 7"):
        CounterTable.read(path)


def test_the_fifteen_rows_of_table_one_and_the_columns_of_aiwc_have_names():
    names = [counter for counters in TABLE_I.values() for counter in counters]
    assert len(TABLE_I) == 15
    assert len(names) == len(set(names))
    assert len(AIWC) == 31


def test_the_names_of_aiwc_are_those_of_its_published_table(shared_data):
    header = (shared_data / "aiwc" / "aiwc_tidy.csv").read_text().splitlines()[0].split(",")
    assert tuple(header[3:34]) == AIWC
