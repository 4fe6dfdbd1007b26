"""Cross-validation of kernel predictors: every row of a table of models, over every fold, one line each.

What is finished is kept in a file of JSON Lines, so that an interrupted run goes on fold by fold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.folds import PROTOCOLS, Fold, folds_of
from apportion.data.records import CLASSES
from apportion.errors import InvalidSetting, UnknownName
from apportion.jobs.journal import Results
from apportion.learn import row_models
from apportion.learn.metrics import Interval, over_seeds
from apportion.learn.shares.device_mapping import agreement, costs
from apportion.learn.shares.kernel_table import FEATURE_SETS, KernelTable
from apportion.learn.shares.load_balance import (
    classes_of,
    mean_absolute_error,
    root_mean_squared_error,
    sharing_costs,
)

Target = Literal["device", "share", "shares", "class", "log-odds"]
"""What is learned: whether the GPU is faster (1 or 0); the CPU's share in percent; that and the shares beside
other GPUs at once; the nearest of the five classes, as an ordered number; the logarithm of share / rest."""
CHOSEN = "chosen by validation"
"The row that is the candidate which did best on validation rows."
UNDRAWN = ("application", "suite")
"Protocols whose folds are the same in every repetition: only what is learned from them differs."
_BOOTSTRAPS = 300
Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Entry:
    """One row of the table: a predictor."""

    name: str
    learner: str
    "constant, median, look-up, or a kind of `model.trees`."
    features: str = "code"
    target: Target = "share"
    value: float = 0.0
    "What `constant` says, in the units of the target."
    settings: dict[str, Any] = field(default_factory=dict)
    "Of the learner."
    asked: dict[str, Any] = field(default_factory=dict)
    "How the fitted learner is asked, where there are several ways; rows that differ in no more are one fit."
    candidate: bool = False
    "It may be chosen by validation."
    once: bool = False
    "Only the first repetition is run: a predictor that takes long and is there to be beaten."

    def __post_init__(self) -> None:
        if self.features not in FEATURE_SETS:
            raise UnknownName("set of features", self.features, FEATURE_SETS)

    def fit_key(self) -> str:
        """The same for rows that learn the same."""
        return json.dumps([self.learner, self.features, self.target, self.settings], sort_keys=True)

    def answer_key(self) -> str:
        """The same for rows that answer the same."""
        return json.dumps([self.fit_key(), self.value, self.asked], sort_keys=True)


@dataclass(frozen=True)
class Comparison:
    """What `python -m reproduction` runs: predictors, pairs of devices, protocols and repetitions."""

    task: Literal["device-mapping", "load-balance"]
    pairs: tuple[str, ...]
    repetitions: dict[str, int]
    "Protocol → how often, each time with other folds (where they are drawn) and other trees."
    rows: tuple[Entry, ...]
    seed: int = 1
    selection_seed: int = 101
    "Of the folds on whose validation rows a candidate is chosen; their test rows are not looked at."

    def __post_init__(self) -> None:
        for protocol, count in self.repetitions.items():
            if protocol not in PROTOCOLS:
                raise UnknownName("protocol", protocol, PROTOCOLS)
            if count < 1:
                raise InvalidSetting(f"repetitions.{protocol} must be at least 1, not {count}")
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names) or CHOSEN in names:
            raise InvalidSetting("Each row needs a name of its own")

    @property
    def candidates(self) -> tuple[Entry, ...]:
        """Rows that may be chosen."""
        return tuple(row for row in self.rows if row.candidate)


@dataclass(frozen=True)
class Score:
    """A predictor's measures under one protocol."""

    pair: str
    protocol: str
    row: str
    repetitions: int
    tested: int
    measures: dict[str, Interval]
    validation: dict[str, float] = field(default_factory=dict)
    "Of a candidate: the measures on validation rows."
    chosen: dict[str, str] = field(default_factory=dict)
    "Of the row `CHOSEN`: measure → the candidate that it is."


def run(
    comparison: Comparison, tables: dict[str, KernelTable], results: Path, *, report: Callable[[str], None]
) -> list[Score]:
    """Every measure of every row; what `results` has already is not run again."""
    kept = _Kept(results)
    scores = []
    for pair in comparison.pairs:
        for protocol in comparison.repetitions:
            scores += _scores(comparison, tables[pair], protocol, kept, report)
    return scores


def predict(row: Entry, table: KernelTable, fold: Fold, seed: int) -> Numbers:
    """(validation + test,): of validation rows what a predictor says that learned from the training rows; of
    test rows, one that learned from training and validation rows, since there is nothing left to choose."""
    return np.concatenate(
        [
            _answers(row, table, fold.train, fold.validation, seed, {}),
            _answers(row, table, fold.learnable, fold.test, seed, {}),
        ]
    )


def _answers(
    row: Entry, table: KernelTable, train: Rows, asked: Rows, seed: int, fits: dict[str, Any]
) -> Numbers:
    """(asked,): what a predictor says that learned from `train`; `fits` keeps what was learned."""
    truth = _truth(table, row.target)
    if row.learner == "constant":
        return np.full(len(asked), row.value)
    if row.learner == "median":
        return np.full(len(asked), float(np.median(truth[train])))
    if row.learner == "look-up":
        return _looked_up(table, truth, train, asked)
    features = table.features(row.features)
    if row.fit_key() not in fits:
        fit = row_models.load(row.learner)
        fits[row.fit_key()] = fit(row.settings, features[train], truth[train], seed=seed)
    answers: Numbers = fits[row.fit_key()].predict(features[asked], **row.asked)
    return answers if answers.ndim == 1 else answers[:, 0]


def _truth(table: KernelTable, target: Target) -> Numbers:
    """(N,), or (N, T) of several shares."""
    if target == "device":
        return table.to_gpu
    if target == "class":
        return np.array(CLASSES, np.float64)[classes_of(table.shares)]
    if target == "log-odds":
        # Shares are published as whole percents: none is nearer to 0 or 100 than half of one.
        return np.asarray(logit(np.clip(table.shares / 100, 0.005, 0.995)), np.float64)
    return table.shares if target == "share" else table.every_share


def logit(part: Numbers) -> Numbers:
    """The logarithm of a part over the rest."""
    odds: Numbers = np.log(part / (1 - part))
    return odds


def _looked_up(table: KernelTable, truth: Numbers, train: Rows, asked: Rows) -> Numbers:
    """The label of the training row of the same source whose inputs are nearest; without one, the median."""
    middle = float(np.median(truth[train]))
    sources, sizes = table.origins.source, table.inputs[:, :2]
    known: dict[object, list[int]] = {}
    for row in train.tolist():
        known.setdefault(sources[row], []).append(row)
    answers = np.full(len(asked), middle)
    for place, row in enumerate(asked.tolist()):
        if rows := known.get(sources[row]):
            distance = np.abs(sizes[rows] - sizes[row]).sum(axis=1)
            answers[place] = truth[rows][distance == distance.min()].mean()
    return answers


class _Kept:
    """Answers in a journal: one entry for a row of the table, a fold and a seed."""

    def __init__(self, path: Path) -> None:
        self._results = Results(path, digits=24)

    def of(
        self,
        rows: Sequence[Entry],
        table: KernelTable,
        protocol: str,
        fold: Fold,
        seed: int,
        *,
        testing: bool,
    ) -> dict[str, Numbers]:
        """Row → its answers for the test rows of a fold, or for its validation rows."""
        train, asked = (fold.learnable, fold.test) if testing else (fold.train, fold.validation)
        fits: dict[str, Any] = {}
        found = {}
        for row in rows:
            stamp = [table.digest, protocol, fold.name, seed, testing, row.answer_key()]

            def make(row: Entry = row) -> dict[str, Any]:
                answers = _answers(row, table, train, asked, seed, fits).round(4).tolist()
                about = {"pair": table.pair, "protocol": protocol, "fold": fold.name, "seed": seed}
                return {**about, "row": row.name, "answers": answers}

            entry = self._results.get(stamp, make)
            found[row.name] = _as_share(np.array(entry["answers"]), row.target)
        return found


def _scores(
    comparison: Comparison, table: KernelTable, protocol: str, kept: _Kept, report: Callable[[str], None]
) -> list[Score]:
    count = comparison.repetitions[protocol]
    said: dict[str, list[tuple[Numbers, Rows]]] = {row.name: [] for row in comparison.rows}
    sizes: list[int] = []
    for repetition in range(count):
        seed = comparison.seed + repetition
        folds = folds_of(protocol, table.origins, seed=seed)
        rows = [row for row in comparison.rows if repetition == 0 or not row.once]
        each = [kept.of(rows, table, protocol, fold, seed, testing=True) for fold in folds]
        tested = np.concatenate([fold.test for fold in folds])
        for row in rows:
            said[row.name].append((np.concatenate([answers[row.name] for answers in each]), tested))
        sizes = [len(fold.test) for fold in folds] if repetition == 0 else sizes
        report(f"{comparison.task}, {table.pair}, {protocol}: repetition {repetition + 1} of {count}")
    measured = {
        name: _intervals(comparison.task, table, repetitions, sizes, drawn=protocol not in UNDRAWN)
        for name, repetitions in said.items()
    }
    validated = _validated(comparison, table, protocol, kept)
    scores = [
        Score(table.pair, protocol, name, len(said[name]), sum(sizes), measures, validated.get(name, {}))
        for name, measures in measured.items()
    ]
    if validated:
        chosen = {measure: _best(comparison.task, measure, validated) for measure in scores[0].measures}
        measures = {measure: measured[name][measure] for measure, name in chosen.items()}
        scores.append(Score(table.pair, protocol, CHOSEN, count, sum(sizes), measures, chosen=chosen))
    return scores


def _validated(
    comparison: Comparison, table: KernelTable, protocol: str, kept: _Kept
) -> dict[str, dict[str, float]]:
    """Candidate → its measures over the validation rows of all folds."""
    if not comparison.candidates:
        return {}
    folds = folds_of(protocol, table.origins, seed=comparison.selection_seed)
    said = [
        kept.of(comparison.candidates, table, protocol, fold, comparison.selection_seed, testing=False)
        for fold in folds
    ]
    rows = np.concatenate([fold.validation for fold in folds])
    return {
        row.name: measures_of(
            comparison.task, table, rows, np.concatenate([answers[row.name] for answers in said])
        )
        for row in comparison.candidates
    }


def _best(task: str, measure: str, validated: dict[str, dict[str, float]]) -> str:
    """The candidate that a measure is reported of: the most accurate, or with the least error; of classes,
    the one that is right most often."""
    if task == "device-mapping":
        return max(validated, key=lambda name: validated[name]["accuracy"])
    if measure == "classes":
        return max(validated, key=lambda name: validated[name]["classes"])
    return min(validated, key=lambda name: validated[name]["mae"])


def _as_share(values: Numbers, target: str) -> Numbers:
    """Predictions as shares in percent: of the chance that the GPU is faster, the CPU gets the rest."""
    if target == "log-odds":
        return 100 / (1 + np.exp(-values))
    return np.clip(100 * (1 - values) if target == "device" else values, 0, 100)


def measures_of(task: str, table: KernelTable, rows: NDArray[np.int64], shares: Numbers) -> dict[str, float]:
    """What shares (N,) predicted for some rows are worth; a share below 50 sends a kernel to the GPU."""
    cpu_time, gpu_time = (time[rows] for time in table.times)
    if task == "device-mapping":
        return {
            "accuracy": agreement(table.to_gpu[rows], shares < 50),
            **costs(shares < 50, cpu_time, gpu_time),
        }
    truth = table.shares[rows]
    return {
        "mae": mean_absolute_error(truth, shares),
        "rmse": root_mean_squared_error(truth, shares),
        "classes": agreement(classes_of(truth), classes_of(shares)),
        **sharing_costs(shares, cpu_time, gpu_time),
    }


def _intervals(
    task: str,
    table: KernelTable,
    repetitions: Sequence[tuple[Numbers, Rows]],
    sizes: Sequence[int],
    *,
    drawn: bool,
) -> dict[str, Interval]:
    """Each measure over all rows, as its mean over repetitions.

    Where folds are drawn anew, the interval is that of the mean; where they are not, or there is but one
    repetition, the middle 95 % of what resampled folds of any repetition give.
    """
    found = [measures_of(task, table, rows, shares) for shares, rows in repetitions]
    means = {name: over_seeds([one[name] for one in found]) for name in found[0]}
    if drawn and len(found) > 1:
        return means
    ends = np.cumsum(sizes)
    folds = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    random = np.random.default_rng(0)
    resampled = []
    for _ in range(_BOOTSTRAPS):
        shares, rows = repetitions[int(random.integers(len(repetitions)))]
        chosen = np.concatenate([folds[i] for i in random.integers(0, len(folds), len(folds))])
        resampled.append(measures_of(task, table, rows[chosen], shares[chosen]))
    return {
        name: Interval.resampled(mean.value, [one[name] for one in resampled]) for name, mean in means.items()
    }
