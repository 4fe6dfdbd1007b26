"""Sums of rows of a table, by a fixed plan, with their gradient: what messages and pooling are made of.

Several models of one shape run side by side: a table holds the rows of the first model, then those of the
second. The gradient is the same operation with rows and table exchanged, so nothing is added atomically and
nothing is kept for an edge. Long rows are summed in chunks, so that no row holds up the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

CHUNK = 48
"The most rows of a table that are summed one after the other."


@dataclass(frozen=True, eq=False)
class GatherStage:
    """One pass of sums: row i takes `start[i]` to `start[i + 1]` of index and weight."""

    start: Tensor
    index: Tensor
    weight: Tensor

    def sums(self, table: Tensor) -> Tensor:
        return F.embedding_bag(
            self.index,
            table,
            self.start,
            mode="sum",
            per_sample_weights=self.weight,
            include_last_offset=True,
        )


@dataclass(frozen=True, eq=False)
class SumPlan:
    """out[row[e]] = Σ weight[e] · table[index[e]], in each model alike."""

    rows: int
    "Of the result, in one model."
    table: int
    "Rows of the table, in one model."
    forward: tuple[GatherStage, ...]
    backward: tuple[GatherStage, ...]

    @classmethod
    def of(
        cls,
        row: NDArray[Any],
        index: NDArray[Any],
        weight: NDArray[Any] | None = None,
        *,
        rows: int,
        table: int,
        models: int,
        device: torch.device,
    ) -> SumPlan:
        """The plan of these edges; without weights, each counts once."""
        scale = np.ones(len(row), np.float32) if weight is None else np.asarray(weight, np.float32)
        return cls(
            rows, table,
            _stages(row, index, scale, rows, table, models, device),
            _stages(index, row, scale, table, rows, models, device),
        )  # fmt: skip

    def __call__(self, table: Tensor) -> Tensor:
        """(M, rows, H), of (M, table, H)."""
        summed: Tensor = _Sums.apply(table.reshape(-1, table.shape[-1]), self)  # type: ignore[no-untyped-call]
        return summed.view(table.shape[0], self.rows, table.shape[-1])


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, plan: SumPlan) -> Tensor:
        ctx.plan = plan
        return _run(plan.forward, table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _run(ctx.plan.backward, gradients[0].contiguous()), None


def _run(stages: tuple[GatherStage, ...], table: Tensor) -> Tensor:
    for stage in stages:
        table = stage.sums(table)
    return table


def _stages(
    row: NDArray[Any],
    index: NDArray[Any],
    weight: NDArray[np.float32],
    rows: int,
    table: int,
    models: int,
    device: torch.device,
) -> tuple[GatherStage, ...]:
    if np.any(row[1:] < row[:-1]):
        order = np.argsort(row, kind="stable")
        index, weight = index[order], weight[order]
    counts = np.bincount(row, minlength=rows)
    stages = []
    while True:
        if counts.max(initial=0) <= CHUNK:
            stages.append(_stage(counts, index, weight, table, models, device))
            return tuple(stages)
        chunks = np.maximum(1, -(-counts // CHUNK))
        within = np.arange(int(chunks.sum())) - np.repeat(np.cumsum(chunks) - chunks, chunks)
        lengths = np.minimum(CHUNK, np.repeat(counts, chunks) - CHUNK * within)
        stages.append(_stage(lengths, index, weight, table, models, device))
        counts, table = chunks, len(lengths)
        index, weight = np.arange(table), np.ones(table, np.float32)


def _stage(
    counts: NDArray[Any],
    index: NDArray[Any],
    weight: NDArray[np.float32],
    table: int,
    models: int,
    device: torch.device,
) -> GatherStage:
    """One pass, repeated for each model with its own part of the table."""
    start = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32)).to(device)
    places = torch.from_numpy(np.ascontiguousarray(index, np.int32)).to(device)
    number = torch.arange(models, dtype=torch.int32, device=device).unsqueeze(1)
    end = torch.full((1,), models * len(index), dtype=torch.int32, device=device)
    return GatherStage(
        torch.cat([(start + number * len(index)).view(-1), end]),
        (places + number * table).view(-1),
        torch.from_numpy(weight).to(device).repeat(models),
    )
