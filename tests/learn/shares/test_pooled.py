"""Forests that answer together: who is heard, what the middle is, and what each column added."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting, UnknownName
from apportion.learn import row_models
from apportion.learn.shares.nearest_launches import NEAREST
from apportion.learn.shares.pooled import MEMBERS, PLACE, TRIM, Pooled, Votes, columns_of
from apportion.program.kernel.features import FEATURES, INPUTS, SUMMARY, inputs_of

RANDOM = np.random.default_rng(3)
SIZES = RANDOM.integers(1, 9, 60) * 4096
CODE = RANDOM.poisson(2.0, (60, len(FEATURES))).astype(float)
ROWS = np.hstack([CODE, [inputs_of(int(size), 64) for size in SIZES]])
TRUTH = np.clip(20 * (CODE[:, 0] > 2) + SIZES / 600, 0, 100)


@pytest.fixture(scope="module")
def pool() -> Pooled:
    pytest.importorskip("sklearn")
    return row_models.load("pooled")({"trees": 12}, ROWS, TRUTH, seed=1).pool


def launch(size: int) -> np.ndarray:
    return np.concatenate([CODE[0], inputs_of(size, 64)])[None, :]


def test_the_middle_leaves_both_ends_out() -> None:
    votes = Votes(np.array([[0.0, 10, 20, 30, 1000]]), np.full((1, 5), 0.2))
    # Of 0.35 to 0.65 the second tree holds 0.05, the third 0.2 and the fourth 0.05.
    assert votes.kept()[0] == pytest.approx([0, 1 / 6, 2 / 3, 1 / 6, 0])
    assert votes.mean()[0] == pytest.approx(20)
    assert pytest.approx(0.35) == TRIM


def test_a_tree_that_is_not_heard_does_not_count() -> None:
    votes = Votes(np.array([[0.0, 100, 50]]), np.array([[0.5, 0.5, 0.0]]))
    assert votes.mean()[0] == pytest.approx(50)
    assert votes.nearest((0, 50, 100))[0] == 0


def test_trees_on_inputs_are_heard_where_the_bytes_are_known(pool: Pooled) -> None:
    known, strange = launch(int(SIZES[0])), launch(12345)
    assert (pool.recognises(known)[0], pool.recognises(strange)[0]) == (True, False)
    inputs = len(pool.forests["inputs"].root)
    assert pool.votes(known).weight[0, -inputs:].sum() > 0
    assert pool.votes(strange).weight[0, -inputs:].sum() == 0


def test_all_forests_in_one_say_what_each_says(pool: Pooled) -> None:
    together = pool.votes(ROWS).value
    alone = np.hstack([pool.votes(ROWS, answer=name).value for name in MEMBERS])
    assert together.tolist() == alone.tolist()


def test_contributions_and_base_are_the_prediction(pool: Pooled) -> None:
    for row in ROWS[:20]:
        base, added = pool.attributed(row)
        assert base + sum(added.values()) == pytest.approx(float(pool.predict(row[None, :])[0]), abs=1e-4)
    assert set(added) == {*pool.columns, *NEAREST}


def test_each_member_sees_what_it_is_called_after() -> None:
    columns = (*FEATURES, *INPUTS)
    assert columns_of("inputs", columns) == [*INPUTS, PLACE]
    assert set(columns_of("summary", columns)) == {*SUMMARY, *INPUTS, PLACE}
    assert columns_of("recalled", columns) == [*columns_of("summary", columns), *NEAREST]
    assert set(FEATURES) < set(columns_of("code", columns))
    assert PLACE not in columns_of("code", columns)


def test_what_is_written_is_what_is_read(pool: Pooled) -> None:
    again = Pooled.of_arrays(pool.columns, pool.arrays())
    assert again.predict(ROWS).tolist() == pool.predict(ROWS).tolist()


def test_a_pool_learns_and_can_be_asked_in_several_ways() -> None:
    model = row_models.load("pooled")({"trees": 12}, ROWS[:45], TRUTH[:45], seed=1)
    error = np.abs(model.predict(ROWS[45:]) - TRUTH[45:]).mean()
    assert error < 0.8 * np.abs(TRUTH[:45].mean() - TRUTH[45:]).mean()
    assert set(model.predict(ROWS, vote=True).tolist()) <= {0, 25, 50, 75, 100}
    assert model.predict(ROWS, answer="inputs").tolist() != model.predict(ROWS, answer="code").tolist()


def test_other_columns_and_unknown_members_are_said(pool: Pooled) -> None:
    with pytest.raises(InvalidSetting, match=f"knows {len(pool.columns)} features, not 3"):
        pool.votes(np.zeros((1, 3)))
    with pytest.raises(UnknownName, match="No answer called 'graph'"):
        pool.votes(ROWS, answer="graph")
    with pytest.raises(InvalidSetting, match="learn from rows of 143 features, not 2"):
        row_models.load("pooled")({}, np.zeros((4, 2)), np.zeros(4))
