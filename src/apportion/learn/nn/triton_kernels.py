"""Triton kernels for `propagation`'s operations; imported only when a GPU is used.

A row's edges are walked by one program, `ROWS` rows at a time; a row of many edges (a constant that thousands
of instructions use) has its rest cut into chunks that are added atomically, so that no row holds up others.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Triton types a kernel's arguments itself, when it is launched.

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from apportion.learn.nn.propagation import CHUNK, LIGHT, Edges, GatherPlan

ROWS = 8
"Rows per program of the gathering and updating kernels."
TILE = 16
"Edges read at once by the kernel of the gates' gradient."

# Counts of rows and nodes are not specialized: every batch has others, and each kind would be compiled anew.


@triton.jit(do_not_specialize=["rows"])
def _gather_kernel(
    table, gates, start, index, position, weight, out, rows,
    HIDDEN: tl.constexpr, GROUP: tl.constexpr, STRIDE: tl.constexpr, LIGHT: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    column = tl.arange(0, COLUMNS)
    wide = column[None, :] < HIDDEN
    first = tl.load(start + row, mask=real, other=0)
    last = tl.load(start + row + 1, mask=real, other=0)
    count = tl.minimum(last - first, LIGHT)
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for j in range(tl.max(count, axis=0)):
        live = j < count
        line = tl.load(index + first + j, mask=live, other=0).to(tl.int64)
        at = tl.load(position + first + j, mask=live, other=0)
        share = tl.load(weight + first + j, mask=live, other=0.0)
        mask = live[:, None] & wide
        value = tl.load(table + line[:, None] * HIDDEN + column[None, :], mask=mask, other=0.0)
        gate = tl.load(gates + at[:, None] * HIDDEN + column[None, :], mask=mask, other=0.0)
        total += value * gate * share[:, None]
    line = ((row // GROUP) * STRIDE + row % GROUP).to(tl.int64)
    tl.store(out + line[:, None] * HIDDEN + column[None, :], total, mask=real[:, None] & wide)


@triton.jit
def _gather_heavy_kernel(
    table, gates, chunk_start, chunk_end, chunk_row, index, position, weight, out,
    HIDDEN: tl.constexpr, GROUP: tl.constexpr, STRIDE: tl.constexpr, CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    edge = tl.load(chunk_start + chunk) + tl.arange(0, CHUNK)
    live = edge < tl.load(chunk_end + chunk)
    row = tl.load(chunk_row + chunk)
    column = tl.arange(0, COLUMNS)
    line = tl.load(index + edge, mask=live, other=0).to(tl.int64)
    at = tl.load(position + edge, mask=live, other=0)
    share = tl.load(weight + edge, mask=live, other=0.0)
    mask = live[:, None] & (column[None, :] < HIDDEN)
    value = tl.load(table + line[:, None] * HIDDEN + column[None, :], mask=mask, other=0.0)
    gate = tl.load(gates + at[:, None] * HIDDEN + column[None, :], mask=mask, other=0.0)
    total = tl.sum(value * gate * share[:, None], axis=0)
    place = ((row // GROUP) * STRIDE + row % GROUP).to(tl.int64)
    tl.atomic_add(out + place * HIDDEN + column, total, mask=column < HIDDEN)


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit(do_not_specialize=["nodes"])
def _update_kernel(
    inputs, projected, state, out, nodes,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    node = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    mask = (node < nodes)[:, None] & (column[None, :] < HIDDEN)
    here = node[:, None] * HIDDEN + column[None, :]
    gate = inputs + node[:, None] * (3 * HIDDEN) + column[None, :]
    part = projected + node[:, None] * WIDTH + (WIDTH - 3 * HIDDEN) + column[None, :]
    reset = tl.sigmoid(tl.load(gate, mask=mask, other=0.0) + tl.load(part, mask=mask, other=0.0))
    keep = tl.sigmoid(
        tl.load(gate + HIDDEN, mask=mask, other=0.0) + tl.load(part + HIDDEN, mask=mask, other=0.0)
    )
    hidden_new = tl.load(part + 2 * HIDDEN, mask=mask, other=0.0)
    new = _tanh(tl.load(gate + 2 * HIDDEN, mask=mask, other=0.0) + reset * hidden_new)
    before = tl.load(state + here, mask=mask, other=0.0)
    tl.store(out + here, new + keep * (before - new), mask=mask)
    tl.store(gate, reset, mask=mask)
    tl.store(gate + HIDDEN, keep, mask=mask)
    tl.store(gate + 2 * HIDDEN, new, mask=mask)


@triton.jit(do_not_specialize=["nodes"])
def _update_gradient_kernel(
    gradient, state, gates, projected, nodes,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    node = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    mask = (node < nodes)[:, None] & (column[None, :] < HIDDEN)
    here = node[:, None] * HIDDEN + column[None, :]
    gate = gates + node[:, None] * (3 * HIDDEN) + column[None, :]
    part = projected + node[:, None] * WIDTH + (WIDTH - 3 * HIDDEN) + column[None, :]
    reset = tl.load(gate, mask=mask, other=0.0)
    keep = tl.load(gate + HIDDEN, mask=mask, other=0.0)
    new = tl.load(gate + 2 * HIDDEN, mask=mask, other=0.0)
    hidden_new = tl.load(part + 2 * HIDDEN, mask=mask, other=0.0)
    before = tl.load(state + here, mask=mask, other=0.0)
    asked = tl.load(gradient + here, mask=mask, other=0.0)
    d_keep = asked * (before - new) * keep * (1.0 - keep)
    d_new = asked * (1.0 - keep) * (1.0 - new * new)
    d_reset = d_new * hidden_new * reset * (1.0 - reset)
    tl.store(gradient + here, asked * keep, mask=mask)
    tl.store(gate, d_reset, mask=mask)
    tl.store(gate + HIDDEN, d_keep, mask=mask)
    tl.store(gate + 2 * HIDDEN, d_new, mask=mask)
    tl.store(part, d_reset, mask=mask)
    tl.store(part + HIDDEN, d_keep, mask=mask)
    tl.store(part + 2 * HIDDEN, d_new * reset, mask=mask)


@triton.jit
def _gate_gradient_kernel(
    projected, gradient, line, target, weight, chunk_start, chunk_position, d_gates,
    HIDDEN: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    first = tl.load(chunk_start + chunk)
    last = tl.load(chunk_start + chunk + 1)
    column = tl.arange(0, COLUMNS)
    wide = column < HIDDEN
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for tile in range(first, last, TILE):
        edge = tile + tl.arange(0, TILE)
        live = edge < last
        message = tl.load(line + edge, mask=live, other=0).to(tl.int64)
        to = tl.load(target + edge, mask=live, other=0).to(tl.int64)
        share = tl.load(weight + edge, mask=live, other=0.0)
        mask = live[:, None] & wide[None, :]
        value = tl.load(projected + message[:, None] * HIDDEN + column[None, :], mask=mask, other=0.0)
        asked = tl.load(gradient + to[:, None] * HIDDEN + column[None, :], mask=mask, other=0.0)
        total += tl.sum(value * asked * share[:, None], axis=0)
    at = tl.load(chunk_position + chunk)
    tl.atomic_add(d_gates + at * HIDDEN + column, total, mask=wide)


class _Launcher:
    """A kernel whose compiled forms are launched directly.

    Triton's own launch looks at every argument anew, which takes the host longer than these kernels take the
    GPU. A compiled form serves all calls with equal constants and equally aligned tensors of the same kinds;
    the kinds are those of `Operations`, always.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, programs: int, *arguments: Any, **constants: Any) -> None:
        """Run that many programs; constants come in the order of the kernel's parameters."""
        key = (
            arguments[0].device.index,
            *constants.values(),
            *(value.data_ptr() % 16 for value in arguments if isinstance(value, Tensor)),
        )
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = self.kernel[(programs,)](*arguments, **constants)
        else:
            compiled[(programs, 1, 1)](*arguments, *constants.values())


_gather = _Launcher(_gather_kernel)
_gather_heavy = _Launcher(_gather_heavy_kernel)
_update = _Launcher(_update_kernel)
_update_gradient = _Launcher(_update_gradient_kernel)
_gate_gradient = _Launcher(_gate_gradient_kernel)


class TritonOperations:
    """`Operations` by the kernels above; all tensors are contiguous and of 32-bit floats."""

    def gather(self, table: Tensor, gates: Tensor, plan: GatherPlan, out: Tensor) -> None:
        hidden, rows = table.shape[1], len(plan.start) - 1
        columns = triton.next_power_of_2(hidden)
        _gather(
            triton.cdiv(rows, ROWS),
            table, gates, plan.start, plan.index, plan.position, plan.weight, out, rows,
            HIDDEN=hidden, GROUP=plan.group, STRIDE=plan.stride, LIGHT=LIGHT, ROWS=ROWS, COLUMNS=columns,
        )  # fmt: skip
        if len(plan.chunk_row):
            _gather_heavy(
                len(plan.chunk_row),
                table, gates, plan.chunk_start, plan.chunk_end, plan.chunk_row,
                plan.index, plan.position, plan.weight, out,
                HIDDEN=hidden, GROUP=plan.group, STRIDE=plan.stride, CHUNK=CHUNK, COLUMNS=columns,
            )  # fmt: skip

    def update(self, inputs_: Tensor, projected: Tensor, state: Tensor, out: Tensor) -> None:
        nodes, hidden = state.shape
        _update(
            triton.cdiv(nodes, ROWS), inputs_, projected, state, out, nodes,
            HIDDEN=hidden, WIDTH=projected.shape[1], ROWS=ROWS, COLUMNS=triton.next_power_of_2(hidden),
        )  # fmt: skip

    def update_gradient(self, gradient_: Tensor, state: Tensor, gates_: Tensor, projected_: Tensor) -> None:
        nodes, hidden = state.shape
        _update_gradient(
            triton.cdiv(nodes, ROWS), gradient_, state, gates_, projected_, nodes,
            HIDDEN=hidden, WIDTH=projected_.shape[1], ROWS=ROWS, COLUMNS=triton.next_power_of_2(hidden),
        )  # fmt: skip

    def message_gradient(
        self, lines_: Tensor, gradient: Tensor, gates: Tensor, edges: Edges, d_gates_: Tensor
    ) -> None:
        plan, hidden = edges.by_position, gradient.shape[1]
        assert plan is not None
        assert edges.outgoing is not None
        if len(plan.chunk_position):
            _gate_gradient(
                len(plan.chunk_position),
                lines_, gradient, plan.line, plan.target, plan.weight, plan.chunk_start, plan.chunk_position,
                d_gates_, HIDDEN=hidden, TILE=TILE, COLUMNS=triton.next_power_of_2(hidden),
            )  # fmt: skip
        self.gather(gradient, gates, edges.outgoing, lines_)
