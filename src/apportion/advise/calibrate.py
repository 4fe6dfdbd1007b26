"""Adapting a shipped timing model to this machine: a few kernels measured, a correction fitted for each
device.

The model knows how kernels differ; what it cannot know is how much faster or slower this machine is, and
whether more so for long launches than for short ones. Both are two numbers per device, which a dozen
kernels settle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.advise.launch_times import Correction, by_speed, keep_correction, timing_model
from apportion.errors import ApportionError, InvalidSetting
from apportion.learn.times.timing_model import Times
from apportion.measure.campaign import Campaign, visit_of
from apportion.program.compile import ir_of
from apportion.program.kernel.launch import PlannedLaunch
from apportion.program.source import Source
from apportion.runtime.backend import Backend
from apportion.runtime.base import DeviceInfo
from apportion.runtime.workload import Case, Workload

MOST_KERNELS = 20
_LEAST_KERNELS = 3
_STIFFNESS = 4.0
"How many kernels' worth of doubt there is that a device's times differ by more than a factor."
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Adapted:
    """What calibrating a device came to."""

    device: str
    name: str
    kernels: int
    before: float
    "The factor by which the shipped model is off, in the median over kernels."
    after: float
    "The same for kernels that the correction was not fitted to, each left out in turn."
    correction: Correction
    "What is kept: the fitted one, unless it is further off than what was there before."


def fitted(predicted: Numbers, measured: Numbers) -> Correction:
    """The correction that fits times best, drawn towards a plain factor where there are few kernels.

    Args:
        predicted: (K,) seconds that the model says.
        measured: (K,) seconds.

    Raises:
        InvalidSetting: there are too few kernels, or times that are not above 0.
    """
    if len(predicted) < _LEAST_KERNELS:
        raise InvalidSetting(f"Calibrating needs at least {_LEAST_KERNELS} kernels, not {len(predicted)}")
    if min(predicted.min(), measured.min()) <= 0:
        raise InvalidSetting("Times must be above 0")
    x, left = np.log(predicted), np.log(measured / predicted)
    middle = float(x.mean())
    level = float(np.median(left))
    tilt = float(((x - middle) * (left - level)).sum() / (((x - middle) ** 2).sum() + _STIFFNESS))
    rest = left - level - tilt * (x - middle)
    return Correction(level - tilt * middle, 1 + tilt, float(np.sqrt(np.mean(rest**2))), len(predicted))


def calibrate(
    workloads: Sequence[Workload],
    backend: Backend,
    campaign: Campaign,
    *,
    model: str | None = None,
    devices: Sequence[DeviceInfo],
    report: Callable[[str], None],
) -> list[Adapted]:
    """Measure one case of each workload on each device, fit corrections, and keep them for predictions
    from now on.

    Raises:
        InvalidSetting: more workloads than `MOST_KERNELS`, or too few of them can be measured.
    """
    if len(workloads) > MOST_KERNELS:
        raise InvalidSetting(f"Calibrating takes at most {MOST_KERNELS} kernels, not {len(workloads)}")
    chosen = timing_model(model)
    seconds: dict[str, list[tuple[float, float]]] = {device.id: [] for device in devices}
    for workload in workloads:
        case = _middle(workload)
        try:
            launch = launch_of(workload, case)
            visit = visit_of(workload, case, [device.id for device in devices], campaign)
            seen = backend.measure(visit, campaign.visit_seconds)
        except ApportionError as error:
            report(f"{workload.name}: {error}")
            continue
        row, totals = launch.row(), launch.totals()
        for device, one in zip(devices, seen, strict=True):
            whole = [launched.seconds for launched in one.launches if launched.share == 1.0]
            if one.failure or not whole:
                report(f"{workload.name} on {device.id}: {one.failure or 'nothing was measured'}")
                continue
            raw = chosen.predict(device.kind, row, totals, {device.kind: device.speeds()})
            said = by_speed(device, chosen.device(device.kind)).applied(raw)
            seconds[device.id].append((raw.seconds, float(np.median(whole))))
            report(
                f"{workload.name} on {device.id}: {np.median(whole) * 1e3:.3g} ms, "
                f"predicted {said.seconds * 1e3:.3g}"
            )
    return [_adapted(device, chosen.name, np.array(seconds[device.id]), model) for device in devices]


def _adapted(device: DeviceInfo, name: str, times: Numbers, model: str | None) -> Adapted:
    if len(times) < _LEAST_KERNELS:
        raise InvalidSetting(f"Only {len(times)} kernels could be measured on {device.id}; give others")
    predicted, measured = times.T
    start = by_speed(device, timing_model(model).device(device.kind))
    before = _off(np.array([start.applied(Times(0.0, each, 0.0)).seconds for each in predicted]), measured)
    others = [np.delete(np.arange(len(times)), number) for number in range(len(times))]
    if len(times) > _LEAST_KERNELS:
        after = [
            fitted(predicted[kept], measured[kept]).applied(Times(0.0, predicted[number], 0.0)).seconds
            for number, kept in enumerate(others)
        ]
    else:
        after = [fitted(predicted, measured).applied(Times(0.0, each, 0.0)).seconds for each in predicted]
    off = _off(np.array(after), measured)
    correction = fitted(predicted, measured) if off < before else start
    keep_correction(device, name, correction)
    return Adapted(device.id, device.name, len(times), before, min(off, before), correction)


def _off(said: Numbers, measured: Numbers) -> float:
    return float(np.exp(np.median(np.abs(np.log(said / measured)))))


def _middle(workload: Workload) -> Case:
    """Neither the smallest case nor a large one: launches that say something, and end soon."""
    ordered = sorted(workload.cases, key=lambda case: case.span.work_items)
    return ordered[len(ordered) // 3]


def launch_of(workload: Workload, case: Case) -> PlannedLaunch:
    """A case as models see it."""
    ir = ir_of(Source(workload.source, "opencl", workload.name))
    return case.launch(ir, workload.kernel, workload.source)
