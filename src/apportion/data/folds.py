"""Folds: which examples are learned from, which choose among models, and which test.

`thesis`       ten random folds of 80/10/10. They leak: rows of one source stand on both sides.
`source`       ten folds; rows of one source stay together.
`component`    ten folds; rows that share a source or a graph, directly or through others, stay together.
`application`  each application in turn is the test.
`suite`        each suite in turn is the test.

In the last two, every row that shares source or graph with a test row is taken out of training. Validation
rows stay apart from training rows in the same way as test rows do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName

Rows = NDArray[np.int64]
PARTS = 10


@dataclass(frozen=True, eq=False)
class Fold:
    """Numbers of examples, in rising order; no example has two places."""

    name: str
    train: Rows
    validation: Rows
    test: Rows

    def __post_init__(self) -> None:
        sides = (self.train, self.validation, self.test)
        together = np.concatenate(sides)
        if len(np.unique(together)) < len(together):
            raise InvalidSetting(f"Fold {self.name}: an example stands on two sides")
        if min(len(self.train), len(self.test)) == 0:
            raise InvalidSetting(f"Fold {self.name}: nothing to learn from, or nothing to test")
        for side in sides:
            side.flags.writeable = False

    @property
    def learnable(self) -> Rows:
        """Training and validation rows together: what a model without a choice to make learns from."""
        return np.sort(np.concatenate([self.train, self.validation]))


@dataclass(frozen=True)
class Origins:
    """Where each example comes from: what folds keep together."""

    source: tuple[Hashable, ...]
    graph: tuple[Hashable, ...]
    application: tuple[str, ...]
    suite: tuple[str, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.source), len(self.graph), len(self.application), len(self.suite)}
        if len(lengths) > 1:
            raise InvalidSetting(f"Origins must be given for each example alike, not for {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.source)


def folds_of(protocol: str, origins: Origins, *, seed: int = 0) -> list[Fold]:
    """The folds of a protocol; the same seed gives the same folds on every machine.

    Raises:
        UnknownName: there is no such protocol.
        InvalidSetting: too few examples, or too few groups of them.
    """
    if protocol not in PROTOCOLS:
        raise UnknownName("protocol", protocol, PROTOCOLS)
    return PROTOCOLS[protocol](origins, seed)


def components(*keys: Sequence[Hashable]) -> Rows:
    """A number for each example; those that share any key, directly or through others, have the same."""
    parent = list(range(len(keys[0])))

    def root(member: int) -> int:
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    for key in keys:
        first: dict[Hashable, int] = {}
        for member, value in enumerate(key):
            parent[root(member)] = root(first.setdefault(value, member))
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(root(member), len(numbers)) for member in range(len(parent))])


def _random(origins: Origins, seed: int) -> list[Fold]:
    return _grouped(np.arange(len(origins)), seed)


def _by_source(origins: Origins, seed: int) -> list[Fold]:
    return _grouped(components(origins.source), seed)


def _by_component(origins: Origins, seed: int) -> list[Fold]:
    return _grouped(components(origins.source, origins.graph), seed)


def _grouped(group: Rows, seed: int) -> list[Fold]:
    """Ten folds of nearly equal size, of which the next one validates."""
    members = _members(group)
    if len(members) < PARTS:
        raise InvalidSetting(f"{len(members)} groups of examples do not make {PARTS} folds")
    order = np.random.default_rng(seed).permutation(len(members))
    parts: list[list[int]] = [[] for _ in range(PARTS)]
    # The largest groups first, each to the smallest part: equal sizes however unequal the groups are.
    for number in sorted(order.tolist(), key=lambda number: -len(members[number])):
        min(parts, key=len).extend(members[number])
    return [
        Fold(
            f"{index + 1} of {PARTS}",
            _rows(row for other in range(2, PARTS) for row in parts[(index + other) % PARTS]),
            _rows(parts[(index + 1) % PARTS]),
            _rows(parts[index]),
        )
        for index in range(PARTS)
    ]  # fmt: skip


def _leave_one_out(of: Callable[[Origins], tuple[str, ...]]) -> Callable[[Origins, int], list[Fold]]:
    def folds(origins: Origins, seed: int) -> list[Fold]:
        held = np.array(of(origins))
        part = components(origins.source, origins.graph)
        application = np.array(origins.application)
        made = []
        for number, name in enumerate(sorted(set(held.tolist()))):
            test = np.flatnonzero(held == name)
            rest = np.flatnonzero((held != name) & ~np.isin(part, part[test]))
            # A tenth of the other applications validates, purged of what is like it.
            others = sorted(set(application[rest].tolist()))
            if len(others) < 2:
                raise InvalidSetting(
                    f"Without {name!r} one application is left: too few to learn and validate"
                )
            drawn = np.random.default_rng([seed, number]).permutation(len(others))
            chosen = [others[i] for i in drawn[: max(1, round(len(others) / PARTS))]]
            validating = np.isin(application[rest], chosen)
            validation = rest[validating]
            train = rest[~validating & ~np.isin(part[rest], part[validation])]
            made.append(Fold(name, train, validation, test))
        return made

    return folds


PROTOCOLS: dict[str, Callable[[Origins, int], list[Fold]]] = {
    "thesis": _random,
    "source": _by_source,
    "component": _by_component,
    "application": _leave_one_out(lambda origins: origins.application),
    "suite": _leave_one_out(lambda origins: origins.suite),
}
"Name → folds of origins and seed."


def _members(group: Rows) -> list[list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(group.tolist()):
        found[number].append(row)
    return list(found.values())


def _rows(rows: Iterable[int]) -> Rows:
    return np.sort(np.fromiter(rows, np.int64))
