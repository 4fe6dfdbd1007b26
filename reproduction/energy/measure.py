"""Time and power of the bundled kernels under cuts of their work, by the meters that may be read.

A cut is launched again and again for half a second, and longer until every meter moved twice. Between
launches arrays are put back where that matters; the time for it is told apart, and taken to draw what an idle
machine draws.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from apportion.coexecution.bound import BoundKernel
from apportion.coexecution.forecast import Predictor
from apportion.coexecution.sharing import Together
from apportion.errors import ApportionError
from apportion.runtime.observe import Observer, energy_meters
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.power import drawn, idle
from apportion.suite.base import Instance, Problem, Stage
from reproduction.efficiency.rounds import Bench, bound_stage

CUTS = (0.0, 1.0, 0.1, 0.3, 0.5, 0.05, 0.8)
"Shares of the first device, the CPU: devices alone first, then those most likely to be best beside a GPU."
SLOW = 8.0
"A cut whose launches take so many times the quickest one's is launched a few times and not metered."
WINDOW_SECONDS = 0.5


@dataclass(frozen=True)
class CutRow:
    """One cut of one kernel."""

    share: float
    "Of the first device."
    launches: int
    seconds: float
    "Median of a launch, as the caller saw it."
    seconds_mean: float
    devices: dict[str, float]
    "Device → the median of the seconds until it was done."
    watts: dict[str, float] = field(default_factory=dict)
    "Meter → watts over the window; what did not move twice is not there."
    window: float = 0.0
    launching: float = 1.0
    "The part of the window in which launches ran."


@dataclass(frozen=True)
class EnergyRow:
    """One kernel."""

    problem: str
    kernel: str
    work_items: int = 0
    devices: tuple[str, ...] = ()
    cuts: tuple[CutRow, ...] = ()
    obstacle: str = ""
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        """A plain object, which `row_from` reads."""
        return asdict(self)


def row_from(values: dict[str, Any]) -> EnergyRow:
    """The row that `as_json` gave."""
    cuts = tuple(CutRow(**each) for each in values["cuts"])
    return EnergyRow(**{**values, "cuts": cuts, "devices": tuple(values["devices"])})


def machine_power(seconds: float = 2.0) -> dict[str, Any]:
    """The meters that may be read here, and what the machine draws while nothing of ours runs."""
    meters = energy_meters()
    return {"meters": [meter.name for meter in meters], "idle": idle(meters, seconds=seconds).watts}


def measured(
    problems: Sequence[Problem],
    backend: OpenCLBackend,
    *,
    devices: Sequence[str] | None,
    predictor: Predictor,
    size: str,
    until: float,
    done: frozenset[tuple[str, str]] = frozenset(),
    seed: int = 0,
) -> Iterator[EnergyRow]:
    """A row for each kernel of the problems, in an order that is drawn: what is there when time is up is a
    fair part of them."""
    names = list(devices) if devices is not None else [info.id for info in backend.devices()]
    meters = energy_meters()
    order = list(problems)
    random.Random(seed).shuffle(order)
    for problem in order:
        instance = problem.instance(getattr(problem, size), seed=seed)
        stages = {stage.kernel: stage for stage in instance.stages}
        if all((problem.name, kernel) in done for kernel in stages):
            continue
        for stage in stages.values():
            if time.monotonic() > until:
                return
            try:
                with Together(
                    problem.source(), stage.kernel, names, backend=backend, predictor=predictor
                ) as kernel:
                    yield _row(problem, instance, stage, kernel, meters)
            except ApportionError as error:
                yield EnergyRow(problem.name, stage.kernel, failure=str(error))


def _row(
    problem: Problem, instance: Instance, stage: Stage, kernel: Together, meters: Sequence[Observer]
) -> EnergyRow:
    bound = bound_stage(kernel, instance, stage)
    bound.binding.remember()
    bench = Bench(bound)
    bench.run("learned+feedback")  # compiles and verifies
    least = float("inf")
    found = []
    for share in CUTS if not bound.case.obstacle and len(bound.devices) == 2 else CUTS[:2]:
        cut = _cut(bench, bound, share, least, meters)
        found.append(cut)
        least = min(least, cut.seconds)
    if len(instance.stages) > 1:  # what the next kernel works on
        bench.run("learned+feedback")
        for place in bound.binding.written:
            index = kernel.signature.argument(place.name).index
            instance.arrays[str(stage.arguments[index])][...] = bound.binding.shared[place.name]
    return EnergyRow(
        problem.name, stage.kernel, bound.span.work_items, tuple(info.id for info in bound.devices),
        tuple(sorted(found, key=lambda each: each.share)), bound.case.obstacle,
    )  # fmt: skip


def _cut(bench: Bench, bound: BoundKernel, share: float, least: float, meters: Sequence[Observer]) -> CutRow:
    first, second = (info.id for info in bound.devices[:2])
    policy: str | float = {0.0: second, 1.0: first}.get(share, share)
    wall: list[float] = []
    each: dict[str, list[float]] = {}

    def once() -> None:
        execution = bench.run(policy)
        wall.append(execution.wall_seconds)
        for device in execution.outcome.devices:
            if device.groups:
                each.setdefault(device.device, []).append(device.seconds)

    for _ in range(3):  # the first ones compile, and are compared
        once()
    began = min(wall)
    del wall[:2]
    for seconds in each.values():
        del seconds[:-1]
    watts: dict[str, float] = {}
    window, launching = 0.0, 1.0
    if began < SLOW * least and began < 1.0:
        wall.clear()
        powered = drawn(meters, once, seconds=WINDOW_SECONDS)
        watts, window = powered.watts, powered.seconds
        launching = sum(wall) / window
    return CutRow(
        share, len(wall), statistics.median(wall), statistics.fmean(wall),
        {device: statistics.median(seconds) for device, seconds in each.items()},
        {name: round(value, 3) for name, value in watts.items()}, round(window, 4), round(launching, 4),
    )  # fmt: skip
