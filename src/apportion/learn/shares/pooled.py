"""Pooled: four forests that look at different columns of a row and answer together.

One sees all of the code, one a summary of it, one that summary and what the nearest known launches did, one
the inputs alone. Trees on the inputs recognise programs that were learned from by the bytes they move, and
know nothing of others: they are heard only where a row's bytes are those of a training row. The answer is the
mean of the middle of all trees that are heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.forest import Forest
from apportion.learn.shares.nearest_launches import NEAREST, Memory
from apportion.program.kernel.features import INPUTS, SUMMARY

MEMBERS = ("code", "summary", "recalled", "inputs")
ANSWERS = ("all", *MEMBERS)
"Who answers: every forest, or one alone."
TRIM = 0.35
"The part of the weight at each end that the mean leaves out."
SIZE = "bytes moved"
PLACE = "place of bytes moved"
"A column that is made here: where a row's bytes stand among those of the training rows."
MADE = (PLACE, *NEAREST)
"Columns that are made here, behind those of a row."
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
    memory: Memory
    heard: float = 1.0
    "The weight of a tree on inputs, where those are used; one on code weighs 1."
    trusted: float = 2.0
    "The weight of a tree on the nearest launches; one on code weighs 1."

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
            said = self.forests[answer].each(self.seen(rows)[answer])
            return Votes(said, np.full_like(said, 1 / said.shape[1]))
        wide = np.hstack([rows, made(rows, self.columns, self.memory)])
        said = self.joined.each(wide)
        weight = np.ones((len(rows), len(MEMBERS)))
        weight[:, MEMBERS.index("recalled")] = self.trusted
        weight[:, MEMBERS.index("inputs")] = self.heard * self.recognises(rows)
        heard = np.repeat(weight, [len(self.forests[name].root) for name in MEMBERS], axis=1)
        return Votes(said, heard / heard.sum(axis=1, keepdims=True))

    def seen(self, rows: Numbers) -> dict[str, Numbers]:
        """Member → its part of rows (N, F)."""
        return parts_of(np.hstack([rows, made(rows, self.columns, self.memory)]), self.columns)

    @cached_property
    def joined(self) -> Forest:
        """All trees in one forest on all columns: one walk instead of four."""
        at = {name: number for number, name in enumerate((*self.columns, *MADE))}
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
        same: NDArray[np.bool_] = np.isin(rows[:, self.columns.index(SIZE)], self.memory.sizes[:, 0])
        return same

    def attributed(self, row: Numbers) -> tuple[float, dict[str, float]]:
        """What the trees that make the answer for a row (F,) say before they look, and what each column adds.

        Together they are the answer. What the place of the bytes adds is counted to the bytes; what
        the nearest launches add stands beside the columns, under the names `NEAREST`.
        """
        kept = self.votes(row[None, :]).kept()[0]
        seen = self.seen(row[None, :])
        base, first = 0.0, 0
        added = dict.fromkeys((*self.columns, *NEAREST), 0.0)
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
        remembered = {f"memory.{part}": array for part, array in self.memory.arrays().items()}
        return {**named, **remembered, "weights": np.array([self.heard, self.trusted])}

    @classmethod
    def of_arrays(cls, columns: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The pool that `arrays` gave."""

        def under(name: str) -> dict[str, NDArray[Any]]:
            prefix = f"{name}."
            return {
                part.removeprefix(prefix): array for part, array in arrays.items() if part.startswith(prefix)
            }

        memory = Memory.of_arrays(code_in(columns), under("memory"))
        heard, trusted = arrays["weights"].tolist()
        forests = {name: Forest.of_arrays(under(name)) for name in MEMBERS}
        return cls(tuple(columns), forests, memory, heard, trusted)


def columns_of(member: str, columns: Sequence[str]) -> list[str]:
    """What a member of the pool sees of these columns and of `MADE`."""
    if member == "code":
        return [name for name in columns if name not in _DIGITS]
    code = frozenset(code_in(columns))
    if member == "inputs":
        return [name for name in columns if name not in code] + [PLACE]
    summary = [name for name in columns if name not in code or name in SUMMARY] + [PLACE]
    return summary if member == "summary" else [*summary, *NEAREST]


def code_in(columns: Sequence[str]) -> list[str]:
    """Those of the columns, at their beginning, that are of the code."""
    return list(columns)[: len(columns) - inputs_in(columns)]


def inputs_in(columns: Sequence[str]) -> int:
    """How many of the columns, at their end, are inputs and not code."""
    return len(columns) - list(columns).index(INPUTS[0])


def parts_of(wide: Numbers, columns: Sequence[str]) -> dict[str, Numbers]:
    """Member → its part of rows (N, F + len(MADE))."""
    at = {name: number for number, name in enumerate((*columns, *MADE))}
    return {member: wide[:, [at[name] for name in columns_of(member, columns)]] for member in MEMBERS}


def made(rows: Numbers, columns: Sequence[str], memory: Memory, *, nearest: Numbers | None = None) -> Numbers:
    """(N, len(MADE)): where the bytes of rows (N, F) stand among the known, between two for one that is
    neither; and what the nearest launches did, unless that is given."""
    size = rows[:, list(columns).index(SIZE)]
    place = (np.searchsorted(memory.known, size, "left") + np.searchsorted(memory.known, size, "right")) / 2
    if nearest is None:
        nearest = memory.nearest(rows[:, : len(code_in(columns))], sizes_in(rows, columns))
    return np.column_stack([place, nearest])


def sizes_in(rows: Numbers, columns: Sequence[str]) -> Numbers:
    """(N, 2): logarithms of bytes moved and of the work-group's size."""
    return rows[:, [list(columns).index(name) for name in INPUTS[:2]]]
