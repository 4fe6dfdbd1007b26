"""A row of numbers for each configuration of a graph: what trees learn from.

    published   what TpuGraphs says: the tile, or the mean and spread of the layouts' values; and of the graph
                its sizes and how many of some opcodes it has
    launch      with what follows for a GPU kernel: elements a thread, bytes of a tile, tiles of the result
    launch-relative  with how that differs from its median over the graph's configurations
    compiled    with what the compiler says of each configuration, and how many programs then run at once
    relative    with how launch and compiled differ from their medians over the graph's configurations: for a
                kernel that was never seen, whose numbers as such mean little

C configurations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting
from apportion.program.hlo.module import OPCODES

Rows = NDArray[np.float64]
FeatureSet = Literal["published", "launch", "launch-relative", "compiled", "relative"]

_KINDS = (
    "dot",
    "convolution",
    "reduce",
    "exponential",
    "transpose",
    "multiply",
    "add",
    "convert",
    "broadcast",
)
_COMPILED = ("registers", "spills", "shared_bytes", "programs")
_CHUNK = 4096
"Configurations whose layouts are looked up at once."


@dataclass(frozen=True)
class Multiprocessors:
    """What limits how many programs run at once on a GPU; the numbers of NVIDIA's Hopper."""

    count: int = 132
    registers: int = 65_536
    shared_bytes: int = 233_472
    warps: int = 64
    programs: int = 32


def configuration_rows(
    graph: ConfiguredGraph, features: FeatureSet = "published", gpu: Multiprocessors | None = None
) -> Rows:
    """(C, F) of all configurations of a graph.

    Raises:
        InvalidSetting: the graph has layouts and features of a GPU kernel are asked for, or it has nothing of
            what the compiler said.
    """
    summary = _summary(graph)
    count = graph.configurations
    if "node_config_ids" in graph.arrays:
        if features != "published":
            raise InvalidSetting(f"{graph.name} has layouts: features = {features!r} describes GPU kernels")
        return np.concatenate([_layout_rows(graph), np.tile(summary, (count, 1))], axis=1)
    tile = graph.features(np.asarray(graph.codes))[:, 0].astype(np.float64)
    columns = [tile, np.tile(summary, (count, 1))]
    if features != "published":
        columns.append(_launch_rows(tile, graph))
    if features in ("compiled", "relative"):
        columns.append(_compiled_rows(tile, graph, gpu or Multiprocessors()))
    if features.endswith("relative"):
        own = np.concatenate(columns[2:], axis=1)
        columns.append(own - np.median(own, axis=0))
    return np.concatenate(columns, axis=1)


def relative_log(runtime: NDArray[Any]) -> Rows:
    """(C,) logarithms of runtimes less their mean: what a configuration adds, whatever the graph takes."""
    logs = np.log(np.asarray(runtime, np.float64))
    centred: Rows = logs - logs.mean()
    return centred


def _layout_rows(graph: ConfiguredGraph) -> Rows:
    """(C, 36): mean and deviation over configurable nodes of the 18 values of a layout."""
    parts = []
    for first in range(0, graph.configurations, _CHUNK):
        layouts = graph.features(graph.codes[first : first + _CHUNK])
        parts.append(np.concatenate([layouts.mean(axis=1), layouts.std(axis=1)], axis=1))
    return np.concatenate(parts).astype(np.float64)


def _summary(graph: ConfiguredGraph) -> Rows:
    """(F,) of the graph alone: sizes as logarithms, opcodes as counts."""
    opcode, node = np.asarray(graph.arrays["node_opcode"]), np.asarray(graph.arrays["node_feat"], np.float64)
    result, given, reduced = _sizes(graph)
    kinds = [np.log2(1 + (opcode == OPCODES[name]).sum()) for name in _KINDS]
    wide = node[:, [9, 13, 16]].sum()  # nodes of 32-bit integers, of 32-bit floats, of 64-bit floats
    narrow = node[:, [12, 15]].sum()
    dimensions = np.log2(1 + _result_row(graph)[21:27])
    sizes = np.log2([result, given, reduced, len(opcode)])
    described: Rows = np.concatenate([sizes, dimensions, kinds, np.log2([1 + wide, 1 + narrow])])
    return described


def _result_row(graph: ConfiguredGraph) -> NDArray[Any]:
    """(140,) the features of the last root: that of the entry computation."""
    node = graph.arrays["node_feat"]
    roots = np.flatnonzero(node[:, 0])
    row: NDArray[Any] = np.asarray(node[roots[-1] if len(roots) else -1])
    return row


def _sizes(graph: ConfiguredGraph) -> tuple[float, float, float]:
    """Elements of the result, of all parameters of rank above 0, and of the dimension that is reduced."""
    node = np.asarray(graph.arrays["node_feat"], np.float64)
    result = max(float(_result_row(graph)[28]), 1.0)
    arguments = node[(graph.arrays["node_opcode"] == OPCODES["parameter"]) & (node[:, 21] > 0), 28]
    given = max(float(arguments.sum()), 1.0)
    largest = np.sort(arguments)[::-1][:2]
    # Of a product (m, k) × (k, n) → (m, n): k² = mk · kn / mn; of a reduction what is given per result.
    product = float(np.sqrt(largest.prod() / result)) if len(largest) == 2 else given / result
    return result, given, max(product, 1.0)


def _launch_rows(tile: Rows, graph: ConfiguredGraph) -> Rows:
    """(C, F) of kernel bounds that stand for warps, stages, grouping and splitting."""
    warps, stages, _, split = (np.maximum(tile[:, place], 1) for place in range(4))
    rows, columns = np.maximum(tile[:, 8], 1), np.maximum(tile[:, 9], 1)
    reduced = np.maximum(tile[:, 16], 1)
    result, _, depth = _sizes(graph)
    elements = rows * columns
    found = [
        np.log2(warps), np.log2(stages), np.log2(split), np.log2(rows), np.log2(columns),
        np.log2(reduced), np.log2(elements), np.log2(elements / (32 * warps)),
        np.log2((rows + columns) * reduced * stages), np.log2(elements / (rows + columns)),
        np.log2(np.maximum(result / elements * split, 0.01)), np.log2(rows / columns),
        np.log2(np.maximum(depth / (reduced * split), 0.01)), np.log2(columns / (32 * warps)),
    ]  # fmt: skip
    # How many tiles lie along the last dimension and along the others, and what the last of them wastes.
    result_first, result_last = _extent(_result_row(graph))
    first, last = _extent(_largest_argument(graph))
    for size, bound in (
        (result_first, rows), (result_last, columns), (result_last, rows),
        (first, rows), (last, columns), (last, rows), (last, reduced),
    ):  # fmt: skip
        tiles = size / bound
        found += [np.log2(tiles), np.ceil(tiles) / tiles]
    held = elements * reduced
    return np.stack([*found, np.log2(held), np.log2(held / (32 * warps))], axis=1)


def _extent(row: NDArray[Any]) -> tuple[float, float]:
    """Of a node's shape: the product of all dimensions but the last, and the last."""
    dimensions = [float(size) for size in row[21:27] if size > 0]
    if not dimensions:
        return 1.0, 1.0
    return float(np.prod(dimensions[:-1])), dimensions[-1]


def _largest_argument(graph: ConfiguredGraph) -> NDArray[Any]:
    """(140,) the features of the largest parameter, or of the first node where there is none."""
    node = np.asarray(graph.arrays["node_feat"])
    arguments = np.flatnonzero(np.asarray(graph.arrays["node_opcode"]) == OPCODES["parameter"])
    row: NDArray[Any] = node[arguments[int(np.argmax(node[arguments, 28]))] if len(arguments) else 0]
    return row


def _compiled_rows(tile: Rows, graph: ConfiguredGraph, gpu: Multiprocessors) -> Rows:
    """(C, F) of registers, spills, shared memory and programs, and how many programs run at once by them."""
    lacking = [name for name in _COMPILED if f"compiled_{name}" not in graph.arrays]
    if lacking:
        raise InvalidSetting(
            f"{graph.name} does not say its compiled {lacking[0]}; set features = 'launch', "
            "or read it from the file that `python -m reproduction collect measure` wrote"
        )
    known = {name: np.asarray(graph.arrays[f"compiled_{name}"], np.float64) for name in _COMPILED}
    warps = np.maximum(tile[:, 0], 1)
    registers = np.maximum(known["registers"], 16) * 32 * warps
    at_once = np.floor(
        np.minimum.reduce(
            [
                gpu.registers / registers, gpu.shared_bytes / (known["shared_bytes"] + 1024),
                gpu.warps / warps, np.full(len(warps), float(gpu.programs)),
            ]
        )
    )  # fmt: skip
    at_once = np.maximum(at_once, 1)
    waves = known["programs"] / (gpu.count * at_once)
    result, given, depth = _sizes(graph)
    # What a program that runs with others moves and computes, in terms of the whole.
    inside = np.minimum(known["programs"], gpu.count * at_once)
    return np.stack(
        [
            np.log2(known["registers"] + 1), np.log2(known["spills"] + 1),
            np.log2(known["shared_bytes"] + 1), np.log2(known["programs"]), at_once, at_once * warps,
            np.log2(waves), np.ceil(waves) / waves, np.log2(inside * warps),
            np.log2((result + given) / known["programs"]),
            np.log2(np.maximum(depth, 1) * result / known["programs"]),
            np.log2(np.ceil(waves) * at_once),
        ],
        axis=1,
    )  # fmt: skip
