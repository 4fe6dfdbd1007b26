"""Policies rehearsed on the campaign: launches take what they took there, and forecasts are those of a model
that never saw the suite. For choosing settings; policies are judged elsewhere, on kernels that are not in
here.

The campaign launched devices alone, whole ranges and parts of them. So what sharing costs on top is drawn
here (about what forecasts take it to be), launches vary, and a launch after another takes longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import FOUR_IN_FIVE, SPEEDS, Forecast
from apportion.coexecution.observations import Observations, PastLaunch
from apportion.coexecution.policies.base import Policy, Situation
from apportion.runtime.base import DeviceInfo
from reproduction.policies.held_out import HeldOutForecasts

GROUPS = 4096


@dataclass(frozen=True)
class World:
    """What is drawn."""

    noise: float = 0.13
    late: float = 0.1
    "The part of the launches that something disturbs."
    late_by: float = 0.9
    "The standard deviation of the log of the factor by which; with that launches vary as in the campaign."
    unshareable: float = 0.15
    "The part of the kernels whose work cannot be shared."
    sharing: float = 0.5
    "The standard deviation of the log of what sharing costs."
    after_another: float = 1.15
    after_shared: float = 1.07


USUAL = World()


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """One launch of the campaign that is launched again and again."""

    truth: dict[str, CostModel]
    sharing: float
    situation: Situation
    best: float
    "Seconds of the best cut."
    best_device: float


def rehearsals(
    found: HeldOutForecasts,
    spreads: tuple[float, float] | None,
    world: World = USUAL,
    seed: int = 0,
) -> list[Rehearsal]:
    """The launches with their forecasts.

    Args:
        spreads: standard deviations of the log of the model's times; None: forecasts are those of speeds.
    """
    random = np.random.default_rng(seed)
    made = []
    for taken, by_model, by_speeds in zip(found.taken, found.by_model, found.by_speeds, strict=True):
        truth = _models(found, taken)
        sharing = SPEEDS.sharing * math.exp(random.normal(0, world.sharing))
        obstacle = "a rehearsal" if random.random() < world.unshareable else ""
        if spreads is None:
            forecast = Forecast(_models(found, by_speeds), SPEEDS.rough, "speeds", SPEEDS.sharing)
        else:
            factors = [math.exp(FOUR_IN_FIVE * each) for each in spreads]
            by_device = dict(zip(found.devices, factors, strict=True))
            forecast = Forecast(
                _models(found, by_model), max(factors), "a model", SPEEDS.sharing, spreads[0], by_device
            )
        situation = Situation(tuple(map(_device, found.devices)), GROUPS, partial(_same, forecast), obstacle)
        alone = min(model.seconds(1.0) for model in truth.values())
        made.append(
            Rehearsal(truth, sharing, situation, min(alone, _best_cut(truth, sharing, obstacle)), alone)
        )
    return made


def play(
    policy: Policy, one: Rehearsal, launches: int, seed: int, world: World = USUAL
) -> NDArray[np.float64]:
    """(launches,): what each launch under a policy takes over the best cut, noise taken away."""
    random = np.random.default_rng(seed)
    seen, before, lost = Observations(), None, []
    for number in range(launches):
        choice = seen.decided or policy.choose(one.situation, seen)
        shares = {part.device: part.groups / GROUPS for part in choice.split.parts(GROUPS)}
        after = 1.0
        if before is not None and before != shares.keys():
            after = world.after_another if before.isdisjoint(shares) else world.after_shared
        before = shares.keys()
        factor = after * math.exp(random.normal(0, world.noise))
        if random.random() < world.late:
            factor *= math.exp(abs(random.normal(0, world.late_by)))
        devices = {name: one.truth[name].seconds(share) for name, share in shares.items()}
        beyond = one.sharing if len(devices) > 1 else 0.0
        lost.append((after * max(devices.values()) + beyond) / one.best)
        launch = PastLaunch(
            shares, factor * max(devices.values()) + beyond,
            {name: factor * seconds for name, seconds in devices.items()},
        )  # fmt: skip
        seen.add(launch)
        if number:
            stands = policy.stands(seen, choice, launch.seconds)
            seen.decided = choice if stands else policy.choose(one.situation, seen)
    return np.array(lost)


def _same(forecast: Forecast) -> Forecast:
    return forecast


def _models(found: HeldOutForecasts, times: NDArray[np.float64]) -> dict[str, CostModel]:
    return {
        name: CostModel(float(fixed), max(float(rate), 1e-9))
        for name, (fixed, rate) in zip(found.devices, times, strict=True)
    }


def _best_cut(truth: dict[str, CostModel], sharing: float, obstacle: str) -> float:
    if obstacle:
        return math.inf
    first, second = truth.values()
    cuts = np.linspace(0, 1, 201)[1:-1].tolist()
    return sharing + min(max(first.seconds(cut), second.seconds(1 - cut)) for cut in cuts)


def _device(name: str) -> DeviceInfo:
    return DeviceInfo(name, name, name, "", "", "", "", 8, 1 << 30, 1 << 15, 1024)
