"""One network that scores a graph's configurations; what configurations cannot change is computed once.

Opcode embedding and features → L layers (a linear map of each node, messages, a residual) → mean over nodes →
two linear maps → a score, low for fast. `still` is the graph without a configuration, the same for all;
`moving` are the rows that configurations reach. In each layer a moving row hears its moving neighbours for
each configuration and its still ones once; the mean over nodes splits in the same way, so that nothing is
approximated. A node's first state depends on its own option only: it is computed once per option.

Letters for shapes: N nodes, C configurations, M configurable nodes, K options, D width, n_l rows that are
reached after layer l.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apportion.data.published.tpugraphs import NODE_FEATURES, OPCODES
from apportion.learn.ranking.ranking_inputs import GraphInputs, LayerSums, Sum
from apportion.learn.ranking.ranking_settings import LAYOUT_VALUES, SLOPE, SPREAD, RankingSettings


@dataclass(frozen=True, eq=False)
class Still:
    """Everything that no configuration changes: of each layer's states, and of what comes between."""

    inputs: GraphInputs
    table: Tensor  # (K, D): the first state of a node with an option; for tiles, the tile
    parts: tuple[Tensor, ...]  # (N, D) each: what each layer adds to the state, the first state first
    sent: tuple[Tensor, ...]  # (N, D) each: what nodes send in each layer, before attention
    scale: tuple[tuple[Tensor, Tensor] | None, ...]
    "Mean and deviation (D,) that each layer's messages are normalised by."
    onto: tuple[Tensor, ...]  # (n_l, D) each: what moving rows get from still ones


class RankingNetwork(nn.Module):
    """Scores (C,) of a graph's configurations."""

    mean: Tensor
    deviation: Tensor
    option_mean: Tensor
    option_deviation: Tensor

    def __init__(self, settings: RankingSettings) -> None:
        super().__init__()
        self.settings = settings
        width, options = settings.width, settings.option_features
        for name, size in (("mean", NODE_FEATURES), ("option_mean", options)):
            self.register_buffer(name, torch.zeros(size))
        for name, size in (("deviation", NODE_FEATURES), ("option_deviation", options)):
            self.register_buffer(name, torch.ones(size))
        self.opcode = nn.Embedding(OPCODES + 1, settings.opcode_width)
        self.enter = nn.Linear(NODE_FEATURES + settings.opcode_width, width)
        self.value = nn.Embedding(LAYOUT_VALUES, 4) if settings.layout_embedding else None
        self.configuration = nn.Linear(
            4 * options if settings.layout_embedding else options, width, bias=False
        )
        self.layers = nn.ModuleList(
            _Layer(settings, parts=layer + 1 if settings.residual == "append" else 1)
            for layer in range(settings.layers)
        )
        pooled = width * (settings.layers + 1) if settings.residual == "append" else width
        self.head = nn.Linear(pooled + (width if settings.configurations == "tile" else 0), width)
        self.score = nn.Linear(width, 1)

    def forward(self, inputs: GraphInputs, rows: Tensor) -> Tensor:
        """(C,) scores of configurations given as rows (C, M') of options."""
        scores: Tensor = self.scores(self.still(inputs), rows)
        return scores

    def still(self, inputs: GraphInputs) -> Still:
        """The graph without a configuration."""
        settings = self.settings
        described = torch.cat([(inputs.features - self.mean) / self.deviation, self.opcode(inputs.opcode)], 1)
        base: Tensor = self.enter(described)
        option = self._option(inputs.options)
        tile = settings.configurations == "tile"
        table = F.leaky_relu(option if tile else base[inputs.option_node] + option, SLOPE)
        parts = [F.leaky_relu(base, SLOPE)]
        sent, scale, onto = [], [], []
        for layer, sums in zip(self.layers, inputs.layers, strict=True):
            assert isinstance(layer, _Layer)
            message = layer.message(parts)
            sent.append(message)
            if layer.attention is not None:
                message = layer.attention(message[:, None])[:, 0]
            mapped = layer.mapped(message)
            heard = layer.heard(mapped, message, sums.whole)
            normal = _moments(heard) if settings.norm != "none" else None
            parts.append(F.leaky_relu(heard if normal is None else _normalised(heard, normal), SLOPE))
            scale.append(normal if settings.norm == "graph" else None)
            onto.append(layer.heard_from(mapped[:, sums.senders :], message, sums))
        return Still(inputs, table, tuple(parts), tuple(sent), tuple(scale), tuple(onto))

    def scores(self, still: Still, rows: Tensor) -> Tensor:
        """(C,) scores of configurations given as rows (C, M') of options."""
        settings = self.settings
        pools = [part.mean(0).expand(len(rows), -1) for part in still.parts]
        if settings.configurations == "layout" and rows.shape[1]:
            pools = self._moving_pools(still, rows)
        pooled = torch.cat(pools, 1) if settings.residual == "append" else torch.stack(pools).sum(0)
        if settings.configurations == "tile":
            pooled = torch.cat([pooled, still.table[rows[:, 0]]], 1)
        found: Tensor = self.score(F.leaky_relu(self.head(pooled), SLOPE))
        return found[:, 0]

    def _moving_pools(self, still: Still, rows: Tensor) -> list[Tensor]:
        """(C, D) for each part of the state: its mean over nodes."""
        inputs, settings, nodes = still.inputs, self.settings, still.inputs.nodes
        # As a product: its gradient needs no sorting of rows, which that of a look-up does.
        chosen = still.table.new_zeros(len(rows), len(still.table)).scatter_(1, rows, 1.0)
        pools = [(chosen @ still.table + still.parts[0][rows.shape[1] :].sum(0)) / nodes]
        by_node = rows.T.contiguous()
        moving: list[Tensor] = []  # (n, C, D) for each part but the first, which is looked up in the table
        for number, (layer, sums) in enumerate(zip(self.layers, inputs.layers, strict=True)):
            assert isinstance(layer, _Layer)
            message = layer.moving_message(still, by_node, moving)
            if len(message) < sums.senders:
                rest = still.sent[number][len(message) :, None].expand(-1, len(rows), -1)
                message = torch.cat([message, rest])
            if layer.attention is not None:
                message = layer.attention(message)
            heard = layer.heard(layer.mapped(message), message, sums.moving) + still.onto[number][:, None]
            normal = _moments(heard) if settings.norm == "instance" else still.scale[number]
            if normal is not None:
                heard = _normalised(heard, normal)
            state = F.leaky_relu(heard, SLOPE)
            if layer.temperature is not None:
                state = state * len(rows) * torch.softmax(state * layer.temperature, 1)
            moving.append(state)
            pools.append((state.sum(0) + still.parts[number + 1][len(state) :].sum(0)) / nodes)
        return pools

    def _option(self, options: Tensor) -> Tensor:
        """(K, D) what an option adds to a node's state before its first bend."""
        if self.value is None:
            scaled = (options - self.option_mean) / self.option_deviation
            found: Tensor = self.configuration(scaled)
            return found
        number = (options + 1).clamp(0, LAYOUT_VALUES - 1).long()
        embedded: Tensor = self.configuration(self.value(number).flatten(1))
        return embedded


class _Layer(nn.Module):
    """A map of each node's state, messages, and what they are weighed by."""

    def __init__(self, settings: RankingSettings, *, parts: int) -> None:
        super().__init__()
        width = settings.width
        self.append = settings.residual == "append"
        self.node = nn.Linear(width * parts, width)
        self.relations = 2 if settings.convolution == "sage" else 1
        self.neighbours = (
            nn.Parameter(torch.empty(2, width, width)) if settings.convolution == "sage" else None
        )
        self.itself = nn.Linear(width, width) if settings.convolution == "sage" else None
        if self.neighbours is not None:
            nn.init.uniform_(self.neighbours, -(width**-0.5), width**-0.5)
        self.attention = _NodeAttention(width) if settings.attention == "nodes" else None
        self.temperature = nn.Parameter(torch.ones(())) if settings.cross_configuration else None

    def message(self, parts: Sequence[Tensor]) -> Tensor:
        """(N, D) what nodes send, of the parts (N, D) of their states."""
        state = torch.cat(list(parts), 1) if self.append else torch.stack(list(parts)).sum(0)
        return F.leaky_relu(self.node(state), SLOPE)

    def moving_message(self, still: Still, by_node: Tensor, moving: Sequence[Tensor]) -> Tensor:
        """(n, C, D) what moving nodes send, of options by node (M, C) and the later parts of their states."""
        width = still.table.shape[1]
        weights = (
            torch.split(self.node.weight, width, 1) if self.append else [self.node.weight] * (len(moving) + 1)
        )
        first = F.linear(still.table, weights[0], self.node.bias)
        if not moving:
            # Before any message nodes differ by their option alone: once per option, not per configuration.
            return _looked_up(F.leaky_relu(first, SLOPE), by_node)
        total = F.linear(moving[-1], weights[len(moving)])
        reached = len(total)
        for part, states in enumerate([first, *moving[:-1]]):
            mapped = _looked_up(first, by_node) if part == 0 else F.linear(states, weights[part])
            total[: len(mapped)] += mapped
            if len(mapped) < reached:
                bias = self.node.bias if part == 0 else None
                rest = F.linear(still.parts[part][len(mapped) : reached], weights[part], bias)
                total[len(mapped) :] += rest[:, None]
        return F.leaky_relu_(total, SLOPE)

    def mapped(self, message: Tensor) -> Tensor:
        """(R, n, …, D) messages as each relation carries them."""
        if self.neighbours is None:
            return message[None]
        flat = message.reshape(-1, message.shape[-1])
        return torch.matmul(flat, self.neighbours).view(2, *message.shape)

    def heard(self, mapped: Tensor, message: Tensor, sums: Sum) -> Tensor:
        """(n', …, D) what nodes get from these, and from themselves."""
        total = sums(mapped.flatten(0, 1))
        if self.itself is not None:
            total[: len(message)] += self.itself(message)
        return total

    def heard_from(self, mapped: Tensor, message: Tensor, sums: LayerSums) -> Tensor:
        """(n', D) what moving rows get from still ones, and from themselves where they were still."""
        total = sums.onto(mapped.flatten(0, 1))
        if self.itself is not None and sums.senders < sums.receivers:
            total[sums.senders :] += self.itself(message[sums.senders : sums.receivers])
        return total


class _NodeAttention(nn.Module):
    """Self-attention among nodes, the same map giving queries and keys, added to what was there."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """(N, C, D) of the same."""
        by_configuration = states.transpose(0, 1)
        key = self.key(by_configuration)
        found = F.scaled_dot_product_attention(key, key, self.value(by_configuration))
        return states + found.transpose(0, 1)


def _looked_up(table: Tensor, numbers: Tensor) -> Tensor:
    """(…, D) rows of a table; the gradient is added up where it belongs, without sorting."""
    return table.index_select(0, numbers.flatten()).view(*numbers.shape, -1)


def _moments(states: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation over nodes, the first dimension."""
    mean = states.mean(0)
    deviation = (states - mean).square().mean(0).add(SPREAD).sqrt()
    return mean, deviation


def _normalised(states: Tensor, moments: tuple[Tensor, Tensor]) -> Tensor:
    mean, deviation = moments
    return (states - mean) / deviation
