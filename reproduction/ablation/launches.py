"""What is known of a CGO17 launch beside graph and sizes: work per item, bytes by how they are touched.

The archived IR was compiled for a CPU, so that its pointers do not say which memory they lead to, and the
tables do not publish ranges. Here a pointer's memory follows from the kernel's metadata, and one work-item
for every four bytes moved stands for the range. Loops whose ends scalars decide keep a guessed number of
trips.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from apportion.data.published.cgo17 import COUNTS
from apportion.data.records import Example
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.features import grewe_ratios
from apportion.program.kernel.instructions import IRFunction, IRModule, read_module
from apportion.program.kernel.work import WORK, work_of

ITEM_BYTES = 4
"Bytes that are moved for a work-item, for want of a published range."
_SUMMED = tuple(name for name in WORK if "bytes" in name or "operations" in name or name == "instructions")
_RATIOS = ("moved per operation", "together per access", "local per access", "operations per access")
LAUNCH = (
    *(f"each {name}" for name in WORK), "guessed", "divergent", *(f"all {name}" for name in _SUMMED),
    *(f"published {name}" for name in COUNTS), *(f"published {name}" for name in _RATIOS),
)  # fmt: skip
"Names of the numbers of a launch, in order."
_LABEL = re.compile(r"^; <label>:(\d+):", re.MULTILINE)
_DERIVED = ("getelementptr", "bitcast", "phi", "select", "addrspacecast")


def launches_of(examples: Iterable[Example]) -> NDArray[np.float32]:
    """(N, len(LAUNCH)): logarithms of counts and of the published ratios, and parts from 0 to 1."""
    return np.array([_row(example) for example in examples], np.float32)


def _row(example: Example) -> NDArray[np.float64]:
    group = max(1, example.work_group)
    items = group * max(1, -(-example.bytes_moved // (ITEM_BYTES * group)))
    module, kernel = module_of(example.ir, example.kernel)
    work = work_of(module, kernel, NDRange((items,), (group,)), {})
    summed = [items * work.counts.get(name, 0.0) for name in _SUMMED]
    published = [example.counts.get(name, 0.0) for name in COUNTS]
    counts = dict(zip(COUNTS, published, strict=True))
    ratios = grewe_ratios(counts, example.bytes_moved, example.work_group)
    return np.concatenate([work.vector(), np.log1p([*summed, *published, *ratios])])


@lru_cache(maxsize=1024)
def module_of(ir: str, kernel: str) -> tuple[IRModule, str]:
    """The module with the memory of each pointer in its type, and the name under which it has the kernel."""
    module = read_module(_LABEL.sub(r"\1:", ir))
    names = [name for name, function in module.functions.items() if function.is_kernel]
    name = kernel if kernel in module.functions else (names or list(module.functions))[0]
    spaced = {**module.functions, name: _with_spaces(module, module.functions[name])}
    return replace(module, functions=spaced), name


def _with_spaces(module: IRModule, function: IRFunction) -> IRFunction:
    node = function.metadata.get("kernel_arg_addr_space", "")
    said = [int(number) for number in re.findall(r"i32 (\d+)", module.metadata.get(node, ""))]
    # A kernel without metadata has global arrays: the archive has such kernels, and none with local ones.
    space = {
        name: said[number] if number < len(said) else 1
        for number, (name, kind) in enumerate(zip(function.parameters, function.parameter_types, strict=True))
        if "*" in kind or kind.startswith("ptr")
    }
    grown = -1
    while grown != len(space):  # a phi can stand before what it takes
        grown = len(space)
        for one in function.instructions:
            if one.result and one.result not in space and one.opcode in _DERIVED:
                known = [found for found in map(_space_in(space), one.operands) if found]
                if known:
                    space[one.result] = known[0]
    return replace(
        function,
        instructions=tuple(
            replace(
                one, operand_types=(*one.operand_types[:-1], f"{one.operand_types[-1]} addrspace({found})")
            )
            if one.opcode in ("load", "store") and (found := _space_in(space)(one.operands[-1])) in (1, 2, 3)
            else one
            for one in function.instructions
        ),
    )


def _space_in(space: dict[str, int]) -> Callable[[str], int]:
    """What tells the memory of a value; a variable of the module is one of a work-group."""
    return lambda value: space.get(value, 3 if value.startswith("@") else 0)
