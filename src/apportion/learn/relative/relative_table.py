"""RelativeTable: runs with their counters and their times on several systems, as arrays to learn from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from apportion.data.counter_table import AIWC, GRAPH, SECONDS, TABLE_I, CounterTable
from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.relative.relative_features import features_of, time_features

Numbers = NDArray[np.float64]
_MOST_RUNS = 0.9
"A counter of Table I is learned from where so large a part of the runs has it."
WITH_GRAPH = "graph"
"The set of features `both`, and what the kernel's program graph is made of."


@dataclass(frozen=True, eq=False)
class RelativeTable:
    """Runs that have every counter, and a time on every system."""

    name: str
    runs: tuple[str, ...]
    application: tuple[str, ...]
    kernel: tuple[str, ...]
    "Unique over applications."
    systems: tuple[str, ...]
    kinds: tuple[str, ...]
    "Of each system: cpu, gpu, or empty where unknown."
    counters: tuple[str, ...]
    values: Numbers  # (N, C)
    log_times: Numbers  # (N, S): log2 seconds, medians over repeats
    halves: Numbers  # (2, N, S): medians of the even repeats, and of the odd ones
    single: Numbers  # (N, S): of the first repeat alone
    left_out: int = 0
    "Runs of the source that lack a counter or a time."
    repeated: bool = True
    "Whether every time was taken more than once: otherwise the halves of the repeats are no halves."
    graph: Numbers | None = None  # (N, G): of the kernels' program graphs, where their code is known
    descriptions: Numbers | None = None  # (S, D): of the systems, where all say the same things in numbers

    def __post_init__(self) -> None:
        shape = (len(self.runs), len(self.systems))
        if self.log_times.shape != shape or self.halves.shape != (2, *shape) or self.single.shape != shape:
            raise InvalidSetting(f"Times must be given for {shape[0]} runs on {shape[1]} systems")
        if len(set(self.runs)) < len(self.runs):
            raise InvalidSetting("A run is there twice")

    def on(self, systems: Sequence[str]) -> RelativeTable:
        """The same runs on some of the systems, in the order given."""
        for system in systems:
            if system not in self.systems:
                raise UnknownName("system", system, self.systems)
        at = [self.systems.index(system) for system in systems]
        return RelativeTable(
            self.name, self.runs, self.application, self.kernel, tuple(systems),
            tuple(self.kinds[i] for i in at), self.counters, self.values, self.log_times[:, at],
            self.halves[:, :, at], self.single[:, at], self.left_out, self.repeated, self.graph,
            None if self.descriptions is None else self.descriptions[at],
        )  # fmt: skip

    def features(self, kind: str, log_seconds: Numbers | None = None) -> Numbers:
        """(N, F): a set of features, with those of one system's times (N,) where they are given.

        Raises:
            InvalidSetting: the program graphs are asked for, and not known.
        """
        if kind == WITH_GRAPH:
            if self.graph is None:
                raise InvalidSetting(f"The program graphs of {self.name} are not known")
            rows = np.hstack([features_of("both", self.counters, self.values), self.graph])
        else:
            rows = features_of(kind, self.counters, self.values)
        if log_seconds is None:
            return rows
        return np.hstack([rows, time_features(self.counters, self.values, log_seconds)])

    @property
    def digest(self) -> str:
        """SHA-256 over all that results can rest on."""
        return self.digest_of(graph=True, descriptions=True)

    def digest_of(self, *, graph: bool, descriptions: bool) -> str:
        """SHA-256 over runs, systems, counters and times, with graphs and descriptions or without them."""
        sum_ = hashlib.sha256("|".join((*self.runs, *self.systems, *self.counters)).encode())
        sum_.update(np.ascontiguousarray(self.values).tobytes())
        sum_.update(np.ascontiguousarray(self.log_times).tobytes())
        for part, wanted in ((self.graph, graph), (self.descriptions, descriptions)):
            if wanted and part is not None:
                sum_.update(np.ascontiguousarray(part).tobytes())
        return sum_.hexdigest()


def described_by(source: CounterTable) -> tuple[CounterTable, tuple[str, ...]]:
    """The counters to learn from: AIWC's where a table has them, else those of Table I that most runs have.

    Of a counter that several sources gave, the source that most runs have is taken; the table comes back with
    that one alone.

    Raises:
        InvalidSetting: it has neither.
    """
    names = set(source.frame["counter"].unique())
    if names >= set(AIWC):
        return source, AIWC
    held = source.frame.filter(
        pl.col("counter").is_in([name for group in TABLE_I.values() for name in group])
        & pl.col("value").is_not_null()
    )
    runs = source.about(counters=[SECONDS]).frame["run"].n_unique()
    most = (
        held.group_by("counter", "source")
        .agg(pl.col("run").n_unique())
        .sort("run", "source", descending=[True, False])
        .unique("counter", keep="first")
        .filter(pl.col("run") >= _MOST_RUNS * runs)
    )
    chosen = {counter: origin for counter, origin, _ in most.iter_rows()}
    counters = tuple(name for group in TABLE_I.values() for name in group if name in chosen)
    if not counters:
        raise InvalidSetting(
            "The table has neither AIWC's counters (`apportion counters kernels`) nor those of Table I "
            "(`apportion counters collect`, `apportion counters import`) for its runs"
        )
    pairs = pl.struct("counter", "source").is_in(
        [{"counter": counter, "source": origin} for counter, origin in chosen.items()]
    )
    frame = source.frame.filter(pairs | (pl.col("counter") == SECONDS))
    return CounterTable(frame, source.systems), counters


def table_of(
    source: CounterTable,
    *,
    name: str,
    counters: Sequence[str],
    systems: Sequence[str] = (),
    time: str = SECONDS,
) -> RelativeTable:
    """The runs of a table of counters that are complete.

    Args:
        counters: what a model shall see; each must come from one source.
        systems: on which times are wanted; by default all that have any.
        time: the counter that holds the time.

    Raises:
        InvalidSetting: no run is complete, or a counter comes from several sources.
        UnknownName: no time was taken on one of the systems.
    """
    measured = source.about(counters=[time])
    known = list(dict.fromkeys(measured.frame["system"].to_list()))
    for system in systems:
        if system not in known:
            raise UnknownName("system", system, known)
    measured = measured.about(systems=list(systems) or known)
    described = source.about(counters=counters).wide()
    columns = [described.column(counter) for counter in counters]
    values: dict[str, list[float]] = {}
    for number, run in enumerate(described.runs["run"].to_list()):
        if all(mask[number] for _, mask in columns):
            values.setdefault(run, [float(column[number]) for column, _ in columns])
    chosen = tuple(systems) or tuple(known)
    times = measured.times(time)
    complete = [
        (number, run)
        for number, run in enumerate(times.runs["run"].to_list())
        if run in values and times.mask[number].all() and (times.seconds[number] > 0).all()
    ]
    if not complete:
        raise InvalidSetting(f"No run of {name} has the counters asked for and a time on every system")
    at = [times.systems.index(system) for system in chosen]
    keep = [number for number, _ in complete]
    names = [run for _, run in complete]
    programs = [times.runs["program"][number] for number in keep]
    kernels = [times.runs["kernel"][number] for number in keep]
    described_systems = source.systems
    often = measured.frame.filter(pl.col("run").is_in(names)).group_by("run", "system").len()
    first = pl.col("repeat") == pl.col("repeat").min().over("run", "system")
    return RelativeTable(
        name, tuple(names), tuple(programs),
        tuple(f"{program}/{kernel}" for program, kernel in zip(programs, kernels, strict=True)),
        chosen,
        tuple(described_systems[s].kind if s in described_systems else "" for s in chosen),
        tuple(counters), np.array([values[run] for run in names]),
        np.log2(times.seconds[keep][:, at]),
        np.stack([_medians(measured.frame, pl.col("repeat") % 2 == half, names, chosen) for half in (0, 1)]),
        _medians(measured.frame, first, names, chosen),
        len(set(times.runs["run"].to_list()) | set(described.runs["run"].to_list())) - len(keep),
        bool((often["len"] > 1).all()), _graphs(source, names), _descriptions(source, chosen),
    )  # fmt: skip


def _descriptions(source: CounterTable, systems: Sequence[str]) -> Numbers | None:
    """(S, D): whether it is a GPU, and logarithms of the numbers that every system says of itself."""
    known = [source.systems.get(name) for name in systems]
    numbers = [
        {key: value for key, value in one.description.items() if isinstance(value, int | float) and value > 0}
        if one is not None else {}
        for one in known
    ]  # fmt: skip
    shared = sorted(set.intersection(*(set(each) for each in numbers))) if numbers else []
    if not shared:
        return None
    return np.array(
        [
            [float(one is not None and one.kind == "gpu"), *(np.log2(each[key]) for key in shared)]
            for one, each in zip(known, numbers, strict=True)
        ]
    )


def _graphs(source: CounterTable, runs: Sequence[str]) -> Numbers | None:
    """(N, G): what is known of the program graphs; None unless it is known of every run."""
    wide = source.about(counters=[n for n in source.frame["counter"].unique() if n.startswith(GRAPH)]).wide()
    order = sorted(range(len(wide.counters)), key=lambda number: wide.counters[number])
    place = {run: number for number, run in enumerate(wide.runs["run"].to_list())}
    if not order or not all(run in place and wide.mask[place[run]].all() for run in runs):
        return None
    return np.asarray(wide.values[[place[run] for run in runs]][:, order], np.float64)


def _medians(frame: pl.DataFrame, which: pl.Expr, runs: Sequence[str], systems: Sequence[str]) -> Numbers:
    """(N, S): log2 medians over some repeats; over all of them where the choice leaves none."""
    held: dict[tuple[str, str], float] = {}
    for part in (frame, frame.filter(which)):
        for run, system, value in part.group_by("run", "system").agg(pl.col("value").median()).iter_rows():
            if value is not None and value > 0:
                held[run, system] = value
    medians = np.array([[held[run, system] for system in systems] for run in runs])
    return np.asarray(np.log2(medians), np.float64)
