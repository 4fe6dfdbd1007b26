"""Merging what several devices left in their copies of one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.program.kernel.bounds import Interval

Bytes = NDArray[np.uint8]
_BLOCK = 1 << 22
"Bytes that are compared at once: small enough for the cache, large enough that loops in Python do not show."

Combine = Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]

COMBINE: dict[str, Combine] = {
    "sum": lambda home, copy, initial: np.add(home, copy - initial, out=home),
    "min": lambda home, copy, _: np.minimum(home, copy, out=home),
    "max": lambda home, copy, _: np.maximum(home, copy, out=home),
    "and": lambda home, copy, _: np.bitwise_and(home, copy, out=home),
    "or": lambda home, copy, _: np.bitwise_or(home, copy, out=home),
    "xor": lambda home, copy, initial: np.bitwise_xor(home, copy ^ initial, out=home),
}
"How a merge takes one device's copy into the result: (result so far, copy, what all started from)."


class Undo:
    """What merging replaced, so that it can be put back: the blocks that it copied anyway."""

    def __init__(self) -> None:
        self._blocks: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def keep(self, place: NDArray[Any], initial: NDArray[Any]) -> None:
        """Note what a place held."""
        self._blocks.append((place, initial))

    def back(self) -> None:
        """Make every place hold again what it held."""
        for place, initial in reversed(self._blocks):
            place[...] = initial


def combine(way: str, home: Bytes, copies: Sequence[Bytes], dtype: str, undo: Undo | None = None) -> None:
    """Take every copy into `home`, element by element; `home` holds what all copies started from."""
    kind = np.dtype(dtype)
    step = max(_BLOCK // kind.itemsize, 1) * kind.itemsize
    for start in range(0, len(home), step):
        part = slice(start, start + step)
        result = home[part].view(kind)
        initial = result.copy()
        if undo is not None:
            undo.keep(result, initial)
        for copy in copies:
            COMBINE[way](result, copy[part].view(kind), initial)


def take_changes(home: Bytes, copies: Sequence[Bytes], dtype: str, undo: Undo | None = None) -> int:
    """Take from every copy what it changed; the number of elements that two copies changed differently.

    Exact for any kernel whose work-groups do not write different values to the same place: the idea is
    FluidiCL's.
    """
    kind = _unsigned(dtype, len(home))
    conflicts = 0
    for start in range(0, len(home), _BLOCK):
        part = slice(start, start + _BLOCK)
        result = home[part].view(kind)
        initial = result.copy()
        if undo is not None:
            undo.keep(result, initial)
        for position, copy in enumerate(copies):
            values = copy[part].view(kind)
            if position == 0:
                result[...] = values
            else:
                conflicts += _take(result, values, initial)
    return conflicts


def _take(result: NDArray[Any], values: NDArray[Any], initial: NDArray[Any]) -> int:
    """Take one more copy's changes into a block; conflicts with those before.

    By differences in bits: choosing element by element is many times slower where changes lie scattered.
    """
    theirs = np.bitwise_xor(values, initial)
    ours = np.bitwise_xor(result, initial)
    both = (theirs != 0) & (ours != 0)
    if not both.any():
        np.bitwise_xor(result, theirs, out=result)
        return 0
    conflicts = int(np.count_nonzero(both & (theirs != ours)))
    np.copyto(result, values, where=theirs != 0)
    return conflicts


def strays(initial: Bytes, copy: Bytes, allowed: Sequence[Interval], dtype: str) -> int:
    """Elements that a device changed outside the bytes it was expected to write."""
    kind = _unsigned(dtype, len(initial))
    changed = initial.view(kind) != copy.view(kind)
    for start, end in allowed:
        changed[start // kind.itemsize : -(-end // kind.itemsize)] = False
    return int(np.count_nonzero(changed))


def any_equal(one: Bytes, other: Bytes, dtype: str) -> bool:
    """Whether any element is the same in both, bit for bit."""
    kind = _unsigned(dtype, len(one))
    return bool((one.view(kind) == other.view(kind)).any())


def _unsigned(dtype: str, nbytes: int) -> np.dtype[Any]:
    """Elements are compared as bits, so that a NaN equals itself; those of odd sizes byte by byte."""
    size = np.dtype(dtype).itemsize
    return np.dtype(f"u{size}" if size in (1, 2, 4, 8) and nbytes % size == 0 else "u1")
