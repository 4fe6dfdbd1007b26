"""TimesLearner: the timing model of a machine, from a campaign's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from apportion.errors import InvalidSetting
from apportion.learn.learner import TableLearner
from apportion.learn.times.campaign_table import CampaignTable, load_table
from apportion.learn.times.fitting_times import DEFAULT, TimingSettings, fit_timing


@dataclass(frozen=True)
class TimesSettings:
    """A campaign's table, and the forests that correct what speeds say."""

    data: Path
    "The Parquet table of a campaign, with a row for each launch."
    name: str = "my-machine"
    "What to call the machine."
    device_names: tuple[str, str] = ("", "")
    "Of the first and the second device, as the machine that predicts calls them."
    speeds: tuple[dict[str, float], dict[str, float]] = field(default_factory=lambda: ({}, {}))
    "Of each device, what it was calibrated to do per second."
    hyperparameters: TimingSettings = DEFAULT
    folds: int = 5
    "Kernels are held out in so many groups to learn how far times are off."

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise InvalidSetting(f"folds must be at least 2, not {self.folds}")


class TimesLearner(TableLearner[TimesSettings, CampaignTable]):
    """Fits a timing model to all launches; its spreads are those of kernels that were held out."""

    question: ClassVar[str] = "times"
    settings_type: ClassVar[type[Any]] = TimesSettings

    def data(self, say: Callable[[str], None]) -> tuple[CampaignTable, str]:
        table = load_table(self.settings.data)
        return table, table.digest

    def fit(self, data: CampaignTable, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
        settings = self.settings
        kernels, kernel = np.unique(np.array(data.digests), return_inverse=True)
        folds = min(settings.folds, len(kernels))
        if folds < 2:
            raise InvalidSetting(f"{settings.data} holds one kernel: there is nothing to hold out")
        group = np.random.default_rng(settings.hyperparameters.seed).permutation(len(kernels)) % folds
        errors = np.zeros((len(data), 2))
        constant = np.zeros((len(data), 2))
        for fold in range(folds):
            test = group[kernel] == fold
            model = self._fitted(data.part(~test), (0.3, 0.3))
            fixed, rate, _ = model.times(data.rows[test], data.totals[test])
            errors[test] = np.log((fixed + rate)[:, :2] / data.seconds[test])
            constant[test] = np.log(np.median(data.seconds[~test], axis=0) / data.seconds[test])
            seen = np.abs(errors[group[kernel] <= fold])
            say(f"kernels {fold + 1} of {folds} held out, factor {float(np.exp(np.median(seen))):.3f}")
        spread = np.sqrt((errors**2).mean(axis=0)).tolist()
        self._fitted(data, (spread[0], spread[1])).save(folder)
        factor, trivial = (np.exp(np.median(np.abs(off), axis=0)).tolist() for off in (errors, constant))
        return {
            "test": {
                "held_out": f"{folds} groups of kernels",
                "devices": list(data.devices),
                "median_factor": [round(one, 3) for one in factor],
                "always_the_median_time": [round(one, 3) for one in trivial],
                "launches": len(data),
                "kernels": len(kernels),
            }
        }

    def _fitted(self, table: CampaignTable, spreads: tuple[float, float]) -> Any:
        settings = self.settings
        return fit_timing(
            table, settings.name, settings=settings.hyperparameters, spreads=spreads,
            device_names=settings.device_names, speeds=settings.speeds,
            about={"experiment": "apportion train", "about": settings.name},
        )  # fmt: skip
