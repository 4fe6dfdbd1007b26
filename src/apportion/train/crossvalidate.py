"""Cross-validation of kernel predictors: every row of a table of models, over every fold, one line each.

What is finished is kept in a file of JSON Lines, so that an interrupted run goes on fold by fold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.folds import PROTOCOLS, Fold, folds_of
from apportion.errors import InvalidSetting, UnknownName
from apportion.model import row_models
from apportion.task.device_mapping import agreement, costs
from apportion.task.load_balance import classes_of, mean_absolute_error, root_mean_squared_error, slowdown
from apportion.task.metrics import Interval, over_seeds
from apportion.train.kerneltable import FEATURE_SETS, KernelTable

CHOSEN = "chosen by validation"
"The row that takes, fold by fold, the learner that did best on the validation rows."
_BOOTSTRAPS = 300
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Entry:
    """One row of the table: a predictor."""

    name: str
    learner: str
    "constant, median, look-up, or a kind of `model.trees`."
    features: str = "code"
    target: Literal["device", "share"] = "share"
    "What is learned: whether the GPU is faster (1 or 0), or the CPU's share in percent."
    value: float = 0.0
    "What `constant` says, in the units of the target."
    settings: dict[str, Any] = field(default_factory=dict)
    "Of the learner."
    candidate: bool = False
    "It may be chosen by validation."

    def __post_init__(self) -> None:
        if self.features not in FEATURE_SETS:
            raise UnknownName("set of features", self.features, FEATURE_SETS)


@dataclass(frozen=True)
class Comparison:
    """What `apportion reproduce` runs: predictors, pairs of devices, protocols and repetitions."""

    task: Literal["device-mapping", "load-balance"]
    pairs: tuple[str, ...]
    repetitions: dict[str, int]
    "Protocol → how often, each time with other folds (where they are drawn) and other trees."
    rows: tuple[Entry, ...]
    seed: int = 1

    def __post_init__(self) -> None:
        for protocol, count in self.repetitions.items():
            if protocol not in PROTOCOLS:
                raise UnknownName("protocol", protocol, PROTOCOLS)
            if count < 1:
                raise InvalidSetting(f"repetitions.{protocol} must be at least 1, not {count}")
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names) or CHOSEN in names:
            raise InvalidSetting("Each row needs a name of its own")


@dataclass(frozen=True)
class Score:
    """A predictor's measures under one protocol."""

    pair: str
    protocol: str
    row: str
    repetitions: int
    tested: int
    measures: dict[str, Interval]


def run(
    comparison: Comparison, tables: dict[str, KernelTable], results: Path, *, report: Callable[[str], None]
) -> list[Score]:
    """Every measure of every row; folds that `results` has already are not run again."""
    scores = []
    for pair in comparison.pairs:
        for protocol, count in comparison.repetitions.items():
            done = _predictions(comparison, tables[pair], protocol, count, results, report)
            scores += _scores(comparison, tables[pair], protocol, done)
    return scores


def predict(row: Entry, table: KernelTable, fold: Fold, seed: int) -> Numbers:
    """(validation + test,): what a predictor that learned from the training rows says of the others."""
    asked = np.concatenate([fold.validation, fold.test])
    truth = table.to_gpu if row.target == "device" else table.shares
    if row.learner == "constant":
        return np.full(len(asked), row.value)
    if row.learner == "median":
        middle = float(np.median(truth[fold.train]))
        return np.full(len(asked), middle)
    if row.learner == "look-up":
        return _looked_up(table, truth, fold.train, asked)
    features = table.features(row.features)
    fit = row_models.load(row.learner)
    answers: Numbers = fit(row.settings, features[fold.train], truth[fold.train], seed=seed).predict(
        features[asked]
    )
    return answers


def _looked_up(
    table: KernelTable, truth: Numbers, train: NDArray[np.int64], asked: NDArray[np.int64]
) -> Numbers:
    """The label of the training row of the same source whose inputs are nearest; without one, the median."""
    middle = float(np.median(truth[train]))
    sources = table.origins.source
    known: dict[object, list[int]] = {}
    for row in train.tolist():
        known.setdefault(sources[row], []).append(row)
    answers = np.full(len(asked), middle)
    for place, row in enumerate(asked.tolist()):
        if rows := known.get(sources[row]):
            distance = np.abs(table.inputs[rows] - table.inputs[row]).sum(axis=1)
            answers[place] = truth[rows][distance == distance.min()].mean()
    return answers


def _predictions(
    comparison: Comparison,
    table: KernelTable,
    protocol: str,
    count: int,
    results: Path,
    report: Callable[[str], None],
) -> dict[tuple[int, str], dict[str, list[float]]]:
    """(repetition, fold) → row → predictions for validation and test rows."""
    context = {"data": table.digest, "protocol": protocol, "rows": [asdict(row) for row in comparison.rows]}
    stamp = json.dumps(context, sort_keys=True)
    done: dict[tuple[int, str], dict[str, list[float]]] = {}
    for line in _lines(results):
        if line["pair"] == table.pair and line["context"] == _short(stamp):
            done[line["seed"], line["fold"]] = line["predictions"]
    results.parent.mkdir(parents=True, exist_ok=True)
    for repetition in range(count):
        seed = comparison.seed + repetition
        for fold in folds_of(protocol, table.origins, seed=seed):
            if (seed, fold.name) in done:
                continue
            found = {row.name: predict(row, table, fold, seed).round(5).tolist() for row in comparison.rows}
            done[seed, fold.name] = found
            line = {"pair": table.pair, "context": _short(stamp), "seed": seed, "fold": fold.name}
            with results.open("a") as file:
                file.write(json.dumps({**line, "predictions": found}) + "\n")
        report(f"{comparison.task}, {table.pair}, {protocol}: repetition {repetition + 1} of {count}")
    return done


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for text in path.read_text().splitlines():
        try:
            yield json.loads(text)
        except ValueError:
            continue  # the line during which an earlier run was stopped


def _short(stamp: str) -> str:
    return hashlib.sha256(stamp.encode()).hexdigest()[:16]


def _scores(
    comparison: Comparison,
    table: KernelTable,
    protocol: str,
    done: dict[tuple[int, str], dict[str, list[float]]],
) -> list[Score]:
    count = comparison.repetitions[protocol]
    candidates = [row for row in comparison.rows if row.candidate]
    names = [row.name for row in comparison.rows] + ([CHOSEN] if candidates else [])
    targets = {row.name: row.target for row in comparison.rows}
    shares: dict[str, list[tuple[Numbers, NDArray[np.int64]]]] = {name: [] for name in names}
    sizes: list[int] = []
    for repetition in range(count):
        seed = comparison.seed + repetition
        pooled: dict[str, list[Numbers]] = {name: [] for name in names}
        rows: list[NDArray[np.int64]] = []
        sizes = []
        for fold in folds_of(protocol, table.origins, seed=seed):
            held = len(fold.validation)
            said = {
                name: _as_share(np.array(values), targets[name])
                for name, values in done[seed, fold.name].items()
            }
            if candidates:
                best = max(
                    candidates,
                    key=lambda row: _better(comparison.task, table, fold.validation, said[row.name][:held]),
                )
                said[CHOSEN] = said[best.name]
            for name in names:
                pooled[name].append(said[name][held:])
            rows.append(fold.test)
            sizes.append(len(fold.test))
        everything = np.concatenate(rows)
        for name in names:
            shares[name].append((np.concatenate(pooled[name]), everything))
    return [
        Score(
            table.pair, protocol, name, count, len(shares[name][0][1]),
            _intervals(comparison.task, table, shares[name], sizes),
        )
        for name in names
    ]  # fmt: skip


def _as_share(values: Numbers, target: str) -> Numbers:
    """Predictions as shares in percent: of the chance that the GPU is faster, the CPU gets the rest."""
    return np.clip(100 * (1 - values) if target == "device" else values, 0, 100)


def _better(task: str, table: KernelTable, rows: NDArray[np.int64], shares: Numbers) -> float:
    if task == "device-mapping":
        return agreement(table.to_gpu[rows], shares < 50)
    return -mean_absolute_error(table.shares[rows], shares)


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
        "slowdown": slowdown(shares, cpu_time, gpu_time),
    }


def _intervals(
    task: str,
    table: KernelTable,
    repetitions: Sequence[tuple[Numbers, NDArray[np.int64]]],
    sizes: Sequence[int],
) -> dict[str, Interval]:
    """Each measure over all rows: its mean and interval over repetitions, or for one alone over folds."""
    found = [measures_of(task, table, rows, shares) for shares, rows in repetitions]
    if len(found) > 1:
        return {name: over_seeds([one[name] for one in found]) for name in found[0]}
    (shares, rows), ends = repetitions[0], np.cumsum(sizes)
    folds = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(_BOOTSTRAPS):
        chosen = np.concatenate([folds[i] for i in random.integers(0, len(folds), len(folds))])
        drawn.append(measures_of(task, table, rows[chosen], shares[chosen]))
    return {
        name: Interval(value, *(float(q) for q in np.quantile([one[name] for one in drawn], [0.025, 0.975])))
        for name, value in found[0].items()
    }
