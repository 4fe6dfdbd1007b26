"""Arrays that this process and a worker see at the same place in memory, with guards at both ends.

Each array has a region of its own, on page boundaries so that a CPU device can use it without a copy. The
bytes before and after it hold a pattern; a kernel that writes past its array breaks the pattern, and is found
out.
"""

from __future__ import annotations

import itertools
import mmap
import os
import secrets
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = 4096
"The guard before an array, and the least after it; also the alignment of an array."
SEED = os.environ.get("APPORTION_GUARDS") or secrets.token_hex(8)
"What the guards' bytes are drawn from: the same in a process and its workers, and nowhere else."
_DRAWN = np.random.default_rng(int(SEED, 16)).integers(0, 256, 3 * PAGE, np.uint8)
BEFORE, AFTER = _DRAWN[:PAGE], _DRAWN[PAGE:]
"""The guards of an array. No byte is likely to be overwritten with itself: a kernel that fills memory with a
constant is found out, whatever the constant is."""
_BEFORE_BYTES, _AFTER_BYTES = BEFORE.tobytes(), AFTER.tobytes()


class Region:
    """Shared memory for one array: a guard, the bytes, and a guard to the end of the page after next."""

    _numbers = itertools.count(1)

    def __init__(self, nbytes: int) -> None:
        self.number = next(Region._numbers)
        self.nbytes = nbytes
        self.descriptor = _anonymous_file(total_bytes(nbytes))
        self._memory = mmap.mmap(self.descriptor, total_bytes(nbytes))
        draw_guards(np.frombuffer(self._memory, np.uint8), nbytes)

    def array(self, dtype: np.dtype[Any] | type, shape: tuple[int, ...] | int) -> NDArray[Any]:
        """The bytes as an array; it keeps the memory alive."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        return np.frombuffer(self._memory, dtype, count, PAGE).reshape(shape)

    def close(self) -> None:
        """Give the descriptor back; the memory goes when the last array over it does."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


def total_bytes(nbytes: int) -> int:
    """The size of a region for `nbytes` of data."""
    return PAGE + -(-nbytes // PAGE) * PAGE + PAGE


def attached(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
    """All bytes of a region of another process, guards included."""
    memory = mmap.mmap(descriptor, total_bytes(nbytes))
    os.close(descriptor)
    return np.frombuffer(memory, np.uint8)


def guarded(nbytes: int) -> NDArray[np.uint8]:
    """Fresh private memory of the same layout, on page boundaries, with its guards drawn."""
    whole = np.frombuffer(mmap.mmap(-1, total_bytes(nbytes)), np.uint8)
    draw_guards(whole, nbytes)
    return whole


def data_of(whole: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    """The bytes between the guards."""
    return whole[PAGE : PAGE + nbytes]


def draw_guards(whole: NDArray[np.uint8], nbytes: int) -> None:
    """Fill the guards with the pattern."""
    whole[:PAGE] = BEFORE
    whole[PAGE + nbytes :] = AFTER[: len(whole) - PAGE - nbytes]


def overrun(whole: NDArray[np.uint8], nbytes: int) -> str | None:
    """Where the guards were broken, counted from the start of the array; None when they are whole."""
    after = whole[PAGE + nbytes :]
    # Every launch asks this: comparing bytes at once takes a tenth of comparing arrays.
    if whole[:PAGE].tobytes() == _BEFORE_BYTES and after.tobytes() == _AFTER_BYTES[: len(after)]:
        return None
    return broken(whole[:PAGE], whole[PAGE + nbytes :], nbytes)


def broken(before: NDArray[np.uint8], after: NDArray[np.uint8], nbytes: int) -> str | None:
    """The same, of guards that were brought from elsewhere."""
    if len(changed := np.flatnonzero(after != AFTER[: len(after)])):
        return f"at byte {nbytes + int(changed[0])}"
    if len(changed := np.flatnonzero(before != BEFORE)):
        return f"at byte -{PAGE - int(changed[-1])}"
    return None


def _anonymous_file(nbytes: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("apportion", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp(prefix="apportion-")
        os.unlink(path)
    os.truncate(descriptor, nbytes)
    return descriptor
