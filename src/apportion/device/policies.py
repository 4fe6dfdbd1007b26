"""Who gets how much: a cost model per device, the best split under it, and policies by name.

A device's time is fixed + rate × share: launches, wake-ups and copies that do not shrink with the share are
why the ratio of speeds (the papers' Eq. 5.8) is not the best cut, and why one device alone is always a
candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

import numpy as np

from apportion.device.base import DeviceInfo
from apportion.device.split import Split
from apportion.errors import InvalidSetting, UnknownName

T = TypeVar("T")

POLICIES = ("feedback", "dynamic", "static", "even", "oracle")
"Besides these, the name of a device gives it everything, and a number is the share of the first device."

Predictor = Callable[[Sequence[DeviceInfo]], Mapping[str, "CostModel"] | Mapping[str, float]]
"What a learned model says of a launch: a cost model, or a share, per device."

_KEPT = 8
"Observations per device that count; older ones may be of another state of the machine."
_APART = 0.05
"Shares that differ by less say nothing of the slope: noise would decide it."
_GUESSED_FIXED = 1e-4
"Seconds of a launch on a device that was never calibrated."


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


def best_split(
    models: Mapping[str, CostModel],
    *,
    sharing_seconds: float = 0.0,
    optimism: float = 1.0,
    alone: Mapping[str, float] | None = None,
) -> tuple[Split, float]:
    """The split that ends soonest, and when; all subsets of the devices are candidates.

    Args:
        sharing_seconds: what sharing itself costs (merging), whoever shares.
        optimism: how many times longer shared launches took than was foretold.
        alone: device → seconds for everything, where that was measured; it counts more than a model does.
    """
    if not models:
        raise InvalidSetting("A split needs at least one device")
    best: tuple[float, dict[str, float]] | None = None
    names = list(models)
    for count in range(1, len(names) + 1):
        for chosen in combinations(names, count):
            # All of them end together: fixed + rate × share = T for each, and the shares make 1.
            weight = sum(1 / models[name].rate for name in chosen)
            together = (1 + sum(models[name].fixed / models[name].rate for name in chosen)) / weight
            shares = {name: (together - models[name].fixed) / models[name].rate for name in chosen}
            if min(shares.values()) <= 0:
                continue  # this device's fixed cost alone is longer than the rest needs for everything
            if count > 1:
                seconds = (together + sharing_seconds) * optimism
            else:
                seconds = (alone or {}).get(chosen[0], together)
            if best is None or seconds < best[0]:
                best = seconds, shares
    assert best is not None  # one device alone always has a share of 1
    shares = {name: min(1.0, best[1].get(name, 0.0)) for name in names}
    total = sum(shares.values())
    return Split({name: share / total for name, share in shares.items()}), best[0]


@dataclass
class Observations:
    """What earlier launches of one kernel at one size took, per device."""

    shared: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    "Device → (share, seconds) of launches that it shared with others, oldest first."
    whole: dict[str, list[float]] = field(default_factory=dict)
    "Device → seconds of launches that it did all of."
    merging: list[float] = field(default_factory=list)
    "Seconds that merging took."
    ratios: list[float] = field(default_factory=list)
    "Of shared launches: the seconds they took over those that were foretold."

    def add(self, device: str, share: float, seconds: float) -> None:
        """Note what one device did in a launch."""
        if share > 1 - 1e-9:
            _keep(self.whole.setdefault(device, []), seconds)
        else:
            _keep(self.shared.setdefault(device, []), (share, seconds))

    def add_shared(self, seconds: float, merge_seconds: float, foretold: float | None) -> None:
        """Note a launch that several devices shared."""
        _keep(self.merging, merge_seconds)
        if foretold:
            _keep(self.ratios, seconds / foretold)

    def best(self, devices: Sequence[DeviceInfo]) -> tuple[Split, float] | None:
        """The split that these launches speak for, and its seconds; None while a device is unknown."""
        models = {device.id: self.model(device) for device in devices}
        known = {name: model for name, model in models.items() if model is not None}
        if len(known) < len(devices):
            return None
        return best_split(
            known,
            sharing_seconds=float(np.median(self.merging)) if self.merging else 0.0,
            optimism=float(np.median(self.ratios)) if self.ratios else 1.0,
            alone={name: float(np.median(seconds)) for name, seconds in self.whole.items()},
        )

    def model(self, device: DeviceInfo) -> CostModel | None:
        """The cost model that fits a device's launches, or None when there was none.

        Launches that it shared count before those it did alone: devices get in each other's way.
        """
        points = self.shared.get(device.id) or [(1.0, seconds) for seconds in self.whole.get(device.id, [])]
        if not points:
            return None
        shares, seconds = np.array(points).T
        fixed = _fixed_seconds(device)
        if np.ptp(shares) > _APART:
            weights = 0.7 ** np.arange(len(points) - 1, -1, -1)
            mean_share, mean_seconds = (
                np.average(shares, weights=weights),
                np.average(seconds, weights=weights),
            )
            spread = np.average((shares - mean_share) ** 2, weights=weights)
            slope = np.average((shares - mean_share) * (seconds - mean_seconds), weights=weights) / spread
            if slope > 0:
                fixed = float(np.clip(mean_seconds - slope * mean_share, 0.0, seconds.min()))
        recent = slice(-3, None)
        rates = np.maximum(seconds[recent] - fixed, 0.01 * seconds[recent]) / shares[recent]
        return CostModel(fixed, max(float(np.median(rates)), 1e-9))


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


def predicted(predictor: Predictor, devices: Sequence[DeviceInfo]) -> Split:
    """The split that a learned model asks for."""
    said = predictor(devices)
    costs = {name: value for name, value in said.items() if isinstance(value, CostModel)}
    if len(costs) == len(said):
        return best_split(costs)[0]
    shares = {name: float(value) for name, value in said.items() if not isinstance(value, CostModel)}
    if set(shares) - {device.id for device in devices}:
        raise UnknownName("device", ", ".join(shares), [device.id for device in devices])
    return Split({device.id: shares.get(device.id, 0.0) for device in devices})


def fixed_policy(policy: str | float, devices: Sequence[DeviceInfo]) -> Split | None:
    """The split of a policy that needs no measuring, or None for one that does.

    Raises:
        InvalidSetting: a share that is not one.
        UnknownName: no such policy and no such device.
    """
    names = [device.id for device in devices]
    if isinstance(policy, str) and policy not in names:
        with suppress(ValueError):
            policy = float(policy)
    if isinstance(policy, int | float):
        if not 0 <= policy <= 1:
            raise InvalidSetting(f"A share must lie between 0 and 1, not {policy}")
        if len(names) < 2:
            return Split.alone(names[0])
        rest = (1 - policy) / (len(names) - 1)
        return Split({names[0]: float(policy), **dict.fromkeys(names[1:], rest)})
    if policy in names:
        return Split({name: float(name == policy) for name in names})
    if policy == "even":
        return Split.even(names)
    if policy == "static":
        return best_split(prior(devices))[0]
    if policy in POLICIES:
        return None
    raise UnknownName("policy", policy, [*POLICIES, *names, "a share from 0 to 1"])


def _fixed_seconds(device: DeviceInfo) -> float:
    return device.calibration.launch_seconds if device.calibration is not None else _GUESSED_FIXED


def _keep(values: list[T], value: T) -> None:
    values.append(value)
    del values[:-_KEPT]
