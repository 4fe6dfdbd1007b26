"""Workload: a kernel with the ranges it is measured at, and what each of its arguments is there.

An argument is written in words (see `words`), so that a workload is a line of JSON. A file of OpenCL C may
have a file of JSON beside it that says the same with letters for sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput
from apportion.program.buildfile import parsed, words_of
from apportion.program.compile import CompileOptions, driver_options, driver_text
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.launch import PlannedLaunch
from apportion.program.kernel.signature import Signature
from apportion.program.source import Source
from apportion.runtime.words import ArrayWord, ImageWord, Word, named, read_word, resolved_word
from apportion.settings import read_json


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
    def images(self) -> dict[int, ImageWord]:
        """Those that are images, likewise."""
        return {place: word for place, word in enumerate(self.words()) if isinstance(word, ImageWord)}

    @property
    def memory(self) -> dict[int, ArrayWord]:
        """Arrays, and the pixels of images as arrays."""
        return self.arrays | {place: word.pixels for place, word in self.images.items()}

    @property
    def nbytes(self) -> int:
        """The size of all arrays and images."""
        return sum(word.nbytes for word in self.memory.values())

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
        sizes = {place: word.nbytes for place, word in self.memory.items()}
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
    file = path.with_suffix(".json")
    if not file.exists():
        return None
    said = _read(file)
    source = source or Source.read(path, "opencl")
    try:
        cases = [
            resolved(said["arguments"], NDRange(_sizes(size), _sizes(local)))
            for size, local in said["ranges"]
        ]
        for case in cases:
            case.words()  # read now: what is wrong with them is this file's fault
        return Workload(
            path.stem, suite or _text(said.get("suite", "")), driver_text(source, CompileOptions()),
            _text(said["kernel"]), tuple(cases), driver_options(source, CompileOptions()),
        )  # fmt: skip
    except KeyError as error:
        lacks = f"it has no {error.args[0]!r}"
        raise MalformedInput(f"does not describe a kernel: {lacks}. {_EXAMPLE}", file=str(file)) from error
    except (TypeError, AttributeError, ValueError) as error:
        raise MalformedInput(f"does not describe a kernel ({error}). {_EXAMPLE}", file=str(file)) from error


def _sizes(numbers: object) -> tuple[int, ...]:
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise TypeError(f"the sizes of a range are whole numbers in brackets, not {numbers!r:.60}")
    return tuple(numbers)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value


_EXAMPLE = (
    'Write it like {"kernel": "saxpy", "arguments": {"x": "float32[N]", "n": "int32:N"}, '
    '"ranges": [[[65536], [64]]]}'
)


def beside(source: Source, signature: Signature, given: Sequence[str] = ()) -> dict[str, str]:
    """What is said of a kernel's arguments: by the `.json` beside its source, and before that by `given`.

    Args:
        given: `name=value`, as on the command line.

    Raises:
        InvalidSetting, UnknownName: an argument said twice, or that there is not.
        UnreadableFile, MalformedInput: the file beside it is wrong.
    """
    names = [argument.name for argument in signature.arguments]
    mine = named(tuple(given), names)
    file = Path(source.name).with_suffix(".json")
    if not source.name.endswith(".cl") or not file.is_file():
        return mine
    said = _read(file)
    if said.get("kernel") != signature.name or "arguments" not in said:
        return mine
    arguments = said["arguments"]
    if isinstance(arguments, list):
        arguments = dict(zip(names, arguments, strict=False))
    if not isinstance(arguments, Mapping) or not all(isinstance(word, str) for word in arguments.values()):
        raise MalformedInput(f"arguments must be texts. {_EXAMPLE}", file=str(file))
    return named(arguments, names) | mine


def _read(file: Path) -> dict[str, Any]:
    said = read_json(file)
    if not isinstance(said, dict):
        raise MalformedInput(f"does not describe a kernel. {_EXAMPLE}", file=str(file))
    return said


def resolved(arguments: Mapping[str, str] | list[str], span: NDRange) -> Case:
    """Arguments that are written with letters, over one range."""
    texts = arguments.values() if isinstance(arguments, Mapping) else arguments
    return Case(span, tuple(resolved_word(text, span) for text in texts))
