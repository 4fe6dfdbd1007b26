"""Batches poured into frames of a few fixed sizes, so that one recording of a GPU's work serves them all.

A CUDA graph replays the same work on the same tensors. A frame is such a set of tensors, somewhat larger than
the batches that go into it: what is left over are nodes without edges, edges of no row and chunks of no edge.
All its arrays have 32 bits and lie end to end, so a batch travels in one copy.

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
"A new frame is so much larger than the batch that asked for it."
WASTE = 1.6
"A batch goes into a frame of at most so many times its nodes and edges; else a new one is made."
SMALL = 256
"Nodes that do not matter: frames this small are not worth telling apart."
IN_FLIGHT = 4
"Host buffers of a frame: a copy to the GPU may still be reading from some while the next is filled."


@dataclass(frozen=True)
class Frame:
    """How much of everything there is room for."""

    nodes: int
    edges: int
    incoming_chunks: int
    outgoing_chunks: int
    position_chunks: int
    "0 when there is no room for what gradients read."

    @classmethod
    def needed(cls, arrays: Mapping[str, NDArray[Any]]) -> Frame:
        """The least frame for the arrays of a batch: those of `edge_arrays`, and `text`."""

        def length(name: str) -> int:
            return len(arrays[name]) if name in arrays else 0

        return cls(
            length("text"),
            length("incoming.index"),
            length("incoming.chunk_row"),
            length("outgoing.chunk_row"),
            length("position.chunk_position"),
        )

    def holds(self, needed: Frame) -> bool:
        """Whether a batch fits, without much left over."""
        wide = self.nodes <= WASTE * needed.nodes + SMALL and self.edges <= WASTE * needed.edges + 4 * SMALL
        same = (self.position_chunks > 0) == (needed.position_chunks > 0)
        return same and wide and all(a >= b for a, b in zip(astuple(self), astuple(needed), strict=True))

    def roomy(self) -> Frame:
        """A frame for batches like the one that needs this."""

        def more(count: int) -> int:
            return (int(count * SPARE) + 63) // 64 * 64

        values = {field.name: getattr(self, field.name) for field in fields(self)}
        grown = {name: more(value) for name, value in values.items()}
        for name in ("incoming_chunks", "outgoing_chunks"):  # these vary most between batches of one size
            grown[name] = more(2 * values[name]) + 64
        if not self.position_chunks:
            grown["outgoing_chunks"] = grown["position_chunks"] = 0
        return Frame(**grown)

    def lengths(self, names: Mapping[str, NDArray[Any]], kinds: int) -> dict[str, int]:
        """How long each array is in this frame."""
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


class FilledFrame:
    """A frame's tensors on a GPU, and the way in."""

    def __init__(
        self, frame: Frame, arrays: Mapping[str, NDArray[Any]], kinds: int, device: torch.device
    ) -> None:
        self.frame = frame
        self.lengths = frame.lengths(arrays, kinds)
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
        """Pour a batch in; what was there is gone once the GPU has done what it was told before."""
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


class Frames:
    """The frames that a model has needed so far."""

    def __init__(self, kinds: int, device: torch.device) -> None:
        self.kinds, self.device = kinds, device
        self._frames: list[FilledFrame] = []

    def pour(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[int, FilledFrame]:
        """The number of the frame that a batch went into, and the frame."""
        needed = Frame.needed(arrays)
        fitting = [
            (filled.frame.nodes, number)
            for number, filled in enumerate(self._frames)
            if filled.frame.holds(needed)
        ]
        if fitting:
            number = min(fitting)[1]
        else:
            number = len(self._frames)
            self._frames.append(FilledFrame(needed.roomy(), arrays, self.kinds, self.device))
        self._frames[number].fill(arrays)
        return number, self._frames[number]
