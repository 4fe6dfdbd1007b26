"""Fitting timing models to campaigns: a sum with no negative part, and forests on what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[import-untyped]

from apportion import __version__
from apportion.model.timing import DeviceModel, TimingModel, first_seconds
from apportion.model.trees import RowModel, RowSettings
from apportion.program.launch import LAUNCH
from apportion.train.campaign import CampaignTable

Numbers = NDArray[np.float64]
WHOLE = RowSettings("extra-trees", trees=80, max_features=0.4, leaf=2)
FIXED = RowSettings("extra-trees", trees=40, max_features=0.4, leaf=6)


@dataclass(frozen=True)
class TimingSettings:
    """How a timing model is fitted."""

    whole: RowSettings = WHOLE
    fixed: RowSettings = FIXED
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
        spreads: each device's standard deviation of log seconds on kernels that were held out.
    """
    devices = []
    for number, device in enumerate(table.devices):
        coefficients = sum_of(table, number)
        seconds = table.seconds[:, number]
        left = np.log(seconds / first_seconds(coefficients, table.totals))
        whole = RowModel.fit(settings.whole, table.rows, left, seed=settings.seed)
        part = table.fixed[:, number] / seconds
        fixed = RowModel.fit(settings.fixed, table.rows, part, seed=settings.seed)
        check = table.rows[:: max(1, len(table) // 64)]
        devices.append(
            DeviceModel(
                device, device_names[number], coefficients, whole.forest(check), fixed.forest(check),
                spreads[number], speeds[number],
            )
        )  # fmt: skip
    made_by = {
        "data": table.digest, "rows": len(table), "kernels": len(set(table.digests)),
        "settings": asdict(settings), "version": __version__, **(about or {}),
    }  # fmt: skip
    return TimingModel(name, LAUNCH, tuple(devices), made_by)


def sum_of(table: CampaignTable, device: int) -> Numbers:
    """(T,): seconds for one of each total, none below 0, with the smallest relative errors; each kernel
    counts alike."""
    seconds = table.seconds[:, device]
    _, place, count = np.unique(np.array(table.digests), return_inverse=True, return_counts=True)
    weight = 1 / np.sqrt(count[place])
    scale = np.maximum(np.median(table.totals / seconds[:, None], axis=0), 1e-30)
    scale = np.where(scale > 1e-29, scale, np.maximum((table.totals / seconds[:, None]).mean(axis=0), 1e-30))
    relative = table.totals / seconds[:, None] / scale * weight[:, None]
    found, _ = nnls(relative, weight, maxiter=2000)
    return np.asarray(found / scale)
