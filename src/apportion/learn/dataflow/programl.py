"""The ProGraML family: node embedding, T steps of gated messages, gated readout, by a table of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.data.batch import FLOWS, Batch, Batches
from apportion.errors import InvalidSetting
from apportion.learn.dataflow.network import NetworkModel
from apportion.learn.nn.cuda_buffers import GraphBuffers
from apportion.learn.nn.layers import GatedMessages, GatedReadout, NodeEmbedding, operations_for
from apportion.learn.nn.propagation import Edges, TorchOperations, edge_arrays, tensor_on
from apportion.settings import convert

OFFSET = "offset"
"What is added to every node's scores."
DISCOUNT = "discount"
"1 where what would be said of a node without any root is taken off what is said of it with one, 0 where not."
# Weights that were written before there were these have none.


@dataclass(frozen=True)
class ProgramlSettings:
    """Sizes of the network; as they stand, those of the data-flow experiments (thesis, Figure 4.3)."""

    width: int = 32
    "Numbers in a node text's embedding."
    selector: float = 50.0
    "What marks the root in the two numbers that follow."
    steps: int = 30
    "T."
    flows: int = FLOWS
    dilution: float = 1.0
    "Messages are summed and divided by their number to this power: 1 is the mean of the thesis, 0 the sum."

    def __post_init__(self) -> None:
        for name in ("width", "steps", "flows"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.dilution <= 1:
            raise InvalidSetting(f"dilution must be from 0 to 1, not {self.dilution}")


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """A batch on a device."""

    text: Tensor  # (N,)
    selected: Tensor  # (N,) 1 for a root
    edges: Edges
    labels: Tensor | None  # (N,), IGNORED where buffers have no node


class NodeNetwork(nn.Module):
    """Scores for every node, asked from the roots."""

    def __init__(self, texts: int, outputs: int, settings: ProgramlSettings) -> None:
        super().__init__()
        self.steps, self.dilution = settings.steps, settings.dilution
        hidden = settings.width + 2
        self.embedding = NodeEmbedding(texts, settings.width, settings.selector)
        self.messages = GatedMessages(hidden, 2 * settings.flows, unplaced=2)
        self.readout = GatedReadout(hidden, outputs)
        # Not learnt but chosen, after training: see `Programl.settle`.
        self.register_buffer(OFFSET, torch.zeros(outputs))
        self.register_buffer(DISCOUNT, torch.zeros(()))

    def forward(self, inputs: NodeInputs) -> Tensor:
        """(N, C)."""
        initial: Tensor = self.embedding(inputs.text, inputs.selected)
        final = self.messages(initial, inputs.edges, steps=self.steps)
        scores: Tensor = self.readout(initial, final) + self.offset
        return scores


class Programl(NetworkModel):
    """A ProGraML network that answers for every node."""

    name = "programl"

    @staticmethod
    def network_of(texts: int, outputs: int, hyperparameters: Mapping[str, Any]) -> NodeNetwork:
        settings = convert(ProgramlSettings, dict(hyperparameters), source="hyperparameters")
        return NodeNetwork(texts, outputs, settings)

    def inputs_of(self, batch: Batch, *, gradients: bool) -> NodeInputs:
        assert isinstance(self.network, NodeNetwork)
        return node_inputs(batch, self.device, gradients=gradients, dilution=self.network.dilution)

    def arrays_of(self, batch: Batch, *, gradients: bool) -> dict[str, NDArray[Any]]:
        assert isinstance(self.network, NodeNetwork)
        return node_arrays(batch, gradients=gradients, dilution=self.network.dilution)

    @property
    def buffered(self) -> bool:
        # Plain torch keeps what it derives from the edges, which the next batch changes under it.
        return self.device.type == "cuda" and not isinstance(operations_for(self.device), TorchOperations)

    def buffered_inputs(self, buffers: GraphBuffers, kinds: int) -> NodeInputs:
        return buffered_node_inputs(buffers, kinds)

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        scores = super().predict(batch)
        if self.network.get_buffer(DISCOUNT):
            scores[:, 1] -= self._unasked(batch)
        return scores

    def _unasked(self, batch: Batch) -> NDArray[np.float32]:
        """(N,): by how much each node would be labelled if no root were marked, from 0.

        Every label is an answer about a root. Where a graph is like none that was learnt from (a merge of
        three thousand branches), a network may label nodes whatever it is asked.
        """
        kept, places = np.unique(batch.first_alike(), return_inverse=True)
        few = batch.part(kept)
        scores = super().predict(replace(few, root=few.root[:0]))
        scores -= self.network.get_buffer(OFFSET).cpu().numpy()
        margins = np.split(np.maximum(scores[:, 1] - scores[:, 0], 0), few.graph_start[1:-1])
        return np.concatenate([margins[place] for place in places])

    def settle(self, validation: Batches) -> dict[str, float]:
        """Choose by how much a node's second score must be above its first to be labelled, and whether what
        it would be without a root is taken off.

        Labels are few, and the loss that is trained with counts nodes, not what F1 counts: where the two
        scores are about equal on thousands of nodes, a hair decides an F1 by hundredths.
        """
        if self.task.outputs != 2 or self.task.best != "f1":
            return {}
        offset, discount = self.network.get_buffer(OFFSET), self.network.get_buffer(DISCOUNT)
        offset.zero_()
        discount.zero_()
        true, plain = self.answers(validation)
        discounted = plain.copy()
        discounted[:, 1] -= np.concatenate([self._unasked(batch) for batch in validation])
        margins = [best_margin(scores[:, 1] - scores[:, 0], true) for scores in (plain, discounted)]
        settled = [
            self.metrics(true, scores - np.array([0, margin], np.float32))
            for scores, margin in zip((plain, discounted), margins, strict=True)
        ]
        chosen = int(settled[1]["f1"] > settled[0]["f1"])
        discount.fill_(chosen)
        offset[1] = -margins[chosen]
        return settled[chosen] if chosen or margins[0] else {}

    def _load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        none = {OFFSET: np.zeros(self.task.outputs, np.float32), DISCOUNT: np.zeros((), np.float32)}
        super()._load({**none, **arrays})


def best_margin(margins: NDArray[np.float32], labels: NDArray[Any]) -> float:
    """The margin above which what is labelled scores the highest F1; 0 where that is as good.

    Args:
        margins: (N,) by how much each node's second score is above its first.
        labels: (N,) 1 where it should be.
    """
    order = np.argsort(-margins, kind="stable")
    margin, right = margins[order].astype(np.float64), np.cumsum(labels[order] == 1)
    f1 = 2 * right / (np.arange(1, len(right) + 1) + max(1, int(right[-1])))
    above = int(np.sum(margin > 0))
    now = f1[above - 1] if above else 0.0
    # Only between two margins that differ can a bound be drawn.
    f1[:-1][margin[:-1] == margin[1:]] = -1.0
    at = int(np.argmax(f1))
    if f1[at] <= now:
        return 0.0
    below = margin[at + 1] if at + 1 < len(margin) else margin[at] - 1.0
    return float((margin[at] + below) / 2)


def node_inputs(batch: Batch, device: torch.device, *, gradients: bool, dilution: float = 1.0) -> NodeInputs:
    """What a node network reads of a batch, on a device; see `edge_arrays`."""
    arrays = node_arrays(batch, gradients=gradients, dilution=dilution)
    tensors = {name: tensor_on(device, values) for name, values in arrays.items()}
    labels = tensors.get("labels")
    return NodeInputs(
        tensors["text"],
        tensors["selected"],
        Edges.of_tensors(batch.nodes, batch.kinds, tensors),
        None if labels is None else labels.long(),
    )


def node_arrays(batch: Batch, *, gradients: bool, dilution: float = 1.0) -> dict[str, NDArray[Any]]:
    """The same, still on the host: arrays of 32 bits by name."""
    selected = np.zeros(batch.nodes, np.int32)
    selected[batch.root] = 1
    arrays = {"text": batch.text, "selected": selected}
    if batch.labels is not None:
        arrays["labels"] = batch.labels.astype(np.int32)
    return arrays | edge_arrays(batch, gradients=gradients, dilution=dilution)


def buffered_node_inputs(buffers: GraphBuffers, kinds: int) -> NodeInputs:
    """What a node network reads of the batch in a CUDA graph's buffers."""
    tensors = buffers.tensors
    edges = Edges.of_tensors(buffers.sizes.nodes, kinds, tensors)
    return NodeInputs(tensors["text"], tensors["selected"], edges, tensors.get("labels"))
