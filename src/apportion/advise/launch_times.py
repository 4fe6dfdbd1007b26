"""From a launch to what each device will take: fixed + rate × share, with how far off that may be.

launch = Launch(ir, "saxpy", NDRange((n,), (64,)), {0: 4 * n, 1: 4 * n}, {2: n})
times = predict_times(launch, devices)          # device id → Times(fixed, rate, spread)
forecast = forecast_of(query, devices)        # the same, as a `Predictor` of `coexecution.forecast` says it
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from apportion import weights
from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import FOUR_IN_FIVE, Forecast, LaunchQuery, launch_of, sharing_seconds
from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.base import open_predictor
from apportion.learn.times.timing_model import DeviceModel, Times, TimingModel
from apportion.program.kernel.launch import PlannedLaunch
from apportion.runtime.base import DeviceInfo
from apportion.settings import cache_folder, replace_file


@dataclass(frozen=True)
class Correction:
    """How a device of this machine differs from what a model says of its kind.

    The logarithm of its time is offset + slope × that of the model's.
    """

    offset: float = 0.0
    slope: float = 1.0
    spread: float = 0.0
    "Of log seconds, on the kernels it was found by; 0 where it is not known."
    kernels: int = 0

    def applied(self, times: Times) -> Times:
        """The times of the device itself."""
        factor = math.exp(self.offset + (self.slope - 1) * math.log(max(times.seconds, 1e-9)))
        return Times(times.fixed * factor, times.rate * factor, self.spread or times.spread)


def models() -> list[str]:
    """The names of the timing models that are shipped, the preferred one first."""
    return [model.name for model in weights.manifest().answering("times")]


@cache
def timing_model(name: str | Path | None = None) -> TimingModel:
    """A model of times, by its name or folder, read once; the preferred one where none is named.

    Raises:
        UnknownName: there is none of this name.
        InvalidSetting: the model of this name tells something else than the times of `TimingModel`.
    """
    known = models()
    if name is None and not known:
        raise UnknownName("timing model", "of any name", known)
    opened = open_predictor(name or known[0], "times")
    if not isinstance(opened, TimingModel):
        raise InvalidSetting(f"{name} is a {type(opened).__name__}, and launches need a TimingModel")
    return opened


def predict_times(
    launch: PlannedLaunch, devices: Sequence[DeviceInfo], model: str | Path | None = None
) -> dict[str, Times]:
    """Device id → what a launch takes there: as the model of the device's kind says, corrected by what
    `apportion calibrate` found on this machine, else by the device's calibrated speeds where they are known.

    Raises:
        UnknownName: there is no such model, or no such kernel.
        MalformedInput: the IR cannot be read.
    """
    chosen = timing_model(model)
    row, totals = launch.row(), launch.totals()
    found = {}
    said = chosen.predict_all(row, totals, _speeds(devices))
    for device in devices:
        model_of_kind = chosen.device(device.kind)
        kept = correction_of(device, chosen.name) or by_speed(device, model_of_kind)
        found[device.id] = kept.applied(said[model_of_kind.device])
    return found


def forecast_of(
    query: LaunchQuery, devices: Sequence[DeviceInfo], model: str | Path | None = None
) -> Forecast:
    """What a launch will take on each device, as policies ask for it.

    Args:
        model: its name or its folder; the preferred one where none is named.

    Raises:
        UnknownName: there is no such model.
        MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    launch = launch_of(query)
    times = predict_times(launch, devices, model)
    models = {name: CostModel(each.fixed, max(each.rate, 1e-9)) for name, each in times.items()}
    chosen = timing_model(model)
    kinds = tuple(device.kind for device in devices)
    pair = len(kinds) == 2 and set(kinds) == {device.device for device in chosen.devices[:2]}
    rows, totals = launch.row()[None, :], launch.totals()[None, :]
    doubt = float(chosen.doubt(rows, totals, _speeds(devices))[0]) if pair else None
    spreads = {name: math.exp(FOUR_IN_FIVE * each.spread) for name, each in times.items()}
    return Forecast(
        models, max(spreads.values()), f"the timing model {chosen.name}", sharing_seconds(query, devices),
        doubt, spreads,
    )  # fmt: skip


def _speeds(devices: Sequence[DeviceInfo]) -> dict[str, dict[str, float]]:
    """Kind of device → what it was calibrated to do per second, where it was."""
    return {device.kind: device.speeds() for device in devices}


def correction_of(device: DeviceInfo, model: str) -> Correction | None:
    """What was found of this device, or None."""
    try:
        return Correction(**json.loads(correction_file(device, model).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def keep_correction(device: DeviceInfo, model: str, correction: Correction) -> Path:
    """Keep what was found of a device, for predictions from now on."""
    path = correction_file(device, model)
    replace_file(path, json.dumps(asdict(correction)))
    return path


def correction_file(device: DeviceInfo, model: str) -> Path:
    """Where a device's correction is kept."""
    name = "".join(
        letter if letter.isalnum() else "-" for letter in f"{device.id}-{device.name}-{device.driver}"
    )
    return cache_folder("timing", model) / f"{name}-{device.compute_units}.json"


def by_speed(device: DeviceInfo, model: DeviceModel) -> Correction:
    """By how much faster or slower the device itself was measured to be than the model's, in the mean."""
    if device.calibration is None or not model.speeds or model.by_speeds:
        return Correction()
    ratios = [
        math.log(model.speeds[name] / getattr(device.calibration, name))
        for name in ("memory", "arithmetic")
        if model.speeds.get(name)
    ]
    return Correction(offset=sum(ratios) / len(ratios)) if ratios else Correction()
