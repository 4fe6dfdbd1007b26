"""Arguments for a kernel: as the command line writes them, or made from its signature and a size.

`x=float32[1024]` makes an array, `x=data.npy` reads one, `n=3.5` is a value, `t=local:1024` is local memory.
What is not given is made: arrays of as many elements as there are work-items, that number for integers, 1 for
other values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.program.kernel.access import ArgumentAccess, KernelAccess
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import KernelArgument, Signature
from apportion.runtime.base import LocalMemory, Value

_MADE = re.compile(r"(?P<type>[a-z]+\d*)\[(?P<shape>[^\]]+)\](?:=(?P<fill>\w+))?")
_TYPES = {
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
}  # fmt: skip
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "uint": "uint32",
            "long": "int64", "ulong": "uint64", "char": "int8", "uchar": "uint8", "short": "int16",
            "ushort": "uint16"}  # fmt: skip
FILLS = ("random", "zeros", "ones", "range")


def arguments_for(
    signature: Signature,
    access: KernelAccess,
    span: NDRange,
    given: Sequence[str] = (),
    *,
    seed: int = 0,
) -> dict[str, Value | LocalMemory]:
    """A value for each argument of a kernel, by name and in order.

    Args:
        given: `name=value`, as on the command line.
        seed: of the random numbers; the same seed gives the same arrays.

    Raises:
        InvalidSetting: a value that cannot be read, or that the argument cannot take.
        UnknownName: an argument that the kernel does not have.
    """
    written = _by_name(given, signature)
    found: dict[str, Value | LocalMemory] = {}
    for argument in signature.arguments:
        generator = np.random.default_rng([seed, argument.index])
        use = access.arguments[argument.index]
        if argument.name in written:
            found[argument.name] = _read(argument, use, written[argument.name], span, generator)
        else:
            found[argument.name] = _made(argument, use, span, generator)
    return found


def _by_name(given: Sequence[str], signature: Signature) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise InvalidSetting(
                f"Write an argument as name=value, for example x=float32[1024], not {text!r}"
            )
        if name in found:
            raise InvalidSetting(f"The argument {name!r} is given twice")
        found[signature.argument(name).name] = value
    return found


def _read(
    argument: KernelArgument, use: ArgumentAccess, text: str, span: NDRange, generator: np.random.Generator
) -> Value | LocalMemory:
    if text.startswith("local:"):
        return LocalMemory(_count(text.removeprefix("local:"), span))
    if text.endswith(".npy"):
        return _file(Path(text))
    if match := _MADE.fullmatch(text):
        kind = _ALIASES.get(match["type"], match["type"])
        if kind not in _TYPES:
            raise UnknownName("type", kind, _TYPES)
        shape = tuple(_count(part, span) for part in re.split(r"[,x×]", match["shape"]))
        return _filled(np.dtype(kind), shape, match["fill"] or _fill(use), use, generator)
    try:
        return _number(text)
    except ValueError:
        raise InvalidSetting(
            f"{argument.name}={text}: not a number, a .npy file, a type with a size (float32[1024]) or "
            "local:BYTES"
        ) from None


def _made(
    argument: KernelArgument, use: ArgumentAccess, span: NDRange, generator: np.random.Generator
) -> Value | LocalMemory:
    kind = argument.scalar_type
    if argument.space == "local":
        items = int(np.prod(span.local_size))
        return LocalMemory(max(argument.element_bytes, 1) * items)
    if kind is None:
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type}, which cannot be made up; give it with --arg"
        )
    if argument.is_pointer:
        return _filled(np.dtype(kind), (span.work_items * argument.components,), _fill(use), use, generator)
    one = np.dtype(kind).type(span.work_items if np.dtype(kind).kind in "iu" else 1)
    return np.full(argument.components, one).tobytes() if argument.components > 1 else one


def _fill(use: ArgumentAccess) -> str:
    """What is only written, or summed up by atomics, starts at zero; what is read must not."""
    return "random" if use.reads else "zeros"


def _filled(
    kind: np.dtype[Any],
    shape: tuple[int, ...],
    fill: str,
    use: ArgumentAccess,
    generator: np.random.Generator,
) -> NDArray[Any]:
    count = int(np.prod(shape))
    match fill:
        case "zeros":
            return np.zeros(shape, kind)
        case "ones":
            return np.ones(shape, kind)
        case "range":
            return np.arange(count).astype(kind).reshape(shape)
        case "random" if kind.kind == "f":
            return generator.random(shape).astype(kind)
        case "random":
            # What indexes memory must stay inside arrays of this size; small numbers make useful data.
            most = count if use.is_index else 256
            return generator.integers(0, min(most, np.iinfo(kind).max), shape).astype(kind)
    raise UnknownName("filling", fill, FILLS)


def _count(text: str, span: NDRange) -> int:
    """A number, or `N` for the number of work-items, or a product of those: `4*N`."""
    total = 1
    for factor in text.split("*"):
        if factor.strip() == "N":
            total *= span.work_items
        elif factor.strip().isdigit() and int(factor):
            total *= int(factor)
        else:
            raise InvalidSetting(f"A size must be a number above 0, N or a product such as 4*N, not {text!r}")
    return total


def _number(text: str) -> int | float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def _file(path: Path) -> NDArray[Any]:
    try:
        values: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"Cannot read the array {path}: {error}") from error
    return np.ascontiguousarray(values)


def save(path: Path, name: str, values: Mapping[str, Value | LocalMemory]) -> None:
    """Write an array argument to a `.npy` file.

    Raises:
        UnknownName: the kernel has no array of that name.
        UnreadableFile: the file cannot be written.
    """
    arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray) and value.ndim}
    if name not in arrays:
        raise UnknownName("array", name, arrays)
    try:
        np.save(path, arrays[name], allow_pickle=False)
    except OSError as error:
        raise UnreadableFile(f"Cannot write {path}: {error.strerror}") from error
