"""Measure a few, rank the rest: a linear model of one graph's configurations, fitted to some of them.

Each configurable node adds to the runtime what the option that it has costs. The costs come from ridge
regression on the options as indicators; how strongly they are held back is chosen by the error on each
measured configuration when it is left out. Nothing is learned from other graphs.

C configurations, M configurable nodes, n measured configurations, P options of all nodes together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting
from apportion.learn.ranking.ranker import Untaught, UntaughtSettings

STRENGTHS = 10.0 ** np.arange(-7, 3)
"Penalties to choose from, in terms of the mean square of a centred row of indicators."

_CHUNK = 65_536
"Configurations whose indicators are looked up at once."


@dataclass(frozen=True, eq=False)
class OptionRidge:
    """What each option of each node adds to the runtime."""

    offsets: NDArray[np.int64]  # (M,): where each node's options begin
    cost: NDArray[np.float64]  # (P,) in the unit of the runtimes
    intercept: float
    strength: float
    "The penalty that was chosen of `STRENGTHS`."
    measured: NDArray[Any]  # (n, M): the codes that it was fitted to

    @classmethod
    def fit(cls, codes: NDArray[Any], option_counts: NDArray[np.int64], runtime: NDArray[Any]) -> Self:
        """The model of these measured configurations (n, M).

        Raises:
            InvalidSetting: there are fewer than two, or one was not measured.
        """
        if len(codes) != len(runtime) or len(codes) < 2:
            raise InvalidSetting(
                f"Fitting needs a runtime for each of two or more configurations, not {len(codes)}"
            )
        if not (np.asarray(runtime) > 0).all():
            raise InvalidSetting("A runtime of zero or less was not measured; leave that configuration out")
        offsets = np.concatenate([[0], np.cumsum(option_counts)[:-1]]).astype(np.int64)
        target = np.asarray(runtime, np.float64)
        mean = float(target.mean())
        rows = _indicators(codes, offsets, int(option_counts.sum()))
        centre = rows.mean(axis=0)
        rows -= centre
        gram = rows @ rows.T
        scale = max(float(np.trace(gram)) / len(codes), np.finfo(np.float64).tiny)
        values, vectors = np.linalg.eigh(gram / scale)
        values = np.maximum(values, 0)
        turned = vectors.T @ (target - mean)
        errors = [_left_out_error(values, vectors, turned, strength) for strength in STRENGTHS]
        strength = float(STRENGTHS[int(np.argmin(errors))])
        cost = rows.T @ (vectors @ (turned / (values + strength))) / scale
        return cls(offsets, cost, mean - float(centre @ cost), strength, np.array(codes))

    def predict(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """(C,) the runtimes of configurations (C, M)."""
        scores = np.empty(len(codes))
        for first in range(0, len(codes), _CHUNK):
            part = codes[first : first + _CHUNK]
            scores[first : first + _CHUNK] = self.cost[self.offsets + part].sum(axis=1)
        return scores + self.intercept

    def most_uncertain(self, codes: NDArray[Any], count: int) -> NDArray[np.int64]:
        """Which `count` of configurations (C, M) to measure next, each the least certain after the last.

        The variance of a prediction does not depend on runtimes, so that a whole batch can be chosen at once.
        """
        pool, known = np.asarray(codes), self.measured
        scale = pool.shape[1]
        noise = max(self.strength, 1e-6)
        # Prior covariance of two configurations: how many nodes have the same option in both.
        across = _matches(pool, known) / scale
        root = np.linalg.cholesky(_matches(known, known) / scale + noise * np.eye(len(known)))
        explained = np.linalg.solve(root, across.T).T  # (C, n)
        variance = 1 - (explained**2).sum(axis=1)
        columns = np.zeros((len(pool), count))
        chosen = np.empty(count, np.int64)
        for place in range(count):
            best = int(np.argmax(variance))
            chosen[place] = best
            covariance = _matches(pool, pool[best : best + 1])[:, 0] / scale
            covariance -= explained @ explained[best] + columns[:, :place] @ columns[best, :place]
            columns[:, place] = covariance / np.sqrt(max(variance[best], 0) + noise)
            variance = variance - columns[:, place] ** 2
            variance[best] = -np.inf
        return chosen


@dataclass(frozen=True)
class TuningPlan:
    """How a budget of measurements is spent."""

    budget: int
    "Configurations that are measured in all."
    random_share: float = 0.5
    "The part drawn at random; what neither share takes goes where predictions are least certain."
    check_share: float = 0.1
    "The part kept for the configurations that are predicted to be the fastest."
    rounds: int = 2
    "How often the model is fitted again while choosing."
    pool: int = 2_000
    "Configurations, drawn at random, among which the least certain are looked for."

    def __post_init__(self) -> None:
        if self.budget < 4:
            raise InvalidSetting(f"budget must be at least 4 measurements, not {self.budget}")
        if min(self.random_share, self.check_share) < 0 or self.random_share + self.check_share > 1:
            raise InvalidSetting("random_share and check_share must not be negative, nor above 1 together")
        for name in ("rounds", "pool"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning found."""

    model: OptionRidge
    measured: NDArray[np.int64]  # (n,): configurations, in the order in which they were measured
    runtime: NDArray[np.float64]  # (n,)
    scores: NDArray[np.float64]  # (C,): predicted runtimes

    @property
    def best(self) -> int:
        """The fastest configuration that was measured."""
        return int(self.measured[int(np.argmin(self.runtime))])


def tune(
    codes: NDArray[Any],
    option_counts: NDArray[np.int64],
    measure: Callable[[NDArray[np.int64]], NDArray[Any]],
    plan: TuningPlan,
    *,
    seed: int = 0,
) -> Tuned:
    """Measure some of the configurations (C, M), rank them all, and find the best.

    Args:
        codes: all configurations that may be measured, each once.
        option_counts: (M,) how many options each node has.
        measure: the runtimes of configurations, by their indices.
        plan: how many are measured, and how they are chosen.
        seed: draws the first ones.
    """
    count = min(plan.budget, len(codes))
    random = np.random.default_rng(seed)
    checked = min(int(plan.check_share * count), count - 2)
    first = min(max(2, round(plan.random_share * count)), count - checked)
    taken = random.choice(len(codes), first, replace=False)
    runtime = np.asarray(measure(taken), np.float64)
    model = OptionRidge.fit(codes[taken], option_counts, runtime)
    steps = np.array_split(np.arange(count - checked - first), plan.rounds)
    for batch in [len(step) for step in steps if len(step)]:
        pool = _others(len(codes), taken)
        pool = random.choice(pool, max(batch, min(plan.pool, len(pool))), replace=False)
        chosen = pool[model.most_uncertain(codes[pool], batch)]
        taken, runtime, model = _measured(codes, option_counts, measure, taken, runtime, chosen)
    if checked:
        pool = _others(len(codes), taken)
        chosen = pool[np.argsort(model.predict(codes[pool]), kind="stable")[:checked]]
        taken, runtime, model = _measured(codes, option_counts, measure, taken, runtime, chosen)
    return Tuned(model, taken, runtime, model.predict(codes))


@dataclass(frozen=True)
class RankingRidgeSettings(UntaughtSettings):
    """How many configurations of a graph are measured before the others are ranked."""

    measured: int = 100


class RidgeRanker(Untaught):
    """Ranks a graph after measuring some of its own configurations; other graphs teach it nothing."""

    name = "ridge"
    settings_type = RankingRidgeSettings
    validated = 10_000
    settings: RankingRidgeSettings

    def scores(self, graph: ConfiguredGraph) -> NDArray[np.float64]:
        """(C,) after looking at the runtimes of the measured configurations, and of no others.

        Raises:
            InvalidSetting: its configurations are tiles, or its runtimes are not known.
        """
        if "node_config_ids" not in graph.arrays:
            raise InvalidSetting(
                "Tiles have no options that configurations share; rank layout graphs by ridge"
            )
        truth, plan = graph.truth, TuningPlan(self.settings.measured)
        codes = np.asarray(graph.codes)
        return tune(codes, graph.option_counts, lambda i: truth[i], plan, seed=self.settings.seed).scores


def _measured(
    codes: NDArray[Any],
    option_counts: NDArray[np.int64],
    measure: Callable[[NDArray[np.int64]], NDArray[Any]],
    taken: NDArray[np.int64],
    runtime: NDArray[np.float64],
    chosen: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], OptionRidge]:
    taken = np.concatenate([taken, chosen])
    runtime = np.concatenate([runtime, np.asarray(measure(chosen), np.float64)])
    return taken, runtime, OptionRidge.fit(codes[taken], option_counts, runtime)


def _others(count: int, taken: NDArray[np.int64]) -> NDArray[np.int64]:
    free = np.ones(count, np.bool_)
    free[taken] = False
    return np.flatnonzero(free)


def _indicators(codes: NDArray[Any], offsets: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    rows = np.zeros((len(codes), width))
    rows[np.arange(len(codes))[:, None], offsets + codes] = 1
    return rows


def _matches(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """(len(a), len(b)): at how many nodes two configurations have the same option."""
    same = np.zeros((len(a), len(b)))
    for node in range(a.shape[1]):
        same += a[:, node, None] == b[None, :, node]
    return same


def _left_out_error(
    values: NDArray[np.float64], vectors: NDArray[np.float64], turned: NDArray[np.float64], strength: float
) -> float:
    """The mean square error of each measured configuration when the others predict it."""
    kept = values / (values + strength)
    residual = vectors @ (turned * (1 - kept))
    leverage = (vectors**2) @ kept + 1 / len(vectors)  # the mean is fitted, too
    return float(np.mean((residual / np.maximum(1 - leverage, 1e-9)) ** 2))
