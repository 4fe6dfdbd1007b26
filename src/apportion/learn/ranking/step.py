"""Gradients of a step, summed over its graphs; on a GPU the work on each is recorded once, then replayed.

What configurations reach is small, so that some hundred kernels of a few microseconds each are launched: that
takes the host longer than the GPU takes to run them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from apportion.learn.nn.cuda_graphs import GraphRecorder
from apportion.learn.nn.losses import Loss
from apportion.learn.ranking.ranking_inputs import GraphInputs


class Replays(Protocol):
    """What `recording.Recorder` does."""

    def __call__(self, key: Hashable, function: Callable[[], Any]) -> Any: ...

    def forget(self, key: Hashable) -> None: ...


@dataclass(frozen=True, eq=False)
class _Held:
    """The tensors that the recording of a graph works on: they must stay where they are."""

    inputs: GraphInputs
    rows: Tensor
    truth: Tensor


class GraphGradients:
    """Adds the gradients of graphs to those of a network's parameters.

    Args:
        network: scores (C,) of a graph's inputs and of rows of options.
        loss_of: of scores (C, 1) and runtimes (C,).
        share: what each graph's loss counts.
        recorder: by default one where the network is on a GPU.
    """

    def __init__(
        self, network: nn.Module, loss_of: Loss, share: float, recorder: Replays | None = None
    ) -> None:
        self._network, self._loss_of, self._share = network, loss_of, share
        self._parameters = list(network.parameters())
        self._sums = [torch.zeros_like(parameter) for parameter in self._parameters]
        device = self._parameters[0].device
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._recorder = GraphRecorder() if recorder is None and device.type == "cuda" else recorder
        self._held: dict[int, _Held] = {}

    def clear(self) -> None:
        """Begin a step."""
        for parameter, total in zip(self._parameters, self._sums, strict=True):
            parameter.grad = total.zero_()

    def add(self, inputs: GraphInputs, rows: Tensor, truth: Tensor, *, number: int | None = None) -> None:
        """Add the gradient of a graph's loss.

        Args:
            inputs: of the graph.
            rows: (C, M') the configurations' options.
            truth: (C,) their runtimes.
            number: of the graph, whose inputs stay the same; None for inputs that come once.
        """
        if self._recorder is None or number is None:
            self._add(inputs, rows, truth)
            return
        held = self._held.get(number)
        if held is None or held.inputs is not inputs or held.rows.shape != rows.shape:
            self.forget(number)
            held = self._held[number] = _Held(inputs, rows.clone(), truth.clone())
        else:
            held.rows.copy_(rows)
            held.truth.copy_(truth)
        self._recorder(number, partial(self._add, held.inputs, held.rows, held.truth))

    def forget(self, number: int) -> None:
        """Let go of what is held for a graph."""
        if self._held.pop(number, None) is not None and self._recorder is not None:
            self._recorder.forget(number)

    def loss(self) -> float:
        """The sum of losses since this was last asked."""
        total = float(self._loss)
        self._loss.zero_()
        return total

    def _add(self, inputs: GraphInputs, rows: Tensor, truth: Tensor) -> None:
        loss = self._loss_of(self._network(inputs, rows)[:, None], truth) * self._share
        # Not `backward`: what it adds to lies on the stream that was current then, which a recording has not.
        found = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        torch._foreach_add_(self._sums, list(found))
        self._loss.add_(loss.detach())
