"""The published measures of a ranking, each with its rule for ties."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.published.tpugraphs import COLLECTIONS
from apportion.errors import InvalidSetting
from apportion.learn.metrics import Interval
from apportion.learn.ranking.measures import (
    Agreement,
    agreement,
    competition_total,
    fastest_first,
    over_graphs,
    slowdown,
    tile_score,
)

RUNTIME = np.array([10, 20, 20, 40])
SCORE = np.array([1, 3, 2, 2])


def test_pairs_are_counted_by_what_runtimes_and_scores_say():
    # (10,20a) (10,20b) (10,40) agree; (20a,40) does not; (20b,40) has equal scores; (20a,20b) equal runtimes.
    assert agreement(RUNTIME, SCORE) == Agreement(3, 1, tied_scores=1, tied_runtimes=1, tied_both=0)


def test_equal_scores_are_wrong_in_opa_and_nothing_in_gamma():
    pairs = agreement(RUNTIME, SCORE)
    assert pairs.opa == 3 / 5
    assert pairs.gamma == 2 / 4
    assert pairs.tau_b == pytest.approx(2 / math.sqrt(5 * 5))
    assert pairs.pairs == 5


def test_a_constant_score_orders_nothing():
    pairs = agreement(np.array([1, 2, 3]), np.zeros(3))
    assert (pairs.opa, pairs.tau_b, pairs.gamma, pairs.tied_scores) == (0, 0, 0, 3)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-4, 4)), min_size=2, max_size=40))
def test_counting_fast_gives_what_counting_every_pair_gives(rows):
    runtime, score = np.array(rows).T
    ordered = [(i, j) for i in range(len(rows)) for j in range(len(rows)) if runtime[i] > runtime[j]]
    if not ordered:
        with pytest.raises(InvalidSetting, match="the same runtime: there is nothing to rank"):
            agreement(runtime, score)
        return
    pairs = agreement(runtime, score)
    assert pairs.pairs == len(ordered)
    assert pairs.concordant == sum(score[i] > score[j] for i, j in ordered)
    assert pairs.discordant == sum(score[i] < score[j] for i, j in ordered)


def test_tau_is_that_of_scipy_on_many_configurations():
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    runtime = random.integers(1, 400, 5_000)
    score = np.round(runtime + random.normal(0, 100, 5_000), -1)
    assert agreement(runtime, score).tau_b == pytest.approx(
        stats.kendalltau(runtime, score).statistic, abs=1e-12
    )


def test_a_hundred_thousand_configurations_take_seconds_at_most():
    random = np.random.default_rng(0)
    begin = time.process_time()
    pairs = agreement(random.integers(1, 10**9, 100_000), random.random(100_000))
    assert time.process_time() - begin < 5
    assert pairs.opa == pytest.approx(0.5, abs=0.01)


def test_large_runtimes_that_differ_by_a_nanosecond_are_different():
    runtime = np.array([428_789_334, 428_789_335])
    assert np.float32(runtime[0]) == np.float32(runtime[1])
    assert agreement(runtime, np.array([0, 1])).opa == 1


def test_the_tile_score_is_two_less_the_ratio_of_the_best_of_five():
    runtime = np.array([2.0, 1.5, 3, 4, 5, 1])
    assert tile_score(runtime, np.arange(6)) == 2 - 1.5 / 1
    assert tile_score(runtime, -np.arange(6)) == 1
    assert slowdown(runtime, np.arange(6), 1) == 1
    assert slowdown(runtime, np.arange(6), 2) == 0.5
    assert slowdown(runtime, np.arange(6), 100) == 0


def test_equal_scores_stay_in_the_order_of_the_file():
    assert fastest_first(np.array([2, 1, 1, 0])).tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize(
    ("runtime", "score", "problem"),
    [
        ([5], [1], "at least two configurations, not 1"),
        ([5, 6], [1, math.nan], "score of configuration 1 is not a number"),
        ([5, 0], [1, 2], "Configuration 1 has a runtime of 0: it was not measured"),
        ([5, 6], [1], r"\(1,\) scores cannot rank \(2,\) runtimes"),
    ],
)
def test_what_cannot_be_ranked_is_refused(runtime, score, problem):
    with pytest.raises(InvalidSetting, match=problem):
        agreement(np.array(runtime), np.array(score))


def test_an_interval_over_graphs_holds_the_mean_and_narrows_with_their_number():
    assert over_graphs([0.5]) == Interval(0.5, 0.5, 0.5)
    few, many = over_graphs([0.0, 1.0] * 3), over_graphs([0.0, 1.0] * 300)
    assert few.value == many.value == 0.5
    assert many.high - many.low < (few.high - few.low) / 5


def test_the_total_is_the_mean_of_five_collections():
    means = dict(zip(COLLECTIONS, [0.1, 0.2, 0.3, 0.4, 1.0], strict=True))
    assert competition_total(means) == pytest.approx(0.4)
    del means["tile:xla"]
    with pytest.raises(InvalidSetting, match="tile:xla is missing"):
        competition_total(means)
