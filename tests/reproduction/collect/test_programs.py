"""Programs of our own: families, runs that can be gone on with, counts that devices share, and their table."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from apportion.data.counter_table import CounterTable
from apportion.jobs.journal import Journal
from reproduction.__main__ import main
from reproduction.collect import program_profile, program_times
from reproduction.collect.program_table import failures, program_table
from reproduction.collect.program_times import OperatorCounts, count, made, measure, run_name
from reproduction.collect.torch_programs import TorchProgram, every_run, programs

LOOP = """
#include <valgrind/callgrind.h>
static void turns(const char *name, long count) {
    CALLGRIND_ZERO_STATS; CALLGRIND_TOGGLE_COLLECT;
    for (volatile long i = 0; i < count; i++) ;
    CALLGRIND_TOGGLE_COLLECT; CALLGRIND_DUMP_STATS_AT(name);
}
int main(void) { turns("a/few/1", 1000); turns("a/many/2", 1001000); return 0; }
"""
"Two loops, a million turns apart."
FEW = [one for one in programs() if one.name in ("sort", "triad", "thin product", "histogram")]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four programs at two small sizes instead of all."""
    small = [TorchProgram(one.family, one.name, one.make, 64, one.dimensions) for one in FEW]
    runs = [(one, size) for one in small for size in one.sizes(2)]
    monkeypatch.setattr(program_times, "every_run", lambda steps: iter(runs))


def test_there_are_eighty_programs_in_fifteen_families_and_a_thousand_runs() -> None:
    found = programs()
    assert len(found) >= 80
    assert len({one.family for one in found}) == 15
    runs = [run_name(*one) for one in every_run(program_times.STEPS)]
    assert len(set(runs)) == len(runs) >= 1000


@pytest.mark.parametrize("program", programs(), ids=lambda one: f"{one.family}-{one.name}".replace(" ", "-"))
def test_every_program_runs_at_its_smallest_size(program: TorchProgram) -> None:
    made(program, program.sizes(program_times.STEPS)[0], "cpu")()


def test_runs_are_timed_once_and_half_a_line_is_measured_again(tmp_path: Path, few: None) -> None:
    assert measure(tmp_path, "here", "cpu", threads=1, seconds=0, steps=2) == 8
    assert measure(tmp_path, "here", "cpu", threads=1, seconds=60, steps=2) == 0
    whole = (tmp_path / "here.jsonl").read_text()
    assert len(whole.splitlines()) == 9
    (tmp_path / "here.jsonl").write_text(whole[:-5])
    measure(tmp_path, "here", "cpu", threads=1, seconds=60, steps=2)
    again = [json.loads(line) for line in (tmp_path / "here.jsonl").read_text().splitlines()]
    assert len({line["run"] for line in again}) == len(again) == 9
    assert all(5 <= len(line["seconds"]) <= 15 for line in again[1:])


def test_counts_are_those_of_the_operators() -> None:
    a = torch.ones(8, 16)
    with OperatorCounts() as counted:
        (a @ a.T).sum()
    assert counted.counts["operators"] == 2
    assert counted.counts["products"] == 64
    assert counted.counts["reductions"] == 1
    assert counted.counts["bytes_in"] == 2 * 4 * 128 + 4 * 64


def test_times_and_counters_become_one_table(tmp_path: Path, few: None, capsys) -> None:
    for system in ("one", "two"):
        measure(tmp_path / "runs", system, "cpu", threads=1, seconds=60, steps=2)
    count(tmp_path / "runs", steps=2)
    with (tmp_path / "runs" / "two.jsonl").open("a") as file:
        file.write('{"run": "sorting/sort/9", "failure": "RuntimeError: too small"}\n')
    assert failures(tmp_path / "runs") == [("two", "sorting/sort/9", "RuntimeError: too small")]
    table = program_table(tmp_path / "runs")
    assert table.times().mask.shape == (8, 2)
    with pytest.raises(SystemExit):
        main(["collect", "programs", str(tmp_path / "runs"), "--out", str(tmp_path / "all.parquet")])
    assert "8 runs on every system, 1 failures" in capsys.readouterr().err
    assert set(CounterTable.read(tmp_path / "all.parquet").systems) == {"one", "two"}


def test_counters_of_table_one_stand_beside_the_operators(tmp_path: Path, few: None) -> None:
    measure(tmp_path, "one", "cpu", threads=1, seconds=60, steps=2)
    run = next(name for name in (tmp_path / "one.jsonl").read_text().split('"') if name.count("/") == 2)
    counted = {"run": run, "counters": {"instructions": 9e6, "l1_miss_hit_ratio": 0.1}}
    (tmp_path / "table-i.jsonl").write_text(json.dumps(counted) + "\n")
    rows = {row["counter"]: row for row in program_table(tmp_path).about(systems=[""]).frame.to_dicts()}
    assert (rows["instructions"]["source"], rows["instructions"]["exactness"]) == ("callgrind", "exact")
    assert rows["l1_miss_hit_ratio"]["exactness"] == "simulated"
    assert {row["run"] for row in rows.values()} == {run}


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_what_callgrind_dumps_under_a_name_becomes_counters_of_that_run(tmp_path: Path) -> None:
    if not Path("/usr/include/valgrind/callgrind.h").exists() or not shutil.which("cc"):
        pytest.skip("valgrind's headers or a C compiler are not installed")
    (tmp_path / "loop.c").write_text(LOOP)
    subprocess.run(["cc", "-O1", "-o", tmp_path / "loop", tmp_path / "loop.c"], check=True)
    options = ("--collect-atstart=no", "--dump-instr=yes", "--cache-sim=yes", "--branch-sim=yes")
    words = ["valgrind", "-q", "--tool=callgrind", *options, f"--callgrind-out-file={tmp_path}/out"]
    subprocess.run([*words, tmp_path / "loop"], check=True, capture_output=True)
    journal = Journal(tmp_path / "table-i.jsonl")
    assert program_profile._read(tmp_path, journal, running=False) == 2
    few, many = journal.entries()
    assert (few["run"], many["run"]) == ("a/few/1", "a/many/2")
    assert 3.9e6 < many["counters"]["instructions"] - few["counters"]["instructions"] < 1.1e7
    assert not list(tmp_path.glob("out.*"))
