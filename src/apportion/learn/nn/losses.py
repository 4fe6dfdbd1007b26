"""Losses by name; a task names the one it wants."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from apportion.errors import UnknownName

Loss = Callable[[Tensor, Tensor], Tensor]
"Of scores (N, C) and targets (N,)."


def list_mle(scores: Tensor, targets: Tensor) -> Tensor:
    """The negative log-likelihood, per place, of the order fastest first; scores (N, 1) are low for fast.

    By Plackett and Luce's model each place goes to one of those left, in proportion to exp(−score).
    """
    ordered = -scores[torch.argsort(targets, stable=True), 0]
    left = torch.logcumsumexp(ordered.flip(0), 0).flip(0)
    return (left - ordered).mean()


def pairwise_hinge(scores: Tensor, targets: Tensor) -> Tensor:
    """How far each pair is from being in order with a margin of 1; scores (N, 1) are low for fast."""
    slower = targets[:, None] > targets[None, :]
    lead = scores - scores.T
    return torch.where(slower, F.relu(1 - lead), 0.0).sum() / slower.sum().clamp(min=1)


_LOSSES: dict[str, Loss] = {
    "cross-entropy": F.cross_entropy, "list-mle": list_mle, "pairwise-hinge": pairwise_hinge
}  # fmt: skip


def loss_called(name: str) -> Loss:
    """The loss of that name."""
    if name not in _LOSSES:
        raise UnknownName("loss", name, _LOSSES)
    return _LOSSES[name]
