"""Cost models: what a device takes for a share of a launch, and the split that is best under them.

A device's time is fixed + rate × share: launches, wake-ups and copies that do not shrink with the share are
why the ratio of speeds (the papers' Eq. 5.8) is not the best cut, and why one device alone is always a
candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.normal_points import normal_points
from apportion.errors import InvalidSetting
from apportion.runtime.base import DeviceInfo
from apportion.runtime.split import Split

Numbers = NDArray[np.float64]
_BETS = np.array([0.0, 0.01, 0.02, 0.04, 0.06, *(n / 20 for n in range(2, 19)), 0.94, 0.96, 0.98, 0.99, 1.0])
"Shares that are compared, closer together where one device does nearly all."


@dataclass(frozen=True)
class CostModel:
    """Seconds that a device needs for a share of a launch: fixed + rate × share."""

    fixed: float
    rate: float

    def __post_init__(self) -> None:
        if not (self.fixed >= 0 and self.rate > 0):
            raise InvalidSetting(
                f"A device's time needs fixed >= 0 and rate > 0, not {self.fixed} and {self.rate}"
            )

    def seconds(self, share: float) -> float:
        """The time for a share; nothing for no share."""
        return self.fixed + self.rate * share if share > 0 else 0.0


def ending_together(models: Mapping[str, CostModel]) -> tuple[float, dict[str, float]]:
    """When devices that begin and end together are done, and their shares.

    A share below 0 says that a device's fixed cost alone is longer than the others need for everything.
    """
    # fixed + rate × share = T for each, and the shares make 1.
    weight = sum(1 / model.rate for model in models.values())
    together = (1 + sum(model.fixed / model.rate for model in models.values())) / weight
    return together, {name: (together - model.fixed) / model.rate for name, model in models.items()}


def best_split(models: Mapping[str, CostModel], *, sharing_seconds: float = 0.0) -> tuple[Split, float]:
    """The split that ends soonest, and when; all subsets of the devices are candidates.

    Args:
        sharing_seconds: what sharing itself costs (merging), whoever shares.
    """
    if not models:
        raise InvalidSetting("A split needs at least one device")
    best: tuple[float, dict[str, float]] | None = None
    for count in range(1, len(models) + 1):
        for chosen in combinations(models, count):
            seconds, shares = ending_together({name: models[name] for name in chosen})
            if min(shares.values()) <= 0:
                continue
            seconds += sharing_seconds if count > 1 else 0.0
            if best is None or seconds < best[0]:
                best = seconds, shares
    assert best is not None  # one device alone always has a share of 1
    shares = {name: min(1.0, best[1].get(name, 0.0)) for name in models}
    total = sum(shares.values())
    return Split({name: share / total for name, share in shares.items()}), best[0]


def best_shares(fixed: Numbers, rate: Numbers) -> Numbers:
    """(N,): the share of the first of two devices with which both end soonest; all or nothing are candidates.

    Both end together at T = (1 + F₁/R₁ + F₂/R₂) / (1/R₁ + 1/R₂), where each gets a share that is not below 0.

    Args:
        fixed: (N, 2) seconds of each device, whatever its share.
        rate: (N, 2) seconds for everything, on top.
    """
    rate = np.maximum(rate, 1e-12)
    together = (1 + (fixed / rate).sum(axis=1)) / (1 / rate).sum(axis=1)
    share = (together - fixed[:, 0]) / rate[:, 0]
    alone = fixed + rate
    inside = (share > 0) & (share < 1) & (together < alone.min(axis=1))
    return np.where(inside, share, (alone[:, 0] <= alone[:, 1]).astype(np.float64))


def seconds_at(share: Numbers, fixed: Numbers, rate: Numbers) -> Numbers:
    """(N,): when both of two devices have ended under a cut; a device without work takes no time."""
    first = np.where(share > 0, fixed[:, 0] + rate[:, 0] * share, 0.0)
    second = np.where(share < 1, fixed[:, 1] + rate[:, 1] * (1 - share), 0.0)
    return np.asarray(np.maximum(first, second))


def hedged_shares(fixed: Numbers, rate: Numbers, doubt: Numbers) -> Numbers:
    """(N,): the share of the first of two devices that costs least in the mean over what may be true.

    Where times are predicted, the best cut under them is not the best bet: too much for the slow device costs
    many times what too little does.

    Args:
        fixed: (N, 2) as predicted.
        rate: (N, 2) as predicted.
        doubt: (N,) the standard deviation of the log of the factor between the devices.
    """
    best = best_shares(fixed, rate)[:, None]
    bets = np.broadcast_to(_BETS, (len(best), len(_BETS)))
    near = [best * part for part in (0.5, 0.75, 1.0)] + [1 - (1 - best) * part for part in (0.5, 0.75)]
    shares = np.clip(np.concatenate([bets, *near], axis=1), 0, 1)  # (N, S)
    points, weights = normal_points(5)
    off = np.exp(doubt[:, None] * points / 2)  # (N, M)
    scale = np.stack([off, 1 / off], axis=2)  # (N, M, 2)
    many_fixed, many_rate = fixed[:, None] * scale, rate[:, None] * scale
    flat = many_fixed.reshape(-1, 2), many_rate.reshape(-1, 2)
    least = seconds_at(best_shares(*flat), *flat).reshape(off.shape)
    share = shares[:, :, None]
    first = np.where(share > 0, many_fixed[:, None, :, 0] + many_rate[:, None, :, 0] * share, 0.0)
    second = np.where(share < 1, many_fixed[:, None, :, 1] + many_rate[:, None, :, 1] * (1 - share), 0.0)
    costs = np.maximum(first, second) / least[:, None] @ weights  # (N, S)
    return np.asarray(np.take_along_axis(shares, costs.argmin(axis=1)[:, None], axis=1)[:, 0])


def prior(devices: Sequence[DeviceInfo]) -> dict[str, CostModel]:
    """Cost models from descriptions alone: calibrated speeds where all have them, else compute units.

    The two are different units: a device that was calibrated must not be compared with one that was not.
    """
    calibrated = {device.id: device.calibration.arithmetic for device in devices if device.calibration}
    if len(calibrated) == len(devices):
        speeds = calibrated
    else:
        speeds = {
            device.id: device.compute_units * (64.0 if device.kind == "gpu" else 4.0) for device in devices
        }
    slowest = min(speeds.values())
    return {device.id: CostModel(0.0, slowest / speeds[device.id]) for device in devices}
