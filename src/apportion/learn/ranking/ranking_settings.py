"""RankingSettings: which network scores configurations, said without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from apportion.data.published.tpugraphs import LAYOUT_FEATURES, TILE_FEATURES
from apportion.errors import InvalidSetting

SLOPE = 0.2
"Of leaky ReLUs below zero."
LAYOUT_VALUES = 8
"A layout names dimensions −1 (none) to 5; whatever is larger shares a vector."
SPREAD = 1e-5
"Added to the variance that states are normalised by."


@dataclass(frozen=True)
class RankingSettings:
    """Which network. The defaults are the first model of *TPU runtime prediction using GNNs*;
    `attention = "nodes"` makes its second."""

    configurations: Literal["layout", "tile"] = "layout"
    "Whether a configuration gives options to nodes, or one tile to the whole graph."
    width: int = 32
    "D."
    opcode_width: int = 16
    layers: int = 2
    convolution: Literal["mean", "sage"] = "mean"
    "The mean of a node and all its neighbours, or maps of their own for itself, producers and consumers."
    residual: Literal["append", "add"] = "append"
    "What a layer's result does to the state that it came from."
    attention: Literal["none", "nodes"] = "none"
    "Self-attention among all nodes before each convolution. It costs N² and makes every node depend on all."
    norm: Literal["none", "graph", "instance"] = "none"
    "Convolutions normalised by mean and deviation over nodes: of the graph without a configuration, or of \
each configuration for itself, which makes every node depend on all."
    layout_embedding: bool = False
    "A learned vector for each value of a layout instead of the value as a number."
    cross_configuration: bool = False
    "Weigh each channel by its softmax over the configurations scored together."
    hops: int = 0
    "Look only at nodes so many steps from a configurable one; 0 for all."

    def __post_init__(self) -> None:
        for name in ("width", "opcode_width", "layers"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.hops < 0:
            raise InvalidSetting(f"hops must not be negative, not {self.hops}")

    @property
    def everywhere(self) -> bool:
        """Whether a configuration changes every node however far it is."""
        return self.attention == "nodes" or self.norm == "instance"

    @property
    def option_features(self) -> int:
        """How many numbers describe an option."""
        return LAYOUT_FEATURES if self.configurations == "layout" else TILE_FEATURES
