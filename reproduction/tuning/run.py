"""`python -m reproduction tuning`: our search and its peers on fully measured spaces, into a results page."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.learn.ranking.measures import agreement
from apportion.learn.ranking.recorded_runs import GraphRuns
from apportion.measure.space import key_of
from apportion.measure.tuning_table import Tried, TuningTable, read_table
from reproduction.tuning import searchers
from reproduction.tuning.page import BUDGETS, OWN, OWN_BUDGETS, Traces, page, summaries

OWN_COLLECTIONS = ("cpu-tiles", "h200-triton")
OWN_SEEDS = 10
OWN_SEARCHERS = (
    "apportion", "random", "kt-genetic_algorithm", "kt-dual_annealing", "kt-adaptive_tabu_greywolf",
    "kt-hybrid_vndx", "kt-simulated_annealing",
)  # fmt: skip
"Those that need seconds for a space; of few configurations drawn at random, TPE mostly asks for others."

SEARCHERS: dict[str, searchers.Searcher] = {
    "apportion": searchers.ours,
    "random": searchers.by_chance,
    "optuna-tpe": searchers.tpe,
    "skopt-extra-trees": searchers.extra_trees,
    **{f"kt-{name}": partial(searchers.kernel_tuner, strategy=name) for name in searchers.KERNEL_TUNER},
}


def tuning(
    spaces: tuple[Path, ...] = (),
    *,
    searcher: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    seeds: int = 20,
    warm: bool = True,
    own: bool = True,
    processes: int = 1,
    stored: Annotated[bool, Parameter(negative="")] = False,
    keep: Path = Path("docs/results/tuning.npz"),
    out: Path = Path("docs/results/tuning.md"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compare searches at budgets of 20, 50 and 100 measurements, and write the page.

    What was computed before stands in `--keep` and is not computed again.

    Args:
        spaces: files of measured spaces (CSV, Kernel Tuner's cache, T4); by default those in
            ../shared/data/tuning-spaces.
        searcher: only these; all when not given: ours, random, Optuna's TPE, scikit-optimize's extra trees,
            and Kernel Tuner's strategies.
        seeds: how often each is repeated.
        warm: also start our search with the table of the same kernel on each other GPU (files are called
            KERNEL-GPU).
        own: also compare on programs of our own collections, in experiments/collections.
        processes: computed at once.
        stored: make the page again of what stands in `--keep`, and compute nothing.
        keep: a file with the best after each measurement, of each search, space and seed.
        out: the page.
        json: print one line of JSON for each search.
    """
    if seeds < 2:
        raise InvalidSetting(f"seeds must be at least 2, so that there is an interval, not {seeds}")
    traces = Traces.read(keep)
    if stored:
        _write(out, traces)
        return
    folder = Path("../shared/data/tuning-spaces")
    paths = spaces or tuple(sorted(folder.glob("*.csv.gz")))
    if not paths:
        raise UnreadableFile(f"There are no measured spaces in {folder}; give files")
    tables = {table.name: table for table in map(read_table, paths)}
    unknown = [name for name in searcher if name not in SEARCHERS]
    if unknown:
        raise InvalidSetting(f"No search called {unknown[0]!r}; there are: {', '.join(SEARCHERS)}")
    traces.sizes |= {name: len(table.rows) for name, table in tables.items()}
    jobs: list[tuple[str, str, str | None]] = [
        (name, space, None) for name in searcher or SEARCHERS for space in tables
    ]
    if warm:
        siblings = _siblings(tables)
        traces.agreements |= {pair: _agreement(*(tables[name] for name in pair)) for pair in siblings}
        jobs += [("apportion", space, other) for space, other in siblings]
    if own and not spaces:
        ours = own_tables()
        jobs += [(name, space, None) for name in searcher or OWN_SEARCHERS for space in ours]
        tables |= ours
    with ProcessPoolExecutor(processes, mp_context=_SPAWN) as pool:
        _compute(jobs, tables, seeds, traces, keep, pool)
    _write(out, traces)
    for summary in summaries(traces, list(traces.sizes)):
        if json:
            print_json(summary)
    if not json:
        rows = [
            (one["search"], *(f"{value:.3f}" for value in one["geometric_mean"]))
            for one in summaries(traces, list(traces.sizes))
        ]
        columns = ("search", *(f"after {budget}" for budget in BUDGETS))
        print_table(columns, rows, title="Best found over the best there is", right=columns[1:])


def _compute(
    jobs: list[tuple[str, str, str | None]], tables: dict[str, TuningTable], seeds: int, traces: Traces,
    keep: Path, pool: ProcessPoolExecutor,
) -> None:  # fmt: skip
    """Run what is not known yet, and keep it after each space."""
    for name, space, other in jobs:
        label = name if other is None else f"apportion, warm from {other}"
        wanted = min(seeds, OWN_SEEDS) if space.startswith(OWN) else seeds
        missing = [seed for seed in range(wanted) if not traces.has(label, space, seed)]
        if not missing:
            continue
        start = time.monotonic()
        one = partial(_trace, name, tables[space], None if other is None else tables[other])
        for seed, found in zip(missing, pool.map(one, missing), strict=True):
            traces.add(label, space, seed, found)
        traces.write(keep)
        note(f"{label} on {space}: {len(missing)} seeds in {time.monotonic() - start:.0f} s")


def _write(out: Path, traces: Traces) -> None:
    if not traces.of:
        raise UnreadableFile("Nothing is stored. Make it with: python -m reproduction tuning")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(traces))
    note(f"The page is {out}")


def own_tables() -> dict[str, TuningTable]:
    """Two programs of every second family of our own collections, the others having been developed on."""
    families: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(Path("experiments/collections").glob("*/runs/*.npz")):
        if path.parts[-3] in OWN_COLLECTIONS:
            families.setdefault((path.parts[-3], path.name.partition(".")[0]), []).append(path)
    held_out = [paths for _, paths in sorted(families.items())][1::2]
    tables = {}
    for path in [path for paths in held_out for path in paths[:2]]:
        runs = GraphRuns.read(path)
        rows = [
            Tried(dict(zip(runs.parameter_names, chosen.tolist(), strict=True)), float(seconds))
            for chosen, seconds in zip(runs.parameters, runs.runtime * 1e-9, strict=True)
        ]
        tables[OWN + runs.name] = TuningTable(OWN + runs.name, tuple(rows))
    return tables


def _agreement(one: TuningTable, other: TuningTable) -> float:
    """tau-b of two tables over configurations that ran on both GPUs."""
    known = {key_of(row.configuration): row.seconds for row in other.rows}
    pairs = np.array([(row.seconds, known.get(key_of(row.configuration), np.nan)) for row in one.rows])
    ran = pairs[np.isfinite(pairs).all(axis=1)]
    return float(agreement(ran[:, 0], ran[:, 1]).tau_b)


def _siblings(tables: dict[str, TuningTable]) -> list[tuple[str, str]]:
    """Spaces of one kernel on two GPUs, both ways."""
    return [
        (one, other)
        for one in tables
        for other in tables
        if one != other and one.partition("-")[0] == other.partition("-")[0]
    ]


_SPAWN = multiprocessing.get_context("spawn")
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")  # before a process loads NumPy: its matrices are small


def _trace(name: str, table: TuningTable, other: TuningTable | None, seed: int) -> np.ndarray:
    """(budget,) the best so far over the best there is, after each measurement."""
    budget = max(OWN_BUDGETS) if table.name.startswith(OWN) else min(max(BUDGETS), len(table.rows))
    order = (
        SEARCHERS[name](table, budget, seed)
        if other is None
        else searchers.warm(table, budget, seed, other=other)
    )
    seconds = np.array(table.seconds)[order]
    return np.minimum.accumulate(np.where(np.isnan(seconds), np.inf, seconds)) / table.best
