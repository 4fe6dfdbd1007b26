"""Examples for training and testing, out of a data-flow store."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from apportion.data.batch import Examples, pack
from apportion.data.store import DataflowStore, Split
from apportion.errors import InvalidSetting


def examples_of(
    store: DataflowStore,
    task: str,
    split: Split,
    *,
    steps_limit: int = 30,
    nodes_limit: int = 40_000,
    most: int = 0,
    seed: int = 0,
    sources: Collection[str] = (),
) -> Examples:
    """The instances of a task on one side of the split, their graphs packed once each.

    Args:
        most: at most this many, drawn by the seed; 0 for all.
        sources: only graphs of these corpora; of all when there is none.

    Raises:
        InvalidSetting: there is none.
    """
    drawn = drawn_instances(
        store, task, split, steps_limit=steps_limit, nodes_limit=nodes_limit, most=most, seed=seed,
        sources=sources,
    )  # fmt: skip
    return packed_examples(store, drawn)


def drawn_instances(
    store: DataflowStore,
    task: str,
    split: Split,
    *,
    steps_limit: int,
    nodes_limit: int,
    most: int = 0,
    seed: int = 0,
    sources: Collection[str] = (),
) -> NDArray[np.int64]:
    """The numbers in the store of what `examples_of` packs."""
    chosen: NDArray[np.int64] = store.instances(
        task, split, max_steps=steps_limit, max_nodes=nodes_limit, sources=sources
    )
    if most and len(chosen) > most:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, most, replace=False))
    if len(chosen) == 0:
        raise InvalidSetting(
            f"{store.folder} has no {split} example of {task} with at most {steps_limit} steps and "
            f"{nodes_limit} nodes. Raise the limits, or build the store from a larger corpus."
        )
    return chosen


def packed_examples(store: DataflowStore, numbers: NDArray[np.int64]) -> Examples:
    """These instances of a store; graphs are packed in the order of their numbers in it."""
    instances = [store.instance(int(number)) for number in numbers]
    graphs, graph = np.unique([instance.graph for instance in instances], return_inverse=True)
    return Examples(
        pack(store.graph(int(number)) for number in graphs),
        graph.astype(np.int64),
        np.array([instance.root for instance in instances], np.int64),
        np.array([instance.steps for instance in instances], np.int64),
        np.concatenate([instance.labels for instance in instances]).astype(np.uint8),
        store.sources[graphs],
    )
