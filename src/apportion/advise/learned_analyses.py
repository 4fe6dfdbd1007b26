"""What the shipped networks say about data flow, to stand beside the exact answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import weights
from apportion.data.artifact import read_description
from apportion.data.batch import FLOWS, Graph, pack
from apportion.errors import UnknownName
from apportion.learn import models
from apportion.program.graph import ProgramGraph
from apportion.program.vocabulary import Vocabulary

SHIPPED = weights.WEIGHTS
NODE_BUDGET = 100_000
"Nodes that one pass of the network sees, roots counted apart."


@dataclass(frozen=True, eq=False)
class LearnedRun:
    """What a network labelled from one root."""

    root: int
    labels: NDArray[np.bool_]  # (N,)


def labels_of(analysis: str) -> str:
    """The mode whose labels the shipped network of an analysis has learnt: `reference` or `exact`."""
    return str(read_description(_folder(analysis)).experiment["labels"])


def run_learned(graph: ProgramGraph, analysis: str, roots: NDArray[np.integer[Any]]) -> Iterator[LearnedRun]:
    """The network's labels from each of these roots, in their order.

    Raises:
        UnknownName: no network is shipped for the analysis.
        MissingPackage: torch is not installed.
    """
    model = _model(analysis)
    followed = graph.edge_flow < FLOWS  # type edges are no part of what was learnt
    packed = pack(
        [
            Graph(
                Vocabulary.numbered(model.vocabulary).ids(graph),
                graph.edges[:, followed],
                graph.edge_flow[followed],
                graph.edge_position[followed],
            )
        ]
    )
    at_once = max(1, NODE_BUDGET // max(1, graph.nodes))
    for start in range(0, len(roots), at_once):
        chosen = roots[start : start + at_once]
        batch = packed.batch(np.zeros(len(chosen), np.int64), chosen)
        decided = model.task.decide(model.predict(batch)).reshape(len(chosen), graph.nodes)
        for root, labels in zip(chosen.tolist(), decided.astype(bool), strict=True):
            yield LearnedRun(root, labels)


@cache
def _model(analysis: str) -> Any:
    folder = _folder(analysis)
    return models.load(read_description(folder).model).load(folder)


def _folder(analysis: str) -> Path:
    folder = SHIPPED / f"dataflow-{analysis}"
    if not folder.is_dir():
        there = [path.name.removeprefix("dataflow-") for path in SHIPPED.glob("dataflow-*")]
        raise UnknownName("learned analysis", analysis, there)
    return folder
