"""Tiles of XLA's own matrix products on a GPU: the autotuner's choice is overridden, one tile at a time.

XLA then makes each product with its Triton emitter and that tile. Compilations run on threads; XLA holds no
lock while it compiles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.collect.base import Collected, CollectOptions
from apportion.collect.jaxfunctions import functions
from apportion.collect.runs import LAUNCH, GraphRuns, tile_features
from apportion.collect.space import Configuration, Space
from apportion.errors import NoDevice
from apportion.program.jaxhlo import Spec, jax, text_of

_CALLS = 10
"Launches in a row that are timed together: dispatching one takes the host as long as a small product."
_LEAST_ROUNDS = 4
_TOLERANCE = 2e-2

SPACE = Space(
    {
        "BLOCK_M": (32, 64, 128, 256), "BLOCK_N": (32, 64, 128, 256), "BLOCK_K": (32, 64, 128),
        "SPLIT": (1, 4), "num_warps": (4, 8), "num_stages": (2, 3, 4),
    },
    lambda one: (one["BLOCK_M"] + one["BLOCK_N"]) * one["BLOCK_K"] * 2 * one["num_stages"] <= 228_000
    and 8 <= one["BLOCK_M"] * one["BLOCK_N"] // (32 * one["num_warps"]) <= 256,
)  # fmt: skip
DEFAULT: Configuration = {
    "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "SPLIT": 1, "num_warps": 4, "num_stages": 3,
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


def collect(folder: Path, options: CollectOptions) -> Iterator[Collected]:
    """Measure what is not measured, graph by graph.

    Raises:
        NoDevice: JAX finds no GPU.
    """
    os.environ["JAX_PLATFORMS"] = "cuda"
    package = jax()
    try:
        device = package.devices("gpu")[0]
    except RuntimeError as error:
        raise NoDevice(f"JAX finds no GPU: {error}") from error
    for name, specs in options.in_time(GRAPHS.items()):
        path = folder / "runs" / f"{name}.npz"
        if options.wants(name.partition(".")[0], name) and not path.exists():
            yield _measured(package, device, path, name, specs, options)


def override(one: Configuration) -> dict[str, str | bool]:
    """XLA's options that make every product use one tile."""
    tile = (
        f"block_m: {one['BLOCK_M']} block_n: {one['BLOCK_N']} block_k: {one['BLOCK_K']} "
        f"split_k: {one['SPLIT']} num_stages: {one['num_stages']} num_warps: {one['num_warps']} num_ctas: 1"
    )
    return {
        "xla_gpu_override_gemm_autotuner": tile, "xla_gpu_enable_triton_gemm": True,
        "xla_gpu_cublas_fallback": False, "xla_gpu_triton_gemm_any": True,
    }  # fmt: skip


def _measured(
    package: Any, device: Any, path: Path, name: str, specs: Sequence[Spec], options: CollectOptions
) -> Collected:
    start = time.monotonic()
    random = np.random.default_rng(options.seed)
    arrays = [
        package.device_put(random.standard_normal(dims, np.float32).astype(element), device)
        for dims, element in specs
    ]
    lowered = package.jit(functions()[name.partition(".")[0]]).lower(*arrays)
    wanted = np.asarray(lowered.compile()(*arrays), np.float32)
    every = SPACE.sample(options.configurations, seed=options.seed, first=DEFAULT)

    def compiled(one: Configuration) -> Any:
        try:
            return lowered.compile(compiler_options=override(one))
        except Exception as error:  # XLA raises what it likes; the reason is kept
            return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"

    with ThreadPoolExecutor(options.workers or os.cpu_count()) as pool:
        programs = list(pool.map(compiled, every))
    failed = {index: _wrong(program, arrays, wanted) for index, program in enumerate(programs)}
    right = [index for index, reason in failed.items() if not reason]
    failed = {index: reason for index, reason in failed.items() if reason}
    if len(right) < 2:
        seconds = time.monotonic() - start
        return Collected(name, 0, len(failed), 0, seconds, next(iter(failed.values()), ""))
    repeats = _rounds([programs[index] for index in right], arrays, options)
    names = tuple(SPACE.values)

    def table(chosen: Sequence[int]) -> NDArray[np.int64]:
        rows = [[every[index][parameter] for parameter in names] for index in chosen]
        return np.array(rows, np.int64).reshape(-1, len(names))

    GraphRuns(
        name, str(device.device_kind), names, table(right), repeats,
        np.stack([
            tile_features(every[index], LAUNCH, ("BLOCK_M", "BLOCK_N"), ("BLOCK_K",)) for index in right
        ]),
        right.index(0) if 0 in right else -1, table(list(failed)), tuple(failed.values()),
        operands=tuple(text_of(spec) for spec in specs),
    ).write(path)  # fmt: skip
    return Collected(name, len(right), len(failed), repeats.shape[1], time.monotonic() - start)


def _wrong(program: Any, arrays: Sequence[Any], wanted: NDArray[np.float32]) -> str:
    """Why a configuration is not ranked; empty when it is."""
    if isinstance(program, str):
        return program
    if "triton" not in program.as_text():
        return "XLA did not make the product with its Triton emitter"
    try:
        result = np.asarray(program(*arrays), np.float32)
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    off = float(np.linalg.norm(result - wanted) / np.linalg.norm(wanted))
    return "" if off <= _TOLERANCE else f"wrong result: relative error {off:.3g}"


def _rounds(programs: Sequence[Any], arrays: Sequence[Any], options: CollectOptions) -> NDArray[np.int64]:
    random = np.random.default_rng(options.seed)
    rounds: list[NDArray[np.float64]] = []
    begin = time.monotonic()
    for number in range(options.rounds):
        times = np.zeros(len(programs))
        for index in random.permutation(len(programs)):
            programs[index](*arrays).block_until_ready()
            start = time.perf_counter()
            for _ in range(_CALLS):
                result = programs[index](*arrays)
            result.block_until_ready()
            times[index] = (time.perf_counter() - start) / _CALLS
        rounds.append(times)
        spent = time.monotonic() - begin
        if number + 1 >= _LEAST_ROUNDS and spent * (number + 2) / (number + 1) > options.seconds:
            break
    return np.maximum(np.array(rounds).T * 1e9, 1).round().astype(np.int64)
