"""From what was counted during a launch to AIWC's quantities.

Definitions follow AIWC's source (Johnston et al., a plugin of Oclgrind), so that columns of the same name
mean the same. Its published table deviates in one thing: its footprints are of about half the work-items
(`init_ones_dev`: 256 of them store once each, and the footprint is 128), which is not imitated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.counter_table import AIWC
from apportion.measure.counters.instrument import Segment
from apportion.program.kernel.bounds import NDRange

MIX = (
    "int_ratio", "fp_ratio", "mem_ratio", "control_ratio", "call_ratio", "local_access_ratio",
    "private_access_ratio", "load_ratio", "work_group_size", "work_groups",
)  # fmt: skip
"What is counted beside AIWC's columns."
_BARRIER = Segment((("call", 1),), ((1, 1),), (("call", 1),))
_HISTORY = 16


def characterised(
    raw: Mapping[str, Any], segments: Sequence[Segment], span: NDRange
) -> tuple[dict[str, float | None], dict[str, int]]:
    """AIWC's columns and `MIX`, in order, and how often each LLVM instruction was executed.

    Args:
        raw: what `_native.count_kernel` counted. Where it ran fewer work-items than the range has, sums are
            extrapolated, and what depends on all of memory is None.
        segments: those of the instrumented kernel.
    """
    opcodes: Counter[str] = Counter()
    widths: Counter[int] = Counter()
    families: Counter[str] = Counter()
    executed = [*zip(segments, raw["segments"].tolist(), strict=True), (_BARRIER, raw["barriers"])]
    for segment, times in executed:
        if times:
            opcodes.update({name: count * times for name, count in segment.opcodes})
            widths.update({width: count * times for width, count in segment.widths})
            families.update({family: count * times for family, count in segment.families})
    scale = span.work_items / raw["work_items"]
    counters: dict[str, float | None] = {
        **_instruction_counters(opcodes, widths, raw, scale),
        **_memory_counters(raw["touched"], known=scale == 1),
        **_branch_counters(raw["branches"], raw["histories"]),
    }
    ordered = {name: counters[name] for name in AIWC}
    return {**ordered, **_mix(families, raw, span)}, dict(opcodes.most_common())


def _instruction_counters(
    opcodes: Mapping[str, int], widths: Mapping[int, int], raw: Mapping[str, Any], scale: float
) -> dict[str, float | None]:
    executed = sum(opcodes.values())
    total, barriers = executed * scale, raw["barriers"] * scale
    lanes: NDArray[np.float64] = np.array(list(widths), np.float64)
    times = np.array(list(widths.values()), float)
    operands = float(lanes @ times)
    mean = operands / executed
    stretches, often = (values.astype(float) for values in raw["to_barrier"])
    return {
        "opcode": float(_covering(np.array(list(opcodes.values())))),
        "granularity": 1 / total,
        "barriers_per_instruction": (barriers + 1) / total,
        "instructions_per_operand": executed / operands,
        "total_instruction_count": total,
        "workitems": raw["work_items"] * scale,
        "operand_sum": operands * scale,
        "total_barriers_hit": barriers,
        "min_instructions_to_barrier": float(stretches.min()),
        "max_instructions_to_barrier": float(stretches.max()),
        "median_instructions_to_barrier": _weighted_median(stretches, often),
        "max_simd_width": float(lanes.max()),
        "mean_simd_width": mean,
        "stddev_simd_width": float(np.sqrt(times @ (lanes - mean) ** 2 / executed)),
    }


def _memory_counters(touched: tuple[NDArray[Any], NDArray[Any]], *, known: bool) -> dict[str, float | None]:
    entropies = [
        "global_memory_address_entropy",
        *(f"local_memory_address_entropy_{k}" for k in range(1, 11)),
    ]
    names = ["total_memory_footprint", "ninety_percent_memory_footprint", *entropies]
    if not known:
        return dict.fromkeys(names)
    places, accesses = touched
    if not len(places):
        return dict.fromkeys(names, 0.0)
    order = np.argsort(places)
    places, accesses = places[order], accesses[order].astype(float)
    found: dict[str, float | None] = {
        "total_memory_footprint": float(len(places)),
        "ninety_percent_memory_footprint": float(_covering(accesses)),
    }
    for skipped, name in enumerate(entropies):
        starts = np.flatnonzero(np.diff(places >> np.uint64(skipped), prepend=np.uint64(2**64 - 1)))
        share = np.add.reduceat(accesses, starts) / accesses.sum()
        found[name] = float(-(share @ np.log2(share))) + 0.0
    return found


def _branch_counters(
    executed: NDArray[Any], histories: list[tuple[NDArray[Any], NDArray[Any]]]
) -> dict[str, float]:
    """Branches, and how hard the next one is to predict from their last sixteen outcomes (Yokota; linear)."""
    yokota = linear = windows = 0.0
    for patterns, often in histories:
        taken = np.bitwise_count(patterns.astype(np.uint32)) / _HISTORY
        some = taken > 0
        yokota -= float(taken[some] @ np.log2(taken[some]))
        linear += float(often @ (2 * np.minimum(taken, 1 - taken)))
        windows += float(often.sum())
    used = executed[executed > 0]
    return {
        "total_unique_branch_instructions": float(len(used)),
        "ninety_percent_branch_instructions": float(_covering(used)),
        "branch_entropy_yokota": yokota + 0.0,
        "branch_entropy_average_linear": linear / windows if windows else 0.0,
    }


def _mix(families: Mapping[str, int], raw: Mapping[str, Any], span: NDRange) -> dict[str, float | None]:
    executed = sum(families.values())
    accesses = raw["loads"] + raw["stores"]
    _, local, private = raw["spaces"]
    return {
        **{
            f"{name}_ratio": families.get(name, 0) / executed
            for name in ("int", "fp", "mem", "control", "call")
        },
        "local_access_ratio": local / accesses if accesses else None,
        "private_access_ratio": private / accesses if accesses else None,
        "load_ratio": raw["loads"] / accesses if accesses else None,
        "work_group_size": float(np.prod(span.local_size)),
        "work_groups": float(np.prod(span.groups)),
    }


def _covering(counts: NDArray[Any]) -> int:
    """How many of these, largest first, make nine tenths of their sum."""
    if not len(counts):
        return 0
    ordered = np.cumsum(np.sort(counts)[::-1].astype(float))
    return int(np.searchsorted(ordered, np.ceil(ordered[-1] * 0.9))) + 1


def _weighted_median(values: NDArray[np.float64], often: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    values, reached = values[order], np.cumsum(often[order])
    total = reached[-1]
    lower = values[np.searchsorted(reached, (total - 1) // 2, side="right")]
    upper = values[np.searchsorted(reached, total // 2, side="right")]
    return float((lower + upper) / 2)
