"""Programs of linear algebra: conjugate gradients, clusters, power iteration, and a neural network's
forward pass."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.runtime.base import LocalMemory
from apportion.suite.programs.base import Calls, Program, ProgramInstance

_INT = np.int32
_GROUP, _SUMS = 64, 32
"Work-items of a group that adds up, and how many such groups there are."


def _gradients(size: int, generator: np.random.Generator) -> ProgramInstance:
    side, rounds = max(32, int(np.sqrt(size)) // 32 * 32), 15
    count = side * side
    right = generator.random((side, side)).astype(np.float32)
    plane = {"global_size": (side, side), "local_size": (16, 4)}
    line = {"global_size": (count,), "local_size": (_GROUP,)}
    few = {"global_size": (_SUMS * _GROUP,), "local_size": (_GROUP,)}

    def dot(calls: Calls, a: str, b: str, total: str) -> None:
        calls.launch("cg_dot", a, b, "sums", _INT(count), LocalMemory(4 * _GROUP), **few)
        calls.launch("cg_total", "sums", total, _INT(_SUMS), global_size=(1,), local_size=(1,))

    def steps(calls: Calls) -> None:
        rr, before = "rr", "before"
        calls.launch("cg_begin", "right", "x", "r", "p", **line)
        dot(calls, "r", "r", rr)
        for _ in range(rounds):
            calls.launch("cg_multiply", "p", "q", _INT(side), **plane)
            dot(calls, "p", "q", "pq")
            calls.launch("cg_advance", "x", "r", "p", "q", rr, "pq", **line)
            rr, before = before, rr
            dot(calls, "r", "r", rr)
            calls.launch("cg_turn", "p", "r", rr, before, **line)

    def reference() -> dict[str, NDArray[Any]]:
        def multiplied(p: NDArray[np.float64]) -> NDArray[np.float64]:
            q = 4.5 * p
            q[:, 1:] -= p[:, :-1]
            q[:, :-1] -= p[:, 1:]
            q[1:] -= p[:-1]
            q[:-1] -= p[1:]
            return q

        x, r = np.zeros((side, side)), right.astype(np.float64)
        p, rr = r.copy(), float((r * r).sum())
        for _ in range(rounds):
            q = multiplied(p)
            alpha = rr / float((p * q).sum())
            x, r = x + alpha * p, r - alpha * q
            rr, before = float((r * r).sum()), rr
            p = r + rr / before * p
        return {"x": x.astype(np.float32)}

    zeros, one = np.zeros_like(right), np.zeros(1, np.float32)
    arrays = {
        "right": right, "x": zeros, "r": zeros, "p": zeros, "q": zeros, "sums": np.zeros(_SUMS, np.float32),
        "rr": one, "before": one, "pq": one,
    }  # fmt: skip
    return ProgramInstance(arrays, steps, reference)


def _clusters(size: int, generator: np.random.Generator) -> ProgramInstance:
    count, centres, pieces, rounds = size // 64 * 64, 16, 64, 10
    middle = generator.random((centres, 2)) * 100
    chosen = generator.integers(0, centres, count)
    points = (middle[chosen] + generator.normal(0, 1.0, (count, 2))).astype(np.float32)
    start = (middle + generator.normal(0, 1.0, (centres, 2))).astype(np.float32)

    def steps(calls: Calls) -> None:
        for _ in range(rounds):
            calls.launch(
                "cluster_nearest", "points", "centres", "label", _INT(count), _INT(centres),
                global_size=(count,), local_size=(64,),
            )  # fmt: skip
            calls.launch(
                "cluster_sums", "points", "label", "sums", _INT(count), _INT(pieces),
                global_size=(centres, pieces), local_size=(centres, 1),
            )  # fmt: skip
            calls.launch(
                "cluster_means",
                "sums",
                "centres",
                _INT(pieces),
                global_size=(centres,),
                local_size=(centres,),
            )

    def reference() -> dict[str, NDArray[Any]]:
        now = start.astype(np.float64)
        for _ in range(rounds):
            far = ((points[:, None, :] - now[None]) ** 2).sum(2) if count <= 1 << 16 else None
            label = far.argmin(1) if far is not None else _nearest(points, now)
            members = np.bincount(label, minlength=centres)
            sums = np.stack([np.bincount(label, points[:, axis], centres) for axis in (0, 1)], 1)
            now = np.where(members[:, None] > 0, sums / np.maximum(members, 1)[:, None], now)
        return {"centres": now.astype(np.float32)}

    arrays = {
        "points": points, "centres": start, "label": np.zeros(count, np.int32),
        "sums": np.zeros((pieces, centres, 3), np.float32),
    }  # fmt: skip
    return ProgramInstance(arrays, steps, reference)


def _nearest(points: NDArray[np.float32], centres: NDArray[np.float64]) -> NDArray[np.int64]:
    parts = np.array_split(points, max(1, len(points) >> 14))
    return np.concatenate([((part[:, None] - centres[None]) ** 2).sum(2).argmin(1) for part in parts])


def _power(size: int, generator: np.random.Generator) -> ProgramInstance:
    entries, rounds = 16, 20
    count = max(64, size // entries // 64 * 64)
    column = generator.integers(0, count, (count, entries)).astype(np.int32)
    value = generator.random((count, entries)).astype(np.float32)
    start = np.full(count, count**-0.5, np.float32)
    line = {"global_size": (count,), "local_size": (64,)}

    def steps(calls: Calls) -> None:
        for _ in range(rounds):
            calls.launch("power_multiply", "column", "value", "x", "y", _INT(entries), **line)
            calls.launch(
                "power_squares", "y", "sums", _INT(count), LocalMemory(4 * _GROUP),
                global_size=(_SUMS * _GROUP,), local_size=(_GROUP,),
            )  # fmt: skip
            calls.launch("power_scale", "y", "sums", "x", _INT(_SUMS), **line)

    def reference() -> dict[str, NDArray[Any]]:
        x = start.astype(np.float64)
        for _ in range(rounds):
            y = (value * x[column]).sum(1)
            x = y / np.sqrt((y * y).sum())
        return {"x": x.astype(np.float32)}

    arrays = {
        "column": column, "value": value, "x": start, "y": np.zeros(count, np.float32),
        "sums": np.zeros(_SUMS, np.float32),
    }  # fmt: skip
    return ProgramInstance(arrays, steps, reference)


def _network(size: int, generator: np.random.Generator) -> ProgramInstance:
    widths = (256, 512, 256, 16)
    batch = max(16, size // 256 // 16 * 16)
    layers = list(pairwise(widths))
    arrays: dict[str, NDArray[Any]] = {"in": generator.random((batch, widths[0])).astype(np.float32)}
    for number, (inner, outer) in enumerate(layers):
        arrays[f"weight{number}"] = (generator.normal(0, inner**-0.5, (inner, outer))).astype(np.float32)
        arrays[f"bias{number}"] = (0.1 * generator.normal(0, 1, outer)).astype(np.float32)
        arrays[f"out{number}"] = np.zeros((batch, outer), np.float32)
    arrays["chance"] = np.zeros((batch, widths[-1]), np.float32)

    def steps(calls: Calls) -> None:
        before = "in"
        for number, (inner, outer) in enumerate(layers):
            calls.launch(
                "network_layer", before, f"weight{number}", f"bias{number}", f"out{number}", _INT(inner),
                _INT(outer), _INT(number < len(layers) - 1), LocalMemory(1024), LocalMemory(1024),
                global_size=(outer, batch), local_size=(16, 16),
            )  # fmt: skip
            before = f"out{number}"
        calls.launch(
            "network_softmax", before, "chance", _INT(widths[-1]), global_size=(batch,), local_size=(16,)
        )

    def reference() -> dict[str, NDArray[Any]]:
        x = arrays["in"]
        for number in range(len(layers)):
            x = x @ arrays[f"weight{number}"] + arrays[f"bias{number}"]
            x = np.maximum(x, 0) if number < len(layers) - 1 else x
        chance = np.exp(x - x.max(1, keepdims=True))
        return {"chance": chance / chance.sum(1, keepdims=True)}

    return ProgramInstance(arrays, steps, reference)


PROGRAMS = (
    Program("gradients", "conjugate gradients, 15 steps", "gradients.cl", _gradients, 1 << 10, 1 << 22),
    Program("clusters", "k-means, 10 steps", "clusters.cl", _clusters, 1 << 10, 1 << 20),
    Program("power", "a sparse matrix's largest eigenvalue, 20 steps", "power.cl", _power, 1 << 12, 1 << 23),
    Program("network", "a neural network's forward pass", "network.cl", _network, 1 << 12, 1 << 20),
)  # fmt: skip
