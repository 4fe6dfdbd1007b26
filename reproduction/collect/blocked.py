"""Tiles on this CPU: blocked C kernels, compiled once, their tile sizes given at each call.

Calls are made in a child process, which a kernel that goes wrong costs and nobody else.
"""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import CompileError, MissingPackage, UnknownName
from apportion.jobs.local import LocalRunner
from apportion.learn.ranking.recorded_runs import GraphRuns, tile_features
from apportion.measure.counters.collect import this_system
from apportion.measure.space import Configuration, Space
from apportion.program.hlo.jax import Spec, text_of
from apportion.settings import whole_file
from reproduction.collect.base import Collected, CollectOptions

SOURCE = Path(__file__).with_name("blocked.c")
_LEAST_ROUNDS = 4
_GRAPH_SECONDS = 600.0
_COMPILE_SECONDS = 120.0
_TOLERANCE = 1e-4
_BOUNDS = ("ORDER",)
"What stands where a GPU's launch parameters stand: the order of the loops over blocks."

Shape = Mapping[str, int]
Arrays = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Family:
    """One kernel with the shapes and tiles that it is measured with."""

    name: str
    function: str
    "In the C source."
    shapes: tuple[Shape, ...]
    space: Space
    default: Configuration
    operands: Callable[[Shape], dict[str, tuple[int, ...]]]
    result: Callable[[Shape], tuple[int, ...]]
    reference: Callable[[Arrays], NDArray[np.float32]]
    arguments: tuple[str, ...]
    "In the order of the C function: arrays, `out`, sizes, parameters; `none` for no array."
    output: tuple[str, ...] = ("TILE_M", "TILE_N")
    reduced: tuple[str, ...] = ()

    def graph_name(self, shape: Shape) -> str:
        """FAMILY.M256-N256 …"""
        return f"{self.name}.{'-'.join(f'{name}{size}' for name, size in shape.items())}"


def _sizes(names: str, *rows: tuple[int, ...]) -> tuple[Shape, ...]:
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


_PRODUCT = Space({
    "TILE_M": (4, 8, 16, 32, 64, 128), "TILE_N": (8, 16, 32, 64, 128, 256),
    "TILE_K": (4, 8, 16, 32, 64, 128, 256),
    "ORDER": (0, 1),
})  # fmt: skip
_FLAT = Space({
    "TILE_M": (1, 2, 4, 8, 16, 32, 64, 128, 256), "TILE_N": (4, 8, 16, 32, 64, 128, 256, 512),
    "ORDER": (0, 1),
})  # fmt: skip
_PRODUCT_DEFAULT = {"TILE_M": 32, "TILE_N": 32, "TILE_K": 32, "ORDER": 0}
_FLAT_DEFAULT = {"TILE_M": 32, "TILE_N": 32, "ORDER": 0}


def families() -> dict[str, Family]:
    """All of them, by name."""
    found = (
        Family(
            "blocked_product", "product",
            _sizes("M N K", (192, 192, 192), (256, 256, 256), (64, 512, 512), (512, 512, 64), (384, 96, 384)),
            _PRODUCT, _PRODUCT_DEFAULT,
            lambda s: {"a": (s["M"], s["K"]), "b": (s["K"], s["N"])}, lambda s: (s["M"], s["N"]),
            lambda t: t["a"] @ t["b"],
            ("a", "b", "none", "out", "M", "N", "K", "TILE_M", "TILE_N", "TILE_K", "ORDER"),
            reduced=("TILE_K",),
        ),
        Family(
            "blocked_product_relu", "product",
            _sizes("M N K", (192, 192, 192), (128, 256, 384), (48, 768, 256), (512, 128, 128)),
            _PRODUCT, _PRODUCT_DEFAULT,
            lambda s: {"a": (s["M"], s["K"]), "b": (s["K"], s["N"]), "bias": (s["N"],)},
            lambda s: (s["M"], s["N"]), lambda t: np.maximum(t["a"] @ t["b"] + t["bias"], 0),
            ("a", "b", "bias", "out", "M", "N", "K", "TILE_M", "TILE_N", "TILE_K", "ORDER"),
            reduced=("TILE_K",),
        ),
        Family(
            "blocked_transpose", "transpose",
            _sizes("M N", (1024, 1024), (512, 2048), (2048, 768), (1000, 1500)), _FLAT, _FLAT_DEFAULT,
            lambda s: {"x": (s["M"], s["N"])}, lambda s: (s["N"], s["M"]), lambda t: t["x"].T,
            ("x", "out", "M", "N", "TILE_M", "TILE_N", "ORDER"),
        ),
        Family(
            "blocked_column_sum", "column_sum",
            _sizes("M N", (1024, 1024), (4096, 256), (256, 4096), (2000, 700)), _FLAT, _FLAT_DEFAULT,
            lambda s: {"x": (s["M"], s["N"])}, lambda s: (s["N"],), lambda t: t["x"].sum(0),
            ("x", "out", "M", "N", "TILE_M", "TILE_N", "ORDER"), output=("TILE_N",), reduced=("TILE_M",),
        ),
    )  # fmt: skip
    return {family.name: family for family in found}


def collect(folder: Path, options: CollectOptions) -> Iterator[Collected]:
    """Measure what is not measured, graph by graph.

    Raises:
        UnknownName: no family is called so.
        MissingPackage: there is no C compiler, and `ziglang` is not installed.
    """
    every = families()
    for name in options.graphs:
        if name.partition(".")[0] not in every:
            raise UnknownName("family of kernels", name, every)
    folder.mkdir(parents=True, exist_ok=True)
    library = compile_library(folder)
    items = [
        _Item(folder, library, options, family.name, index)
        for family in every.values()
        for index, shape in enumerate(family.shapes[: options.shapes])
        if options.wants(family.name, family.graph_name(shape)) and not _path(folder, family, shape).exists()
    ]
    for outcome in LocalRunner(1, deadline_seconds=_GRAPH_SECONDS).map(_measure, options.in_time(items)):
        if outcome.error is not None:
            item = items[outcome.item_index]
            family = every[item.family]
            name = family.graph_name(family.shapes[item.index])
            yield Collected(name, 0, 0, 0, outcome.seconds, str(outcome.error))
        else:
            yield outcome.unwrap()


def compile_library(folder: Path) -> Path:
    """The kernels as a shared library for this machine, made once in each folder."""
    library = folder / f"blocked-{platform.machine()}.so"
    if library.exists() and library.stat().st_mtime >= SOURCE.stat().st_mtime:
        return library
    if find_spec("ziglang") is not None:
        command = [sys.executable, "-m", "ziglang", "cc"]
    elif (compiler := shutil.which("cc")) is not None:
        command = [compiler]
    else:
        raise MissingPackage("ziglang", "compile", "Compiling C without a compiler on this machine")
    with whole_file(library) as part:
        words = [*command, "-O3", "-march=native", "-shared", "-fPIC", "-o", str(part), str(SOURCE)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
        if done.returncode:
            raise CompileError("the compiler refuses it", file=str(SOURCE), diagnostics=done.stderr)
    return library


@dataclass(frozen=True)
class _Item:
    folder: Path
    library: Path
    options: CollectOptions
    family: str
    index: int


def _measure(item: _Item) -> Collected:
    start = time.monotonic()
    family = families()[item.family]
    shape, options = family.shapes[item.index], item.options
    every = family.space.sample(options.configurations, seed=options.seed, first=family.default)
    calls = _Calls(item.library, family, shape, options.seed)
    failed = {index: reason for index, one in enumerate(every) if (reason := calls.wrong(one))}
    right = [index for index in range(len(every)) if index not in failed]
    random = np.random.default_rng(options.seed)
    rounds: list[list[int]] = []
    begin = time.monotonic()
    for number in range(options.rounds):
        times = [0] * len(right)
        for place in random.permutation(len(right)):
            times[place] = max(1, calls.time(every[right[place]]))
        rounds.append(times)
        spent = time.monotonic() - begin
        if number + 1 >= _LEAST_ROUNDS and spent * (number + 2) / (number + 1) > options.seconds:
            break
    names = tuple(family.space.values)

    def table(chosen: list[int]) -> NDArray[np.int64]:
        rows = [[every[index][name] for name in names] for index in chosen]
        return np.array(rows, np.int64).reshape(-1, len(names))

    runs = GraphRuns(
        family.graph_name(shape), str(this_system().description["processor"]), names, table(right),
        np.array(rounds, np.int64).T,
        np.stack([tile_features(every[index], _BOUNDS, family.output, family.reduced) for index in right]),
        right.index(0) if 0 in right else -1, table(list(failed)), tuple(failed.values()),
        operands=tuple(text_of(_float(dims)) for dims in family.operands(shape).values()),
    )  # fmt: skip
    runs.write(_path(item.folder, family, shape))
    return Collected(runs.name, len(right), len(failed), len(rounds), time.monotonic() - start)


class _Calls:
    """A kernel of the library with the arrays of one graph."""

    def __init__(self, library: Path, family: Family, shape: Shape, seed: int) -> None:
        self._function = getattr(ctypes.CDLL(str(library.resolve())), family.function)
        self._function.restype = ctypes.c_int64
        random = np.random.default_rng(seed)
        arrays = {
            name: random.standard_normal(dims, np.float32) for name, dims in family.operands(shape).items()
        }
        self._wanted = family.reference(arrays)
        self._out = np.empty(family.result(shape), np.float32)
        self._family, self._shape, self._arrays = family, shape, arrays | {"out": self._out}

    def time(self, one: Configuration) -> int:
        """Nanoseconds of one call."""
        values: list[Any] = []
        for name in self._family.arguments:
            if name == "none":
                values.append(ctypes.c_void_p(None))
            elif name in self._arrays:
                values.append(ctypes.c_void_p(self._arrays[name].ctypes.data))
            else:
                values.append(ctypes.c_int(one[name] if name in one else self._shape[name]))
        return int(self._function(*values))

    def wrong(self, one: Configuration) -> str:
        """Why a configuration is not ranked; empty when it is."""
        self._out.fill(np.nan)
        self.time(one)
        off = float(np.linalg.norm(self._out - self._wanted) / np.linalg.norm(self._wanted))
        return "" if off <= _TOLERANCE else f"wrong result: relative error {off:.3g}"


def _float(dims: tuple[int, ...]) -> Spec:
    return dims, "float32"


def _path(folder: Path, family: Family, shape: Shape) -> Path:
    return folder / "runs" / f"{family.graph_name(shape)}.npz"
