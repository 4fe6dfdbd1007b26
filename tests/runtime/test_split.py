from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InvalidSetting
from apportion.program.kernel.bounds import IndexProgram, IndexStep, NDRange, Reach
from apportion.runtime.plan import ArrayPlace, Build, Plan
from apportion.runtime.split import Part, Split, virtualised


def test_a_cut_falls_between_work_groups() -> None:
    assert Split({"cpu": 0.35, "gpu": 0.65}).parts(10) == [Part("cpu", 0, 4), Part("gpu", 4, 10)]


def test_a_device_without_work_gets_no_part() -> None:
    assert Split({"cpu": 0.0, "gpu": 1.0}).parts(7) == [Part("gpu", 0, 7)]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(sum), st.integers(1, 10_000))
def test_every_work_group_belongs_to_one_device(weights: list[float], groups: int) -> None:
    total = sum(weights)
    split = Split({f"d{i}": weight / total for i, weight in enumerate(weights)})
    covered = [group for part in split.parts(groups) for group in (part.first, part.last)]
    assert covered[0] == 0
    assert covered[-1] == groups
    assert covered[1:-1:2] == covered[2:-1:2]  # each part begins where the one before ended


def test_shares_that_do_not_make_one_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"Shares must make 1 together, not 0.8"):
        Split({"cpu": 0.3, "gpu": 0.5})


def test_a_share_below_zero_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"The share of cpu must lie between 0 and 1, not -0.5"):
        Split({"cpu": -0.5, "gpu": 1.5})


def test_the_prelude_keeps_line_numbers_and_states_the_whole_range() -> None:
    source, options = virtualised("kernel void f() {}", "-DX=1", NDRange((64, 32), (8, 8), (1, 2)))
    assert source.endswith("#line 1\nkernel void f() {}")
    assert options == (
        "-DX=1 -DAPPORTION_N0=64 -DAPPORTION_N1=32 -DAPPORTION_N2=1 -DAPPORTION_O0=1 -DAPPORTION_O1=2 -DAPPORTION_O2=0"
    )


def test_a_range_of_broken_work_groups_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"not made of whole work-groups"):
        NDRange((100,), (64,))


def test_slices_must_be_known_and_apart() -> None:
    # out[gid / 2] in bytes: two neighbours write one element, so a cut at an odd work-item is no slice.
    steps = (
        IndexStep("global id", value=0),
        IndexStep("constant", value=2),
        IndexStep("udiv", (0, 1)),
        IndexStep("constant", value=4),
    )
    program = IndexProgram((*steps, IndexStep("mul", (2, 3))))
    place = ArrayPlace("out", 1, 400, "<i4", "slice", write_reach=(Reach(4, 4),))
    plan = Plan(Build("", ""), NDRange((100,), (1,)), 0, (place,), program=program)
    assert plan.sliced(place, [(0, 50), (50, 100)])
    assert not plan.sliced(place, [(0, 51), (51, 100)])
    unknown = ArrayPlace("out", 1, 400, "<i4", "slice", write_reach=None)
    assert not plan.sliced(unknown, [(0, 50), (50, 100)])
