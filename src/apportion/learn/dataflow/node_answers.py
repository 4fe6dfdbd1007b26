"""NodeAnswers: what a ProGraML network says of every node, by NumPy alone.

The same numbers as `programl.Programl`, which learns with torch: T steps of gated messages, a GRU, a gated
readout. Letters for shapes: N nodes, E edges (both ways counted), H hidden, K kinds, P positions, C outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import read_artifact
from apportion.data.batch import POSITIONS, Batch
from apportion.errors import MalformedInput
from apportion.learn import tasks
from apportion.learn.task import Task

Floats = NDArray[np.float32]
_MARKS = 2
"The trailing numbers of a state that mark the root; positions say nothing about them."
_NODES_AT_ONCE = 4_000
"Graphs of a batch are answered in parts of about so many nodes, whose states stay in a processor's cache."


@dataclass(frozen=True, eq=False)
class NodeAnswers:
    """A trained network that answers for every node."""

    task: Task[Any]
    steps: int
    selector: float
    dilution: float
    "Messages are summed and divided by their number to this power."
    weights: Mapping[str, Floats]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The network that an artifact holds.

        Raises:
            UnreadableFile, MalformedInput: there is none, or it is another one.
        """
        artifact, weights = read_artifact(folder)
        settings = {"selector": 50.0, "steps": 30, "dilution": 1.0, **artifact.hyperparameters}
        found = cls(
            tasks.load(artifact.task), int(settings["steps"]), float(settings["selector"]),
            float(settings["dilution"]), weights,
        )  # fmt: skip
        try:
            found._check()
        except (KeyError, ValueError, IndexError) as error:
            raise MalformedInput(
                f"holds another network than its description: {error}", file=str(folder)
            ) from error
        return found

    def predict(self, batch: Batch) -> Floats:
        """(N, C)."""
        scores = self._in_parts(batch)
        if self.weights.get("discount", np.zeros(())).any():
            scores[:, 1] -= self._unasked(batch)
        return scores

    def _unasked(self, batch: Batch) -> Floats:
        """(N,): by how much each node would be labelled if no root were marked; see `Programl`."""
        kept, places = np.unique(batch.first_alike(), return_inverse=True)
        few = batch.part(kept)
        scores = self._in_parts(few, marked=False) - self._offset
        margins = np.split(np.maximum(scores[:, 1] - scores[:, 0], 0), few.graph_start[1:-1])
        return np.concatenate([margins[place] for place in places])

    def _in_parts(self, batch: Batch, *, marked: bool = True) -> Floats:
        part = (batch.graph_start[1:] - 1) // _NODES_AT_ONCE
        groups = np.split(np.arange(batch.graphs), np.flatnonzero(np.diff(part)) + 1)
        every = [batch] if len(groups) == 1 else [batch.part(group) for group in groups]
        # A part has no root where none is marked, though each of its graphs has one.
        parts = every if marked else [replace(one, root=one.root[:0]) for one in every]
        return np.concatenate([self._scores(one) for one in parts])

    def _scores(self, batch: Batch) -> Floats:
        marks = np.zeros((batch.nodes, _MARKS), np.float32)
        marks[:, 0] = self.selector
        marks[batch.root] = self.selector * np.array([0, 1], np.float32)
        first = np.hstack([self.weights["embedding.text.weight"][batch.text], marks])
        state = self._propagated(first, batch)
        gate = np.hstack([first, state]) @ self.weights["readout.gate.weight"].T
        said = state @ self.weights["readout.transform.weight"].T + self.weights["readout.transform.bias"]
        scores: Floats = _sigmoid(gate + self.weights["readout.gate.bias"]) * said + self._offset
        return scores

    def _propagated(self, state: Floats, batch: Batch) -> Floats:
        weights, hidden = self.weights, state.shape[1]
        rows = batch.incoming
        degree = np.diff(rows.start)
        reached = np.flatnonzero(degree)
        starts = rows.start[reached]
        share = (np.maximum(degree[reached], 1) ** -self.dilution).astype(np.float32)[:, None]
        # Six edges of seven have position 0 and share one gate, which is applied once to all sources.
        placed = np.flatnonzero(rows.position)
        gates, placed_index = self._gates[rows.position[placed]], rows.index[placed]
        to_messages, to_state = self._maps
        for _ in range(self.steps):
            messages = (state @ to_messages + weights["messages.message.bias"]).reshape(-1, hidden)
            others = messages[placed_index] * gates
            messages *= self._gates[0]
            lines = messages[rows.index]
            lines[placed] = others
            mean = np.zeros_like(state)
            if len(starts):
                mean[reached] = np.add.reduceat(lines, starts, axis=0) * share
            given = mean @ to_state + weights["messages.update.bias_ih"]
            kept = state @ weights["messages.update.weight_hh"].T + weights["messages.update.bias_hh"]
            both = _sigmoid(given[:, : 2 * hidden] + kept[:, : 2 * hidden])
            new = np.tanh(given[:, 2 * hidden :] + both[:, :hidden] * kept[:, 2 * hidden :])
            state = new + both[:, hidden:] * (state - new)
        return state

    @cached_property
    def _gates(self) -> Floats:
        """(P, H): what multiplies a message at each position, from 0 to 2."""
        hidden = len(self.weights["messages.gate.bias"])
        width = hidden - _MARKS
        rate = np.exp(np.arange(0, width, 2) * (-math.log(10000.0) / width))
        angle = np.arange(POSITIONS)[:, None] * rate
        waves = np.hstack([np.sin(angle), np.cos(angle)])[:, :width]
        placed = np.hstack([waves, np.zeros((POSITIONS, _MARKS))]).astype(np.float32)
        gate = placed @ self.weights["messages.gate.weight"].T + self.weights["messages.gate.bias"]
        return np.asarray(2 * _sigmoid(gate), np.float32)

    @cached_property
    def _maps(self) -> tuple[Floats, Floats]:
        """(H, K·H) of the messages, (H, 3H) of what a state takes in."""
        return (
            np.ascontiguousarray(self.weights["messages.message.weight"].T),
            np.ascontiguousarray(self.weights["messages.update.weight_ih"].T),
        )

    @property
    def _offset(self) -> Floats:
        return self.weights.get("offset", np.zeros(self.task.outputs, np.float32))

    def _check(self) -> None:
        """Raise where an array is missing or does not fit the others."""
        hidden = self.weights["embedding.text.weight"].shape[1] + _MARKS
        state, outputs = np.zeros(hidden), self.task.outputs
        for name in ("messages.message", "messages.gate", "readout.transform"):
            _ = self.weights[f"{name}.weight"] @ state + self.weights[f"{name}.bias"]
        for name in ("ih", "hh"):
            _ = self.weights[f"messages.update.weight_{name}"] @ state
            if self.weights[f"messages.update.bias_{name}"].shape != (3 * hidden,):
                raise ValueError(f"messages.update.bias_{name} is not of {3 * hidden} numbers")
        if self.weights["readout.gate.weight"].shape != (outputs, 2 * hidden):
            raise ValueError(f"readout.gate.weight is not of {outputs} rows of {2 * hidden}")


def _sigmoid(values: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)), np.float32)
