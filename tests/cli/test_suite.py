from __future__ import annotations

import json

import pytest

from apportion.cli import main

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")


def test_problems_are_listed_without_loading_a_driver(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["suite", "list", "--json"])
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"problem": "triad", "question": "c = a + 3 b", "traits": "memory", "chai": ""} in listed


def test_a_run_verifies_on_every_device(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["suite", "run", "extremes", "--small", "--repeat", "1", "--devices", "cpu,cpu2", "--json"])
    assert not stopped.value.code
    said = capsys.readouterr()
    assert [json.loads(line)["verified"] for line in said.out.splitlines()] == [True, True, True]
    assert json.loads(said.out.splitlines()[2])["said"] == "least: min, most: max"
    assert "3 of 3 verified." in said.err


def test_programs_are_listed_and_verified_on_every_device_and_in_a_session(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["suite", "list", "--programs", "--json"])
    listed = [json.loads(line)["program"] for line in capsys.readouterr().out.splitlines()]
    assert len(listed) == 13
    assert {"canny", "gradients", "search", "bitonic", "network"} <= set(listed)
    words = [
        "suite",
        "run",
        "power",
        "--programs",
        "--small",
        "--repeat",
        "1",
        "--devices",
        "cpu,cpu2",
        "--json",
    ]
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert not stopped.value.code
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["device"], row["verified"]) for row in rows] == [
        ("cpu", True), ("cpu2", True), ("session", True)
    ]  # fmt: skip
    assert all(row["milliseconds"] > 0 and "the first round took" in row["said"] for row in rows)
    assert "kernels ran on cpu" in rows[2]["said"]


def test_programs_have_no_large_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["suite", "run", "power", "--programs", "--large"])
    assert stopped.value.code == 1
    assert capsys.readouterr().err == "apportion: Programs have no large inputs. Leave out --large\n"
