"""NetworkScores: what a ranking network says of a graph's configurations, by NumPy.

The plain way: all nodes, for each configuration. Training and large stores go the shorter way of
`ranking_network`, which needs torch; both say the same.

Letters for shapes: N nodes, C configurations, M configurable nodes, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import read_artifact
from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting, MalformedInput, MissingPackage
from apportion.learn.ranking.ranker import Ranker, load_ranker
from apportion.learn.ranking.ranking_settings import LAYOUT_VALUES, SLOPE, SPREAD, RankingSettings
from apportion.learn.ranking.reached_nodes import (
    ReachedNodes,
    SenderSums,
    configurable_of,
    logarithmic,
    select,
)
from apportion.settings import convert

Floats = NDArray[np.float32]
Moments = tuple[Floats, Floats]
"Mean and deviation (…, 1, D) over nodes."
HELD_FLOATS = 1 << 24
"The most numbers of one layer's states that are held at once."


@dataclass(frozen=True, eq=False)
class NetworkScores:
    """A trained ranking network that only answers."""

    name: ClassVar[str] = "network"
    "Its entry of `apportion.learn.rankers`, which also trains it."

    settings: RankingSettings
    together: int
    "Configurations scored together; it matters only where they attend to each other."
    weights: Mapping[str, NDArray[Any]]

    def scores(self, graph: ConfiguredGraph) -> Floats:
        """(C,) of all configurations of a graph, low for fast.

        Raises:
            InvalidSetting: its configurations are not of the kind that the network was made for.
        """
        settings, count = self.settings, graph.configurations
        tile = settings.configurations == "tile"
        if tile != ("node_config_ids" not in graph.arrays):
            raise InvalidSetting(
                f"{graph.name} is of {graph.collection}, but the network reads {settings.configurations}s"
            )
        chosen = select(graph.graph, configurable_of(graph), hops=settings.hops)
        reach = ReachedNodes.of(
            len(chosen.nodes), chosen.edges, chosen.configurable, layers=settings.layers,
            relations="each" if settings.convolution == "sage" else "both",
        )  # fmt: skip
        nodes = chosen.nodes[reach.order]
        base = self._described(graph.arrays["node_opcode"][nodes], graph.arrays["node_feat"][nodes])
        still, moments = self._pools(_bent(base)[None], reach.relations, None)
        if settings.cross_configuration and not tile:
            # Configurations that attend to each other are mixed, so that each lot is like the whole.
            order, size = np.random.default_rng(0).permutation(count), self.together
        else:
            order, size = np.arange(count), max(1, HELD_FLOATS // (len(nodes) * settings.width))
        found = np.empty(count, np.float32)
        for first in range(0, count, size):
            which = order[first : first + size]
            options = graph.features(graph.codes[which])
            if tile:
                pooled = np.repeat(still, len(which), axis=0)
                pooled = np.concatenate([pooled, _bent(self._option(logarithmic(options[:, 0])))], axis=1)
            else:
                states = np.repeat(base[None], len(which), axis=0)
                states[:, : len(chosen.columns)] += self._option(options[:, chosen.columns])
                scale = moments if settings.norm == "graph" else None
                pooled, _ = self._pools(_bent(states), reach.relations, scale)
            found[which] = self._mapped("score", _bent(self._mapped("head", pooled)))[:, 0]
        return found

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What an artifact holds.

        Raises:
            UnreadableFile, MalformedInput: there is none, or it is none of a ranking network.
        """
        artifact, weights = read_artifact(folder)
        said = artifact.hyperparameters
        if artifact.model != cls.name or "network" not in said or "score.weight" not in weights:
            raise MalformedInput("holds no ranking network", file=str(folder))
        settings = convert(RankingSettings, said["network"], source=str(folder))
        return cls(settings, int(said.get("together", 1)), weights)

    def _described(self, opcode: NDArray[Any], features: NDArray[Any]) -> Floats:
        """(N, D) the first state of nodes without an option, before its bend."""
        scaled = (logarithmic(features) - self.weights["mean"]) / self.weights["deviation"]
        return self._mapped("enter", np.concatenate([scaled, self.weights["opcode.weight"][opcode]], axis=1))

    def _option(self, options: Floats) -> Floats:
        """(…, D) what options (…, F) add to a node's first state."""
        if self.settings.layout_embedding:
            number = np.clip(options + 1, 0, LAYOUT_VALUES - 1).astype(np.int64)
            given = self.weights["value.weight"][number].reshape(*options.shape[:-1], -1)
        else:
            given = (options - self.weights["option_mean"]) / self.weights["option_deviation"]
        return np.asarray(given @ self.weights["configuration.weight"].T, np.float32)

    def _pools(
        self, first: Floats, relations: Sequence[SenderSums], scale: Sequence[Moments] | None
    ) -> tuple[Floats, list[Moments]]:
        """(C, …) means over nodes of the states (C, N, D), and what each layer's messages have over nodes.

        Args:
            scale: the moments to normalise by; those of each configuration itself when not given.
        """
        settings, parts, moments = self.settings, [first], list[Moments]()
        for layer in range(settings.layers):
            name = f"layers.{layer}"
            state = np.concatenate(parts, axis=2) if settings.residual == "append" else np.sum(parts, axis=0)
            message = _bent(self._mapped(f"{name}.node", state))
            if settings.attention == "nodes":
                message = self._attended(f"{name}.attention", message)
            heard = self._heard(name, message, relations)
            if settings.norm != "none":
                mean = heard.mean(axis=1, keepdims=True)
                deviation = np.sqrt(np.square(heard - mean).mean(axis=1, keepdims=True) + np.float32(SPREAD))
                moments.append((mean, deviation))
                mean, deviation = moments[layer] if scale is None else scale[layer]
                heard = (heard - mean) / deviation
            state = _bent(heard)
            if settings.cross_configuration:
                state = state * len(state) * _softmax(state * self.weights[f"{name}.temperature"], axis=0)
            parts.append(np.asarray(state, np.float32))
        pools = [part.mean(axis=1) for part in parts]
        pooled = np.concatenate(pools, axis=1) if settings.residual == "append" else np.sum(pools, axis=0)
        return np.asarray(pooled, np.float32), moments

    def _heard(self, name: str, message: Floats, relations: Sequence[SenderSums]) -> Floats:
        """(C, N, D) what nodes get from messages, and from themselves."""
        if self.settings.convolution != "sage":
            return _summed(message, relations[0])
        maps = self.weights[f"{name}.neighbours"]
        total = self._mapped(f"{name}.itself", message)
        for relation, own in zip(relations, maps, strict=True):
            total += _summed(message @ own, relation)
        return total

    def _attended(self, name: str, message: Floats) -> Floats:
        """(C, N, D) messages, with what they attend to added."""
        key = message @ self.weights[f"{name}.key.weight"].T
        weight = _softmax(key @ key.swapaxes(1, 2) / np.float32(np.sqrt(key.shape[-1])), axis=2)
        value = message @ self.weights[f"{name}.value.weight"].T
        return np.asarray(message + weight @ value, np.float32)

    def _mapped(self, name: str, rows: Floats) -> Floats:
        """(…, D') rows by a linear map and its bias."""
        return np.asarray(rows @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"], np.float32)


def scorer_of(folder: Path, *, device: str = "cpu") -> Ranker | NetworkScores:
    """What scores configurations with an artifact: its ranker, or where torch is missing the network alone.

    Raises:
        UnreadableFile, MalformedInput: there is none, or it is no ranker.
        MissingPackage: something else is missing, or a GPU was asked for.
    """
    try:
        return load_ranker(folder, device=device)
    except MissingPackage:
        if device != "cpu":
            raise
        return NetworkScores.load(folder)


def _summed(rows: Floats, sums: SenderSums) -> Floats:
    """(C, N, D) for each node the weighted sum of its senders' rows; 0 without any."""
    found = np.zeros_like(rows)
    heard = np.flatnonzero(np.diff(sums.start))
    if len(heard):
        sent = rows[:, sums.sender] * sums.weight[:, None]
        found[:, heard] = np.add.reduceat(sent, sums.start[heard], axis=1)
    return found


def _softmax(values: Floats, *, axis: int) -> Floats:
    raised = np.exp(values - values.max(axis=axis, keepdims=True))
    return np.asarray(raised / raised.sum(axis=axis, keepdims=True), np.float32)


def _bent(values: Floats) -> Floats:
    """A leaky ReLU."""
    return np.where(values > 0, values, np.float32(SLOPE) * values)
