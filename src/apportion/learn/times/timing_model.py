"""TimingModel: how long launches take on each device of a machine, as fixed + rate × share of the work.

For each device what a launch consists of (operations, bytes) over the device's calibrated speeds gives a
first time, or where speeds are not known a sum whose terms were fitted; no launch takes less than the
shortest ones did. A forest corrects that, and another which part of it does not shrink with the share.
The first time carries the model to sizes and machines
it never saw, the forest knows what sums do not. One more forest says by what factor the two devices differ:
what is misjudged of a kernel is mostly misjudged for both, and only the factor decides who gets how much.
Read and evaluated with NumPy alone, like `KernelModel`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.forecast import kernel_times
from apportion.data.artifact import Artifact, read_artifact, write_artifact
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.base import Answer, Predictor, check_confidence
from apportion.learn.forest import Forest
from apportion.program.kernel.launch import LAUNCH, TOTALS, PlannedLaunch

Numbers = NDArray[np.float64]
_CONTRAST = 0.5
"How much the forest on the factor counts beside the quotient of the devices' own times."
_OFF = 0.5
"""How far a forest is taken to be off, over how far its trees differ. This, and `CONTRAST_SPREAD`, cost
least among some values where kernels were held out of the campaign; suites, by which it is judged, were not
asked."""
CONTRAST_SPREAD = 0.1
_FOREST = ("feature", "threshold", "left", "right", "value", "root", "depth")


@dataclass(frozen=True)
class Times:
    """What a device is expected to take, in seconds."""

    fixed: float
    "Whatever the share."
    rate: float
    "For the whole range, on top."
    spread: float
    "How far off that may be: the standard deviation of the logarithm."

    @property
    def seconds(self) -> float:
        """For everything."""
        return self.fixed + self.rate


class First(NamedTuple):
    """What speeds alone say of launches, (N,) each."""

    seconds: Numbers
    part: Numbers
    "The part of that which is known not to shrink with the share."
    waiting: Numbers
    """Seconds on top in which work-groups wait for each other. Forests do not correct them: what they know of
    other kernels says nothing of that."""


@dataclass(frozen=True, eq=False)
class DeviceModel:
    """One device."""

    device: str
    "As the machine it was measured on calls it: cpu, gpu."
    name: str
    coefficients: Numbers  # (T,) seconds for one of each of `program.kernel.launch.TOTALS`
    whole: Forest
    "log(seconds / sum)."
    fixed: Forest
    "The part of the time that does not shrink, from 0 to 1; by how much it is more than speeds say, where "
    "the first time comes from them."
    spread: float
    "Of log seconds, on kernels of suites that were held out."
    speeds: Mapping[str, float]
    "`runtime.base.Calibration.speeds` of the device, where it was measured."
    by_speeds: bool = False
    "Whether the first time comes from speeds, not from the sum."
    least: float = 0.0
    "Seconds that are added to every first time: what launches take that have next to nothing to do."
    starting: tuple[float, float, float] = (0.0, 1.0, 0.0)
    "As `starting_seconds` has them: what copies take beyond the calibrated speed."

    def first(self, rows: Numbers, totals: Numbers, speeds: Mapping[str, float] | None = None) -> First:
        """The times before they are corrected; by other speeds than its own where they are given."""
        if not self.by_speeds:
            seconds = self.least + first_seconds(self.coefficients, totals)
            return First(seconds, np.zeros(len(seconds)), np.zeros(len(seconds)))
        fixed, rate, waiting = times_by_speeds(
            rows, totals, speeds or self.speeds, copies=self.device != "cpu"
        )
        fixed = fixed + self.least + starting_seconds(totals, self.starting)
        return First(fixed + rate, fixed / (fixed + rate), waiting)

    def predict(self, seen: Numbers, first: First) -> tuple[Numbers, Numbers, Numbers]:
        """(N,) each: fixed, rate, and the trees' own spread; without what is waited for.

        Args:
            seen: what the forests know of every launch.
        """
        trees = self.whole.each(seen)
        whole = np.exp(trees.mean(axis=1)) * first.seconds
        part = np.clip(first.part + self.fixed.predict(seen), 0.0, 0.99)
        return part * whole, (1 - part) * whole, trees.std(axis=1)


@dataclass(frozen=True, eq=False)
class TimingModel(Predictor[PlannedLaunch, Mapping[str, float]]):
    """All devices of a machine."""

    question: ClassVar[str] = "times"
    kind: ClassVar[str] = "launch-times"
    "Its entry of `apportion.learn.predictors`."

    name: str
    features: tuple[str, ...]
    devices: tuple[DeviceModel, ...]
    about: Mapping[str, Any]
    "The experiment that made it."
    contrast: Forest | None = None
    "log(seconds of the first device / of the second), less that of the sums."
    contrast_spread: float = CONTRAST_SPREAD
    "By how much the log of that factor may be off though all trees agree."
    sees_first: bool = False
    "Whether the forests know the first times of the first two devices beside the features."

    def device(self, kind: str) -> DeviceModel:
        """The model of a device of this kind; of the last one, for a kind that it does not know."""
        for device in self.devices:
            if device.device == kind:
                return device
        return self.devices[-1]

    def times(
        self, rows: Numbers, totals: Numbers, speeds: Mapping[str, Mapping[str, float]] | None = None
    ) -> tuple[Numbers, Numbers, Numbers]:
        """(N, D) each: every device's fixed, rate, and spread of its trees.

        Args:
            speeds: kind of device → what it does per second, where that is not as it was when it learned.
        """
        firsts = self._first(rows, totals, speeds)
        seen = self._seen(rows, firsts)
        fixed, rate, spread = (
            np.stack(each, axis=1)
            for each in zip(
                *(device.predict(seen, one) for device, one in zip(self.devices, firsts, strict=True)),
                strict=True,
            )
        )
        if self.contrast is not None:
            whole = fixed + rate
            factor = self.contrast.predict(seen) + np.log(firsts[0].seconds / firsts[1].seconds)
            off = _CONTRAST * (factor - np.log(whole[:, 0] / whole[:, 1])) / 2
            scale = np.exp(np.stack([off, -off], axis=1))
            fixed, rate = fixed * scale, rate * scale
        return fixed, rate + np.stack([each.waiting for each in firsts], axis=1), spread

    def doubt(
        self, rows: Numbers, totals: Numbers, speeds: Mapping[str, Mapping[str, float]] | None = None
    ) -> Numbers:
        """(N,): the standard deviation of the log of the factor between the first two devices."""
        if self.contrast is None:
            first, second, *_ = (device.spread for device in self.devices)
            return np.full(len(rows), float(np.hypot(first, second)))
        seen = self._seen(rows, self._first(rows, totals, speeds))
        return np.asarray(np.hypot(_OFF * self.contrast.each(seen).std(axis=1), self.contrast_spread))

    def _first(
        self, rows: Numbers, totals: Numbers, speeds: Mapping[str, Mapping[str, float]] | None
    ) -> list[First]:
        known = speeds or {}
        return [device.first(rows, totals, known.get(device.device)) for device in self.devices]

    def _seen(self, rows: Numbers, firsts: list[First]) -> Numbers:
        if not self.sees_first:
            return rows
        return with_first(rows, np.stack([first.seconds for first in firsts], axis=1))

    def predict(
        self,
        kind: str,
        row: Numbers,
        totals: Numbers,
        speeds: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Times:
        """What one launch takes on a device of this kind."""
        return self.predict_all(row, totals, speeds)[self.device(kind).device]

    def predict_all(
        self, row: Numbers, totals: Numbers, speeds: Mapping[str, Mapping[str, float]] | None = None
    ) -> dict[str, Times]:
        """What one launch takes on each device that the model knows."""
        if len(row) != len(self.features):
            raise InvalidSetting(f"{self.name} knows {len(self.features)} features, not {len(row)}")
        fixed, rate, spread = (part[0] for part in self.times(row[None, :], totals[None, :], speeds))
        return {
            device.device: Times(
                float(fixed[place]), float(rate[place]), float(np.hypot(spread[place], device.spread))
            )
            for place, device in enumerate(self.devices)
        }

    def answer(
        self, queries: Sequence[PlannedLaunch], *, confidence: float = 0.9
    ) -> list[Answer[Mapping[str, float]]]:
        """Of each launch, the seconds that each device takes for all of it."""
        wide = NormalDist().inv_cdf((1 + check_confidence(confidence)) / 2)
        found = []
        for query in queries:
            said = self.predict_all(query.row(), query.totals())
            off = {name: float(np.exp(wide * times.spread)) for name, times in said.items()}
            found.append(
                Answer[Mapping[str, float]](
                    {name: times.seconds for name, times in said.items()},
                    {name: times.seconds / off[name] for name, times in said.items()},
                    {name: times.seconds * off[name] for name, times in said.items()},
                    confidence, self.agreement(said),
                )
            )  # fmt: skip
        return found

    def agreement(self, said: Mapping[str, Times]) -> float:
        """1 where the trees behind times agree, near 0 where they differ: an unfamiliar launch."""
        trees = [
            max(times.spread**2 - self.device(kind).spread ** 2, 0.0) ** 0.5 for kind, times in said.items()
        ]
        return float(np.exp(-max(trees)))

    def save(self, folder: Path) -> Path:
        """Write the model to `folder`, which comes back."""
        arrays: dict[str, NDArray[Any]] = {}
        for number, device in enumerate(self.devices):
            arrays[f"{number}.coefficients"] = device.coefficients
            for part, forest in (("whole", device.whole), ("fixed", device.fixed)):
                arrays |= {f"{number}.{part}.{name}": values for name, values in _small(forest).items()}
        if self.contrast is not None:
            arrays |= {f"contrast.{name}": values for name, values in _small(self.contrast).items()}
        described = {
            "features": list(self.features), "contrast_spread": self.contrast_spread,
            "sees_first": self.sees_first,
            "devices": [
                {"device": d.device, "name": d.name, "spread": d.spread, "speeds": dict(d.speeds),
                 "by_speeds": d.by_speeds, "least": d.least, "starting": list(d.starting)}
                for d in self.devices
            ],
        }  # fmt: skip
        artifact = Artifact(
            "launch-times", self.kind, described, experiment=dict(self.about), predictor=self.kind,
            name=self.name,
        )  # fmt: skip
        write_artifact(folder, artifact, arrays)
        return folder

    @classmethod
    def load(cls, folder: Path) -> Self:
        artifact, kept = read_artifact(folder)
        described = artifact.hyperparameters
        try:
            devices = tuple(
                DeviceModel(
                    said["device"], said["name"], kept[f"{number}.coefficients"],
                    _forest(kept, f"{number}.whole"), _forest(kept, f"{number}.fixed"), said["spread"],
                    said["speeds"], said.get("by_speeds", False), said.get("least", 0.0),
                    tuple(said.get("starting", (0.0, 1.0, 0.0))),
                )
                for number, said in enumerate(described["devices"])
            )  # fmt: skip
            contrast = _forest(kept, "contrast") if "contrast.root" in kept else None
            return cls(
                artifact.name or folder.name, tuple(described["features"]), devices, artifact.experiment,
                contrast, described.get("contrast_spread", CONTRAST_SPREAD),
                described.get("sees_first", False),
            )  # fmt: skip
        except KeyError as error:
            raise MalformedInput(f"is no model of times ({error} is missing)", file=str(folder)) from error


def with_first(rows: Numbers, first: Numbers) -> Numbers:
    """(N, F + 3): features with the logs of two devices' first times and of their factor."""
    logs = np.log(first[:, :2])
    return np.column_stack([rows, logs, logs[:, 0] - logs[:, 1]])


def times_by_speeds(
    rows: Numbers, totals: Numbers, speeds: Mapping[str, float], *, copies: bool
) -> tuple[Numbers, Numbers, Numbers]:
    """(N,) each: fixed, rate and waiting as `coexecution.forecast.from_speeds` has them, without learning.

    Args:
        speeds: `runtime.base.Calibration.speeds`.
        copies: whether arrays are copied to the device and back.
    """

    def total(name: str) -> Numbers:
        return np.asarray(totals[:, TOTALS.index(name)])

    fixed, rate, waiting = kernel_times(total, speeds)
    if copies:
        up, down = total("bytes up") / speeds["to_device"], total("bytes down") / speeds["from_device"]
        grows = up * rows[:, LAUNCH.index("sliced up")] + down * rows[:, LAUNCH.index("sliced down")]
        fixed, rate = fixed + up + down - grows, rate + grows
    return np.asarray(fixed), np.asarray(rate), np.asarray(waiting)


def starting_seconds(totals: Numbers, starting: tuple[float, float, float]) -> Numbers:
    """(N,): what copies of a launch take beyond the calibrated speed, which only long ones reach.

    Args:
        starting: the most it can be, in seconds; the bytes after which most of that is reached; the seconds
            of each copy on top.
    """
    most, many, each = starting
    moved = totals[:, TOTALS.index("bytes up")] + totals[:, TOTALS.index("bytes down")]
    return np.asarray(most * (1 - np.exp(-moved / many)) + each * totals[:, TOTALS.index("copies")])


def first_seconds(coefficients: Numbers, totals: Numbers) -> Numbers:
    """(N,): the sum over what launches consist of; never 0."""
    return np.asarray(np.maximum(totals @ coefficients, 1e-7), np.float64)


def _small(forest: Forest) -> dict[str, NDArray[Any]]:
    """A forest's arrays, thresholds in 32 bits: its features are compared in 32 bits anyway."""
    arrays = forest.arrays()
    down = np.nextafter(arrays["threshold"].astype(np.float32), np.float32(-np.inf))
    near = arrays["threshold"].astype(np.float32)
    # Rounded down, so that what was not more than a threshold is still not more: compare in 64 bits.
    arrays["threshold"] = np.where(near.astype(np.float64) > arrays["threshold"], down, near)
    return arrays


def _forest(kept: Mapping[str, NDArray[Any]], part: str) -> Forest:
    arrays = {name: kept[f"{part}.{name}"] for name in _FOREST}
    return Forest.of_arrays({**arrays, "threshold": arrays["threshold"].astype(np.float64)})
