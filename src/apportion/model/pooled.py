"""Pooled: three forests that look at different columns of a row and answer together.

One sees all of the code, one a summary of it, one the inputs alone. Trees on the inputs recognise programs
that were learned from by the bytes they move, and know nothing of others: they are heard only where a row's
bytes are those of a training row. The answer is the mean of the middle of all trees that are heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName
from apportion.model.forest import Forest
from apportion.program.features import INPUTS, SUMMARY

MEMBERS = ("code", "summary", "inputs")
ANSWERS = ("all", *MEMBERS)
"Who answers: every forest, or one alone."
TRIM = 0.35
"The part of the weight at each end that the mean leaves out."
SIZE = "bytes moved"
PLACE = "place of bytes moved"
"A column that is made here: where a row's bytes stand among those of the training rows."
_DIGITS = frozenset(INPUTS[3:])
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Votes:
    """What each tree says of each row, and how much it is heard."""

    value: Numbers  # (N, trees)
    weight: Numbers  # (N, trees), each row's sum is 1

    def kept(self) -> Numbers:
        """(N, trees): the weight left of each tree when both ends are cut off; each row's sum is 1."""
        order = np.argsort(self.value, axis=1, kind="stable")
        weight = np.take_along_axis(self.weight, order, axis=1)
        above = np.cumsum(weight, axis=1)
        left = np.clip(np.minimum(above, 1 - TRIM) - np.maximum(above - weight, TRIM), 0, None)
        kept: Numbers = np.empty_like(left)
        np.put_along_axis(kept, order, left / left.sum(axis=1, keepdims=True), axis=1)
        return kept

    def mean(self) -> Numbers:
        """(N,): the mean of the middle."""
        middle: Numbers = (self.value * self.kept()).sum(axis=1)
        return middle

    def spread(self) -> Numbers:
        """(N,): the deviation of all trees."""
        mean = (self.value * self.weight).sum(axis=1, keepdims=True)
        deviation: Numbers = np.sqrt((self.weight * (self.value - mean) ** 2).sum(axis=1))
        return deviation

    def nearest(self, classes: Sequence[float]) -> Numbers:
        """(N,): the class that most trees are nearest to."""
        chosen = np.abs(self.value[:, :, None] - np.array(classes)).argmin(axis=2)
        heard = np.stack([(self.weight * (chosen == k)).sum(axis=1) for k in range(len(classes))], axis=1)
        best: Numbers = np.array(classes, np.float64)[heard.argmax(axis=1)]
        return best


@dataclass(frozen=True, eq=False)
class Pooled:
    """Forests by what they see."""

    columns: tuple[str, ...]
    "Of a row."
    forests: Mapping[str, Forest]
    known: Numbers  # (K,), rising: the training rows' `bytes moved`, each once
    heard: float = 1.0
    "How much the trees on inputs weigh beside the others, where they are heard."

    def __post_init__(self) -> None:
        if set(self.forests) != set(MEMBERS) or SIZE not in self.columns:
            raise InvalidSetting(f"A pool has the forests {', '.join(MEMBERS)} and a column {SIZE!r}")

    def votes(self, rows: Numbers, *, answer: str = "all") -> Votes:
        """What the trees say of rows (N, F); of one forest alone, every tree is heard alike."""
        if rows.shape[1] != len(self.columns):
            raise InvalidSetting(f"The model knows {len(self.columns)} features, not {rows.shape[1]}")
        if answer not in ANSWERS:
            raise UnknownName("answer", answer, ANSWERS)
        if answer != "all":
            said = self.forests[answer].each(rows_seen(rows, self.columns, self.known)[answer])
            return Votes(said, np.full_like(said, 1 / said.shape[1]))
        said = self._joined.each(_placed(rows, self.columns, self.known))
        heard = np.ones_like(said)
        heard[:, -len(self.forests[MEMBERS[-1]].root) :] *= self.heard * self.recognises(rows)[:, None]
        return Votes(said, heard / heard.sum(axis=1, keepdims=True))

    @cached_property
    def _joined(self) -> Forest:
        """All trees in one forest on all columns and the place: one walk instead of three."""
        at = {name: number for number, name in enumerate((*self.columns, PLACE))}
        members = [self.forests[name] for name in MEMBERS]
        starts = np.cumsum([0, *(len(forest.feature) for forest in members[:-1])])
        renamed = [
            np.array([at[column] for column in columns_of(name, self.columns)], np.int16)[forest.feature]
            for name, forest in zip(MEMBERS, members, strict=True)
        ]

        def moved(part: str) -> NDArray[np.int32]:
            parts = [getattr(forest, part) + start for forest, start in zip(members, starts, strict=True)]
            return np.concatenate(parts).astype(np.int32)

        return Forest(
            np.concatenate(renamed), np.concatenate([forest.threshold for forest in members]),
            moved("left"), moved("right"), np.concatenate([forest.value for forest in members]),
            moved("root"), max(forest.depth for forest in members),
        )  # fmt: skip

    def recognises(self, rows: Numbers) -> NDArray[np.bool_]:
        """(N,): whether a training row moved exactly as many bytes."""
        size = rows[:, self.columns.index(SIZE)]
        place = np.minimum(np.searchsorted(self.known, size), len(self.known) - 1)
        same: NDArray[np.bool_] = self.known[place] == size
        return same

    def attributed(self, row: Numbers) -> tuple[float, dict[str, float]]:
        """What the trees that make the answer for a row (F,) say before they look, and what each column adds.

        Together they are the answer. What the place of the bytes adds is counted to the bytes.
        """
        kept = self.votes(row[None, :]).kept()[0]
        seen = rows_seen(row[None, :], self.columns, self.known)
        base, first = 0.0, 0
        added = dict.fromkeys(self.columns, 0.0)
        for name in MEMBERS:
            before, parts = self.forests[name].attributed(seen[name][0])
            weight = kept[first : first + len(before)]
            first += len(before)
            base += float(weight @ before)
            for column, part in zip(columns_of(name, self.columns), (weight @ parts).tolist(), strict=True):
                added[SIZE if column == PLACE else column] += part
        return base, added

    def predict(self, rows: Numbers) -> Numbers:
        """(N,)."""
        return self.votes(rows).mean()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to a file."""
        named = {
            f"{name}.{part}": array
            for name, forest in self.forests.items()
            for part, array in forest.arrays().items()
        }
        return {**named, "known": self.known, "heard": np.array([self.heard])}

    @classmethod
    def of_arrays(cls, columns: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The pool that `arrays` gave."""
        forests = {}
        for name in MEMBERS:
            prefix = f"{name}."
            forests[name] = Forest.of_arrays(
                {
                    part.removeprefix(prefix): array
                    for part, array in arrays.items()
                    if part.startswith(prefix)
                }
            )
        return cls(tuple(columns), forests, arrays["known"], float(arrays["heard"][0]))


def columns_of(member: str, columns: Sequence[str]) -> list[str]:
    """What a member of the pool sees of these columns; those on inputs and on a summary see the place too."""
    if member == "code":
        return [name for name in columns if name not in _DIGITS]
    code = frozenset(columns[: len(columns) - inputs_in(columns)])
    if member == "summary":
        return [name for name in columns if name not in code or name in SUMMARY] + [PLACE]
    return [name for name in columns if name not in code] + [PLACE]


def inputs_in(columns: Sequence[str]) -> int:
    """How many of the columns, at their end, are inputs and not code."""
    return len(columns) - list(columns).index(INPUTS[0])


def rows_seen(rows: Numbers, columns: Sequence[str], known: Numbers) -> dict[str, Numbers]:
    """Member → its part of rows (N, F)."""
    placed = _placed(rows, columns, known)
    at = {name: number for number, name in enumerate((*columns, PLACE))}
    return {member: placed[:, [at[name] for name in columns_of(member, columns)]] for member in MEMBERS}


def _placed(rows: Numbers, columns: Sequence[str], known: Numbers) -> Numbers:
    """(N, F + 1): rows, and where their bytes stand among the known; between two for one that is neither."""
    size = rows[:, list(columns).index(SIZE)]
    place = (np.searchsorted(known, size, "left") + np.searchsorted(known, size, "right")) / 2
    return np.column_stack([rows, place])
