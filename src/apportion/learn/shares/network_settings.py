"""What networks of kernels are made from, without torch: settings, rows, and what a fit gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.batch import FLOWS
from apportion.errors import InvalidSetting
from apportion.learn.shares.colours import GraphSet, Sharing

Floats = NDArray[np.float32]
LAYERS = 2
"Layers that take turns: even steps use the first, odd steps the second."
CLUSTERS = 512
"Clusters of differentiable pooling, as published."
KEPT = 0.8
"The part of the nodes that each round of TopK pooling keeps."


@dataclass(frozen=True)
class KernelNetworkSettings:
    """One row of the ablation; as it stands, the model that the thesis chose (Figure 5.4)."""

    layers: Literal["none", "convolution", "attention", "messages"] = "messages"
    pooling: Literal["gated-sum", "mean", "skips", "top-k", "clusters", "learned-clusters"] = "skips"
    readout: Literal["plain", "extended"] = "extended"
    hidden: int = 64
    steps: int = 6
    "T."
    dropout: float = 0.3
    "Of messages, gates, states and the readout."
    message_dropout: float = -1.0
    "Of messages, gates and states alone; below 0, as `dropout` says."
    pooling_dropout: float = 0.2
    "Of the gated sum."
    readout_hidden: int = 192
    both_ways: bool = False
    "Messages go against the edges too, by maps of their own."

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "readout_hidden"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("dropout", "message_dropout", "pooling_dropout"):
            if getattr(self, name) >= 1:
                raise InvalidSetting(f"{name} must lie below 1, not {getattr(self, name)}")
        if self.layers != "messages" and self.pooling != "mean":
            raise InvalidSetting(f"The pooling {self.pooling!r} goes with the layers 'messages' alone")
        if self.both_ways and self.layers != "messages":
            raise InvalidSetting("both_ways goes with the layers 'messages' alone")

    @property
    def flows(self) -> int:
        """Kinds of edges that have a map of their own."""
        return 2 * FLOWS if self.both_ways else FLOWS

    @property
    def states_dropout(self) -> float:
        """What messages, gates and states lose."""
        return self.dropout if self.message_dropout < 0 else self.message_dropout


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Kernels with their inputs and what is asked about them."""

    graphs: GraphSet
    graph: NDArray[np.int64]  # (R,) the graph of each row
    inputs: Floats  # (R, I): logarithms of work-group size and bytes moved, then what else is known
    labels: Floats  # (R,) a number, or the number of a class
    classes: int = 0
    "0 when numbers are asked for."

    @property
    def outputs(self) -> int:
        """Scores of a row."""
        return self.classes or 1

    @property
    def pooled(self) -> int:
        """What the gated sum pools to: as published, the classes, or as many numbers as there are labels."""
        return self.classes or len(np.unique(self.labels))


@dataclass(frozen=True)
class Fitting:
    """How the networks are fitted."""

    epochs: int = 300
    batch: int = 256
    learning_rate: float = 1e-3
    validate_every: int = 5
    "Epochs between two looks at the validation rows."
    prepared: int = 12
    "Batches that are prepared, of two shufflings at least; an epoch takes one shuffling, in any order."
    sharing: Sharing = "colours"
    precision: str = "tf32"
    "Matrix products on a GPU: `full`, or `tf32`."

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "validate_every", "prepared"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a stack of networks said of every row, at the epochs that were looked at; the last is the end."""

    epochs: NDArray[np.int64]  # (K,)
    scores: Floats  # (K, M, R, outputs)
    losses: Floats  # (K, M) mean loss of the training batches since the last look
    steps: int
    seconds: float
