"""The policy `learned`: what a forecast alone asks for, at every launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from apportion.coexecution.cuts import CostModel, ending_together, hedged_shares
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import Choice, Observations
from apportion.coexecution.policies.base import Policy, Situation
from apportion.errors import InvalidSetting
from apportion.runtime.split import Split


@dataclass(frozen=True)
class PredictionSettings:
    """When a forecast is enough to share the work."""

    promised: float = 0.6
    """Share if the forecast from calibrated speeds promises less than this times the best device alone: such
    forecasts are wrong by a factor, and too much for the slower device costs more than sharing can gain.
    Chosen on the suite, on 16 cores with an H200: it came nearer to the best cuts than 0.8."""
    promised_by_model: float = 0.9
    "The same where a model said how sure it is, which was weighed already. Chosen on the same curves."

    def __post_init__(self) -> None:
        for name in ("promised", "promised_by_model"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidSetting(f"{name} must be above 0 and at most 1, not {getattr(self, name)}")


PREDICTION = PredictionSettings()


class LearnedPolicy(Policy):
    """The split that the forecast asks for, whatever launches took."""

    def __init__(self, settings: PredictionSettings = PREDICTION) -> None:
        self.settings = settings

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The same split at every launch."""
        return predicted(situation.forecast, tuple(situation.names), self.settings)


@lru_cache(maxsize=256)
def predicted(
    forecast: Forecast, names: tuple[str, ...], settings: PredictionSettings = PREDICTION
) -> Choice:
    """The split that a forecast alone asks for."""
    alone = {name: forecast.models[name].seconds(1.0) for name in names}
    single = min(alone, key=lambda name: alone[name])
    said = f"predicted from {forecast.origin}, give or take a factor of {forecast.spread:.2g}"
    if forecast.doubt is not None and len(names) == 2:
        return Choice(*_bet(forecast, names, forecast.doubt, settings), said)
    split, seconds = everything(single, names), alone[single]
    shared = best_shared({name: forecast.models[name] for name in names}, forecast.sharing_seconds, 1 << 30)
    if shared is not None and shared[1] < settings.promised * seconds:
        split, seconds = shared
    return Choice(split, seconds, said)


def _bet(
    forecast: Forecast, names: tuple[str, ...], doubt: float, settings: PredictionSettings
) -> tuple[Split, float]:
    """The split of two devices that costs least over what may be true, where it is known how much may."""
    models = [forecast.models[name] for name in names]
    fixed, rate = (np.array([[getattr(model, part) for model in models]]) for part in ("fixed", "rate"))
    share = float(hedged_shares(fixed, rate, np.array([doubt]))[0])
    alone = [model.seconds(1.0) for model in models]
    if 0 < share < 1:
        together = max(models[0].seconds(share), models[1].seconds(1 - share))
        seconds = together + forecast.sharing_seconds
        if seconds < settings.promised_by_model * min(alone):
            return Split({names[0]: share, names[1]: 1 - share}), seconds
        share = float(alone[0] < alone[1])
    single = 0 if share == 1 else 1
    return everything(names[single], names), alone[single]


def best_shared(
    models: Mapping[str, CostModel], sharing_seconds: float, groups: int
) -> tuple[Split, float] | None:
    """The split between two devices or more that ends soonest, and when; None where none has a whole part."""
    best: tuple[float, dict[str, float]] | None = None
    for count in range(2, len(models) + 1):
        for chosen in combinations(models, count):
            together, shares = ending_together({name: models[name] for name in chosen})
            if min(shares.values()) * groups < 0.5:
                continue  # its fixed cost alone is longer than the rest needs, or its part is no work-group
            if best is None or together < best[0]:
                best = together, shares
    if best is None:
        return None
    total = sum(best[1].values())
    return Split({name: best[1].get(name, 0.0) / total for name in models}), best[0] + sharing_seconds


def everything(device: str, names: tuple[str, ...] | list[str]) -> Split:
    """All of the work for one of the devices."""
    return Split({name: float(name == device) for name in names})
