"""A launch beside its alternatives: each device alone, and the cuts between them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from apportion.coexecution.bound import BoundKernel, Execution
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.policies.base import Policy
from apportion.errors import InvalidSetting
from apportion.runtime.sampling import summary
from apportion.runtime.split import Split


@dataclass(frozen=True)
class Comparison:
    """What a policy did, beside what each device does alone."""

    kernel: str
    execution: Execution
    milliseconds: tuple[float, ...]
    "Of each repeat."
    curve: Mapping[float, float] = field(default_factory=dict)
    "Share of the first device → milliseconds, where cuts were measured."
    forecast: Forecast | None = None
    "What was expected before anything ran, where the policy asked."
    work_items: int = 0
    alone: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    "Device → milliseconds of each launch that it did alone."

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """Between which numbers the speed-up lies, as far as the repeats allow."""
        if not self.alone:
            return None
        best = min((summary(times) for times in self.alone.values()), key=lambda one: one.median)
        mine = summary(self.milliseconds)
        return best.low / mine.high, best.high / mine.low

    @property
    def in_words(self) -> str | None:
        """What sharing gained, where that is more than repeats vary."""
        interval = self.speedup_interval
        if interval is None or self.speedup is None:
            return None
        low, high = interval
        if max(self.execution.split.values(), default=1.0) == 1.0:
            return "One device does it all: sharing is not expected to be faster."
        if low > 1:
            return f"{self.speedup:.2f} times the speed of the best device alone ({low:.2f} to {high:.2f})."
        if high < 1:
            return f"{self.speedup:.2f} times the speed of the best device alone, which is slower."
        return f"As fast as the best device alone, as far as {len(self.milliseconds)} repeats can tell."

    @property
    def speedup(self) -> float | None:
        """Times faster than the best single device; None where no device was measured alone."""
        alone = self.execution.alone.values()
        return min(alone) / self.execution.seconds if alone else None

    @property
    def efficiency(self) -> float | None:
        """The best measured cut's time over this one's; None where no cuts were measured."""
        return min(self.curve.values()) / (self.execution.seconds * 1e3) if self.curve else None

    def as_json(self) -> dict[str, Any]:
        """What `apportion run --json` prints; times are milliseconds."""
        outcome, forecast = self.execution.outcome, self.forecast
        said = self.execution.as_json() | {
            "kernel": self.kernel,
            "repeats": self.milliseconds,
            "work_items": self.work_items,
            "speedup": self.speedup,
            "speedup_interval": self.speedup_interval,
            "efficiency": self.efficiency,
            "curve": [[share, milliseconds] for share, milliseconds in sorted(self.curve.items())],
            "timeline": [
                {
                    "device": time.device, "began": 1e3 * time.began, "upload": 1e3 * time.upload,
                    "kernel": 1e3 * time.kernel, "download": 1e3 * time.download,
                }
                for time in outcome.devices
            ],
            "merge_milliseconds": 1e3 * outcome.merge_seconds,
            "forecast": None,
        }  # fmt: skip
        if forecast is not None:
            said["forecast"] = {
                "origin": forecast.origin,
                "spread": forecast.spread,
                "devices": {
                    device: {"fixed": 1e3 * model.fixed, "rate": 1e3 * model.rate}
                    for device, model in forecast.models.items()
                },
            }
        return said


def compare(
    bound: BoundKernel,
    policy: str | float | Policy,
    *,
    repeats: int = 3,
    cuts: bool = False,
    report: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Run a launch under a policy, and time it on each device alone.

    The arrays hold the results of one run afterwards, however often it was repeated.

    Args:
        repeats: timed runs, after the first; their median is told.
        cuts: measure a curve of cuts between the first two devices too.
        report: is told what is done next, and which part of all is done, from 0 to 1.
    """
    tell = report or _nobody
    if repeats < 1:
        raise InvalidSetting(f"There must be at least one repeat, not {repeats}")
    tell("compiling, and the first run", 0.05)
    bound.binding.remember()
    execution = bound.run(policy)  # compiles, and verifies
    names = [info.id for info in bound.devices]
    alone: dict[str, tuple[float, ...]] = {}
    bound.binding.restore()
    for place, name in enumerate(names):
        tell(f"{name} alone", 0.2 + 0.3 * place / len(names))
        times = bound.time(Split({other: float(other == name) for other in names}), repeats)
        alone[name] = tuple(1e3 * seconds for seconds in times)
    curve = {}
    if cuts and len(names) > 1 and not bound.case.obstacle:
        tell("cuts between devices", 0.5)
        curve = {share: seconds * 1e3 for share, seconds in bound.curve(repeats).items()}
    milliseconds = []
    for number in range(repeats):
        tell(f"run {number + 1} of {repeats}", 0.8 + 0.2 * number / repeats)
        bound.binding.restore()
        execution = bound.run(policy)
        milliseconds.append(execution.seconds * 1e3)
    execution = replace(execution, seconds=statistics.median(milliseconds) / 1e3)
    return Comparison(
        bound.kernel.signature.name, execution, tuple(milliseconds), curve, bound.case.forecast,
        bound.span.work_items, alone,
    )  # fmt: skip


def _nobody(stage: str, part: float) -> None:
    """Nobody wants to know how far the work is."""
