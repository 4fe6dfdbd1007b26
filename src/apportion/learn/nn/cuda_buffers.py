"""Batches copied into buffers of a few fixed sizes, so that one CUDA graph serves them all.

A CUDA graph replays the same work on the same tensors. These tensors, its buffers, are somewhat larger than
the batches copied into them: what is left over are nodes without edges, edges of no row, chunks of no edge.
All arrays have 32 bits and lie end to end, so a batch travels in one copy.

Letters for shapes: N nodes, E edges (both ways counted), K kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

IGNORED = -100
"The label of a node that is not there; torch's cross-entropy leaves it out."
SPARE = 1.15
"New buffers are this many times as large as the batch that asked for them."
WASTE = 1.6
"A batch goes into buffers of at most this many times its nodes and edges; else new ones are made."
SMALL = 256
"Nodes that do not matter: buffers this small are not worth telling apart."
IN_FLIGHT = 4
"Copies on the host: the GPU may still be reading from some while the next is filled."


@dataclass(frozen=True)
class BufferSizes:
    """How much of everything buffers have room for."""

    nodes: int
    edges: int
    incoming_chunks: int
    outgoing_chunks: int
    position_chunks: int
    "0 when there is no room for what gradients read."

    @classmethod
    def needed(cls, arrays: Mapping[str, NDArray[Any]]) -> BufferSizes:
        """The least room for the arrays of a batch: those of `edge_arrays`, and `text`."""

        def length(name: str) -> int:
            return len(arrays[name]) if name in arrays else 0

        return cls(
            length("text"),
            length("incoming.index"),
            length("incoming.chunk_row"),
            length("outgoing.chunk_row"),
            length("position.chunk_position"),
        )

    def holds(self, needed: BufferSizes) -> bool:
        """Whether a batch fits, without much left over."""
        wide = self.nodes <= WASTE * needed.nodes + SMALL and self.edges <= WASTE * needed.edges + 4 * SMALL
        same = (self.position_chunks > 0) == (needed.position_chunks > 0)
        return same and wide and all(a >= b for a, b in zip(astuple(self), astuple(needed), strict=True))

    def roomy(self) -> BufferSizes:
        """Room for batches like the one that needs this."""

        def more(count: int) -> int:
            return (int(count * SPARE) + 63) // 64 * 64

        values = {field.name: getattr(self, field.name) for field in fields(self)}
        grown = {name: more(value) for name, value in values.items()}
        for name in ("incoming_chunks", "outgoing_chunks"):  # these vary most between batches of one size
            grown[name] = more(2 * values[name]) + 64
        if not self.position_chunks:
            grown["outgoing_chunks"] = grown["position_chunks"] = 0
        return BufferSizes(**grown)

    def lengths(self, names: Mapping[str, NDArray[Any]], kinds: int) -> dict[str, int]:
        """How long each array is in such buffers."""
        sizes = {
            "text": self.nodes, "selected": self.nodes, "labels": self.nodes,
            "incoming.start": self.nodes + 1, "outgoing.start": self.nodes * kinds + 1,
            "position.chunk_start": self.position_chunks + 1,
            "position.chunk_position": self.position_chunks,
            **{f"incoming.chunk_{name}": self.incoming_chunks for name in ("start", "end", "row")},
            **{f"outgoing.chunk_{name}": self.outgoing_chunks for name in ("start", "end", "row")},
        }  # fmt: skip
        return {name: sizes.get(name, self.edges) for name in names}


def padding(name: str, edges: int) -> int:
    """What the rest of an array is filled with: no row, chunk or edge beyond the batch's own may be live."""
    if name == "labels":
        return IGNORED
    return edges if name in ("incoming.start", "outgoing.start", "position.chunk_start") else 0


def _aligned(lengths: Iterable[int]) -> list[int]:
    """Where each array begins, at whole 128 bytes so that a GPU may read wide; last, where all end."""
    starts = [0]
    for length in lengths:
        starts.append((starts[-1] + length + 31) // 32 * 32)
    return starts


class GraphBuffers:
    """The tensors that a CUDA graph reads, and the way in."""

    def __init__(
        self, sizes: BufferSizes, arrays: Mapping[str, NDArray[Any]], kinds: int, device: torch.device
    ) -> None:
        self.sizes = sizes
        self.lengths = sizes.lengths(arrays, kinds)
        *starts, total = _aligned(self.lengths.values())
        self._starts = dict(zip(self.lengths, starts, strict=True))
        self._words = torch.zeros(total, dtype=torch.int32, device=device)
        on_gpu = device.type == "cuda"
        buffers = IN_FLIGHT if on_gpu else 1
        self._hosts = [torch.zeros(total, dtype=torch.int32, pin_memory=on_gpu) for _ in range(buffers)]
        event: Any = torch.cuda.Event
        self._read = [event() for _ in self._hosts] if on_gpu else []
        self._turn = 0
        self.tensors: dict[str, Tensor] = {}
        for name, length in self.lengths.items():
            tensor = self._words[self._starts[name] : self._starts[name] + length]
            is_float = arrays[name].dtype == np.float32
            self.tensors[name] = tensor.view(torch.float32) if is_float else tensor

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copy a batch in; what was there is gone once the GPU has done what it was told before."""
        turn = self._turn = (self._turn + 1) % len(self._hosts)
        if self._read:
            self._read[turn].synchronize()
        words = self._hosts[turn].numpy()
        edges = len(arrays["incoming.index"])
        for name, length in self.lengths.items():
            values, start = arrays[name], self._starts[name]
            end = start + len(values)
            words[start:end] = values.view(np.int32) if values.dtype == np.float32 else values
            words[end : start + length] = padding(name, edges)
        self._words.copy_(self._hosts[turn], non_blocking=True)
        if self._read:
            self._read[turn].record()


class BufferPool:
    """The buffers that a model has needed so far."""

    def __init__(self, kinds: int, device: torch.device) -> None:
        self.kinds, self.device = kinds, device
        self._buffers: list[GraphBuffers] = []

    def fill(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[int, GraphBuffers]:
        """The number of the buffers that a batch was copied into, and the buffers."""
        needed = BufferSizes.needed(arrays)
        fitting = [
            (filled.sizes.nodes, number)
            for number, filled in enumerate(self._buffers)
            if filled.sizes.holds(needed)
        ]
        if fitting:
            number = min(fitting)[1]
        else:
            number = len(self._buffers)
            self._buffers.append(GraphBuffers(needed.roomy(), arrays, self.kinds, self.device))
        self._buffers[number].fill(arrays)
        return number, self._buffers[number]
