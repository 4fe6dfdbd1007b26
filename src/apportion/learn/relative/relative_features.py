"""From counters of a run to what a model of relative performance looks at.

`counters`   every counter, counts in their logarithm.
`shape`      fewer, chosen for what decides between CPUs and GPUs: work, parallelism, work per item, memory,
             barriers, branches, locality, with hinges where a device fills up. Needs AIWC's counters.
`both`       the two together.

Where the run was timed on one system, that time joins, as it is and per instruction and byte: a rate, as
hardware counters give it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName

Numbers = NDArray[np.float64]
FEATURE_SETS = ("counters", "shape", "both")
NEEDED = (
    "total_instruction_count", "workitems", "total_memory_footprint", "barriers_per_instruction",
    "branch_entropy_yokota", "branch_entropy_average_linear", "global_memory_address_entropy",
    "local_memory_address_entropy_10",
)  # fmt: skip
"What `shape` is made of."
_PLAIN = (
    "ratio", "address_entropy", "average_linear", "simd_width", "opcode", "instructions_per_operand",
    "page_levels",
)  # fmt: skip
"Parts of the names of counters that are no counts: they are taken as they are."
_SMALL = ("granularity", "barriers_per_instruction")
"Tiny shares, which only a logarithm tells apart."


def features_of(kind: str, names: Sequence[str], values: Numbers) -> Numbers:
    """(N, F): a set of features of runs, from the counters (N, C) called `names`.

    Raises:
        UnknownName: no such set.
        InvalidSetting: a counter that the set needs is not there.
    """
    if kind not in FEATURE_SETS:
        raise UnknownName("set of features", kind, FEATURE_SETS)
    if kind == "counters":
        return _counters(names, values)
    shape = _shape(names, values)
    return shape if kind == "shape" else np.hstack([_counters(names, values), shape])


def time_features(names: Sequence[str], values: Numbers, log_seconds: Numbers) -> Numbers:
    """(N, 3 to 5): of the time on one system, in log2 seconds (N,), also per instruction and byte."""
    rates = [
        log_seconds - np.log2(_positive(names, values, counter))
        for counter in ("total_instruction_count", "instructions", "total_memory_footprint")
        if counter in names
    ]
    # Below some 64 µs a launch is mostly overhead; above some 512 µs hardly.
    microseconds = log_seconds + np.log2(1e6)
    return np.stack(
        [log_seconds, *rates, np.maximum(0, microseconds - 6), np.maximum(0, microseconds - 9)], axis=1
    )


def _counters(names: Sequence[str], values: Numbers) -> Numbers:
    columns = []
    for name, column in zip(names, values.T, strict=True):
        if name in _SMALL:
            columns.append(np.log2(np.maximum(column, 0) + 1e-12))
        elif any(part in name for part in _PLAIN):
            columns.append(column)
        else:
            columns.append(np.log2(1 + np.maximum(column, 0)))
    return np.stack(columns, axis=1)


def _shape(names: Sequence[str], values: Numbers) -> Numbers:
    work = np.log2(_positive(names, values, "total_instruction_count"))
    items = np.log2(_positive(names, values, "workitems"))
    memory = np.log2(_positive(names, values, "total_memory_footprint"))
    locality = _column(names, values, "global_memory_address_entropy") - _column(
        names, values, "local_memory_address_entropy_10"
    )

    def above(column: Numbers, level: float) -> Numbers:
        return np.maximum(0.0, column - level)

    return np.stack(
        [
            work, items, work - items, memory,
            above(items, 10), above(items, 14), above(work, 20), above(work - items, 8), above(memory, 14),
            np.log2(1e-6 + np.maximum(_column(names, values, "barriers_per_instruction"), 0)),
            np.log2(1 + np.maximum(_column(names, values, "branch_entropy_yokota"), 0)),
            _column(names, values, "branch_entropy_average_linear"),
            locality,
        ],
        axis=1,
    )  # fmt: skip


def _column(names: Sequence[str], values: Numbers, name: str) -> Numbers:
    if name not in names:
        raise InvalidSetting(f"These features need the counter {name!r}, which the profile does not have")
    return np.asarray(values[:, list(names).index(name)], np.float64)


def _positive(names: Sequence[str], values: Numbers, name: str) -> Numbers:
    return np.maximum(_column(names, values, name), 1.0)
