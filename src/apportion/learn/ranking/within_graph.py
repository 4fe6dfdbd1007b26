"""Models of one graph's configurations, fitted to those that were measured; the best of them is taken.

Steps   Of the options that a node has, most cost the same: what matters is on which side of a border an
        option lies. A step is a set of options of one node, or such a set where an earlier step holds. Steps
        are found one at a time (orthogonal matching pursuit): options are put in the order of what they leave
        unexplained, cut where most is explained, and all steps are fitted again. The extended Bayesian
        information criterion says where to stop. Configurations that differ in no step get the same score.
Ridge   What each option of each node costs: `model.ridge`.
Smooth  Kernel ridge regression of the logarithm, for options that stand in an order, as tile sizes do.

C configurations, M configurable nodes or parameters, n measured configurations, S steps, P options in all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.learn.ranking.measures import agreement
from apportion.learn.ranking.ridge import OptionRidge

MOST_STEPS = 40
_PATIENCE = 4
"Steps that may fail to lower the criterion before the search ends."
_FOLDS = 6
_REACHES = (0.03, 0.1, 0.3, 1.0, 3.0)
"How far the smooth model looks, in terms of a whole parameter's range, to choose from."
_STRENGTHS = 10.0 ** np.arange(-6, 1.1, 0.5)


class ConfigurationModel(Protocol):
    """What gives configurations scores."""

    def predict(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """(C,) of configurations (C, M), low for fast."""
        ...


Fit = Callable[[NDArray[Any], NDArray[np.int64], NDArray[np.float64]], ConfigurationModel]
"Codes (n, M), option counts (M,) and runtimes (n,) → a model of them."


@dataclass(frozen=True, eq=False)
class Step:
    """A set of options of one node; with `base`, only where that step holds as well."""

    node: int
    member: NDArray[np.bool_]  # (options of the node,)
    base: Step | None = None

    def holds(self, codes: NDArray[Any]) -> NDArray[np.bool_]:
        """(C,): whether configurations (C, M) have one of the options."""
        found: NDArray[np.bool_] = self.member[codes[:, self.node]]
        return found if self.base is None else found & self.base.holds(codes)


@dataclass(frozen=True, eq=False)
class Steps:
    """What each step adds to the runtime."""

    steps: tuple[Step, ...]
    cost: NDArray[np.float64]  # (S,) in the unit of the runtimes
    intercept: float

    @classmethod
    def fit(cls, codes: NDArray[Any], option_counts: NDArray[np.int64], runtime: NDArray[np.float64]) -> Self:
        """The model of measured configurations (n, M)."""
        target = np.asarray(runtime, np.float64)
        count = len(target)
        # Options are put in order by the data, so that a step is chosen of all subsets: that has its price.
        price = np.log(count) + 2 * np.log(np.exp2(np.minimum(option_counts, 64) - 1.0).sum())
        floor = count * np.finfo(np.float64).eps * float(target @ target)
        steps: list[Step] = []
        columns = np.ones((count, 1))
        best: tuple[float, int, NDArray[np.float64]] = (np.inf, 0, np.zeros(1))
        while True:
            cost: NDArray[np.float64] = np.linalg.lstsq(columns, target, rcond=None)[0].astype(np.float64)
            residual = target - columns @ cost
            criterion = count * np.log(max(float(residual @ residual), floor) / count) + len(steps) * price
            if criterion < best[0]:
                best = (criterion, len(steps), cost)
            if len(steps) >= min(MOST_STEPS, count // 2) or len(steps) - best[1] >= _PATIENCE:
                break
            step = _best_step(codes, option_counts, residual, steps)
            if step is None:
                break
            steps.append(step)
            columns = np.column_stack([columns, step.holds(codes)])
        _, kept, cost = best
        return cls(tuple(steps[:kept]), cost[1:], float(cost[0]))

    def predict(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """(C,) the runtimes of configurations (C, M)."""
        scores = np.full(len(codes), self.intercept)
        for step, cost in zip(self.steps, self.cost, strict=True):
            scores[step.holds(codes)] += cost
        return scores


def _best_step(
    codes: NDArray[Any], option_counts: NDArray[np.int64], residual: NDArray[np.float64], steps: list[Step]
) -> Step | None:
    """The candidate that explains most of the residual; None when none explains anything."""
    best_gain, best = 1e-12 * float(residual @ residual), None
    for base in (None, *(step for step in steps if step.base is None)):
        where = slice(None) if base is None else base.holds(codes)
        part, left = codes[where], residual[where]
        for node, count in enumerate(option_counts.tolist()):
            if base is not None and node == base.node:
                continue
            sums = np.bincount(part[:, node], left, minlength=count)
            seen = np.bincount(part[:, node], minlength=count)
            there = np.flatnonzero(seen)
            if len(there) < 2:
                continue
            order = there[np.argsort(sums[there] / seen[there], kind="stable")]
            low, many = np.cumsum(sums[order])[:-1], np.cumsum(seen[order])[:-1]
            high, rest = sums.sum() - low, len(left) - many
            gain = np.maximum(low**2 / many, high**2 / rest)
            if base is None:
                gain = low**2 / many + high**2 / rest - sums.sum() ** 2 / len(left)
            place = int(np.argmax(gain))
            if gain[place] > best_gain:
                member = np.zeros(count, np.bool_)
                # The rarer side is the step, so that options never seen lie on the other.
                rare = many[place] <= rest[place]
                if base is not None:
                    rare = low[place] ** 2 / many[place] >= high[place] ** 2 / rest[place]
                member[order[: place + 1] if rare else order[place + 1 :]] = True
                best_gain, best = float(gain[place]), Step(node, member, base)
    return best


@dataclass(frozen=True, eq=False)
class Smooth:
    """Runtimes that change little between options that stand next to each other."""

    measured: NDArray[np.float64]  # (n, M): places of the options, from 0 to 1
    weight: NDArray[np.float64]  # (n,)
    ranges: NDArray[np.float64]  # (M,): options less one
    reach: float
    mean: float

    @classmethod
    def fit(cls, codes: NDArray[Any], option_counts: NDArray[np.int64], runtime: NDArray[np.float64]) -> Self:
        """The model of measured configurations (n, M)."""
        ranges = np.maximum(option_counts - 1, 1).astype(np.float64)
        places = codes / ranges
        target = np.log(np.asarray(runtime, np.float64))
        mean = float(target.mean())
        far = _distances(places, places)
        best: tuple[float, float, NDArray[np.float64]] | None = None
        for reach in _REACHES:
            values, vectors = np.linalg.eigh(np.exp(-far / reach / codes.shape[1]))
            turned = vectors.T @ (target - mean)
            for strength in _STRENGTHS:
                kept = np.maximum(values, 0) / (np.maximum(values, 0) + strength)
                left_out = vectors @ (turned * (1 - kept)) / np.maximum(1 - (vectors**2) @ kept, 1e-9)
                error = float(left_out @ left_out)
                if best is None or error < best[0]:
                    best = (error, reach, vectors @ (turned / (np.maximum(values, 0) + strength)))
        assert best is not None
        return cls(places, best[2], ranges, best[1], mean)

    def predict(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """(C,) the runtimes of configurations (C, M)."""
        scores = np.empty(len(codes))
        for first in range(0, len(codes), 4096):
            far = _distances(codes[first : first + 4096] / self.ranges, self.measured)
            scores[first : first + 4096] = np.exp(-far / self.reach / codes.shape[1]) @ self.weight
        return np.exp(scores + self.mean)


def _distances(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """(len(a), len(b)): how far apart, summed over parameters."""
    far = np.zeros((len(a), len(b)))
    for one, other in zip(a.T, b.T, strict=True):
        far += np.abs(one[:, None] - other[None, :])
    return far


FITS: dict[str, Fit] = {"steps": Steps.fit, "ridge": OptionRidge.fit, "smooth": Smooth.fit}
"The simplest first."


@dataclass(frozen=True, eq=False)
class WithinGraph:
    """The simplest model that orders configurations, which it was not fitted to, about as well as any."""

    kind: str
    "One of `FITS`."
    model: ConfigurationModel
    tau_b: float
    "Of configurations left out, when it was chosen; NaN when there were too few to choose."

    @classmethod
    def fit(
        cls, codes: NDArray[Any], option_counts: NDArray[np.int64], runtime: NDArray[Any], *,
        ordered: bool = False, seed: int = 0,
    ) -> Self:  # fmt: skip
        """The model of measured configurations (n, M).

        Args:
            codes: the options that each node has.
            option_counts: (M,) how many there are.
            runtime: (n,) in any unit.
            ordered: whether options stand in an order, as tile sizes do.
            seed: draws the folds.

        Raises:
            InvalidSetting: there are fewer than two, or one was not measured.
        """
        target = np.asarray(runtime, np.float64)
        if len(codes) != len(target) or len(codes) < 2:
            raise InvalidSetting(
                f"Fitting needs a runtime for each of two or more configurations, not {len(codes)}"
            )
        if not (target > 0).all():
            raise InvalidSetting("A runtime of zero or less was not measured; leave that configuration out")
        kinds = [kind for kind in FITS if ordered or kind != "smooth"]
        if len(target) < 3 * _FOLDS or np.ptp(target) == 0:
            kind = "smooth" if ordered else "ridge"
            return cls(kind, FITS[kind](codes, option_counts, target), float("nan"))
        taus = {kind: _left_out_taus(FITS[kind], codes, option_counts, target, seed) for kind in kinds}
        best = max(kinds, key=lambda kind: taus[kind].mean())
        least = taus[best].mean() - taus[best].std(ddof=1) / np.sqrt(_FOLDS)  # the rule of one standard error
        kind = next(kind for kind in kinds if taus[kind].mean() >= least)
        return cls(kind, FITS[kind](codes, option_counts, target), float(taus[kind].mean()))

    def predict(self, codes: NDArray[Any]) -> NDArray[np.float64]:
        """(C,) of configurations (C, M), low for fast."""
        return self.model.predict(codes)


def _left_out_taus(
    fit: Fit, codes: NDArray[Any], option_counts: NDArray[np.int64], target: NDArray[np.float64], seed: int
) -> NDArray[np.float64]:
    """(folds,): how well a model orders each fold when it is fitted to the others."""
    taus = []
    for part in np.array_split(np.random.default_rng(seed).permutation(len(target)), _FOLDS):
        rest = np.ones(len(target), np.bool_)
        rest[part] = False
        if np.ptp(target[part]) == 0:
            taus.append(0.0)
            continue
        scores = fit(codes[rest], option_counts, target[rest]).predict(codes[part])
        taus.append(agreement(target[part], scores).tau_b)
    return np.array(taus)
