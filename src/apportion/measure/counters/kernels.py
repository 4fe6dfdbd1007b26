"""What one launch of an OpenCL kernel does, counted: the same quantities as AIWC, whatever the hardware.

The kernel's IR is instrumented, compiled for this machine by llvmlite and run, work-item by work-item, in a
process of its own with a deadline. Every access is checked against the memory that the kernel was given.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import _native
from apportion.data.counter_table import Row
from apportion.errors import (
    InvalidSetting,
    ItemFailed,
    LimitExceeded,
    MissingPackage,
    OutOfBoundsRead,
    OutOfBoundsWrite,
    WorkerCrashed,
)
from apportion.jobs import LocalRunner
from apportion.measure.counters.builtins import definitions_of
from apportion.measure.counters.characterise import characterised
from apportion.measure.counters.image_builtins import header_of, number_of
from apportion.measure.counters.instrument import SITE, SLOT, GlobalMemory, Instrumented, instrumented
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import KernelArgument, Signature, signature_of
from apportion.program.kernel.source_lines import SourceLines
from apportion.program.source import Source
from apportion.runtime.base import LocalMemory
from apportion.runtime.images import Argument, Image, Sampler

SOURCE = "kernel-ir"
"What tables call this source of counters."
_PLACES = 1 << 40
"Arguments are counted as if they lay so far from each other, wherever they are."
_LOCAL = 1 << 61


@dataclass(frozen=True)
class CountLimits:
    """What counting one launch may take."""

    seconds: float = 120.0
    memory_bytes: int = 8 << 30
    instructions: int = 4_000_000_000
    stack_bytes: int = 1 << 18
    "Private memory of a work-item."

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_bytes", "instructions", "stack_bytes"):
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"{name} must be more than 0, not {getattr(self, name)}")


_DEFAULT_COMPILE, _DEFAULT_LIMITS = CompileOptions(), CountLimits()


@dataclass(frozen=True, eq=False)
class KernelProfile:
    """What a launch did."""

    kernel: str
    counters: Mapping[str, float | None]
    "AIWC's columns and `MIX`; None where a sample of work-groups cannot tell."
    opcodes: Mapping[str, int]
    "LLVM instruction → how often it was executed."
    sampled: bool
    "Whether only some work-groups were run."
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    "Argument → what the launch left in it."

    def __post_init__(self) -> None:
        for name in ("counters", "opcodes", "arrays"):
            object.__setattr__(self, name, dict(getattr(self, name)))

    def rows(self, run: str, program: str, size: str) -> list[Row]:
        """The counters as rows of a table; they belong to no system."""
        exactness = "sampled" if self.sampled else "exact"
        return [
            Row(run, program, self.kernel, size, "", 0, counter, value, SOURCE, exactness)
            for counter, value in self.counters.items()
        ]


@dataclass(frozen=True, eq=False)
class CountJob:
    """A launch that is ready to be counted, also in another process: see `job_of`."""

    source: str
    "What the source is called, for messages."

    woven: Instrumented
    builtins: str
    kernel: str
    arguments: tuple[tuple[KernelArgument, Argument], ...]
    span: NDRange
    groups: int | None
    limits: CountLimits


def profile_kernel(
    source: Source,
    kernel: str | None,
    arguments: tuple[Argument, ...],
    span: NDRange,
    *,
    compile: CompileOptions = _DEFAULT_COMPILE,
    groups: int | None = None,
    limits: CountLimits = _DEFAULT_LIMITS,
) -> KernelProfile:
    """Count what a launch does, in a process of its own.

    Args:
        arguments: in the order of the kernel's parameters; arrays are not changed.
        groups: run so many work-groups, evenly chosen, and extrapolate; None for all.

    Raises:
        InvalidSetting: an argument, or a built-in function, that counting cannot deal with.
        LaunchFailed: the kernel touches memory that it was not given.
        LimitExceeded, DeadlineExceeded, WorkerCrashed: it came to no end, or to a bad one.
        MissingPackage: llvmlite is not installed.
    """
    return profile_job(job_of(source, kernel, arguments, span, compile=compile, groups=groups, limits=limits))


def profile_job(job: CountJob) -> KernelProfile:
    """What a prepared launch does, counted in a process of its own; errors as for `profile_kernel`."""
    limits = job.limits
    runner = LocalRunner(1, deadline_seconds=limits.seconds, memory_bytes=limits.memory_bytes)
    for outcome in runner.map(count, [job]):
        if outcome.error is None and outcome.value is not None:
            return outcome.value
        if isinstance(outcome.error, ItemFailed) and outcome.error.exception_type == "MemoryError":
            raise LimitExceeded(f"Counting it needed more than {limits.memory_bytes:,} bytes of memory")
        if outcome.error is not None:
            raise outcome.error
    raise WorkerCrashed(f"Counting {job.kernel} came to nothing")


def job_of(
    source: Source,
    kernel: str | None,
    arguments: tuple[Argument, ...],
    span: NDRange,
    *,
    compile: CompileOptions = _DEFAULT_COMPILE,
    groups: int | None = None,
    limits: CountLimits = _DEFAULT_LIMITS,
    lines: bool = False,
) -> CountJob:
    """The launch, compiled and instrumented; parameters and errors as for `profile_kernel`.

    Args:
        lines: note which line of the source an access comes from, so that an error can say it.
    """
    if lines:
        compile = replace(compile, line_tables=True, vectorize=False)
    ir = ir_of(source, compile)
    signature = signature_of(ir, kernel, str(source.text))
    if groups is not None and groups < 1:
        raise InvalidSetting(f"groups must be at least 1, not {groups}")
    _check(signature, arguments)
    machine = _target_machine()
    woven = instrumented(
        ir,
        signature.name,
        machine.triple,
        str(machine.target_data),
        tuple(_native.kernel_symbols()),
        lines=SourceLines.of(ir, source.name) if lines else None,
    )
    builtins = ""
    if woven.missing:
        text = definitions_of(woven.missing)
        builtins = ir_of(Source(text, "opencl", "builtins.cl"), CompileOptions(seconds=compile.seconds))
    given = tuple(zip(signature.arguments, arguments, strict=True))
    return CountJob(source.name, woven, builtins, signature.name, given, span, groups, limits)


def _check(signature: Signature, arguments: tuple[Argument, ...]) -> None:
    if len(arguments) != len(signature.arguments):
        raise InvalidSetting(
            f"The kernel {signature.name!r} takes {len(signature.arguments)} arguments, not {len(arguments)}"
        )
    for argument, value in zip(signature.arguments, arguments, strict=True):
        wanted = LocalMemory if argument.space == "local" else np.ndarray if argument.is_pointer else object
        if isinstance(value, Image | Sampler):
            continue
        if not argument.is_supported or not isinstance(value, wanted):
            raise InvalidSetting(
                f"The argument {argument.name!r} is {argument.type} in {argument.space} memory, not "
                f"{type(value).__name__}"
            )


def _target_machine() -> Any:
    try:
        import llvmlite.binding as llvm  # only counting kernels needs it
    except ImportError as error:
        raise MissingPackage("llvmlite", "bitcode", "Counting what a kernel does") from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(opt=1, jit=True)


def count(job: CountJob) -> KernelProfile:
    """Compile and run an instrumented kernel here: call it in a process that may be lost."""
    import llvmlite.binding as llvm  # only counting kernels needs it

    machine = _target_machine()
    for name, address in _native.kernel_symbols().items():
        llvm.add_symbol(name, address)
    module = llvm.parse_assembly(job.woven.ir)
    if job.builtins:
        module.link_in(llvm.parse_assembly(_retargeted(job.builtins, machine)))
    module.verify()
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        memory = _Memory()
        slots = memory.add(np.zeros(SLOT * max(1, len(job.arguments)), np.uint8), None)
        arrays = {}
        for position, (argument, value) in enumerate(job.arguments):
            data = memory.argument(position, argument, value, job.woven.parameter_types[position])
            slots[SLOT * position : SLOT * position + len(data)] = np.frombuffer(data, np.uint8)
            if isinstance(value, Image):
                pixels = memory.held[-2]  # before the header
                arrays[argument.name] = pixels.view(value.pixels.dtype).reshape(value.pixels.shape)
            elif isinstance(value, np.ndarray) and argument.is_pointer:
                arrays[argument.name] = memory.held[-1].view(value.dtype).reshape(value.shape)
        for variable in job.woven.variables:
            memory.variable(variable, engine.get_global_value_address(variable.name))
        size = tuple((*job.span.global_size, 1, 1)[:3])
        local = tuple((*job.span.local_size, 1, 1)[:3])
        raw = _native.count_kernel(
            engine.get_function_address(job.woven.entry), slots.ctypes.data, size, local,
            tuple((*job.span.offset, 0, 0)[:3]), job.span.dimensions, _chosen(job),
            [segment.size for segment in job.woven.segments], job.woven.branches, job.woven.barrier,
            memory.regions, job.limits.instructions, job.limits.stack_bytes,
        )  # fmt: skip
        line = 0
        if raw["stopped"] and (place := engine.get_global_value_address(SITE)):
            line = ctypes.c_int32.from_address(place).value
    _raise_for(raw, job, memory, line)
    counters, opcodes = characterised(raw, job.woven.segments, job.span)
    return KernelProfile(job.kernel, counters, opcodes, raw["work_items"] < job.span.work_items, arrays)


def _chosen(job: CountJob) -> list[int]:
    total = int(np.prod(job.span.groups))
    if job.groups is None or job.groups >= total:
        return list(range(total))
    return np.unique(np.linspace(0, total - 1, job.groups).round().astype(int)).tolist()  # type: ignore[no-any-return]


def _retargeted(ir: str, machine: Any) -> str:
    """The IR of built-in functions, for this machine."""
    lines = [
        f'target datalayout = "{machine.target_data}"' if line.startswith("target datalayout")
        else f'target triple = "{machine.triple}"' if line.startswith("target triple")
        else line.replace("spir_func ", "").replace("dso_local ", "")
        for line in ir.splitlines()
        # The settings of the two modules' compilers are the same.
        if not line.startswith(("!opencl.", "!llvm."))
    ]  # fmt: skip
    return "\n".join(lines)


class _Memory:
    """What a kernel may touch, and where counting says that it lies."""

    def __init__(self) -> None:
        self.regions: list[tuple[int, int, int]] = []
        self.names: list[str] = []
        self.held: list[NDArray[np.uint8]] = []

    def add(self, values: NDArray[Any], place: int | None, name: str = "") -> NDArray[np.uint8]:
        """A copy of an array, aligned for any vector; without a place it is no memory of the kernel's."""
        raw = np.zeros(values.nbytes + SLOT, np.uint8)
        start = -raw.ctypes.data % SLOT
        copy = raw[start : start + values.nbytes]
        copy[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.held.append(copy)
        if place is not None:
            self._register(copy.ctypes.data, copy.nbytes, place, name)
        return copy

    def argument(self, position: int, argument: KernelArgument, value: Argument, kind: str) -> bytes:
        """What the kernel is handed: an address, or the value itself."""
        place = (position + 1) * _PLACES
        if isinstance(value, Sampler):
            return number_of(value).to_bytes(8, "little")
        if isinstance(value, Image):
            pixels = self.add(value.pixels, place, argument.name)
            memory = self.add(header_of(value, pixels.ctypes.data), None)
        elif isinstance(value, LocalMemory):
            memory = self.add(np.zeros(value.nbytes, np.uint8), _LOCAL + place, argument.name)
        elif argument.is_pointer:
            memory = self.add(np.asarray(value), place, argument.name)
        else:
            data = value if isinstance(value, bytes) else np.asarray(value, argument.scalar_type).tobytes()
            if isinstance(value, np.generic | int | float):
                data *= argument.components  # one number for every lane of a vector
            if argument.element_bytes and len(data) != argument.element_bytes:
                raise InvalidSetting(
                    f"The argument {argument.name!r} is {argument.type} of {argument.element_bytes} bytes, "
                    f"not {len(data)}"
                )
            if not kind.startswith("ptr"):
                return data
            memory = self.add(np.frombuffer(data, np.uint8), place, argument.name)
        return memory.ctypes.data.to_bytes(8, "little")

    def variable(self, variable: GlobalMemory, address: int) -> None:
        """A variable of the compiled module."""
        place = (len(self.regions) + 256) * _PLACES + (_LOCAL if variable.space == 3 else 0)
        if variable.size:
            self._register(address, variable.size, place, variable.name)

    def _register(self, address: int, size: int, place: int, name: str) -> None:
        self.regions.append((address, size, place))
        self.names.append(name)


def _raise_for(raw: dict[str, Any], job: CountJob, memory: _Memory, line: int) -> None:
    if raw["stopped"] == "limit":
        raise LimitExceeded(
            f"{job.kernel} executed more than {job.limits.instructions:,} instructions. "
            "Count a smaller launch, fewer work-groups, or raise the limit."
        )
    if raw["stopped"]:
        address, verb = raw["bad_address"], "writes" if raw["bad_store"] else "reads"
        kind = OutOfBoundsWrite if raw["bad_store"] else OutOfBoundsRead
        at = f"{job.source}:{line}: " if line else ""
        raise kind(
            f"{at}{job.kernel}: work-item {raw['bad_item']} {verb} {raw['bad_bytes']} bytes "
            f"{_where(raw, job, memory, address)}"
        )


def _where(raw: dict[str, Any], job: CountJob, memory: _Memory, address: int) -> str:
    """Where a stray access goes, by the memory that is nearest."""
    if raw["stopped"] == "null" or not memory.regions:
        return "at address 0"
    number = min(range(len(memory.regions)), key=lambda each: _distance(address, memory.regions[each]))
    begin, size, _ = memory.regions[number]
    name = memory.names[number]
    each = next((argument.element_bytes for argument, _ in job.arguments if argument.name == name), 0)
    place = f"at byte {address - begin} of {name!r}, which has {size}"
    if each > 1 and (address - begin) % each == 0:
        place += f": {name}[{(address - begin) // each}] of {size // each} elements"
    return place


def _distance(address: int, region: tuple[int, int, int]) -> int:
    begin, size, _ = region
    return max(begin - address, address - (begin + size - 1), 0)
