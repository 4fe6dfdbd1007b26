"""Searches to compare: each asks for configurations of a measured table and is told what each took.

Every one sees the same: the configurations that are valid, and what those that it asked for took, in
logarithms where it fits a model. Only different configurations count. What a peer asks for that is not valid
costs it nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random as plain_random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.learn.tuning.search import KnownTable, Search
from apportion.measure.space import key_of
from apportion.measure.tuning_table import TuningTable, write_cache

Order = NDArray[np.int64]
"(n,) configurations of a table, in the order in which they were measured."
Searcher = Callable[[TuningTable, int, int], Order]
"A table, a budget and a seed → the order."

_MOST_ASKED = 40
"How often a peer may ask for what is not valid, for each configuration of the budget."
KERNEL_TUNER = (
    "adaptive_tabu_greywolf", "basinhopping", "bayes_opt", "diff_evo", "dual_annealing", "firefly_algorithm",
    "genetic_algorithm", "greedy_ils", "greedy_mls", "hybrid_vndx", "minimize", "mls", "nsga2", "nsga3",
    "ordered_greedy_mls", "pso", "random_sample", "simulated_annealing",
)  # fmt: skip


def ours(table: TuningTable, budget: int, seed: int) -> Order:
    """The search of `apportion tune`."""
    return _searched(Search(table.space, seed=seed), table, budget)


def warm(table: TuningTable, budget: int, seed: int, *, other: TuningTable) -> Order:
    """The search of `apportion tune --warm-start`, with another GPU's table of the space."""
    search = Search(table.space, seed=seed, known=[KnownTable(other.configurations, other.seconds)])
    return _searched(search, table, budget)


def by_chance(table: TuningTable, budget: int, seed: int) -> Order:
    """Random search without replacement."""
    return np.random.default_rng(seed).permutation(len(table.rows))[:budget]


def tpe(table: TuningTable, budget: int, seed: int) -> Order:
    """Optuna's tree-structured Parzen estimator, over the places of values in their order."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    values, place = _codes(table)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    order: list[int] = []
    for _ in range(_MOST_ASKED * budget):
        if len(order) >= budget:
            break
        trial = study.ask()
        at = place.get(tuple(trial.suggest_int(name, 0, len(known) - 1) for name, known in values.items()))
        seconds = math.nan if at is None else table.seconds[at]
        if at is not None and at not in order:
            order.append(at)
        if math.isnan(seconds):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, math.log(seconds))
    return _filled(order, table, budget, seed)


def extra_trees(table: TuningTable, budget: int, seed: int) -> Order:
    """scikit-optimize's extra trees with expected improvement, over the valid configurations themselves.

    Ten at random, then what its acquisition likes best among 5,000 that were not measured. Given the list of
    valid configurations it does better than its own `ask`, which spends its candidates on invalid ones.
    """
    from skopt.acquisition import gaussian_ei
    from skopt.learning import ExtraTreesRegressor

    codes = np.array(list(_codes(table)[1]))
    random = np.random.default_rng(seed)
    order: list[int] = random.permutation(len(codes))[:10].tolist()
    while len(order) < budget:
        seconds = np.array([table.seconds[at] for at in order])
        worst = np.nanmax(seconds) if np.isfinite(seconds).any() else 1.0
        logs = np.log(np.where(np.isnan(seconds), worst, seconds))
        forest = ExtraTreesRegressor(
            n_estimators=100, min_samples_leaf=3, random_state=int(random.integers(2**31))
        )
        forest.fit(codes[order], logs)
        pool = np.setdiff1d(np.arange(len(codes)), order)
        pool = random.choice(pool, min(5_000, len(pool)), replace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gain = gaussian_ei(codes[pool], forest, y_opt=float(logs.min()), xi=0.01)
        order.append(int(pool[int(np.argmax(gain))]))
    return np.array(order[:budget])


def kernel_tuner(table: TuningTable, budget: int, seed: int, *, strategy: str) -> Order:
    """One of Kernel Tuner's strategies, in its simulation mode on a cache file of the table."""
    import kernel_tuner as package

    valid = {key_of(one): at for at, one in enumerate(table.configurations)}
    space = table.space
    names = list(space.values)

    def restricted(one: dict[str, Any]) -> bool:
        return key_of({name: one[name] for name in names}) in valid

    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache.json"
        write_cache(cache, table, space, device="measured", kernel=table.name)
        plain_random.seed(seed)
        np.random.seed(seed)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, _ = package.tune_kernel(
                table.name, "__global__ void kernel() {}", (1,), [np.zeros(1, np.float32)],
                {name: list(values) for name, values in space.values.items()},  # type: ignore[arg-type]
                lang="CUDA", restrictions=restricted, cache=str(cache), simulation_mode=True,
                strategy=strategy,
                strategy_options={"max_fevals": budget}, quiet=True,
            )  # fmt: skip
    order: list[int] = []
    for entry in found:
        at = valid[key_of({name: entry[name] for name in names})]
        if at not in order:
            order.append(at)
    return _filled(order, table, budget, seed)


def _searched(search: Search, table: TuningTable, budget: int) -> Order:
    place = {key_of(one): at for at, one in enumerate(table.configurations)}
    order = []
    for _ in range(min(budget, len(table.rows))):
        (one,) = search.ask()
        at = place[key_of(one)]
        order.append(at)
        search.tell(one, table.seconds[at])
    return np.array(order)


def _codes(table: TuningTable) -> tuple[dict[str, list[Any]], dict[tuple[int, ...], int]]:
    """Values of each parameter that has several, and where each combination stands in the table."""
    values = {name: list(known) for name, known in table.space.values.items() if len(known) > 1}  # type: ignore[arg-type]
    codes = {
        tuple(known.index(row.configuration[name]) for name, known in values.items()): at
        for at, row in enumerate(table.rows)
    }
    return values, codes


def _filled(order: list[int], table: TuningTable, budget: int, seed: int) -> Order:
    """What a peer measured; where it ended before its budget did, what chance adds."""
    rest = [at for at in by_chance(table, len(table.rows), seed).tolist() if at not in set(order)]
    return np.array((order + rest)[:budget])


def written(orders: dict[str, Any], path: Path) -> None:
    """Keep results as JSON, as a whole."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(orders))
    part.replace(path)
