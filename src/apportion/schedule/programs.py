"""The linear programs of scheduling: shares of systems that are fair, long or short of makespan.

Jobs are rows (n), systems columns (S). `rate` is a job's speed on a system in units of its own; 0: it
cannot run. Jobs that are alike are one row where a program allows it, and share evenly what that row gets:
a program then has as many rows as there are kinds of jobs, however long the queue is. Optima are far from
unique, and solvers find different ones. Every program here is solved by HiGHS' dual simplex with rows in
the order of the jobs; where a program asks for it, the least total share is taken among equal optima.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, linprog  # type: ignore[import-untyped]
from scipy.sparse import coo_array, csr_array  # type: ignore[import-untyped]

from apportion.errors import JobError
from apportion.schedule.trace import Floats, Integers

KEPT = 1 - 1e-9
"Of an optimum, when a second goal is sought among points that reach it."
MOST_EXACT = 4000
"Jobs up to which a bound on the makespan is the program's optimum; beyond, it is found by prices."


class UnsolvedProgram(JobError):
    """A linear program that the solver did not solve."""


def said_of(failures: int) -> tuple[str, ...]:
    """What a schedule notes of programs that were not solved; nothing where all were."""
    times = "once" if failures == 1 else f"{failures} times"
    return (f"the solver gave up {times}; the last shares were kept",) if failures else ()


@dataclass(frozen=True, eq=False)
class Shares:
    """A solved program: the share of its time that each job spends on each system, and the optimum."""

    share: Floats  # (n, S)
    optimum: float


@dataclass(frozen=True, eq=False)
class _Capacity:
    """What every program has: variables for pairs that can be, each job's time, each system's slots."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    matrix: csr_array  # (n + S, variables)
    bound: Floats  # (n + S,)


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Jobs that are alike, in the order in which each kind first comes."""

    first: Integers  # (k,): a job of each kind
    count: Integers  # (k,)
    of_job: Integers  # (n,): into the kinds

    @classmethod
    def of(cls, *columns: Floats | Integers) -> _Kinds:
        """Jobs whose rows are equal in all columns."""
        _, first, kind, count = np.unique(
            np.column_stack(columns), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(first[order], count[order], place[kind.ravel()])


def _capacity(able: NDArray[np.bool_], width: Integers, slots: Integers) -> _Capacity:
    row, column = np.nonzero(able)
    count, systems = able.shape
    variable = np.arange(len(row))
    matrix = coo_array(
        (
            np.concatenate([np.ones(len(row)), width[row].astype(float)]),
            (np.concatenate([row, count + column]), np.concatenate([variable, variable])),
        ),
        shape=(count + systems, len(row)),
    ).tocsr()
    return _Capacity(row, column, matrix, np.concatenate([np.ones(count), slots.astype(float)]))


def largest_least(rate: Floats, width: Integers, slots: Integers, *, then: Floats | None = None) -> Shares:
    """Maximise the least over jobs of Σ rate · x: with rates normalised, max-min fairness.

    Args:
        then: (n, S): among the optima, take one with the largest Σ then · x.
    """
    kinds = _Kinds.of(rate, width) if then is None else _Kinds.of(rate, width, then)
    then = None if then is None else then[kinds.first] * kinds.count[:, None]
    rate, width = rate[kinds.first], width[kinds.first] * kinds.count
    able = rate > 0
    capacity = _capacity(able, width, slots)
    count = len(rate)
    gain = coo_array(
        (-rate[able], (capacity.row, np.arange(len(capacity.row)))), shape=(count, len(capacity.row))
    )
    matrix = _beside(
        _stacked(capacity.matrix, gain), np.concatenate([np.zeros(len(capacity.bound)), np.ones(count)])
    )
    bound = np.concatenate([capacity.bound, np.zeros(count)])
    cost = np.concatenate([np.zeros(len(capacity.row)), [-1.0]])
    solved = _solved(cost, matrix, bound)
    optimum = -float(solved.fun)
    if then is not None:
        solved = _solved(np.append(-then[able], 0.0), matrix, bound, least=optimum * KEPT)
    return Shares(_spread(solved.x, capacity, able.shape)[kinds.of_job], optimum)


def largest_sum(rate: Floats, width: Integers, slots: Integers) -> Shares:
    """Maximise Σ rate · x over all jobs."""
    kinds = _Kinds.of(rate, width)
    rate, width = rate[kinds.first] * kinds.count[:, None], width[kinds.first] * kinds.count
    able = rate > 0
    capacity = _capacity(able, width, slots)
    solved = _solved(-rate[able], capacity.matrix, capacity.bound)
    return Shares(_spread(solved.x, capacity, able.shape)[kinds.of_job], -float(solved.fun))


def least_makespan(
    seconds: Floats, width: Integers, slots: Integers, *, then: Floats | None = None
) -> Shares:
    """Minimise the time in which every job can be done, if it may move and share: no schedule is shorter.

    Args:
        seconds: (n, S) that a job takes alone; infinite where it cannot run.
        then: (n, S): among the optima, take one with the largest Σ then · x.
    """
    able = np.isfinite(seconds)
    capacity = _capacity(able, width, slots)
    count = len(seconds)
    # With y = x · D it is one program: seconds y of each system given to each job, in units near 1.
    unit = float(np.where(able, seconds, np.inf).min(axis=1).max())
    work = coo_array(
        (-unit / seconds[able], (capacity.row, np.arange(len(capacity.row)))),
        shape=(count, len(capacity.row)),
    )
    matrix = _beside(_stacked(capacity.matrix, work), np.concatenate([-capacity.bound, np.zeros(count)]))
    bound = np.concatenate([np.zeros(len(capacity.bound)), -np.ones(count)])
    cost = np.concatenate([np.zeros(len(capacity.row)), [1.0]])
    solved = _solved(cost, matrix, bound)
    least = float(solved.fun)
    if then is not None:
        solved = _solved(np.append(-then[able], 0.0), matrix, bound, most=least / KEPT)
    return Shares(_spread(solved.x, capacity, able.shape) / least, least * unit)


def makespan_bound(seconds: Floats, width: Integers, slots: Integers) -> float:
    """The optimum of `least_makespan`; for more jobs than that can take, a bound that is nearly as good.

    For any prices of slots, no schedule is shorter than the cheapest way to do all work; prices are
    improved by cutting planes. The longest job alone is a bound as well.
    """
    if len(seconds) <= MOST_EXACT:
        return least_makespan(seconds, width, slots).optimum
    least = np.where(np.isfinite(seconds), seconds, np.inf).min(axis=1)
    cost = width[:, None] * seconds
    best = float(least.max())
    systems = len(slots)
    price = np.full(systems, 1.0 / slots.sum())
    cuts: list[Any] = []
    for _ in range(60):
        chosen = (cost * price).argmin(axis=1)
        load = np.bincount(chosen, weights=cost[np.arange(len(cost)), chosen], minlength=systems)
        best = max(best, float(price @ load))
        cuts.append(load)
        goal = np.concatenate([np.zeros(systems), [-1.0]])
        matrix = np.concatenate([-np.array(cuts), np.ones((len(cuts), 1))], axis=1)
        solved = linprog(
            goal, A_ub=matrix, b_ub=np.zeros(len(cuts)), A_eq=[[*slots.astype(float), 0.0]], b_eq=[1.0],
            bounds=[(0, None)] * systems + [(None, None)], method="highs-ds",
        )  # fmt: skip
        if not solved.success or -solved.fun <= best * (1 + 1e-6):
            break
        price = 0.5 * price + 0.5 * solved.x[:systems]
    return best


def shortest_lateness(
    rate: Floats, left: Floats, age: Floats, alone: Floats, width: Integers, slots: Integers
) -> Shares:
    """Minimise the largest over jobs of (age + left / Σ rate · x) / alone: finish-time fairness.

    For a ratio, each job needs a speed; whether speeds can all be had is a linear program. Its answer, how
    much of them, gives the next ratio: this is Newton's method on a convex function, and ends after a few
    programs.
    """
    able = rate > 0
    fastest = rate.max(axis=1)
    ratio = float(((age + left / fastest) / alone).max()) * (1 + 1e-9)
    best: Shares | None = None
    low, high = ratio, np.inf
    for _ in range(60):
        needed = left / (ratio * alone - age)
        found = largest_least(rate / needed[:, None] * able, width, slots)
        speed = (rate * found.share).sum(axis=1)
        reached = float(((age + left / np.maximum(speed, 1e-300)) / alone).max())
        if reached < high:
            high, best = reached, Shares(found.share, reached)
        if found.optimum >= 1 - 1e-7:
            high = min(high, ratio)
        else:
            low = max(low, ratio)
        if high <= low * (1 + 1e-6) or (found.optimum >= 1 - 1e-7 and ratio <= low * (1 + 1e-9)):
            break
        # Had every job its speed times the optimum, the largest ratio would be this.
        scaled = float(((age + left / (needed * found.optimum)) / alone).max())
        ratio = scaled if low < scaled < high else (low + high) / 2
    assert best is not None
    needed = left / (best.optimum / KEPT * alone - age)
    full = largest_least(rate / needed[:, None] * able, width, slots, then=spare_share(rate))
    return Shares(full.share, best.optimum)


def spare_share(rate: Floats) -> Floats:  # (n, S)
    """What a share is worth beyond what a program demands: its speed in parts of the job's best."""
    return np.asarray(rate / rate.max(axis=1, keepdims=True))


def _stacked(upper: csr_array, lower: coo_array) -> coo_array:
    above = upper.tocoo()
    return coo_array(
        (
            np.concatenate([above.data, lower.data]),
            (
                np.concatenate([above.coords[0], lower.coords[0] + upper.shape[0]]),
                np.concatenate([above.coords[1], lower.coords[1]]),
            ),
        ),
        shape=(upper.shape[0] + lower.shape[0], upper.shape[1]),
    )


def _beside(matrix: coo_array, last: Floats) -> csr_array:
    """The matrix with one more column."""
    rows = np.flatnonzero(last)
    return coo_array(
        (
            np.concatenate([matrix.data, last[rows]]),
            (
                np.concatenate([matrix.coords[0], rows]),
                np.concatenate([matrix.coords[1], np.full(len(rows), matrix.shape[1])]),
            ),
        ),
        shape=(matrix.shape[0], matrix.shape[1] + 1),
    ).tocsr()


def _solved(
    cost: Floats, matrix: csr_array, bound: Floats, *, least: float = 0.0, most: float = np.inf
) -> OptimizeResult:
    """All variables are at least 0; the last lies between `least` and `most`."""
    bounds: Any = np.zeros((len(cost), 2))
    bounds[:, 1] = np.inf
    bounds[-1] = least, most
    solved = linprog(cost, A_ub=matrix, b_ub=bound, bounds=bounds, method="highs-ds")
    if solved.status != 0 or solved.x is None:
        raise UnsolvedProgram(f"The solver gave up on a program of {matrix.shape[0]} rows: {solved.message}")
    return solved


def _spread(values: Floats, capacity: _Capacity, shape: tuple[int, int]) -> Floats:
    share = np.zeros(shape)
    share[capacity.row, capacity.column] = np.maximum(values[: len(capacity.row)], 0)
    return share
