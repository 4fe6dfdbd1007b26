"""Guards around arrays."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.runtime import memory


@pytest.mark.parametrize("value", range(0, 256, 5))
def test_a_constant_that_is_written_onto_a_guard_is_found_whatever_it_is(value: int) -> None:
    whole = memory.guarded(100)
    assert memory.overrun(whole, 100) is None
    whole[memory.PAGE + 100 : memory.PAGE + 108] = value
    assert (memory.overrun(whole, 100) or "").startswith("at byte 10")
    memory.draw_guards(whole, 100)
    whole[memory.PAGE - 8 : memory.PAGE] = value
    assert (memory.overrun(whole, 100) or "").startswith("at byte -")


def test_the_guards_of_every_size_are_whole_until_they_are_written_to() -> None:
    for nbytes in (1, 4095, 4096, 4097, 10_000):
        whole = memory.guarded(nbytes)
        memory.data_of(whole, nbytes)[:] = 7
        assert memory.overrun(whole, nbytes) is None
        whole[-1] ^= 1
        assert memory.overrun(whole, nbytes) == f"at byte {len(whole) - memory.PAGE - 1}"


def test_no_two_bytes_of_a_guard_need_be_the_same() -> None:
    assert len(np.unique(memory.BEFORE)) == 256
