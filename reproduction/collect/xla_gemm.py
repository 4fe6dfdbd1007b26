"""Tiles of XLA's own matrix products on a GPU: the autotuner's choice is overridden, one tile at a time.

XLA then makes each product with its Triton emitter and that tile. What it really used is read from the
program that it made: one with another tile is not measured. See `xlaprograms` for why each is compiled in a
fresh process.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import NoDevice, UnknownName
from apportion.learn.ranking.recorded_runs import LAUNCH, GraphRuns, tile_features
from apportion.measure.space import Configuration, Space
from apportion.program.hlo.jax import Spec, jax, text_of
from reproduction.collect.base import Collected, CollectOptions
from reproduction.collect.jax_functions import functions
from reproduction.collect.xla_programs import (
    REASON_CHARACTERS,
    Compiled,
    Options,
    Program,
    compile_each,
    load_each,
    reason_of,
)
from reproduction.collect.xla_tiles import wrong_tile

_LIBRARY: Options = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0}
"What the results are held against: NVIDIA's own products, untuned."
LEVELS = (0, 4)
"""Of XLA's autotuner, as they are tried. At 0 it takes the first way to make a product that can be compiled,
which is the tile, or in older versions ignores the tile; at 4 it also tries its libraries, and takes what is
fastest."""
_CALLS = 10
"Launches in a row that are timed together: dispatching one takes the host as long as a small product."
_LEAST_ROUNDS = 4
_TOLERANCE = 2e-2
_COMPILE_SECONDS = 30.0
"Of one configuration. Three or four are usual; one that hangs must not cost the graph."

# XLA no longer splits the summed dimension (split_k), and its autotuner refuses a kernel that spills
# registers, as one with more than 128 sums for each thread would.
SPACE = Space(
    {
        "BLOCK_M": (32, 64, 128, 256), "BLOCK_N": (32, 64, 128, 256), "BLOCK_K": (32, 64, 128),
        "num_warps": (4, 8), "num_stages": (2, 3, 4),
    },
    lambda one: (one["BLOCK_M"] + one["BLOCK_N"]) * one["BLOCK_K"] * 2 * one["num_stages"] <= 228_000
    and 8 <= one["BLOCK_M"] * one["BLOCK_N"] // (32 * one["num_warps"]) <= 128,
)  # fmt: skip
DEFAULT: Configuration = {
    "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3,
}  # fmt: skip


def _half(*dims: int) -> Spec:
    return dims, "float16"


GRAPHS: dict[str, tuple[Spec, ...]] = {
    "xla_product.M4096-N4096-K1024": (_half(4096, 1024), _half(1024, 4096)),
    "xla_product.M2048-N2048-K8192": (_half(2048, 8192), _half(8192, 2048)),
    "xla_product.M8192-N1024-K4096": (_half(8192, 4096), _half(4096, 1024)),
    "xla_product_nt.M4096-N4096-K2048": (_half(4096, 2048), _half(4096, 2048)),
    "xla_product_gelu.M4096-N4096-K1024": (_half(4096, 1024), _half(1024, 4096), ((4096,), "float32")),
    "xla_batched_product.Z64-M1024-N512-K256": (_half(64, 1024, 256), _half(64, 256, 512)),
}


def collect(folder: Path, options: CollectOptions, *, platform: str = "cuda") -> Iterator[Collected]:
    """Measure what is not measured, graph by graph.

    Raises:
        NoDevice: JAX finds no GPU.
        UnknownName: no graph is called so.
    """
    names = dict.fromkeys([*GRAPHS, *(name.partition(".")[0] for name in GRAPHS)])
    for wanted in options.graphs:
        if wanted not in names:
            raise UnknownName("graph", wanted, names)
    os.environ["JAX_PLATFORMS"] = platform
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes that compile need some of the memory
    try:
        device = jax().devices(platform)[0]
    except (RuntimeError, AssertionError) as error:  # the latter where JAX has nothing to compute with at all
        raise NoDevice(f"JAX finds no GPU: {str(error) or 'it has nothing to compute with'}") from error
    compiling, level = 0.0, None
    for name, specs in options.in_time(GRAPHS.items()):
        path = folder / "runs" / f"{name}.npz"
        if not options.wants(name.partition(".")[0], name) or path.exists():
            continue
        left = None if options.compile_seconds is None else options.compile_seconds - compiling
        if left is not None and left <= 0:
            return
        graph = _Graph(device, name, specs, options, platform)
        start = time.monotonic()
        if level is None:
            level, failure = graph.obeyed_level()
            if level is None:
                yield Collected(name, 0, len(LEVELS), 0, time.monotonic() - start, failure)
                continue
        compiled, failed = graph.compiled(level, left)
        compiling += time.monotonic() - start
        yield graph.measured(compiled, failed, path, start)


def override(one: Configuration, level: int) -> Options:
    """XLA's options that make every product use one tile, at one of the `LEVELS`."""
    tile = (
        f"block_m: {one['BLOCK_M']} block_n: {one['BLOCK_N']} block_k: {one['BLOCK_K']} "
        f"split_k: 1 num_stages: {one['num_stages']} num_warps: {one['num_warps']} num_ctas: 1"
    )
    return {
        "xla_gpu_override_gemm_autotuner": tile, "xla_gpu_enable_triton_gemm": True,
        "xla_gpu_cublas_fallback": False, "xla_gpu_triton_gemm_any": True, "xla_gpu_autotune_level": level,
    }  # fmt: skip


class _Graph:
    """One graph's configurations and arguments, on the device."""

    def __init__(
        self, device: Any, name: str, specs: Sequence[Spec], options: CollectOptions, platform: str
    ) -> None:
        self._device, self._name, self._specs, self._options = device, name, specs, options
        self._platform = platform
        self._family = name.partition(".")[0]
        self._every = SPACE.sample(options.configurations, seed=options.seed, first=DEFAULT)

    def obeyed_level(self) -> tuple[int | None, str]:
        """The first level at which XLA makes the graph with the tile it is told to; else why at none."""
        compiled, failed = self._with_their_tiles([(DEFAULT, level) for level in LEVELS], None)
        reasons = "; ".join(f"level {LEVELS[index]}: {reason}" for index, reason in failed.items())
        return (LEVELS[min(compiled)], "") if compiled else (None, reasons)

    def compiled(self, level: int, seconds: float | None) -> tuple[dict[int, Compiled], dict[int, str]]:
        """The programs that have the tile of their configuration, and why others are not ranked."""
        return self._with_their_tiles([(one, level) for one in self._every], seconds)

    def _with_their_tiles(
        self, every: Sequence[tuple[Configuration, int]], seconds: float | None
    ) -> tuple[dict[int, Compiled], dict[int, str]]:
        made = compile_each(
            self._family, self._specs, [override(one, level) for one, level in every],
            platform=self._platform, workers=self._options.workers, item_seconds=_COMPILE_SECONDS,
            seconds=seconds,
        )  # fmt: skip
        compiled: dict[int, Compiled] = {}
        failed: dict[int, str] = {}
        for index, program in sorted(made, key=lambda pair: pair[0]):
            if isinstance(program, str):
                failed[index] = program
            elif reason := wrong_tile(program.text, every[index][0], REASON_CHARACTERS):
                failed[index] = reason
            else:
                compiled[index] = program
        return compiled, failed

    def measured(
        self, compiled: dict[int, Compiled], failed: dict[int, str], path: Path, start: float
    ) -> Collected:
        """Check and measure what was compiled, and write it; nothing when there are not two to rank."""
        programs = self._right(compiled, failed) if len(compiled) >= 2 else {}
        if len(programs) < 2:
            reasons = Counter(failed.values()).most_common(1)
            failure = "there was no time to compile two configurations"
            for reason, count in reasons:
                failure = f"{count} of {len(failed)} failed alike: {reason}"
            return Collected(self._name, 0, len(failed), 0, time.monotonic() - start, failure)
        right = sorted(programs)
        repeats = _rounds([programs[index] for index in right], self._options)
        features = [
            tile_features(self._every[index], LAUNCH, ("BLOCK_M", "BLOCK_N"), ("BLOCK_K",)) for index in right
        ]
        GraphRuns(
            self._name, str(self._device.device_kind), tuple(SPACE.values), self._table(right), repeats,
            np.stack(features), right.index(0) if 0 in right else -1,
            self._table(list(failed)), tuple(failed.values()),
            operands=tuple(text_of(spec) for spec in self._specs),
        ).write(path)  # fmt: skip
        return Collected(self._name, len(right), len(failed), repeats.shape[1], time.monotonic() - start)

    def _right(self, compiled: dict[int, Compiled], failed: dict[int, str]) -> dict[int, Program]:
        """Those that can be loaded and give the right result; the others go to the failed ones."""
        package = jax()
        random = np.random.default_rng(self._options.seed)
        arrays = [
            package.device_put(random.standard_normal(dims, np.float32).astype(element), self._device)
            for dims, element in self._specs
        ]
        lowered = package.jit(functions()[self._family]).lower(*arrays)
        wanted = lowered.compile(compiler_options=_LIBRARY)(*arrays).astype("float32")
        programs: dict[int, Program] = {}
        for index, program in load_each(compiled, self._device, arrays).items():
            reason = program if isinstance(program, str) else _wrong(program, wanted)
            if reason or isinstance(program, str):
                failed[index] = reason
            else:
                programs[index] = program
        return programs

    def _table(self, chosen: Sequence[int]) -> NDArray[np.int64]:
        rows = [[self._every[index][parameter] for parameter in SPACE.values] for index in chosen]
        return np.array(rows, np.int64).reshape(-1, len(SPACE.values))


def _wrong(program: Program, wanted: Any) -> str:
    """Why a program's result is not right; empty when it is."""
    norm = jax().numpy.linalg.norm
    try:
        result = program.result(program.start()).astype("float32")
        off = float(norm((result - wanted).ravel()) / norm(wanted.ravel()))
    except RuntimeError as error:
        return reason_of(error)
    return "" if off <= _TOLERANCE else f"wrong result: relative error {off:.3g}"


def _rounds(programs: Sequence[Program], options: CollectOptions) -> NDArray[np.int64]:
    random = np.random.default_rng(options.seed)
    rounds: list[NDArray[np.float64]] = []
    begin = time.monotonic()
    for number in range(options.rounds):
        times = np.zeros(len(programs))
        for index in random.permutation(len(programs)):
            program = programs[index]
            program.result(program.start()).block_until_ready()
            start = time.perf_counter()
            for _ in range(_CALLS):
                run = program.start()
            program.result(run).block_until_ready()
            times[index] = (time.perf_counter() - start) / _CALLS
        rounds.append(times)
        spent = time.monotonic() - begin
        if number + 1 >= _LEAST_ROUNDS and spent * (number + 2) / (number + 1) > options.seconds:
            break
    return np.maximum(np.array(rounds).T * 1e9, 1).round().astype(np.int64)
