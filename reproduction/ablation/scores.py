"""Scores of the ablation: networks from the files of their units, other predictors beside them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.folds import folds_of
from apportion.data.records import CLASSES
from apportion.learn.metrics import Interval
from apportion.learn.shares.device_mapping import costs
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.load_balance import classes_of, sharing_costs
from apportion.settings import replace_file
from reproduction.ablation.rows import AblationData
from reproduction.ablation.units import Ablation, Form, results
from reproduction.kernels.cross_validation import Entry, predict

PUBLISHED, EQUAL = "as published", "equal steps, validated epoch"
"The two budgets: a row's own batches and the last epoch; the common batches and the validated epoch."
MAIN: Mapping[str, str] = {"classification": "accuracy", "regression": "mae", "device-mapping": "accuracy"}
"Form → the measure by which rows are compared."
_BOOTSTRAPS = 1000
_TEN_FOLDS = ("thesis", "source", "component")
_CLASSIFIED = ("decision-tree", "extra-trees")
"Learners that choose among classes themselves; what others say becomes the nearest class."

Numbers = NDArray[np.float64]
Folds = list[tuple[NDArray[Any], NDArray[Any]]]
"Of each fold, its test rows and what was said of them."
Compared = tuple[Numbers, Numbers, Numbers, Numbers]
"Of some rows: what is right, what was said, and the times of the CPU and of the GPU."


@dataclass(frozen=True)
class Score:
    """A row's measures under one form, budget and protocol."""

    row: str
    form: Form
    pair: str
    budget: str
    "Empty for a predictor without a network."
    protocol: str
    folds: int
    tested: int
    measures: dict[str, Interval]

    @property
    def main(self) -> Interval:
        """The measure by which rows are compared."""
        return self.measures[MAIN[self.form]]


def scores(
    ablation: Ablation,
    data: AblationData,
    tables: Mapping[str, KernelTable],
    folder: Path,
    *,
    report: Callable[[str], None],
) -> list[Score]:
    """Every row whose folds are all finished, and the predictors without a network under the same folds."""
    found: dict[tuple[str, Form, str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for result in results(ablation, data, folder):
        key = (result["row"], result["form"], result["pair"], result["protocol"], result["batch"])
        found[key].append(result)
    whole = {key: parts for key, parts in found.items() if len(parts) == parts[0]["parts"]}
    asked = list(dict.fromkeys((form, pair, protocol) for _, form, pair, protocol, _ in whole))
    answers: dict[tuple[str, Form, str, str, str], Folds] = {}
    for form, pair, protocol in asked:
        for entry in ablation.classical:
            if form != "device-mapping" or entry.learner != "constant":
                answers[entry.name, form, pair, "", protocol] = _classical(
                    ablation, entry, form, tables[pair], protocol, folder, report
                )
    for (name, form, pair, protocol, batch), parts in whole.items():
        row = ablation.row(name)
        folds = [fold for part in parts for fold in part["folds"]]
        budgets = [(PUBLISHED, "last")] if batch == row.batch else []
        budgets += [(EQUAL, "validated")] if batch == ablation.fitting.batch and row.equal else []
        for budget, said in budgets:
            answers[name, form, pair, budget, protocol] = [
                (np.array(fold["test"]), np.array(fold[said])) for fold in folds
            ]
    for average in ablation.averages:
        for name, form, pair, budget, protocol in list(answers):
            if (name, form, budget) == (average.network, "regression", EQUAL):
                answers[average.name, form, pair, budget, protocol] = _averaged(
                    answers[name, form, pair, budget, protocol],
                    answers[average.classical, form, pair, "", protocol],
                )
    return [_score(*key, data, tables[key[2]], folds) for key, folds in answers.items()]


def _averaged(one: Folds, other: Folds) -> Folds:
    known = {row: said for rows, answers in other for row, said in zip(rows.tolist(), answers, strict=True)}
    return [(rows, (said + [known[row] for row in rows.tolist()]) / 2) for rows, said in one]


def measures_of(form: str, rows: Compared) -> dict[str, float]:
    """What answers (N,) are worth: of shares their errors, of classes the rates, weighted as published.

    Then what acting on them costs: speed-ups, and the time lost against the oracle.
    """
    truth, said, cpu_time, gpu_time = rows
    if form == "regression":
        error = truth - said
        mse = float(np.mean(error**2))
        shares = np.clip(said, CLASSES[0], CLASSES[-1])
        found = {"mae": float(np.abs(error).mean()), "rmse": mse**0.5, "mse": mse}
        return {**found, **sharing_costs(shares, cpu_time, gpu_time)}
    found = weighted_rates(truth.astype(int), said.astype(int))
    if form == "device-mapping":
        return {**found, **costs(said > 0.5, cpu_time, gpu_time)}
    return {**found, **sharing_costs(np.array(CLASSES)[said.astype(int)], cpu_time, gpu_time)}


def weighted_rates(truth: NDArray[np.int_], said: NDArray[np.int_]) -> dict[str, float]:
    """Accuracy, and F1, precision and recall of each class, averaged by how often it occurs."""
    f1 = precision = recall = 0.0
    for value in np.unique(truth):
        right = float(np.sum((truth == value) & (said == value)))
        claimed, there = float(np.sum(said == value)), float(np.sum(truth == value))
        share = there / len(truth)
        precision += share * (right / claimed if claimed else 0.0)
        recall += share * right / there
        f1 += share * 2 * right / (claimed + there)
    return {"accuracy": float(np.mean(truth == said)), "f1": f1, "precision": precision, "recall": recall}


def truth_of(data: AblationData, form: str, pair: str) -> Numbers:
    """(R,): what is right under a form."""
    rows = data.pairs[pair]
    if form == "classification":
        return classes_of(rows.shares).astype(np.float64)
    return rows.shares if form == "regression" else rows.to_gpu


def _score(
    name: str,
    form: Form,
    pair: str,
    budget: str,
    protocol: str,
    data: AblationData,
    table: KernelTable,
    folds: Folds,
) -> Score:
    truth = truth_of(data, form, pair)
    cpu_time, gpu_time = table.times
    compared = [
        (truth[rows], np.asarray(said, np.float64), cpu_time[rows], gpu_time[rows]) for rows, said in folds
    ]
    # As published, the mean over ten folds; where a fold may be a single row, all rows together.
    intervals = (_mean_of_folds if protocol in _TEN_FOLDS else _together)(form, compared)
    tested = sum(len(rows) for rows, _ in folds)
    return Score(name, form, pair, budget, protocol, len(folds), tested, intervals)


def _mean_of_folds(form: str, folds: Sequence[Compared]) -> dict[str, Interval]:
    each = [measures_of(form, fold) for fold in folds]
    drawn = np.random.default_rng(0).integers(0, len(folds), (_BOOTSTRAPS, len(folds)))
    found = {}
    for name in each[0]:
        values = np.array([one[name] for one in each])
        found[name] = Interval.resampled(float(values.mean()), values[drawn].mean(1))
    return found


def _together(form: str, folds: Sequence[Compared]) -> dict[str, Interval]:
    random = np.random.default_rng(0)
    drawn = [
        _pooled(form, [folds[i] for i in random.integers(0, len(folds), len(folds))])
        for _ in range(_BOOTSTRAPS // 5)
    ]
    return {
        name: Interval.resampled(value, np.array([one[name] for one in drawn]))
        for name, value in _pooled(form, folds).items()
    }


def _pooled(form: str, folds: Sequence[Compared]) -> dict[str, float]:
    truth, said, cpu_time, gpu_time = (np.concatenate(side) for side in zip(*folds, strict=True))
    return measures_of(form, (truth, said, cpu_time, gpu_time))


def _classical(
    ablation: Ablation,
    entry: Entry,
    form: Form,
    table: KernelTable,
    protocol: str,
    folder: Path,
    report: Callable[[str], None],
) -> Folds:
    """Test rows and answers of each fold; kept in a file, like a network's."""
    path = folder / "classical" / f"{entry.name}.{form}.{table.pair}.{protocol}.json".replace(" ", "-")
    about = json.loads(json.dumps([asdict(entry), table.digest, ablation.seed]))
    known = json.loads(path.read_text()) if path.exists() else {}
    if known.get("about") == about:
        return [(np.array(rows), np.array(said)) for rows, said in known["folds"]]
    folds: Folds = []
    for fold in folds_of(protocol, table.origins, seed=ablation.seed):
        if form == "classification" and entry.learner in _CLASSIFIED:
            from reproduction.ablation.classifiers import (
                classes_by_trees,  # scikit-learn, for these rows alone
            )

            features, truth = table.features(entry.features), classes_of(table.shares)
            said: NDArray[Any] = classes_by_trees(
                entry.learner, entry.settings, features[fold.train], truth[fold.train], features[fold.test],
                seed=ablation.seed,
            )  # fmt: skip
        else:
            asked = replace(entry, target="device") if form == "device-mapping" else entry
            answers = predict(asked, table, fold, ablation.seed)[len(fold.validation) :]
            if form == "device-mapping":
                said = (answers > 0.5).astype(np.int64)
            else:
                said = np.clip(answers, CLASSES[0], CLASSES[-1])
                said = classes_of(said) if form == "classification" else said
        folds.append((fold.test, np.round(said, 4)))
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [[rows.tolist(), said.tolist()] for rows, said in folds]
    replace_file(path, json.dumps({"about": about, "folds": plain}).encode())
    report(f"{entry.name}, {form}, {protocol}: done")
    return folds
