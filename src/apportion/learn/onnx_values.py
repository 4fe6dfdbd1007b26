"""Writing an ONNX file as one writes arithmetic: working with a graph's values adds its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPERATORS = {"": 17, "ai.onnx.ml": 3}
"Sets of operators and their versions: those of ONNX 1.12, which runtimes have known since 2022."
IR_VERSION = 8
DOUBLE, FLOAT, INTEGER = TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT64
"Types of arrays."


def input_or_output(name: str, kind: int, shape: Sequence[int | str]) -> Any:
    """An array that a file takes or gives; a dimension that is free has a name."""
    return helper.make_tensor_value_info(name, kind, list(shape))


class OnnxGraph:
    """Operators and constants in the order in which they were added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.kept: list[Any] = []

    def add(
        self, operator: str, *operands: OnnxValue, named: str | None = None, **settings: Any
    ) -> OnnxValue:
        """One operator; what it gives."""
        return self.add_several(operator, *operands, names=[named or f"v{len(self.nodes)}"], **settings)[0]

    def add_several(
        self, operator: str, *operands: OnnxValue, names: Sequence[str], **settings: Any
    ) -> list[OnnxValue]:
        """One operator that gives several values."""
        self.nodes.append(helper.make_node(operator, [one.name for one in operands], names, **settings))
        return [OnnxValue(self, name) for name in names]

    def given(self, name: str) -> OnnxValue:
        """An input of the file."""
        return OnnxValue(self, name)

    def constant(self, array: NDArray[Any]) -> OnnxValue:
        """An array that is part of the file."""
        name = f"c{len(self.kept)}"
        self.kept.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return OnnxValue(self, name)

    def join(self, *parts: OnnxValue) -> OnnxValue:
        """Columns side by side."""
        return self.add("Concat", *parts, axis=1)

    def written(
        self,
        name: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        metadata: Mapping[str, str],
        words: str,
    ) -> bytes:
        """The file, checked; inputs and outputs as `input_or_output` gives them."""
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.kept, doc_string=words)
        sets = [helper.make_opsetid(domain, version) for domain, version in OPERATORS.items()]
        model = helper.make_model(graph, opset_imports=sets, ir_version=IR_VERSION, producer_name="apportion")
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString(deterministic=True)
        return data


class OnnxValue:
    """What an operator gives: arithmetic with it adds operators."""

    def __init__(self, graph: OnnxGraph, name: str) -> None:
        self.graph, self.name = graph, name

    def _other(self, other: OnnxValue | float) -> OnnxValue:
        return other if isinstance(other, OnnxValue) else self.graph.constant(np.array(other, np.float64))

    def __add__(self, other: OnnxValue | float) -> OnnxValue:
        return self.graph.add("Add", self, self._other(other))

    def __sub__(self, other: OnnxValue | float) -> OnnxValue:
        return self.graph.add("Sub", self, self._other(other))

    def __mul__(self, other: OnnxValue | float) -> OnnxValue:
        return self.graph.add("Mul", self, self._other(other))

    def __truediv__(self, other: OnnxValue | float) -> OnnxValue:
        return self.graph.add("Div", self, self._other(other))

    def __matmul__(self, other: OnnxValue) -> OnnxValue:
        return self.graph.add("MatMul", self, other)

    def taken_from(self, number: float) -> OnnxValue:
        return self.graph.add("Sub", self._other(number), self)

    def equals(self, other: OnnxValue) -> OnnxValue:
        return self.graph.add("Equal", self, other)

    def greater(self, other: OnnxValue) -> OnnxValue:
        return self.graph.add("Greater", self, other)

    def greater_or_equal(self, other: OnnxValue) -> OnnxValue:
        return self.graph.add("GreaterOrEqual", self, other)

    def at_least(self, number: float) -> OnnxValue:
        """1 where this is not below a number, else 0."""
        return self.greater_or_equal(self._other(number)).of(DOUBLE)

    def both(self, other: OnnxValue) -> OnnxValue:
        return self.graph.add("And", self, other)

    def either(self, yes: OnnxValue | float, no: OnnxValue | float) -> OnnxValue:
        """`yes` where this holds, else `no`."""
        return self.graph.add("Where", self, self._other(yes), self._other(no))

    def unlike(self) -> OnnxValue:
        return self.graph.add("Not", self)

    def size(self) -> OnnxValue:
        return self.graph.add("Abs", self)

    def root(self) -> OnnxValue:
        return self.graph.add("Sqrt", self)

    def clipped(self, low: float, high: float) -> OnnxValue:
        return self.graph.add("Clip", self, self._other(low), self._other(high))

    def of(self, kind: int) -> OnnxValue:
        """In another type."""
        return self.graph.add("Cast", self, to=kind)

    def total(self, axis: int = 1) -> OnnxValue:
        """(N, …, 1, …)."""
        return self.graph.add("ReduceSum", self, self.graph.constant(np.array([axis])))

    def count(self) -> OnnxValue:
        """(N, 1): in how many columns this holds."""
        return self.of(DOUBLE).total()

    def least(self, axis: int = 1) -> OnnxValue:
        return self.graph.add("ReduceMin", self, axes=[axis])

    def where_least(self, axis: int = 1, *, keep: bool = True) -> OnnxValue:
        """Where the first of the smallest stands."""
        return self.graph.add("ArgMin", self, axis=axis, keepdims=int(keep))

    def columns(self, numbers: Any) -> OnnxValue:
        return self.graph.add("Gather", self, self.graph.constant(np.asarray(numbers, np.int64)), axis=1)

    def at(self, column: OnnxValue) -> OnnxValue:
        """(N, 1): of each row (N, K) the one at a column (N, 1)."""
        return self.graph.add("GatherElements", self, column, axis=1)

    def looked_up(self, where: OnnxValue) -> OnnxValue:
        """Of this array (K,), those at some places."""
        return self.graph.add("Gather", self, where, axis=0)

    def with_axis(self, axis: int) -> OnnxValue:
        return self.graph.add("Unsqueeze", self, self.graph.constant(np.array([axis])))
