"""OpenCL kernels as something to tune: macros of the source, work-items and work-group sizes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from apportion.advise.tuning import Tunable
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting, NoDevice
from apportion.measure.expression import number_from
from apportion.measure.results import Tolerance, difference
from apportion.measure.space import Configuration, Space, key_of
from apportion.program.compile import CompileOptions
from apportion.program.kernel.bounds import NDRange, sizes_of
from apportion.runtime.arguments import arguments_for
from apportion.runtime.backend import Backend, open_backend

_LITERAL = re.compile(r"\d+(?:[x×]\d+)*")
_KEPT = 4
"Kernels that stay built: the best and what it is compared with are called alternately."


class WrongResult(Exception):
    """A configuration computes something else than the first one did."""


def tunable_kernel(
    source: Path,
    space: Space,
    *,
    global_size: str,
    local_size: str | None = None,
    kernel: str | None = None,
    arguments: Sequence[str] = (),
    device: str | None = None,
    default: Configuration | None = None,
    seed: int = 0,
) -> Tunable:
    """A kernel with macros and sizes to choose; each launch is timed by the device that runs it.

    Args:
        source: a file of OpenCL C; each parameter is a macro of its name in it.
        global_size: all work-items: `1024x64`, or an expression over the parameters for each dimension, with
            commas between them.
        local_size: the work-items of a work-group, written alike; by default one that suits the kernel.
        kernel: its name, where the file has several.
        arguments: as for `apportion run`: `x=float32[N]`; what is not given is made up.
        device: its id; the first when not given.
        default: what the kernel is used with so far.
        seed: of the arrays that are made up.

    Raises:
        NoDevice: there is none.
        UnknownName: there is no such device.
    """
    known = [info.id for info in open_backend("opencl").devices()]
    if not known:
        raise NoDevice("There is no OpenCL device to tune for; `apportion doctor` says what is missing")
    chosen = known[0] if device is None else device
    run = TunedKernel(source, kernel, chosen, global_size, local_size, tuple(arguments), seed, default)
    return Tunable(run, space, default=default, how_to=run.how_to)


@dataclass(frozen=True, eq=False)
class TunedKernel:
    """A kernel that is built for a configuration and launched; what is built stays in its process."""

    returns_seconds = True
    "A call returns what the device took for the launch."

    source: Path
    kernel: str | None
    device: str
    global_size: str
    local_size: str | None
    arguments: tuple[str, ...]
    seed: int
    right: Configuration | None = None
    "What it computes with this is right; with the first configuration that runs, where there is none."
    _built: dict[str, Any] = field(default_factory=dict)
    _first: dict[str, Any] = field(default_factory=dict)

    @property
    def __name__(self) -> str:
        return self.kernel or self.source.stem

    def how_to(self, one: Configuration) -> str:
        """The command that runs a configuration."""
        words = ["apportion", "run", str(self.source), *(("--kernel", self.kernel) if self.kernel else ())]
        words += ["-n", "x".join(map(str, _sizes(self.global_size, one)))]
        if self.local_size is not None:
            words += ["-l", "x".join(map(str, _sizes(self.local_size, one)))]
        for name, value in one.items():
            words += [] if value is None else ["-D", f"{name}={_macro(value)}"]
        for argument in self.arguments:
            words += ["--arg", argument]
        return f"To run it: {shlex.join(words)}"

    @property
    def as_t1(self) -> dict[str, Any]:
        """The kernel, as T1 describes one."""
        return {
            "Language": "OpenCL", "KernelName": self.__name__, "KernelFile": str(self.source),
            "GlobalSizeType": "OpenCL", "GlobalSize": _axes(self.global_size),
            "LocalSize": _axes(self.local_size or "1"),
        }  # fmt: skip

    def __call__(self, **one: Any) -> float:
        if self.right is not None and not self._first and key_of(one) != key_of(self.right):
            self._bound(self.right)  # of a process that was not there when it was measured
        return float(self._bound(one).run(self.device).seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        source = self.source.absolute()
        words = (self.kernel, self.device, self.global_size, self.local_size, self.arguments)
        return TunedKernel, (source, *words, self.seed, self.right)

    @cached_property
    def _backend(self) -> Backend:
        return open_backend("opencl")

    def _bound(self, one: Configuration) -> Any:
        key = key_of(one)
        if key not in self._built:
            while len(self._built) >= _KEPT:
                self._built.pop(next(iter(self._built)))
            defines = tuple(f"{name}={_macro(value)}" for name, value in one.items() if value is not None)
            shared = Together(
                self.source, self.kernel, [self.device], policy=self.device, trust=True,
                backend=self._backend, compile=CompileOptions(defines=defines),
            )  # fmt: skip
            shape = _sizes(self.global_size, one)
            local = shared.local_size(shape) if self.local_size is None else _sizes(self.local_size, one)
            span = NDRange(shape, local)
            values = arguments_for(
                shared.signature, shared.access, span, self.arguments, seed=self.seed
            ).values
            bound = shared.bind(*values.values(), global_size=shape, local_size=local)
            bound.run(self.device)
            bound.binding.give_back()
            arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
            _check(arrays, self._first)
            self._built[key] = bound
        return self._built[key]


def _check(arrays: dict[str, Any], first: dict[str, Any]) -> None:
    """The first configuration that runs says what is right; arrays of another size are not compared."""
    if not first:
        first.update({name: array.copy() for name, array in arrays.items()})
        return
    for name, expected in first.items():
        found = arrays.get(name)
        if found is None or found.shape != expected.shape:
            continue
        wrong = difference(found, expected, Tolerance(), at=name)
        if wrong:
            raise WrongResult(f"{name}: {wrong}")


def _sizes(text: str, one: Configuration) -> tuple[int, ...]:
    if _LITERAL.fullmatch(text.strip()):
        return sizes_of(text)
    sizes = []
    for part in text.split(","):
        value = number_from(part, one)
        if not isinstance(value, int | float) or value != int(value) or value < 1:
            raise InvalidSetting(f"{part!r} is {value}, which is no number of work-items")
        sizes.append(int(value))
    return tuple(sizes)


def _axes(text: str) -> dict[str, str]:
    """Sizes as T1 has them: an expression for X, Y and Z."""
    parts = re.split("[x×]", text) if _LITERAL.fullmatch(text.strip()) else text.split(",")
    return {axis: part.strip() for axis, part in zip("XYZ", parts, strict=False)}


def _macro(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
