"""Spaces of configurations."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting
from apportion.measure.space import Range, Space, key_of

SPACE = Space({"tile": (8, 16, 32), "unroll": (1, 2)}, lambda one: one["tile"] * one["unroll"] <= 32)


def test_only_allowed_combinations_are_configurations():
    assert [tuple(one.values()) for one in SPACE.configurations] == [
        (8, 1),
        (8, 2),
        (16, 1),
        (16, 2),
        (32, 1),
    ]


@pytest.mark.parametrize(
    "allowed",
    [
        "tile * unroll <= 32",
        lambda one: one["tile"] * one["unroll"] <= 32,
        lambda tile, unroll: tile * unroll <= 32,
        lambda **one: one["tile"] * one["unroll"] <= 32,
        lambda unroll, most=32, **one: one["tile"] * unroll <= most,
        lambda tile, unroll, most=32: tile * unroll <= most,
    ],
)
def test_a_condition_is_an_expression_or_a_function_however_it_takes_parameters(allowed):
    assert Space(SPACE.values, allowed).configurations == SPACE.configurations


def test_a_condition_that_takes_something_else_is_refused():
    with pytest.raises(InvalidSetting, match="A condition takes 'unrol', which is none of tile, unroll"):
        Space(SPACE.values, lambda tile, unrol: True)


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
        ({"tile": "abc"}, "The parameter 'tile' needs a list of values or a Range, not 'abc'"),
        ({"tile": (1, 1)}, "The parameter 'tile' has a value twice"),
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


def test_a_space_too_large_to_go_through_is_drawn_from():
    space = Space({"a": range(2000), "b": range(2000)}, "a < b")
    assert space.size == 4_000_000
    with pytest.raises(InvalidSetting, match="4,000,000 combinations are more than 2,000,000: draw some"):
        _ = space.configurations
    drawn = space.draw(np.random.default_rng(0), 50)
    assert len({key_of(one) for one in drawn}) == 50
    assert all(one["a"] < one["b"] for one in drawn)
    near = space.near(drawn[0], np.random.default_rng(0), 20)
    assert all(space.holds(one) and one != drawn[0] for one in near)


def test_a_range_has_the_values_between_its_ends():
    assert [Range(32, 96, step=32).value(place) for place in range(3)] == [32, 64, 96]
    assert Range(1, 10).count == 10
    assert Range(0.0, 1.0).count == float("inf")
    random = np.random.default_rng(0)
    drawn = Range(1e-4, 1.0, log=True).draw(random, 400)
    assert 0.4 < np.mean([value < 1e-2 for value in drawn]) < 0.6
    assert isinstance(Range(1, 1000, log=True).draw(random, 1)[0], int)
    assert Range(32, 96, step=32).nearest(70) == 64
    space = Space({"x": Range(1, 4)})
    assert [one["x"] for one in space.configurations] == [1, 2, 3, 4]
    assert space.codes([{"x": 3}]).tolist() == [[2]]
    assert space.holds({"x": 2})
    assert not space.holds({"x": 9})


@pytest.mark.parametrize(
    "allowed", ["x * y <= 8 and not (x == 1 or y in (1, 2))", lambda x, y: x * y <= 8 and x > 1 and y > 2]
)
def test_conditions_are_expressions_or_functions_of_the_parameters(allowed):
    space = Space({"x": (1, 2, 4), "y": (1, 2, 4)}, allowed)
    assert list(space.configurations) == [{"x": 2, "y": 4}]


def test_a_parameter_without_meaning_is_none_once():
    space = Space(
        {"mode": ("flat", "tree"), "depth": (1, 2)}, conditions={"depth": lambda one: one["mode"] == "tree"}
    )
    assert [tuple(one.values()) for one in space.configurations] == [("flat", None), ("tree", 1), ("tree", 2)]
    assert space.holds({"mode": "flat", "depth": None})
    assert not space.holds({"mode": "lean", "depth": 1})


@pytest.mark.parametrize(
    ("allowed", "problem"),
    [
        ("x <", "is no expression"),
        ("z > 1", "names 'z', which is none of x"),
        (5, "is an expression or a function, not 5"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(allowed, problem):
    with pytest.raises(InvalidSetting, match=problem):
        Space({"x": (1, 2)}, allowed)
    with pytest.raises(InvalidSetting, match="only numbers, parameters and arithmetic"):
        _ = Space({"x": (1, 2)}, "x.real > 0").configurations
