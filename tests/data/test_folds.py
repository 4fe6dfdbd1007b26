"""Who is learned from, who chooses, who tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.folds import PROTOCOLS, Fold, Origins, components, folds_of
from apportion.errors import InvalidSetting, UnknownName


def origins(rows: int = 60) -> Origins:
    """60 rows: 20 sources of 3 rows, graphs shared by two sources, 6 applications, 3 suites."""
    return Origins(
        tuple(f"s{row // 3}" for row in range(rows)),
        tuple(f"g{row // 6}" for row in range(rows)),
        tuple(f"a{row // 10}" for row in range(rows)),
        tuple(f"b{row // 20}" for row in range(rows)),
    )


def test_rows_that_share_a_source_or_a_graph_directly_or_not_are_one_component() -> None:
    assert components(["p", "p", "q", "r"], ["x", "y", "y", "z"]).tolist() == [0, 0, 0, 1]
    assert components(["p", "q", "p"]).tolist() == [0, 1, 0]


@pytest.mark.parametrize("protocol", ["thesis", "source", "component"])
def test_ten_folds_test_every_row_once_with_a_tenth_to_validate(protocol: str) -> None:
    folds = folds_of(protocol, origins(), seed=3)
    assert len(folds) == 10
    assert sorted(np.concatenate([fold.test for fold in folds]).tolist()) == list(range(60))
    assert all(len(fold.train) + len(fold.validation) + len(fold.test) == 60 for fold in folds)
    assert [len(fold.test) for fold in folds] == [6] * 10


@pytest.mark.parametrize(
    ("protocol", "key"),
    [("source", "source"), ("component", "graph"), ("application", "graph"), ("suite", "source")],
)
def test_no_side_shares_what_the_protocol_keeps_together(protocol: str, key: str) -> None:
    of = np.array(getattr(origins(), key))
    for fold in folds_of(protocol, origins(), seed=1):
        sides = [set(of[side].tolist()) for side in (fold.train, fold.validation, fold.test)]
        assert not sides[0] & sides[1]
        assert not (sides[0] | sides[1]) & sides[2]


def test_random_folds_do_share_sources() -> None:
    of = np.array(origins().source)
    fold = folds_of("thesis", origins(), seed=1)[0]
    assert set(of[fold.train].tolist()) & set(of[fold.test].tolist())


def test_each_application_is_the_test_once_and_its_likes_are_not_learned_from() -> None:
    folds = folds_of("application", origins(), seed=1)
    assert [fold.name for fold in folds] == ["a0", "a1", "a2", "a3", "a4", "a5"]
    assert folds[0].test.tolist() == list(range(10))
    # Rows 10 and 11 have the graph of rows 6 to 9.
    assert not set(folds[0].learnable.tolist()) & {10, 11}


def test_the_same_seed_gives_the_same_folds_and_another_gives_others() -> None:
    def tests(seed: int) -> list[list[int]]:
        return [fold.test.tolist() for fold in folds_of("thesis", origins(), seed=seed)]

    assert tests(1) == tests(1)
    assert tests(1) != tests(2)
    # Literal, so that results stay comparable from version to version.
    assert tests(1)[0] == [5, 15, 48, 52, 55, 58]


def test_a_fold_with_a_row_on_two_sides_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="an example stands on two sides"):
        Fold("f", np.array([0, 1]), np.array([1]), np.array([2]))


def test_unknown_protocols_and_too_few_groups_are_said() -> None:
    with pytest.raises(UnknownName, match=r"No protocol called 'thesys'\. Did you mean 'thesis'"):
        folds_of("thesys", origins())
    with pytest.raises(InvalidSetting, match="3 groups of examples do not make 10 folds"):
        folds_of("source", origins(9))


@given(st.integers(0, 1000), st.sampled_from(sorted(PROTOCOLS)))
def test_no_row_is_ever_on_two_sides(seed: int, protocol: str) -> None:
    for fold in folds_of(protocol, origins(), seed=seed):
        everything = np.concatenate([fold.train, fold.validation, fold.test]).tolist()
        assert len(everything) == len(set(everything))
