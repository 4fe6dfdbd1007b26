"""Tiles on a GPU: Triton kernels compiled by all processors first, then measured one at a time, checked.

Compiling needs no GPU and can be done elsewhere: see `tritonbinaries`. Measuring has a process of its own: a
kernel that breaks the GPU's context costs that process, and the configuration is left out the next time.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget

from apportion.errors import DeadlineExceeded, NoDevice, UnknownName, WorkerCrashed
from apportion.jobs.journal import Journal
from apportion.jobs.local import LocalRunner
from apportion.learn.ranking.recorded_runs import LAUNCH, GraphRuns, tile_features
from apportion.measure.space import Configuration
from apportion.program.hlo.jax import text_of
from reproduction.collect import triton_binaries as tritonbinaries
from reproduction.collect.base import Collected, CollectOptions
from reproduction.collect.triton_binaries import HOPPER, binary, compiled, label, reason_of
from reproduction.collect.triton_families import Family, Shape, families

CRASHED, TRYING = "crashed.jsonl", "trying.json"
_FLUSH_BYTES = 256 << 20
"Written before every timed launch: caches hold nothing of the kernel's, and the host gets ahead."
_LEAST_ROUNDS = 4
_GRAPH_SECONDS = 120.0


def collect(folder: Path, options: CollectOptions) -> Iterator[Collected]:
    """Compile what is not compiled, measure what is not measured, graph by graph.

    Raises:
        NoDevice: there is no GPU.
        UnknownName: no family or graph is called so.
    """
    chosen = graphs(options)
    here = torch.cuda.is_available()
    for _ in tritonbinaries.compile_all(folder, options, _families_of(chosen), _target() if here else HOPPER):
        pass
    if not here:
        raise NoDevice("There is no GPU that torch can use; everything is compiled, run it again on one")
    yield from _measured(folder, options, chosen)


def graphs(options: CollectOptions) -> list[tuple[Family, Shape]]:
    """What the options ask for: a shape of every family, then another of every family."""
    every = families()
    for name in options.graphs:
        if name.partition(".")[0] not in every:
            raise UnknownName("family of kernels", name, every)
    return [
        (family, shape)
        for shapes in itertools.zip_longest(*(family.shapes[: options.shapes] for family in every.values()))
        for family, shape in zip(every.values(), shapes, strict=True)
        if shape is not None and options.wants(family.name, family.graph_name(shape))
    ]


@dataclass(frozen=True)
class _Item:
    folder: Path
    options: CollectOptions
    family: str
    shape: int
    "Its number."


# Compiling


def compile_all(folder: Path, options: CollectOptions) -> Iterator[dict[str, Any]]:
    """Compile what the folder does not have; where there is a GPU, also the host code that launches it."""
    chosen = _families_of(graphs(options))
    here = torch.cuda.is_available()
    target = _target() if here else HOPPER
    yield from tritonbinaries.compile_all(folder, options, chosen, target)
    if here:
        tritonbinaries.build_launchers(folder, chosen, target, options.workers)


def _families_of(chosen: list[tuple[Family, Shape]]) -> list[Family]:
    return list({family.name: family for family, _ in chosen}.values())


def _target() -> GPUTarget:
    major, minor = torch.cuda.get_device_capability()
    return GPUTarget("cuda", major * 10 + minor, 32)


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
    attempts, start = 0, time.monotonic()
    while items:
        again = []
        for outcome in runner.map(_measure_item, options.in_time(items, start)):
            item = items[outcome.item_index]
            if (
                isinstance(outcome.error, WorkerCrashed | DeadlineExceeded)
                and _blame(folder)
                and attempts < 20
            ):
                again.append(item)  # without the configuration that was being tried
                attempts += 1
            elif outcome.error is not None:
                name = families()[item.family].graph_name(families()[item.family].shapes[item.shape])
                yield Collected(name, 0, 0, 0, outcome.seconds, reason_of(outcome.error))
            else:
                yield outcome.unwrap()
        items = again


def _blame(folder: Path) -> bool:
    """Note which configuration was being tried when the process was lost; whether there was one."""
    path = folder / TRYING
    if not path.exists():
        return False
    Journal(folder / CRASHED).add(json.loads(path.read_text()))
    path.unlink()
    return True


def _measure_item(item: _Item) -> Collected:
    family = families()[item.family]
    shape = family.shapes[item.shape]
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
    bench = _Bench(folder, family, shape, options.seed)
    right: list[int] = []
    failed: dict[int, str] = {}
    launches: dict[int, Any] = {}
    for index, one in enumerate(every):
        failure = known.get((family.name, label(one)), "not compiled in the time that there was")
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
    start: Callable[..., None]
    arguments: tuple[Any, ...]

    def __call__(self) -> None:
        self.start(*self.arguments)


class _Bench:
    """The arrays of one graph on the GPU, and what its kernel must make of them."""

    def __init__(self, folder: Path, family: Family, shape: Shape, seed: int) -> None:
        self._folder, self._family, self._shape = folder, family, shape
        random = torch.Generator("cuda").manual_seed(seed)
        self._arrays = {
            name: torch.randn(dims, generator=random, device="cuda", dtype=getattr(torch, element))
            for name, (dims, element) in family.operands(shape).items()
        }
        self._wanted = family.reference(self._arrays).float()
        self._norm = float(self._wanted.norm())
        name, (dims, element) = family.result(shape)
        self._start = self._arrays[name].clone() if family.accumulates else None
        self._out = torch.empty(dims, device="cuda", dtype=getattr(torch, element))
        self._arrays[name] = self._out
        self._target = _target()

    def check(self, one: Configuration) -> tuple[Any, str]:
        """A configuration, ready to be launched, after one launch; and what is wrong with it."""
        if self._start is None:
            self._out.fill_(float("nan"))  # an element that is not written is found
        else:
            self._out.copy_(self._start)
        try:
            launch = self._launch(one)
            launch()
            torch.cuda.synchronize()
        except (triton.OutOfResources, triton.CompilationError, RuntimeError) as error:
            torch.cuda.synchronize()  # raises again when it was more than this launch that failed
            return None, reason_of(error)
        off = float((self._out.float() - self._wanted).norm()) / self._norm
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
        kernel = _loaded(self._folder, self._family, one, self._target)
        values: dict[str, Any] = {**self._family.fixed, **one, **self._shape, **self._arrays}
        arguments = tuple(values.get(name, self._out) for name in self._family.kernel.arg_names)
        return _Launch(kernel, kernel[self._family.grid(self._shape, one)], arguments)


_on_gpu: dict[tuple[str, str], Any] = {}
"Binaries that this process has loaded: each serves all shapes of its family."


def _loaded(folder: Path, family: Family, one: Configuration, target: GPUTarget) -> Any:
    key = str(folder / family.name), label(one)
    if key not in _on_gpu:
        kernel = binary(folder, family, one, target)
        kernel._init_handles()
        _on_gpu[key] = kernel
    return _on_gpu[key]


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _table(every: list[Configuration], chosen: list[int], names: tuple[str, ...]) -> Any:
    rows = [[every[index][name] for name in names] for index in chosen]
    return np.array(rows, np.int64).reshape(-1, len(names))


def _path(folder: Path, family: Family, shape: Shape) -> Path:
    return folder / "runs" / f"{family.graph_name(shape)}.npz"


def _crashed(folder: Path, graph: str) -> Mapping[int, str]:
    found = (line for line in Journal(folder / CRASHED).entries() if line["graph"] == graph)
    return {line["index"]: "the GPU's context was lost" for line in found}
