"""How far forecasts are off, and how much launches vary: found again where it is known."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from apportion.errors import MalformedInput
from reproduction.policies.held_out import HeldOutForecasts, errors_of, forecasts_from, launch_noise


def _forecasts(off: np.ndarray) -> HeldOutForecasts:
    """Launches that took exp(off) times what was said, half of it whatever the share."""
    count = len(off)
    said = np.full((count, 2, 2), 5e-3)
    taken = said * np.exp(off)[:, :, None]
    names = tuple(f"kernel {number}" for number in range(count))
    return HeldOutForecasts(("cpu", "gpu"), ("a suite",) * count, names, taken, said, said)


def test_errors_are_found_again_with_their_tails() -> None:
    random = np.random.default_rng(0)
    normal = random.multivariate_normal([0, 0], [[0.25, 0.05], [0.05, 0.09]], 20_000)
    found = errors_of(_forecasts(normal), _forecasts(normal).by_model)
    assert found.deviation == pytest.approx((0.5, 0.3), rel=0.03)
    assert found.alike == pytest.approx(0.05 / 0.15, abs=0.03)
    assert found.sure >= 20
    assert found.part == pytest.approx(0, abs=1e-9)
    tails = normal / np.sqrt(random.chisquare(3, (len(normal), 1)) / 3)
    assert errors_of(_forecasts(tails), _forecasts(tails).by_model).sure == 3


def test_launches_that_take_longer_than_said_give_a_bias_above_0() -> None:
    off = np.full((10, 2), 0.7) + np.random.default_rng(0).normal(0, 0.01, (10, 2))
    assert errors_of(_forecasts(off), _forecasts(off).by_model).bias == pytest.approx((0.7, 0.7), abs=0.02)


def test_what_is_stored_comes_back() -> None:
    found = _forecasts(np.random.default_rng(0).normal(0, 1, (7, 2)))
    again = forecasts_from(json.loads(json.dumps(found.as_json())))
    assert (again.devices, again.suites, again.names) == (found.devices, found.suites, found.names)
    assert again.taken == pytest.approx(found.taken, rel=1e-5)


def test_the_noise_of_launches_is_found_from_their_range(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    points = []
    for _ in range(4000):
        taken = 1e-2 * np.exp(random.normal(0, 0.1, 5))
        taken[0] *= 3 if random.random() < 0.05 else 1
        low, middle, high = float(min(taken)), float(np.median(taken)), float(max(taken))
        points.append({
            "suite": "generated", "device": "cpu", "failure": "", "repeats": 5,
            "seconds": middle, "seconds_low": low, "seconds_high": high,
        })  # fmt: skip
    points += [points[0] | {"suite": "apportion", "seconds_high": 1e3}] * 4000
    points += [points[0] | {"failure": "it crashed", "seconds": None, "repeats": 0}]
    path = tmp_path / "journal.jsonl.xz"
    path.write_bytes(lzma.compress("".join(json.dumps(point) + "\n" for point in points).encode()))
    noise = launch_noise(path, ["cpu", "gpu"])
    assert list(noise) == ["cpu"]
    assert noise["cpu"].cases == 4000
    assert noise["cpu"].usual == pytest.approx(0.1, rel=0.05)
    assert noise["cpu"].single > 1.3 * noise["cpu"].usual
    assert noise["cpu"].late == pytest.approx(np.sqrt(noise["cpu"].single ** 2 - noise["cpu"].usual ** 2))


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl.xz"
    path.write_bytes(lzma.compress(b'{"suite": "generated"}\n'))
    with pytest.raises(MalformedInput, match="not the journal of a campaign"):
        launch_noise(path, ["cpu"])
