"""Arguments for a kernel that nobody described: how long its arrays must be follows from how far it reaches.

Integers passed by value are taken for sizes: of the whole range, or of its first dimension where there are
several; where arrays would become too long, for smaller numbers. Where reach is not known, arrays have
several elements for each work-item, and some millions at least. That is a guess: what a kernel does with it
shows when it is run, behind guards.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from apportion.errors import InvalidSetting
from apportion.program.kernel.access import ArgumentAccess, KernelAccess
from apportion.program.kernel.bounds import NDRange, bytes_touched
from apportion.program.kernel.signature import KernelArgument, Signature
from apportion.runtime.workload import Case

_QUERY = re.compile(r"get_(?:global|local|group)_(?:id|size)\s*\(\s*([0-2])\s*\)")
_MOST_BYTES, _MOST_CASE_BYTES = 1 << 27, 1 << 29
"""Of arrays whose reach is known, beyond which integers are made smaller; of all arrays, beyond which a
range is left out."""
_SHAPES: dict[int, dict[int, tuple[int, ...]]] = {
    2: {64: (8, 8), 128: (16, 8), 256: (16, 16)},
    3: {64: (4, 4, 4), 128: (8, 4, 4), 256: (8, 8, 4)},
}
_UNKNOWN_TIMES, _UNKNOWN_LEAST = 4, 1 << 21
"Elements of arrays whose reach is not known: for each work-item, and in all."
_NO_VALUES: Mapping[int, int] = {}
_LOCAL_ELEMENTS = 4
"Elements of local memory for each work-item of a group: tiles have borders."


def cases_of(
    signature: Signature,
    access: KernelAccess,
    source: str,
    sizes: Sequence[int],
    local_sizes: Sequence[int],
    *,
    most: int = 1 << 31,
) -> list[Case]:
    """Cases of a kernel, for about these numbers of work-items and work-group sizes.

    Args:
        most: no integer that is passed by value is larger.

    Raises:
        InvalidSetting: an argument that cannot be made up.
    """
    dimensions = 1 + max((int(found) for found in _QUERY.findall(source)), default=0)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], Case] = {}
    for size in sizes:
        for local_size in local_sizes:
            span = _span(size, local_size, dimensions, signature.required_local_size)
            if (span.global_size, span.local_size) not in found:
                found[span.global_size, span.local_size] = _case(signature, access, span, most)
    kept = [case for case in found.values() if case.nbytes <= _MOST_CASE_BYTES]
    if not kept:
        raise InvalidSetting(
            f"The arrays of {signature.name!r} would take more than {_MOST_CASE_BYTES >> 20} MiB"
        )
    return kept


def case_of(
    signature: Signature, access: KernelAccess, span: NDRange, values: Mapping[int, int] | None = None
) -> Case:
    """The case of a kernel over one range.

    Args:
        values: of integers that are passed by value, by their place; the others are made up.

    Raises:
        InvalidSetting: an argument that cannot be made up.
    """
    return _case(signature, access, span, 1 << 31, values or {})


def _span(size: int, local_size: int, dimensions: int, required: tuple[int, ...] | None) -> NDRange:
    if required is not None:
        local = (*required, 1, 1)[: max(dimensions, _used(required))]
    else:
        local = _SHAPES.get(dimensions, {}).get(local_size, (local_size, *(1,) * (dimensions - 1)))
    side = size ** (1 / len(local))
    shape = tuple(max(1, round(side / each)) * each for each in local)
    return NDRange(shape, local)


def _used(required: tuple[int, ...]) -> int:
    return max(place for place, size in enumerate((*required, 1), 1) if size > 1 or place == 1)


def _case(
    signature: Signature,
    access: KernelAccess,
    span: NDRange,
    most: int,
    values: Mapping[int, int] = _NO_VALUES,
) -> Case:
    whole = min(most, span.work_items if span.dimensions == 1 else span.global_size[0])
    for value in (whole, *(bound for bound in (256, 64, 16, 4, 1) if bound < whole)):
        scalars = {
            argument.index: values.get(argument.index, value)
            for argument in signature.arguments
            if not argument.is_pointer
            and argument.scalar_type is not None
            and np.dtype(argument.scalar_type).kind in "iu"
        }
        reached = {
            argument.index: _reached(access.arguments[argument.index], access, span, scalars)
            for argument in signature.arguments
            if argument.is_pointer and argument.space != "local"
        }
        if sum(size or 0 for size in reached.values()) <= _MOST_BYTES:
            break
    unknown = 8 * max(_UNKNOWN_TIMES * span.work_items, _UNKNOWN_LEAST)
    needed = {place: unknown if size is None else size for place, size in reached.items()}
    words = tuple(
        _word(
            argument,
            access.arguments[argument.index],
            span,
            values.get(argument.index, value),
            needed.get(argument.index, 0),
        )
        for argument in signature.arguments
    )
    return Case(span, words)


def _reached(use: ArgumentAccess, access: KernelAccess, span: NDRange, scalars: dict[int, int]) -> int | None:
    """The bytes of an array that a launch can touch, where that is known."""
    ends = [0]
    for reaches in (use.read_reach, use.write_reach):
        groups = (0, span.groups[0])
        touched = bytes_touched(access.program, reaches, span, 0, groups, scalars, 1 << 40)
        if touched is None:
            return None
        ends.append(touched[1])
    return max(ends)


def _word(argument: KernelArgument, use: ArgumentAccess, span: NDRange, value: int, needed: int) -> str:
    kind = argument.scalar_type
    if argument.space == "local":
        each = max(argument.element_bytes, 4)
        return f"local:{each * _LOCAL_ELEMENTS * math.prod(span.local_size)}"
    if kind is None or not argument.is_supported:
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type}, which cannot be made up; describe it in a "
            "file of JSON beside the source"
        )
    if not argument.is_pointer:
        return f"{kind}:{min(value, np.iinfo(kind).max)}" if np.dtype(kind).kind in "iu" else f"{kind}:0.5"
    each = np.dtype(kind).itemsize
    count = max(-(-needed // each), span.work_items * argument.components)
    if not use.reads:
        fill = "zeros"
    elif np.dtype(kind).kind in "iu" and use.is_index:
        # What indexes memory must stay inside arrays of this size.
        fill = f"below:{min(span.work_items, np.iinfo(kind).max)}"
    else:
        fill = "random"
    return f"{kind}[{count}]={fill}"
