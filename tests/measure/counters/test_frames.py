"""Counters as objects of pandas, Hatchet and Thicket, into a table and out of it."""

from __future__ import annotations

import math

import pytest

from apportion.data.counter_table import SCHEMA, CounterTable, Row
from apportion.errors import InvalidSetting
from apportion.measure.counters.imports import import_files
from apportion.measure.counters.imports.frames import as_graphframes, as_pandas, as_thicket, table_of
from apportion.measure.counters.imports.naming import ImportOptions, NameMap

pd = pytest.importorskip("pandas", reason="pandas is not installed")
hatchet = pytest.importorskip("hatchet", reason="Hatchet is not installed")
thicket = pytest.importorskip("thicket", reason="Thicket is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
TABLE = CounterTable.of([
    Row("cg main small", "cg", "main", "small", "quartz", 0, "instructions", 1000.0, "papi", "exact"),
    Row("cg main small", "cg", "main", "small", "quartz", 0, "seconds", 0.5, "clock", "exact"),
    Row("cg main small", "cg", "main", "small", "quartz", 1, "instructions", 1001.0, "papi", "exact"),
    Row("cg main/solve small", "cg", "main/solve", "small", "quartz", 0, "instructions", 900.0, "papi", "exact"),
    Row("cg main large", "cg", "main", "large", "quartz", 0, "instructions", None, "papi", "exact"),
    Row("cg main large", "cg", "main", "large", "quartz", 0, "seconds", 2.0, "clock", "exact"),
])  # fmt: skip


def values(table: CounterTable) -> dict[tuple[str, int, str], float]:
    rows = table.frame.drop_nulls("value").select("run", "repeat", "counter", "value").iter_rows()
    return {(run, repeat, counter): value for run, repeat, counter, value in rows}


def literal(seconds: float, *, ranks: bool = False):
    solve = {"frame": {"name": "solve"}, "metrics": {"time (inc)": seconds / 2, "PAPI_TOT_INS": 400.0}}
    main = {"frame": {"name": "main"}, "metrics": {"time (inc)": seconds, "PAPI_TOT_INS": 1000.0}}
    frame = hatchet.GraphFrame.from_literal([{**main, "children": [solve]}])
    if ranks:
        frame.dataframe = pd.concat({0: frame.dataframe, 1: frame.dataframe * 1}, names=["rank"]).swaplevel()
    return frame


def test_a_table_survives_pandas():
    frame = as_pandas(TABLE)
    assert list(frame.columns) == list(SCHEMA)
    assert math.isnan(frame["value"][4])
    assert table_of(frame).frame.equals(TABLE.frame)


def test_a_pandas_frame_of_ones_own_is_read_as_a_csv_file_would_be():
    frame = pd.DataFrame(
        {"app": ["cg", "cg", "ep"], "PAPI_TOT_INS": [10.0, 11.0, None], "ms": [1.5, 2.5, 3.5]}
    )
    mapping = NameMap(columns={"program": "app"}, seconds={"ms": 1e-3})
    found = values(table_of(frame, ImportOptions(system="quartz", mapping=mapping)))
    assert found == {
        ("cg", 0, "instructions"): 10, ("cg", 1, "instructions"): 11,
        ("cg", 0, "seconds"): 1.5e-3, ("cg", 1, "seconds"): 2.5e-3, ("ep", 0, "seconds"): 3.5e-3,
    }  # fmt: skip


def test_a_frame_without_numbers_or_of_another_kind_is_refused():
    with pytest.raises(InvalidSetting, match="not in a dict"):
        table_of({"instructions": 5})
    with pytest.raises(InvalidSetting, match="Say the program"):
        table_of(literal(1.0))


def test_regions_of_a_graphframe_are_runs_and_its_ranks_are_repeats():
    found = values(table_of(literal(2.0), ImportOptions(program="cg")))
    assert found["cg main", 0, "seconds"] == 2
    assert found["cg main/solve", 0, "seconds"] == 1
    assert found["cg main/solve", 0, "instructions"] == 400
    ranks = values(table_of(literal(2.0, ranks=True), ImportOptions(program="cg")))
    assert {repeat for _, repeat, _ in ranks} == {0, 1}


def test_profiles_of_a_thicket_with_other_ranks_are_other_runs_and_equal_ones_are_repeats():
    def profile(name: str, ranks: int, day: int):
        frame = literal(float(ranks))
        frame.metadata = {"executable": "/bin/cg", "cluster": "quartz", "jobsize": ranks, "launchdate": day}
        return thicket.Thicket.thicketize_graphframe(frame, name)

    both = thicket.Thicket.concat_thickets(
        [profile("a", 27, 1), profile("b", 27, 2), profile("c", 64, 2)], disable_tqdm=True
    )
    table = table_of(both)
    assert set(table.frame["size"]) == {"jobsize=27", "jobsize=64"}
    assert set(table.frame["program"]) == {"cg"}
    assert list(table.systems) == ["quartz"]
    found = values(table)
    assert found["cg main jobsize=27", 0, "seconds"] == found["cg main jobsize=27", 1, "seconds"] == 27
    assert found["cg main jobsize=64", 0, "seconds"] == 64
    assert ("cg main jobsize=64", 1, "seconds") not in found


def test_a_table_survives_hatchet_and_thicket():
    frames = as_graphframes(TABLE)
    assert set(frames) == {
        ("cg", "small", "quartz", 0),
        ("cg", "small", "quartz", 1),
        ("cg", "large", "quartz", 0),
    }
    first = frames["cg", "small", "quartz", 0]
    assert values(table_of(first)) == {
        key: value for key, value in values(TABLE).items() if "small" in key[0] and key[1] == 0
    }
    assert values(table_of(as_thicket(TABLE))) == values(TABLE)
    with pytest.raises(InvalidSetting, match="An empty table makes no Thicket"):
        as_thicket(CounterTable.of([]))


def test_programs_counted_as_a_whole_survive_too():
    table = CounterTable.of([
        Row(f"{name} -k", name, "", "-k", "vm", 0, "instructions", 5.0 + at, "qemu", "exact")
        for at, name in enumerate(("xz", "sqlite"))
    ])  # fmt: skip
    assert values(table_of(as_thicket(table))) == values(table)
    assert table_of(as_thicket(table)).frame["kernel"].unique().to_list() == [""]


def test_a_thicket_of_a_caliper_file_says_what_the_file_says(published):
    pytest.importorskip("caliperreader", reason="Caliper's own reader is not installed")
    path = published("CallFlow-1.1.1-py3-none-any.whl") / "data" / "caliper-cali" / "caliper-ex.cali"
    ours = import_files([path], ImportOptions(program="lulesh", size="x"))
    theirs = table_of(
        thicket.Thicket.from_caliperreader(str(path), disable_tqdm=True),
        ImportOptions(program="lulesh", size="x"),
    )
    mine, others = values(ours), values(theirs)
    times = {key: value for key, value in others.items() if key[2] == "seconds"}
    assert len(times) > 5
    assert all(mine[key] == pytest.approx(value) for key, value in times.items())
