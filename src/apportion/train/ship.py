"""The models that the package ships: fitted to all rows, calibrated on applications that were held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from apportion import __version__
from apportion.data.folds import folds_of
from apportion.data.scaling import Standard
from apportion.model.kernelmodel import FLOOR, Calibration, Familiarity, KernelModel
from apportion.model.trees import RowModel, RowSettings
from apportion.program.features import FEATURES, INPUTS
from apportion.train.kerneltable import KernelTable

SETTINGS = RowSettings("extra-trees", trees=60, max_features=0.3)
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Coverage:
    """How often intervals held the truth on held-out applications.

    Neither the forest that answered nor the calibration had rows of the application; the forests behind the
    other applications' scores had, so the check is a little kinder than a new application would be.
    """

    confidence: float
    of_rows: float
    of_applications: float
    "The mean over applications of the part of each one's rows."
    width: float
    "The mean, in percent of the work, before intervals are cut at 0 and 100."


def ship(
    table: KernelTable,
    *,
    settings: RowSettings = SETTINGS,
    seed: int = 1,
    confidence: float = 0.9,
    report: Callable[[str], None],
) -> tuple[KernelModel, Coverage]:
    """The model of a pair of devices, and how its intervals did under leave-one-application-out."""
    rows, truth = table.features("code"), table.shares
    application = np.array(table.origins.application)
    error, scale = np.zeros(len(truth)), np.zeros(len(truth))
    folds = folds_of("application", table.origins, seed=seed)
    for number, fold in enumerate(folds, 1):
        forest = RowModel.fit(settings, rows[fold.learnable], truth[fold.learnable], seed=seed).forest(
            rows[:8]
        )
        trees = forest.each(rows[fold.test])
        error[fold.test] = np.abs(trees.mean(axis=1) - truth[fold.test])
        scale[fold.test] = trees.std(axis=1) + FLOOR
        if number % 20 == 0:
            report(f"{table.pair}: {number} of {len(folds)} applications held out")
    score = error / scale
    coverage = _coverage(score, scale, application, confidence)
    about = {
        "experiment": "apportion reproduce predictor",
        "data": table.digest,
        "rows": len(truth),
        "seed": seed,
        "settings": asdict(settings),
        "held_out": "leave one application out, purged of equal sources and graphs",
        "held_out_mae": round(float(error.mean()), 3),
        "coverage": asdict(coverage),
        "version": __version__,
    }
    fitted = RowModel.fit(settings, rows, truth, seed=seed).forest(rows)
    names = (*FEATURES, *INPUTS)
    model = KernelModel(
        table.pair, names, fitted, _calibration(score, application), _familiarity(table), about
    )
    return model, coverage


def _calibration(score: Numbers, application: NDArray[np.str_]) -> Calibration:
    names, counts = np.unique(application, return_counts=True)
    rows_of = dict(zip(names.tolist(), counts.tolist(), strict=True))
    weight = np.array([1 / rows_of[name] for name in application.tolist()])
    order = np.argsort(score, kind="stable")
    return Calibration(score[order], weight[order])


def _coverage(score: Numbers, scale: Numbers, application: NDArray[np.str_], confidence: float) -> Coverage:
    held = np.zeros(len(score), bool)
    width = np.zeros(len(score))
    for name in np.unique(application):
        test = application == name
        quantile = _calibration(score[~test], application[~test]).quantile(confidence)
        held[test] = score[test] <= quantile
        width[test] = 2 * quantile * scale[test]
    each = [held[application == name].mean() for name in np.unique(application)]
    return Coverage(
        confidence,
        round(float(held.mean()), 4),
        round(float(np.mean(each)), 4),
        round(float(width.mean()), 2),
    )


def _familiarity(table: KernelTable) -> Familiarity:
    scaling = Standard.fit(table.code)
    scaled = scaling.apply(table.code)
    application = np.array(table.origins.application)
    kernels, first = np.unique(scaled.astype(np.float32), axis=0, return_index=True)
    distance = []
    for row in first.tolist():
        others = scaled[application != application[row]]
        distance.append(float(np.sqrt(((others - scaled[row]) ** 2).mean(axis=1)).min()))
    return Familiarity(scaling, kernels, np.sort(np.array(distance)))
