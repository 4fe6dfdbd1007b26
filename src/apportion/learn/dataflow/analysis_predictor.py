"""AnalysisPredictor: which nodes of a program a network would label, for one data-flow analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_description
from apportion.data.batch import FLOWS, Graph, pack
from apportion.errors import InvalidSetting
from apportion.learn import models
from apportion.learn.base import Answer, Predictor, check_confidence
from apportion.learn.dataflow.node_answers import NodeAnswers
from apportion.program.graph import ProgramGraph
from apportion.program.vocabulary import Vocabulary

NODE_BUDGET = 100_000
"Nodes that one pass of the network sees, roots counted apart."
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AnalysisQuery:
    """A program graph and the node from which the analysis starts."""

    graph: ProgramGraph
    root: int

    def __post_init__(self) -> None:
        if not 0 <= self.root < self.graph.nodes:
            raise InvalidSetting(f"The root must be a node from 0 to {self.graph.nodes - 1}, not {self.root}")


class AnalysisPredictor(Predictor[AnalysisQuery, Flags]):
    """The labels (N,) of a program's nodes.

    Between `low` and `high` lie the nodes that the network's own probability does not decide: `low` has those
    whose label has at least the confidence as probability, `high` all but those whose absence has. These
    probabilities are the network's; they were not calibrated on other programs. Familiarity is the part of
    the nodes whose text the network has learned.
    """

    question: ClassVar[str] = "data-flow"
    kind: ClassVar[str] = "data-flow"
    "Its entry of `apportion.learn.predictors`."

    def __init__(self, model: Any, artifact: Artifact) -> None:
        self.model, self.artifact = model, artifact

    @property
    def labels(self) -> str:
        """The mode of the analysis whose labels were learned: `reference` or `exact`."""
        return str(self.artifact.experiment.get("labels", "exact"))

    def answer(self, queries: Sequence[AnalysisQuery], *, confidence: float = 0.9) -> list[Answer[Flags]]:
        check_confidence(confidence)
        found: list[Answer[Flags]] = []
        start = 0
        while start < len(queries):
            graph, end = queries[start].graph, start + 1
            most = max(1, NODE_BUDGET // max(1, graph.nodes))
            while end < len(queries) and end - start < most and queries[end].graph is graph:
                end += 1
            found += self._of_one(graph, [query.root for query in queries[start:end]], confidence)
            start = end
        return found

    def _of_one(self, graph: ProgramGraph, roots: list[int], confidence: float) -> list[Answer[Flags]]:
        """The answers of one graph from several roots."""
        followed = graph.edge_flow < FLOWS  # type edges are no part of what was learnt
        text = Vocabulary.numbered(self.artifact.vocabulary).ids(graph)
        packed = pack(
            [Graph(text, graph.edges[:, followed], graph.edge_flow[followed], graph.edge_position[followed])]
        )
        scores = self.model.predict(packed.batch(np.zeros(len(roots), np.int64), np.array(roots)))
        decided = self.model.task.decide(scores).astype(bool).reshape(len(roots), graph.nodes)
        margin = (scores[:, 1] - scores[:, 0]).astype(np.float64).reshape(decided.shape)
        far = float(np.log(max(confidence, 1 - confidence) / min(confidence, 1 - confidence)))
        known = float(np.mean(text < len(self.artifact.vocabulary))) if graph.nodes else 0.0
        return [
            Answer[Flags](labels, labels & (off >= far), labels | (off > -far), confidence, known)
            for labels, off in zip(decided, margin, strict=True)
        ]

    @classmethod
    def load(cls, folder: Path) -> Self:
        artifact = read_description(folder)
        # A ProGraML network learns with torch and answers without it.
        kind = NodeAnswers if artifact.model == "programl" else models.load(artifact.model)
        return cls(kind.load(folder), artifact)
