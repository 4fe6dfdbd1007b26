"""Problem: kernels of our own with a generator of inputs, a NumPy reference and a verifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.program.source import Source
from apportion.runtime.base import LocalMemory, Value
from apportion.runtime.verify import difference

_LEAST = 64
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Stage:
    """One launch: a kernel, its arguments (names of arrays, or values), its range."""

    kernel: str
    arguments: tuple[str | Value | LocalMemory, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem of one size: its arrays, its launches, and what must come out."""

    arrays: dict[str, NDArray[Any]]
    stages: tuple[Stage, ...]
    reference: Callable[[], dict[str, NDArray[Any]]]
    "What must come out, worked out by NumPy when somebody asks."

    @cached_property
    def expected(self) -> dict[str, NDArray[Any]]:
        """Array → what it must hold at the end."""
        return self.reference()

    def values(self, stage: Stage, arrays: Arrays) -> tuple[Value | LocalMemory, ...]:
        """A launch's arguments, with names replaced by arrays."""
        return tuple(arrays[value] if isinstance(value, str) else value for value in stage.arguments)

    def fresh(self) -> dict[str, NDArray[Any]]:
        """Copies of the arrays, for one run."""
        return {name: values.copy() for name, values in self.arrays.items()}


Make = Callable[[int, np.random.Generator], Instance]


def exactly(expected: Arrays, found: Arrays) -> str | None:
    """What differs between results, in words; integers must be equal, floating point close."""
    for name, values in expected.items():
        if (said := difference(found[name], values)) is not None:
            return f"{name}: {said}"
    return None


@dataclass(frozen=True)
class Problem:
    """A problem of the suite."""

    name: str
    question: str
    "What it computes, in a line."
    file: str
    "Its OpenCL C, among the suite's kernels."
    make: Make
    "(size, generator) → an instance; the size is about the number of work-items."
    traits: frozenset[str] = frozenset()
    "What decides its speed: memory, compute, stencil, irregular, atomic, divergent, local, fp64."
    merges: Mapping[str, str] = field(default_factory=dict)
    "Written argument → how its results are put together, as the analysis of a launch should find."
    small: int = 1024
    "A size for tests."
    usual: int = 1 << 20
    "A size that takes a device some milliseconds."
    large: int = 1 << 24
    "A size that takes a fast device some milliseconds, transfers included."
    verify: Callable[[Arrays, Arrays], str | None] = exactly
    "(expected, found) → what is wrong, or None."
    chai: str = ""
    "The problem's name in the CHAI suite, which it is written anew after."

    def source(self) -> Source:
        """The kernels' source."""
        text = (files("apportion.suite") / "kernels" / self.file).read_text()
        return Source(text, "opencl", self.file)

    def instance(self, size: int | None = None, *, seed: int = 0) -> Instance:
        """An instance of about `size` work-items; the same for the same seed."""
        size = self.usual if size is None else size
        if size < _LEAST:
            raise InvalidSetting(f"A problem's size must be at least {_LEAST}, not {size}")
        return self.make(size, np.random.default_rng(seed))
