"""Models of one graph's configurations, and what tuning makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting
from apportion.learn.ranking.measures import agreement
from apportion.learn.ranking.ridge import OptionRidge, TuningPlan
from apportion.learn.ranking.tuner import tune_graph
from apportion.learn.ranking.within_graph import Smooth, Steps, WithinGraph

OPTIONS = np.array([8, 8, 2, 9, 9])


def program(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two nodes have a border between cheap and dear options, and paying both is dearer still."""
    codes = np.random.default_rng(seed).integers(0, OPTIONS, (count, len(OPTIONS)))
    runtime = 1000 + 500 * np.isin(codes[:, 0], (1, 4, 7)) + 80 * (codes[:, 2] == 1)
    runtime = runtime + 300 * (np.isin(codes[:, 0], (1, 4, 7)) & (codes[:, 2] == 1))
    return codes, runtime.astype(np.float64)


def test_steps_find_the_borders_and_their_conjunction_and_give_equal_scores_to_equals():
    codes, runtime = program(150)
    model = Steps.fit(codes, OPTIONS, runtime + np.random.default_rng(1).normal(0, 5, 150))
    assert len(model.steps) <= 4
    others, truth = program(1000, seed=2)
    scores = model.predict(others)
    assert np.abs(scores - truth).max() < 10
    assert len(np.unique(scores)) == len(np.unique(truth))


def test_steps_of_pure_noise_are_none():
    codes, _ = program(150)
    model = Steps.fit(codes, OPTIONS, np.random.default_rng(1).normal(1000, 5, 150))
    assert len(model.steps) == 0
    assert np.ptp(model.predict(codes)) == 0


def test_options_never_seen_are_on_the_common_side():
    codes, runtime = program(150)
    seen = codes[:, 3] != 5
    model = Steps.fit(codes[seen], OPTIONS, runtime[seen])
    one = codes[:1].copy()
    same = [model.predict(np.where(np.arange(5) == 3, option, one))[0] for option in (4, 5)]
    assert same[0] == same[1]


def test_the_smooth_model_follows_a_valley_that_options_make_together():
    counts = np.array([8, 8])
    every = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(-1, 2)
    truth = 1 + np.abs(every[:, 0] - every[:, 1])
    chosen = np.random.default_rng(0).permutation(64)[:40]
    rest = np.setdiff1d(np.arange(64), chosen)
    smooth = agreement(
        truth[rest], Smooth.fit(every[chosen], counts, truth[chosen]).predict(every[rest])
    ).tau_b
    linear = agreement(
        truth[rest], OptionRidge.fit(every[chosen], counts, truth[chosen]).predict(every[rest])
    ).tau_b
    assert smooth > 0.7 > linear


def test_the_simplest_model_is_taken_that_orders_about_as_well_as_the_best():
    codes, runtime = program(150)
    noisy = runtime + np.random.default_rng(1).normal(0, 5, 150)
    assert WithinGraph.fit(codes, OPTIONS, noisy).kind == "steps"
    few = WithinGraph.fit(codes[:8], OPTIONS, noisy[:8])
    assert (few.kind, np.isnan(few.tau_b)) == ("ridge", True)


def test_what_cannot_be_fitted_says_why():
    with pytest.raises(InvalidSetting, match="two or more configurations, not 1"):
        WithinGraph.fit(np.zeros((1, 2), int), np.array([1, 1]), np.array([5]))
    with pytest.raises(InvalidSetting, match="A runtime of zero or less was not measured"):
        WithinGraph.fit(np.zeros((2, 2), int), np.array([1, 1]), np.array([5, 0]))


def test_tuning_keeps_to_its_budget_leaves_failures_out_and_finds_the_best():
    codes, _ = program(2000)
    codes = np.unique(codes, axis=0)
    runtime = (
        100
        + 10 * (codes[:, 0] > 2)
        + 5 * (codes[:, 1] > 1)
        + np.random.default_rng(0).normal(0, 0.1, len(codes))
    )
    asked: list[int] = []

    def measure(chosen: np.ndarray) -> np.ndarray:
        asked.extend(chosen.tolist())
        return np.where(codes[chosen, 4] == 8, np.nan, runtime[chosen])

    tuned = tune_graph(codes, OPTIONS, measure, TuningPlan(60), seed=1)
    assert len(asked) == len(set(asked)) == 60
    assert np.isnan(tuned.runtime).any()
    assert runtime[tuned.best] < 100.3
    assert agreement(runtime, tuned.scores).tau_b > 0.6


def test_tuning_where_nothing_runs_says_so():
    codes = np.arange(20)[:, None]
    with pytest.raises(InvalidSetting, match=r"0 of the \d+ configurations that were tried could be run"):
        tune_graph(codes, np.array([20]), lambda chosen: np.full(len(chosen), np.nan), TuningPlan(8))
