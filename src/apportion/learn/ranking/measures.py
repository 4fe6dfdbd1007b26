"""How well scores rank configurations: the published measures, each with its rule for ties.

A score is high where a configuration is thought to be slow, as a runtime is. Counting pairs takes O(n log n).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.published.tpugraphs import COLLECTIONS
from apportion.errors import InvalidSetting
from apportion.learn.metrics import Interval


@dataclass(frozen=True)
class Agreement:
    """Pairs of configurations, counted by what runtimes and scores say of them."""

    concordant: int
    "Runtimes and scores put them in the same order."
    discordant: int
    "They put them in opposite orders."
    tied_scores: int
    "Runtimes differ and scores are equal."
    tied_runtimes: int
    "Runtimes are equal; scores may be."
    tied_both: int

    @property
    def pairs(self) -> int:
        """Pairs whose runtimes differ: those that can be ordered."""
        return self.concordant + self.discordant + self.tied_scores

    @property
    def opa(self) -> float:
        """Ordered pair accuracy: equal runtimes are left out, equal scores are wrong."""
        return self.concordant / self.pairs

    @property
    def tau_b(self) -> float:
        """Kendall's tau-b, which the publication averages over graphs; 0 where all scores are equal."""
        by_score = self.concordant + self.discordant + self.tied_runtimes - self.tied_both
        return self._lead / math.sqrt(self.pairs * by_score) if by_score else 0.0

    @property
    def gamma(self) -> float:
        """Goodman and Kruskal's gamma, where ties count for nothing; 0 where all scores are equal."""
        untied = self.concordant + self.discordant
        return self._lead / untied if untied else 0.0

    @property
    def _lead(self) -> int:
        return self.concordant - self.discordant


def agreement(runtime: NDArray[Any], score: NDArray[Any]) -> Agreement:
    """How the pairs of configurations agree.

    Raises:
        InvalidSetting: there is no pair whose runtimes differ, or the arrays are no rankings of one set.
    """
    runtime, score = _checked(runtime, score)
    labels = np.unique(runtime, return_inverse=True)[1].astype(np.int64)
    ranks = np.unique(score, return_inverse=True)[1].astype(np.int64)
    count = len(labels)
    pairs = count * (count - 1) // 2
    tied_runtimes, tied = _tied_pairs(labels), _tied_pairs(ranks)
    tied_both = _tied_pairs(labels * count + ranks)
    if pairs == tied_runtimes:
        raise InvalidSetting(f"All {count} configurations have the same runtime: there is nothing to rank")
    # Among equal runtimes scores ascend, so that only pairs with different runtimes are inverted.
    discordant = _inversions(ranks[np.lexsort((ranks, labels))])
    tied_scores = tied - tied_both
    concordant = pairs - tied_runtimes - tied_scores - discordant
    return Agreement(concordant, discordant, tied_scores, tied_runtimes, tied_both)


def slowdown(runtime: NDArray[Any], score: NDArray[Any], k: int) -> float:
    """How much slower the best of the k that score best is than the best of all: 0 is perfect."""
    runtime, score = _checked(runtime, score)
    if k < 1:
        raise InvalidSetting(f"The best of {k} configurations is none; k must be at least 1")
    return float(runtime[fastest_first(score)[:k]].min() / runtime.min()) - 1


def tile_score(runtime: NDArray[Any], score: NDArray[Any], k: int = 5) -> float:
    """The competition's score of a kernel: 1 less the slowdown of the best of k; 1 is perfect.

    Args:
        runtime: in terms of the default configuration's.
        score: one for each.
        k: how many configurations are tried.
    """
    return 1 - slowdown(runtime, score, k)


def fastest_first(score: NDArray[Any]) -> NDArray[np.int64]:
    """(C,) configurations in the order of their scores; equal scores in the order of their indices."""
    order: NDArray[np.int64] = np.argsort(score, kind="stable")
    return order


def over_graphs(values: Sequence[float], *, samples: int = 1000, seed: int = 0) -> Interval:
    """The mean of a measure over graphs, with the middle 95 % of what resampled graphs give."""
    return over_graphs_and_seeds([values], samples=samples, seed=seed)


def over_graphs_and_seeds(
    values: Sequence[Sequence[float]], *, samples: int = 1000, seed: int = 0
) -> Interval:
    """The mean of a measure (seeds × graphs), with the middle 95 % of what resampled seeds and graphs give.

    Raises:
        InvalidSetting: there is none, or the seeds are of different graphs.
    """
    if not len(values) or not len(values[0]):
        raise InvalidSetting("There is nothing to average: no graph was given")
    if len({len(row) for row in values}) > 1:
        raise InvalidSetting("Each seed must have ranked the same graphs")
    array = np.asarray(values, np.float64)
    random = np.random.default_rng(seed)
    seeds = random.integers(0, len(array), (samples, len(array)))
    graphs = random.integers(0, array.shape[1], (samples, array.shape[1]))
    drawn = array[seeds[:, :, None], graphs[:, None, :]].mean(axis=(1, 2))
    return Interval.resampled(array.mean(), drawn)


def competition_total(means: Mapping[str, float]) -> float:
    """The mean over the five collections: of tau-b for layouts, of the tile score for tiles.

    Raises:
        InvalidSetting: a collection is missing.
    """
    lacking = [name for name in COLLECTIONS if name not in means]
    if lacking:
        raise InvalidSetting(f"The competition's total needs all five collections; {lacking[0]} is missing")
    return float(np.mean([means[name] for name in COLLECTIONS]))


def _checked(runtime: NDArray[Any], score: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    runtime, score = np.asarray(runtime), np.asarray(score)
    if runtime.ndim != 1 or runtime.shape != score.shape:
        raise InvalidSetting(f"{score.shape} scores cannot rank {runtime.shape} runtimes")
    if len(runtime) < 2:
        raise InvalidSetting(f"Ranking needs at least two configurations, not {len(runtime)}")
    if np.isnan(score).any():
        raise InvalidSetting(f"The score of configuration {int(np.isnan(score).argmax())} is not a number")
    if not (runtime > 0).all():
        at = int((runtime <= 0).argmax())
        raise InvalidSetting(f"Configuration {at} has a runtime of {runtime[at]}: it was not measured")
    return runtime, score


def _tied_pairs(values: NDArray[np.int64]) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _inversions(values: NDArray[np.int64]) -> int:
    """Pairs i < j with values[i] > values[j], of values from 0 on.

    Two values first differ at some bit, counted from the highest. With the values sorted stably by what is
    above that bit, each 0 at the bit is inverted with the 1s before it that have the same bits above.
    """
    total = 0
    for bit in reversed(range(int(values.max()).bit_length())):
        above = values >> (bit + 1)
        ones = values >> bit & 1
        before = np.cumsum(ones) - ones
        starts = np.flatnonzero(np.concatenate([[True], above[1:] != above[:-1]]))
        sizes = np.diff(np.append(starts, len(values)))
        before -= np.repeat(before[starts], sizes)
        total += int(before[ones == 0].sum())
        values = values[np.argsort(values >> bit, kind="stable")]
    return total
