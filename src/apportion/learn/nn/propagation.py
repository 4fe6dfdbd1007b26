"""Message passing over T steps with its gradient written out: three products per step, nothing kept per edge.

One step is
    projected = state · W₁ᵀ + b₁                    messages of every kind, and the GRU's share of the state
    mean[v]   = Σ over edges e into v of weight[e] · gate[position[e]] ⊙ projected[slot[e]]
    state     = GRU(mean · W₂ᵀ + b₂, state)
so W₁ stacks the message weights and the GRU's hidden weights; a *line* of `projected` is `source * L + kind`
with L = K + 3. The gradient walks the steps back; it overwrites what the forward pass kept, and gathers the
weights' gradients of all steps at the end. The four operations that are no matrix product come from
`TorchOperations` here or from the Triton kernels in `kernels.py`.

Letters for shapes: N nodes, E edges (both ways counted), H hidden, K kinds, P positions, T steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from apportion.data.batch import Batch, Rows

LIGHT = 16
"Edges of a row that a GPU sums one after the other; the rest is cut into chunks that run side by side."
CHUNK = 32
"Edges in such a chunk."
GATE_CHUNK = 512
"Edges of one position whose share of the gate's gradient is summed by one program on a GPU."


@dataclass(frozen=True, eq=False)
class GatherPlan:
    """Where each row's sum comes from: rows of a table, times a gate, times a weight per edge."""

    group: int
    stride: int
    "Row r is written to line `r // group * stride + r % group` of the output."
    start: Tensor  # (rows + 1,)
    index: Tensor  # (E,) line of the table
    position: Tensor  # (E,)
    weight: Tensor  # (E,)
    row: Tensor  # (E,) line of the output
    chunk_start: Tensor  # (chunks,) first edge of each chunk of the heavy rows' rest
    chunk_end: Tensor  # (chunks,)
    chunk_row: Tensor  # (chunks,) row it belongs to

    @cached_property
    def first(self) -> tuple[Tensor, Tensor, Tensor]:
        """Start, index and weight of the edges at position 0: six edges of seven, and they share one gate."""
        chosen = self.position == 0
        before = torch.cat([chosen.new_zeros(1, dtype=torch.int32), chosen.cumsum(0, dtype=torch.int32)])
        return before[self.start], self.index[chosen], self.weight[chosen]

    @cached_property
    def others(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Index, position, weight and output line of the edges at other positions."""
        chosen = self.position != 0
        return self.index[chosen], self.position[chosen], self.weight[chosen].unsqueeze(1), self.row[chosen]


@dataclass(frozen=True, eq=False)
class PositionPlan:
    """Edges sorted by position and cut into chunks of one position each, for the gradient of the gates."""

    line: Tensor  # (E,) line of `projected`
    target: Tensor  # (E,)
    weight: Tensor  # (E,)
    chunk_start: Tensor  # (chunks + 1,)
    chunk_position: Tensor  # (chunks,)


GATHERED = ("start", "index", "position", "weight", "row", "chunk_start", "chunk_end", "chunk_row")
POSITIONED = ("line", "target", "weight", "chunk_start", "chunk_position")
"The tensors of the two plans, in the order of their fields."


@dataclass(frozen=True, eq=False)
class Edges:
    """A batch's edges on a device, in the orders that the passes want."""

    nodes: int
    kinds: int
    incoming: GatherPlan
    outgoing: GatherPlan | None
    by_position: PositionPlan | None

    @classmethod
    def of(cls, batch: Batch, device: torch.device, *, gradients: bool, dilution: float = 1.0) -> Edges:
        """The edges of `batch` on a device; see `edge_arrays`."""
        arrays = edge_arrays(batch, gradients=gradients, dilution=dilution)
        tensors = {name: tensor_on(device, values) for name, values in arrays.items()}
        return cls.of_tensors(batch.nodes, batch.kinds, tensors)

    @classmethod
    def of_tensors(cls, nodes: int, kinds: int, tensors: Mapping[str, Tensor]) -> Edges:
        """From tensors by the names of `edge_arrays`."""

        def plan(prefix: str, group: int, stride: int) -> GatherPlan:
            return GatherPlan(group, stride, *(tensors[f"{prefix}.{name}"] for name in GATHERED))

        incoming = plan("incoming", 1, 1)
        if "outgoing.start" not in tensors:
            return cls(nodes, kinds, incoming, None, None)
        by_position = PositionPlan(*(tensors[f"position.{name}"] for name in POSITIONED))
        return cls(nodes, kinds, incoming, plan("outgoing", kinds, kinds + 3), by_position)


def edge_arrays(batch: Batch, *, gradients: bool, dilution: float = 1.0) -> dict[str, NDArray[Any]]:
    """The columns of `GatherPlan` and `PositionPlan`, all of 32 bits, by names like `incoming.start`.

    Args:
        gradients: without, only what the forward pass reads.
        dilution: a node of degree d takes the sum of its messages over d to this power: 1 is the mean, 0 the
            sum. A mean over a constant's thousand users all but erases the one that is marked.
    """
    kinds, lines = batch.kinds, batch.kinds + 3
    degree = np.diff(batch.incoming.start)
    share = (np.maximum(degree, 1) ** -dilution).astype(np.float32)
    slot, target = batch.incoming.index, batch.incoming.row
    line = slot // kinds * np.int32(lines) + slot % kinds
    weight = share[target]
    arrays = _gathered("incoming", batch.incoming, line, weight, target)
    if not gradients:
        return arrays
    out = batch.outgoing
    out_line = out.row // kinds * np.int32(lines) + out.row % kinds
    arrays |= _gathered("outgoing", out, out.index, share[out.index], out_line)
    order = np.argsort(batch.incoming.position, kind="stable")
    position = batch.incoming.position[order].astype(np.int32)
    bounds = _chunks_of_equal(position, GATE_CHUNK)
    columns = (line[order], target[order], weight[order], bounds, position[bounds[:-1]])
    return arrays | {f"position.{name}": values for name, values in zip(POSITIONED, columns, strict=True)}


class Operations(Protocol):
    """The four operations that are no matrix product; what is named `*_` is read and overwritten."""

    def gather(self, table: Tensor, gates: Tensor, plan: GatherPlan, out: Tensor) -> None:
        """out[row] = Σ weight[e] · gates[position[e]] ⊙ table[index[e]]; every row of the plan is written."""

    def update(self, inputs_: Tensor, projected: Tensor, state: Tensor, out: Tensor) -> None:
        """A GRU's step; `inputs_` (N, 3H) becomes its reset, update and new gates."""

    def update_gradient(self, gradient_: Tensor, state: Tensor, gates_: Tensor, projected_: Tensor) -> None:
        """Back through `update`: `gates_` becomes the inputs' gradient, the last 3H columns of `projected_`
        the hidden part's, and `gradient_` the share that goes straight to the state."""

    def message_gradient(
        self, lines_: Tensor, gradient: Tensor, gates: Tensor, edges: Edges, d_gates_: Tensor
    ) -> None:
        """Back through `gather`: the messages in `lines_` become their gradient; the gates' is added."""


class TorchOperations:
    """The operations in plain torch, for any device."""

    def gather(self, table: Tensor, gates: Tensor, plan: GatherPlan, out: Tensor) -> None:
        torch.mul(_sums(table, plan), gates[0], out=out)
        index, position, weight, row = plan.others
        rest = table.index_select(0, index)
        out.index_add_(0, row, rest.mul_(gates.index_select(0, position)).mul_(weight))

    def update(self, inputs_: Tensor, projected: Tensor, state: Tensor, out: Tensor) -> None:
        hidden = projected[:, -inputs_.shape[1] :]
        h = state.shape[1]
        sigmoids, new = inputs_[:, : 2 * h], inputs_[:, 2 * h :]
        sigmoids.add_(hidden[:, : 2 * h]).sigmoid_()
        new.addcmul_(inputs_[:, :h], hidden[:, 2 * h :]).tanh_()
        torch.lerp(new, state, inputs_[:, h : 2 * h], out=out)

    def update_gradient(self, gradient_: Tensor, state: Tensor, gates_: Tensor, projected_: Tensor) -> None:
        h = state.shape[1]
        hidden = projected_[:, -3 * h :]
        reset, keep, new = gates_[:, :h], gates_[:, h : 2 * h], gates_[:, 2 * h :]
        drop = 1 - keep
        d_keep = (state - new).mul_(gradient_).mul_(keep).mul_(drop)
        d_new = drop.mul_(gradient_)
        d_new.addcmul_(d_new * new, new, value=-1)
        d_reset = (d_new * hidden[:, 2 * h :]).mul_(reset)
        d_reset.addcmul_(d_reset, reset, value=-1)
        gradient_.mul_(keep)
        torch.mul(d_new, reset, out=hidden[:, 2 * h :])
        reset.copy_(d_reset)
        keep.copy_(d_keep)
        new.copy_(d_new)
        hidden[:, : 2 * h] = gates_[:, : 2 * h]

    def message_gradient(
        self, lines_: Tensor, gradient: Tensor, gates: Tensor, edges: Edges, d_gates_: Tensor
    ) -> None:
        plan = edges.outgoing
        assert plan is not None
        sums = _sums(gradient, plan).view(-1, plan.group, gradient.shape[1])
        messages = lines_.view(-1, plan.stride, lines_.shape[1])[:, : plan.group]
        d_gates_[0] += column_sums((messages * sums).view(-1, gradient.shape[1]))
        index, position, weight, row = plan.others
        rest = gradient.index_select(0, index).mul_(weight)
        d_gates_.index_add_(0, position, lines_.index_select(0, row).mul_(rest))
        torch.mul(sums, gates[0], out=messages)
        lines_.index_add_(0, row, rest.mul_(gates.index_select(0, position)))


def column_sums(matrix: Tensor) -> Tensor:
    """The sum of each column. On a CPU as a matrix product, which is several times faster for narrow ones."""
    if matrix.is_cuda:
        return matrix.sum(0)
    return matrix.new_ones(len(matrix)) @ matrix


def _sums(table: Tensor, plan: GatherPlan) -> Tensor:
    """(rows, H): the weighted sum over each row's edges at position 0, not yet gated."""
    start, index, weight = plan.first
    return F.embedding_bag(
        index, table, start, mode="sum", per_sample_weights=weight, include_last_offset=True
    )


def propagate(
    state: Tensor,
    weights: tuple[Tensor, Tensor, Tensor, Tensor],
    gates: Tensor,
    edges: Edges,
    steps: int,
    operations: Operations,
) -> Tensor:
    """The states after `steps` steps.

    Args:
        state: (N, H).
        weights: W₁ (L·H, H), b₁ (L·H,), W₂ (3H, H), b₂ (3H,).
        gates: (P, H), what multiplies a message at each position.
    """
    tensors = (state, *weights, gates)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _Propagation.apply(*tensors, edges, steps, operations)  # type: ignore[no-any-return, no-untyped-call]
    w1, b1, w2, b2 = weights
    nodes, hidden = state.shape
    projected, mean = state.new_empty(nodes, len(b1)), torch.empty_like(state)
    inputs = state.new_empty(nodes, 3 * hidden)
    now, after = state, torch.empty_like(state)
    for step in range(steps):
        torch.addmm(b1, now, w1.t(), out=projected)
        operations.gather(projected.view(-1, hidden), gates, edges.incoming, mean)
        torch.addmm(b2, mean, w2.t(), out=inputs)
        operations.update(inputs, projected, now, after)
        now, after = after, (torch.empty_like(state) if step == 0 else now)
    return now


class _Propagation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state: Tensor,
        w1: Tensor,
        b1: Tensor,
        w2: Tensor,
        b2: Tensor,
        gates: Tensor,
        edges: Edges,
        steps: int,
        operations: Operations,
    ) -> Tensor:
        nodes, hidden = state.shape
        states = state.new_empty(steps + 1, nodes, hidden)
        projected = state.new_empty(steps, nodes, len(b1))
        mean = state.new_empty(steps, nodes, hidden)
        kept = state.new_empty(steps, nodes, 3 * hidden)
        states[0] = state
        for t in range(steps):
            torch.addmm(b1, states[t], w1.t(), out=projected[t])
            operations.gather(projected[t].view(-1, hidden), gates, edges.incoming, mean[t])
            torch.addmm(b2, mean[t], w2.t(), out=kept[t])
            operations.update(kept[t], projected[t], states[t], states[t + 1])
        ctx.save_for_backward(w1, w2, gates)
        ctx.kept = (states, projected, mean, kept)
        ctx.edges, ctx.operations = edges, operations
        return states[steps].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.kept is None:
            raise RuntimeError("The gradient of a propagation can be taken once: it overwrites what it read")
        w1, w2, gates = ctx.saved_tensors
        states, projected, mean, kept = ctx.kept
        ctx.kept = None
        edges, operations = ctx.edges, ctx.operations
        steps, nodes, hidden = mean.shape
        gradient = gradients[0].clone()
        d_mean = torch.empty_like(gradient)
        d_gates = torch.zeros_like(gates)
        for t in reversed(range(steps)):
            lines = projected[t].view(-1, hidden)
            operations.update_gradient(gradient, states[t], kept[t], projected[t])
            torch.mm(kept[t], w2, out=d_mean)
            operations.message_gradient(lines, d_mean, gates, edges, d_gates)
            gradient.addmm_(projected[t], w1)
        # A product per step, then their sum: one over all steps would keep few of a GPU's units busy.
        d_w1 = torch.bmm(projected.transpose(1, 2), states[:steps]).sum(0)
        d_w2 = torch.bmm(kept.transpose(1, 2), mean).sum(0)
        d_b1, d_b2 = column_sums(projected.view(steps * nodes, -1)), column_sums(kept.view(steps * nodes, -1))
        return gradient, d_w1, d_b1, d_w2, d_b2, d_gates, None, None, None


def _gathered(
    prefix: str,
    rows: Rows,
    index: NDArray[np.int32],
    weight: NDArray[np.float32],
    output: NDArray[np.int32],
) -> dict[str, NDArray[Any]]:
    degree = np.diff(rows.start)
    heavy = np.flatnonzero(degree > LIGHT).astype(np.int32)
    rest = degree[heavy] - LIGHT
    chunks = -(-rest // CHUNK)
    chunk_row = np.repeat(heavy, chunks)
    within = np.arange(len(chunk_row)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    chunk_start = (rows.start[chunk_row] + LIGHT + CHUNK * within).astype(np.int32)
    chunk_end = np.minimum(chunk_start + CHUNK, rows.start[chunk_row + 1]).astype(np.int32)
    position = rows.position.astype(np.int32)
    columns = (rows.start, index, position, weight, output, chunk_start, chunk_end, chunk_row)
    return {f"{prefix}.{name}": values for name, values in zip(GATHERED, columns, strict=True)}


def _chunks_of_equal(values: NDArray[np.int32], most: int) -> NDArray[np.int32]:
    """Bounds of runs of equal values in a sorted array, none longer than `most`."""
    changes = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1, [len(values)]])
    inside = [np.arange(first, last, most) for first, last in pairwise(changes)]
    return np.concatenate([*inside, [len(values)]]).astype(np.int32)


def tensor_on(device: torch.device, values: NDArray[Any]) -> Tensor:
    """An array on a device."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor
