"""Programs over graphs and sequences: breadth-first search, shortest paths, a Fourier transform, a sort."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.suite.programs.base import Calls, Program, ProgramInstance

_INT = np.int32
_GROUP = 64


def _search(size: int, generator: np.random.Generator) -> ProgramInstance:
    edges = 8
    count = max(_GROUP, size // edges // _GROUP * _GROUP)
    target = generator.integers(0, count, (count, edges)).astype(np.int32)
    level = np.full(count, -1, np.int32)
    level[0] = 0

    def steps(calls: Calls) -> None:
        calls.launch("search_begin", "level", "changed", global_size=(count,), local_size=(_GROUP,))
        for now in range(count):
            calls.launch(
                "search_level", "target", "level", "changed", _INT(edges), _INT(now),
                global_size=(count,), local_size=(_GROUP,),
            )  # fmt: skip
            if int(calls.read("changed")[0]) != now + 1:
                return

    def reference() -> dict[str, NDArray[Any]]:
        found, now = level.copy(), 0
        while True:
            reached = (found < 0) & (found[target] == now).any(1)
            if not reached.any():
                return {"level": found}
            now += 1
            found[reached] = now

    return ProgramInstance(
        {"target": target, "level": level, "changed": np.zeros(1, np.int32)}, steps, reference
    )


def _paths(size: int, generator: np.random.Generator) -> ProgramInstance:
    count = max(32, int(np.sqrt(size)) // 32 * 32)
    length = generator.integers(1, 1000, (count, count)).astype(np.int32)
    np.fill_diagonal(length, 0)

    def steps(calls: Calls) -> None:
        for via in range(count):
            calls.launch(
                "paths_through",
                "length",
                _INT(count),
                _INT(via),
                global_size=(count, count),
                local_size=(16, 4),
            )

    def reference() -> dict[str, NDArray[Any]]:
        found = length.copy()
        for via in range(count):
            np.minimum(found, found[:, via : via + 1] + found[via], out=found)
        return {"length": found}

    return ProgramInstance({"length": length}, steps, reference)


def _transform(size: int, generator: np.random.Generator) -> ProgramInstance:
    power = max(8, int(np.log2(size)))
    count = 1 << power
    signal = generator.normal(0, 1, (count, 2)).astype(np.float32)

    def steps(calls: Calls) -> None:
        old, new, half, stride = "signal", "other", count // 2, 1
        for _ in range(power):
            calls.launch(
                "transform_pass", old, new, _INT(half), _INT(stride),
                global_size=(count // 2,), local_size=(_GROUP,),
            )  # fmt: skip
            old, new, half, stride = new, old, half // 2, stride * 2

    def reference() -> dict[str, NDArray[Any]]:
        found = np.fft.fft(signal[:, 0] + 1j * signal[:, 1].astype(np.float64), norm="ortho")
        result = np.stack([found.real, found.imag], 1).astype(np.float32)
        return {"signal" if power % 2 == 0 else "other": result}

    return ProgramInstance({"signal": signal, "other": np.zeros_like(signal)}, steps, reference)


def _bitonic(size: int, generator: np.random.Generator) -> ProgramInstance:
    power = max(8, int(np.log2(size)))
    count = 1 << power
    values = generator.integers(-(1 << 30), 1 << 30, count).astype(np.int32)

    def steps(calls: Calls) -> None:
        for block in range(1, power + 1):
            for apart in range(block - 1, -1, -1):
                calls.launch(
                    "bitonic_pass", "values", _INT(1 << apart), _INT(1 << block),
                    global_size=(count // 2,), local_size=(_GROUP,),
                )  # fmt: skip

    return ProgramInstance({"values": values}, steps, lambda: {"values": np.sort(values)})


PROGRAMS = (
    Program("search", "breadth-first search, read after every level", "search.cl", _search, 1 << 10, 1 << 23),
    Program("paths", "shortest paths between all pairs", "paths.cl", _paths, 1 << 10, 1 << 18),
    Program("transform", "a Fourier transform, pass by pass", "transform.cl", _transform, 1 << 8, 1 << 20),
    Program("bitonic", "a sort, pass by pass", "bitonic.cl", _bitonic, 1 << 8, 1 << 20),
)  # fmt: skip
