"""Where launches of a program go, by what they are believed to take and what moving costs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from apportion.coexecution.expected_times import Belief
from apportion.coexecution.program_placement import (
    LaunchGroup,
    PlacementSettings,
    Planner,
    ProgramStep,
    Where,
    period_of,
)
from apportion.errors import InvalidSetting
from apportion.runtime.residency import HOST

EQUAL = [Where("cpu", HOST, 0.0, 0.0), Where("cpu2", HOST, 0.0, 0.0)]
DISCRETE = [Where("cpu", HOST, 0.0, 0.0), Where("gpu", 1, 1e-9, 1e-9)]
X = 1


def _group(name: str, *seconds: float, devices: tuple[str, ...] = ("cpu", "cpu2")) -> LaunchGroup:
    """A kernel whose times are known well."""
    belief = Belief(dict(zip(devices, seconds, strict=True)), 1.01)
    return LaunchGroup(name, belief, (0, 1), measured={0: 9, 1: 9}, tried={0, 1}, count=100)


def _placed(planner: Planner, *groups: LaunchGroup, nbytes: int = 1000) -> list[int | None]:
    """Where kernels go that follow one another over one array, again and again."""
    round_of = [ProgramStep(group, ((X, nbytes),), (X,)) for group in groups]
    for _ in range(4):
        for step in round_of:
            planner.note(step)
    planner.plan(round_of, {X: 1 << HOST})
    return [group.place for group in groups]


def test_noise_between_equal_devices_does_not_divide_a_program() -> None:
    groups = _group("a", 1e-3, 1.05e-3), _group("b", 1.06e-3, 1e-3), _group("c", 1e-3, 1.04e-3)
    places = _placed(Planner(EQUAL), *groups)
    assert len(set(places)) == 1


def test_a_kernel_that_is_far_faster_elsewhere_goes_there() -> None:
    groups = _group("a", 1e-3, 5e-3), _group("b", 8e-3, 1e-3), _group("c", 1e-3, 5e-3)
    assert _placed(Planner(EQUAL), *groups) == [0, 1, 0]


def test_what_moving_costs_counts_against_a_faster_device() -> None:
    devices = "cpu", "gpu"
    groups = _group("a", 1e-3, 9e-3, devices=devices), _group("b", 3e-3, 1e-3, devices=devices)
    assert _placed(Planner(DISCRETE), *groups) == [0, 1]
    groups = _group("a", 1e-3, 9e-3, devices=devices), _group("b", 3e-3, 1e-3, devices=devices)
    assert _placed(Planner(DISCRETE), *groups, nbytes=3_000_000) == [0, 0]


def test_launches_that_need_each_other_do_not_overlap_wherever_a_round_begins() -> None:
    """Over two arrays: a writes what b reads, and overwrites it only when b has read it."""
    a, b = _group("a", 1e-3, 1e-3), _group("b", 1e-3, 1e-3)
    steps = [ProgramStep(a, ((1, 8),), (2,)), ProgramStep(b, ((2, 8),), (3,))]
    planner = Planner(EQUAL)
    for sequence in (steps, steps[::-1]):
        alone = planner.round(sequence, {a: 0, b: 0})
        assert planner.round(sequence, {a: 0, b: 1}) > alone > 2e-3
    independent = [ProgramStep(a, ((1, 8),), (2,)), ProgramStep(b, ((1, 8),), (3,))]
    assert planner.round(independent, {a: 0, b: 1}) < 1.1e-3
    assert _placed(Planner(EQUAL), a, b) in ([0, 0], [1, 1])


def test_what_is_tried_is_told_and_is_moved_back_where_it_was_no_better() -> None:
    a, b = _group("a", 1e-3, 1e-3), LaunchGroup("b", Belief({"cpu": 1e-3, "cpu2": 1e-3}, 4.0), (0, 1))
    b.belief.observe("cpu", 1e-3, 20)
    b.count, b.measured, b.tried = 100, {0: 9}, {0}
    a.place = b.place = 0
    planner = Planner(EQUAL)
    for group in (a, b) * 4:
        planner.note(ProgramStep(group, ((X, 8),), (X,)))
    assert planner.plan([], {X: 1 << HOST})
    assert b.place == 1
    assert "tried once" in b.reason
    b.belief.observe("cpu2", 1.02e-3, 8)
    b.tried.add(1)
    assert not planner.plan([], {X: 1 << HOST})
    assert (a.place, b.place) == (0, 0)


def test_how_much_dividing_must_promise_is_a_setting() -> None:
    groups = _group("a", 1e-3, 1.05e-3), _group("b", 1.06e-3, 1e-3), _group("c", 1e-3, 1.04e-3)
    eager = PlacementSettings(divided=1.0, better=1.0, move_seconds=0.0)
    assert _placed(Planner(EQUAL, eager), *groups) == [0, 1, 0]
    with pytest.raises(InvalidSetting, match="better and divided must lie between 0 and 1"):
        PlacementSettings(divided=1.5)


def test_a_program_goes_where_what_is_asked_for_is_least() -> None:
    """The second device is twice as fast and draws five times as much."""
    draws = {"cpu": 10.0, "cpu2": 50.0}

    def joules(seconds: float, working: Mapping[str, float]) -> float:
        return 1.0 * seconds + sum(draws[name] * each for name, each in working.items())

    for value, place in ((None, 1), (joules, 0)):
        groups = _group("a", 2e-3, 1e-3), _group("b", 4e-3, 2e-3)
        assert _placed(Planner(EQUAL, value=value), *groups) == [place, place]


def test_a_round_that_ends_with_a_loop_is_longer_than_the_loop() -> None:
    begin, level = _group("begin", 1e-3, 1e-3), _group("level", 1e-3, 1e-3)
    first, again = ProgramStep(begin, (), (X,)), ProgramStep(level, ((X, 4),), (X,))
    read = ProgramStep(None, ((X, 4),), ())
    whole = [first, *[again, read] * 4]
    assert period_of(whole * 3) == 9
    assert period_of((whole * 3)[4:]) == 9
    assert period_of(whole) == 2, "a loop is all that is known of it"
    assert period_of([first, again, read]) == 0


def test_what_comes_before_a_loop_is_placed_with_it() -> None:
    """A kernel that begins each round ran on the CPU; the loop after it needs its array on the GPU."""
    names = ("cpu", "gpu")
    begin = _group("begin", 2e-4, 3e-4, devices=names)
    level = _group("level", 2e-3, 8e-5, devices=names)
    begin.place, level.place = 0, 1
    planner = Planner(DISCRETE)
    first, again = ProgramStep(begin, (), (X,)), ProgramStep(level, ((X, 4 << 20),), (X,))
    for step in [first, *[again, ProgramStep(None, ((2, 4),), ())] * 5] * 4:
        planner.note(step)
    planner.plan([], {X: 1 << 1, 2: 1 << HOST})
    assert (begin.place, level.place) == (1, 1)
