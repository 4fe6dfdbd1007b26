"""The ProGraML family: node embedding, T steps of gated messages, gated readout, by a table of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.data.batch import FLOWS, Batch
from apportion.errors import InvalidSetting
from apportion.model.frames import FilledFrame
from apportion.model.layers import GatedMessages, GatedReadout, NodeEmbedding, operations_for
from apportion.model.network import NetworkModel
from apportion.model.propagation import Edges, TorchOperations, edge_arrays, tensor_on
from apportion.settings import convert


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
    labels: Tensor | None  # (N,), IGNORED where a frame has no node


class NodeNetwork(nn.Module):
    """Scores for every node, asked from the roots."""

    def __init__(self, texts: int, outputs: int, settings: ProgramlSettings) -> None:
        super().__init__()
        self.steps, self.dilution = settings.steps, settings.dilution
        hidden = settings.width + 2
        self.embedding = NodeEmbedding(texts, settings.width, settings.selector)
        self.messages = GatedMessages(hidden, 2 * settings.flows, unplaced=2)
        self.readout = GatedReadout(hidden, outputs)

    def forward(self, inputs: NodeInputs) -> Tensor:
        """(N, C)."""
        initial: Tensor = self.embedding(inputs.text, inputs.selected)
        final = self.messages(initial, inputs.edges, steps=self.steps)
        scores: Tensor = self.readout(initial, final)
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
    def framed(self) -> bool:
        # Plain torch keeps what it derives from the edges, which a frame changes under it.
        return self.device.type == "cuda" and not isinstance(operations_for(self.device), TorchOperations)

    def framed_inputs(self, frame: FilledFrame, kinds: int) -> NodeInputs:
        return framed_node_inputs(frame, kinds)


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


def framed_node_inputs(frame: FilledFrame, kinds: int) -> NodeInputs:
    """What a node network reads of whatever is in a frame."""
    tensors = frame.tensors
    edges = Edges.of_tensors(frame.frame.nodes, kinds, tensors)
    return NodeInputs(tensors["text"], tensors["selected"], edges, tensors.get("labels"))
