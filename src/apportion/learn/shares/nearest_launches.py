"""What the known launches nearest to a launch did, as columns that a forest looks at.

Three questions are asked of the known launches: what did the same program do at the nearest sizes, what did
launches do that moved exactly as many bytes, and what did the nearest launch of all do? A program never seen
has no answer to the first, and an application never seen none to the second; a forest that is to know what
the third is then worth must have learned from launches whose own program, and whose own application, were
not among those remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.folds import components
from apportion.data.scaling import Standard

NEAREST = (
    "same program: share", "same program: bytes", "same program: mean share", "same program: second share",
    "same program: second bytes", "same bytes: mean share", "same bytes: launches",
    "same bytes: share of the nearest", "same bytes: distance of the nearest", "nearest: share",
    "nearest: distance", "nearest: bytes",
)  # fmt: skip
"Names of the columns. Shares are in percent, bytes differences of logarithms."
NOTHING = -30.0
"Where no known launch answers: below every share and every difference."
EXTENTS = frozenset(("largest array", "largest constant", "mean constant"))
"Features in which problem classes of one program differ: launches equal in all others are of one program."
SIZE_COUNTS = 3.0
"The nearest launch: so large a difference of logarithms of bytes counts as one deviation of the code."
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Memory:
    """Launches that were learned from."""

    scaling: Standard
    code: NDArray[np.float32]  # (K, F) features as they are
    sizes: Numbers  # (K, 2): logarithms of bytes moved and of the work-group's size
    share: Numbers  # (K,), in percent
    extents: tuple[int, ...]
    "Which features are `EXTENTS`."

    @classmethod
    def of(cls, names: Sequence[str], code: Numbers, sizes: Numbers, share: Numbers) -> Self:
        """Launches with features (K, F) of these names."""
        extents = tuple(number for number, name in enumerate(names) if name in EXTENTS)
        return cls(Standard.fit(code), code.astype(np.float32), sizes, share, extents)

    def nearest(self, code: Numbers, sizes: Numbers) -> Numbers:
        """(N, len(NEAREST)): of launches with features (N, F) and sizes (N, 2)."""
        programs = self._programs_of(code)
        return self._columns(code, sizes, programs, np.ones((len(code), len(self.code)), bool))

    def lessons(self) -> Numbers:
        """(3 K, len(NEAREST)): of each known launch when it is forgotten itself; when all of its program
        are; and when all of its kin are, through common programs and common bytes."""
        programs = self._programs
        alone = np.arange(len(self.code))
        kin = components(programs.tolist(), self.sizes[:, 0].tolist())
        return np.concatenate(
            [
                self._columns(self.code, self.sizes, programs, group[:, None] != group[None, :])
                for group in (alone, components(programs.tolist()), kin)
            ]
        )

    def _columns(self, code: Any, sizes: Numbers, programs: NDArray[np.int64], allowed: Flags) -> Numbers:
        found = np.full((len(code), len(NEAREST)), NOTHING)
        rows = np.arange(len(code))
        apart = sizes[:, None, :] - self.sizes[None, :, :]
        step = np.abs(apart).sum(axis=2)
        same = allowed & (programs[:, None] == self._programs[None, :])
        nearest, there = _nearest(step, same)
        found[there, 0] = self.share[nearest[there]]
        found[there, 1] = -apart[rows, nearest, 0][there]
        found[there, 2] = (same @ self.share)[there] / same.sum(axis=1)[there]
        rest = same.copy()
        rest[rows, nearest] = False
        second, there = _nearest(step, rest)
        found[there, 3] = self.share[second[there]]
        found[there, 4] = -apart[rows, second, 0][there]
        distance = self._distance(code)
        equal = allowed & (apart[:, :, 0] == 0)
        nearest, there = _nearest(distance, equal)
        found[there, 5] = (equal @ self.share)[there] / equal.sum(axis=1)[there]
        found[there, 6] = equal.sum(axis=1)[there]
        found[there, 7] = self.share[nearest[there]]
        found[there, 8] = distance[rows, nearest][there]
        nearest, there = _nearest(distance + np.abs(apart[:, :, 0]) / SIZE_COUNTS, allowed)
        found[there, 9] = self.share[nearest[there]]
        found[there, 10] = distance[rows, nearest][there]
        found[there, 11] = -apart[rows, nearest, 0][there]
        return found

    def _distance(self, code: Numbers) -> Numbers:
        """(N, K): the mean deviation of the features, in their own deviations."""
        ours, theirs = self._scaled, self.scaling.apply(code)
        squared = (theirs**2).sum(axis=1)[:, None] + (ours**2).sum(axis=1)[None, :] - 2 * theirs @ ours.T
        distance: Numbers = np.sqrt(np.maximum(squared, 0) / ours.shape[1])
        return distance

    @cached_property
    def known(self) -> Numbers:
        """Logarithms of bytes, rising, each once."""
        return np.unique(self.sizes[:, 0])

    @cached_property
    def _scaled(self) -> Numbers:
        return self.scaling.apply(self.code.astype(np.float64))

    @cached_property
    def _names(self) -> dict[bytes, int]:
        """What a program is called by its features → its number."""
        names: dict[bytes, int] = {}
        for row in self.plain(self.code):
            names.setdefault(row.tobytes(), len(names))
        return names

    @cached_property
    def _programs(self) -> NDArray[np.int64]:
        """(K,)."""
        return self._programs_of(self.code)

    def _programs_of(self, code: Any) -> NDArray[np.int64]:
        """(N,): the number of each one's program; -1 for one that is not known."""
        return np.array([self._names.get(row.tobytes(), -1) for row in self.plain(code)], np.int64)

    def plain(self, code: Any) -> NDArray[np.float32]:
        """What tells programs apart: features (N, F) without `EXTENTS`."""
        return np.ascontiguousarray(np.delete(code.astype(np.float32), self.extents, axis=1))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to a file."""
        return {
            "code": self.code, "sizes": self.sizes, "share": self.share,
            "mean": self.scaling.mean, "deviation": self.scaling.deviation,
        }  # fmt: skip

    @classmethod
    def of_arrays(cls, names: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The memory that `arrays` gave, of features with these names."""
        extents = tuple(number for number, name in enumerate(names) if name in EXTENTS)
        scaling = Standard(arrays["mean"], arrays["deviation"])
        return cls(scaling, arrays["code"], arrays["sizes"], arrays["share"], extents)


def _nearest(distance: Numbers, allowed: Flags) -> tuple[NDArray[np.int64], Flags]:
    """(N,): the nearest of those that are allowed, and whether there is one."""
    nearest: NDArray[np.int64] = np.where(allowed, distance, np.inf).argmin(axis=1)
    there: Flags = np.any(allowed, axis=1)
    return nearest, there
