"""How labels are distributed: the two histograms of the thesis' Figure 5.1 as SVG, and counts."""

from __future__ import annotations

import numpy as np

from apportion.data.records import CLASSES
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.load_balance import classes_of
from apportion.report.charts import HISTOGRAM_HEIGHT, histogram
from apportion.report.svg import drawing, group

BINS = 20


def class_counts(table: KernelTable) -> list[int]:
    """How many rows each of `CLASSES` has."""
    counts: list[int] = np.bincount(classes_of(table.shares), minlength=len(CLASSES)).tolist()
    return counts


def share_counts(table: KernelTable) -> list[int]:
    """How many rows have a share in each of `BINS` equal steps from 0 to 100 percent."""
    counts: list[int] = np.histogram(table.shares, bins=BINS, range=(0, 100))[0].tolist()
    return counts


def figure(table: KernelTable) -> str:
    """Both distributions side by side: classes, and shares."""
    width, below = 420, "share of the work for the CPU, percent"
    names = [str(value) for value in CLASSES]
    by_class = histogram(f"{table.pair}: classes", class_counts(table), names, below=below, width=width)
    edges = [str(number * 100 // BINS) for number in range(BINS)]
    by_share = histogram(
        f"{table.pair}: shares", share_counts(table), edges, below=below, every=4, width=width
    )
    label = f"Distribution of the CPU's share, {table.pair}"
    return drawing(2 * width, HISTOGRAM_HEIGHT, [group(by_class), group(by_share, x=width)], label=label)
