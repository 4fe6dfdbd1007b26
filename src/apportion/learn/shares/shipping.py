"""The models that the package ships: fitted to all rows, calibrated on applications that were held out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion import __version__
from apportion.data.folds import Origins, folds_of
from apportion.data.scaling import Standard
from apportion.learn.shares.campaign_rows import read_campaign
from apportion.learn.shares.kernel_model import FLOOR, ConformalScores, Familiarity, KernelModel
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.trees import PooledSettings, grown
from apportion.program.source import Source

SETTINGS = PooledSettings()
MOST_FOLDS = 100
"With more applications than this, they are held out in this many groups, not one by one."
LEVELS = (0.5, 0.8, 0.9)
"Confidences at which coverage is checked."
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class IntervalCoverage:
    """How often intervals held the truth on held-out applications.

    Neither the forests that answered nor the calibration had rows of the application; the forests behind the
    other applications' scores had, so the check is a little kinder than a new application would be.
    """

    confidence: float
    of_rows: float
    of_applications: float
    "The mean over applications of the part of each one's rows."
    width: float
    "The mean, in percent of the work, before intervals are cut at 0 and 100."
    seen_width: float
    "The same after that, as users see them."


def ship(
    table: KernelTable,
    *,
    settings: PooledSettings = SETTINGS,
    seed: int = 1,
    vectorized: bool = True,
    report: Callable[[str], None],
) -> tuple[KernelModel, tuple[IntervalCoverage, ...]]:
    """The model of a pair of devices, and how its intervals did on held-out applications, at each level.

    `vectorized`: whether the compiler of the table's IR made vectors of single values.
    """
    rows, truth, aims = table.features("code"), table.shares, table.every_share
    origins = grouped(table.origins)
    application = np.array(table.origins.application)
    said, error, scale = np.zeros(len(truth)), np.zeros(len(truth)), np.zeros(len(truth))
    faster = np.zeros(len(truth), bool)
    folds = folds_of("application", origins, seed=seed)
    for number, fold in enumerate(folds, 1):
        pool = grown(settings, table.columns, rows[fold.learnable], aims[fold.learnable], seed=seed)
        votes = pool.votes(rows[fold.test])
        said[fold.test] = votes.mean()
        error[fold.test] = np.abs(votes.mean() - truth[fold.test])
        faster[fold.test] = (votes.mean() < 50) == (table.to_gpu[fold.test] > 0)
        scale[fold.test] = votes.spread() + FLOOR
        if number % 20 == 0:
            report(f"{table.pair}: {number} of {len(folds)} applications held out")
    score = error / scale
    held = np.array(origins.application)
    coverage = tuple(coverage_of(score, scale, said, application, held, level) for level in LEVELS)
    about = {
        "experiment": "python -m reproduction predictor",
        "about": table.pair,
        "data": table.digest,
        "rows": len(truth),
        "seed": seed,
        "settings": asdict(settings),
        "vectorized": vectorized,
        "held_out": "leave one application out, purged of equal sources and graphs",
        "median_share": float(np.median(truth)),
        "below_2_percent": round(float(np.mean(truth < 2)), 4),
        "held_out_mae": round(float(error.mean()), 3),
        "held_out_device": round(float(faster.mean()), 4),
        "coverage": [asdict(level) for level in coverage],
        "version": __version__,
    }
    fitted = grown(settings, table.columns, rows, aims, seed=seed)
    model = KernelModel(table.pair, fitted, calibration_of(score, application), _familiarity(table), about)
    return model, coverage


def ship_pair(
    pair: str,
    measurements: Path,
    sources: Iterable[Path | Source],
    *,
    cpu: str,
    gpu: str,
    out: Path,
    settings: PooledSettings = SETTINGS,
    seed: int = 1,
    report: Callable[[str], None],
) -> tuple[Path, KernelModel, tuple[IntervalCoverage, ...]]:
    """Fit a pair of devices to a campaign's measurements, and write the model that `--pair` names.

    Args:
        pair: what to call the devices: xeon-h200.
        measurements: the Parquet file of `apportion measure`, or its folder.
        sources: the kernels that were measured.
        cpu: the device whose share is learned, by id or by a part of its name.
        gpu: the other.
        out: the folder of the models.
        settings: of the forests.
        seed: of the forests.
        report: is told how far it is, and what could not be used.
    """
    table = read_campaign(measurements, sources, pair, cpu=cpu, gpu=gpu, report=report)
    model, coverage = ship(table, settings=settings, seed=seed, report=report)
    return model.save(out / pair), model, coverage


def grouped(origins: Origins) -> Origins:
    """The same, with applications grouped at random where there are too many to hold out one by one."""
    if len(set(origins.application)) <= MOST_FOLDS:
        return origins
    drawn = [int(hashlib.sha256(name.encode()).hexdigest(), 16) for name in origins.application]
    return replace(origins, application=tuple(f"group {number % MOST_FOLDS}" for number in drawn))


def calibration_of(score: Numbers, application: NDArray[np.str_]) -> ConformalScores:
    names, counts = np.unique(application, return_counts=True)
    rows_of = dict(zip(names.tolist(), counts.tolist(), strict=True))
    weight = np.array([1 / rows_of[name] for name in application.tolist()])
    order = np.argsort(score, kind="stable")
    return ConformalScores(score[order], weight[order])


def coverage_of(
    score: Numbers,
    scale: Numbers,
    said: Numbers,
    application: NDArray[np.str_],
    group: NDArray[np.str_],
    confidence: float,
) -> IntervalCoverage:
    """How often intervals of this confidence hold, each group calibrated by the others.

    Args:
        score: (N,) errors of held-out rows over their scales.
        scale: (N,)
        said: (N,) the shares that were predicted, in percent.
        application: (N,) of each row; each counts as one.
        group: (N,) what is held out together.
    """
    held, width, seen = np.zeros(len(score), bool), np.zeros(len(score)), np.zeros(len(score))
    for name in np.unique(group):
        test = group == name
        half = calibration_of(score[~test], application[~test]).quantile(confidence) * scale[test]
        held[test] = score[test] * scale[test] <= half
        width[test] = 2 * half
        seen[test] = np.clip(said[test] + half, 0, 100) - np.clip(said[test] - half, 0, 100)
    each = [held[application == name].mean() for name in np.unique(application)]
    return IntervalCoverage(
        confidence,
        round(float(held.mean()), 4),
        round(float(np.mean(each)), 4),
        round(float(width.mean()), 2),
        round(float(seen.mean()), 2),
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
