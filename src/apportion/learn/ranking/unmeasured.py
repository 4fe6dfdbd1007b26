"""A program with configurations that nobody measured, as rankers see it.

C configurations, M configurable nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.configurations import ConfiguredGraph
from apportion.data.packing import OptionTable
from apportion.data.published.tpugraphs import LAYOUT_FEATURES, TensorGraph
from apportion.program.hlo.layouts import Orders
from apportion.program.hlo.module import HloGraph

TILES, LAYOUTS = "tile", "layout"
"What the name of a collection begins with."
_DIMENSIONS = LAYOUT_FEATURES // 3


def tiled(name: str, graph: HloGraph | TensorGraph, features: NDArray[np.float32]) -> ConfiguredGraph:
    """A kernel with its tiles.

    Args:
        features: (C, 24) as `recorded_runs.tile_features` has them.
    """
    return _configured(name, f"{TILES}:own", graph, features[:, None], {})


def laid_out(
    name: str, graph: HloGraph | TensorGraph, nodes: NDArray[np.int64], features: NDArray[np.float32]
) -> ConfiguredGraph:
    """A program with its layouts.

    Args:
        nodes: (M,) which nodes of the graph have layouts.
        features: (C, M, 18) as `layout_features` has them.
    """
    return _configured(name, f"{LAYOUTS}:own", graph, features, {"node_config_ids": nodes})


def layout_features(orders: Sequence[Orders]) -> NDArray[np.float32]:
    """(M, 18): result, first and second operand of each node, minor to major, padded with -1."""
    features = np.full((len(orders), LAYOUT_FEATURES), -1, np.float32)
    for node, triple in enumerate(orders):
        for place, order in enumerate(triple):
            if order is not None:
                features[node, place * _DIMENSIONS : place * _DIMENSIONS + len(order)] = order[::-1]
    return features


def _configured(
    name: str,
    collection: str,
    graph: HloGraph | TensorGraph,
    features: NDArray[np.float32],
    more: dict[str, NDArray[Any]],
) -> ConfiguredGraph:
    table = OptionTable(features.shape[1])
    arrays: dict[str, NDArray[Any]] = {
        "node_opcode": graph.node_opcode, "node_feat": graph.node_feat, "edge_index": graph.edge_index,
        "node_splits": graph.node_splits, "config_runtime": np.zeros(len(features), np.int64),
        "codes": table.codes(features), **table.arrays(features.shape[2]), **more,
    }  # fmt: skip
    return ConfiguredGraph(name, collection, "test", arrays)
