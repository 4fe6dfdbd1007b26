"""Losses by name; a task names the one it wants."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from apportion.errors import UnknownName

Loss = Callable[[Tensor, Tensor], Tensor]
"Of scores (N, C) and targets (N,)."

_LOSSES: dict[str, Loss] = {"cross-entropy": F.cross_entropy}


def loss_called(name: str) -> Loss:
    """The loss of that name."""
    if name not in _LOSSES:
        raise UnknownName("loss", name, _LOSSES)
    return _LOSSES[name]
