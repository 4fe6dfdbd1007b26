"""The ProGraML family: node embedding, T steps of gated messages, gated readout, by a table of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apportion.data.batch import FLOWS, Batch
from apportion.errors import InvalidSetting
from apportion.model.layers import GatedMessages, GatedReadout, NodeEmbedding
from apportion.model.network import NetworkModel
from apportion.model.propagation import Edges
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
    labels: Tensor | None  # (N,)


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


def node_inputs(batch: Batch, device: torch.device, *, gradients: bool, dilution: float = 1.0) -> NodeInputs:
    """What a node network reads of a batch, on a device; see `Edges.of`."""
    text = torch.from_numpy(batch.text)
    root = torch.from_numpy(batch.root)
    labels = None if batch.labels is None else torch.from_numpy(batch.labels)
    if device.type == "cuda":
        text, root = text.pin_memory(), root.pin_memory()
        labels = None if labels is None else labels.pin_memory()
    selected = torch.zeros(batch.nodes, dtype=torch.int64, device=device)
    selected[root.to(device, non_blocking=True)] = 1
    return NodeInputs(
        text.to(device, non_blocking=True),
        selected,
        Edges.of(batch, device, gradients=gradients, dilution=dilution),
        None if labels is None else labels.to(device, non_blocking=True).long(),
    )
