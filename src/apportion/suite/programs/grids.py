"""Programs over grids: Jacobi's method, Canny's edges, fields in time, a fluid, and five filters of a
photograph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.suite import chai
from apportion.suite.programs.base import Calls, Program, ProgramInstance

_INT = np.int32
_GROUP = (16, 4)


def _side(size: int) -> int:
    return max(32, int(np.sqrt(size)) // 32 * 32)


def _jacobi(size: int, generator: np.random.Generator) -> ProgramInstance:
    side, rounds = _side(size), 100
    grid = generator.random((side, side)).astype(np.float32)

    def steps(calls: Calls) -> None:
        old, new = "grid", "other"
        for _ in range(rounds):
            calls.launch(
                "jacobi_step", old, new, _INT(side), _INT(side), global_size=(side, side), local_size=_GROUP
            )
            old, new = new, old

    def reference() -> dict[str, NDArray[Any]]:
        old, new = grid.copy(), grid.copy()
        for _ in range(rounds):
            new[1:-1, 1:-1] = 0.25 * (old[1:-1, :-2] + old[1:-1, 2:] + old[:-2, 1:-1] + old[2:, 1:-1])
            old, new = new, old
        return {"grid": old}

    return ProgramInstance({"grid": grid, "other": np.zeros_like(grid)}, steps, reference)


def _canny(size: int, generator: np.random.Generator) -> ProgramInstance:
    problem = next(problem for problem in chai.PROBLEMS if problem.name == "canny")
    instance = problem.make(size, generator)

    def steps(calls: Calls) -> None:
        for stage in instance.stages:
            calls.launch(
                stage.kernel, *stage.arguments, global_size=stage.global_size, local_size=stage.local_size
            )

    return ProgramInstance(instance.arrays, steps, lambda: instance.expected)


def _fdtd(size: int, generator: np.random.Generator) -> ProgramInstance:
    side, rounds = _side(size), 60
    field = (generator.random((side, side)) * 0.01).astype(np.float32)
    sizes, ranges = (_INT(side), _INT(side)), {"global_size": (side, side), "local_size": _GROUP}
    sources = [np.float32(np.sin(0.2 * number)) for number in range(rounds)]

    def steps(calls: Calls) -> None:
        for source in sources:
            calls.launch("fdtd_magnetic", "hx", "hy", "ez", *sizes, **ranges)
            calls.launch("fdtd_electric", "hx", "hy", "ez", *sizes, source, **ranges)

    def reference() -> dict[str, NDArray[Any]]:
        hx, hy, ez = np.zeros_like(field), np.zeros_like(field), field.copy()
        half = np.float32(0.5)
        for source in sources:
            hx[:-1] -= half * (ez[1:] - ez[:-1])
            hy[:, :-1] += half * (ez[:, 1:] - ez[:, :-1])
            ez[1:, 1:] += half * (hy[1:, 1:] - hy[1:, :-1] - hx[1:, 1:] + hx[:-1, 1:])
            ez[side // 2, side // 2] += source
        return {"ez": ez, "hx": hx, "hy": hy}

    arrays = {"hx": np.zeros_like(field), "hy": np.zeros_like(field), "ez": field}
    return ProgramInstance(arrays, steps, reference)


_X = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
_Y = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
_WEIGHT = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)


def _lbm(size: int, generator: np.random.Generator) -> ProgramInstance:
    side, rounds = _side(size // 9), 40
    start = _WEIGHT[:, None, None] * (1 + 0.1 * generator.random((9, side, side))).astype(np.float32)

    def steps(calls: Calls) -> None:
        old, new = "cells", "other"
        for _ in range(rounds):
            calls.launch(
                "lbm_step", old, new, _INT(side), _INT(side), global_size=(side, side), local_size=_GROUP
            )
            old, new = new, old

    def reference() -> dict[str, NDArray[Any]]:
        old = start.astype(np.float64)
        for _ in range(rounds):
            f = np.stack([np.roll(old[k], (_Y[k], _X[k]), (0, 1)) for k in range(9)])
            density = f.sum(0)
            u, v = np.tensordot(_X, f, 1) / density, np.tensordot(_Y, f, 1) / density
            along = 3 * (_X[:, None, None] * u + _Y[:, None, None] * v)
            square = 1.5 * (u * u + v * v)
            equal = _WEIGHT[:, None, None] * density * (1 + along + 0.5 * along**2 - square)
            old = f + 0.8 * (equal - f)
        return {"cells": old.astype(np.float32)}

    return ProgramInstance({"cells": start, "other": np.zeros_like(start)}, steps, reference)


def _photo(size: int, generator: np.random.Generator) -> ProgramInstance:
    side = _side(size)
    colours = {name: generator.random((side, side)).astype(np.float32) for name in ("red", "green", "blue")}
    plane = {"global_size": (side, side), "local_size": _GROUP}
    line = {"global_size": (side * side,), "local_size": (64,)}
    width, height, amount = _INT(side), _INT(side), np.float32(1.5)

    def steps(calls: Calls) -> None:
        calls.launch("photo_grey", "red", "green", "blue", "grey", **line)
        calls.launch("photo_blur_rows", "grey", "rows", width, **plane)
        calls.launch("photo_blur_columns", "rows", "smooth", width, height, **plane)
        calls.launch("photo_sharpen", "grey", "smooth", "sharp", amount, **line)
        calls.launch("photo_tones", "sharp", "result", **line)

    def blurred(values: NDArray[Any], axis: int) -> NDArray[Any]:
        widths = [(0, 0), (0, 0)]
        widths[axis] = (4, 4)
        padded = np.pad(values.astype(np.float64), widths, mode="edge")
        parts = [np.take(padded, range(4 + k, 4 + k + side), axis) * (5 - abs(k)) for k in range(-4, 5)]
        return np.asarray(sum(parts) / 25)

    def reference() -> dict[str, NDArray[Any]]:
        grey = 0.299 * colours["red"] + 0.587 * colours["green"] + 0.114 * colours["blue"]
        smooth = blurred(blurred(grey, 1), 0)
        sharp = np.clip(grey + 1.5 * (grey - smooth), 0, 1)
        return {"result": (sharp * sharp * (3 - 2 * sharp)).astype(np.float32)}

    empty = {
        name: np.zeros((side, side), np.float32) for name in ("grey", "rows", "smooth", "sharp", "result")
    }
    return ProgramInstance(colours | empty, steps, reference)


PROGRAMS = (
    Program("jacobi", "heat that spreads, 100 steps", "jacobi_loop.cl", _jacobi, 1 << 10, 1 << 22),
    Program("canny", "edges of an image, Canny's four kernels", "canny.cl", _canny, 1 << 10, 1 << 22),
    Program("fdtd", "electromagnetic fields in time, 60 steps", "fdtd.cl", _fdtd, 1 << 10, 1 << 22),
    Program("lbm", "a fluid by the lattice-Boltzmann method, 40 steps", "lbm.cl", _lbm, 1 << 14, 9 << 18),
    Program("photo", "five filters over a photograph", "photo.cl", _photo, 1 << 10, 1 << 22),
)  # fmt: skip
