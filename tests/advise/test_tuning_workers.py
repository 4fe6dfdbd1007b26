"""Configurations that a runner's workers measure: several at once, and a crash costs one of them."""

from __future__ import annotations

import json
import sys

import pytest

import apportion
from apportion.advise.study import Study
from apportion.advise.tuning_workers import TuningWorkers, WorkerBench
from apportion.cli import main
from apportion.errors import InvalidSetting
from apportion.jobs import LocalRunner
from apportion.measure.space import Space

SOURCE = """
import os
import time
import apportion

def cost(*, x, y):
    if x == 3:
        os.kill(os.getpid(), 11)
    time.sleep(0.01)
    return {"cost": 1 + (x - 7) ** 2 + y, "process": float(os.getpid())}

tunable = apportion.Tunable(cost, {"x": tuple(range(12)), "y": (1, 2, 4)}, objective="cost")
"""


def printed(capsys, *words: str) -> dict:
    with pytest.raises(SystemExit) as leaving:
        main(list(words))
    found = capsys.readouterr()
    assert not leaving.value.code, found.err
    return json.loads(found.out)


def test_workers_measure_several_at_once_and_a_crash_is_a_failure_of_its_configuration(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(SOURCE)
    words = [
        "tune",
        f"{tmp_path / 'mine.py'}:tunable",
        "--budget",
        "36",
        "--study",
        str(tmp_path / "s.jsonl"),
    ]
    found = printed(capsys, *words, "--runner", "local", "--workers", "2", "--json")
    assert found["best"] == {"x": 7, "y": 1}
    assert len(found["measured"]) == 36
    crashed = [one for one in found["measured"] if one["failure"]]
    assert {one["configuration"]["x"] for one in crashed} == {3}
    assert len(crashed) == 3
    assert "SIGSEGV" in crashed[0]["failure"]
    processes = {one["metrics"]["process"] for one in found["measured"] if not one["failure"]}
    assert len(processes) >= 2
    kept = Study(Space({"x": tuple(range(12)), "y": (1, 2, 4)}), tmp_path / "s.jsonl")
    assert len(kept.measured) == 36
    assert kept.claimed == []


def test_a_command_is_tuned_by_workers(tmp_path, capsys):
    (tmp_path / "prog.py").write_text("import sys\nx = float(sys.argv[1])\nprint(1 + (x - 5) ** 2)\n")
    command = f"{sys.executable} -S {tmp_path / 'prog.py'} {{x}}"
    words = ["tune", "--command", command, "--param", "x=0..9", "--objective", "returned", "--budget", "10"]
    found = printed(capsys, *words, "--runner", "local", "--workers", "2", "--json")
    assert found["best"] == {"x": 5}
    assert len(found["measured"]) == 10


def test_the_default_and_the_best_take_turns_in_one_worker(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "import time\nimport apportion\n\n"
        "def spin(*, tile):\n    time.sleep(0.002 * tile)\n\n"
        "tunable = apportion.Tunable(spin, {'tile': (1, 4, 8)}, default={'tile': 8})\n"
    )
    words = ["tune", f"{tmp_path / 'mine.py'}:tunable", "--budget", "3", "--repeats", "2", "--confirm", "5"]
    found = printed(capsys, *words, "--runner", "local", "--json")
    assert found["best"] == {"tile": 1}
    assert found["than"] == "the default"
    assert found["speedup_interval"][0] > 2


def test_what_cannot_travel_says_so():
    with pytest.raises(InvalidSetting, match="Give a function at the top level of a module"):
        apportion.tune(lambda *, x: x, {"x": (1, 2)}, budget=2, runner="local")


def test_workers_without_a_runner_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["tune", "--command", "true {x}", "--param", "x=1,2", "--budget", "2", "--workers", "2"])
    assert "--workers are those of a --runner: name one, as --runner local" in capsys.readouterr().err


def test_no_more_are_under_way_than_there_are_workers():
    assert TuningWorkers(LocalRunner(workers=3), WorkerBench(list)).together == 3
    assert TuningWorkers(LocalRunner(), WorkerBench(list)).together >= 8
