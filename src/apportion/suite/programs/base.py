"""Program: many launches over the same arrays, with what NumPy says must come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.session import BoundLaunch, Session
from apportion.coexecution.session_array import SessionArray
from apportion.errors import InvalidSetting
from apportion.program.source import Source
from apportion.runtime.base import LocalMemory, Value
from apportion.suite.base import Arrays, exactly


class Calls(ABC):
    """What runs a program: launches kernels over arrays that have names."""

    @abstractmethod
    def launch(
        self,
        kernel: str,
        *arguments: str | Value | LocalMemory,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
    ) -> None:
        """Launch a kernel; a string is the name of an array."""

    @abstractmethod
    def read(self, name: str) -> NDArray[Any]:
        """What an array holds now."""


Steps = Callable[[Calls], None]


@dataclass(frozen=True, eq=False)
class ProgramInstance:
    """A program of one size."""

    arrays: dict[str, NDArray[Any]]
    steps: Steps
    "Launches everything, once. It may be called again on what the call before left."
    reference: Callable[[], dict[str, NDArray[Any]]]
    "What must come out of one call, by NumPy."

    @cached_property
    def expected(self) -> dict[str, NDArray[Any]]:
        """Array → what it must hold after one call."""
        return self.reference()


@dataclass(frozen=True)
class Program:
    """A program that sessions are tested and measured with."""

    name: str
    question: str
    "What it computes, in a line."
    file: str
    "Its kernels, in the folder beside this file or among the bundled ones."
    make: Callable[[int, np.random.Generator], ProgramInstance]
    small: int
    "A size for tests: about the elements of its largest array."
    usual: int
    "A size at which a fast device takes some milliseconds."
    verify: Callable[[Arrays, Arrays], str | None] = exactly

    def source(self) -> Source:
        """The kernels' source."""
        here = files("apportion.suite.programs") / "kernels" / self.file
        path = here if here.is_file() else files("apportion.suite") / "kernels" / self.file
        return Source(path.read_text(), "opencl", self.file)

    def instance(self, size: int | None = None, *, seed: int = 0) -> ProgramInstance:
        """An instance of about `size` elements; the same for the same seed."""
        size = self.usual if size is None else size
        if size < self.small:
            raise InvalidSetting(
                f"The program {self.name!r} needs a size of {self.small} at least, not {size}"
            )
        return self.make(size, np.random.default_rng(seed))


class SessionCalls(Calls):
    """Runs a program in a session.

    Args:
        device: where everything runs; None: where the session decides.
    """

    def __init__(
        self,
        session: Session,
        program: Program,
        arrays: Mapping[str, NDArray[Any]],
        device: str | None = None,
    ) -> None:
        self.session, self.device, self._source = session, device, program.source()
        self.arrays: dict[str, SessionArray] = {}
        for name, values in arrays.items():
            if values.any():
                self.arrays[name] = session.array(values, name=name)
            else:
                self.arrays[name] = session.zeros(values.shape, values.dtype, name=name)
        self._bound: dict[Any, BoundLaunch] = {}
        self._kernels: dict[str, Any] = {}

    def launch(
        self,
        kernel: str,
        *arguments: str | Value | LocalMemory,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
    ) -> None:
        """Queue a launch; one over the same arrays is bound once."""
        fixed = tuple(value for value in arguments if isinstance(value, str | LocalMemory))
        key = kernel, fixed, global_size, local_size
        bound = self._bound.get(key)
        if bound is None:
            if kernel not in self._kernels:
                self._kernels[kernel] = self.session.kernel(self._source, kernel)
            given = [self.arrays[value] if isinstance(value, str) else value for value in arguments]
            bound = self._bound[key] = self._kernels[kernel].bind(
                *given, global_size=global_size, local_size=local_size, device=self.device
            )
        bound(*[value for value in arguments if not isinstance(value, str | LocalMemory)])

    def read(self, name: str) -> NDArray[Any]:
        """Bring it home."""
        return self.arrays[name].view()
