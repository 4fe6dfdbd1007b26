"""The soak gives each part its time, keeps what it said, and tells what was not survived."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import soak


def test_parts_are_given_all_of_the_time():
    assert sum(part.portion for part in soak.PARTS) == pytest.approx(1.0)
    assert {part.name for part in soak.PARTS} >= {"fuzz-ir", "fuzz-repetition", "kills", "load", "hostile"}


@pytest.mark.parametrize("part", soak.PARTS, ids=[part.name for part in soak.PARTS])
def test_a_part_runs_what_is_there(part: soak.Part, tmp_path: Path):
    _, first, *more = part.command(10.0, 3, tmp_path)
    if first == "-m":
        place = soak.ROOT / more[0].replace(".", "/")
        assert (place / "__main__.py").exists() or place.with_suffix(".py").exists()
    else:
        assert (soak.ROOT / first).exists()
    assert "{" not in " ".join(more)


def test_a_part_ends_in_time_and_leaves_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (part,) = (part for part in soak.PARTS if part.name == "fuzz-repetition")
    assert soak._tried(part, 2.0, 1, tmp_path) == 0
    assert "All were survived." in (tmp_path / "repetition.md").read_text()
    assert "fuzz-repetition: survived" in capsys.readouterr().out


def test_what_is_not_survived_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert soak._tried(soak.Part("wrong", 1.0, "-c 1/0"), 1.0, 1, tmp_path) == 1
    assert "ZeroDivisionError" in (tmp_path / "wrong.txt").read_text()
    assert "wrong: NOT SURVIVED (1)" in capsys.readouterr().out
