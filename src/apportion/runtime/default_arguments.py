"""Arguments for a kernel that nobody described: how long its arrays must be follows from how far it reaches.

An integer passed by value is taken for what the code uses it as: a bound of the range, the length of a row,
how often a loop runs. Where arrays would become too long, loops are made shorter. Where reach is not known,
arrays have several elements for each work-item, and some millions at least. All of this is assumed, and told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from apportion.errors import InvalidSetting
from apportion.program.kernel.access import ArgumentAccess, KernelAccess
from apportion.program.kernel.bounds import NDRange, bytes_touched
from apportion.program.kernel.signature import KernelArgument, Signature
from apportion.runtime.images import DIMENSIONS
from apportion.runtime.words import ArrayWord, read_word, type_word, word_for
from apportion.runtime.workload import Case

_QUERY = re.compile(r"get_(?:global|local|group)_(?:id|size)\s*\(\s*([0-2])\s*\)")
_MOST_BYTES, _MOST_CASE_BYTES = 1 << 27, 1 << 29
"""Of arrays whose reach is known, beyond which loops are made shorter; of all arrays, beyond which a range is
left out."""
_SHAPES: dict[int, dict[int, tuple[int, ...]]] = {
    2: {64: (8, 8), 128: (16, 8), 256: (16, 16)},
    3: {64: (4, 4, 4), 128: (8, 4, 4), 256: (8, 8, 4)},
}
_UNKNOWN_TIMES, _UNKNOWN_LEAST = 4, 1 << 21
"Elements of arrays whose reach is not known: for each work-item, and in all."
_LOCAL_ELEMENTS = 4
"Elements of local memory for each work-item of a group: tiles have borders."
TRIPS = 1024
"""The largest trip count that is guessed for a loop whose trip count is an argument. Several such loops may
stand inside each other: they run as often together."""
_READ_TRIPS = 16
"What trip counts that are read from an array are kept below."
OTHER_TRIPS = (4, 32, 1 << 14)
"Other limits of guessed trip counts: an answer that depends on a guess is worked out under each of them too."


@dataclass(frozen=True)
class Assumption:
    """An argument that was not given, and what it was taken for."""

    name: str
    word: str
    reason: str
    guessed: bool = False
    "Whether nothing in the code says it: how long a kernel takes may depend on it."

    def __str__(self) -> str:
        return f"{self.name}={self.word} ({self.reason})"


@dataclass(frozen=True)
class Deduced:
    """A launch whose arguments are all known, and which of them were assumed."""

    case: Case
    assumed: tuple[Assumption, ...] = ()

    @property
    def guessed(self) -> tuple[str, ...]:
        """The integers that were guessed."""
        return tuple(each.name for each in self.assumed if each.guessed)


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
                case = deduced(signature, access, span, most=most).case
                found[span.global_size, span.local_size] = case
    kept = [case for case in found.values() if case.nbytes <= _MOST_CASE_BYTES]
    if not kept:
        raise InvalidSetting(
            f"The arrays of {signature.name!r} would take more than {_MOST_CASE_BYTES >> 20} MiB"
        )
    return kept


def deduced(
    signature: Signature,
    access: KernelAccess,
    span: NDRange,
    given: Mapping[str, str] | None = None,
    *,
    most: int = 1 << 31,
    trips: int | None = None,
) -> Deduced:
    """The case of a kernel over one range.

    Args:
        given: arguments that are known, as `words` writes them.
        most: no integer that is passed by value is larger.
        trips: the largest trip count, or length of a row, that is guessed; usually one by which loops that
            may stand inside each other run `TRIPS` times together.

    Raises:
        InvalidSetting: an argument that cannot be made up, or that is not what the kernel takes.
    """
    known = {
        argument.index: word_for(
            argument, given[argument.name], span, _fill_of(access.arguments[argument.index])
        )
        for argument in signature.arguments
        if given and argument.name in given
    }
    numbers = {
        place: int(number)
        for place, text in known.items()
        if isinstance(number := read_word(text), np.integer)
    }
    if trips is None:
        nests = [
            int(role.removeprefix("nest "))
            for a in signature.arguments if a.index not in known and _is_integer(a)
            for role in access.arguments[a.index].roles if role.startswith("nest ")
        ]  # fmt: skip
        trips = max(2, round(TRIPS ** (1 / max(nests, default=1))))
    while True:
        chosen = {
            argument.index: _chosen(argument, access.arguments[argument.index].roles, span, trips, most)
            for argument in signature.arguments
            if argument.index not in known and _is_integer(argument)
        }
        scalars = numbers | {place: value for place, (value, _, _) in chosen.items()}
        reached = {
            argument.index: _reached(access.arguments[argument.index], access, span, scalars)
            for argument in signature.arguments
            if argument.is_pointer and argument.space != "local" and argument.index not in known
        }
        if sum(size or 0 for size in reached.values()) <= _MOST_BYTES or trips <= 1:
            break
        trips //= 4
    words: list[str] = []
    assumed: list[Assumption] = []
    for argument in signature.arguments:
        if argument.index in known:
            words.append(known[argument.index])
            continue
        use = access.arguments[argument.index]
        if argument.index in chosen:
            value, reason, guessed = chosen[argument.index]
            words.append(f"{argument.scalar_type}:{value}")
            assumed.append(Assumption(argument.name, str(value), reason, guessed))
            continue
        word, reason = _made(argument, use, span, reached.get(argument.index, 0))
        words.append(word)
        assumed.append(Assumption(argument.name, word, reason))
    return Deduced(Case(span, tuple(words)), tuple(assumed))


def outside(signature: Signature, access: KernelAccess, case: Case) -> str | None:
    """The first array that a launch may reach outside of, in words; None where it stays inside all of them.

    Reach is worked out from the whole range, without the tests by which a kernel keeps work-items out: what
    is found here may be kept out all the same.
    """
    numbers = {place: int(word) for place, word in enumerate(case.words()) if isinstance(word, np.integer)}
    for argument in signature.arguments:
        word = case.words()[argument.index]
        if not isinstance(word, ArrayWord):
            continue
        reached = _reached(access.arguments[argument.index], access, case.span, numbers)
        if reached is None:
            return f"it is not known how far {argument.name!r} is reached"
        if reached > word.nbytes:
            return f"{argument.name!r} may be reached up to byte {reached:,}, and has {word.nbytes:,}"
    return None


def _is_integer(argument: KernelArgument) -> bool:
    kind = argument.scalar_type
    return (
        not argument.is_pointer
        and kind is not None
        and np.dtype(kind).kind in "iu"
        and argument.components == 1
    )


def _chosen(
    argument: KernelArgument, roles: frozenset[str], span: NDRange, trips: int, most: int
) -> tuple[int, str, bool]:
    """An integer's value, why it is that, and whether nothing says so."""
    value, reason, guessed = _by_role(roles, span, trips)
    largest = min(most, int(np.iinfo(argument.scalar_type or "int32").max))
    return (value, reason, guessed) if value <= largest else (largest, f"{reason}; as much as fits", guessed)


def _by_role(roles: frozenset[str], span: NDRange, trips: int) -> tuple[int, str, bool]:
    sizes = span.global_size
    bounds = sorted(int(role.removeprefix("bound ")) for role in roles if role.startswith("bound "))
    strides = sorted(int(role[-1]) for role in roles if re.fullmatch(r"stride \d", role))
    divides = sorted(int(role[-1]) for role in roles if re.fullmatch(r"divisor \d", role))
    if bounds:
        if len(bounds) > 1:
            return span.work_items, "it bounds the work-items", False
        return _size(sizes, bounds[0]), f"it bounds the work-items of dimension {bounds[0]}", False
    if divides and len(sizes) == 1:
        side = 1 << (max(sizes[0], 1).bit_length() // 2)
        return side, "ids are divided by it: taken for the length of a row", True
    if (strides or divides) and len(sizes) > 1:
        along = 1 if strides == [0] else 0
        sure = "loop" not in roles
        if sure:
            return sizes[along], f"the length of a row: the work-items of dimension {along}", False
    if "loop" in roles or "stride loop" in roles or "divisor" in roles:
        side = min(sizes) if len(sizes) > 1 else sizes[0]
        return max(1, min(side, trips)), "it is the trip count of a loop", True
    if strides:
        return 1, "ids are multiplied by it", False
    if "shift" in roles:
        return 1, "values are shifted by it", False
    if "offset" in roles and not roles - {"offset", "data"}:
        return 0, "it is added to where arrays are read or written", False
    return 1, "it is only computed with" if roles else "it is not used", False


def _size(sizes: tuple[int, ...], dimension: int) -> int:
    return sizes[dimension] if dimension < len(sizes) else 1


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


def _reached(
    use: ArgumentAccess, access: KernelAccess, span: NDRange, scalars: Mapping[int, int]
) -> int | None:
    """The bytes of an array that a launch can touch, where that is known."""
    ends = [0]
    for reaches in (use.read_reach, use.write_reach):
        groups = (0, span.groups[0])
        touched = bytes_touched(access.program, reaches, span, 0, groups, scalars, 1 << 40)
        if touched is None:
            return None
        ends.append(touched[1])
    return max(ends)


def _made(
    argument: KernelArgument, use: ArgumentAccess, span: NDRange, reached: int | None
) -> tuple[str, str]:
    """The word for an argument that is not an integer, and why it is that."""
    kind = type_word(argument)
    if argument.space == "local":
        each = max(argument.element_bytes, 4)
        return (
            f"local:{each * _LOCAL_ELEMENTS * math.prod(span.local_size)}",
            f"{_LOCAL_ELEMENTS} elements for each work-item of a group",
        )
    if not argument.is_supported:
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type}, which no host passes to a single launch"
        )
    if argument.is_image:
        return _image(argument, span), "an image of the size of the range"
    if argument.is_sampler:
        return "sampler:clamp_to_edge,nearest", "the plainest"
    if not argument.is_pointer:
        return _value(argument, kind, use.roles, span)
    if kind is None:
        kind = "uint8"
    each = read_word(f"{kind}[1]=zeros").nbytes  # type: ignore[union-attr]
    if reached is None:
        needed = 8 * max(_UNKNOWN_TIMES * span.work_items, _UNKNOWN_LEAST)
        reason = "how far it is reached is not known"
    else:
        needed, reason = reached, "as far as it is reached"
    count = max(-(-needed // each), span.work_items * (argument.components if argument.scalar_type else 1))
    fill = _fill_of(use)
    if fill == "random" and use.is_index and argument.scalar_type is None and not _holds_integers(kind):
        return f"{kind}[{count}]=zeros", f"{reason}; what indexes memory stands in it as other types"
    if fill == "random" and argument.scalar_type is not None:
        kinds = np.dtype(argument.scalar_type)
        if kinds.kind in "iu" and (use.is_index or "trips" in use.roles):
            # What indexes memory must stay inside arrays of this size.
            most = _READ_TRIPS if "trips" in use.roles else span.work_items
            fill = f"below:{min(most, span.work_items, np.iinfo(kinds).max)}"
    return f"{kind}[{count}]={fill}", reason


def _holds_integers(kind: str) -> bool:
    """Whether a structure has a field of integers; of several types that share a place the first counts."""
    fields = read_word(f"{kind}[1]=zeros").kind.fields or {}  # type: ignore[union-attr]
    return any(each.base.kind in "iu" for each, *_ in fields.values())


def _fill_of(use: ArgumentAccess) -> str:
    """What is only written, or summed up by atomics, starts at zero; what is read must not."""
    return "random" if use.reads else "zeros"


def _value(
    argument: KernelArgument, kind: str | None, roles: frozenset[str], span: NDRange
) -> tuple[str, str]:
    if argument.scalar_type is not None and argument.components == 1:
        return f"{kind}:0.5", "any number"
    if argument.scalar_type is not None:
        numbers, reason = _components(argument, roles, span)
        return f"bytes:{np.array(numbers, argument.scalar_type).tobytes().hex()}", reason
    if not argument.element_bytes:
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type}, whose size is not known; give it with "
            "--arg NAME=bytes:…"
        )
    structure = read_word(f"{kind}[1]=zeros")
    assert isinstance(structure, ArrayWord)
    values = np.zeros(1, structure.kind)
    for name, (each, *_) in (structure.kind.fields or {}).items():
        values[name] = 0.5 if each.kind == "f" else 1
    return f"bytes:{values.tobytes().hex()}", "every number in it is 0.5, or 1 for integers"


def _components(
    argument: KernelArgument, roles: frozenset[str], span: NDRange
) -> tuple[Sequence[float], str]:
    """The numbers of a vector, and why they are those."""
    each = argument.components
    if np.dtype(argument.scalar_type).kind == "f":
        return [0.5] * each, "every component is 0.5"
    if any(role.startswith(("bound", "stride", "divisor", "loop")) for role in roles):
        return (*span.global_size, *[1] * each)[:each], "the work-items of each dimension"
    if "offset" in roles:
        return [0] * each, "it is added to where arrays are read or written"
    return [1] * each, "every component is 1"


def _image(argument: KernelArgument, span: NDRange) -> str:
    kind = argument.bare_type.removesuffix("_t")
    sizes = (*span.global_size, *(1,) * 3)[: DIMENSIONS[kind]]
    return f"{kind}:{argument.image_format or 'rgba32f'}[{','.join(map(str, sizes))}]=random"
