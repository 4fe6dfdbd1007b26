"""Tuning on recorded runtimes, as if they were measured now: what a budget would have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.packing import pack
from apportion.data.published.tpugraphs import COLLECTIONS, PublishedFile
from apportion.errors import InvalidSetting
from apportion.learn.ranking.measures import agreement
from apportion.learn.ranking.recorded_runs import GraphRuns
from apportion.learn.ranking.ridge import OptionRidge, TuningPlan
from apportion.learn.ranking.tuner import TunedGraph, tune_graph
from apportion.learn.tuning.search import KnownTable, Search
from apportion.measure.space import Configuration, key_of
from apportion.measure.tuning_table import TuningTable


@dataclass(frozen=True, eq=False)
class RecordedTuning:
    """What tuning on recorded runtimes found, and how that compares with all that was recorded."""

    best: int
    "The configuration that it would choose, as the file numbers them."
    runtime_ns: float
    slowdown: float
    "Of that over the fastest recorded."
    measured: int
    distinct: int
    "How many different configurations there are."
    model: str
    "One of `model.withingraph.FITS`."
    tau_b: float
    "Over the configurations that were not measured; so are the others below."
    gamma: float
    opa: float
    pairs: int
    tied_scores: int
    "Pairs with different runtimes in which the model sees no difference."
    tau_b_untied: float
    "With the linear model's order among equal scores."
    opa_untied: float


def tune_recorded(path: Path, plan: TuningPlan, seeds: Sequence[int]) -> list[RecordedTuning]:
    """Tune a recorded layout file, once for each seed.

    Equal configurations are one, whose runtime is the mean of its recordings.

    Raises:
        UnreadableFile, MalformedInput: the file is not a layout file as published.
        InvalidSetting: its runtimes are not known, or there are too few configurations.
    """
    with TemporaryDirectory() as folder:
        store = pack([PublishedFile(path, COLLECTIONS[1], "valid")], Path(folder), deduplicate=True)
        graph = store.graph(0)
        truth, codes, counts = graph.truth, np.array(graph.codes), graph.option_counts
        first = np.unique(graph.arrays["config_group"], return_index=True)[1]
        return [_replayed(str(path), codes, counts, truth, plan, seed, first) for seed in seeds]


def ridge_recorded(path: Path, budget: int, seeds: Sequence[int]) -> list[float]:
    """What to beat: tau-b of the rest when as many are drawn at random and a plain ridge is fitted."""
    with TemporaryDirectory() as folder:
        graph = pack([PublishedFile(path, COLLECTIONS[1], "valid")], Path(folder), deduplicate=True).graph(0)
        truth, codes, counts = graph.truth, np.array(graph.codes), graph.option_counts
        taus = []
        for seed in seeds:
            rest = np.ones(len(truth), np.bool_)
            rest[np.random.default_rng(seed).choice(len(truth), budget, replace=False)] = False
            scores = OptionRidge.fit(codes[~rest], counts, truth[~rest]).predict(codes[rest])
            taus.append(agreement(truth[rest], scores).tau_b)
        return taus


def tune_runs(runs: GraphRuns, plan: TuningPlan, seeds: Sequence[int]) -> list[RecordedTuning]:
    """Tune a graph of a collection of our own, once for each seed; its parameters stand in an order.

    Raises:
        InvalidSetting: there are too few configurations.
    """
    columns = [np.unique(column, return_inverse=True) for column in runs.parameters.T]
    codes = np.stack([code for _, code in columns], axis=1)
    counts = np.array([len(values) for values, _ in columns], np.int64)
    truth, every = runs.runtime.astype(np.float64), np.arange(runs.configurations)
    return [_replayed(runs.name, codes, counts, truth, plan, seed, every, ordered=True) for seed in seeds]


@dataclass(frozen=True)
class TableTuning:
    """What the search of `apportion tune` found in a table of measured configurations."""

    best: Configuration
    seconds: float
    over_best: float
    "Of that over the fastest of the table."
    by_chance: float
    "The same of as many configurations drawn at random."

    def as_json(self) -> dict[str, Any]:
        """What `apportion tune --recorded --json` prints of one seed."""
        return {
            "best": dict(self.best), "seconds": self.seconds, "over_best": self.over_best,
            "by_chance": self.by_chance,
        }  # fmt: skip


def tune_table(
    table: TuningTable, budget: int, seeds: Sequence[int], *, known: Sequence[KnownTable] = ()
) -> list[TableTuning]:
    """Search a table as if its configurations were measured now, once for each seed.

    Raises:
        InvalidSetting: no configuration that was tried ran.
    """
    if budget < 1:
        raise InvalidSetting(f"budget must be at least 1 measurement, not {budget}")
    truth = {key_of(row.configuration): row.seconds for row in table.rows}
    found = []
    for seed in seeds:
        search = Search(table.space, seed=seed, known=known)
        for _ in range(min(budget, len(table.rows))):
            (one,) = search.ask()
            search.tell(one, truth[key_of(one)])
        seconds = truth[key_of(search.best)]
        drawn = np.random.default_rng(seed).permutation(np.array(table.seconds))[:budget]
        chance = float(np.nanmin(drawn)) if np.isfinite(drawn).any() else float("inf")
        found.append(TableTuning(search.best, seconds, seconds / table.best, chance / table.best))
    return found


def _replayed(
    name: str,
    codes: NDArray[Any],
    counts: NDArray[np.int64],
    truth: NDArray[np.float64],
    plan: TuningPlan,
    seed: int,
    first: NDArray[np.int64],
    *,
    ordered: bool = False,
) -> RecordedTuning:
    if len(codes) <= plan.budget + 1:
        raise InvalidSetting(
            f"{name} has {len(codes)} different configurations: a budget of {plan.budget} leaves none"
        )
    tuned = tune_graph(codes, counts, lambda chosen: truth[chosen], plan, ordered=ordered, seed=seed)
    return _compared(tuned, truth, first)


def _compared(tuned: TunedGraph, truth: NDArray[np.float64], first: NDArray[np.int64]) -> RecordedTuning:
    rest = np.ones(len(truth), np.bool_)
    rest[tuned.measured] = False
    pairs = agreement(truth[rest], tuned.scores[rest])
    places = np.empty(len(truth))
    places[np.lexsort((tuned.tie_break, tuned.scores))] = np.arange(len(truth))
    untied = agreement(truth[rest], places[rest])
    runtime = float(truth[tuned.best])
    return RecordedTuning(
        int(first[tuned.best]), runtime, runtime / float(truth.min()) - 1, len(tuned.measured), len(truth),
        tuned.model.kind, pairs.tau_b, pairs.gamma, pairs.opa, pairs.pairs, pairs.tied_scores,
        untied.tau_b, untied.opa,
    )  # fmt: skip
