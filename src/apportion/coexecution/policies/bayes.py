"""The policy `bayes`: the launch that costs least, what it teaches about the launches to come included.

Each device's time is believed to be normal in the logarithm, with the forecast's shape: fixed + rate × share,
off by one factor. Launches correct the factors in closed form (`expected_times.Belief`). A launch is worth
what
it takes less what it may save: as many launches are taken to come as there were. There is no rule for
exploring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.expected_times import BELIEVING, Belief, BeliefSettings
from apportion.coexecution.observations import Choice, Observations, median_of
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.learned import best_shared, everything
from apportion.runtime.split import Split

_NODES = ((-1.7320508, 1 / 6), (0.0, 2 / 3), (1.7320508, 1 / 6))
"Standard deviations and weights: Gauss and Hermite's three points."


@dataclass(frozen=True)
class _PossibleLaunch:
    split: Split
    seconds: float
    worth: float
    "Seconds less what the launch may save later."
    tries: str


class BayesPolicy(Policy):
    """The launch that costs least, what it teaches included."""

    learns = True

    def __init__(self, settings: BeliefSettings = BELIEVING) -> None:
        self.settings = settings

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The split whose expected time, less what it may save in as many launches as there were, is
        least."""
        weighed = _WeighedLaunches(situation, seen, self.settings)
        best = min(weighed.candidates(), key=lambda each: each.worth)
        if best.tries:
            reason = f"{best.tries} may be faster than believed: a launch of it pays for itself"
            return Choice(best.split, None, reason)
        said = "earlier launches predict" if seen.launches else f"{situation.forecast.origin} predict"
        split = best.split
        if (launch := seen.latest_like(split)) is not None:  # what is known is quicker to launch again
            split = Split({name: launch.shares.get(name, 0.0) for name in split.shares})
        return Choice(split, best.seconds, f"{said} {best.seconds * 1e3:.3g} ms")

    def stands(self, seen: Observations, choice: Choice, seconds: float) -> bool:
        """Whether a launch took what was expected, to three deviations of the noise, and launches have not
        doubled."""
        doubled = seen.noted & (seen.noted - 1) == 0
        if choice.seconds is None or doubled:
            return False
        return abs(math.log(seconds / choice.seconds)) < 3 * self.settings.noise


class _WeighedLaunches:
    def __init__(self, situation: Situation, seen: Observations, settings: BeliefSettings) -> None:
        self.situation, self.seen, forecast = situation, seen, situation.forecast
        self.names = situation.names
        self.prior = {name: forecast.models[name] for name in self.names}
        whole = {name: model.seconds(1.0) for name, model in self.prior.items()}
        self.belief = Belief(whole, forecast.spread, settings)
        for launch in seen.launches:
            for name, share in launch.shares.items():
                factor = launch.devices[name] / self.prior[name].seconds(share)
                # A part of the range says less of the whole: its square is the weight.
                self.belief.observe(name, factor * whole[name], share**2)
        beyond = [each.seconds - max(each.devices.values()) for each in seen.launches if each.alone is None]
        self.sharing = max(0.0, median_of(beyond)) if beyond else forecast.sharing_seconds
        self.known = seen.alone()
        self.noise = settings.noise
        self.unknown = [name for name in self.names if self.belief.deviation(name) > 1.5 * settings.noise]

    def models(self, factors: Mapping[str, float]) -> dict[str, CostModel]:
        found = {}
        for name, model in self.prior.items():
            scale = factors.get(name, 1.0) * self.belief.seconds(name) / model.seconds(1.0)
            found[name] = CostModel(model.fixed * scale, model.rate * scale)
        return found

    def best(self, factors: Mapping[str, float]) -> tuple[Split, float]:
        """The best split if devices were off by these factors, and its time."""
        models = self.models(factors)
        alone = {
            name: self.known[name]
            if name in self.known and name not in factors
            else models[name].seconds(1.0)
            for name in self.names
        }
        single = min(self.names, key=lambda name: alone[name])
        found = everything(single, self.names), alone[single]
        if not self.situation.obstacle and len(self.names) > 1:
            shared = best_shared(models, self.sharing, self.situation.groups)
            if shared is not None and shared[1] < found[1]:
                found = shared
        return found

    def expected(self, split: Split) -> float:
        """The mean of what a split takes, over what devices may be."""
        used = [name for name, share in split.shares.items() if share > 0]
        if len(used) == 1 and used[0] in self.known:
            return self.known[used[0]]
        total = 0.0
        for nodes in product(_NODES, repeat=len(used)):
            factors = {
                name: math.exp(deviations * self.belief.deviation(name))
                for name, (deviations, _) in zip(used, nodes, strict=True)
            }
            models = self.models(factors)
            taken = max(models[name].seconds(split.shares[name]) for name in used)
            total += math.prod(weight for _, weight in nodes) * taken
        return total + (self.sharing if len(used) > 1 else 0.0)

    def candidates(self) -> list[_PossibleLaunch]:
        split, _ = self.best({})
        splits = [split, *(everything(name, self.names) for name in self.names)]
        if (seen := self.seen.best_seen()) is not None and not self.situation.obstacle:
            splits.append(Split({name: seen[0].shares.get(name, 0.0) for name in self.names}))
        expected = [self.expected(each) for each in splits]
        if seen is not None and not self.situation.obstacle:
            expected[-1] = seen[1]
        least = min(expected)
        horizon = max(1, self.seen.noted)
        found = []
        for each, seconds in zip(splits, expected, strict=True):
            taught = [name for name, share in each.shares.items() if share > 0 and name in self.unknown]
            saves = max((self._saves(name, least) for name in taught), default=0.0)
            tries = " and ".join(taught) if seconds > least and taught else ""
            found.append(_PossibleLaunch(each, seconds, seconds - horizon * saves, tries))
        return found

    def _saves(self, name: str, least: float) -> float:
        """What a launch is expected to take less, once it is known what a device takes."""
        deviation = self.belief.deviation(name)
        return sum(
            weight * max(0.0, least - self.best({name: math.exp(deviations * deviation)})[1])
            for deviations, weight in _NODES
        )
