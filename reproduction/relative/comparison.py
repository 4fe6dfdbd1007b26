"""Predictors of relative performance compared: every row of a table, under every split.

Splits: `random` five folds over runs (80-20, as in the paper: the same kernel with another size stands on
both sides), `kernel` folds that keep a kernel's sizes together, `application` each application in turn, or
where there are many of them, twelve groups of applications in turn. What is finished is kept in a file of
JSON Lines, so that an interrupted run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName
from apportion.jobs.journal import Results
from apportion.learn import vector_models
from apportion.learn.metrics import Interval
from apportion.learn.relative.performance import (
    SLOWEST,
    bootstrap_groups,
    common_order,
    log_times_of,
    measures_of,
    r_squared,
    vector_of,
)  # fmt: skip
from apportion.learn.relative.relative_features import FEATURE_SETS, time_features
from apportion.learn.relative.relative_table import WITH_GRAPH, RelativeTable
from apportion.learn.relative.vectors import ProfiledRows

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
PROTOCOLS = ("random", "kernel", "application")
RULES = ("most common order", "measure two, take the faster")
"Rules that name an order or a system, but no vector: R² and MAE are not asked of them."
CEILINGS = ("other half of the repeats", "one single run")
_PARTS = {"random": 5, "kernel": 8, "application": 12}
"How many folds there are at most."
_INNER_PARTS = 5


@dataclass(frozen=True)
class Entry:
    """One row of the table: a predictor."""

    name: str
    learner: str
    "One of `model.vector_models`, or `blend`: the mean of other rows' answers."
    features: str = "counters"
    target: Literal["centred", "slowest"] = "centred"
    timed: bool = False
    "It also knows the run's time on the experiment's `profiled` system."
    twice: bool = False
    "And its time on the experiment's `second` system; the two are then right beside each other in any case."
    settings: dict[str, Any] = field(default_factory=dict)
    of: tuple[str, ...] = ()
    "The rows that a blend is made of; they stand before it and are candidates, too."
    described: bool = False
    "It also knows descriptions of the systems, and learns from pairs of a run and any system of the table."
    candidate: str = ""
    "The choice it may be the answer of: `counters`, `timed`, `informed` (`timed` are of it, too) or `twice`."
    repetitions: int = 0
    "Of the random folds; 0 for as many as the experiment has."

    def __post_init__(self) -> None:
        if self.features not in (*FEATURE_SETS, WITH_GRAPH):
            raise UnknownName("set of features", self.features, (*FEATURE_SETS, WITH_GRAPH))
        if self.twice and not self.timed:
            raise InvalidSetting(f"{self.name}: who knows a second time knows the first, too")
        if self.described and (self.target != "centred" or self.twice or self.of):
            raise InvalidSetting(
                f"{self.name}: who learns from pairs says centred times, with one known or none"
            )
        if (self.learner == "blend") != bool(self.of):
            raise InvalidSetting(f"{self.name}: a blend, and nothing else, names the rows it is made `of`")


@dataclass(frozen=True)
class Comparison:
    """What `python -m reproduction relative-performance` runs."""

    systems: tuple[str, ...]
    profiled: str
    "The system on which a run is timed, for rows that know one time."
    rows: tuple[Entry, ...]
    second: str = ""
    "The system on which it is timed as well, for rows that know two."
    repetitions: int = 3
    "Of the random folds, each time with others."
    seed: int = 1
    whole: str = ""
    "The row of the network with every stage, which its ablations are compared with."
    stages: str = "…"
    "What the names of those ablations begin with."

    def __post_init__(self) -> None:
        for system in (self.profiled, *([self.second] if self.second else [])):
            if system not in self.systems:
                raise UnknownName("system", system, self.systems)
        if self.second == self.profiled or (not self.second and any(row.twice for row in self.rows)):
            raise InvalidSetting("Rows that know two times need a second system beside the profiled one")
        names = [row.name for row in self.rows]
        if len(set(names)) < len(names):
            raise InvalidSetting("Each row needs a name of its own")
        if self.repetitions < 1:
            raise InvalidSetting(f"repetitions must be at least 1, not {self.repetitions}")

    def about(self, table: RelativeTable) -> Comparison:
        """The same less the rows that need program graphs or descriptions which the table does not know."""
        return replace(
            self,
            rows=tuple(
                row for row in self.rows
                if (table.graph is not None or row.features != WITH_GRAPH)
                and (table.descriptions is not None or not row.described)
            ),
        )  # fmt: skip

    def without_stages(self) -> Comparison:
        """The same less the network's ablations."""
        return replace(self, rows=tuple(row for row in self.rows if not row.name.startswith(self.stages)))

    def without_networks(self) -> Comparison:
        """The same less every network."""
        return replace(self, rows=tuple(row for row in self.rows if row.learner != "network"), whole="")


@dataclass(frozen=True, eq=False)
class Answers:
    """What one row said: for each repetition, log times (N, S), every run predicted when it was the test."""

    row: str
    protocol: str
    said: tuple[Numbers, ...]
    vectors: bool = True
    "Whether they are vectors, or an order and no more."
    chosen: tuple[str, ...] = ()
    "Which candidate, fold by fold, where the row is a choice."


def splits(protocol: str, table: RelativeTable, seed: int, *, parts: int = 0) -> list[tuple[Rows, Rows]]:
    """Training and test runs of each fold.

    Args:
        parts: how many folds groups are joined to; by default 5 for random ones, 8 for kernels, and one for
            each application up to twelve.
    """
    if protocol not in PROTOCOLS:
        raise UnknownName("split", protocol, PROTOCOLS)
    key = {"random": table.runs, "kernel": table.kernel, "application": table.application}[protocol]
    return _folds(np.array(key), seed, parts or _PARTS[protocol])


def _folds(key: NDArray[np.str_], seed: int, parts: int) -> list[tuple[Rows, Rows]]:
    names = np.unique(key)
    if len(names) < 2:
        raise InvalidSetting("One group of runs cannot be split; there must be two at least")
    parts = min(parts or len(names), len(names))
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {str(names[group]): place % parts for place, group in enumerate(order.tolist())}
    fold = np.array([fold_of[str(name)] for name in key])
    return [(np.flatnonzero(fold != part), np.flatnonzero(fold == part)) for part in range(parts)]


def run(
    comparison: Comparison, everything: RelativeTable, results: Path, *, report: Callable[[str], None]
) -> list[Answers]:
    """The answers of every row, of the rules, of the ceilings, and of the choices among candidates.

    Args:
        everything: the runs on all systems there are; those beyond the comparison's serve networks as rows
            without labels.
        results: the file of what is finished; it is made, or gone on with.
    """
    table = everything.on(comparison.systems)
    kept = _Kept(results, everything)
    done: dict[tuple[str, str], dict[tuple[int, int], _Fitted]] = {}
    for row in comparison.rows:
        for protocol, seed, number, unit in _units(comparison, everything, row):
            found = done.setdefault((protocol, row.name), {})
            if row.of:
                found[seed, number] = _blended([done[protocol, name][seed, number] for name in row.of])
            else:
                found[seed, number] = kept.get(unit, number)
        report(f"{table.name}: {row.name}")
    answers: list[Answers] = []
    for protocol in PROTOCOLS:
        seeds = _seeds(comparison, protocol)
        answers += _ceilings(table, protocol) + _rules(table, protocol, seeds)
        for row in comparison.rows:
            mine = _seeds(comparison, protocol, row.repetitions)
            answers.append(_gathered(row.name, protocol, table, mine, done[protocol, row.name]))
        for group in dict.fromkeys(row.candidate for row in comparison.rows if row.candidate):
            groups = ("timed", group) if group == "informed" else (group,)
            names = [row.name for row in comparison.rows if row.candidate in groups]
            found_by = {name: done[protocol, name] for name in names}
            answers.append(_chosen(group, protocol, table, seeds, found_by))
    return answers


def share(
    comparison: Comparison, everything: RelativeTable, results: Path, *, worker: tuple[int, int]
) -> None:
    """Fit one worker's part of the folds of `run`, into the same file: its number, and how many there are."""
    kept, (mine, workers) = _Kept(results, everything), worker
    units = [
        (unit, number)
        for row in comparison.rows if not row.of
        for _, _, number, unit in _units(comparison, everything, row)
    ]  # fmt: skip
    for unit, number in units[mine - 1 :: workers]:
        kept.get(unit, number)


def _units(
    comparison: Comparison, everything: RelativeTable, row: Entry
) -> Iterator[tuple[str, int, int, _Unit]]:
    """A row in each fold: protocol, seed, number of the fold, and what is fitted."""
    table = everything.on(comparison.systems)
    for protocol in PROTOCOLS:
        for seed in _seeds(comparison, protocol, row.repetitions):
            for number, (train, test) in enumerate(splits(protocol, table, seed)):
                unit = _Unit(comparison, everything, table, protocol, row, seed, train, test)
                yield protocol, seed, number, unit


def _seeds(comparison: Comparison, protocol: str, repetitions: int = 0) -> list[int]:
    count = (repetitions or comparison.repetitions) if protocol == "random" else 1
    return [comparison.seed + number for number in range(count)]


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A row's answers in one fold, and for a candidate what validation inside the training runs said."""

    said: Numbers  # (test, S)
    inner: Numbers | None  # (train, S): each training run predicted when it was held out
    train: Rows


@dataclass(frozen=True, eq=False)
class _Unit:
    """One row in one fold."""

    comparison: Comparison
    everything: RelativeTable
    table: RelativeTable
    protocol: str
    row: Entry
    seed: int
    train: Rows
    test: Rows

    def fitted(self) -> _Fitted:
        said = predict(self.row, self.everything, self.table, self._known, self.train, self.test, self.seed)
        return _Fitted(said, self._inner() if self.row.candidate else None, self.train)

    @property
    def _known(self) -> tuple[str, ...]:
        """The systems whose times the row knows."""
        known = (self.comparison.profiled, self.comparison.second)
        return known[: self.row.timed + self.row.twice]

    def _inner(self) -> Numbers:
        """The training runs, each predicted when it was held out, in folds of the test's kind."""
        key = {"random": self.table.runs, "kernel": self.table.kernel, "application": self.table.application}
        group = np.array(key[self.protocol])[self.train]
        said = np.zeros((len(self.train), len(self.table.systems)))
        for train, held in _folds(group, self.seed, _INNER_PARTS):
            said[held] = predict(
                self.row, self.everything, self.table, self._known, self.train[train], self.train[held],
                self.seed,
            )  # fmt: skip
        return said


def _blended(parts: Sequence[_Fitted]) -> _Fitted:
    """The mean of what rows said, of test and training runs alike."""
    inner = [part.inner for part in parts if part.inner is not None]
    return _Fitted(
        np.mean([_centred(part.said) for part in parts], axis=0),
        np.mean([_centred(said) for said in inner], axis=0) if len(inner) == len(parts) else None,
        parts[0].train,
    )


def _centred(said: Numbers) -> Numbers:
    return np.asarray(said - said.mean(axis=1, keepdims=True), np.float64)


def predict(
    row: Entry,
    everything: RelativeTable,
    table: RelativeTable,
    known: Sequence[str],
    train: Rows,
    test: Rows,
    seed: int,
) -> Numbers:
    """(test, S) log times, up to a constant in each row, by a learner that saw the training runs alone.

    Args:
        known: the systems whose times it knows of test runs, too: none, one or two.
    """
    at = [table.systems.index(system) for system in known]
    rows = table.features(row.features, table.log_times[:, at[0]] if at else None)
    if len(at) > 1:
        second = time_features(table.counters, table.values, table.log_times[:, at[1]])
        rows = np.hstack([rows, second, table.log_times[:, [at[0]]] - table.log_times[:, [at[1]]]])
    if row.described:
        return _by_pairs(row, rows, everything, table, train, test, seed)
    truth = vector_of(table.log_times[train], row.target)
    calibration = _calibration(row, everything, train) if len(at) == 1 else None
    model = vector_models.load(row.learner)(
        row.settings, rows[train], truth, seed=seed, calibration=calibration
    )
    said = log_times_of(model.predict(rows[test]), row.target)
    if len(at) > 1:  # how these two lie to each other is not to be guessed
        middle = said[:, at].mean(axis=1, keepdims=True)
        times = table.log_times[test][:, at]
        said[:, at] = middle + times - times.mean(axis=1, keepdims=True)
    return said


def _by_pairs(
    row: Entry,
    rows: Numbers,
    everything: RelativeTable,
    table: RelativeTable,
    train: Rows,
    test: Rows,
    seed: int,
) -> Numbers:
    """(test, S): a number for each pair of a run and a system, learned on every system that there is."""
    if everything.descriptions is None or table.descriptions is None:
        raise InvalidSetting(f"The systems of {table.name} are not described")

    def pairs(runs: Numbers, systems: Numbers) -> Numbers:
        return np.hstack([np.repeat(runs, len(systems), axis=0), np.tile(systems, (len(runs), 1))])

    truth = vector_of(everything.log_times[train])
    model = vector_models.load(row.learner)(
        row.settings, pairs(rows[train], everything.descriptions), truth.reshape(-1, 1), seed=seed
    )
    said = model.predict(pairs(rows[test], table.descriptions))
    return np.asarray(said.reshape(len(test), len(table.systems)), np.float64)


def _calibration(row: Entry, everything: RelativeTable, train: Rows) -> ProfiledRows | None:
    """Training runs as they look when profiled on each system: their rates differ, nothing else."""
    profiles = [everything.features(row.features, times)[train] for times in everything.log_times.T]
    on_cpus = [rows for rows, kind in zip(profiles, everything.kinds, strict=True) if kind == "cpu"]
    if not on_cpus:
        return None
    return ProfiledRows(np.concatenate(on_cpus), np.concatenate(profiles))


class _Kept:
    """Finished folds in a journal."""

    def __init__(self, path: Path, table: RelativeTable) -> None:
        self._results, self._table = Results(path, digits=20), table

    def get(self, unit: _Unit, number: int) -> _Fitted:
        described = asdict(unit.row)
        twice = described.pop("twice")
        if not unit.row.described:
            described.pop("described")
        data = self._table.digest_of(
            graph=unit.row.features == WITH_GRAPH, descriptions=unit.row.described
        )  # fmt: skip
        made_of = {
            "data": data, "row": {**described, "name": "", "repetitions": 0},
            "protocol": unit.protocol,
            "seed": unit.seed, "fold": number, "systems": unit.table.systems,
            "profiled": unit.comparison.profiled,
        }  # fmt: skip
        if twice:
            made_of["second"] = unit.comparison.second

        def make() -> dict[str, Any]:
            fitted = unit.fitted()
            return {
                "row": unit.row.name, "protocol": unit.protocol, "seed": unit.seed, "fold": number,
                "said": fitted.said.round(3).tolist(),
                "inner": None if fitted.inner is None else fitted.inner.round(3).tolist(),
            }  # fmt: skip

        line = self._results.get(made_of, make)
        inner = line["inner"]
        return _Fitted(np.array(line["said"]), None if inner is None else np.array(inner), unit.train)


def _gathered(
    name: str,
    protocol: str,
    table: RelativeTable,
    seeds: Sequence[int],
    done: dict[tuple[int, int], _Fitted],
    chosen: tuple[str, ...] = (),
) -> Answers:
    said = []
    for seed in seeds:
        pooled = np.zeros_like(table.log_times)
        for number, (_, test) in enumerate(splits(protocol, table, seed)):
            pooled[test] = done[seed, number].said
        said.append(pooled)
    return Answers(name, protocol, tuple(said), chosen=chosen)


def choice_called(group: str) -> str:
    """The name of the row that takes, fold by fold, the candidate with the least regret in validation."""
    known = {
        "counters": "counters alone", "timed": "one time known",
        "informed": "one time and what else is known", "twice": "two times known",
    }  # fmt: skip
    return f"chosen by validation, {known[group]}"


def _chosen(
    group: str,
    protocol: str,
    table: RelativeTable,
    seeds: Sequence[int],
    done: dict[str, dict[tuple[int, int], _Fitted]],
) -> Answers:
    best: dict[tuple[int, int], str] = {}
    for place in next(iter(done.values())):
        regrets = {}
        for name, found in done.items():
            fitted = found[place]
            assert fitted.inner is not None
            regrets[name] = measures_of(table.log_times[fitted.train], fitted.inner)["regret"]
        best[place] = min(regrets, key=lambda name: regrets[name])
    taken = {place: done[name][place] for place, name in best.items()}
    return _gathered(choice_called(group), protocol, table, seeds, taken, tuple(best.values()))


def _ceilings(table: RelativeTable, protocol: str) -> list[Answers]:
    """What the noise of the times allows; nothing where each was taken once."""
    if not table.repeated:
        return []
    return [
        Answers(CEILINGS[0], protocol, (table.halves[1],)),
        Answers(CEILINGS[1], protocol, (table.single,)),
    ]


def truth_for(row: str, table: RelativeTable) -> Numbers:
    """(N, S): what a row's answers are compared with; for the ceiling, the half that it did not see."""
    return table.halves[0] if row == CEILINGS[0] else table.log_times


def _rules(table: RelativeTable, protocol: str, seeds: Sequence[int]) -> list[Answers]:
    """The two rules; what they need to know they take from training runs."""
    order_said, two_said = [], []
    for seed in seeds:
        by_order, by_two = np.zeros_like(table.log_times), np.zeros_like(table.log_times)
        for train, test in splits(protocol, table, seed):
            order = list(common_order(table.log_times[train]))
            by_order[test[:, None], order] = np.arange(len(order), dtype=np.float64)
            pair = list(best_pair(table.log_times[train]))
            by_two[test] = table.log_times[test].max(axis=1, keepdims=True) + 1
            by_two[test[:, None], pair] = table.log_times[test[:, None], pair]
        order_said.append(by_order)
        two_said.append(by_two)
    return [
        Answers(RULES[0], protocol, tuple(order_said), vectors=False),
        Answers(RULES[1], protocol, tuple(two_said), vectors=False),
    ]


def best_pair(log_times: Numbers) -> tuple[int, int]:
    """The two systems of which the faster one loses least."""
    systems = range(log_times.shape[1])
    pairs = [(a, b) for a in systems for b in systems if a < b]
    return min(pairs, key=lambda pair: float(log_times[:, list(pair)].min(axis=1).mean()))


def scores(answers: Answers, table: RelativeTable, *, samples: int = 400) -> dict[str, Interval]:
    """Each measure, averaged over repetitions, with its interval over resampled applications."""
    truth = truth_for(answers.row, table)

    def measure(rows: Rows) -> dict[str, float]:
        found = [measures_of(truth[rows], said[rows]) for said in answers.said]
        return {name: float(np.mean([one[name] for one in found])) for name in found[0]}

    return bootstrap_groups(table.application, measure, samples=samples)


def r_squared_as_said(answers: Answers, table: RelativeTable, *, samples: int = 400) -> Interval:
    """R² of vectors in parts of the slowest as a row says them, not divided by their own largest number.

    That is scikit-learn's R² of a regressor of such vectors, and the papers' of their forest. Of rows that
    learn the `slowest` target alone.
    """
    truth = vector_of(table.log_times, SLOWEST)

    def measure(rows: Rows) -> dict[str, float]:
        return {"r2": float(np.mean([r_squared(truth[rows], 2.0 ** said[rows]) for said in answers.said]))}

    return bootstrap_groups(table.application, measure, samples=samples)["r2"]


def against(one: Answers, other: Answers, table: RelativeTable, *, samples: int = 400) -> dict[str, Interval]:
    """How `one` differs from `other`: differences, of regret the ratio; applications are paired."""

    def measure(rows: Rows) -> dict[str, float]:
        truth = table.log_times[rows]
        pairs = [
            (measures_of(truth, a[rows]), measures_of(truth, b[rows]))
            for a, b in zip(one.said, other.said, strict=False)
        ]
        return {
            **{
                name: float(np.mean([a[name] - b[name] for a, b in pairs]))
                for name in ("r2", "order", "top1")
            },
            "regret": float(np.exp(np.mean([np.log(a["regret"] / b["regret"]) for a, b in pairs]))),
        }

    return bootstrap_groups(table.application, measure, samples=samples)
