"""The layers of the ProGraML family, each once: node embedding, gated messages with GRU, gated readout.

Letters for shapes: N nodes, H hidden, K edge kinds, P positions, C outputs.
"""

from __future__ import annotations

import math
import warnings
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apportion.data.batch import POSITIONS, Graph, pack
from apportion.learn.nn.propagation import Edges, Operations, TorchOperations, propagate


class NodeEmbedding(nn.Module):
    """What each node starts from: a learned vector for its text, then two numbers that mark the root."""

    selectors: Tensor

    def __init__(self, texts: int, width: int, selector: float) -> None:
        super().__init__()
        self.text = nn.Embedding(texts, width)
        self.register_buffer("selectors", selector * torch.eye(2), persistent=False)

    def forward(self, text: Tensor, selected: Tensor) -> Tensor:
        """(N, width + 2), of text ids (N,) and 0 or 1 (N,) for a root."""
        return torch.cat([self.text(text), self.selectors[selected]], dim=1)


class GatedMessages(nn.Module):
    """Steps of message passing that share their weights.

    A message is a linear map of its source's state, one map per edge kind, times a gate that the edge's
    position sets; a node takes the mean of what it gets, and a GRU updates its state.

    Args:
        hidden: H.
        kinds: K, both directions counted.
        unplaced: trailing columns of the state that positions say nothing about (the root's mark).
    """

    sinusoids: Tensor

    def __init__(self, hidden: int, kinds: int, *, unplaced: int = 0) -> None:
        super().__init__()
        self.hidden, self.kinds = hidden, kinds
        self.message = nn.Linear(hidden, hidden * kinds)
        self.gate = nn.Linear(hidden, hidden)
        self.update = nn.GRUCell(hidden, hidden)
        placed = sinusoids(POSITIONS, hidden - unplaced)
        self.register_buffer("sinusoids", F.pad(placed, (0, unplaced)), persistent=False)

    def gates(self) -> Tensor:
        """(P, H): what multiplies a message at each position, from 0 to 2."""
        return 2 * torch.sigmoid(self.gate(self.sinusoids))

    def forward(
        self, state: Tensor, edges: Edges, *, steps: int, operations: Operations | None = None
    ) -> Tensor:
        """The states (N, H) after `steps` steps."""
        h, k = self.hidden, self.kinds
        # Rows of whole 16 bytes let a GPU read them with its widest loads. The added columns stay 0.
        spare = -h % 4 if state.is_cuda else 0

        def square(weight: Tensor, blocks: int) -> Tensor:
            return F.pad(weight.view(blocks, h, h), (0, spare, 0, spare)).reshape(-1, h + spare)

        def line(bias: Tensor, blocks: int) -> Tensor:
            return F.pad(bias.view(blocks, h), (0, spare)).reshape(-1)

        gru = self.update
        weights = (
            torch.cat([square(self.message.weight, k), square(gru.weight_hh, 3)]),
            torch.cat([line(self.message.bias, k), line(gru.bias_hh, 3)]),
            square(gru.weight_ih, 3),
            line(gru.bias_ih, 3),
        )
        chosen = operations_for(state.device) if operations is None else operations
        padded = F.pad(state, (0, spare)).contiguous()
        final = propagate(padded, weights, F.pad(self.gates(), (0, spare)).contiguous(), edges, steps, chosen)
        return final[:, :h]


class GatedReadout(nn.Module):
    """Scores from a node's first and last state: a linear map of the last, gated by both."""

    def __init__(self, hidden: int, outputs: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * hidden, outputs)
        self.transform = nn.Linear(hidden, outputs)

    def forward(self, initial: Tensor, final: Tensor) -> Tensor:
        """(N, C), of two (N, H)."""
        gate: Tensor = self.gate(torch.cat([initial, final], dim=1))
        transformed: Tensor = self.transform(final)
        return torch.sigmoid(gate) * transformed


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width): sines and cosines of falling frequency, so that near positions look alike."""
    place = torch.arange(positions, dtype=torch.float32).unsqueeze(1)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10000.0) / width))
    return torch.cat([torch.sin(place * rate), torch.cos(place * rate)], dim=1)[:, :width]


def operations_for(device: torch.device) -> Operations:
    """The fastest operations that give the right answer on `device`: it is checked once per process."""
    return _checked_operations(numbered(device))


def numbered(device: torch.device) -> torch.device:
    """The device with its number: what is asked of `cuda` and of `cuda:0` must have one answer."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())


@cache
def _checked_operations(device: torch.device) -> Operations:
    plain = TorchOperations()
    if device.type != "cuda":
        return plain
    try:
        from apportion.learn.nn.triton_kernels import TritonOperations  # Triton is there only where CUDA is

        fast = TritonOperations()
        error = disagreement(fast, plain, device)
    except Exception as problem:
        # Whatever keeps Triton from compiling on this GPU, the plain operations still give the answer.
        warnings.warn(
            f"Triton kernels cannot run here ({problem}); using plain torch", RuntimeWarning, stacklevel=2
        )
        return plain
    if not error < 1e-4:
        warnings.warn(
            f"Triton kernels are off by {error:.1e} here; using plain torch", RuntimeWarning, stacklevel=2
        )
        return plain
    return fast


def disagreement(one: Operations, other: Operations, device: torch.device) -> float:
    """The largest relative difference of states and gradients between two ways to run the same layer.

    Gradients are taken even where whoever asks first wants none, as a trained network does that only answers.
    """
    random = np.random.default_rng(0)
    nodes, edges = 200, 800
    target = np.where(
        random.random(edges) < 0.2, 7, random.integers(0, nodes, edges)
    )  # node 7 is a heavy one
    graph = Graph(
        np.zeros(nodes, np.int32),
        np.stack([random.integers(0, nodes, edges), target]).astype(np.int32),
        random.integers(0, 3, edges).astype(np.uint8),
        random.geometric(0.5, edges).astype(np.int32) - 1,
    )
    batch = pack([graph]).batch([0], [0])
    plan = Edges.of(batch, device, gradients=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = GatedMessages(34, batch.kinds).to(device)
        state = torch.randn(nodes, 34).to(device)
    results = []
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        for operations in (one, other):
            with torch.enable_grad():
                start = state.clone().requires_grad_()
                final = layer(start, plan, steps=4, operations=operations)
                loss = (final * torch.linspace(-1, 1, 34, device=device)).sum()
                results.append([final.detach(), *torch.autograd.grad(loss, [start, *layer.parameters()])])
    finally:
        torch.set_float32_matmul_precision(precision)
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in zip(*results, strict=True)
    )
