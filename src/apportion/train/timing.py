"""Fitting timing models to campaigns: a sum with no negative part, and forests on what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from apportion import __version__
from apportion.model.forest import Forest
from apportion.model.timing import DeviceModel, TimingModel, first_seconds, times_by_speeds, with_first
from apportion.model.trees import RowModel, RowSettings
from apportion.program.launch import LAUNCH
from apportion.train.campaign import CampaignTable

Numbers = NDArray[np.float64]
WHOLE = RowSettings("extra-trees", trees=40, max_features=0.4, leaf=6)
FIXED = RowSettings("extra-trees", trees=20, max_features=0.4, leaf=10)
_THREADS = 5
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
        speeds: each device's `device.base.Calibration.speeds`, from which times are then foretold at first.
        spreads: each device's standard deviation of log seconds on kernels that were held out.
    """
    least = np.quantile(table.seconds, _LEAST, axis=0)
    by_speeds = all(speeds)
    if by_speeds:
        sums = [np.zeros(0), np.zeros(0)]
        first = [
            sum(times_by_speeds(table.rows, table.totals, each, copies=device != "cpu"))
            for each, device in zip(speeds, table.devices, strict=True)
        ]
    else:
        sums = [sum_of(table, number) for number in range(2)]
        first = [first_seconds(each, table.totals) for each in sums]
    seconds = np.stack(first, axis=1) + least
    left = np.log(table.seconds) - np.log(seconds)
    seen = with_first(table.rows, seconds)
    weights = _kernels_alike(table)

    def grown(chosen: RowSettings, truth: Numbers) -> Forest:
        learned = RowModel.fit(chosen, seen, truth, seed=settings.seed, weights=weights)
        return learned.forest(seen[:: max(1, len(table) // 64)])

    with ThreadPoolExecutor(_THREADS) as pool:  # growing trees holds no lock of the interpreter's
        whole = [pool.submit(grown, settings.whole, left[:, number]) for number in range(2)]
        part = table.fixed / table.seconds
        fixed = [pool.submit(grown, settings.fixed, part[:, number]) for number in range(2)]
        contrast = pool.submit(grown, settings.contrast, left[:, 0] - left[:, 1])
        devices = tuple(
            DeviceModel(
                device, device_names[number], sums[number], whole[number].result(), fixed[number].result(),
                spreads[number], speeds[number], by_speeds, float(least[number]),
            )
            for number, device in enumerate(table.devices)
        )  # fmt: skip
    made_by = {
        "data": table.digest, "rows": len(table), "kernels": len(set(table.digests)),
        "settings": asdict(settings), "version": __version__, **(about or {}),
    }  # fmt: skip
    return TimingModel(name, LAUNCH, devices, made_by, contrast.result(), sees_first=True)


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
