"""The raw protocol buffers of TpuGraphs (tuning.proto): a module and what was measured of it.

C configurations, M configurable nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.data.published.tpugraphs import (
    LAYOUT_FEATURES,
    TILE_FEATURES,
    LayoutFile,
    TensorGraph,
    TileFile,
)
from apportion.errors import MalformedInput, UnreadableFile
from apportion.program import wire
from apportion.program.hlo.module import graph_of_hlo


@dataclass(frozen=True, eq=False)
class TuningData:
    """What was measured of one module, as the raw protocol buffers have it; failed runs are left out."""

    name: str
    module: bytes
    "A serialized HloModuleProto."
    config_runtime: NDArray[np.int64]  # (C,) nanoseconds
    config_runtime_normalizers: NDArray[np.int64]  # (C,)
    features: NDArray[np.float32]
    "(C, M, 18) of layouts or (C, 24) of tiles, as in the NPZ files."
    node_config_ids: NDArray[np.int64]  # (M,), none for tiles
    failed: int
    "How many configurations did not run."


def as_file(data: TuningData) -> LayoutFile | TileFile:
    """What was measured as the published NPZ file has it, its graph made from the module."""
    hlo = graph_of_hlo(data.module, name=data.name)
    graph = TensorGraph(hlo.node_opcode, hlo.node_feat, hlo.edge_index, hlo.node_splits)
    if data.features.ndim == 3:
        return LayoutFile(graph, data.node_config_ids, data.config_runtime, data.features)
    return TileFile(graph, data.features, data.config_runtime, data.config_runtime_normalizers)


def read_module_tuning_data(path: Path) -> TuningData:
    """A raw layout file: one ModuleTuningData."""
    try:
        return _tuning_data(_bytes(path))
    except (ValueError, OverflowError, TypeError) as error:
        raise _raw_error(path, error) from error


def read_op_tuning_data(path: Path) -> list[TuningData]:
    """A raw tile file: the kernels of one program."""
    try:
        parts = [value for number, value in wire.fields(_bytes(path)) if number == 1]
        return [_tuning_data(part) for part in parts if isinstance(part, bytes)]
    except (ValueError, OverflowError, TypeError) as error:
        raise _raw_error(path, error) from error


def _tuning_data(data: bytes) -> TuningData:
    module, ids, runs = b"", b"", []
    for number, value in wire.fields(data):
        if number == 1 and isinstance(value, bytes):
            module = value
        elif number == 3 and isinstance(value, bytes):
            runs.append(dict(wire.fields(value)))
        elif number == 4 and isinstance(value, bytes):
            ids = value
    name = dict(wire.fields(module)).get(1, b"")
    times, normalizer, rows = [], 0, []
    for run in runs:
        profile = _inner(run, 4)
        nanoseconds = profile.get(4, 0)
        if run.get(3) or not isinstance(nanoseconds, int) or not nanoseconds:
            continue
        times.append(nanoseconds)
        if run.get(5):
            normalizer = nanoseconds
        module_config = _inner(run, 2).get(1)
        rows.append(_layouts(module_config) if isinstance(module_config, bytes) else _tile(_inner(run, 1)))
    if not rows:
        raise MalformedInput("no run of it succeeded, or it is no tuning data")
    if len({row.shape for row in rows}) > 1:
        raise MalformedInput("its runs configure different numbers of nodes")
    return TuningData(
        name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else "",
        module, np.array(times, np.int64), np.full(len(times), normalizer, np.int64), np.stack(rows),
        np.array(wire.varints(ids), np.int64), len(runs) - len(times),
    )  # fmt: skip


def _layouts(data: bytes) -> NDArray[np.float32]:
    """(M, 18): up to three tensors of each node, six dimensions each, minor to major, padded with -1."""
    nodes = [node for _, node in wire.fields(data) if isinstance(node, bytes)]
    rows = np.full((len(nodes), 3, 6), -1, np.float32)
    for row, node in zip(rows, nodes, strict=True):
        tensors = [
            dict(wire.fields(tensor)).get(1, b"")
            for _, tensor in wire.fields(node)
            if isinstance(tensor, bytes)
        ]
        for place, dimensions in enumerate(tensors[:3]):
            order = wire.varints(dimensions)[:6] if isinstance(dimensions, bytes) else [dimensions]
            row[place, : len(order)] = order
    return rows.reshape(len(nodes), LAYOUT_FEATURES)


def _tile(config: Mapping[int, int | bytes]) -> NDArray[np.float32]:
    """(24,): for kernel, output and input the bounds of six dimensions, their sum and their product."""
    bounds = _inner(config, 1)
    row = np.zeros((3, 8), np.float32)
    for place in range(3):
        packed = bounds.get(place + 1, b"")
        sizes = wire.varints(packed) if isinstance(packed, bytes) else [packed]
        row[place, : len(sizes[:6])] = sizes[:6]
        # The product of no bounds is 0 here, though it is 1 among the features of nodes.
        row[place, 6:] = (sum(sizes), np.prod(sizes, dtype=np.float64)) if sizes else (0, 0)
    return row.reshape(TILE_FEATURES)


def _inner(fields: Mapping[int, int | bytes], number: int) -> dict[int, int | bytes]:
    value = fields.get(number, b"")
    return dict(wire.fields(value)) if isinstance(value, bytes) else {}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error


def _raw_error(path: Path, error: Exception) -> MalformedInput:
    message = error.message if isinstance(error, MalformedInput) else str(error)
    return MalformedInput(f"This is no tuning data, or it was cut short: {message}", file=str(path))
