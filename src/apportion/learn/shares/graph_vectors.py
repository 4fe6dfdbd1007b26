"""What a trained network makes of one program graph before it is told the launch, by NumPy.

Every row of the thesis' ablation: its layers (none, convolutions, attention, messages) and its poolings.
States are computed once for nodes that the network cannot tell apart (`colours`), which changes nothing but
the time.

Letters for shapes: N nodes, n states of a level, H hidden, C pooled numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.learn.shares.colours import POOLING_ROUNDS, Colouring, GraphSet, Level, Numbers
from apportion.learn.shares.network_settings import CLUSTERS, KEPT, LAYERS, KernelNetworkSettings

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class GraphVectors:
    """The part of a network that reads graphs."""

    settings: KernelNetworkSettings
    weights: Arrays

    def of(self, graphs: GraphSet) -> Floats:
        """(D,): the vector of the one graph that these are."""
        settings = self.settings
        read = _ReadGraph(graphs.both_ways() if settings.both_ways else graphs, settings)
        first = self.weights["embedding"][read.graphs.text[read.levels[0].example]]
        if settings.layers == "none":
            return read.mean(0, first)
        if settings.layers == "convolution":
            return np.concatenate([self._convolved(read), read.mean(0, first)])
        states = [first]
        stepped = self._sent if settings.layers == "messages" else self._attended
        for step in range(settings.steps):
            states.append(stepped(states[-1], read, step))
        if settings.pooling == "skips":
            return np.concatenate([read.mean(number, state) for number, state in enumerate(states) if number])
        last = states[-1]
        if settings.pooling == "mean":
            both = [read.mean(0, first), read.mean(settings.steps, last)]
            # As published: the initial state comes first with messages, last with attention.
            return np.concatenate(both if settings.layers == "messages" else both[::-1])
        if settings.pooling == "gated-sum":
            return self._gated_sum(read, first, last)
        if settings.pooling == "top-k":
            return self._top(read, last)
        return self._learned_clusters(read, last) if settings.pooling == "learned-clusters" else (
            self._clusters(read, last)
        )  # fmt: skip

    def _sent(self, state: Floats, read: _ReadGraph, step: int) -> Floats:
        """(n, H): the states of the next level, by gated messages and a GRU."""
        weights, hidden, layer, graphs = self.weights, state.shape[1], step % LAYERS, read.graphs
        below, level = read.levels[step], read.levels[step + 1]
        edge, row = _by_row(*level.edges_at(graphs.target))
        message = self._mapped(f"{layer}.message", state).reshape(-1, self.settings.flows, hidden)
        lines = message[below.colour[graphs.source[edge]], graphs.flow[edge]]
        lines *= weights[f"{layer}.gates"][graphs.position[edge]]
        mean = _summed(lines, row, level.count)
        mean /= np.maximum(np.bincount(row, minlength=level.count), 1).astype(np.float32)[:, None]
        held = state[below.colour[level.example]]
        given, kept = self._mapped(f"{layer}.input", mean), self._mapped(f"{layer}.hidden", held)
        reset, keep = np.split(_sigmoid(given[:, : 2 * hidden] + kept[:, : 2 * hidden]), 2, axis=1)
        new = np.tanh(given[:, 2 * hidden :] + reset * kept[:, 2 * hidden :])
        return np.asarray(new + keep * (held - new), np.float32)

    def _attended(self, state: Floats, read: _ReadGraph, step: int) -> Floats:
        """(n, H): the states of the next level, by attention to neighbours and to itself."""
        weights, layer, graphs = self.weights, step % LAYERS, read.graphs
        below, level = read.levels[step], read.levels[step + 1]
        edge, row = level.edges_at(graphs.target, graphs.proper)
        source = np.concatenate([below.colour[graphs.source[edge]], below.colour[level.example]])
        source, row = _by_row(source, np.concatenate([row, np.arange(level.count)]))
        mapped = np.asarray(state @ weights[f"{layer}.map"], np.float32)
        own = mapped[below.colour[level.example]]
        score = (mapped @ weights[f"{layer}.source"])[source] + (own @ weights[f"{layer}.target"])[row]
        score = np.where(score > 0, score, np.float32(0.2) * score)[:, 0]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        weight = np.exp(score - np.maximum.reduceat(score, starts)[row])
        weight /= np.add.reduceat(weight, starts)[row]
        return _summed(mapped[source] * weight[:, None], row, level.count) + weights[f"{layer}.bias"]

    def _convolved(self, read: _ReadGraph) -> Floats:
        """(H,): mean over nodes of graph convolutions, node by node."""
        graphs, state = read.graphs, self.weights["embedding"][read.graphs.text]
        source, target = graphs.source[graphs.proper], graphs.target[graphs.proper]
        scale = (1 / np.sqrt(1.0 + np.bincount(target, minlength=graphs.nodes))).astype(np.float32)[:, None]
        source, target = _by_row(source, target)
        for step in range(self.settings.steps):
            sent = self._weighed(f"{step % LAYERS}.map", state) * scale
            bias = self.weights[f"{step % LAYERS}.map.bias"]
            state = (_summed(sent[source], target, graphs.nodes) + sent) * scale + bias
        return np.asarray(state.mean(axis=0), np.float32)

    def _gated_sum(self, read: _ReadGraph, first: Floats, last: Floats) -> Floats:
        """(C,): the readout of ProGraML."""
        start, end = read.levels[0], read.levels[-1]
        both = np.concatenate([first[start.colour[end.example]], last], axis=1)
        gated = _sigmoid(self._mapped("pool.gate", both)) * self._mapped("pool.transform", last)
        return np.asarray(np.bincount(end.colour, minlength=end.count).astype(np.float32) @ gated, np.float32)

    def _clusters(self, read: _ReadGraph, last: Floats) -> Floats:
        """(H,): differentiable pooling as published."""
        embedded = np.maximum(self._mapped("pool.first", read.sent(last)), 0)
        weight = np.bincount(read.sender.colour, read.graphs.in_degree, read.sender.count)
        received = weight.astype(np.float32)[None] @ embedded
        bias = read.graphs.nodes * self.weights["pool.second.bias"]
        return np.asarray(
            (self._weighed("pool.second", received)[0] + bias.reshape(-1)) / CLUSTERS, np.float32
        )

    def _learned_clusters(self, read: _ReadGraph, last: Floats) -> Floats:
        """(H,): differentiable pooling whose assignment learned."""
        sent, again = read.sent(last), read.resender
        embedded, assigned = (
            self._mapped(
                f"pool.second{end}", read.resent(np.maximum(self._mapped(f"pool.first{end}", sent), 0))
            )
            for end in ("", "_assigned")
        )
        raised = np.exp(assigned - assigned.max(axis=1, keepdims=True))
        parts = raised / raised.sum(axis=1, keepdims=True)
        share = np.bincount(again.colour, minlength=again.count).astype(np.float32) / read.graphs.nodes
        clusters = (parts * share[:, None]).T @ embedded  # (clusters, H)
        behind = self._mapped("pool.behind", clusters.reshape(1, -1))
        return np.asarray(np.maximum(behind[0], 0), np.float32)

    def _top(self, read: _ReadGraph, last: Floats) -> Floats:
        """(H,): what three rounds of convolution and selection leave, in the mean."""
        level, graphs = read.pooled, read.graphs
        edge, row = _by_row(*level.edges_at(graphs.target, graphs.proper))
        source = level.colour[graphs.source[edge]]
        copies = np.bincount(level.colour, minlength=level.count).astype(np.float64)
        state, kept = last[read.levels[-1].colour[level.example]], np.ones(level.count)
        vector = self.weights["pool.score"][:, 0]
        left = float(graphs.nodes)
        for _ in range(POOLING_ROUNDS):
            left = np.ceil(KEPT * left)
            part = kept.astype(np.float32)[:, None]
            scale = np.asarray(1 / np.sqrt(1 + _summed(part[source], row, level.count)), np.float32)
            mapped = self._weighed("pool.map", state) * scale
            state = (_summed((mapped * part)[source], row, level.count) + mapped) * scale
            state = np.maximum(state + self.weights["pool.map.bias"], 0)
            score = state @ vector / np.linalg.norm(vector)
            kept = kept * _selected(score, kept * copies, left)
            state = np.asarray(state * np.tanh(score)[:, None], np.float32)
        return np.asarray((kept * copies / left) @ state, np.float32)

    def _mapped(self, name: str, rows: Floats) -> Floats:
        return np.asarray(self._weighed(name, rows) + self.weights[f"{name}.bias"], np.float32)

    def _weighed(self, name: str, rows: Floats) -> Floats:
        return np.asarray(rows @ self.weights[f"{name}.weight"], np.float32)


class _ReadGraph:
    """One graph with the colours of its nodes."""

    def __init__(self, graphs: GraphSet, settings: KernelNetworkSettings) -> None:
        self.graphs = graphs
        steps = settings.steps if settings.layers in ("messages", "attention") else 0
        self._colouring = Colouring.of(graphs, steps, typed=settings.layers == "messages")
        self.levels = [Level.of(colour) for colour in self._colouring.levels]

    @cached_property
    def sender(self) -> Level:
        return Level.of(self._colouring.sent)

    @cached_property
    def resender(self) -> Level:
        return Level.of(self._colouring.resent)

    @cached_property
    def pooled(self) -> Level:
        return Level.of(self._colouring.pooled)

    def mean(self, number: int, state: Floats) -> Floats:
        """(H,): over nodes, of the states of a level."""
        level = self.levels[number]
        share = np.bincount(level.colour, minlength=level.count) / self.graphs.nodes
        return np.asarray(share.astype(np.float32) @ state, np.float32)

    def sent(self, last: Floats) -> Floats:
        """For each colour of senders the sum over its targets."""
        return self._over_targets(self.sender, self.levels[-1], last)

    def resent(self, rows: Floats) -> Floats:
        """The same of those that send to senders."""
        return self._over_targets(self.resender, self.sender, rows)

    def _over_targets(self, sender: Level, target: Level, rows: Floats) -> Floats:
        edge, row = _by_row(*sender.edges_at(self.graphs.source))
        return _summed(rows[target.colour[self.graphs.target[edge]]], row, sender.count)


def _selected(score: Floats, mass: NDArray[np.float64], room: float) -> NDArray[np.float64]:
    """(n,): which part of each state's nodes stays, of those that score highest until there is no room."""
    order = np.argsort(-score.astype(np.float64), kind="stable")
    before = np.cumsum(mass[order]) - mass[order]
    part = np.empty(len(mass))
    part[order] = np.clip((room - before) / np.maximum(mass[order], 1e-9), 0, 1)
    return np.where(mass > 0, part, 0.0)


def _by_row(values: Numbers, row: Numbers) -> tuple[Numbers, Numbers]:
    """Both in the order of rows."""
    order = np.argsort(row, kind="stable")
    return values[order], row[order]


def _summed(lines: Floats, row: Numbers, rows: int) -> Floats:
    """(rows, …): the sums of lines whose rows rise."""
    found = np.zeros((rows, *lines.shape[1:]), np.float32)
    if len(row):
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        found[row[starts]] = np.add.reduceat(lines, starts, axis=0)
    return found


def _sigmoid(values: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)), np.float32)
