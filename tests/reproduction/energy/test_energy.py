"""Joules of cuts, and what the page says of them, on a machine whose power is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.coexecution.objective import Objective
from reproduction.energy.choices import best, energies, fitted_power, measured_watts, off_by
from reproduction.energy.measure import CutRow, EnergyRow, row_from
from reproduction.energy.page import page
from reproduction.energy.run import energy

IDLE = {"card 0": 80.0}
ACTIVE = {"cpu": 20.0, "gpu": 300.0}
"Beyond idle, as the card's meter sees it: a busy CPU draws on the card's memory."


def _cut(share: float, cpu_seconds: float, gpu_seconds: float, launching: float = 1.0) -> CutRow:
    working = {"cpu": share * cpu_seconds, "gpu": (1 - share) * gpu_seconds}
    working = {name: seconds for name, seconds in working.items() if seconds > 0}
    seconds = max(working.values())
    watts = 80.0 + sum(ACTIVE[name] * each / seconds for name, each in working.items())
    window = launching * watts + (1 - launching) * 80.0
    return CutRow(share, 9, seconds, seconds, working, {"card 0": window}, 0.3, launching)


def _row(kernel: str, cpu_seconds: float, gpu_seconds: float, launching: float = 1.0) -> EnergyRow:
    cuts = tuple(_cut(share, cpu_seconds, gpu_seconds, launching) for share in (0.0, 0.1, 0.5, 1.0))
    return EnergyRow("a problem", kernel, 1024, ("cpu", "gpu"), cuts)


ROWS = [
    _row("triad", 4e-3, 2e-3),
    _row("nbody", 9e-3, 1e-3),
    _row("heat", 3e-3, 2e-3, 0.6),
    _row("matmul", 9e-3, 2e-3),
]
MACHINE = {"cpu": "a Xeon", "gpu": "an H200", "idle": IDLE, "meters": ["card 0"]}


def test_time_between_launches_counts_as_idle() -> None:
    half, whole = _cut(0.0, 1.0, 1e-3, 0.5), _cut(0.0, 1.0, 1e-3)
    assert measured_watts(half, IDLE) == pytest.approx(380.0)
    assert measured_watts(whole, IDLE) == pytest.approx(380.0)


def test_a_cut_is_left_out_whose_meters_did_not_all_move() -> None:
    assert measured_watts(_cut(0.0, 1.0, 1e-3), {"card 0": 80.0, "package 0": 30.0}) is None
    assert measured_watts(_cut(0.0, 1.0, 1e-3), {}) is None


def test_watts_that_are_given_are_added_for_as_long_as_the_device_works() -> None:
    (row,) = [each for each in ROWS if each.kernel == "matmul"]
    bare, given = energies(row, IDLE, {}), energies(row, IDLE, {"cpu": (100.0, 20.0)})
    for one, other in zip(bare, given, strict=True):
        cpu = one.working.get("cpu", 0.0)
        assert other.joules - one.joules == pytest.approx(20.0 * one.seconds + 100.0 * cpu)


def test_each_objective_takes_another_cut() -> None:
    cuts = energies(_row("heat", 3e-3, 2e-3), IDLE, {})
    assert best(cuts, Objective()).share == 0.5
    assert best(cuts, Objective("energy")).share == 1.0  # the card draws nearly nothing meanwhile
    assert best(cuts, Objective("power", 150.0)).share == 1.0


def test_the_model_is_right_where_devices_draw_the_same_whatever_they_do() -> None:
    power = fitted_power(ROWS, IDLE, {})
    assert power.idle == 80.0
    assert power.active == pytest.approx(ACTIVE)
    for row in ROWS:
        assert off_by(energies(row, IDLE, {}), power) == pytest.approx([1.0] * 4)


def test_the_page_says_what_was_given_and_what_could_not_be_read() -> None:
    again = [row_from(row.as_json() | {"cuts": [vars(cut) for cut in row.cuts]}) for row in ROWS]
    assert again == ROWS
    failed = EnergyRow("a problem", "broken", failure="it crashed\nbadly").as_json()
    said = page({"machine": MACHINE, "rows": [*(row.as_json() for row in ROWS), failed]})
    assert "4 kernels of the suite" in said
    assert "**What cpu draws could not be read there**" in said
    assert "With given watts: cpu 100 W while it works and 20 W idle" in said
    assert "median 1.00, four in five between 1.00 and 1.00" in said
    assert "Failed: broken: it crashed." in said


def test_the_page_that_is_there_is_made_of_what_is_stored(tmp_path: Path) -> None:
    energy(page=tmp_path / "energy.md")
    there = Path(__file__).parents[3] / "docs" / "results" / "energy.md"
    assert (tmp_path / "energy.md").read_text() == there.read_text()
