"""Layers of several models of one shape side by side: one product for all, and no model sees another.

Letters for shapes: M models, N rows, I inputs, O outputs. The first axis of every tensor is M. What a layer
draws at the start comes from one generator per model, so that a stack holds the models that would be made one
by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PARTS = 16
"Parts into which the rows of a product are cut for the gradient of its weights: few long sums idle a GPU."

Generators = Sequence[torch.Generator]


def drawn(
    generators: Generators, shape: tuple[int, ...], draw: Callable[[Tensor, torch.Generator], Tensor]
) -> nn.Parameter:
    """A parameter (M, …), each model's part drawn by its own generator."""
    with torch.no_grad():
        return nn.Parameter(torch.stack([draw(torch.empty(shape), generator) for generator in generators]))


def uniform(bound: float) -> Callable[[Tensor, torch.Generator], Tensor]:
    """Draws from −bound to bound."""
    return lambda values, generator: values.uniform_(-bound, bound, generator=generator)


def glorot(inputs: int, outputs: int) -> Callable[[Tensor, torch.Generator], Tensor]:
    """Draws as graph convolutions do (Glorot and Bengio 2010)."""
    return uniform(math.sqrt(6 / (inputs + outputs)))


class StackedLinear(nn.Module):
    """M linear maps; as `nn.Linear` begins by default, or as `start` says with no bias at first."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        generators: Generators,
        *,
        start: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    ) -> None:
        super().__init__()
        default = uniform(1 / math.sqrt(inputs))
        self.weight = drawn(generators, (inputs, outputs), start or default)
        self.bias = drawn(generators, (1, outputs), default)
        if start is not None:
            nn.init.zeros_(self.bias)

    def forward(self, rows: Tensor) -> Tensor:
        """(M, N, O), of (M, N, I)."""
        return linear(rows, self.weight, self.bias)


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows · weight + bias, in each model."""
    return _Linear.apply(rows.contiguous(), weight, bias)  # type: ignore[no-any-return, no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        if bias is None:
            return torch.bmm(rows, weight)
        if not rows.is_cuda or rows.shape[1] < 4096:
            return torch.baddbmm(bias, rows, weight)
        # One by one, so that the product itself adds the bias instead of a pass of its own.
        out = rows.new_empty(*rows.shape[:2], weight.shape[2])
        for model in range(len(rows)):
            torch.addmm(bias[model, 0], rows[model], weight[model], out=out[model])
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        rows, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        models, count, inputs = rows.shape
        parts = PARTS if count % PARTS == 0 and count >= 4096 else 1
        cut = (models * parts, count // parts, -1)
        d_weight = torch.bmm(rows.view(cut).transpose(1, 2), gradient.view(cut))
        d_weight = d_weight.view(models, parts, inputs, -1).sum(1)
        d_rows = torch.bmm(gradient, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        d_bias = gradient.sum(1, keepdim=True) if ctx.needs_input_grad[2] else None
        return d_rows, d_weight, d_bias


class StackedGRU(nn.Module):
    """M GRU cells."""

    def __init__(self, hidden: int, generators: Generators) -> None:
        super().__init__()
        start = uniform(1 / math.sqrt(hidden))
        self.input_weight = drawn(generators, (hidden, 3 * hidden), start)
        self.hidden_weight = drawn(generators, (hidden, 3 * hidden), start)
        self.input_bias = drawn(generators, (1, 3 * hidden), start)
        self.hidden_bias = drawn(generators, (1, 3 * hidden), start)

    def forward(self, inputs: Tensor, state: Tensor) -> Tensor:
        """The next state (M, N, H), of two (M, N, H)."""
        given = linear(inputs, self.input_weight, self.input_bias)
        held = linear(state, self.hidden_weight, self.hidden_bias)
        if state.is_cuda:
            flat = (values.reshape(-1, values.shape[-1]) for values in (given, held, state))
            return torch.ops.aten._thnn_fused_gru_cell(*flat)[0].view_as(state)  # type: ignore[no-any-return]
        reset, keep, new = given.chunk(3, dim=2)
        held_reset, held_keep, held_new = held.chunk(3, dim=2)
        keep = torch.sigmoid(keep + held_keep)
        new = torch.tanh(new + torch.sigmoid(reset + held_reset) * held_new)
        return torch.lerp(new, state, keep)


class StackedNorm(nn.Module):
    """Batch normalisation of M models, over the rows that count."""

    mean: Tensor
    variance: Tensor

    def __init__(self, models: int, width: int, *, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = nn.Parameter(torch.ones(models, 1, width))
        self.bias = nn.Parameter(torch.zeros(models, 1, width))
        self.register_buffer("mean", torch.zeros(models, 1, width))
        self.register_buffer("variance", torch.ones(models, 1, width))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """(M, N, O); `counts` (M, N, 1) is 1 for a row that statistics see and 0 for one that fills up."""
        if self.training:
            number = counts.sum(1, keepdim=True)
            mean = (rows * counts).sum(1, keepdim=True) / number
            variance = ((rows - mean).square() * counts).sum(1, keepdim=True) / number
            with torch.no_grad():
                unbiased = variance * (number / (number - 1).clamp(min=1))
                self.mean.lerp_(mean, self.momentum)
                self.variance.lerp_(unbiased, self.momentum)
        else:
            mean, variance = self.mean, self.variance
        return (rows - mean) * torch.rsqrt(variance + self.epsilon) * self.weight + self.bias


class StackedReadout(nn.Module):
    """Linear maps with ReLU and dropout between them."""

    def __init__(self, widths: Sequence[int], dropout: float, generators: Generators) -> None:
        super().__init__()
        self.dropout = dropout
        self.maps = nn.ModuleList(StackedLinear(one, next_, generators) for one, next_ in pairwise(widths))

    def forward(self, rows: Tensor) -> Tensor:
        """(M, N, widths[-1]), of (M, N, widths[0])."""
        for number, map_ in enumerate(self.maps):
            if number:
                rows = F.dropout(F.relu(rows), self.dropout, self.training)
            rows = map_(rows)
        return rows
