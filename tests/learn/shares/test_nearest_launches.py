"""What the known launches nearest to one did, and what is forgotten to learn from it."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.learn.shares.nearest_launches import NEAREST, NOTHING, Memory

NAMES = ("nodes", "blocks", "largest array")
CODE = np.array([[1.0, 0, 5], [1, 0, 7], [1, 0, 9], [3, 1, 5], [8, 2, 5]])
"Three launches of one program, of other extents, and two of others."
SIZES = np.array([[10.0, 4], [12, 4], [15, 4], [10, 4], [20, 4]])
SHARE = np.array([10.0, 20, 60, 80, 90])


@pytest.fixture
def memory() -> Memory:
    return Memory.of(NAMES, CODE, SIZES, SHARE)


def named(row: np.ndarray) -> dict[str, float]:
    return dict(zip(NEAREST, row.tolist(), strict=True))


def test_a_program_is_known_by_all_but_its_extents_and_asked_at_the_nearest_size(memory: Memory) -> None:
    found = named(memory.nearest(np.array([[1.0, 0, 100]]), np.array([[13.0, 4]]))[0])
    assert (found["same program: share"], found["same program: bytes"]) == (20, -1)
    assert (found["same program: second share"], found["same program: second bytes"]) == (60, 2)
    assert found["same program: mean share"] == pytest.approx(30)
    assert found["same bytes: mean share"] == NOTHING


def test_launches_of_as_many_bytes_are_asked_whatever_their_program(memory: Memory) -> None:
    found = named(memory.nearest(np.array([[3.0, 1, 6]]), np.array([[10.0, 4]]))[0])
    assert (found["same bytes: mean share"], found["same bytes: launches"]) == (45, 2)
    assert found["same bytes: share of the nearest"] == 80


def test_of_a_program_never_seen_only_the_nearest_launch_is_known(memory: Memory) -> None:
    found = named(memory.nearest(np.array([[7.0, 2, 5]]), np.array([[19.5, 4]]))[0])
    assert {value for name, value in found.items() if name.startswith("same")} == {NOTHING}
    assert found["nearest: share"] == 90
    assert found["nearest: bytes"] == pytest.approx(0.5)
    assert found["nearest: distance"] > 0


def test_lessons_forget_the_launch_then_its_program_then_its_kin(memory: Memory) -> None:
    itself, program, kin = ([named(row) for row in part] for part in np.split(memory.lessons(), 3))
    assert itself[0]["same program: share"] == 20
    assert itself[0]["same bytes: mean share"] == 80
    assert program[0]["same program: share"] == NOTHING
    assert program[0]["same bytes: mean share"] == 80
    # The fourth launch moves as many bytes as the first, so that it and all of the first's program are kin.
    assert kin[0]["same bytes: mean share"] == NOTHING
    assert kin[1]["nearest: share"] == kin[3]["nearest: share"] == 90


def test_no_lesson_tells_a_launch_its_own_share() -> None:
    random = np.random.default_rng(5)
    code, sizes = random.poisson(1.0, (40, 3)).astype(float), random.integers(1, 6, (40, 2)).astype(float)
    share = random.uniform(0, 100, 40)
    before = Memory.of(NAMES, code, sizes, share).lessons()
    for launch in (0, 17):
        changed = share.copy()
        changed[launch] = -1000.0
        after = Memory.of(NAMES, code, sizes, changed).lessons()
        for part in range(3):
            assert after[part * 40 + launch].tolist() == before[part * 40 + launch].tolist()
        assert (after != before).any()


def test_what_is_written_is_what_is_read(memory: Memory) -> None:
    again = Memory.of_arrays(NAMES, memory.arrays())
    assert again.lessons().tolist() == memory.lessons().tolist()
    assert again.nearest(CODE, SIZES).tolist() == memory.nearest(CODE, SIZES).tolist()
