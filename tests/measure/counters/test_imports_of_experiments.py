"""Imports as users meet them: today's perf, other locales, several experiments, a second import."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from apportion.cli import main
from apportion.data.counter_table import SCHEMA, CounterTable
from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports import ImportOptions, add_to, format_of, import_files
from apportion.measure.counters.imports.caliper import experiment_of
from apportion.measure.counters.imports.naming import decimal_mark

PERF_TODAY = """{"counter-value" : "1000.000000", "unit" : "", "event" : "cpu_core/instructions/u", "event-runtime" : 10, "pcnt-running" : 100.00, "metric-value" : "1.5", "metric-unit" : "insn per cycle"}
{"metric-value" : "0.600000", "metric-unit" : "insn per cycle"}
{"counter-value" : "500.000000", "unit" : "", "event" : "cpu_atom/instructions/u", "event-runtime" : 10, "pcnt-running" : 40.00}
{"metric-value" : "12.3", "metric-threshold" : "good", "metric-unit" : "%  tma_frontend_bound"}
{"counter-value" : "150.000000", "unit" : "", "event" : "cpu_core/branches/u", "event-runtime" : 10, "pcnt-running" : 100.00}
"""
PERF_TABLE = """# started on Mon Nov 16 10:00:00 2026

1000,,instructions:u,553814132,100.00,0.65,insn per cycle
,,,,,0.10,stalled cycles per insn
<not supported>,,LLC-loads:u,0,100.00,,
300.5,msec,task-clock,553814132,100.00,0.284,CPUs utilized
100,,branches:u,553814132,50.00,,
10,,branch-misses:u,553814132,100.00,10.00,of all branches
"""
PERF_INTERVALS = "     1.000123;400;;instructions:u;1;100,00\n     2.000234;600;;instructions:u;1;100,00\n"
PERF_SCRIPT = """xz  4242 [001]  1.000001:     250000 cycles:u:      55d8 lzma_code+0x10 (/usr/lib/liblzma.so)
xz  4242/4243  1.000101:     750000 cycles:u:
    55d8 lzma_code+0x10 (/usr/lib/liblzma.so)
my prog  9  2.5:   40 cpu_core/instructions/u:
"""
NCU = """"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","19963","plain","127.0.0.1","saxpy","1","7","(256, 1, 1)","(16, 4, 1)","0","9.0","Section","Duration","ns","117.344"
"0","19963","plain","127.0.0.1","saxpy","1","7","(256, 1, 1)","(16, 4, 1)","0","9.0","Section","Memory Throughput","%","65,77"
"0","19963","plain","127.0.0.1","saxpy","1","7","(256, 1, 1)","(16, 4, 1)","0","9.0","Section","Elapsed Cycles","cycle","1.234.567"
"""


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def imported(path: Path, **options: str) -> dict[str, float | None]:
    table = import_files([path], ImportOptions(**options))
    return dict(table.frame.select("counter", "value").iter_rows())


def cali(ranks: int, seconds: float, *, date: int = 1) -> str:
    """A run of LULESH as Caliper writes it: one region, and globals of Adiak."""
    names = ("cluster", "executablepath", "mpi.world.size", "problem_size", "launchdate", "compiler")
    attributes = "".join(
        f"__rec=node,id={40 + n},attr=10,data=1612,parent=3\n__rec=node,id={60 + n},attr=8,data={name},parent={40 + n}\n"
        for n, name in enumerate(names)
    )
    values = ("quartz", "/opt/lulesh2.0", ranks, 30, date, "gcc-12")
    nodes = "".join(
        f"__rec=node,id={80 + n},attr={60 + n},data={value}{f',parent={79 + n}' if n else ''}\n"
        for n, value in enumerate(values)
    )
    return (
        "__rec=node,id=20,attr=10,data=65,parent=5\n__rec=node,id=22,attr=8,data=sum#time.duration,parent=20\n"
        "__rec=node,id=31,attr=10,data=268,parent=3\n__rec=node,id=32,attr=8,data=region,parent=31\n"
        f"__rec=node,id=50,attr=32,data=main\n__rec=ctx,ref=50,attr=22,data={seconds}\n"
        f"{attributes}{nodes}__rec=globals,ref=85\n"
    )


def test_lines_of_perf_that_hold_a_metric_and_no_event_are_passed_over(tmp_path):
    path = written(tmp_path, "xz.json", PERF_TODAY)
    assert format_of(path) == "perf"
    found = imported(path)
    assert found["instructions"] == 1500  # both kinds of cores
    assert found["control_ratio"] == pytest.approx(0.1)
    table = import_files([path], ImportOptions())
    exactness = dict(table.frame.select("counter", "exactness").iter_rows())
    assert exactness["instructions"] == "sampled"


def test_a_file_that_begins_with_a_metric_is_perfs_too(tmp_path):
    lines = PERF_TODAY.splitlines(keepends=True)
    assert format_of(written(tmp_path, "xz.json", lines[1])) == "perf"


def test_the_table_of_perf_stat_is_read(tmp_path):
    path = written(tmp_path, "xz.csv", PERF_TABLE)
    assert format_of(path) == "perf"
    found = imported(path)
    assert found["instructions"] == 1000
    assert found["LLC-loads:u"] is None
    assert found["task-clock"] == 300.5
    assert found["branch_miss_ratio"] == pytest.approx(0.1)
    german = "100;;instructions;1;100,00;;\n5,25;msec;task-clock;1;100,00;0,9;CPUs utilized\n"
    assert imported(written(tmp_path, "german.csv", german)) == {"instructions": 100, "task-clock": 5.25}
    other = written(tmp_path, "intervals.txt", PERF_INTERVALS)
    assert format_of(other) == "perf"
    assert imported(other) == {"instructions": 1000}


def test_a_broken_row_of_perfs_table_names_its_line(tmp_path):
    path = written(tmp_path, "xz.csv", PERF_TABLE + "what is this\n")
    with pytest.raises(MalformedInput, match=r"xz\.csv:9: not a line of `perf stat -x,`"):
        import_files([path], ImportOptions())


def test_samples_that_perf_script_prints_add_up_to_counts_of_each_command(tmp_path):
    path = written(tmp_path, "out.txt", PERF_SCRIPT)
    assert format_of(path) == "perf-script"
    frame = import_files([path], ImportOptions()).frame
    found = {(run, counter): value for run, counter, value in frame.select("run", "counter", "value").rows()}
    assert found == {("xz", "cycles:u"): 1_000_000, ("my prog", "instructions"): 40}
    assert set(frame["exactness"]) == {"sampled"}


def test_numbers_of_nsight_compute_mean_the_same_in_any_locale(tmp_path):
    european = imported(written(tmp_path, "ncu.csv", NCU))
    assert european["seconds"] == pytest.approx(117_344e-9)
    assert european["Memory Throughput"] == 65.77
    assert european["Elapsed Cycles"] == 1_234_567
    swapped = NCU.replace("117.344", "117,344").replace("65,77", "65.77").replace("1.234.567", "1,234,567")
    assert imported(written(tmp_path, "english.csv", swapped)) == european
    french = NCU.replace("117.344", "117 344").replace("1.234.567", "1\u202f234\u202f567")
    assert imported(written(tmp_path, "french.csv", french)) == european


@pytest.mark.parametrize(
    ("texts", "mark"),
    [(["117.344"], "."), (["117.344", "65,77"], ","), (["1.234,5"], ","), (["1,234.5"], "."), (["1,234,567"], "."),
     (["0,123"], ","), (["(1, 2)", "12"], "."), ([], ".")],
)  # fmt: skip
def test_the_mark_before_the_decimals_is_found_from_all_numbers(texts, mark):
    assert decimal_mark(texts) == mark


@pytest.mark.skipif(shutil.which("ncu") is not None, reason="ncu is installed and would read it")
def test_a_report_of_nsight_compute_without_ncu_says_how_to_turn_it_into_a_table(tmp_path):
    path = written(tmp_path, "run.ncu-rep", "NVR")
    with pytest.raises(UnreadableFile, match=r"ncu --import run\.ncu-rep --csv --page raw > run.csv"):
        import_files([path], ImportOptions())


def test_experiments_with_different_ranks_are_different_runs(tmp_path):
    paths = [written(tmp_path, f"l{ranks}.cali", cali(ranks, ranks / 10)) for ranks in (27, 64, 125)]
    table = import_files(paths, ImportOptions())
    assert set(table.frame["repeat"]) == {0}
    assert table.frame["run"].n_unique() == 3
    assert set(table.frame["size"]) == {
        f"compiler=gcc-12 mpi.world.size={ranks} problem_size=30" for ranks in (27, 64, 125)
    }
    assert list(table.systems) == ["quartz"]


def test_the_same_experiment_on_another_day_is_a_repeat(tmp_path):
    paths = [written(tmp_path, f"d{day}.cali", cali(27, 1 + day, date=day)) for day in range(3)]
    table = import_files(paths, ImportOptions())
    assert table.frame["run"].n_unique() == 1
    assert sorted(set(table.frame["repeat"])) == [0, 1, 2]


def test_caliper_names_what_tells_experiments_apart():
    known = {"mpi.world.size": "27", "launchdate": "17", "compiler flags": "-O3", "cali.channel": "x", "user": "me",
             "figure_of_merit": "3.5", "iterations": "10", "nz": "40", "jobid": "12"}  # fmt: skip
    assert experiment_of(known) == "compiler flags=-O3 iterations=10 mpi.world.size=27 nz=40"


def test_a_second_import_adds_repeats(tmp_path):
    path = written(tmp_path, "xz.json", PERF_TODAY)
    first = import_files([path], ImportOptions(system="quartz"))
    both = add_to(first, import_files([path, path], ImportOptions(system="quartz")))
    assert sorted(set(both.frame["repeat"])) == [0, 1, 2]
    assert len(both.frame) == 3 * len(first.frame)
    other = add_to(both, import_files([path], ImportOptions(system="lassen")))
    assert other.frame.filter(pl.col("system") == "lassen")["repeat"].unique().to_list() == [0]


def test_importing_twice_on_the_command_line_keeps_both_and_names_them(tmp_path, capsys):
    path, out = written(tmp_path, "xz.json", PERF_TODAY), tmp_path / "runs.parquet"
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["counters", "import", str(path), "--system", "quartz", "--out", str(out)])
        assert ended.value.code == 0
    said = capsys.readouterr()
    assert "xz" in said.out
    assert "instructions" in said.out
    assert CounterTable.read(out).frame["repeat"].max() == 1


def test_a_parquet_file_with_the_documented_columns_is_a_table_of_counters(tmp_path):
    row = ("xz", "xz", "", "", "quartz", 0, "instructions", 5, "perf", "exact")
    plain = pl.DataFrame([row], schema=list(SCHEMA), orient="row")  # whole numbers are 64-bit integers here
    plain.write_parquet(tmp_path / "a.parquet")
    plain.select(reversed(plain.columns)).write_parquet(tmp_path / "b.parquet")
    for name in ("a.parquet", "b.parquet"):
        table = CounterTable.read(tmp_path / name)
        assert table.frame.row(0) == (*row[:7], 5.0, *row[8:])
    plain.drop("source").write_parquet(tmp_path / "c.parquet")
    with pytest.raises(MalformedInput, match="the column 'source' is missing"):
        CounterTable.read(tmp_path / "c.parquet")
