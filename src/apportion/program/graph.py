"""ProgramGraph: a program as arrays of nodes and edges, immutable, checking itself.

Nodes are instructions, variables, constants and (in some variants) types; edges are control, data and call
flow (and type). Letters for shapes: N nodes, E edges, S strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from apportion import _native
from apportion.errors import InvalidGraph

Features = Mapping[str, Any]
NO_TEXT = -1
"The `node_full_text` of a node that has none (the root)."


class NodeType(IntEnum):
    """What a node stands for."""

    INSTRUCTION = 0
    VARIABLE = 1
    CONSTANT = 2
    TYPE = 3


class Flow(IntEnum):
    """What flows along an edge."""

    CONTROL = 0
    DATA = 1
    CALL = 2
    TYPE = 3


@dataclass(frozen=True, eq=False)
class StringTable(Sequence[str]):
    """Many strings in one block of bytes: string i is `data[offsets[i]:offsets[i + 1]]`, UTF-8."""

    data: NDArray[np.uint8]  # (bytes,)
    offsets: NDArray[np.int64]  # (S + 1,)

    def __post_init__(self) -> None:
        _of_kind("A string table's data", self.data, np.uint8)
        _of_kind("A string table's offsets", self.offsets, np.int64)
        offsets = self.offsets
        if (
            self.data.ndim != 1
            or offsets.ndim != 1
            or len(offsets) == 0
            or offsets[0] != 0
            or offsets[-1] != len(self.data)
        ):
            raise InvalidGraph("A string table's offsets must run from 0 to the length of its data")
        if not _native.never_falls(offsets):
            raise InvalidGraph("A string table's offsets must not fall")
        _freeze(self.data, offsets)

    @classmethod
    def of(cls, strings: Sequence[str]) -> StringTable:
        """A table of these strings, in this order."""
        encoded = [text.encode("utf-8", "surrogateescape") for text in strings]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8).copy(), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"string {index} of {len(self)}")
        index %= len(self)
        return self._text(int(self.offsets[index]), int(self.offsets[index + 1]))

    def chosen(self, numbers: NDArray[np.integer[Any]]) -> list[str]:
        """The strings with these numbers, many at once."""
        blob = self.data.tobytes()
        starts, ends = self.offsets[numbers].tolist(), self.offsets[numbers + 1].tolist()
        return [
            blob[start:end].decode("utf-8", "surrogateescape")
            for start, end in zip(starts, ends, strict=True)
        ]

    def __iter__(self) -> Iterator[str]:
        bounds = self.offsets.tolist()
        blob = self.data.tobytes()
        for start, end in pairwise(bounds):
            yield blob[start:end].decode("utf-8", "surrogateescape")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StringTable):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return StringTable, (self.data, self.offsets)  # built anew, so that it arrives frozen

    def _text(self, start: int, end: int) -> str:
        return self.data[start:end].tobytes().decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Function:
    """A function of the program, defined or declared."""

    name: str
    features: Features = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """The translation unit that the program came from."""

    name: str
    features: Features = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ProgramGraph:
    """A program as a graph.

    Two graphs are equal when all their arrays, texts, functions and modules are: node order counts.
    """

    node_type: NDArray[np.uint8]  # (N,) NodeType
    node_text: NDArray[np.int32]  # (N,) index into `strings`
    node_full_text: NDArray[np.int32]  # (N,) index into `strings`, NO_TEXT where there is none
    node_function: NDArray[np.int32]  # (N,)
    node_block: NDArray[np.int32]  # (N,) basic block, counted over the module
    edge_flow: NDArray[np.uint8]  # (E,) Flow
    edge_position: NDArray[np.int32]  # (E,) operand or successor number
    edges: NDArray[np.int32]  # (2, E): source, target
    strings: StringTable
    functions: tuple[Function, ...] = ()
    modules: tuple[Module, ...] = ()
    node_features: Mapping[int, Features] = field(default_factory=dict)
    "Profile features (branch weights) of the few nodes that have any."

    def __post_init__(self) -> None:
        object.__setattr__(self, "node_features", MappingProxyType(dict(self.node_features)))
        self._check()
        _freeze(
            self.node_type, self.node_text, self.node_full_text, self.node_function, self.node_block,
            self.edge_flow, self.edge_position, self.edges,
        )  # fmt: skip

    @property
    def nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.node_type)

    @property
    def size(self) -> tuple[int, int]:
        """(N, E)."""
        return self.nodes, self.edges.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays, strings apart."""
        return sum(
            array.nbytes
            for array in (
                self.node_type, self.node_text, self.node_full_text, self.node_function, self.node_block,
                self.edge_flow, self.edge_position, self.edges,
            )
        )  # fmt: skip

    def text(self, node: int) -> str:
        """The text of a node: an opcode, or the type of a variable or constant."""
        return self.strings[int(self.node_text[node])]

    def full_text(self, node: int) -> str | None:
        """The node as printed in the program, or None."""
        index = int(self.node_full_text[node])
        return None if index == NO_TEXT else self.strings[index]

    def texts(self) -> list[str]:
        """The texts of all nodes, in order."""
        distinct, inverse = np.unique(self.node_text, return_inverse=True)
        known = [self.strings[int(i)] for i in distinct]
        return [known[i] for i in inverse.tolist()]

    def full_texts(self) -> list[str | None]:
        """The full texts of all nodes, in order."""
        strings = list(self.strings)
        return [None if i == NO_TEXT else strings[i] for i in self.node_full_text.tolist()]

    def edges_of(self, flow: Flow) -> NDArray[np.int32]:
        """(2, E of that flow): source, target."""
        return self.edges[:, self.edge_flow == flow]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProgramGraph):
            return NotImplemented
        arrays = ("node_type", "node_function", "node_block", "edge_flow", "edge_position", "edges")
        return (
            all(np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays)
            and self.functions == other.functions
            and self.modules == other.modules
            and self.node_features == other.node_features
            and self.texts() == other.texts()
            and self.full_texts() == other.full_texts()
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and pickled arrays come back writeable: build the graph anew.
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["node_features"] = dict(self.node_features)
        return ProgramGraph, tuple(values.values())

    def _check(self) -> None:
        for name in ("node_type", "edge_flow"):
            _of_kind(name, getattr(self, name), np.uint8)
        for name in (
            "node_text", "node_full_text", "node_function", "node_block", "edge_position", "edges",
        ):  # fmt: skip
            _of_kind(name, getattr(self, name), np.int32)
        if self.node_type.ndim != 1 or self.edge_flow.ndim != 1:
            raise InvalidGraph("node_type and edge_flow must have one dimension")
        n, e = len(self.node_type), len(self.edge_flow)
        for name in ("node_text", "node_full_text", "node_function", "node_block"):
            if getattr(self, name).shape != (n,):
                raise InvalidGraph(f"{name} has shape {getattr(self, name).shape}, not ({n},) as node_type")
        if self.edge_position.shape != (e,) or self.edges.shape != (2, e):
            raise InvalidGraph(
                f"edge_position {self.edge_position.shape} and edges {self.edges.shape} "
                f"must be ({e},) and (2, {e}) as edge_flow"
            )
        s = len(self.strings)
        _within("node_type", self.node_type, 0, len(NodeType))
        _within("edge_flow", self.edge_flow, 0, len(Flow))
        _within("node_text", self.node_text, 0, s)
        _within("node_full_text", self.node_full_text, NO_TEXT, s)
        _within("node_block", self.node_block, 0, None)
        _within("node_function", self.node_function, 0, max(len(self.functions), 1))
        _within("edge_position", self.edge_position, 0, None)
        _within("edges", self.edges, 0, n)
        if any(not 0 <= node < n for node in self.node_features):
            raise InvalidGraph(f"node_features speaks of a node that is not among the {n} there are")


def _of_kind(name: str, values: NDArray[Any], kind: type[np.generic]) -> None:
    if values.dtype != kind:
        raise InvalidGraph(f"{name} must hold {np.dtype(kind)}, not {values.dtype}")


def _within(name: str, values: NDArray[Any], low: int, high: int | None) -> None:
    if values.size == 0:
        return
    least, most = _native.range_of(values)
    if least < low or (high is not None and most >= high):
        bound = f"from {low}" if high is None else f"from {low} to {high - 1}"
        raise InvalidGraph(f"{name} must hold numbers {bound}, not {least if least < low else most}")


def _freeze(*arrays: NDArray[Any]) -> None:
    for array in arrays:
        array.flags.writeable = False
