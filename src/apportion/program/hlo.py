"""XLA's HLO as TpuGraphs sees it: opcodes, 140 features for each instruction, edges, segments.

A serialized HloModuleProto is read without TensorFlow or XLA; fields that features do not need are passed
over. An instruction is a node, in the order of the module. It consumes its operands, and the roots of the
computations that it calls. The features are those of the published extractor:

      0       whether it is the root of its computation
      2–20    the element type, as indicators (1 is always 0)
     21–29    the shape: six dimensions, their sum and product, and the number of a tuple's parts
     30       the number of a parameter
     31–36    dimensions that are transposed, broadcast, reduced …
     37–92    the window: size, stride, padding low and high, dilation of window and base, reversal
     93–106   dimension numbers of a convolution
    107–108   feature and batch group counts
    109–124   slices: start, stride, limit; sizes of a dynamic slice
    125–132   padding low and high
    133       whether a sort is stable
    134–139   the layout, minor to major

Sequences are padded with 0; the sum of none is 0, the product of none 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import MalformedInput
from apportion.program import wire

FEATURES = 140
_NAMES = (
    "abs add add-dependency after-all all-reduce all-to-all atan2 batch-norm-grad batch-norm-inference "
    "batch-norm-training bitcast bitcast-convert broadcast call ceil cholesky clamp collective-permute "
    "count-leading-zeros compare complex concatenate conditional constant convert convolution copy "
    "copy-done copy-start cosine custom-call divide domain dot dynamic-slice dynamic-update-slice "
    "exponential exponential-minus-one fft floor fusion gather get-dimension-size set-dimension-size "
    "get-tuple-element imag infeed iota is-finite log log-plus-one and not or xor map maximum minimum "
    "multiply negate outfeed pad parameter partition-id popcnt power real recv recv-done reduce "
    "reduce-precision reduce-window remainder replica-id reshape reverse rng rng-get-and-update-state "
    "rng-bit-generator round-nearest-afz rsqrt scatter select select-and-scatter send send-done "
    "shift-left shift-right-arithmetic shift-right-logical sign sine slice sort sqrt subtract tanh trace "
    "transpose triangular-solve tuple tuple-select while cbrt all-gather collective-permute-start "
    "collective-permute-done logistic dynamic-reshape all-reduce-start all-reduce-done reduce-scatter "
    "all-gather-start all-gather-done opt-barrier async-start async-update async-done round-nearest-even "
    "stochastic-convert tan"
)
OPCODES: Mapping[str, int] = {name: number for number, name in enumerate(_NAMES.split(), 1)}
"The published numbers of opcodes; 0 stands for one that has none."

CONFIGURABLE = ("convolution", "dot", "reshape")
"Opcodes whose layouts a configuration may choose."

_ELEMENT_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
"XLA's PrimitiveType in the order of the indicators: invalid, pred, s8 … u64, f16 … f64, bf16, c64 …"

_SEGMENT_WORDS = (b"cluster", b"while", b"cond")
"What the name of a computation has that ends a segment of the graph."


@dataclass(frozen=True, eq=False)
class HloGraph:
    """The graph of an HLO module. N instructions, E edges."""

    name: str
    node_opcode: NDArray[np.uint8]  # (N,)
    node_feat: NDArray[np.float32]  # (N, 140)
    edge_index: NDArray[np.int64]  # (E, 2): consumer, producer; sorted
    node_splits: NDArray[np.int64]  # (S,): where the segments begin, and N
    unknown_opcodes: tuple[str, ...]
    "Opcodes that have no published number."

    @property
    def configurable(self) -> NDArray[np.int64]:
        """The nodes whose opcode is one of `CONFIGURABLE`."""
        return np.flatnonzero(np.isin(self.node_opcode, [OPCODES[name] for name in CONFIGURABLE]))


def graph_of_hlo(module: bytes, *, name: str = "<input>") -> HloGraph:
    """The graph of a serialized HloModuleProto, or of an HloProto around one.

    Raises:
        MalformedInput: it is cut short or is no module; the message carries the name.
    """
    try:
        return _graph(module)
    except (MalformedInput, UnicodeDecodeError, OverflowError, TypeError) as error:
        problem = error.message if isinstance(error, MalformedInput) else str(error)
        raise MalformedInput(f"This is no HLO module, or it was cut short: {problem}", file=name) from error


def _graph(data: bytes) -> HloGraph:
    fields = list(wire.fields(data))
    inside = dict(fields).get(1)
    if isinstance(inside, bytes) and all(number != 3 for number, _ in fields):
        fields = list(wire.fields(inside))  # an HloProto, which has the module in its field 1
    name = b""
    opcodes: list[bytes] = []
    rows: list[NDArray[np.float32]] = []
    index: dict[int, int] = {}
    consumed: list[tuple[int, list[int], list[int]]] = []
    roots: dict[int, int] = {}
    splits = [0]
    shapes: dict[bytes, NDArray[np.float32]] = {}
    for number, value in fields:
        if number == 1 and isinstance(value, bytes):
            name = value
        if number != 3 or not isinstance(value, bytes):
            continue
        inner = list(wire.fields(value))
        known = dict(inner)
        root = _number(known.get(6, 0))
        roots[_number(known.get(5, 0))] = root
        for kind, instruction in inner:
            if kind == 2 and isinstance(instruction, bytes):
                parts = _collected(instruction)
                identity = _one(parts, 35)
                index[identity] = len(opcodes)
                opcodes.append(_bytes(parts, 2))
                shape = _bytes(parts, 3)
                if shape not in shapes:  # a module has few different shapes
                    shapes[shape] = _shape_features(_collected(shape))
                rows.append(_features(parts, shapes[shape], identity == root))
                consumed.append((identity, _list(parts, 36), _list(parts, 38)))
        title = known.get(1, b"")
        if isinstance(title, bytes) and any(word in title for word in _SEGMENT_WORDS):
            splits.append(len(opcodes))
    if not rows:
        raise MalformedInput("it has no instructions")
    if splits[-1] < len(opcodes):
        splits.append(len(opcodes))
    texts = [opcode.decode() for opcode in opcodes]
    return HloGraph(
        name.decode("utf-8", "surrogateescape"), np.array([OPCODES.get(text, 0) for text in texts], np.uint8),
        np.stack(rows), _edges(consumed, index, roots), np.array(splits, np.int64),
        tuple(sorted({text for text in texts if text not in OPCODES})),
    )  # fmt: skip


def _edges(
    consumed: Sequence[tuple[int, list[int], list[int]]], index: Mapping[int, int], roots: Mapping[int, int]
) -> NDArray[np.int64]:
    pairs = []
    for identity, operands, called in consumed:
        try:
            ends = [*set(operands), *(roots[computation] for computation in called)]
            pairs += [(index[identity], index[end]) for end in ends]
        except KeyError as error:
            raise MalformedInput(
                f"instruction {identity} uses {error}, which is not in the module"
            ) from error
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


Parts = dict[int, list[int | bytes]]


def _shape_features(shape: Parts) -> NDArray[np.float32]:
    """A row with what the shape says, and nothing else."""
    row = np.zeros(FEATURES, np.float32)
    row[_EMPTY_PRODUCTS] = 1
    element = _one(shape, 2)
    row[2:21] = [element == kind for kind in _ELEMENT_TYPES]
    _sequence(row, 21, 6, _list(shape, 3))
    row[29] = len(shape.get(4, ()))
    if 5 in shape:
        _leading(row, 134, 6, _list(_collected(_bytes(shape, 5)), 1))
    return row


def _features(parts: Parts, shape: NDArray[np.float32], is_root: bool) -> NDArray[np.float32]:
    row = shape.copy()
    row[0] = is_root
    for place, field in ((30, 9), (107, 50), (108, 58), (133, 60)):
        if field in parts:
            row[place] = _one(parts, field)
    _leading(row, 31, 6, _list(parts, 14))
    if 15 in parts:
        dimensions = _messages(_collected(_bytes(parts, 15)), 1)
        for place, field in enumerate(range(1, 7)):
            _sequence(row, 37 + 8 * place, 6, [_one(dimension, field) for dimension in dimensions])
        reversed_ = [_one(dimension, 7) for dimension in dimensions]
        _leading(row, 85, 6, reversed_)
        row[91], row[92] = sum(reversed_), len(reversed_) - sum(reversed_)
    if 16 in parts:
        numbers = _collected(_bytes(parts, 16))
        row[93], row[94] = _one(numbers, 7), _one(numbers, 8)
        _leading(row, 95, 4, _list(numbers, 11))
        row[99], row[100] = _one(numbers, 3), _one(numbers, 4)
        _leading(row, 101, 4, _list(numbers, 6))
        row[105], row[106] = _one(numbers, 9), _one(numbers, 10)
    if 17 in parts:
        slices = _messages(parts, 17)
        for place, field in ((109, 1), (113, 3), (117, 2)):
            _sequence(row, place, 2, [_one(piece, field) for piece in slices])
    _sequence(row, 121, 2, _list(parts, 20))
    if 21 in parts:
        paddings = _messages(_collected(_bytes(parts, 21)), 1)
        for place, field in ((125, 1), (129, 2)):
            _sequence(row, place, 2, [_one(padding, field) for padding in paddings])
    return row


_EMPTY_PRODUCTS = [28, *range(44, 85, 8), 112, 116, 120, 124, 128, 132]
"Where the product of a sequence stands that an instruction may not have."


def _leading(row: NDArray[np.float32], place: int, count: int, values: Sequence[int]) -> None:
    if values:
        kept = values[:count]
        row[place : place + len(kept)] = kept


def _sequence(row: NDArray[np.float32], place: int, count: int, values: Sequence[int]) -> None:
    """The first values, then their sum and product."""
    if values:
        _leading(row, place, count, values)
        row[place + count] = sum(values)
        row[place + count + 1] = math.prod(values)


def _collected(data: bytes) -> Parts:
    parts: Parts = {}
    for number, value in wire.fields(data):
        parts.setdefault(number, []).append(value)
    return parts


def _messages(parts: Parts, number: int) -> list[Parts]:
    return [_collected(value) for value in parts.get(number, ()) if isinstance(value, bytes)]


def _list(parts: Parts, number: int) -> list[int]:
    """The numbers of a repeated field, packed or not."""
    values: list[int] = []
    for value in parts.get(number, ()):
        values += wire.varints(value) if isinstance(value, bytes) else [wire.signed(value)]
    return values


def _one(parts: Parts, number: int) -> int:
    return _number(parts[number][-1]) if number in parts else 0


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise MalformedInput("a text stands where a number should")
    return wire.signed(value)


def _bytes(parts: Parts, number: int) -> bytes:
    value = parts[number][-1] if number in parts else b""
    if not isinstance(value, bytes):
        raise MalformedInput("a number stands where a text or a message should")
    return value
