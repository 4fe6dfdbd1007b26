"""Spaces of configurations."""

from __future__ import annotations

import pytest

from apportion.errors import InvalidSetting
from apportion.measure.space import Space

SPACE = Space({"tile": (8, 16, 32), "unroll": (1, 2)}, lambda one: one["tile"] * one["unroll"] <= 32)


def test_only_allowed_combinations_are_configurations():
    assert [tuple(one.values()) for one in SPACE.configurations] == [
        (8, 1),
        (8, 2),
        (16, 1),
        (16, 2),
        (32, 1),
    ]


def test_codes_say_which_value_each_parameter_has():
    assert SPACE.codes([{"tile": 16, "unroll": 2}, {"tile": 8, "unroll": 1}]).tolist() == [[1, 1], [0, 0]]
    assert SPACE.counts.tolist() == [3, 2]


def test_a_sample_begins_with_what_it_must_have_and_has_nothing_twice():
    first = {"tile": 32, "unroll": 1}
    drawn = SPACE.sample(4, seed=0, first=first)
    assert drawn[0] == first
    assert len({tuple(one.values()) for one in drawn}) == 4
    assert drawn == SPACE.sample(4, seed=0, first=first)
    assert len(SPACE.sample(100, seed=0)) == 5


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "A space needs at least one parameter"),
        ({"tile": ()}, "The parameter 'tile' needs a list of values"),
        ({"tile": "abc"}, "The parameter 'tile' needs a list of values, not 'abc'"),
        ({"tile": (1, 1)}, "The parameter 'tile' has a value twice"),
        ({"a": range(2000), "b": range(2000)}, "4,000,000 combinations are more than 2,000,000"),
    ],
)
def test_an_impossible_space_is_refused(values, problem):
    with pytest.raises(InvalidSetting, match=problem):
        Space(values)


def test_a_configuration_from_elsewhere_is_refused():
    with pytest.raises(InvalidSetting, match="is no configuration of the space"):
        SPACE.sample(3, seed=0, first={"tile": 32, "unroll": 2})
    with pytest.raises(InvalidSetting, match="'9' is no parameter of the space, or no value of one"):
        SPACE.codes([{"tile": 9, "unroll": 1}])
