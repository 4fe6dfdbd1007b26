"""Layouts of a JAX function as something to tune: configurations drawn by chance, row-major the default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from apportion.advise.tuning import Tunable
from apportion.errors import InvalidSetting
from apportion.measure.space import Configuration, Space
from apportion.program.hlo.jax import Spec, jax
from apportion.program.hlo.layouts import Constrained, Orders

_PARTS = ("result", "first", "second")


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
        f"node{node}.{part}": list(permutations(range(rank)))
        for node, ranks in enumerate(program.ranks)
        for part, rank in zip(_PARTS, ranks, strict=True)
        if rank > 1
    }
    if not orders:
        raise InvalidSetting(
            "There is no product, convolution or reshape in the function whose layout matters"
        )
    random = np.random.default_rng(seed)
    default = dict.fromkeys(orders, 0)
    drawn: dict[tuple[int, ...], Configuration] = {tuple(default.values()): default}
    for _ in range(20 * configurations):
        if len(drawn) == configurations:
            break
        codes = tuple(int(random.integers(len(choices))) for choices in orders.values())
        drawn.setdefault(codes, dict(zip(orders, codes, strict=True)))
    compiled: dict[tuple[int, ...], Any] = {}
    nodes = len(program.ranks)

    def run(*arrays: Any, **one: int) -> Any:
        key = tuple(one.values())
        if key not in compiled:
            layouts = [_orders(node, orders, one) for node in range(nodes)]
            compiled[key] = package.jit(program.with_layouts(layouts)).lower(*arrays).compile()
        return compiled[key](*arrays)

    run.__name__ = getattr(function, "__name__", "function")
    arrays = tuple(random.standard_normal(dims).astype(element) for dims, element in specs)
    values = {name: tuple(range(len(choices))) for name, choices in orders.items()}
    return Tunable(run, Space(values, drawn=tuple(drawn.values())), arrays, default=default)


def _orders(node: int, orders: dict[str, list[tuple[int, ...]]], one: Configuration) -> Orders:
    first, second, third = (
        orders[name][one[name]] if (name := f"node{node}.{part}") in orders else None for part in _PARTS
    )
    return first, second, third
