"""What a launch is predicted to take on the devices of a machine, and the best cut between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.advise.launch_times import models, predict_times, timing_model
from apportion.advise.learned_policy import fitting_model
from apportion.coexecution.cuts import CostModel, best_split
from apportion.coexecution.forecast import FOUR_IN_FIVE, SPEEDS, kernel_parts
from apportion.learn.times.timing_model import CONTRAST_SPREAD, Times, times_by_speeds
from apportion.program.kernel.launch import TOTALS, PlannedLaunch
from apportion.runtime.base import DeviceInfo

WORTH_SHARING = 1.05
"Sharing is called worth it when it is expected to be this many times faster than the best device alone."
BY_SPEEDS = "calibrated speeds"
"What answers where no shipped model learned from such devices."
_CUTS = 41
_DRAWS = 400


def milliseconds(seconds: float) -> float:
    """A predicted time for JSON, in six digits: no prediction has more."""
    return float(f"{1e3 * seconds:.6g}")


@dataclass(frozen=True)
class PredictedTime:
    """What a launch is predicted to take on one device."""

    device: str
    name: str
    times: Times
    parts: Mapping[str, float]
    "What bounds it → seconds that this alone would take; nothing where the device's speeds are not known."

    @property
    def interval(self) -> tuple[float, float]:
        """Seconds between which the truth lies, four times in five."""
        factor = math.exp(FOUR_IN_FIVE * self.times.spread)
        return self.times.seconds / factor, self.times.seconds * factor

    @property
    def bottleneck(self) -> str | None:
        """What takes longest, of what bounds it."""
        return max(self.parts, key=lambda part: self.parts[part]) if self.parts else None

    def as_json(self) -> dict[str, Any]:
        """Times in milliseconds."""
        low, high = self.interval
        return {
            "device": self.device,
            "name": self.name,
            "milliseconds": milliseconds(self.times.seconds),
            "interval": [milliseconds(low), milliseconds(high)],
            "fixed": milliseconds(self.times.fixed),
            "rate": milliseconds(self.times.rate),
            "bottleneck": self.bottleneck,
            "parts": {name: milliseconds(seconds) for name, seconds in self.parts.items()},
        }


@dataclass(frozen=True)
class PredictedCut:
    """The best division of a launch between devices, and how sure that is."""

    shares: Mapping[str, float]
    seconds: float
    alone: str
    "The device that is expected to be fastest alone."
    alone_seconds: float
    share_interval: tuple[float, float] | None
    "Between which the best share of the first device lies, four times in five; None for one device."
    chance: float | None
    "How likely this cut is faster than the best device alone; None where only one device works."
    curve: tuple[tuple[float, float, float, float], ...] = ()
    "Share of the first of two devices, seconds, and between which the truth lies four times in five."

    @property
    def gain(self) -> float:
        """How many times faster than the best device alone."""
        return self.alone_seconds / self.seconds

    @property
    def worth_sharing(self) -> bool:
        """Whether sharing is expected to pay."""
        return self.gain >= WORTH_SHARING

    def as_json(self) -> dict[str, Any]:
        """Times in milliseconds."""
        return {
            "shares": {device: round(share, 4) for device, share in self.shares.items()},
            "milliseconds": milliseconds(self.seconds),
            "alone": self.alone,
            "gain": round(self.gain, 4),
            "worth_sharing": self.worth_sharing,
            "share_interval": self.share_interval,
            "chance": self.chance,
            "curve": [[round(share, 4), *map(milliseconds, rest)] for share, *rest in self.curve],
        }


@dataclass(frozen=True)
class PredictedMachine:
    """Some devices that could share a launch."""

    name: str
    origin: str
    "Where the times come from, in words."
    devices: tuple[PredictedTime, ...]
    cut: PredictedCut
    model: str
    "The timing model; `BY_SPEEDS` where none fits."
    agreement: float = 0.0
    "As `TimingModel.agreement` has it; 0 where calibrated speeds answer, which learned from no kernel."

    def as_json(self) -> dict[str, Any]:
        """The devices and the cut."""
        return {
            "name": self.name,
            "origin": self.origin,
            "devices": [device.as_json() for device in self.devices],
            "cut": self.cut.as_json(),
        }


def this_machine(
    launch: PlannedLaunch, devices: Sequence[DeviceInfo], model: str | None = None
) -> PredictedMachine:
    """These devices of this machine, by the model that fits them, else by their calibrated speeds.

    Args:
        devices: at least one; all of them calibrated.
        model: the name or the folder of the timing model to ask instead.
    """
    name = timing_model(model).name if model else fitting_model(devices)
    asked = timing_model(model or name) if name else None
    times = (
        predict_times(launch, devices, model or name) if name
        else {d.id: _by_speeds(launch, d) for d in devices}
    )  # fmt: skip
    origin = (
        f"the timing model {name}, corrected for this machine" if name
        else "measured speeds of these devices, and what the kernel is made of"
    )  # fmt: skip
    told = tuple(
        PredictedTime(
            device.id, device.name, times[device.id], _parts(launch, device.speeds(), device.shares_memory)
        )
        for device in devices
    )
    cut = _cut(told, SPEEDS.sharing)
    if name is None or asked is None:
        return PredictedMachine("this machine", origin, told, cut, BY_SPEEDS)
    kinds = {device.kind: device.speeds() for device in devices}
    said = asked.predict_all(launch.row(), launch.totals(), kinds)
    agreement = asked.agreement({kind: times for kind, times in said.items() if kind in kinds})
    return PredictedMachine("this machine", origin, told, cut, name, agreement)


def learned_machines(launch: PlannedLaunch, named: str | None = None) -> list[PredictedMachine]:
    """The machine that a timing model learned from; where none is named, that of each shipped one."""
    found = []
    for model in map(timing_model, models() if named is None else [named]):
        name = model.name
        said = model.predict_all(launch.row(), launch.totals())
        told = tuple(
            PredictedTime(
                device.device, device.name, said[device.device],
                _parts(launch, device.speeds, device.device == "cpu") if device.speeds else {},
            )
            for device in model.devices
            if device.name
        )  # fmt: skip
        origin = f"the timing model {name}, learned from kernels measured there"
        found.append(PredictedMachine(name, origin, told, _cut(told, SPEEDS.sharing), name))
    return found


def totals_of(launch: PlannedLaunch) -> dict[str, float]:
    """What the launch consists of, by its names."""
    return dict(zip(TOTALS, launch.totals().tolist(), strict=True))


def _by_speeds(launch: PlannedLaunch, device: DeviceInfo) -> Times:
    fixed, rate, waiting = times_by_speeds(
        launch.row()[None, :], launch.totals()[None, :], device.speeds(), copies=not device.shares_memory
    )
    return Times(float(fixed[0]), float(rate[0] + waiting[0]), math.log(SPEEDS.rough) / FOUR_IN_FIVE)


def _parts(launch: PlannedLaunch, speeds: Mapping[str, float], shares_memory: bool) -> dict[str, float]:
    totals = totals_of(launch)
    found = kernel_parts(totals.__getitem__, speeds)
    if not shares_memory:
        up, down = totals["bytes up"] / speeds["to_device"], totals["bytes down"] / speeds["from_device"]
        found["copies"] = up + down
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def _cut(devices: Sequence[PredictedTime], sharing_seconds: float) -> PredictedCut:
    costs = {one.device: CostModel(one.times.fixed, max(one.times.rate, 1e-12)) for one in devices}
    split, seconds = best_split(costs, sharing_seconds=sharing_seconds)
    alone = min(costs, key=lambda name: costs[name].seconds(1.0))
    alone_seconds = costs[alone].seconds(1.0)
    if len(devices) < 2:
        return PredictedCut(split.shares, seconds, alone, alone_seconds, None, None)
    drawn = _drawn(devices, costs)
    first = [best_split(one, sharing_seconds=sharing_seconds)[0].shares[devices[0].device] for one in drawn]
    low, high = np.quantile(first, [0.1, 0.9]).tolist()
    chance = None
    if max(split.shares.values()) < 1:
        shared = [_ended(one, split.shares) + sharing_seconds for one in drawn]
        chance = float(
            np.mean([each < one[alone].seconds(1.0) for each, one in zip(shared, drawn, strict=True)])
        )
    curve = tuple(_curve(devices[0].times, devices[1].times, sharing_seconds)) if len(devices) == 2 else ()
    return PredictedCut(split.shares, seconds, alone, alone_seconds, (low, high), chance, curve)


def _drawn(devices: Sequence[PredictedTime], costs: Mapping[str, CostModel]) -> list[dict[str, CostModel]]:
    """What may be true, drawn. What is misjudged of a kernel is misjudged alike for two devices of one name,
    so that they differ by `CONTRAST_SPREAD` alone."""
    random = np.random.default_rng(0)
    names = list(dict.fromkeys(one.name for one in devices))
    common = random.standard_normal((_DRAWS, len(names)))
    alike = [sum(other.name == one.name for other in devices) > 1 for one in devices]
    own = random.standard_normal((_DRAWS, len(devices))) * CONTRAST_SPREAD * np.array(alike)
    spreads = np.array([one.times.spread for one in devices])
    factors = np.exp(common[:, [names.index(one.name) for one in devices]] * spreads + own)
    return [
        {
            name: CostModel(factor * cost.fixed, factor * cost.rate)
            for factor, (name, cost) in zip(row, costs.items(), strict=True)
        }
        for row in factors.tolist()
    ]


def _ended(costs: Mapping[str, CostModel], shares: Mapping[str, float]) -> float:
    return max(cost.seconds(shares[name]) for name, cost in costs.items())


def _curve(first: Times, second: Times, sharing_seconds: float) -> list[tuple[float, float, float, float]]:
    factors = [math.exp(FOUR_IN_FIVE * times.spread) for times in (first, second)]
    found = []
    for share in np.linspace(0, 1, _CUTS).tolist():
        one = first.fixed + first.rate * share if share > 0 else 0.0
        other = second.fixed + second.rate * (1 - share) if share < 1 else 0.0
        more = sharing_seconds if 0 < share < 1 else 0.0
        found.append(
            (
                share, max(one, other) + more, max(one / factors[0], other / factors[1]) + more,
                max(one * factors[0], other * factors[1]) + more,
            )
        )  # fmt: skip
    return found
