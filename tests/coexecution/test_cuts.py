from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.coexecution.cuts import (
    CostModel,
    best_shares,
    best_split,
    hedged_shares,
    prior,
    seconds_at,
)
from apportion.runtime.base import Calibration, DeviceInfo


def _device(name: str, units: int = 4, kind: str = "cpu") -> DeviceInfo:
    return DeviceInfo(name, name, kind, "v", "p", "d", "1", units, 1 << 30, 1 << 15, 1024)


CPU, GPU = _device("cpu"), _device("gpu", 8, "gpu")


def test_without_fixed_costs_the_best_split_is_the_ratio_of_speeds() -> None:
    split, seconds = best_split({"cpu": CostModel(0, 3.0), "gpu": CostModel(0, 1.0)})
    assert split.shares == pytest.approx({"cpu": 0.25, "gpu": 0.75})
    assert seconds == pytest.approx(0.75)


def test_devices_end_together_under_the_best_split() -> None:
    models = {"cpu": CostModel(0.1, 3.0), "gpu": CostModel(0.4, 1.0), "cpu2": CostModel(0.05, 5.0)}
    split, seconds = best_split(models)
    assert [models[name].seconds(share) for name, share in split.shares.items()] == pytest.approx(
        [seconds] * 3
    )


def test_a_device_whose_fixed_cost_is_too_large_gets_nothing() -> None:
    split, seconds = best_split({"cpu": CostModel(0, 1.0), "gpu": CostModel(2.0, 0.001)})
    assert split.shares == {"cpu": 1.0, "gpu": 0.0}
    assert seconds == 1.0


def test_what_sharing_costs_can_make_one_device_the_best() -> None:
    models = {"cpu": CostModel(0, 1.0), "gpu": CostModel(0, 1.0)}
    assert best_split(models)[0].shares == pytest.approx({"cpu": 0.5, "gpu": 0.5})
    assert best_split(models, sharing_seconds=0.6)[0].shares == {"cpu": 1.0, "gpu": 0.0}


def test_descriptions_alone_favour_the_larger_device() -> None:
    models = prior([CPU, GPU])
    assert models["gpu"].rate < models["cpu"].rate


def test_a_calibrated_device_is_not_compared_with_one_that_is_not() -> None:
    fast = Calibration(1e9, 1e9, 1e10, 8e9, 1e-5)
    slow = replace(fast, arithmetic=2e9)
    other = _device("cpu2")
    one = best_split(prior([replace(CPU, calibration=fast), other]))[0]
    both = best_split(prior([replace(CPU, calibration=fast), replace(other, calibration=slow)]))[0]
    assert one.shares == pytest.approx({"cpu": 0.5, "cpu2": 0.5})
    assert both.shares == pytest.approx({"cpu": 0.8, "cpu2": 0.2})


def test_without_doubt_the_best_cut_is_the_best_bet() -> None:
    random = np.random.default_rng(0)
    fixed, rate = random.random((50, 2)) * 0.2, random.random((50, 2)) + 0.05
    sure = hedged_shares(fixed, rate, np.zeros(50))
    assert seconds_at(sure, fixed, rate) == pytest.approx(seconds_at(best_shares(fixed, rate), fixed, rate))


def test_in_doubt_a_slow_device_gets_less() -> None:
    fixed, rate = np.array([[0.0, 0.0]]), np.array([[9.0, 1.0]])
    shares = [float(hedged_shares(fixed, rate, np.array([doubt]))[0]) for doubt in (0.0, 0.5, 1.5)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[0] > shares[1] >= shares[2]


def test_a_bet_costs_less_in_the_mean_than_the_cut_that_would_be_best_as_predicted() -> None:
    random = np.random.default_rng(1)
    fixed, rate = np.full((4000, 2), 0.01), np.tile([[1.0, 0.3]], (4000, 1))
    off = np.exp(random.standard_normal((4000, 1)) * [0.5, -0.5])  # the factor is off by 1.0 in the log
    true = fixed * off, rate * off
    least = seconds_at(best_shares(*true), *true)
    doubt = np.full(4000, 1.0)
    bet, plain = (
        (seconds_at(share, *true) / least).mean()
        for share in (hedged_shares(fixed, rate, doubt), best_shares(fixed, rate))
    )
    assert bet < plain
