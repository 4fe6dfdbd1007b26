"""Fitting timing models to campaigns: a sum with no negative part, and forests on what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from apportion import __version__
from apportion.learn.forest import Forest
from apportion.learn.shares.trees import RowModel, RowSettings
from apportion.learn.times.campaign_table import CampaignTable
from apportion.learn.times.timing_model import (
    DeviceModel,
    TimingModel,
    first_seconds,
    starting_seconds,
    times_by_speeds,
    with_first,
)
from apportion.program.kernel.launch import LAUNCH

Numbers = NDArray[np.float64]
WHOLE = RowSettings("extra-trees", trees=40, max_features=0.4, leaf=6)
FIXED = RowSettings("extra-trees", trees=20, max_features=0.4, leaf=10)
_THREADS = 5
_STARTING_SECONDS = tuple(2e-4 * step for step in range(13))
_STARTING_BYTES = (1e6, 3e6, 6e6, 1e7, 2e7, 4e7)
_EACH_COPY = tuple(1e-5 * step for step in range(0, 11, 2))
"Among these what copies take at their start is looked for."
_WITHOUT_WAITING = 0.2
"The part of a launch at least that is not waiting."
_LEAST = 0.02
"The part of the launches that are taken to have next to nothing to do."


@dataclass(frozen=True)
class TimingSettings:
    """How a timing model is fitted."""

    whole: RowSettings = WHOLE
    fixed: RowSettings = FIXED
    contrast: RowSettings = WHOLE
    seed: int = 1


DEFAULT = TimingSettings()


def fit_timing(
    table: CampaignTable,
    name: str,
    *,
    settings: TimingSettings = DEFAULT,
    spreads: tuple[float, float] = (0.3, 0.3),
    device_names: tuple[str, str] = ("", ""),
    speeds: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
    about: Mapping[str, object] | None = None,
) -> TimingModel:
    """The model of a campaign.

    Args:
        speeds: each device's `runtime.base.Calibration.speeds`; times are then predicted from them first.
        spreads: each device's standard deviation of log seconds on kernels that were held out.
    """
    least = np.quantile(table.seconds, _LEAST, axis=0)
    starting = [(0.0, 1.0, 0.0), (0.0, 1.0, 0.0)]
    by_speeds = all(speeds)
    if by_speeds:
        sums = [np.zeros(0), np.zeros(0)]
        each = [
            times_by_speeds(table.rows, table.totals, known, copies=device != "cpu")
            for known, device in zip(speeds, table.devices, strict=True)
        ]
        fixed_first = np.stack([fixed for fixed, _, _ in each], axis=1) + least
        seconds = fixed_first + np.stack([rate for _, rate, _ in each], axis=1)
        waiting = np.stack([waiting for _, _, waiting in each], axis=1)
        for number, device in enumerate(table.devices):
            if device != "cpu":
                starting[number] = starting_of(table, number, seconds[:, number] + waiting[:, number])
                slow = starting_seconds(table.totals, starting[number])
                fixed_first[:, number] += slow
                seconds[:, number] += slow
    else:
        sums = [sum_of(table, number) for number in range(2)]
        seconds = np.stack([first_seconds(one, table.totals) for one in sums], axis=1) + least
        fixed_first = waiting = np.zeros_like(seconds)
    # Without waiting times, which are predicted separately.
    taken = np.maximum(table.seconds - waiting, _WITHOUT_WAITING * table.seconds)
    left = np.log(taken) - np.log(seconds)
    seen = with_first(table.rows, seconds)
    weights = _kernels_alike(table)

    def grown(chosen: RowSettings, truth: Numbers) -> Forest:
        learned = RowModel.fit(chosen, seen, truth, seed=settings.seed, weights=weights)
        return learned.forest(seen[:: max(1, len(table) // 64)])

    with ThreadPoolExecutor(_THREADS) as pool:  # growing trees holds no lock of the interpreter's
        whole = [pool.submit(grown, settings.whole, left[:, number]) for number in range(2)]
        part = table.fixed / table.seconds - fixed_first / seconds
        fixed = [pool.submit(grown, settings.fixed, part[:, number]) for number in range(2)]
        contrast = pool.submit(grown, settings.contrast, left[:, 0] - left[:, 1])
        devices = tuple(
            DeviceModel(
                device, device_names[number], sums[number], whole[number].result(), fixed[number].result(),
                spreads[number], speeds[number], by_speeds, float(least[number]),
                starting[number],
            )
            for number, device in enumerate(table.devices)
        )  # fmt: skip
    made_by = {
        "data": table.digest, "rows": len(table), "kernels": len(set(table.digests)),
        "settings": asdict(settings), "version": __version__, **(about or {}),
    }  # fmt: skip
    return TimingModel(name, LAUNCH, devices, made_by, contrast.result(), sees_first=True)


def starting_of(table: CampaignTable, device: int, first: Numbers) -> tuple[float, float, float]:
    """What `starting_seconds` takes that leaves the smallest differences in the logarithm; each kernel counts
    alike.

    Args:
        first: (N,) the times of this device from speeds alone.
    """
    weights = _kernels_alike(table)

    def left(starting: tuple[float, float, float]) -> float:
        off = np.log(table.seconds[:, device] / (first + starting_seconds(table.totals, starting)))
        return float(np.average((off - np.average(off, weights=weights)) ** 2, weights=weights))

    return min(product(_STARTING_SECONDS, _STARTING_BYTES, _EACH_COPY), key=left)


def sum_of(table: CampaignTable, device: int) -> Numbers:
    """(T,): seconds for one of each total, none below 0, with the smallest relative errors; each kernel
    counts alike."""
    seconds = table.seconds[:, device]
    weight = np.sqrt(_kernels_alike(table))
    scale = np.maximum(np.median(table.totals / seconds[:, None], axis=0), 1e-30)
    scale = np.where(scale > 1e-29, scale, np.maximum((table.totals / seconds[:, None]).mean(axis=0), 1e-30))
    relative = table.totals / seconds[:, None] / scale * weight[:, None]
    found, _ = nnls(relative, weight, maxiter=2000)
    return np.asarray(found / scale)


def _kernels_alike(table: CampaignTable) -> Numbers:
    """(N,): what each launch counts, so that kernels do alike, at however many ranges they were measured."""
    _, place, count = np.unique(np.array(table.digests), return_inverse=True, return_counts=True)
    return np.asarray(1 / count[place])
