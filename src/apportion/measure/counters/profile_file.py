"""One launch of a kernel in a file, with arguments as the command line writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from apportion.data.counter_table import CounterTable
from apportion.measure.counters.kernels import CountLimits, KernelProfile, profile_kernel
from apportion.measure.counters.workloads import run_of
from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source
from apportion.runtime.arguments import arguments_for
from apportion.runtime.default_arguments import Assumption
from apportion.runtime.workload import beside

_LOCAL = {1: (64,), 2: (8, 8), 3: (4, 4, 4)}


def profile_file(
    source: Source,
    kernel: str | None,
    global_size: tuple[int, ...],
    local_size: tuple[int, ...] | None,
    given: Sequence[str],
    *,
    groups: int | None = None,
    seed: int = 0,
    seconds: float = 120.0,
    instructions: int = 4_000_000_000,
) -> tuple[KernelProfile, tuple[Assumption, ...], CounterTable]:
    """What a launch does, what was assumed of its arguments, and the counters as a table of one run.

    Args:
        given: `name=value`, as `apportion run` takes them; what is not given is made up.
    """
    ir = ir_of(source)
    signature = signature_of(ir, kernel, str(source.text))
    local = local_size or signature.required_local_size or _default_local(global_size)
    span = NDRange(global_size, local[: len(global_size)])
    access = accesses_of(ir, str(source.text))[signature.name]
    arguments = arguments_for(signature, access, span, beside(source, signature, given), seed=seed)
    profile = profile_kernel(
        source, signature.name, tuple(arguments.values.values()), span, groups=groups,
        limits=CountLimits(seconds=seconds, instructions=instructions),
    )  # fmt: skip
    size, group = span.in_words
    run = run_of(source.digest, signature.name, size, group)
    table = CounterTable.of(profile.rows(run, Path(source.name).stem, f"{size}/{group}"))
    return profile, arguments.assumed, table


def _default_local(global_size: tuple[int, ...]) -> tuple[int, ...]:
    wanted = _LOCAL[len(global_size)] if len(global_size) in _LOCAL else (1,) * len(global_size)
    return tuple(int(np.gcd(size, most)) for size, most in zip(global_size, wanted, strict=True))
