"""A kernel described for the models: compiled, cut out of its module, and counted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.errors import CompileError, InvalidSetting, MalformedInput
from apportion.program import cuda
from apportion.program.compile import CompileOptions, ir_of, kernels_of, known_function
from apportion.program.graph import ProgramGraph
from apportion.program.kernel.features import asks_for_its_place, features_of, in_order
from apportion.program.kernel.recover import recover
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.source import Source

TARGET = "x86_64-unknown-unknown"
"The models learned from IR for x86-64, where OpenCL's address spaces are all one."
WHOLE = "*"
"Instead of a kernel's name: the whole source."


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelRow:
    """What a model of shares is told of a kernel."""

    name: str
    code: NDArray[np.float64]  # (F,)
    warnings: tuple[str, ...] = ()
    declared: tuple[str, ...] | None = None
    "Functions that had to be declared before the source compiled; None where it compiles as it is."
    milliseconds: dict[str, float] = field(default_factory=dict)
    "compile, graph, and counting as `features`."


@dataclass(frozen=True, eq=False, kw_only=True)
class Described(KernelRow):
    """A kernel's row, with the program graph that it was counted on."""

    graph: ProgramGraph


def describe(
    source: Source | Path | str,
    *,
    kernel: str | None = None,
    vectorized: bool = True,
    compile: CompileOptions | None = None,
) -> Described:
    """A kernel of OpenCL C, CUDA, HIP, LLVM IR or bitcode; what helper functions it lacks is declared.

    `*` for the kernel's name takes all functions of the source as one. What is not said by `compile` is taken
    as the model learned it: for x86-64, and vectorized where `KernelModel.vectorized` says so.

    Raises:
        InvalidSetting: several kernels and none named.
        UnknownName: no such kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    began = time.perf_counter()
    if not isinstance(source, Source):
        source = Source.read(source)
    options = compile or compiled_as(source, vectorized=vectorized)
    recovered = None
    try:
        ir = ir_of(source, options)
    except CompileError as error:
        if source.language != "opencl":
            raise
        recovered = recover(source, options, error)
        ir = recovered.ir
    warnings = [recovered.words] if recovered else []
    chosen = recovered.kernel if recovered and recovered.kernel else _kernel(ir, kernel, source.name)
    if source.language in cuda.LANGUAGES:
        warnings.append(cuda.ASSUMED)
    if chosen is None and kernel != WHOLE:
        warnings.append(f"{source.name} has no OpenCL kernel; all of it was taken for one")
    compiled = time.perf_counter()
    graph = graph_of_ir(ir, name=source.name, options=GraphOptions(function=chosen))
    built = time.perf_counter()
    if len(graph.functions) == 0 or graph.nodes < 2:
        template = source.language in cuda.LANGUAGES and "__global__" in str(source.text)
        raise MalformedInput(
            "its kernels are templates, and nothing tells their arguments. Add an instance, such as "
            "template __global__ void NAME<float>(float *);"
            if template
            else "it defines no function",
            file=source.name,
        )
    found = features_of(graph)
    if not asks_for_its_place(found):
        warnings.append(
            "the kernel never asks for a global, local or group id: every work-item does the same work, "
            "and sharing it between devices gains nothing"
        )
    code = in_order(found)
    counted = time.perf_counter()
    spent = {"compile": compiled - began, "graph": built - compiled, "features": counted - built}
    return Described(
        name=source.name, graph=graph, code=code, warnings=tuple(warnings),
        declared=recovered.declared if recovered else None,
        milliseconds={stage: 1e3 * seconds for stage, seconds in spent.items()},
    )  # fmt: skip


def compiled_as(source: Source, *, vectorized: bool) -> CompileOptions:
    """How a source is compiled for models of shares: as what they learned from was."""
    target = source.build.target or TARGET if source.language == "opencl" else None
    return CompileOptions(target=target, vectorize=vectorized)


def _kernel(ir: str, wanted: str | None, name: str) -> str | None:
    if wanted == WHOLE:
        return None
    if wanted is not None:
        return known_function(ir, wanted)
    kernels = kernels_of(ir)
    if len(kernels) > 1:
        raise InvalidSetting(f"{name} has {len(kernels)} kernels. Name one of: {', '.join(kernels)}")
    return kernels[0] if kernels else None
