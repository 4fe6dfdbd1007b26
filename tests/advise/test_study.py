"""Studies on disk: after a kill, shared by processes, and asked by programs of any kind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import apportion
from apportion.advise.study import Study, TriedConfiguration
from apportion.cli import main
from apportion.errors import InvalidSetting, MalformedInput
from apportion.measure.space import Space
from apportion.measure.tuning_table import read_table

VALUES = {"x": tuple(range(12)), "y": (1, 2, 4)}
PROGRAM = """
import sys, time
import apportion

def cost(*, x, y):
    time.sleep(float(sys.argv[3]))
    return 1 + (x - 7) ** 2 + y

values = {"x": tuple(range(12)), "y": (1, 2, 4)}
apportion.tune(cost, values, budget=int(sys.argv[2]), objective="returned", study=sys.argv[1], progress=False)
"""


def cost(*, x: int, y: int) -> float:
    return 1 + (x - 7) ** 2 + y


def started(tmp_path, budget: int, pause: float) -> subprocess.Popen[bytes]:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "s.jsonl"), str(budget), str(pause)]
    return subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"})


def results(tmp_path) -> list[dict]:
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    return [line for line in lines if "configuration" in line]


def test_a_study_goes_on_where_it_was(tmp_path):
    path = tmp_path / "s.jsonl"
    first = apportion.tune(cost, VALUES, budget=5, objective="returned", study=path)
    second = apportion.tune(cost, VALUES, budget=9, objective="returned", study=path)
    assert len(first.measured) == 5
    assert len(second.measured) == 9
    assert [one.configuration for one in second.measured[:5]] == [one.configuration for one in first.measured]
    assert len(results(tmp_path)) == 9
    assert apportion.tune(cost, VALUES, budget=9, objective="returned", study=path).best == second.best


def test_a_killed_study_goes_on_and_nothing_is_lost(tmp_path):
    process = started(tmp_path, 36, 0.1)
    path = tmp_path / "s.jsonl"
    end = time.monotonic() + 60
    while time.monotonic() < end and (not path.exists() or len(results(tmp_path)) < 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with path.open("a") as file:
        file.write('{"configuration": {"x": 1')  # what a kill in the middle of a line leaves
    kept = Study(Space(VALUES), path)
    done = len(kept.measured)
    assert done >= 3
    assert kept.claimed == []  # the dead process' claim counts no more
    tuning = apportion.tune(cost, VALUES, budget=done + 4, objective="returned", study=path)
    assert len(tuning.measured) == len(results(tmp_path)) == done + 4


def test_processes_share_a_study_and_measure_nothing_twice(tmp_path):
    processes = [started(tmp_path, 14, 0.05) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    found = [tuple(sorted(line["configuration"].items())) for line in results(tmp_path)]
    assert len(found) == len(set(found))
    assert 14 <= len(found) <= 16  # who began before the last was told ends after it


def test_a_study_of_another_space_is_refused_and_a_damaged_line_named(tmp_path):
    path = tmp_path / "s.jsonl"
    apportion.tune(cost, VALUES, budget=3, objective="returned", study=path)
    with pytest.raises(InvalidSetting, match="is a study of another space; give another file"):
        Study(Space({"x": (1, 2), "y": (1, 2, 4)}), path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{}", *lines[1:]]) + "\n")
    with pytest.raises(MalformedInput, match=r"s\.jsonl:2: no line of a study"):
        Study(Space(VALUES), path)


def test_failures_and_values_that_json_does_not_have_are_kept(tmp_path):
    space = Space({"order": ((0, 1), (1, 0)), "on": (True, False)})
    path = tmp_path / "s.jsonl"
    study = Study(space, path)
    study.add(TriedConfiguration({"order": (1, 0), "on": True}, (), "it failed"))
    study.add(TriedConfiguration({"order": (0, 1), "on": False}, (0.5,), value=0.5, metrics={"energy": 2.0}))
    again = list(Study(space, path).measured.values())
    assert [one.configuration for one in again] == [
        {"order": (1, 0), "on": True},
        {"order": (0, 1), "on": False},
    ]
    assert again[0].failure == "it failed"
    assert again[1].metrics == {"energy": 2.0}


def said(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    found = capsys.readouterr()
    assert ended.value.code in (0, None), found.err
    return found.out


def test_programs_of_any_kind_ask_and_tell(tmp_path, capsys):
    words = ("tune", "--study", str(tmp_path / "s.jsonl"), "--param", "x=0..11", "--param", "y=1,2,4")
    for _ in range(16):
        one = json.loads(said(capsys, *words, "--ask"))
        answer = (
            {"configuration": one, "value": cost(**one)}
            if one["y"] != 4
            else {"configuration": one, "failure": "no"}
        )
        said(capsys, *words, "--tell", json.dumps(answer))
    values = [line["value"] for line in results(tmp_path) if "value" in line]
    assert len(results(tmp_path)) == 16
    assert min(values) <= 3
    for wrong in (
        '{"configuration": {"x": 99, "y": 1}, "value": 1}',
        '{"configuration": {"x": 1, "y": 1}, "value": "fast"}',
        "8",
    ):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--tell", wrong])
        assert ended.value.code == 1


def test_two_who_ask_before_they_tell_get_different_configurations(tmp_path, capsys):
    words = ("tune", "--study", str(tmp_path / "s.jsonl"), "--param", "x=1,2,3")
    asked = [json.loads(said(capsys, *words, "--ask"))["x"] for _ in range(3)]
    assert sorted(asked) == [1, 2, 3]
    with pytest.raises(SystemExit):
        main([*words, "--ask"])
    assert "is measured in" in capsys.readouterr().err
    said(capsys, *words, "--tell", '{"configuration": {"x": 1}, "value": 2.0}')
    lines = re.sub(r'"at": [0-9.]+', '"at": 0.5', (tmp_path / "s.jsonl").read_text())  # long ago
    (tmp_path / "s.jsonl").write_text(lines)
    assert json.loads(said(capsys, *words, "--ask"))["x"] in (2, 3)  # asked for, and never told


def test_a_study_starts_another_one_warm(tmp_path):
    path = tmp_path / "s.jsonl"
    apportion.tune(cost, VALUES, budget=36, objective="returned", study=path)
    warm = apportion.tune(cost, VALUES, budget=4, objective="returned", warm_start=path)
    assert warm.best == {"x": 7, "y": 1}
    for format in ("t4", "kernel-tuner"):
        apportion.tune(cost, VALUES, budget=36, objective="returned").write(
            tmp_path / "r.json", format=format
        )
        table = read_table(tmp_path / "r.json")
        assert len(table.rows) == 36
        assert table.best == pytest.approx(2)
        again = apportion.tune(cost, VALUES, budget=4, objective="returned", warm_start=tmp_path / "r.json")
        assert again.best == {"x": 7, "y": 1}
    with pytest.raises(InvalidSetting, match="has no two configurations that ran with the parameters z"):
        apportion.tune(lambda *, z: 1.0, {"z": (1, 2)}, budget=2, objective="returned", warm_start=table)


def test_values_of_numpy_are_plain_ones_in_files_and_calls(tmp_path):
    def cost(*, x, y, z):
        assert type(x) is int
        return x + (y == "b") + 2 * z

    values = {"x": np.array([1, 2, 4]), "y": list(np.array(["a", "b"])), "z": list(np.array([True, False]))}
    options = {"budget": 8, "objective": "returned", "default": {"x": np.int64(2), "y": "a", "z": np.False_}}
    first = apportion.tune(cost, values, study=tmp_path / "s.jsonl", **options)
    first.write(tmp_path / "r.json")
    for known in (tmp_path / "s.jsonl", tmp_path / "r.json"):
        again = apportion.tune(cost, values, budget=2, objective="returned", warm_start=known)
        assert again.best == {"x": 1, "y": "a", "z": False}


def test_a_table_with_words_for_numbers_is_no_warm_start(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,seconds\n1 KiB,1,2\n2 KiB,1,3\n")
    with pytest.raises(InvalidSetting, match="has no two configurations that ran with the parameters x, y"):
        apportion.tune(cost, VALUES, budget=2, objective="returned", warm_start=tmp_path / "t.csv")
