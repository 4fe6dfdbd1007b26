"""Where the valid bytes of an array are: in the host's memory, on devices, or parts here and parts there."""

from __future__ import annotations

from collections.abc import Iterable

from apportion.program.kernel.bounds import Interval

HOST = 0
"The location of the host's memory, and of every device that works on it."


class Residency:
    """The valid bytes of one array, by location. Everything is valid at the host to begin with.

    Locations are small numbers. Where an array is valid as a whole is a set of bits, since that is asked at
    every launch; parts are kept beside it.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.whole = 1 << HOST
        "Bit by location: everything is valid there."
        self.parts: dict[int, list[Interval]] = {}
        "Location → valid intervals, in order and apart, of those that are valid in part."

    def valid(self, location: int) -> list[Interval]:
        """The valid intervals of a location, in order and apart."""
        if self.whole >> location & 1:
            return [(0, self.nbytes)] if self.nbytes else []
        return self.parts.get(location, [])

    def lacks(self, location: int, start: int, end: int) -> list[Interval]:
        """What is not valid at a location, of the bytes [start, end)."""
        if self.whole >> location & 1 or start >= end:
            return []
        return _without([(start, end)], self.parts.get(location, []))

    def sources(self, location: int, start: int, end: int) -> list[tuple[int, Interval]]:
        """Where to copy what a location lacks of the bytes [start, end) from; the host where it has them.

        Bytes that are valid nowhere are left out.
        """
        missing = self.lacks(location, start, end)
        found: list[tuple[int, Interval]] = []
        for other in self.locations():
            if other == location or not missing:
                continue
            here = _common(missing, self.valid(other))
            found += [(other, interval) for interval in here]
            missing = _without(missing, here)
        return found

    def locations(self) -> list[int]:
        """Where something is valid, the host first."""
        bits = {number for number in range(self.whole.bit_length()) if self.whole >> number & 1}
        return sorted(bits | self.parts.keys())

    def copied(self, location: int, start: int, end: int) -> None:
        """Bytes have been brought to a location: they are valid there too."""
        if not self.whole >> location & 1 and start < end:
            self._set(location, joined([*self.parts.get(location, []), (start, end)]))

    def wrote(self, location: int, start: int, end: int) -> None:
        """Bytes have been written at a location: they are valid there and nowhere else."""
        if start >= end:
            return
        if (start, end) == (0, self.nbytes):
            self.whole, self.parts = 1 << location, {}
            return
        for other in self.locations():
            if other != location:
                self._set(other, _without(self.valid(other), [(start, end)]))
        self.copied(location, start, end)

    def drop(self, location: int) -> list[Interval]:
        """Nothing is valid at a location any more; what was valid there alone, and is lost."""
        had = self.valid(location)
        self._set(location, [])
        return self.nowhere(had)

    def lose(self, location: int, start: int, end: int) -> None:
        """Some bytes are not valid at a location any more."""
        self._set(location, _without(self.valid(location), [(start, end)]))

    def nowhere(self, within: Iterable[Interval] | None = None) -> list[Interval]:
        """The bytes that are valid nowhere."""
        missing = [(0, self.nbytes)] if within is None else list(within)
        for location in self.locations():
            missing = _without(missing, self.valid(location))
        return missing

    def _set(self, location: int, intervals: list[Interval]) -> None:
        self.whole &= ~(1 << location)
        self.parts.pop(location, None)
        if intervals == [(0, self.nbytes)]:
            self.whole |= 1 << location
        elif intervals:
            self.parts[location] = intervals


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """The same bytes as intervals that are in order and apart."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif start < end:
            found.append((start, end))
    return found


def _without(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    left = list(intervals)
    for first, last in others:
        left = [
            part
            for start, end in left
            for part in ((start, min(end, first)), (max(start, last), end))
            if part[0] < part[1]
        ]
    return left


def _common(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    both = [(max(a, c), min(b, d)) for a, b in intervals for c, d in others]
    return sorted(interval for interval in both if interval[0] < interval[1])
