"""What a lent machine brings back about programs, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apportion.errors import UnreadableFile
from reproduction.programs.page import page
from reproduction.programs.results import joined, read_results
from reproduction.programs.run import programs


def _program(name: str, later: float, gpu: float = 2e-3) -> dict[str, Any]:
    """A program that takes 8 ms on the CPU and this long on the GPU."""
    return {
        "program": name, "said": {"all cpu": "ok", "session": "ok" if later < 5e-3 else "x: wrong"},
        "rounds": {
            "all cpu": [9e-3, *[8e-3] * 5], "all gpu": [3e-3, *[gpu] * 5], "best assignment": [3e-3, *[gpu] * 5],
            "session": [6e-3, 3e-3, *[later] * 5], "session, all gpu": [6e-3, *[gpu + 1e-4] * 5],
        },
        "assignment": {"a": "gpu"}, "tried": 3,
        "decisions": [{"device": "gpu", "measured": ["cpu", "gpu"], "launches": 70}],
    }  # fmt: skip


def _folder(folder: Path) -> Path:
    lines = {
        "programs.jsonl": [_program("good", 2e-3), _program("bad", 8e-3)],
        "starpu.jsonl": [{"program": "good", "said": {"dmda": "ok"}, "rounds": {"dmda": [9.0, *[4e-3] * 5]}}],
        "launchpath-gpu.txt": [
            {"device": "gpu", "session": {"queue": 2.0, "each": 9.0, "there and back": 70.0},
             "share": {"queue": 200.0, "each": 200.0, "there and back": 210.0},
             "plain pyopencl": {"queue": 2.0, "each": 9.0, "there and back": 50.0}}
        ],
        "first-call.txt": [
            {name: {stage: {"least": 40.0, "median": took} for stage in ("import", "open", "first call")}
             for name, took in (("plain pyopencl, gpu", 50.0), ("share, known", 70.0))}
        ],
        "devices-4.txt": [
            {"id": "cpu", "name": "a Xeon", "platform": "PoCL", "driver": "5", "compute_units": 4,
             "calibration": {"left_out": ["worth angles"]}}
        ],
        "recording-4/efficiency.jsonl": [
            {"problem": "triad", "kernel": "triad", "failure": "", "verified": True, "tries": []}
        ],
    }  # fmt: skip
    for name, rows in lines.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a remark\n" + "\n".join(json.dumps(row) for row in rows) + "\n")
    (folder / "parts.log").write_text(
        "devices-4 ended with 0 after 21 s\nprograms ended with 124 after 99 s\n"
    )
    return folder


def test_the_page_says_which_goals_are_missed_and_where(tmp_path: Path) -> None:
    said = page(joined([read_results(_folder(tmp_path))]))
    # One program at the best, one at four times that: the geometric mean is 2.
    assert (
        "| later rounds over the best static assignment, geometric mean | 2.000 (1.000 to 4.000) | ≤ 1.03 | missed |"
        in said
    )
    assert (
        "| the worst later round over everything on one device (bad) | 4.00 | ≤ 1.05 everywhere | missed by 1 of 2: bad |"
        in said
    )
    assert "geometric mean of 1 | 0.500 | < 1 on every program | met |" in said
    assert "70 + 70 ms (plain pyopencl, one device: 50 + 50 ms) | ≤ 150 ms | met |" in said
    assert "`share` on gpu: there and back, with its copies | 210 µs | ≤ 120 µs | missed |" in said
    assert "wrong: 1. bad (session): x: wrong" in said
    # Ten launches a round; 0.1 ms more where the device is told, and 5.9 ms for a wrong choice.
    assert "| bad | 10 | 2 | 2.1 | 8 | +0.10 | +10.0 | +5.90 |" in said
    assert "| 4 | 21 s | cpu 4 units | 1 | 1 of 1 |" in said


def test_what_was_taken_is_stored_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "back").mkdir()
    monkeypatch.setattr("reproduction.programs.run.STORED", tmp_path / "stored.json.gz")
    with pytest.raises(UnreadableFile, match=r"Make it with: tools/lent-programs.sh"):
        programs(out=tmp_path / "page.md")
    programs(take=(_folder(tmp_path / "back"),), out=tmp_path / "page.md")
    first = (tmp_path / "page.md").read_text()
    programs(out=tmp_path / "again.md")
    assert (tmp_path / "again.md").read_text() == first
    with pytest.raises(UnreadableFile, match="There are no measured programs"):
        read_results(tmp_path)


def test_a_second_run_replaces_what_it_measured_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    before = read_results(_folder(first))
    (second / "programs.jsonl").write_text(json.dumps(_program("good", 1e-3)))
    (second / "parts.log").write_text("programs ended with 0 after 50 s\n")
    both = joined([before, read_results(second)])
    assert [(row["program"], row["run"]) for row in both["programs"]] == [("good", 2), ("bad", 1)]
    assert both["programs"][0]["rounds"]["session"][-1] == 1e-3
    said = page(both)
    assert "| *of these: 1 of the last run*: later rounds; first round | 0.500; 2.00 |" in said
    assert "| *the same in the run before*: later rounds; first round | 1.000; 2.00 |" in said
    assert both["starpu"] == [], "what StarPU took in another run is not beside it"
    assert [row["program"] for row in both["replaced"]] == ["good"]
    assert both["parts"] == {"devices-4": {"code": 0, "seconds": 21}, "programs": {"code": 0, "seconds": 50}}


def test_the_page_that_is_there_is_made_of_what_is_stored(tmp_path: Path) -> None:
    programs(out=tmp_path / "programs.md")
    there = Path(__file__).parents[3] / "docs" / "results" / "programs.md"
    assert (tmp_path / "programs.md").read_text() == there.read_text()
