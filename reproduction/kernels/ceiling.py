"""What no predictor can do on a table of kernels: rows alike with labels apart, and what near rows say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.data.folds import components
from apportion.data.records import CLASSES
from apportion.data.scaling import Standard
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.load_balance import classes_of

NOISE = (0.02, 0.05, 0.1)
"Deviations of log time at which labels are drawn again."
STEPS = (
    (0.0, "the same"),
    (0.7, "up to twice"),
    (1.5, "up to 4.5 times"),
    (3.0, "up to 20 times"),
    (math.inf, "more"),
)
"How far apart the sizes of two launches are, in logarithms added up, and in words."
_DRAWS = 50
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Alike:
    """Rows that no predictor of these features can tell apart, and the best it could do on all rows."""

    groups: int
    rows: int
    accuracy: float
    classes: float
    mae: float


@dataclass(frozen=True)
class Near:
    """Rows by how far the nearest other row of the same source is in its sizes."""

    sizes: str
    rows: int
    difference: float
    "Of the two shares, on average, in percent."
    other_device: float
    other_class: float


@dataclass(frozen=True)
class Neighbour:
    """What the nearest other row says, when rows of some kind are not asked."""

    asked: str
    wrong_device: float
    wrong_class: float
    difference: float

    def best_accuracy(self, classes: int) -> float:
        """Cover and Hart (1967): the nearest neighbour errs at most about twice as often as the best rule; so
        no rule is right more often than this, as far as so few rows tell."""
        wrong = self.wrong_device if classes == 2 else self.wrong_class
        part = (classes - 1) / classes
        return 1 - part * (1 - math.sqrt(max(0.0, 1 - wrong / part)))


@dataclass(frozen=True)
class Redrawn:
    """How far labels agree with themselves when each time is measured again with this noise."""

    deviation: float
    accuracy: float
    classes: float
    mae: float


def alike(table: KernelTable) -> Alike:
    """Of rows with equal features and inputs, the best answer is their most frequent, or their middle one."""
    rows = table.features("code").astype(np.float32)
    _, group = np.unique(rows, axis=0, return_inverse=True)
    group = group.ravel()
    classes = classes_of(table.shares)
    right_device = right_class = 0
    error = 0.0
    several = []
    for number in np.unique(group):
        members = group == number
        right_device += int(max(table.to_gpu[members].sum(), (1 - table.to_gpu[members]).sum()))
        right_class += int(np.bincount(classes[members]).max())
        error += float(np.abs(table.shares[members] - np.median(table.shares[members])).sum())
        if members.sum() > 1:
            several.append(int(members.sum()))
    count = len(rows)
    return Alike(len(several), sum(several), right_device / count, right_class / count, error / count)


def near(table: KernelTable) -> list[Near]:
    """Each row with another of the same source, beside the nearest of them."""
    sizes, source = table.inputs[:, :2], np.array([hash(text) for text in table.origins.source])
    classes = classes_of(table.shares)
    found = []
    for row in range(len(sizes)):
        others = np.flatnonzero((source == source[row]) & (np.arange(len(sizes)) != row))
        if len(others):
            distance = np.abs(sizes[others] - sizes[row]).sum(axis=1)
            found.append((row, int(others[distance.argmin()]), float(distance.min())))
    tables, last = [], -1.0
    for end, words in STEPS:
        pairs = [(a, b) for a, b, distance in found if last < distance <= end]
        last = end
        if pairs:
            first, second = np.array(pairs).T
            tables.append(
                Near(
                    words,
                    len(pairs),
                    float(np.abs(table.shares[first] - table.shares[second]).mean()),
                    float((table.to_gpu[first] != table.to_gpu[second]).mean()),
                    float((classes[first] != classes[second]).mean()),
                )
            )
    return tables


def neighbours(table: KernelTable) -> list[Neighbour]:
    """The nearest other row: of all, of other sources, of other applications (purged, as their folds are)."""
    code = Standard.fit(table.code).apply(table.code)
    inputs = Standard.fit(table.inputs[:, :2]).apply(table.inputs[:, :2])
    # Code and inputs count alike, whatever the number of their columns.
    distance = np.sqrt(_squared(code) / code.shape[1]) + np.sqrt(_squared(inputs) / inputs.shape[1])
    classes = classes_of(table.shares)
    origins = table.origins
    alike_in_code = components(origins.source, origins.graph)
    kinds: Sequence[tuple[str, Sequence[NDArray[np.int64]]]] = (
        ("any other row", [np.arange(len(code))]),
        ("rows of other sources", [components(origins.source)]),
        ("rows of other applications", [components(origins.application), alike_in_code]),
    )
    found = []
    for words, groupings in kinds:
        left_out = np.any([group[:, None] == group[None, :] for group in groupings], axis=0)
        nearest = np.where(left_out, np.inf, distance).argmin(axis=1)
        found.append(
            Neighbour(
                words,
                float((table.to_gpu != table.to_gpu[nearest]).mean()),
                float((classes != classes[nearest]).mean()),
                float(np.abs(table.shares - table.shares[nearest]).mean()),
            )
        )
    return found


def redrawn(table: KernelTable, *, seed: int = 0) -> list[Redrawn]:
    """Labels from times multiplied by noise, against the labels as they are."""
    random = np.random.default_rng(seed)
    ratio = np.log(table.times[1] / table.times[0])
    classes = classes_of(table.shares)
    found = []
    for deviation in NOISE:
        # Two times, each with its own noise.
        noisy = ratio + random.normal(0, deviation * math.sqrt(2), (_DRAWS, len(ratio)))
        shares = 100 / (1 + np.exp(-noisy))
        found.append(
            Redrawn(
                deviation,
                float(((noisy < 0) == (ratio < 0)).mean()),
                float(np.mean([(classes_of(drawn) == classes).mean() for drawn in shares])),
                float(np.abs(shares - table.shares).mean()),
            )
        )
    return found


def section(table: KernelTable) -> list[str]:
    """The lines of a results page about the table's ceiling."""
    same, again = alike(table), redrawn(table)
    return [
        f"### {table.pair}",
        "",
        f"{same.rows} rows stand in {same.groups} groups that are equal in every feature and input. "
        f"Knowing all labels, the best answer by those features has accuracy {same.accuracy:.3f}, "
        f"five-class accuracy {same.classes:.3f} and mean absolute error {same.mae:.2f}.",
        "",
        f"{_near_a_boundary(table, 2.5):.1%} of the rows lie within 2.5 percent of the middle between two "
        f"classes, and {_near_a_boundary(table, 5.0):.1%} within 5: an error of that size is enough for "
        "another class.",
        "",
        "| nearest row of the same source: sizes | rows | shares differ by | other device | other class |",
        "|---|---|---|---|---|",
        *(
            f"| {n.sizes} | {n.rows} | {n.difference:.1f} | {n.other_device:.3f} | {n.other_class:.3f} |"
            for n in near(table)
        ),
        "",
        "| nearest neighbour among | device right | class right | shares differ by | device at most | "
        "class at most |",
        "|---|---|---|---|---|---|",
        *(
            f"| {n.asked} | {1 - n.wrong_device:.3f} | {1 - n.wrong_class:.3f} | {n.difference:.2f} | "
            f"{n.best_accuracy(2):.3f} | {n.best_accuracy(5):.3f} |"
            for n in neighbours(table)
        ),
        "",
        "| noise of each time | device as labelled | class as labelled | shares differ by |",
        "|---|---|---|---|",
        *(f"| {r.deviation:.0%} | {r.accuracy:.3f} | {r.classes:.3f} | {r.mae:.2f} |" for r in again),
    ]


def _near_a_boundary(table: KernelTable, percent: float) -> float:
    """The part of the rows whose share is at most so far from the middle between two classes."""
    middles = (np.array(CLASSES[1:]) + np.array(CLASSES[:-1])) / 2
    return float((np.abs(table.shares[:, None] - middles).min(axis=1) <= percent).mean())


def _squared(rows: Numbers) -> Numbers:
    """(N, N): squared distances."""
    norm = (rows**2).sum(axis=1)
    squared: Numbers = np.maximum(norm[:, None] + norm[None, :] - 2 * rows @ rows.T, 0)
    return squared
