"""OpenCL kernels as something to tune: macros of the source, work-items and work-group sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apportion.advise.tuning import Tunable
from apportion.advise.tuning_bench import RETURNED
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting, NoDevice
from apportion.measure.expression import number_from
from apportion.measure.results import Tolerance, difference
from apportion.measure.space import Configuration, Space, key_of
from apportion.program.compile import CompileOptions
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.arguments import arguments_for
from apportion.runtime.backend import open_backend

_KEPT = 4
"Kernels that stay built: the best and what it is compared with take turns."


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
        global_size: work-items, with commas between dimensions; an expression over the parameters.
        local_size: work-items of a work-group, likewise; chosen when not given.
        kernel: its name, where the file has several.
        arguments: as for `apportion run`: `x=float32[N]`; what is not given is made up.
        device: its id; the first when not given.
        default: what the kernel is used with so far.
        seed: of the arrays that are made up.

    Raises:
        NoDevice: there is none.
        UnknownName: there is no such device.
    """
    backend = open_backend("opencl")
    known = [info.id for info in backend.devices()]
    if not known:
        raise NoDevice("There is no OpenCL device to tune for; `apportion doctor` says what is missing")
    chosen = known[0] if device is None else device
    built: dict[str, Any] = {}
    first: dict[str, Any] = {}

    def bound_of(one: Configuration) -> Any:
        key = key_of(one)
        if key not in built:
            while len(built) >= _KEPT:
                built.pop(next(iter(built)))
            defines = tuple(f"{name}={_macro(value)}" for name, value in one.items() if value is not None)
            shared = Together(
                source, kernel, [chosen], policy=chosen, trust=True, backend=backend,
                compile=CompileOptions(defines=defines),
            )  # fmt: skip
            shape = _sizes(global_size, one)
            local = shared.local_size(shape) if local_size is None else _sizes(local_size, one)
            span = NDRange(shape, local)
            values = arguments_for(shared.signature, shared.access, span, arguments, seed=seed).values
            bound = shared.bind(*values.values(), global_size=shape, local_size=local)
            bound.run(chosen)
            bound.binding.give_back()
            _check({name: value for name, value in values.items() if isinstance(value, np.ndarray)}, first)
            built[key] = bound
        return built[key]

    def run(**one: Any) -> float:
        return float(bound_of(one).run(chosen).seconds)

    run.__name__ = kernel or source.stem
    return Tunable(run, space, default=default, objective=RETURNED)


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
    sizes = []
    for part in text.split(","):
        value = number_from(part, one)
        if not isinstance(value, int | float) or value != int(value) or value < 1:
            raise InvalidSetting(f"{part!r} is {value}, which is no number of work-items")
        sizes.append(int(value))
    return tuple(sizes)


def _macro(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
