"""What a launch moves between host and device, and how large its work-groups are, where nobody says it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apportion.errors import InvalidSetting
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.bounds import NDRange, sizes_in_words
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source
from apportion.runtime.default_arguments import deduced
from apportion.runtime.workload import beside

_GROUPS = {1: (64,), 2: (8, 8), 3: (4, 4, 4)}
"Work-groups by the dimensions of a range: of 64 work-items, as `apportion run` takes them."


def local_size_of(
    source: Source | Path | str, kernel: str | None, global_size: tuple[int, ...]
) -> tuple[tuple[int, ...], str]:
    """The work-group that a kernel requires, else one of 64 work-items or fewer; and what was assumed.

    Raises:
        InvalidSetting: several kernels and none named, or a range of more than three dimensions.
        UnknownName: no such kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    if len(global_size) not in _GROUPS:
        raise InvalidSetting(f"A range has one to three dimensions, not {len(global_size)}")
    source = source if isinstance(source, Source) else Source.read(source)
    text = str(source.text) if source.language == "opencl" else ""
    required = signature_of(ir_of(source), kernel, text).required_local_size
    if required is not None:
        found = required[: len(global_size)]
        return found, f"local_size={sizes_in_words(found)} (the kernel requires it)"
    found = tuple(
        _fitting(whole, most) for whole, most in zip(global_size, _GROUPS[len(global_size)], strict=True)
    )
    return found, f"local_size={sizes_in_words(found)} (nothing says it)"


def moved_bytes(
    source: Source | Path | str,
    kernel: str | None,
    span: NDRange,
    arguments: Sequence[str] = (),
    compile: CompileOptions | None = None,
) -> tuple[int, str]:
    """The bytes of the arrays and images that a launch reads, and of those that it writes; in words, too.

    Arguments that are not given are those that `apportion run` would take.

    Raises:
        InvalidSetting: several kernels and none named, or an argument that cannot be made up.
        UnknownName: no such kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    source = source if isinstance(source, Source) else Source.read(source)
    ir = ir_of(source, compile or CompileOptions())
    text = str(source.text) if source.language == "opencl" else ""
    signature = signature_of(ir, kernel, text)
    access = accesses_of(ir, text)[signature.name]
    case = deduced(signature, access, span, beside(source, signature, tuple(arguments))).case
    moved = sum(
        word.nbytes * (access.arguments[place].reads + access.arguments[place].writes)
        for place, word in case.memory.items()
    )
    return moved, f"bytes={moved} (arrays that it reads, and those that it writes)"


def _fitting(whole: int, most: int) -> int:
    """The largest size of a work-group up to `most` that divides the range."""
    return next(size for size in range(min(whole, most), 0, -1) if whole % size == 0)
