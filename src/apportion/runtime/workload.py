"""Workload: a kernel with the ranges it is measured at, and what each of its arguments is there.

An argument is written in words, so that a workload is a line of JSON: `float32[4096]=random` is an array,
`int32:17` a value, `local:1024` memory of each work-group. A file of OpenCL C may have a file of JSON
beside it that says the same with letters for sizes: `N` for all work-items, `N0` to `N2` for those of a
dimension, `L` and `L0` to `L2` for a work-group's; numbers and letters are added, multiplied and divided.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.program.buildfile import parsed, words_of
from apportion.program.compile import CompileOptions, driver_options
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.launch import PlannedLaunch
from apportion.program.kernel.work import Contents, contents_of
from apportion.program.source import Source

FILLS = ("zeros", "ones", "random", "range", "below", "file")
"""What arrays hold: 0, 1, random numbers (floating point from 0 to 1, integers from 0 to 255), 0 1 2 …,
random integers below a number (`below:64`), or the contents of a `.npy` file."""

_ARRAY = re.compile(r"(?P<type>u?int(?:8|16|32|64)|float(?:16|32|64))\[(?P<count>[^\]]+)\]=(?P<fill>.+)")
_VALUE = re.compile(r"(?P<type>u?int(?:8|16|32|64)|float(?:16|32|64)):(?P<value>.+)")
_FACTORS = re.compile(r"([*/])")


@dataclass(frozen=True)
class ArrayWord:
    """An array argument: its type, its length and what it holds."""

    dtype: str
    count: int
    fill: str

    def __post_init__(self) -> None:
        if self.count < 1 or self.fill.partition(":")[0] not in FILLS:
            raise InvalidSetting(
                f"An array needs a length above 0 and one of {', '.join(FILLS)}, not {self.count} and "
                f"{self.fill!r}"
            )

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.count * np.dtype(self.dtype).itemsize

    @property
    def bound(self) -> int:
        """What random integers that it holds are below."""
        fill, _, rest = self.fill.partition(":")
        return min(int(rest) if fill == "below" else 256, int(np.iinfo(self.dtype).max))

    def contents(self) -> Contents | None:
        """What it holds, if it holds integers; None also where a file cannot be read."""
        if np.dtype(self.dtype).kind not in "iu":
            return None
        fill, _, rest = self.fill.partition(":")
        match fill:
            case "zeros" | "ones":
                return Contents(float(fill == "ones"), 0.0)
            case "range":
                return Contents(self.count / 2, 1.0)
            case "file":
                try:
                    return contents_of(np.load(rest, mmap_mode="r", allow_pickle=False))
                except (OSError, ValueError):
                    return None
        return Contents(
            self.bound / 2, self.bound / 6
        )  # of two random numbers the second is so much above the first


Word = ArrayWord | np.generic | int
"An array, a value, or the bytes of local memory."


@dataclass(frozen=True)
class Case:
    """A range, and the arguments of a launch over it."""

    span: NDRange
    arguments: tuple[str, ...]

    def words(self) -> list[Word]:
        """The arguments, read."""
        return [read_word(text) for text in self.arguments]

    @property
    def arrays(self) -> dict[int, ArrayWord]:
        """Those that are arrays, by their place among the arguments."""
        return {place: word for place, word in enumerate(self.words()) if isinstance(word, ArrayWord)}

    @property
    def nbytes(self) -> int:
        """The size of all arrays."""
        return sum(word.nbytes for word in self.arrays.values())

    def launch(self, ir: str, kernel: str, source: str) -> PlannedLaunch:
        """The case as models see it."""
        words = self.words()
        arrays = self.arrays
        scalars = {
            place: int(word)
            for place, word in enumerate(words)
            if isinstance(word, np.generic) and word.dtype.kind in "iu"
        }
        contents = {place: found for place, word in arrays.items() if (found := word.contents()) is not None}
        sizes = {place: word.nbytes for place, word in arrays.items()}
        return PlannedLaunch(ir, kernel, self.span, sizes, scalars, source, contents)


@dataclass(frozen=True)
class Workload:
    """A kernel and where it is measured."""

    name: str
    suite: str
    "Where it comes from: kernels of one suite are not strangers to each other."
    source: str
    kernel: str
    cases: tuple[Case, ...]
    options: str = ""

    def __post_init__(self) -> None:
        if not self.cases:
            raise InvalidSetting(f"{self.name}: there is no range to measure it at")

    @property
    def digest(self) -> str:
        """SHA-256 of the source."""
        return hashlib.sha256(self.source.encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def program(self) -> Source:
        """The source with its options."""
        return Source(self.source, "opencl", self.name, parsed(words_of(self.options)))

    def as_json(self) -> dict[str, Any]:
        """A plain object, which `from_json` reads."""
        cases = [[case.span.global_size, case.span.local_size, case.arguments] for case in self.cases]
        return {
            "name": self.name, "suite": self.suite, "kernel": self.kernel, "options": self.options,
            "source": self.source, "cases": cases,
        }  # fmt: skip


def from_json(values: Mapping[str, Any]) -> Workload:
    """The workload that `as_json` gave."""
    try:
        cases = tuple(
            Case(NDRange(tuple(size), tuple(local)), tuple(arguments))
            for size, local, arguments in values["cases"]
        )
        return Workload(
            values["name"], values["suite"], values["source"], values["kernel"], cases,
            values.get("options", ""),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedInput(f"not a workload ({error})") from error


def described(path: Path, source: Source | None = None, suite: str = "") -> Workload | None:
    """The workload of a file of OpenCL C that has a `.json` beside it; None for one that has not.

    Args:
        source: what the file holds, where it was read already.

    Raises:
        UnreadableFile, MalformedInput: a file is not readable, or not what it should be.
    """
    beside = path.with_suffix(".json")
    if not beside.exists():
        return None
    try:
        said = json.loads(beside.read_text())
        source = source or Source.read(path, "opencl")
    except OSError as error:
        raise UnreadableFile(f"Cannot read {beside}: {error.strerror}") from error
    except ValueError as error:
        raise MalformedInput(f"is not JSON ({error})", file=str(beside)) from error
    try:
        cases = [
            resolved(said["arguments"], NDRange(tuple(size), tuple(local))) for size, local in said["ranges"]
        ]
        return Workload(
            path.stem, suite or said["suite"], str(source.text), said["kernel"], tuple(cases),
            driver_options(source, CompileOptions()),
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedInput(f"does not describe a kernel ({error!r})", file=str(beside)) from error


def resolved(arguments: Mapping[str, str] | list[str], span: NDRange) -> Case:
    """Arguments that are written with letters, over one range."""
    texts = arguments.values() if isinstance(arguments, Mapping) else arguments
    return Case(span, tuple(_resolved(text, span) for text in texts))


def read_word(text: str) -> Word:
    """One argument.

    Raises:
        InvalidSetting: it is none.
    """
    if match := _ARRAY.fullmatch(text):
        return ArrayWord(match["type"], int(match["count"]), match["fill"])
    try:
        if text.startswith("local:"):
            return int(text.removeprefix("local:"))
        if match := _VALUE.fullmatch(text):
            kind = np.dtype(match["type"])
            number = float(match["value"]) if kind.kind == "f" else int(match["value"])
            return kind.type(number)  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as error:
        raise InvalidSetting(f"The argument {text!r} is no number that fits: {error}") from None
    raise InvalidSetting(f"An argument is written float32[64]=random, int32:5 or local:256, not {text!r}")


def evaluate(text: str, span: NDRange) -> int:
    """A size written with letters: sums of products, `N0*N1+2`."""
    known = {"N": span.work_items, "L": math.prod(span.local_size)}
    for dimension in range(3):
        there = dimension < span.dimensions
        known[f"N{dimension}"] = span.global_size[dimension] if there else 1
        known[f"L{dimension}"] = span.local_size[dimension] if there else 1
    total = 0
    for term in text.split("+"):
        value = 1
        operation = "*"
        for part in _FACTORS.split(term.strip()):
            part = part.strip()
            if part in ("*", "/"):
                operation = part
            elif part in known or part.isdigit():
                number = known[part] if part in known else int(part)
                value = value * number if operation == "*" else value // max(number, 1)
            else:
                raise InvalidSetting(
                    f"{part!r} in {text!r} is neither a number nor one of {', '.join(known)}"
                )
        total += value
    return total


def _resolved(text: str, span: NDRange) -> str:
    if match := _ARRAY.fullmatch(text):
        fill = match["fill"]
        if fill.startswith("below:"):
            fill = f"below:{evaluate(fill.removeprefix('below:'), span)}"
        return f"{match['type']}[{evaluate(match['count'], span)}]={fill}"
    if text.startswith("local:"):
        return f"local:{evaluate(text.removeprefix('local:'), span)}"
    match = _VALUE.fullmatch(text)
    if match is not None and not match["type"].startswith("float"):
        return f"{match['type']}:{evaluate(match['value'], span)}"
    return text
