"""The eight problems of the CHAI suite, written anew: what each computes, its inputs, its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.runtime.base import LocalMemory
from apportion.suite.base import Arrays, Instance, Make, Problem, Stage

_INT = np.int32


def _bezier(size: int, generator: np.random.Generator) -> Instance:
    side = max(8, int(np.sqrt(size)) // 8 * 8)
    control = np.zeros((16, 4), np.float32)
    control[:, :3] = generator.random((16, 3))

    def reference() -> dict[str, NDArray[Any]]:
        t = np.arange(side, dtype=np.float64) / (side - 1)
        basis = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], 1)
        points = control.reshape(4, 4, 4).astype(np.float64)
        return {
            "surface": np.einsum("ui,vj,ijc->uvc", basis, basis, points, optimize=True).astype(np.float32)
        }

    stage = Stage(
        "bezier",
        ("control", "surface", _INT(side), _INT(side), LocalMemory(16 * 16)),
        (side, side),
        (8, 8),
    )
    arrays = {"control": control, "surface": np.zeros((side, side, 4), np.float32)}
    return Instance(arrays, (stage,), reference)


def _histogram(kernel: str, groups: int) -> Make:
    def make(size: int, generator: np.random.Generator) -> Instance:
        bins, count = 256, size
        data = generator.integers(0, 4096, count).astype(np.uint32)
        stage = Stage(
            kernel,
            ("data", "histogram", _INT(count), _INT(bins), LocalMemory(4 * bins)),
            (64 * groups,),
            (64,),
        )
        arrays = {"data": data, "histogram": np.zeros(bins, np.uint32)}
        return Instance(
            arrays,
            (stage,),
            lambda: {"histogram": np.bincount(data % bins, minlength=bins).astype(np.uint32)},
        )

    return make


def _canny(size: int, generator: np.random.Generator) -> Instance:
    side = max(16, int(np.sqrt(size)) // 8 * 8)
    height, width = side, side
    y, x = np.mgrid[:height, :width]
    # Shapes with sharp borders, and noise: edges, and what should not be one.
    image = (
        40 + 150 * ((x // (side // 4) + y // (side // 4)) % 2) + generator.integers(0, 20, (height, width))
    )
    image = image.astype(np.int32)
    sizes = (_INT(width), _INT(height))
    ranges = ((width, height), (8, 8))
    stages = (
        Stage("canny_smooth", ("image", "smooth", *sizes), *ranges),
        Stage("canny_gradient", ("smooth", "strength", "direction", *sizes), *ranges),
        Stage("canny_thin", ("strength", "direction", "thin", *sizes), *ranges),
        Stage("canny_edges", ("thin", "edges", *sizes, _INT(80), _INT(200)), *ranges),
    )
    results = ("smooth", "strength", "direction", "thin", "edges")
    return Instance(
        {"image": image, **{name: np.zeros_like(image) for name in results}},
        stages,
        lambda: dict(zip(results, _canny_reference(image, 80, 200), strict=True)),
    )


def _canny_reference(image: NDArray[np.int32], low: int, high: int) -> tuple[NDArray[np.int32], ...]:
    height, width = image.shape

    def moved(values: NDArray[np.int32], i: int, j: int) -> NDArray[np.int32]:
        padded = np.pad(values, 1, mode="edge")
        return padded[1 + j : 1 + j + height, 1 + i : 1 + i + width]

    near = [(i, j) for j in (-1, 0, 1) for i in (-1, 0, 1)]
    smooth = np.zeros_like(image)
    for i, j in near:
        smooth += (2 - abs(i)) * (2 - abs(j)) * moved(image, i, j)
    smooth //= 16
    across, down = np.zeros_like(image), np.zeros_like(image)
    for k in (-1, 0, 1):
        across += (2 - abs(k)) * (moved(smooth, 1, k) - moved(smooth, -1, k))
        down += (2 - abs(k)) * (moved(smooth, k, 1) - moved(smooth, k, -1))
    h, v = np.abs(across), np.abs(down)
    strength = h + v
    rising = np.where((across < 0) == (down < 0), 1, 3)
    direction = np.where(5 * v < 2 * h, 0, np.where(5 * h < 2 * v, 2, rising)).astype(np.int32)
    thin = np.zeros_like(strength)
    for d, (i, j) in {0: (1, 0), 1: (1, 1), 2: (0, 1), 3: (1, -1)}.items():
        one, other = moved(strength, i, j), moved(strength, -i, -j)
        thin = np.where((direction == d) & (strength >= one) & (strength >= other), strength, thin)
    strong = np.any([moved(thin, i, j) >= high for i, j in near], 0)
    edges = np.where((thin >= high) | ((thin >= low) & strong), 255, 0).astype(np.int32)
    return smooth, strength, direction, thin, edges


def _padding(size: int, generator: np.random.Generator) -> Instance:
    columns, pad, lanes = 31, 1, 64
    rows = max(2, size // columns)
    matrix = np.zeros(rows * (columns + pad), np.float32)
    values = generator.random((rows, columns)).astype(np.float32)
    matrix[: rows * columns] = values.reshape(-1)
    # The last piece is moved first, so what was never overwritten keeps what stood there.
    expected = matrix.copy()
    source = np.arange(rows * columns)
    expected[source + source // columns * pad] = values.reshape(-1)
    tasks = -(-rows * columns // lanes)
    stage = Stage(
        "padding",
        ("matrix", "flags", "ticket", _INT(rows), _INT(columns), _INT(pad), LocalMemory(4 * lanes)),
        (tasks * lanes,),
        (lanes,),
    )
    arrays = {"matrix": matrix, "flags": np.zeros(tasks, np.int32), "ticket": np.zeros(1, np.int32)}
    return Instance(arrays, (stage,), lambda: {"matrix": expected})


def _compaction(size: int, generator: np.random.Generator) -> Instance:
    lanes, removed = 64, 7
    count = size
    data = np.where(generator.random(count) < 0.5, removed, generator.integers(8, 1000, count)).astype(
        np.int32
    )
    kept = data[data != removed]
    expected = np.zeros(count, np.int32)
    expected[: len(kept)] = kept
    tasks = -(-count // lanes)
    stage = Stage(
        "compaction",
        ("data", "kept", "sums", "ticket", _INT(count), _INT(removed), LocalMemory(4 * lanes)),
        (tasks * lanes,),
        (lanes,),
    )
    arrays = {
        "data": data,
        "kept": np.zeros(count, np.int32),
        "sums": np.zeros(tasks, np.int32),
        "ticket": np.zeros(1, np.int32),
    }
    return Instance(arrays, (stage,), lambda: {"kept": expected})


def _ransac(size: int, generator: np.random.Generator) -> Instance:
    lanes, trials = 32, max(8, size // 256)
    count = 512
    places = generator.integers(0, 64, (count, 2)).astype(np.float32)
    flow = np.zeros((count, 4), np.float32)
    flow[:, :2] = places
    flow[:, 2:] = 0.5 * places + np.array([2.0, -3.0], np.float32)
    wild = generator.random(count) < 0.25
    flow[wild, 2:] += generator.integers(5, 40, (int(wild.sum()), 2)).astype(np.float32)
    pairs = generator.integers(0, count, (trials, 2)).astype(np.int32)
    a, b = flow[pairs[:, 0]], flow[pairs[:, 1]]
    span = b[:, :2] - a[:, :2]
    sound = (np.abs(span) > 0.25).all(1)
    scale = np.where(sound[:, None], (b[:, 2:] - a[:, 2:]) / np.where(span == 0, 1, span), 0)
    shift = a[:, 2:] - scale * a[:, :2]
    # An error between the exact fits and the wild vectors, so that no rounding decides.
    off = np.abs(scale[:, None] * flow[None, :, :2] + shift[:, None] - flow[None, :, 2:])
    outliers = (off > 1.0).any(2).sum(1)
    most = count // 2
    chosen = np.flatnonzero(sound & (outliers < most))
    arrays = {
        "flow": flow,
        "pairs": pairs,
        "candidates": np.full(trials, -1, np.int32),
        "outliers": np.full(trials, -1, np.int32),
        "found": np.zeros(1, np.int32),
    }
    stage = Stage(
        "ransac",
        ("flow", "pairs", "candidates", "outliers", "found", _INT(count), np.float32(1.0), _INT(most),
         LocalMemory(4 * lanes)),
        (trials * lanes,),
        (lanes,),
    )  # fmt: skip
    expected = {
        "candidates": chosen.astype(np.int32),
        "outliers": outliers[chosen].astype(np.int32),
        "found": np.array([len(chosen)], np.int32),
    }
    return Instance(arrays, (stage,), lambda: expected)


def _same_candidates(expected: Arrays, found: Arrays) -> str | None:
    """Candidates are appended in any order; a trial must always bring the same number of outliers."""
    count = int(found["found"][0])
    if count != int(expected["found"][0]):
        return f"found: {count} candidates instead of {int(expected['found'][0])}"
    order = np.argsort(found["candidates"][:count])
    for name in ("candidates", "outliers"):
        if not np.array_equal(found[name][:count][order], expected[name]):
            return f"{name}: not those of the reference"
    return None


def _transposition(size: int, generator: np.random.Generator) -> Instance:
    columns = 24
    rows = max(4, size // columns // 8 * 8)
    matrix = generator.random((rows, columns)).astype(np.float32)
    groups = -(-rows * columns // 64)
    stage = Stage("transposition", ("matrix", _INT(rows), _INT(columns)), (64 * groups,), (64,))
    return Instance(
        {"matrix": matrix},
        (stage,),
        lambda: {"matrix": np.ascontiguousarray(matrix.T).reshape(rows, columns)},
    )


PROBLEMS = (
    Problem(
        "bezier", "a Bézier surface on a grid", "bezier.cl", _bezier, frozenset({"compute", "local"}),
        {"surface": "slice"}, large=1 << 22, chai="BS",
    ),
    Problem(
        "histogram_input", "a histogram, each group counting part of the data", "histogram.cl",
        _histogram("histogram_input", 16), frozenset({"atomic", "local"}), {"histogram": "sum"}, 4096,
        large=1 << 22, chai="HSTI",
    ),
    Problem(
        "histogram_output", "a histogram, each group counting some of the bins", "histogram.cl",
        _histogram("histogram_output", 16), frozenset({"memory", "local"}), {"histogram": "diff"}, 4096,
        large=1 << 22, chai="HSTO",
    ),
    Problem(
        "canny", "edges in an image, in four kernels", "canny.cl", _canny,
        frozenset({"stencil", "divergent"}),
        {"smooth": "slice", "strength": "slice", "direction": "slice", "thin": "slice", "edges": "slice"},
        large=1 << 22, chai="CEDD",
    ),
    Problem(
        "padding", "the rows of a matrix padded in place", "padding.cl", _padding,
        frozenset({"memory", "atomic", "local"}),
        {"matrix": "diff", "flags": "refuse", "ticket": "refuse"}, usual=1 << 16, large=1 << 18, chai="PAD",
    ),
    Problem(
        "compaction", "a stream without the values to remove, in order", "compaction.cl", _compaction,
        frozenset({"memory", "atomic", "local"}),
        {"kept": "diff", "sums": "refuse", "ticket": "refuse"}, usual=1 << 16, large=1 << 18, chai="SC",
    ),
    Problem(
        "ransac", "the models of an optical flow that fit most vectors", "ransac.cl", _ransac,
        frozenset({"compute", "irregular", "local"}),
        {"candidates": "refuse", "outliers": "refuse", "found": "refuse"}, 4096, large=1 << 21,
        verify=_same_candidates, chai="RSCD",
    ),
    Problem(
        "transposition", "a matrix transposed in place, cycle by cycle", "transposition.cl", _transposition,
        frozenset({"irregular", "divergent"}), {"matrix": "diff"}, usual=1 << 16, large=1 << 18, chai="TRNS",
    ),
)  # fmt: skip
