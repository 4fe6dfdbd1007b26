"""Layouts of a JAX function as something to tune: configurations drawn at random, row-major the default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from apportion.advise.tuning import Tunable
from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting
from apportion.learn.ranking.unmeasured import laid_out, layout_features
from apportion.measure.space import Configuration, Space
from apportion.program.hlo.jax import Spec, hlo_of, jax
from apportion.program.hlo.layouts import Constrained, Orders, configurable_nodes
from apportion.program.hlo.module import graph_of_hlo

_PARTS = ("result", "first", "second")
ROW_MAJOR = "row-major"
_HOW_TO = (
    "To use a layout, put jax.experimental.layout.with_layout_constraint(x, Layout(major_to_minor=(1, 0))) "
    "around the result or the operand: (0, 1) is row-major, (1, 0) column-major. Nodes are numbered in the "
    "order in which the function computes them."
)


def tunable_layouts(
    function: Callable[..., Any], specs: Sequence[Spec], configurations: int, *, seed: int = 0
) -> Tunable:
    """A JAX function with the layouts of its products, convolutions and reshapes to choose.

    Args:
        function: takes one array for each spec.
        specs: what it is called with, on random data.
        configurations: how many are drawn to choose from.
        seed: draws them, and the data.

    Raises:
        InvalidSetting: nothing in the function is configurable.
        MissingPackage: JAX is not installed.
    """
    package = jax()
    program = Constrained(function, specs)
    orders = {
        f"{program.kinds[node]}.{node}.{part}": {_words(order): order for order in permutations(range(rank))}
        for node, ranks in enumerate(program.ranks)
        for part, rank in zip(_PARTS, ranks, strict=True)
        if rank > 1
    }
    if not orders:
        raise InvalidSetting(
            "There is no product, convolution or reshape in the function whose layout matters"
        )
    random = np.random.default_rng(seed)
    default = dict.fromkeys(orders, ROW_MAJOR)
    drawn: dict[tuple[str, ...], Configuration] = {tuple(default.values()): default}
    for _ in range(20 * configurations):
        if len(drawn) == configurations:
            break
        chosen = tuple(str(random.choice(list(choices))) for choices in orders.values())
        drawn.setdefault(chosen, dict(zip(orders, chosen, strict=True)))
    compiled: dict[tuple[str, ...], Any] = {}
    nodes = len(program.ranks)

    def run(*arrays: Any, **one: str) -> Any:
        key = tuple(one.values())
        if key not in compiled:
            layouts = [_orders(f"{program.kinds[node]}.{node}", orders, one) for node in range(nodes)]
            compiled[key] = package.jit(program.with_layouts(layouts)).lower(*arrays).compile()
        return compiled[key](*arrays)

    run.__name__ = getattr(function, "__name__", "function")
    arrays = tuple(random.standard_normal(dims).astype(element) for dims, element in specs)
    values = {name: tuple(choices) for name, choices in orders.items()}
    space = Space(values, drawn=tuple(drawn.values()))
    module = hlo_of(program.with_layouts(None), specs)

    def graph(configurations: Sequence[Configuration]) -> ConfiguredGraph:
        features = [
            layout_features([_orders(f"{program.kinds[node]}.{node}", orders, one) for node in range(nodes)])
            for one in configurations
        ]
        where = np.array(configurable_nodes(module), np.int64)
        if len(where) != nodes:
            raise InvalidSetting(
                f"{nodes} nodes of the function are configurable, and {len(where)} of its module"
            )
        return laid_out(run.__name__, graph_of_hlo(module, name=run.__name__), where, np.stack(features))

    return Tunable(run, space, arrays, default=default, how_to=_HOW_TO, graph=graph)


def _words(order: tuple[int, ...]) -> str:
    """An order of dimensions as people call it, the slowest varying first."""
    if order == tuple(range(len(order))):
        return ROW_MAJOR
    if order == tuple(reversed(range(len(order)))):
        return "column-major"
    return f"axes {','.join(map(str, order))}"


def _orders(node: str, orders: dict[str, dict[str, tuple[int, ...]]], one: Configuration) -> Orders:
    first, second, third = (
        orders[name][one[name]] if (name := f"{node}.{part}") in orders else None for part in _PARTS
    )
    return first, second, third
