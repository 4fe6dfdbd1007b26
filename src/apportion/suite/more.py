"""Problems for what else decides speed: memory, arithmetic, stencils, gathers, atomics, divergence, FP64."""

from __future__ import annotations

from math import erfc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.runtime.base import LocalMemory
from apportion.suite.base import Arrays, Instance, Make, Problem, Stage

_INT = np.int32
_GROUP = (64,)


def _whole(size: int) -> int:
    return max(64, size // 64 * 64)


def _side(size: int, multiple: int = 8) -> int:
    return max(2 * multiple, int(np.sqrt(size)) // multiple * multiple)


def _triad(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(size)
    a, b = generator.random((2, n)).astype(np.float32)
    stage = Stage("triad", ("a", "b", "c", np.float32(3.0)), (n,), _GROUP)
    return Instance(
        {"a": a, "b": b, "c": np.zeros(n, np.float32)}, (stage,), lambda: {"c": a + np.float32(3) * b}
    )


def _strided(size: int, generator: np.random.Generator) -> Instance:
    n, stride = _whole(size), 17
    source = generator.random(n).astype(np.float32)
    stage = Stage("strided_copy", ("from", "to", _INT(stride), _INT(n)), (n,), _GROUP)
    return Instance(
        {"from": source, "to": np.zeros(n, np.float32)},
        (stage,),
        lambda: {"to": source[np.arange(n, dtype=np.int64) * stride % n]},
    )


def _matmul_of(kernel: str, group: tuple[int, int]) -> Make:
    def make(size: int, generator: np.random.Generator) -> Instance:
        n = _side(size)
        a, b = generator.random((2, n, n)).astype(np.float32)
        stage = Stage(kernel, ("a", "b", "c", _INT(n)), (n, n), group)
        return Instance({"a": a, "b": b, "c": np.zeros((n, n), np.float32)}, (stage,), lambda: {"c": a @ b})

    return make


def _matvec(size: int, generator: np.random.Generator) -> Instance:
    columns = 64
    rows = _whole(size // columns)
    matrix, vector = generator.random((rows, columns)), generator.random(columns)
    stage = Stage("matvec_fp64", ("matrix", "vector", "result", _INT(columns)), (rows,), _GROUP)
    arrays = {"matrix": matrix, "vector": vector, "result": np.zeros(rows)}
    return Instance(arrays, (stage,), lambda: {"result": matrix @ vector})


def _convolution(size: int, generator: np.random.Generator) -> Instance:
    n, reach = _whole(size), 8
    signal = generator.random(n).astype(np.float32)
    taps = generator.random(2 * reach + 1).astype(np.float32)
    stage = Stage("convolution", ("signal", "result", "taps", _INT(n), _INT(reach)), (n,), _GROUP)

    def reference() -> dict[str, NDArray[Any]]:
        padded = np.pad(signal.astype(np.float64), reach, mode="edge")
        return {"result": np.correlate(padded, taps.astype(np.float64), "valid").astype(np.float32)}

    arrays = {"signal": signal, "result": np.zeros(n, np.float32), "taps": taps}
    return Instance(arrays, (stage,), reference)


def _jacobi(size: int, generator: np.random.Generator) -> Instance:
    side = _side(size)
    source = generator.random((side, side)).astype(np.float32)
    stage = Stage("jacobi", ("from", "to", _INT(side), _INT(side)), (side, side), (8, 8))

    def reference() -> dict[str, NDArray[Any]]:
        expected = source.copy()
        expected[1:-1, 1:-1] = 0.25 * (
            source[1:-1, :-2] + source[1:-1, 2:] + source[:-2, 1:-1] + source[2:, 1:-1]
        )
        return {"to": expected}

    return Instance({"from": source, "to": np.zeros_like(source)}, (stage,), reference)


def _heat(size: int, generator: np.random.Generator) -> Instance:
    n = max(8, round(size ** (1 / 3)) // 4 * 4)
    source = generator.random((n, n, n)).astype(np.float32)
    stage = Stage("heat", ("from", "to", _INT(n)), (n, n, n), (4, 4, 4))

    def reference() -> dict[str, NDArray[Any]]:
        padded = np.pad(source.astype(np.float64), 1, mode="edge")
        inner = slice(1, -1)
        total = sum(
            padded[tuple(slice(1 + d, n + 1 + d) if axis == along else inner for axis in range(3))]
            for along in range(3)
            for d in (-1, 1)
        )
        return {"to": (source + 0.1 * (total - 6.0 * source)).astype(np.float32)}

    return Instance({"from": source, "to": np.zeros_like(source)}, (stage,), reference)


def _nbody(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(int(np.sqrt(size)))
    bodies = generator.random((n, 4)).astype(np.float32)
    stage = Stage("nbody", ("bodies", "forces", _INT(n)), (n,), _GROUP)

    def reference() -> dict[str, NDArray[Any]]:
        wide = bodies.astype(np.float64)
        away = wide[None, :, :3] - wide[:, None, :3]
        near = (away**2).sum(2) + 0.01
        force = (wide[None, :, 3, None] * away * near[:, :, None] ** -1.5).sum(1)
        return {"forces": np.concatenate([force, wide[:, 3:]], 1).astype(np.float32)}

    return Instance({"bodies": bodies, "forces": np.zeros_like(bodies)}, (stage,), reference)


def _mandelbrot(size: int, generator: np.random.Generator) -> Instance:
    side, most = _side(size), 64

    def shifted(value: NDArray[np.int64]) -> NDArray[np.int64]:  # C divides towards zero
        return np.where(value < 0, -(-value // 4096), value // 4096)

    def reference() -> dict[str, NDArray[Any]]:
        y, x = np.mgrid[:side, :side].astype(np.int64)
        ca, cb = x * 12288 // side - 8192, y * 8192 // side - 4096
        a, b, steps = np.zeros_like(ca), np.zeros_like(cb), np.zeros(ca.shape, np.int32)
        on = np.ones(ca.shape, bool)
        for _ in range(most):
            on &= a * a // 4096 + b * b // 4096 < 16384
            following = a * a // 4096 - b * b // 4096 + ca
            b = np.where(on, shifted(2 * a * b) + cb, b)
            a = np.where(on, following, a)
            steps += on
            on &= (np.abs(a) <= 16384) & (np.abs(b) <= 16384)
        return {"steps": steps}

    stage = Stage("mandelbrot", ("steps", _INT(side), _INT(side), _INT(most)), (side, side), (8, 8))
    return Instance({"steps": np.zeros((side, side), np.int32)}, (stage,), reference)


def _black_scholes(size: int, generator: np.random.Generator) -> Instance:
    n, rate, volatility = _whole(size), 0.02, 0.3
    price, strike = generator.uniform(5, 30, (2, n)).astype(np.float32)
    years = generator.uniform(0.25, 5, n).astype(np.float32)

    def reference() -> dict[str, NDArray[Any]]:
        p, s, t = (values.astype(np.float64) for values in (price, strike, years))
        root = volatility * np.sqrt(t)
        first = (np.log(p / s) + (rate + volatility**2 / 2) * t) / root
        normal = np.vectorize(lambda z: 0.5 * erfc(-z / np.sqrt(2)))
        expected = p * normal(first) - s * np.exp(-rate * t) * normal(first - root)
        return {"call": expected.astype(np.float32)}

    stage = Stage(
        "black_scholes",
        ("price", "strike", "years", "call", np.float32(rate), np.float32(volatility)),
        (n,),
        _GROUP,
    )
    arrays = {"price": price, "strike": strike, "years": years, "call": np.zeros(n, np.float32)}
    return Instance(arrays, (stage,), reference)


def _collatz(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(size)
    numbers = generator.integers(1, 10_000, n).astype(np.uint32)
    stage = Stage("collatz", ("numbers", "lengths"), (n,), _GROUP)

    def reference() -> dict[str, NDArray[Any]]:
        values, lengths = numbers.astype(np.uint64), np.zeros(n, np.int32)
        while (on := values > 1).any():
            values = np.where(on, np.where(values & 1, 3 * values + 1, values // 2), values)
            lengths += on
        return {"lengths": lengths}

    return Instance({"numbers": numbers, "lengths": np.zeros(n, np.int32)}, (stage,), reference)


def _rows(generator: np.random.Generator, rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Starts of rows of very different lengths, and the columns in them."""
    lengths = np.minimum(generator.zipf(1.7, rows), 64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return starts, generator.integers(0, rows, starts[-1]).astype(np.int32)


def _sparse(size: int, generator: np.random.Generator) -> Instance:
    rows = _whole(size)
    starts, columns = _rows(generator, rows)
    values = generator.random(len(columns)).astype(np.float32)
    vector = generator.random(rows).astype(np.float32)

    def reference() -> dict[str, NDArray[Any]]:
        products = values.astype(np.float64) * vector[columns]
        return {"result": np.add.reduceat(products, starts[:-1]).astype(np.float32)}

    stage = Stage("sparse_matvec", ("starts", "columns", "values", "vector", "result"), (rows,), _GROUP)
    arrays = {
        "starts": starts, "columns": columns, "values": values, "vector": vector,
        "result": np.zeros(rows, np.float32),
    }  # fmt: skip
    return Instance(arrays, (stage,), reference)


def _permute(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(size)
    places = generator.permutation(n).astype(np.int32)
    source = generator.random(n).astype(np.float32)
    stage = Stage("permute", ("places", "from", "to"), (n,), _GROUP)

    def reference() -> dict[str, NDArray[Any]]:
        expected = np.empty_like(source)
        expected[places] = source
        return {"to": expected}

    return Instance({"places": places, "from": source, "to": np.zeros_like(source)}, (stage,), reference)


def _frontier(size: int, generator: np.random.Generator) -> Instance:
    nodes = _whole(size)
    starts, targets = _rows(generator, nodes)
    levels = np.full(nodes, -1, np.int32)
    levels[: nodes // 16] = 3
    stage = Stage("frontier", ("starts", "targets", "levels", _INT(3), _INT(nodes)), (nodes,), _GROUP)

    def reference() -> dict[str, NDArray[Any]]:
        expected = levels.copy()
        reached = np.concatenate(
            [targets[starts[node] : starts[node + 1]] for node in np.flatnonzero(levels == 3)]
        )
        expected[reached[levels[reached] < 0]] = 4
        return {"levels": expected}

    return Instance({"starts": starts, "targets": targets, "levels": levels}, (stage,), reference)


def _block_sums(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(size)
    data = generator.random(n).astype(np.float32)
    stage = Stage("block_sums", ("data", "sums", LocalMemory(4 * 64)), (n,), _GROUP)
    arrays = {"data": data, "sums": np.zeros(n // 64, np.float32)}
    return Instance(
        arrays, (stage,), lambda: {"sums": data.reshape(-1, 64).sum(1, dtype=np.float64).astype(np.float32)}
    )


def _block_scan(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(size)
    data = generator.integers(0, 100, n).astype(np.int32)
    stage = Stage("block_scan", ("data", "scanned", LocalMemory(4 * 64)), (n,), _GROUP)
    return Instance(
        {"data": data, "scanned": np.zeros(n, np.int32)},
        (stage,),
        lambda: {"scanned": data.reshape(-1, 64).cumsum(1, dtype=np.int32).reshape(-1)},
    )


def _extremes(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(size)
    data = generator.integers(-(1 << 30), 1 << 30, n).astype(np.int32)
    stage = Stage("extremes", ("data", "least", "most"), (n,), _GROUP)
    arrays = {"data": data, "least": np.zeros(1, np.int32), "most": np.zeros(1, np.int32)}

    def reference() -> dict[str, NDArray[Any]]:
        return {"least": np.minimum(data.min(), 0).reshape(1), "most": np.maximum(data.max(), 0).reshape(1)}

    return Instance(arrays, (stage,), reference)


def _circle(size: int, generator: np.random.Generator) -> Instance:
    n, tries, seed = _whole(size), 16, 12345
    stage = Stage("circle_hits", ("hits", np.uint32(seed), _INT(tries)), (n,), _GROUP)

    def reference() -> dict[str, NDArray[Any]]:
        state = (np.uint32(seed) ^ np.arange(n, dtype=np.uint32) * np.uint32(2654435761)).astype(np.uint32)
        inside = 0
        for _ in range(tries):
            state = state * np.uint32(1664525) + np.uint32(1013904223)
            x = state >> 17
            state = state * np.uint32(1664525) + np.uint32(1013904223)
            y = state >> 17
            inside += int(np.count_nonzero(x * x + y * y < 1 << 30))
        return {"hits": np.array([inside], np.uint32)}

    return Instance({"hits": np.zeros(1, np.uint32)}, (stage,), reference)


def _append(size: int, generator: np.random.Generator) -> Instance:
    n = _whole(size)
    data = generator.integers(0, 1000, n).astype(np.int32)

    def reference() -> dict[str, NDArray[Any]]:
        odd = np.sort(data[data % 2 == 1])
        expected = np.zeros(n, np.int32)
        expected[n - len(odd) :] = odd
        return {"odd": expected, "count": np.array([len(odd)], np.int32)}

    stage = Stage("append_odd", ("data", "odd", "count"), (n,), _GROUP)
    arrays = {"data": data, "odd": np.zeros(n, np.int32), "count": np.zeros(1, np.int32)}
    return Instance(arrays, (stage,), reference)


def _in_any_order(expected: Arrays, found: Arrays) -> str | None:
    if not np.array_equal(np.sort(found["odd"]), expected["odd"]):
        return "odd: not the odd numbers of the data"
    return None if found["count"][0] == expected["count"][0] else f"count: {found['count'][0]}"


def _traits(*names: str) -> frozenset[str]:
    return frozenset(names)


PROBLEMS = (
    Problem("triad", "c = a + 3 b", "dense.cl", _triad, _traits("memory"), {"c": "slice"}),
    Problem("strided_copy", "a copy with a stride", "dense.cl", _strided, _traits("memory"), {"to": "slice"}),
    Problem("matmul", "a matrix product", "dense.cl", _matmul_of("matmul", (8, 8)), _traits("compute"),
            {"c": "slice"}, usual=1 << 16, large=1 << 20),
    Problem("matmul_tiled", "a matrix product in tiles", "dense.cl", _matmul_of("matmul_tiled", (8, 8)),
            _traits("compute", "local"), {"c": "slice"}, usual=1 << 16, large=1 << 20),
    Problem("matvec_fp64", "a matrix times a vector in double precision", "double_precision.cl", _matvec,
            _traits("memory", "fp64"), {"result": "slice"}, 8192),
    Problem("convolution", "a signal under a filter of 17 taps", "stencil.cl", _convolution,
            _traits("stencil"), {"result": "slice"}),
    Problem("jacobi", "one step of Jacobi's method in the plane", "stencil.cl", _jacobi,
            _traits("stencil", "memory"), {"to": "slice"}),
    Problem("heat", "one step of heat conduction in space", "stencil.cl", _heat, _traits("stencil"),
            {"to": "slice"}),
    Problem("nbody", "the forces between bodies", "compute.cl", _nbody, _traits("compute"),
            {"forces": "slice"}, 16384, large=1 << 27),
    Problem("mandelbrot", "steps until a point escapes", "compute.cl", _mandelbrot,
            _traits("compute", "divergent"), {"steps": "slice"}),
    Problem("black_scholes", "prices of options", "compute.cl", _black_scholes, _traits("compute"),
            {"call": "slice"}, usual=1 << 18, large=1 << 22),
    Problem("collatz", "how long until 3n + 1 comes to 1", "compute.cl", _collatz,
            _traits("compute", "divergent"), {"lengths": "slice"}, large=1 << 22),
    Problem("sparse_matvec", "a sparse matrix times a vector", "irregular.cl", _sparse,
            _traits("irregular", "memory"), {"result": "slice"}, large=1 << 22),
    Problem("permute", "a vector permuted", "irregular.cl", _permute, _traits("irregular", "memory"),
            {"to": "diff"}, large=1 << 22),
    Problem("frontier", "one step of a breadth-first search", "irregular.cl", _frontier,
            _traits("irregular", "divergent"), {"levels": "diff"}, large=1 << 22),
    Problem("block_sums", "the sums of blocks", "collective.cl", _block_sums, _traits("memory", "local"),
            {"sums": "slice"}),
    Problem("block_scan", "running sums inside blocks", "collective.cl", _block_scan, _traits("local"),
            {"scanned": "slice"}),
    Problem("extremes", "the least and the most", "collective.cl", _extremes, _traits("atomic"),
            {"least": "min", "most": "max"}),
    Problem("circle_hits", "random points inside a circle", "collective.cl", _circle,
            _traits("compute", "atomic"), {"hits": "sum"}),
    Problem("append_odd", "the odd numbers, in any order", "collective.cl", _append,
            _traits("memory", "atomic"), {"odd": "refuse", "count": "refuse"}, verify=_in_any_order),
)  # fmt: skip
