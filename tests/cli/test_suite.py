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
