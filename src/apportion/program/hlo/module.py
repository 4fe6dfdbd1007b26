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

Sequences are padded with 0; the sum of none is 0, the product of none 1. Computations whose names have
"cluster", "while" or "cond" in them end a segment. The features themselves are made in native/hlo.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import MalformedInput

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
    # Imported here: a machine that only measures has no need of the extension.
    from apportion import _native

    found = _native.hlo_arrays(module, list(OPCODES))
    if isinstance(found, str):
        raise MalformedInput(f"This is no HLO module, or it was cut short: {found}", file=name)
    title, opcode, features, edges, splits, unknown = found
    try:
        names = tuple(sorted(text.decode() for text in unknown))
    except UnicodeDecodeError as error:
        raise MalformedInput(
            f"This is no HLO module: it has an opcode that is no text ({error})", file=name
        ) from error
    return HloGraph(title.decode("utf-8", "surrogateescape"), opcode, features, edges, splits, names)
