from __future__ import annotations

import json
from pathlib import Path

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


def test_efficiency_goes_on_where_it_stopped_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["suite", "efficiency", "triad", "--small", "--budget", "0.1", "--repeat", "5", "--threads", "1",
             "--devices", "cpu,cpu2", "--out", str(tmp_path / "out")]  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert not stopped.value.code
    assert "triad" in capsys.readouterr().out
    rows = (tmp_path / "out" / "efficiency.jsonl").read_text()
    assert len(rows.splitlines()) == 1
    text = (tmp_path / "out" / "co-execution.md").read_text()
    assert text.startswith("# One kernel on two devices")
    assert "co-execution-curves.svg" in text
    with pytest.raises(SystemExit):
        main([*words, "--json"])
    assert (tmp_path / "out" / "efficiency.jsonl").read_text() == rows
    (tmp_path / "out" / "efficiency.jsonl").write_text('{"problem": 3}\n')
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 1
    assert "not a table of efficiencies" in capsys.readouterr().err
