"""ShareForestLearner: a forest that tells a kernel's share, calibrated on applications that were held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion import __version__
from apportion.data.folds import folds_of
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn.forest import Forest
from apportion.learn.learner import TableLearner
from apportion.learn.metrics import over_groups
from apportion.learn.shares.kernel_model import FLOOR, Familiarity
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.share_data import DEFAULT_DATA, ShareData
from apportion.learn.shares.share_forest import CODE_AT, Corners, ShareForest, corners, votes_of
from apportion.learn.shares.shipping import LEVELS, calibration_of, coverage_of, grouped
from apportion.learn.shares.trees import RowModel, RowSettings
from apportion.program.kernel.features import INPUTS

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ShareForestSettings:
    """How the forest is grown; its defaults are those of the shipped models."""

    trees: int = 80
    max_features: float = 0.3
    "The part of the features that a split looks at."
    leaf: int = 2
    "The fewest rows in a leaf; each launch stands in two, at the grid's points below and above its size."
    others: float = 1.0
    "How much the share beside another GPU, where it is known, counts in choosing a split."
    device: float = 0.8
    "How much it counts which device is faster, which is learned beside the share."
    evened: float = 0.5
    "A launch counts as 1 over the launches of its application, to this power: 0 for all launches alike."

    def __post_init__(self) -> None:
        if self.trees < 2 or self.leaf < 1:
            raise InvalidSetting("trees must be at least 2, and leaf at least 1")
        if not 0 < self.max_features <= 1 or not 0 <= self.evened <= 1:
            raise InvalidSetting("max_features must lie above 0 and evened from 0, both not above 1")


DEFAULT_FOREST = ShareForestSettings()


@dataclass(frozen=True)
class ShareForestExperiment:
    """A forest and the launches that it learns from."""

    data: ShareData = DEFAULT_DATA
    name: str = ""
    "What to call the model; the pair of devices where it is empty."
    hyperparameters: ShareForestSettings = DEFAULT_FOREST
    seed: int = 1


class ShareForestLearner(TableLearner[ShareForestExperiment, KernelTable]):
    """Fits the forest to all rows; every application in turn is held out to calibrate and to score."""

    question: ClassVar[str] = "shares"
    settings_type: ClassVar[type[Any]] = ShareForestExperiment

    def data(self, say: Callable[[str], None]) -> tuple[KernelTable, str]:
        table = self.settings.data.read(say)
        return table, table.digest

    def fit(self, data: KernelTable, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
        settings, table = self.settings, data
        around = _around(table)
        truth, origins = table.shares, grouped(table.origins)
        application = np.array(table.origins.application)
        said, scale, done = np.zeros(len(truth)), np.zeros(len(truth)), np.zeros(len(truth), np.bool_)
        folds = folds_of("application", origins, seed=settings.seed)
        for number, fold in enumerate(folds, 1):
            forest = grown_forest(table, around, fold.learnable, settings.hyperparameters, settings.seed)
            votes = votes_of(forest.each, _some(around, fold.test))
            said[fold.test], scale[fold.test] = votes.mean(), votes.spread() + FLOOR
            done[fold.test] = True
            if number % max(1, len(folds) // 25) == 0 or number == len(folds):
                error = float(np.abs(said - truth)[done].mean())
                say(f"{number} of {len(folds)} applications held out, error {error:.2f} points")
        test = _scores(table, said, scale, np.array(origins.application))
        name = settings.name or settings.data.pair
        about = {
            "experiment": "python -m reproduction predictor",
            "about": settings.data.pair,
            "score": f"MAE {test['mae']['value']:.1f}, application held out "
            f"(always 50 %: {test['always_50_mae']:.1f})",
            "data": table.digest,
            "settings": {**asdict(settings.hyperparameters), "seed": settings.seed},
            "vectorized": settings.data.vectorized,
            "median_share": float(np.median(truth)),
            "below_2_percent": round(float(np.mean(truth < 2)), 4),
            "held_out": test,
            "coverage": test["coverage"],
            "version": __version__,
        }
        score = np.abs(said - truth) / scale
        ShareForest(
            name,
            grown_forest(table, around, np.arange(len(truth)), settings.hyperparameters, settings.seed),
            calibration_of(score, application),
            familiarity_with(table),
            table.inputs.shape[1] > len(INPUTS),
            about,
        ).save(folder)
        return {"test": test}


def grown_forest(
    table: KernelTable, around: Corners, rows: NDArray[np.int64], settings: ShareForestSettings, seed: int
) -> Forest:
    """A forest that learns the CPU's share from some rows of a table, each at its points of the grid."""
    shares = table.every_share
    faster = np.where(shares[:, :1] < 50, 100.0, 0.0)
    aims = np.hstack([shares[:, :1], settings.others * shares[:, 1:], settings.device * faster])
    application = np.array(table.origins.application)[rows]
    _, place, count = np.unique(application, return_inverse=True, return_counts=True)
    counted = 1.0 / count[place] ** settings.evened
    weight = around.weight[:, rows] * counted
    kept = weight > 1e-9
    seen = np.concatenate([corner[rows][use] for corner, use in zip(around.rows, kept, strict=True)])
    learner = RowSettings("extra-trees", settings.trees, settings.max_features, settings.leaf)
    return RowModel.fit(
        learner, seen, np.concatenate([aims[rows][use] for use in kept]), seed=seed, weights=weight[kept]
    ).forest(seen[:8])


def _around(table: KernelTable) -> Corners:
    sizes = np.array([[e.bytes_moved, e.work_group] for e in table.examples], np.float64)
    ranged = table.inputs.shape[1] > len(INPUTS)
    items = np.expm1(table.inputs[:, len(INPUTS)]) if ranged else None
    return corners(table.code, sizes[:, 0], sizes[:, 1], items)


def _some(around: Corners, rows: NDArray[np.int64]) -> Corners:
    return replace(around, rows=around.rows[:, rows], weight=around.weight[:, rows])


def _scores(table: KernelTable, said: Numbers, scale: Numbers, group: NDArray[np.str_]) -> dict[str, Any]:
    """What held-out answers are worth, with the middle 95 % of resampled applications."""
    truth, application = table.shares, np.array(table.origins.application)
    error, right = np.abs(said - truth), (said < 50) == (table.to_gpu > 0)
    score = error / scale
    coverage = [coverage_of(score, scale, said, application, group, level) for level in LEVELS]
    return {
        "held_out": "each application in turn, purged of equal sources and graphs",
        "mae": asdict(over_groups(error, application)),
        "always_50_mae": round(float(np.abs(truth - 50).mean()), 2),
        "mae_by_application": asdict(over_groups(error, application, alike=True)),
        "device_accuracy": asdict(over_groups(right.astype(np.float64), application)),
        "always_one_device": round(float(max(table.to_gpu.mean(), 1 - table.to_gpu.mean())), 4),
        "rows": len(truth),
        "applications": len(set(application.tolist())),
        "coverage": [asdict(level) for level in coverage],
    }


def familiarity_with(table: KernelTable) -> Familiarity:
    """How near kernels are to those of a table, by the features `CODE`."""
    code = table.code[:, CODE_AT]
    scaling = Standard.fit(code)
    scaled = scaling.apply(code)
    application = np.array(table.origins.application)
    kernels, first = np.unique(scaled.astype(np.float32), axis=0, return_index=True)
    distance = [
        float(np.sqrt(((scaled[application != application[row]] - scaled[row]) ** 2).mean(axis=1)).min())
        for row in first.tolist()
    ]
    names = tuple(f"{application[row]}: {table.examples[row].kernel}" for row in first.tolist())
    return Familiarity(scaling, kernels, np.sort(np.array(distance)), names)
