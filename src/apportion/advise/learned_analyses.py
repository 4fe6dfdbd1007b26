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
from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.base import open_predictor
from apportion.learn.dataflow.analysis_predictor import NODE_BUDGET, AnalysisPredictor, AnalysisQuery
from apportion.program.graph import ProgramGraph


@dataclass(frozen=True, eq=False)
class LearnedRun:
    """What a network labelled from one root."""

    root: int
    labels: NDArray[np.bool_]  # (N,)


def labels_of(analysis: str, model: str | Path | None = None) -> str:
    """The mode whose labels the network of an analysis has learnt: `reference` or `exact`."""
    return _predictor(analysis, model).labels


def run_learned(
    graph: ProgramGraph,
    analysis: str,
    roots: NDArray[np.integer[Any]],
    *,
    model: str | Path | None = None,
) -> Iterator[LearnedRun]:
    """The network's labels from each of these roots, in their order.

    Args:
        model: the name or folder of a network; by default the one that is shipped for the analysis.

    Raises:
        UnknownName: no network is shipped for the analysis, or under that name.
        InvalidSetting: the network has learned another analysis.
    """
    predictor = _predictor(analysis, model)
    at_once = max(1, NODE_BUDGET // max(1, graph.nodes))
    for start in range(0, len(roots), at_once):
        chosen = roots[start : start + at_once].tolist()
        answers = predictor.answer([AnalysisQuery(graph, root) for root in chosen])
        for root, answer in zip(chosen, answers, strict=True):
            yield LearnedRun(root, answer.value)


@cache
def _predictor(analysis: str, model: str | Path | None) -> AnalysisPredictor:
    shipped = weights.manifest().answering("data-flow")
    if model is None:
        names = [one.name for one in shipped if one.about == analysis]
        if not names:
            raise UnknownName("learned analysis", analysis, [one.about for one in shipped])
        model = names[0]
    opened = open_predictor(model, "data-flow")
    if not isinstance(opened, AnalysisPredictor):
        raise InvalidSetting(f"{model} is a {type(opened).__name__}; a network of an analysis is needed")
    if opened.artifact.task != analysis:
        raise InvalidSetting(f"{model} has learned {opened.artifact.task}, not {analysis}")
    return opened
