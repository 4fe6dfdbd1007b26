"""Learners on rows of features, and their form as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting
from apportion.learn import row_models
from apportion.learn.forest import Forest

RANDOM = np.random.default_rng(5)
ROWS = RANDOM.normal(size=(80, 4))
TRUTH = 30 * (ROWS[:, 0] > 0) + 10 * ROWS[:, 1] + 50
FOREST = {"trees": 10}


@pytest.mark.parametrize("name", [name for name in row_models if name != "pooled"])
def test_every_learner_does_better_than_the_mean_on_other_rows(name: str) -> None:
    pytest.importorskip("sklearn")
    model = row_models.load(name)({}, ROWS[:60], TRUTH[:60], seed=1)
    error = np.abs(model.predict(ROWS[60:]) - TRUTH[60:]).mean()
    assert error < 0.8 * np.abs(TRUTH[:60].mean() - TRUTH[60:]).mean()


@pytest.mark.parametrize("name", ["extra-trees", "random-forest"])
def test_a_forest_of_arrays_says_what_scikit_learn_says(name: str) -> None:
    model = row_models.load(name)(FOREST, ROWS, TRUTH, seed=1)
    other = RANDOM.normal(size=(50, 4))
    forest = model.forest(ROWS)
    assert forest.predict(other) == pytest.approx(model.predict(other), rel=1e-6)
    assert forest.each(other).shape == (50, 10)
    again = Forest.of_arrays(forest.arrays())
    assert again.predict(other).tolist() == forest.predict(other).tolist()


def test_the_same_seed_grows_the_same_trees() -> None:
    fit = row_models.load("extra-trees")
    one, two, other = (fit(FOREST, ROWS, TRUTH, seed=seed).predict(ROWS + 0.1) for seed in (1, 1, 2))
    assert one.tolist() == two.tolist()
    assert one.tolist() != other.tolist()


def test_a_line_does_not_become_a_forest() -> None:
    with pytest.raises(InvalidSetting, match="kind 'linear' does not become a forest"):
        row_models.load("linear")({}, ROWS, TRUTH).forest(ROWS)


def test_unknown_and_impossible_settings_are_said() -> None:
    fit = row_models.load("extra-trees")
    with pytest.raises(InvalidSetting, match="leaves"):
        fit({"leaves": 3}, ROWS, TRUTH)
    with pytest.raises(InvalidSetting, match="max_features must lie above 0"):
        fit({"max_features": 0.0}, ROWS, TRUTH)


def test_a_forest_whose_arrays_do_not_fit_together_is_refused() -> None:
    leaf = {"feature": np.zeros(1, np.int16), "threshold": np.zeros(1), "value": np.zeros(1, np.float32)}
    with pytest.raises(InvalidSetting, match="left must name its nodes, 0 to 0"):
        Forest(
            **leaf,
            left=np.array([4], np.int32),
            right=np.zeros(1, np.int32),
            root=np.zeros(1, np.int32),
            depth=1,
        )
