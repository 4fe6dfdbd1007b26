"""Layouts of a JAX function: its how the arrays of its products, convolutions and reshapes lie in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from apportion.errors import InvalidSetting
from apportion.program import wire
from apportion.program.hlo.jax import Spec, jax, text_of
from apportion.program.hlo.module import CONFIGURABLE

_KINDS = {"dot_general": "dot", "conv_general_dilated": "convolution", "reshape": "reshape"}
_PRIMITIVES = tuple(_KINDS)
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}

Orders = tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[int, ...] | None]
"Of result, first and second operand: dimensions from the one that varies slowest; None leaves it to XLA."


class Constrained:
    """A function whose configurable nodes are known, and can be given layouts."""

    def __init__(self, function: Callable[..., Any], specs: Sequence[Spec]) -> None:
        self._package = jax()
        shapes = [self._package.ShapeDtypeStruct(dims, element) for dims, element in specs]
        try:
            self._traced = self._package.make_jaxpr(function)(*shapes)
        except Exception as error:  # whatever a user's function raises while it is traced
            first = (str(error).strip().splitlines() or [""])[0]
            given = ", ".join(text_of(spec) for spec in specs)
            problem = f"{type(error).__name__}: {first}"
            raise InvalidSetting(
                f"The function cannot be called with {given or 'no argument'}: {problem}"
            ) from error
        self.ranks: list[tuple[int, int, int]] = []
        "Of each configurable node: dimensions of its result, first and second operand; 0 for none."
        self.kinds: list[str] = []
        "Of each configurable node: dot, convolution or reshape."
        self._orders: Sequence[Orders] | None = None
        self._package.eval_shape(self.with_layouts(None), *shapes)

    def with_layouts(self, orders: Sequence[Orders] | None) -> Callable[..., Any]:
        """The function with these layouts, one for each node; None for XLA's own choice."""

        def run(*arguments: Any) -> Any:
            self.ranks, self.kinds, self._orders = [], [], orders
            return self._evaluated(self._traced.jaxpr, self._traced.consts, arguments)[0]

        return run

    def _evaluated(self, program: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(program.constvars, constants, strict=True))
        values |= zip(program.invars, arguments, strict=True)

        def value(atom: Any) -> Any:
            return atom.val if hasattr(atom, "val") else values[atom]

        for equation in program.eqns:
            given = [value(atom) for atom in equation.invars]
            name = equation.primitive.name
            if name in _CALLS:
                inner = equation.params[_CALLS[name]]
                results = self._evaluated(inner.jaxpr, inner.consts, given)
            elif name in _PRIMITIVES:
                results = [self._node(equation, given)]
            else:
                results = self._bound(equation, given)
            values |= zip(equation.outvars, results, strict=True)
        return [value(atom) for atom in program.outvars]

    def _node(self, equation: Any, given: list[Any]) -> Any:
        number = len(self.ranks)
        result_rank = len(equation.outvars[0].aval.shape)
        ranks = [result_rank, *(len(one.shape) for one in given[:2])]
        first, second, third = [*ranks, 0, 0][:3]
        self.ranks.append((first, second, third))
        self.kinds.append(_KINDS[equation.primitive.name])
        orders = (None, None, None) if self._orders is None else self._orders[number]
        with self._package.named_scope(f"configurable{number}"):
            given = [self._lying(one, order) for one, order in zip(given, orders[1:], strict=False)] + given[
                2:
            ]
            (result,) = self._bound(equation, given)
        return self._lying(result, orders[0])

    def _lying(self, array: Any, order: tuple[int, ...] | None) -> Any:
        if order is None:
            return array
        layout = import_module("jax.experimental.layout")
        return layout.with_layout_constraint(array, layout.Layout(major_to_minor=order))

    @staticmethod
    def _bound(equation: Any, given: list[Any]) -> list[Any]:
        found = equation.primitive.bind(*given, **equation.params)
        return list(found) if equation.primitive.multiple_results else [found]


def configurable_nodes(module: bytes) -> list[int]:
    """Which nodes of a module's graph the configurable ones are, in the order in which they were traced."""
    found: dict[int, int] = {}
    node = -1
    for _, computation in (field for field in wire.fields(module) if field[0] == 3):
        assert isinstance(computation, bytes)
        for kind, instruction in wire.fields(computation):
            if kind != 2 or not isinstance(instruction, bytes):
                continue
            node += 1
            parts = dict(wire.fields(instruction))
            opcode, metadata = parts.get(2, b""), parts.get(7, b"")
            assert isinstance(opcode, bytes)
            assert isinstance(metadata, bytes)
            scope = re.search(rb"configurable(\d+)/", bytes(dict(wire.fields(metadata)).get(2, b"")))
            if scope and opcode.decode() in CONFIGURABLE:
                found[int(scope[1])] = node
    return [found[number] for number in sorted(found)]
