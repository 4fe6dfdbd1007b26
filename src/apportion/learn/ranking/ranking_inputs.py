"""What the ranking network reads of a graph: the arrays and sums that its settings ask for.

Letters for shapes: N nodes, C configurations, M configurable nodes, K options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting
from apportion.learn.ranking.ranking_settings import RankingSettings
from apportion.learn.ranking.reached_nodes import (
    ReachedNodes,
    Selection,
    SenderSums,
    configurable_of,
    logarithmic,
)


@dataclass(frozen=True, eq=False)
class Sum:
    """Weighted sums over rows, and the same turned round for the gradient, on a device."""

    forth: tuple[Tensor, Tensor, Tensor]
    back: tuple[Tensor, Tensor, Tensor]

    @classmethod
    def of(cls, messages: SenderSums, device: torch.device) -> Sum:
        """The sums of these messages."""

        def tensors(one: SenderSums) -> tuple[Tensor, Tensor, Tensor]:
            arrays = (one.start, one.sender, one.weight)
            start, sender, weight = (torch.from_numpy(array).to(device) for array in arrays)
            return start, sender, weight

        return cls(tensors(messages), tensors(messages.transposed()))

    def __call__(self, rows: Tensor) -> Tensor:
        """(R, …) of the senders' rows (S, …)."""
        flat: Tensor = _Summed.apply(rows.flatten(1), self)  # type: ignore[no-untyped-call]
        return flat.view(-1, *rows.shape[1:])


class _Summed(torch.autograd.Function):
    """A gather and a sum in one pass; the gradient is the same over the edges turned round."""

    @staticmethod
    def forward(context: Any, rows: Tensor, sums: Sum) -> Tensor:
        context.sums = sums
        return _summed(rows, sums.forth)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _summed(gradients[0].contiguous(), context.sums.back), None


def _summed(rows: Tensor, messages: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    start, sender, weight = messages
    if not len(rows) or len(start) == 1:
        return rows.new_zeros(len(start) - 1, rows.shape[1])
    return F.embedding_bag(
        sender, rows, start, mode="sum", per_sample_weights=weight, include_last_offset=True
    )


@dataclass(frozen=True, eq=False)
class LayerSums:
    """The messages of one layer."""

    senders: int
    "Moving rows before it."
    receivers: int
    "Moving rows after it."
    moving: Sum
    "From moving rows to moving rows."
    onto: Sum
    "From still rows to moving rows."
    whole: Sum
    "From all rows to all: the graph without a configuration."


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """What the network reads of a graph, in the order of `ReachedNodes`."""

    opcode: Tensor  # (N,)
    features: Tensor  # (N, 140) with logarithms of magnitudes
    options: Tensor  # (K, 18) layouts or (K, 24) logarithms of tiles
    option_node: Tensor  # (K,): the row of the node that an option is of; tiles have none
    option_first: NDArray[np.int64]  # (M',): the first option of each configurable node looked at
    columns: NDArray[np.int64]  # (M',): its column in the codes
    layers: tuple[LayerSums, ...]

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.opcode)

    @property
    def nbytes(self) -> int:
        """What it takes on its device."""
        tensors = [self.opcode, self.features, self.options, self.option_node]
        for layer in self.layers:
            for sums in (layer.moving, layer.onto, layer.whole):
                tensors += [*sums.forth, *sums.back]
        return sum(tensor.nbytes for tensor in tensors)

    def rows_of(self, codes: NDArray[Any]) -> Tensor:
        """(C, M') options of configurations, of codes (C, M) as they are stored."""
        rows = codes[:, self.columns].astype(np.int64) + self.option_first
        return torch.from_numpy(rows).to(self.opcode.device)


def inputs_of(
    stored: ConfiguredGraph, chosen: Selection, settings: RankingSettings, device: torch.device
) -> GraphInputs:
    """The part of a graph that was chosen, on a device.

    Raises:
        InvalidSetting: its configurations are not of the kind that the network was made for.
    """
    tile = settings.configurations == "tile"
    if tile != ("node_config_ids" not in stored.arrays):
        raise InvalidSetting(
            f"{stored.name} is of {stored.collection}, but the network reads {settings.configurations}s: "
            f"set configurations = {'layout' if tile else 'tile'!r}"
        )
    reach = ReachedNodes.of(
        len(chosen.nodes), chosen.edges, chosen.configurable, layers=settings.layers,
        relations="each" if settings.convolution == "sage" else "both",
    )  # fmt: skip
    nodes = chosen.nodes[reach.order]
    offsets = stored.arrays["option_offset"]
    columns = np.zeros(1, np.int64) if tile else chosen.columns
    counts = offsets[columns + 1] - offsets[columns]
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    rows = np.repeat(offsets[columns] - first, counts) + np.arange(counts.sum())
    options = np.asarray(stored.arrays["options"][rows], np.float32)
    owner = np.zeros(0, np.int64) if tile else np.repeat(np.arange(len(columns)), counts)
    arrays = (
        stored.arrays["node_opcode"][nodes].astype(np.int64),
        logarithmic(stored.arrays["node_feat"][nodes]),
        logarithmic(options) if tile else options,
        owner,
    )
    opcode, features, table, option_node = (torch.from_numpy(array).to(device) for array in arrays)
    layers = tuple(_layer_sums(reach, layer, settings, device) for layer in range(settings.layers))
    return GraphInputs(opcode, features, table, option_node, first, columns, layers)


def whole_graph(stored: ConfiguredGraph) -> Selection:
    """Every node and edge."""
    configurable = configurable_of(stored)
    return Selection(
        np.arange(stored.graph.nodes), stored.graph.edge_index, configurable, np.arange(len(configurable))
    )


def _layer_sums(
    reach: ReachedNodes, layer: int, settings: RankingSettings, device: torch.device
) -> LayerSums:
    nodes = len(reach.order)
    before = nodes if settings.everywhere and layer else reach.reached[layer]
    senders = nodes if settings.attention == "nodes" and reach.reached[0] else before
    receivers = nodes if settings.everywhere and reach.reached[0] else reach.reached[layer + 1]

    def sums(receivers: int, first: int, last: int) -> Sum:
        blocks = [relation.block(receivers, first, last) for relation in reach.relations]
        return Sum.of(SenderSums.stacked(blocks), device)

    return LayerSums(
        senders, receivers,
        sums(receivers, 0, senders), sums(receivers, senders, nodes), sums(nodes, 0, nodes),
    )  # fmt: skip
