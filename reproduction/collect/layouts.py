"""Layouts on this CPU: products, convolutions and reshapes of JAX programs are told how arrays lie in memory.

A configuration gives every configurable node a layout for its result and for its first two operands; XLA
makes copies where two nodes disagree. The function is traced once, and again from that with constraints.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, NoDevice, UnknownName
from apportion.learn.ranking.recorded_runs import GraphRuns
from apportion.learn.ranking.unmeasured import layout_features
from apportion.measure.counters.collect import this_system
from apportion.program.hlo.jax import Spec, hlo_of, jax, text_of
from apportion.program.hlo.layouts import Constrained, Orders, configurable_nodes
from apportion.program.hlo.module import graph_of_hlo
from reproduction.collect.base import Collected, CollectOptions

FOLDER = Path("layout/xla/random/train")
_LEAST_ROUNDS = 4
_CALL_SECONDS = 2e-3
"What is timed together takes at least so long."
_TOLERANCE = 1e-3


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]]:
    """The programs that are measured, with what they are called with."""
    package = jax()
    np_, nn, lax = package.numpy, package.nn, package.lax

    def perceptron(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = nn.relu(x @ weight)
        return x.reshape(x.shape[0], 8, -1).sum(1)

    def convolutions(x: Any, first: Any, second: Any, head: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = nn.relu(lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=numbers))
        x = nn.relu(lax.conv_general_dilated(x, second, (2, 2), "SAME", dimension_numbers=numbers))
        return x.reshape(x.shape[0], -1) @ head

    def attention(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
        heads, width = 4, wq.shape[1] // 4
        q, k, v = ((x @ w).reshape(x.shape[0], heads, width) for w in (wq, wk, wv))
        score = np_.einsum("shd,thd->hst", q, k)
        share = np_.exp(score - score.max(-1, keepdims=True))
        return np_.einsum("hst,thd->shd", share / share.sum(-1, keepdims=True), v).reshape(x.shape[0], -1)

    def floats(*shapes: tuple[int, ...]) -> tuple[Spec, ...]:
        return tuple((shape, "float32") for shape in shapes)

    return {
        "perceptron.B256": (perceptron, floats((256, 256), (256, 512), (512, 512), (512, 256))),
        "convolutions.B4": (convolutions, floats((4, 16, 16, 8), (3, 3, 8, 16), (3, 3, 16, 32), (2048, 10))),
        "attention.S128": (attention, floats((128, 256), (256, 256), (256, 256), (256, 256))),
    }


def collect(folder: Path, options: CollectOptions) -> Iterator[Collected]:
    """Measure what is not measured, program by program.

    Raises:
        UnknownName: no program is called so.
        MissingPackage: JAX is not installed.
    """
    known = programs()
    names = [*known, *(name.partition(".")[0] for name in known)]
    for wanted in options.graphs:
        if wanted not in names:
            raise UnknownName("program", wanted, names)
    for name, (function, specs) in options.in_time(known.items()):
        if options.wants(name.partition(".")[0], name) and not (folder / FOLDER / f"{name}.npz").exists():
            yield _measured(folder, name, function, specs, options)


def _measured(
    folder: Path, name: str, function: Callable[..., Any], specs: tuple[Spec, ...], options: CollectOptions
) -> Collected:
    start = time.monotonic()
    package = jax()
    device = package.devices()[0]
    if device.platform != "cpu":
        raise NoDevice(f"JAX runs on {device.platform}; layouts are measured on a CPU: set JAX_PLATFORMS=cpu")
    program = Constrained(function, specs)
    module = hlo_of(program.with_layouts(None), specs)
    nodes = configurable_nodes(module)
    ranks = program.ranks
    if len(nodes) != len(ranks):
        raise InvalidSetting(
            f"{name}: {len(ranks)} nodes are configurable, but the module has {len(nodes)} of them"
        )
    random = np.random.default_rng(options.seed)
    every: list[list[Orders]] = [[_major(triple) for triple in ranks]]
    seen = {repr(every[0])}
    for _ in range(50 * options.configurations):
        if len(every) == options.configurations:
            break
        drawn = [_drawn(triple, random) for triple in ranks]
        if repr(drawn) not in seen:
            seen.add(repr(drawn))
            every.append(drawn)
    arrays = [package.device_put(random.standard_normal(dims, np.float32), device) for dims, _ in specs]
    wanted = np.asarray(package.jit(program.with_layouts(None))(*arrays))
    compiled, failed = {}, {}
    for index, orders in enumerate(every):
        ready = package.jit(program.with_layouts(orders)).lower(*arrays).compile()
        off = float(np.linalg.norm(np.asarray(ready(*arrays)) - wanted) / np.linalg.norm(wanted))
        if off <= _TOLERANCE:
            compiled[index] = ready
        else:
            failed[index] = f"wrong result: relative error {off:.3g}"
    right = list(compiled)
    repeats = _rounds([compiled[index] for index in right], arrays, options)
    names = tuple(f"node{node}.{part}" for node in nodes for part in ("result", "first", "second"))
    runs = GraphRuns(
        name, f"{this_system().description['processor']} (XLA)", names,
        np.stack([_codes(every[index]) for index in right]), repeats,
        np.zeros((len(right), 0), np.float32), right.index(0) if 0 in right else -1,
        np.array([_codes(every[index]) for index in failed], np.int64).reshape(-1, len(names)),
        tuple(failed.values()), operands=tuple(text_of(spec) for spec in specs),
    )  # fmt: skip
    runs.write_layout(
        folder / FOLDER / f"{name}.npz", graph_of_hlo(module, name=name), np.array(nodes, np.int64),
        np.stack([layout_features(every[index]) for index in right]),
    )  # fmt: skip
    runs.write(folder / "runs" / f"{name}.npz")
    return Collected(name, len(right), len(failed), repeats.shape[1], time.monotonic() - start)


def _major(ranks: tuple[int, int, int]) -> Orders:
    first, second, third = (tuple(range(rank)) or None for rank in ranks)
    return first, second, third


def _drawn(ranks: tuple[int, int, int], random: np.random.Generator) -> Orders:
    first, second, third = (tuple(random.permutation(rank).tolist()) or None for rank in ranks)
    return first, second, third


def _codes(orders: Sequence[Orders]) -> NDArray[np.int64]:
    """Each order's number among all of its dimensions; 0 for none."""
    return np.array(
        [
            0 if order is None else list(itertools.permutations(range(len(order)))).index(order)
            for triple in orders
            for order in triple
        ],
        np.int64,
    )


def _rounds(compiled: Sequence[Any], arrays: Sequence[Any], options: CollectOptions) -> NDArray[np.int64]:
    random = np.random.default_rng(options.seed)
    start = time.perf_counter()
    compiled[0](*arrays).block_until_ready()
    calls = max(1, round(_CALL_SECONDS / (time.perf_counter() - start)))
    rounds: list[NDArray[np.float64]] = []
    begin = time.monotonic()
    for number in range(options.rounds):
        times = np.zeros(len(compiled))
        for index in random.permutation(len(compiled)):
            start = time.process_time()  # of all its threads: the turns of other programs do not count
            for _ in range(calls):
                compiled[index](*arrays).block_until_ready()
            times[index] = (time.process_time() - start) / calls
        rounds.append(times)
        spent = time.monotonic() - begin
        if number + 1 >= _LEAST_ROUNDS and spent * (number + 2) / (number + 1) > options.seconds:
            break
    return np.maximum(np.array(rounds).T * 1e9, 1).round().astype(np.int64)
