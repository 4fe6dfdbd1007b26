"""Tiles on a GPU: Triton kernels compiled by all processors first, then measured one at a time, checked.

Compiling needs no GPU. What was compiled lies in Triton's own cache, and `compiled.jsonl` in the folder says
of every configuration whether it could be. Measuring has a process of its own: a kernel that breaks the GPU's
context costs that process, and the configuration is left out the next time.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from apportion.collect.base import Collected, CollectOptions
from apportion.collect.runs import LAUNCH, GraphRuns, tile_features
from apportion.collect.space import Configuration
from apportion.collect.tritonfamilies import Family, Shape, families
from apportion.errors import DeadlineExceeded, InvalidSetting, NoDevice, UnknownName, WorkerCrashed
from apportion.jobs.local import LocalRunner
from apportion.program.jaxhlo import text_of

HOPPER = GPUTarget("cuda", 90, 32)
"What is compiled for where there is no GPU to ask."

COMPILED, CRASHED, TRYING = "compiled.jsonl", "crashed.jsonl", "trying.json"
_POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32"}
_FLUSH_BYTES = 256 << 20
"Written before every timed launch: caches hold nothing of the kernel's, and the host gets ahead."
_LEAST_ROUNDS = 4
_COMPILE_SECONDS = 60.0
_GRAPH_SECONDS = 120.0
_ALIGNED = [["tt.divisibility", 16]]


def collect(folder: Path, options: CollectOptions) -> Iterator[Collected]:
    """Compile what is not compiled, measure what is not measured, graph by graph.

    Raises:
        NoDevice: there is no GPU.
        UnknownName: no family or graph is called so.
    """
    chosen = graphs(options)
    for _ in compile_all(folder, options):
        pass
    if not torch.cuda.is_available():
        raise NoDevice("There is no GPU that torch can use; everything is compiled, run it again on one")
    yield from _measured(folder, options, chosen)


def graphs(options: CollectOptions) -> list[tuple[Family, Shape]]:
    """What the options ask for."""
    every = families()
    for name in options.graphs:
        if name.partition(".")[0] not in every:
            raise UnknownName("family of kernels", name, every)
    return [
        (family, shape)
        for family in every.values()
        for shape in family.shapes[: options.shapes]
        if options.wants(family.name, family.graph_name(shape))
    ]


@dataclass(frozen=True)
class _Item:
    folder: Path
    options: CollectOptions
    family: str
    index: int
    "Of the configuration to compile, or of the shape to measure."


# Compiling


def compile_all(folder: Path, options: CollectOptions) -> Iterator[dict[str, Any]]:
    """Compile every configuration that the folder does not know, the first of each family first."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {family.name: family for family, _ in graphs(options)}
    known = compiled(folder)
    items = [
        _Item(folder, options, name, index)
        for index in range(options.configurations)
        for name, family in wanted.items()
        if (name, index) not in known
        and index < len(family.configurations(options.configurations, options.seed))
    ]
    if not items:
        return
    start = time.monotonic()
    runner = LocalRunner(options.workers, deadline_seconds=_COMPILE_SECONDS)
    outcomes = runner.map(_compile_item, items)
    with (folder / COMPILED).open("a") as journal:
        for outcome in outcomes:
            item = items[outcome.item_index]
            line = {"family": item.family, "index": item.index, "seconds": round(outcome.seconds, 3)}
            line |= {"failure": _reason(outcome.error)} if outcome.error else {"failure": ""}
            journal.write(json.dumps(line) + "\n")
            journal.flush()
            yield line
            if options.compile_seconds is not None and time.monotonic() - start > options.compile_seconds:
                outcomes.close()  # type: ignore[attr-defined]
                return


def compiled(folder: Path) -> dict[tuple[str, int], str]:
    """Family and number of configuration → why it could not be compiled, empty when it could."""
    return {(line["family"], line["index"]): line["failure"] for line in _lines(folder / COMPILED)}


def _compile_item(item: _Item) -> int:
    family = families()[item.family]
    one = family.configurations(item.options.configurations, item.options.seed)[item.index]
    return int(binary(family, one).metadata.shared)


def binary(family: Family, one: Configuration, target: GPUTarget = HOPPER) -> Any:
    """The compiled kernel of a configuration, from the cache when it is there."""
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
    source = ASTSource(family.kernel, signature, constants, attributes)
    options = {"num_warps": one["num_warps"], "num_stages": one["num_stages"]}
    return triton.compile(source, target=target, options=options)


# Measuring


def _measured(
    folder: Path, options: CollectOptions, chosen: list[tuple[Family, Shape]]
) -> Iterator[Collected]:
    items = [
        _Item(folder, options, family.name, family.shapes.index(shape))
        for family, shape in chosen
        if not _path(folder, family, shape).exists()
    ]
    runner = LocalRunner(1, deadline_seconds=_GRAPH_SECONDS)
    attempts = 0
    while items:
        again = []
        for outcome in runner.map(_measure_item, items):
            item = items[outcome.item_index]
            if (
                isinstance(outcome.error, WorkerCrashed | DeadlineExceeded)
                and _blame(folder)
                and attempts < 20
            ):
                again.append(item)  # without the configuration that was being tried
                attempts += 1
            elif outcome.error is not None:
                name = families()[item.family].graph_name(families()[item.family].shapes[item.index])
                yield Collected(name, 0, 0, 0, outcome.seconds, _reason(outcome.error))
            else:
                yield outcome.unwrap()
        items = again


def _blame(folder: Path) -> bool:
    """Note which configuration was being tried when the process was lost; whether there was one."""
    path = folder / TRYING
    if not path.exists():
        return False
    with (folder / CRASHED).open("a") as journal:
        journal.write(path.read_text() + "\n")
    path.unlink()
    return True


def _measure_item(item: _Item) -> Collected:
    family = families()[item.family]
    shape = family.shapes[item.index]
    try:
        return measure_graph(item.folder, family, shape, item.options)
    except (RuntimeError, torch.AcceleratorError) as error:
        # An error of the GPU stays: nothing can be run in this process any more.
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        traceback.print_exc()
        os._exit(70)


def measure_graph(folder: Path, family: Family, shape: Shape, options: CollectOptions) -> Collected:
    """Check and time every compiled configuration of a graph, and write its file."""
    start = time.monotonic()
    every = family.configurations(options.configurations, options.seed)
    known, crashed = compiled(folder), _crashed(folder, family.graph_name(shape))
    bench = _Bench(family, shape, options.seed)
    right: list[int] = []
    failed: dict[int, str] = {}
    launches: dict[int, Any] = {}
    for index, one in enumerate(every):
        failure = known.get((family.name, index), "not compiled in the time that there was")
        failure = failure or crashed.get(index, "")
        if not failure:
            trying = {"graph": family.graph_name(shape), "index": index}
            (folder / TRYING).write_text(json.dumps(trying))
            launches[index], failure = bench.check(one)
        if failure:
            failed[index] = failure
        else:
            right.append(index)
    (folder / TRYING).unlink(missing_ok=True)
    if len(right) < 2:
        reason = next(iter(failed.values()), "")
        return Collected(family.graph_name(shape), 0, len(failed), 0, time.monotonic() - start, reason)
    repeats = bench.time([launches[index] for index in right], options)
    kernels = [launches[index].kernel for index in right]
    names = tuple(family.space.values)
    runs = GraphRuns(
        family.graph_name(shape), torch.cuda.get_device_name(), names,
        _table(every, right, names), repeats,
        np.stack([
            tile_features({**family.fixed, **every[index]}, LAUNCH, family.output, family.reduced)
            for index in right
        ]),
        right.index(0) if 0 in right else -1,
        _table(every, list(failed), names), tuple(failed.values()),
        {
            "registers": np.array([kernel.n_regs for kernel in kernels], np.int64),
            "spills": np.array([kernel.n_spills for kernel in kernels], np.int64),
            "shared_bytes": np.array([kernel.metadata.shared for kernel in kernels], np.int64),
            "programs": np.array([np.prod(family.grid(shape, every[index])) for index in right], np.int64),
        },
        tuple(text_of(operand) for operand in family.operands(shape).values()),
    )  # fmt: skip
    runs.write(_path(folder, family, shape))
    seconds = time.monotonic() - start
    return Collected(runs.name, len(right), len(failed), repeats.shape[1], seconds)


@dataclass(frozen=True)
class _Launch:
    """A binary with its grid and arguments, ready to go."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]

    def __call__(self) -> None:
        self.kernel[self.grid](*self.arguments)


class _Bench:
    """The arrays of one graph on the GPU, and what its kernel must make of them."""

    def __init__(self, family: Family, shape: Shape, seed: int) -> None:
        self._family, self._shape = family, shape
        random = torch.Generator("cuda").manual_seed(seed)
        self._arrays = {
            name: torch.randn(dims, generator=random, device="cuda", dtype=getattr(torch, element))
            for name, (dims, element) in family.operands(shape).items()
        }
        self._wanted = family.reference(self._arrays).float()
        name, (dims, element) = family.result(shape)
        self._start = self._arrays[name].clone() if family.accumulates else None
        self._out = torch.empty(dims, device="cuda", dtype=getattr(torch, element))
        self._arrays[name] = self._out
        capability = torch.cuda.get_device_capability()
        self._target = GPUTarget("cuda", capability[0] * 10 + capability[1], 32)

    def check(self, one: Configuration) -> tuple[Any, str]:
        """A configuration, ready to be launched, after one launch; and what is wrong with it."""
        try:
            launch = self._launch(one)
        except (triton.OutOfResources, triton.CompilationError) as error:
            return None, _reason(error)
        if self._start is None:
            self._out.fill_(float("nan"))  # an element that is not written is found
        else:
            self._out.copy_(self._start)
        try:
            launch()
            torch.cuda.synchronize()
        except RuntimeError as error:
            torch.cuda.synchronize()  # raises again when it was more than this launch that failed
            return None, _reason(error)
        off = float((self._out.float() - self._wanted).norm() / self._wanted.norm())
        wrong = "" if off <= self._family.tolerance else f"wrong result: relative error {off:.3g}"
        return launch, wrong

    def time(self, launches: list[Any], options: CollectOptions) -> NDArray[np.int64]:
        """(C, R) nanoseconds."""
        flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        random = np.random.default_rng(options.seed)
        pairs = [[_event() for _ in range(2)] for _ in launches]
        rounds: list[Any] = []
        start = time.monotonic()
        for number in range(options.rounds):
            torch.cuda._sleep(2_000_000)  # type: ignore[no-untyped-call]  # a millisecond for the host to get ahead
            for index in random.permutation(len(launches)):
                before, after = pairs[index]
                flush.zero_()
                before.record()
                launches[index]()
                after.record()
            torch.cuda.synchronize()
            rounds.append([before.elapsed_time(after) * 1e6 for before, after in pairs])
            spent = time.monotonic() - start
            if number + 1 >= _LEAST_ROUNDS and spent * (number + 2) / (number + 1) > options.seconds:
                break
        times: NDArray[np.int64] = np.maximum(np.array(rounds).T, 1).round().astype(np.int64)
        return times

    def _launch(self, one: Configuration) -> _Launch:
        kernel = binary(self._family, one, self._target)
        values: dict[str, Any] = {**self._family.fixed, **one, **self._shape, **self._arrays}
        arguments = tuple(values.get(name, self._out) for name in self._family.kernel.arg_names)
        launch = _Launch(kernel, self._family.grid(self._shape, one), arguments)
        kernel._init_handles()
        return launch


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _table(every: list[Configuration], chosen: list[int], names: tuple[str, ...]) -> Any:
    rows = [[every[index][name] for name in names] for index in chosen]
    return np.array(rows, np.int64).reshape(-1, len(names))


def _path(folder: Path, family: Family, shape: Shape) -> Path:
    return folder / "runs" / f"{family.graph_name(shape)}.npz"


def _crashed(folder: Path, graph: str) -> Mapping[int, str]:
    found = (line for line in _lines(folder / CRASHED) if line["graph"] == graph)
    return {line["index"]: "the GPU's context was lost" for line in found}


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last one that was cut off by a kill is dropped."""
    if not path.exists():
        return []
    data = path.read_bytes()
    try:
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].decode().splitlines()]
    except ValueError as error:
        raise InvalidSetting(f"{path} is no journal ({error}): take it away") from error


def _reason(error: BaseException) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0][:200] if first else ''}"
