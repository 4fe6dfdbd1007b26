"""Measure a few, rank the rest: which configurations to measure, and what they say of the others.

The first are drawn at random, the next are those whose predictions are least certain, the last those that
are predicted to be the fastest, in a few rounds. A configuration that cannot be run counts as measured and is
left out of the model.

C configurations, M configurable nodes or parameters, n measured configurations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.learn.ranking.ridge import OptionRidge, TuningPlan
from apportion.learn.ranking.within_graph import FITS, WithinGraph

Measure = Callable[[NDArray[np.int64]], NDArray[Any]]
"Indices of configurations (B,) → their runtimes (B,); NaN or infinity for one that cannot be run."

_CHECK_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class TunedGraph:
    """What tuning found."""

    model: WithinGraph
    measured: NDArray[np.int64]  # (n,): configurations, in the order in which they were measured
    runtime: NDArray[np.float64]  # (n,); NaN for those that failed
    scores: NDArray[np.float64]  # (C,): predicted runtimes; equal where the model sees no difference
    tie_break: NDArray[np.float64]
    "(C,): the ridge model's, for an order among equal scores."

    @property
    def best(self) -> int:
        """The fastest configuration that was measured."""
        return int(self.measured[int(np.nanargmin(self.runtime))])


def tune_graph(
    codes: NDArray[Any],
    option_counts: NDArray[np.int64],
    measure: Measure,
    plan: TuningPlan,
    *,
    ordered: bool = False,
    seed: int = 0,
) -> TunedGraph:
    """Measure some of the configurations (C, M), rank them all, and find the best.

    Args:
        codes: all configurations that may be measured, each once.
        option_counts: (M,) how many options each node has.
        measure: runtimes of configurations, by their indices.
        plan: how many are measured, and how they are chosen.
        ordered: whether options stand in an order, as tile sizes do.
        seed: draws the first ones.

    Raises:
        InvalidSetting: fewer than two of the configurations could be run.
    """
    count = min(plan.budget, len(codes))
    random = np.random.default_rng(seed)
    checked = min(int(plan.check_share * count), count - 2)
    first = min(max(2, round(plan.random_share * count)), count - checked)
    state = _Measured(codes, option_counts, measure)
    state.add(random.choice(len(codes), first, replace=False))
    while state.runnable < 2 and len(state.taken) < count:
        state.add(random.choice(state.others(), 1))
    checked = min(checked, count - len(state.taken))
    steps = np.array_split(np.arange(count - checked - len(state.taken)), plan.rounds)
    for batch in [len(step) for step in steps if len(step)]:
        pool = state.others()
        pool = random.choice(pool, max(batch, min(plan.pool, len(pool))), replace=False)
        state.add(pool[state.ridge().most_uncertain(codes[pool], batch)])
    taken, runtime = state.valid()
    model = WithinGraph.fit(codes[taken], option_counts, runtime, ordered=ordered, seed=seed)
    for batch in [len(step) for step in np.array_split(np.arange(checked), _CHECK_ROUNDS) if len(step)]:
        pool, ridge = state.others(), state.ridge()
        fastest = np.lexsort((ridge.predict(codes[pool]), model.predict(codes[pool])))
        state.add(pool[fastest[:batch]])
        taken, runtime = state.valid()
        model = WithinGraph(model.kind, FITS[model.kind](codes[taken], option_counts, runtime), model.tau_b)
    return TunedGraph(
        model, state.taken, state.runtime, model.predict(codes), state.ridge().predict(codes)
    )  # fmt: skip


class _Measured:
    """What was measured so far."""

    def __init__(self, codes: NDArray[Any], option_counts: NDArray[np.int64], measure: Measure) -> None:
        self._codes, self._option_counts, self._measure = codes, option_counts, measure
        self.taken = np.zeros(0, np.int64)
        self.runtime = np.zeros(0)

    def add(self, chosen: NDArray[np.int64]) -> None:
        """Measure these."""
        self.taken = np.concatenate([self.taken, chosen])
        self.runtime = np.concatenate([self.runtime, np.asarray(self._measure(chosen), np.float64)])

    @property
    def runnable(self) -> int:
        """How many could be run."""
        return int(np.isfinite(self.runtime).sum())

    def valid(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Those that could be run."""
        good = np.isfinite(self.runtime)
        if self.runnable < 2:
            raise InvalidSetting(
                f"{self.runnable} of the {len(good)} configurations that were tried could be run: "
                "nothing can be learned from them"
            )
        return self.taken[good], self.runtime[good]

    def ridge(self) -> OptionRidge:
        """The linear model of them."""
        taken, runtime = self.valid()
        return OptionRidge.fit(self._codes[taken], self._option_counts, runtime)

    def others(self) -> NDArray[np.int64]:
        """Configurations that were not measured."""
        free = np.ones(len(self._codes), np.bool_)
        free[self.taken] = False
        return np.flatnonzero(free)
