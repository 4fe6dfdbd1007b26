"""What a policy's belief rests on, estimated from the campaign: how far forecasts of kernels that were never
seen are off, and how much launches vary. The suite's kernels are left out: policies are judged by them."""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import MalformedInput
from apportion.learn.times.campaign_table import CampaignTable
from apportion.learn.times.fitting_times import fit_timing
from apportion.learn.times.timing_model import times_by_speeds
from reproduction.campaign.suite_workloads import SUITE

Numbers = NDArray[np.float64]
GENERATED = "generated"
SHORT = 2e-4
"Seconds: launches that take less on the faster device are left out; what they take is what drivers do."
_SAMPLE = 1000
"Generated launches that are kept, of some thousands."
_RANGE = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534, 7: 2.704}
"Repeats → the mean range of so many normal values, over their standard deviation."
_FREEDOMS = (1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0)
_LEAST_PART, _MOST_PART = 0.005, 0.95


@dataclass(frozen=True, eq=False)
class HeldOutForecasts:
    """Launches of the campaign, what they took, and what was said of them by who had never seen their
    suite."""

    devices: tuple[str, str]
    suites: tuple[str, ...]
    names: tuple[str, ...]
    taken: Numbers
    "(N, 2, 2): seconds, by device: fixed, and growing with the share."
    by_model: Numbers
    "(N, 2, 2): the same, as the timing model said that was fitted without the launch's suite."
    by_speeds: Numbers
    "(N, 2, 2): the same by calibrated speeds."

    def __len__(self) -> int:
        return len(self.suites)

    def part(self, chosen: NDArray[np.bool_]) -> HeldOutForecasts:
        """Some of the launches."""
        picked = np.flatnonzero(chosen).tolist()
        return HeldOutForecasts(
            self.devices, tuple(self.suites[n] for n in picked), tuple(self.names[n] for n in picked),
            self.taken[chosen], self.by_model[chosen], self.by_speeds[chosen],
        )  # fmt: skip

    def of_suites(self) -> HeldOutForecasts:
        """Those of published suites."""
        return self.part(np.array(self.suites) != GENERATED)

    def as_json(self) -> dict[str, Any]:
        """What is stored: six digits."""
        return {
            "devices": list(self.devices), "suites": list(self.suites), "names": list(self.names),
            **{
                name: [float(f"{each:.6g}") for each in getattr(self, name).ravel().tolist()]
                for name in ("taken", "by_model", "by_speeds")
            },
        }  # fmt: skip


def forecasts_from(stored: Mapping[str, Any]) -> HeldOutForecasts:
    """What `HeldOutForecasts.as_json` gave."""
    numbers = {name: np.array(stored[name]).reshape(-1, 2, 2) for name in ("taken", "by_model", "by_speeds")}
    first, second = stored["devices"]
    return HeldOutForecasts((first, second), tuple(stored["suites"]), tuple(stored["names"]), **numbers)


def held_out_forecasts(
    table: CampaignTable,
    speeds: tuple[Mapping[str, float], Mapping[str, float]],
    *,
    report: Callable[[str], None],
) -> HeldOutForecasts:
    """Every suite but ours in turn, predicted by a model of the others; and by speeds alone."""
    table = table.part(np.array(table.suites) != SUITE)
    suites, digests = np.array(table.suites), np.array(table.digests)
    said = np.zeros((len(table), 2, 2))
    for suite in sorted(set(table.suites)):
        test = suites == suite
        model = fit_timing(table.part(~test & ~np.isin(digests, digests[test])), suite, speeds=speeds)
        held = table.part(test)
        fixed, rate, _ = model.times(held.rows, held.totals)
        said[test] = np.stack([fixed, rate], axis=2)
        report(f"{suite}: {len(held)} launches")
    plain = [
        times_by_speeds(table.rows, table.totals, each, copies=device != "cpu")
        for each, device in zip(speeds, table.devices, strict=True)
    ]
    by_speeds = np.stack([np.stack([fixed, rate + waiting], axis=1) for fixed, rate, waiting in plain], 1)
    taken = np.stack([table.fixed, table.rate], axis=2)
    kept = (taken.sum(axis=2).min(axis=1) >= SHORT) & (by_speeds.sum(axis=2).min(axis=1) > 0)
    generated = np.flatnonzero(kept & (suites == GENERATED))
    drawn = np.random.default_rng(0).permutation(generated)[_SAMPLE:]
    kept[drawn] = False
    whole = HeldOutForecasts(table.devices, table.suites, table.names, taken, said, by_speeds)
    return whole.part(kept)


@dataclass(frozen=True)
class ForecastErrors:
    """How far forecasts are off: of the logarithm, root mean squares, so that a bias counts."""

    launches: int
    deviation: tuple[float, float]
    "Of each device's time."
    alike: float
    "The correlation of the two, means not taken away."
    part: float
    "Of the log odds of the part that does not shrink with the share; both devices."
    sure: float
    "The degrees of freedom of Student's distribution that fits the errors of both devices best."
    bias: tuple[float, float]
    "The mean: above 0 where launches take longer than said."


def errors_of(found: HeldOutForecasts, said: Numbers) -> ForecastErrors:
    """How far one kind of forecasts is off."""
    off = np.log(found.taken.sum(axis=2)) - np.log(said.sum(axis=2))  # (N, 2)
    first, second = np.sqrt((off**2).mean(axis=0)).tolist()
    alike = float((off[:, 0] * off[:, 1]).mean() / (first * second))
    parts = _log_odds(found.taken) - _log_odds(said)
    bias_first, bias_second = off.mean(axis=0).tolist()
    return ForecastErrors(
        len(found), (first, second), alike, float(np.sqrt((parts**2).mean())), _freedom(off),
        (bias_first, bias_second),
    )  # fmt: skip


def _freedom(off: Numbers) -> float:
    """The degrees of freedom, among some, of the Student's distribution round 0 that makes these errors
    likeliest."""
    count, dimensions = off.shape
    likelihood = {}
    for freedom in _FREEDOMS:
        scale = off.T @ off / count
        for _ in range(60):  # expectation maximisation
            squares = np.einsum("ni,ij,nj->n", off, np.linalg.inv(scale), off)
            weights = (freedom + dimensions) / (freedom + squares)
            scale = (off * weights[:, None]).T @ off / count
        squares = np.einsum("ni,ij,nj->n", off, np.linalg.inv(scale), off)
        each = (
            math.lgamma((freedom + dimensions) / 2)
            - math.lgamma(freedom / 2)
            - dimensions / 2 * math.log(freedom * math.pi)
            - math.log(np.linalg.det(scale)) / 2
        )
        likelihood[freedom] = count * each - (freedom + dimensions) / 2 * float(
            np.log1p(squares / freedom).sum()
        )
    return max(likelihood, key=lambda freedom: likelihood[freedom])


def _log_odds(times: Numbers) -> Numbers:
    part = np.clip(times[:, :, 0] / times.sum(axis=2), _LEAST_PART, _MOST_PART)
    return np.asarray(np.log(part / (1 - part)))


@dataclass(frozen=True)
class LaunchNoise:
    """How much launches of one kernel vary on one device: standard deviations of the logarithm."""

    cases: int
    usual: float
    "The median over cases: of launches that nothing disturbs."
    single: float
    "The root mean square over cases: with those that were disturbed."

    @property
    def late(self) -> float:
        """What disturbs single launches, beyond the usual."""
        return float(np.sqrt(max(0.0, self.single**2 - self.usual**2)))


def launch_noise(journal: Path, devices: Iterable[str]) -> dict[str, LaunchNoise]:
    """Device → how much repeated launches of the campaign vary, by the range of two to seven of them.

    Raises:
        MalformedInput: it is not a journal of a campaign.
    """
    found: dict[str, list[float]] = {name: [] for name in devices}
    try:
        with lzma.open(journal, "rt") as lines:
            for point in map(json.loads, lines):
                repeats = int(point["repeats"] or 0)
                usable = not point["failure"] and repeats in _RANGE and (point["seconds"] or 0) >= SHORT
                if usable and point["suite"] != SUITE and point["device"] in found:
                    spread = np.log(point["seconds_high"] / point["seconds_low"])
                    found[point["device"]].append(float(spread) / _RANGE[repeats])
    except (ValueError, KeyError, TypeError, lzma.LZMAError) as error:
        raise MalformedInput(f"not the journal of a campaign ({error})", file=str(journal)) from error
    return {
        name: LaunchNoise(len(each), float(np.median(each)), float(np.sqrt(np.mean(np.square(each)))))
        for name, each in found.items()
        if each
    }
