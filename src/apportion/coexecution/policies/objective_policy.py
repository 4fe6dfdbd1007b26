"""The launch that is best for an objective: energy, energy × time, or time under a limit of power.

Each device's time is a fixed part and one that grows with its share, from the forecast and corrected by
launches (`Observations.model`). A device that never ran is tried if what that may save in as many launches as
there were is worth its price: the mean over what its time may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from apportion.coexecution.cuts import CostModel, ending_together
from apportion.coexecution.forecast import FOUR_IN_FIVE
from apportion.coexecution.normal_points import normal_points
from apportion.coexecution.objective import Objective, PowerModel
from apportion.coexecution.observations import Choice, Observations, median_of
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.learned import everything
from apportion.errors import InvalidSetting
from apportion.runtime.split import Split


@dataclass(frozen=True)
class ObjectiveSettings:
    """The policy's numbers."""

    cuts: int = 40
    """Cuts between two devices that are compared, evenly spaced. Chosen: times are known less well than to
    one part in so many."""
    as_expected: float = 0.2
    """The next launch is chosen anew if the last took another time than predicted, by more than this in the
    natural logarithm. Chosen."""
    least_spread: float = 1.05
    "A forecast is taken to be off by this factor at least, four times in five. Assumed."

    def __post_init__(self) -> None:
        if not (self.cuts > 1 and self.as_expected > 0 and self.least_spread > 1):
            raise InvalidSetting(
                f"cuts and least_spread must be more than 1, as_expected more than 0, not {self}"
            )


OBJECTIVES = ObjectiveSettings()


@dataclass(frozen=True)
class _Weighed:
    split: Split
    seconds: float
    joules: float


class ObjectivePolicy(Policy):
    """The split for which an objective is least, as far as is known."""

    learns = True

    def __init__(
        self, objective: Objective, power: PowerModel, settings: ObjectiveSettings = OBJECTIVES
    ) -> None:
        self.objective, self.power, self.settings = objective, power, settings

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The best split, or everything for a device that may be better and never ran."""
        forecast = situation.forecast
        models = {name: seen.model(name, forecast) or forecast.models[name] for name in situation.names}
        beyond = [each.seconds - max(each.devices.values()) for each in seen.launches if each.alone is None]
        sharing = max(0.0, median_of(beyond)) if beyond else forecast.sharing_seconds
        splits = _splits(situation, models, self.settings.cuts)
        weighed = [self._weighed(split, models, sharing, seen) for split in splits]
        best = min(weighed, key=self._value)
        known = {name for launch in seen.launches for name in launch.shares}
        if seen.launches:
            worth = {
                name: self._worth(name, models[name], forecast.spread, self._value(best), seen.noted)
                for name in situation.names
                if name not in known
            }
            tried = max(worth, key=lambda name: worth[name], default=None)
            if tried is not None and worth[tried] > 0:
                reason = f"{tried} may be better for {self.objective}: a launch of it pays for itself"
                return Choice(everything(tried, situation.names), None, reason)
        said = "earlier launches predict" if seen.launches else f"{forecast.origin} predict"
        return Choice(
            best.split, best.seconds,
            f"least {self.objective}: {said} {best.seconds * 1e3:.3g} ms and {best.joules:.3g} J",
        )  # fmt: skip

    def stands(self, seen: Observations, choice: Choice, seconds: float) -> bool:
        """Whether a launch took what was expected, and launches have not doubled."""
        if choice.seconds is None or seen.noted & (seen.noted - 1) == 0:
            return False
        return abs(math.log(max(seconds, 1e-9) / max(choice.seconds, 1e-9))) < self.settings.as_expected

    def _value(self, weighed: _Weighed) -> float:
        return self.objective.value(weighed.seconds, weighed.joules)

    def _weighed(
        self, split: Split, models: Mapping[str, CostModel], sharing: float, seen: Observations
    ) -> _Weighed:
        if (launch := seen.latest_like(split)) is not None:
            seconds, working = launch.seconds, dict(launch.devices)
        else:
            working = {name: models[name].seconds(part) for name, part in split.shares.items() if part > 0}
            seconds = max(working.values()) + (sharing if len(working) > 1 else 0.0)
        return _Weighed(split, seconds, self.power.joules(seconds, working))

    def _worth(self, name: str, model: CostModel, spread: float, best: float, horizon: int) -> float:
        """What trying a device alone is expected to save in so many launches, less what it costs."""
        deviation = math.log(max(spread, self.settings.least_spread)) / FOUR_IN_FIVE
        saved = price = 0.0
        for deviations, weight in zip(*(each.tolist() for each in normal_points(3)), strict=True):
            seconds = model.seconds(1.0) * math.exp(deviations * deviation)
            value = self.objective.value(seconds, self.power.joules(seconds, {name: seconds}))
            saved += weight * max(0.0, best - value)
            price += weight * max(0.0, value - best)
        return saved * horizon - price


def _splits(situation: Situation, models: Mapping[str, CostModel], cuts: int) -> Iterator[Split]:
    """Each device alone; cuts evenly spaced between two devices; those that end together between more."""
    names = situation.names
    for name in names:
        yield everything(name, names)
    if situation.obstacle:
        return
    for first, second in combinations(names, 2):
        for step in range(1, cuts):
            if min(step, cuts - step) * situation.groups >= cuts / 2:
                shares = {first: step / cuts, second: 1 - step / cuts}
                yield Split({name: shares.get(name, 0.0) for name in names})
    for count in range(2, len(names) + 1):
        for chosen in combinations(names, count):
            _, shares = ending_together({name: models[name] for name in chosen})
            if min(shares.values()) * situation.groups >= 0.5:
                total = sum(shares.values())
                yield Split({name: shares.get(name, 0.0) / total for name in names})
