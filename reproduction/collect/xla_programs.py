"""XLA programs: each compiled in a process of its own, loaded and run in this one.

XLA keeps what its autotuner chose for a fusion as long as the process lives, and looks there first: of
several compilations of one product in a process all take the tile of the first, whatever their options say.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from apportion.errors import ApportionError
from apportion.jobs.local import LocalRunner
from apportion.program.hlo.jax import Spec, function_of, jax
from reproduction.collect.jax_functions import functions

REASON_CHARACTERS = 300
"Of a reason that is kept: long enough to show what XLA chose instead."

Options = Mapping[str, str | bool | int]


@dataclass(frozen=True)
class Compiled:
    """What a process of its own made of a function."""

    code: bytes
    "As XLA serialises it; only for the same version of XLA on the same kind of device."
    text: str
    "The optimised HLO."


@dataclass(frozen=True)
class Program:
    """An executable of this process and its arguments, ready to go."""

    executable: Any
    arguments: Sequence[Any]

    def start(self) -> Any:
        """Queue one run; see `result`."""
        return self.executable.execute_sharded(self.arguments)

    @staticmethod
    def result(run: Any) -> Any:
        """The first array that a run gives; it may still be computed."""
        return run.disassemble_into_single_device_arrays()[0][0]


def compile_each(
    function: str,
    specs: Sequence[Spec],
    every: Sequence[Options],
    *,
    platform: str,
    workers: int | None = None,
    item_seconds: float | None = None,
    seconds: float | None = None,
) -> Iterator[tuple[int, Compiled | str]]:
    """Compile a function once for each of several sets of XLA's options, each in a fresh process.

    Args:
        function: one of `functions()`, or module:function or file.py:function.
        specs: what it is compiled for.
        every: the options.
        platform: JAX's name of it: cuda, cpu.
        workers: how many processes at a time; None takes one for each processor.
        item_seconds: what one compilation may take.
        seconds: what all may take; what is not compiled then is left out.

    Yields:
        Which of the options, and what came of it: a reason when that is nothing. A crash costs one.
    """
    start = time.monotonic()
    runner = LocalRunner(workers, deadline_seconds=item_seconds, fresh=True)
    outcomes = runner.map(partial(_compiled, function, tuple(specs), platform), every)
    try:
        for outcome in outcomes:
            yield outcome.item_index, _value_or_reason(outcome.value, outcome.error)
            if seconds is not None and time.monotonic() - start > seconds:
                return
    finally:
        outcomes.close()  # type: ignore[attr-defined]


def load_each(
    compiled: Mapping[int, Compiled], device: Any, arguments: Sequence[Any]
) -> dict[int, Program | str]:
    """Load programs onto a device, several at a time; a reason for each that cannot be."""

    def loaded(one: Compiled) -> Program | str:
        try:
            # Code that runs as it is loaded: it comes from a process that this one started, never from a
            # file. XLA's own bytes are taken rather than `serialize_executable`, which pickles around them.
            devices = import_module("jaxlib._jax").DeviceList((device,))
            executable = device.client.deserialize_executable(one.code, executable_devices=devices)
        except Exception as error:  # XLA raises what it likes; the reason is kept
            return reason_of(error)
        return Program(executable, list(arguments))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(compiled, pool.map(loaded, compiled.values()), strict=True))


def reason_of(error: BaseException) -> str:
    """An error in one line, to be kept beside what failed."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:REASON_CHARACTERS]


def _value_or_reason(value: Compiled | None, error: ApportionError | None) -> Compiled | str:
    if error is not None:
        return reason_of(error)
    assert value is not None
    return value


def _compiled(function: str, specs: Sequence[Spec], platform: str, options: Options) -> Compiled:
    """The work of a fresh process."""
    os.environ["JAX_PLATFORMS"] = platform
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the GPU's memory is for all of them
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # XLA would keep the autotuner's choices there, too
    package = jax()
    found = function_of(function) if ":" in function else functions()[function]
    shapes = [package.ShapeDtypeStruct(dims, element) for dims, element in specs]
    compiled = package.jit(found).lower(*shapes).compile(compiler_options=dict(options))
    executable = compiled.runtime_executable()
    return Compiled(executable.serialize(), compiled.as_text())
