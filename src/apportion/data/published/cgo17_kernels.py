"""The kernels of the CGO17 tables as workloads for this machine: distinct sources, with arguments that are
deduced.

The tables hold the OpenCL C of each kernel, of which a fourth lacks functions it calls. Where only the
names of built-in functions are changed (`__clc_pow`) they are put back; bodies that are missing are not
made up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from apportion.data.published.cgo17 import read
from apportion.errors import ApportionError
from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.signature import signatures_of
from apportion.program.source import Source
from apportion.runtime.default_arguments import cases_of
from apportion.runtime.workload import Workload

SIZES = (1 << 12, 1 << 15, 1 << 17, 1 << 19, 1 << 21)
LOCAL_SIZES = (64, 256)
_RENAMED = re.compile(r"\b__clc_(?=pow|fabs|floor|ceil|sqrt|exp|log|fmax|fmin)")


def workloads(
    folder: Path,
    *,
    sizes: Sequence[int] = SIZES,
    local_sizes: Sequence[int] = LOCAL_SIZES,
    most: int = 1 << 31,
) -> Iterator[Workload | tuple[str, str]]:
    """Every distinct source of the NVIDIA table as a workload, or its name and why it cannot be one.

    Args:
        most: no integer that is passed by value is larger.
    """
    seen: set[str] = set()
    for example in read(folder, "cgo17-nvidia"):
        if example.source in seen:
            continue
        seen.add(example.source)
        text = _RENAMED.sub("", example.source)
        try:
            ir = ir_of(Source(text, "opencl", example.name))
            accesses = accesses_of(ir, text)
            for kernel, signature in signatures_of(ir, text).items():
                cases = cases_of(signature, accesses[kernel], text, sizes, local_sizes, most=most)
                yield Workload(
                    f"{example.application}-{example.kernel}", example.suite, text, kernel, tuple(cases)
                )
        except ApportionError as error:
            yield example.name, f"{type(error).__name__}: {error}"
