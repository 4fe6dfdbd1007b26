"""Binaries of Triton kernels: compiled by all processors, kept in the collection's folder, loaded on a GPU.

Compiling needs no GPU, so it can be done elsewhere and the folder carried to one. Of every configuration
`compiled.jsonl` says whether it could be compiled, and `binaries/FAMILY/` has the machine code with what
Triton says of it. Triton's own cache would not do: its keys change with its build, and its files name each
other by where they lay.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from apportion.jobs.journal import Journal
from apportion.jobs.local import LocalRunner
from apportion.measure.space import Configuration
from apportion.settings import replace_file
from reproduction.collect import triton_kernels as tritonkernels
from reproduction.collect.base import CollectOptions
from reproduction.collect.triton_families import Family, families

HOPPER = GPUTarget("cuda", 90, 32)
"What is compiled for where there is no GPU to ask."

COMPILED, BINARIES = "compiled.jsonl", "binaries"
_POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32"}
_COMPILE_SECONDS = 60.0
_ALIGNED = [["tt.divisibility", 16]]


@dataclass(frozen=True)
class _Item:
    folder: Path
    family: str
    one: Configuration
    target: GPUTarget


def compile_all(
    folder: Path, options: CollectOptions, chosen: Sequence[Family], target: GPUTarget = HOPPER
) -> Iterator[dict[str, Any]]:
    """Compile every configuration that the folder does not know, the first of each family first."""
    folder.mkdir(parents=True, exist_ok=True)
    known = compiled(folder)
    samples = {family.name: family.configurations(options.configurations, options.seed) for family in chosen}
    items = [
        _Item(folder, name, sample[index], target)
        for index in range(options.configurations)
        for name, sample in samples.items()
        if index < len(sample) and (name, label(sample[index])) not in known
    ]
    if not items:
        return
    start = time.monotonic()
    runner = LocalRunner(options.workers, deadline_seconds=_COMPILE_SECONDS)
    outcomes = runner.map(_compile_item, items)
    journal = Journal(folder / COMPILED)
    with journal.alone():
        for outcome in outcomes:
            item = items[outcome.item_index]
            line = {
                "family": item.family, "configuration": label(item.one), "seconds": round(outcome.seconds, 3),
                "failure": reason_of(outcome.error) if outcome.error else "",
            }  # fmt: skip
            journal.add(line)
            yield line
            if options.compile_seconds is not None and time.monotonic() - start > options.compile_seconds:
                outcomes.close()  # type: ignore[attr-defined]
                return


def compiled(folder: Path) -> dict[tuple[str, str], str]:
    """Family and configuration → why it could not be compiled, empty when it could."""
    lines = Journal(folder / COMPILED).entries()
    return {(line["family"], line["configuration"]): line["failure"] for line in lines}


def label(one: Configuration) -> str:
    """A configuration as files and journals name it: 128-128-64-8-4-3."""
    return "-".join(str(value) for value in one.values())


def binary(folder: Path, family: Family, one: Configuration, target: GPUTarget = HOPPER) -> CompiledKernel:
    """The compiled kernel of a configuration: what the folder keeps, or compiled now and kept."""
    source = _source(family, one)
    stem = folder / BINARIES / family.name / label(one)
    code, said = stem.with_name(f"{stem.name}.cubin"), stem.with_name(f"{stem.name}.json")
    if not _is_of(said, target):
        options = {"num_warps": one["num_warps"], "num_stages": one["num_stages"]}
        kernel = triton.compile(source, target=target, options=options)
        stem.parent.mkdir(parents=True, exist_ok=True)
        replace_file(code, kernel.asm["cubin"])
        about = {**kernel.metadata._asdict(), "kernels": _kernels()}
        replace_file(said, json.dumps(about, default=vars).encode())  # last: it says that all is there
    return CompiledKernel(source, {said.name: str(said), code.name: str(code)}, f"{family.name}-{stem.name}")


def build_launchers(
    folder: Path, chosen: Sequence[Family], target: GPUTarget, workers: int | None = None
) -> None:
    """Have Triton's host code built for each family, so that no measuring waits for a C compiler.

    Needs a GPU's driver, and no GPU that is idle.
    """
    items = [_Item(folder, family.name, family.default, target) for family in chosen]
    for outcome in LocalRunner(workers, deadline_seconds=_COMPILE_SECONDS).map(_build_launcher, items):
        outcome.unwrap()


def reason_of(error: BaseException) -> str:
    """An error in one line, to be kept beside what failed."""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0][:200] if first else ''}"


def _compile_item(item: _Item) -> int:
    triton.knobs.compilation.store_binary_only = True
    triton.knobs.compilation.disable_line_info = True
    return int(binary(item.folder, families()[item.family], item.one, item.target).metadata.shared)


def _build_launcher(item: _Item) -> None:
    kernel = binary(item.folder, families()[item.family], item.one, item.target)
    triton.runtime.driver.active.launcher_cls(kernel.src, kernel.metadata)


def _source(family: Family, one: Configuration) -> ASTSource:
    shape = family.shapes[0]
    operands, (result, (_, element)) = family.operands(shape), family.result(shape)
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], Any] = {}
    for place, parameter in enumerate(family.kernel.params):
        name = parameter.name
        if parameter.is_constexpr:
            signature[name], constants[place,] = "constexpr", {**family.fixed, **one}[name]
        elif name in shape:
            signature[name] = "i32"
            if family.divisible(name):
                attributes[place,] = _ALIGNED
        else:  # an array that this family has no use for is stood in for by the result
            signature[name] = _POINTERS[operands[name][1] if name in operands and name != result else element]
            attributes[place,] = _ALIGNED
    return ASTSource(family.kernel, signature, constants, attributes)


def _is_of(said: Path, target: GPUTarget) -> bool:
    """Whether a binary is there that was made for a target, from the kernels as they are now."""
    if not said.exists():
        return False
    about = json.loads(said.read_text())
    return bool(about["target"] == vars(target) and about["kernels"] == _kernels())


@cache
def _kernels() -> str:
    return sha256(Path(tritonkernels.__file__).read_bytes()).hexdigest()[:16]
