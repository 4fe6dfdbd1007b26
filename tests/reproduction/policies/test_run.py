"""The command that writes the page about policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, UnreadableFile
from reproduction.policies.page import page
from reproduction.policies.replays import CONTENDERS, LAUNCHES, ReplayedKernel, Replays
from reproduction.policies.run import FIT, STORED, policies
from reproduction.stored import kept

FITTED = kept(STORED / FIT, made_by="python -m reproduction policies fit")


def _replays(lost: float) -> Replays:
    """Two kernels, of which every launch takes so many times what the best cut does."""
    kernels = tuple(
        ReplayedKernel(name, "usual", 1e-3, 1.25e-3, "", dict.fromkeys(CONTENDERS, [lost] * LAUNCHES))
        for name in ("first", "second")
    )
    return Replays({"cpu": "a CPU", "gpu": "a GPU"}, 0.05, "a-model", kernels)


def test_what_is_missed_is_bold_and_what_is_met_is_not() -> None:
    good, bad = (page(FITTED, {"a machine": _replays(lost)}) for lost in (1.005, 1.4))
    row = next(line for line in good.splitlines() if line.startswith("| a machine | bayes"))
    assert row == "| a machine | bayes | 1.005 | 1.005 | 1.005 | 0.804, `first` | 0 of 2 |"
    row = next(line for line in bad.splitlines() if line.startswith("| a machine | bayes"))
    assert row == "| a machine | bayes | **1.400** | **1.400** | **1.400** | 1.120, `first` | 2 of 2 |"


def test_every_contender_has_a_row_in_every_table_of_a_recording() -> None:
    lines = page(FITTED, {"a machine": _replays(1.2)}).splitlines()
    for contender in CONTENDERS:
        assert sum(line.startswith(f"| {contender} |") for line in lines) == 3


def test_what_is_asked_for_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="Say one of page, fit, replay, not 'pgae'"):
        policies("pgae")
    with pytest.raises(UnreadableFile, match="Make it with: python -m reproduction policies fit"):
        policies("page", stored=tmp_path, out=tmp_path / "policies.md")
