"""RankPredictor: a trained ranker that says how sure it is of each place and how familiar a program is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import read_description
from apportion.data.configurations import ConfiguredGraph
from apportion.learn.base import Answer, Predictor, check_confidence
from apportion.learn.ranking.network_scores import NetworkScores
from apportion.learn.ranking.ranker import Graphs, Ranker, evenly, load_ranker
from apportion.settings import convert

Numbers = NDArray[np.float64]
LEVELS = 100
"Quantiles of errors that are kept."


@dataclass(frozen=True)
class RankTrust:
    """What a ranker's errors were on graphs that it had not learned from, and which graphs it knows."""

    place_errors: tuple[float, ...] = ()
    "Quantiles of |predicted place - true place|, rising, each graph counted once; places from 0 to 1."
    known: tuple[dict[str, float], ...] = field(default=())
    "Of each graph that was learned from, opcode → its part of the nodes."
    apart: tuple[float, ...] = ()
    "How far each of them is from the nearest one of another kernel, rising."

    def place_error(self, confidence: float) -> float:
        """What errors of places stay below with this probability; 1 where nothing is known."""
        if not self.place_errors:
            return 1.0
        return float(np.interp(confidence, np.linspace(0, 1, len(self.place_errors)), self.place_errors))

    def familiarity(self, graph: ConfiguredGraph) -> float:
        """The part of the known graphs that are at least as far from each other as this one is from them."""
        if not self.known:
            return 0.0
        own = opcode_parts(graph)
        distance = min(_distance(own, other) for other in self.known)
        return float(np.mean(np.array(self.apart) >= distance - 1e-3))


class RankPredictor(Predictor[ConfiguredGraph, Numbers]):
    """Of each configuration of a graph, its place from 0 (fastest) to 1 (slowest)."""

    question: ClassVar[str] = "ranking"
    kind: ClassVar[str] = "ranker"
    "Its entry of `apportion.learn.predictors`."

    def __init__(self, ranker: Ranker | NetworkScores, trust: RankTrust) -> None:
        self.ranker, self.trust = ranker, trust

    def answer(self, queries: Sequence[ConfiguredGraph], *, confidence: float = 0.9) -> list[Answer[Numbers]]:
        off = self.trust.place_error(check_confidence(confidence))
        found = []
        for graph in queries:
            place = places(np.asarray(self.ranker.scores(graph), np.float64))
            low, high = np.clip(place - off, 0, 1), np.clip(place + off, 0, 1)
            found.append(Answer[Numbers](place, low, high, confidence, self.trust.familiarity(graph)))
        return found

    @classmethod
    def load(cls, folder: Path) -> Self:
        description = read_description(folder)
        said: Mapping[str, Any] = description.experiment.get("trust", {})
        network = description.model == NetworkScores.name
        ranker = NetworkScores.load(folder) if network else load_ranker(folder)
        return cls(ranker, convert(RankTrust, dict(said), source=str(folder)))


def places(scores: Numbers) -> Numbers:
    """(C,): the mean rank of each score, from 0 for the lowest to 1 for the highest; ties share theirs."""
    if len(scores) < 2:
        return np.zeros(len(scores))
    _, inverse, count = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count + 1) / 2
    return np.asarray(middle[inverse] / (len(scores) - 1), np.float64)


def trust_of(ranker: Ranker, training: Graphs, unseen: Graphs, *, most: int = 1_000) -> RankTrust:
    """How far a fitted ranker may be trusted, from graphs that it did not learn from.

    Graphs called KERNEL.SHAPE are of one kernel: how far kernels lie apart says which program is unlike them.
    """
    quantiles = []
    for graph in unseen:
        part = evenly(graph, most)
        error = np.abs(places(np.asarray(ranker.scores(part), np.float64)) - places(part.truth.astype(float)))
        quantiles.append(np.quantile(error, np.linspace(0, 1, LEVELS)))
    pooled = np.quantile(np.concatenate(quantiles), np.linspace(0, 1, LEVELS)) if quantiles else np.zeros(0)
    known = [opcode_parts(graph) for graph in training]
    kernels = [graph.name.partition(".")[0] for graph in training]
    apart = [
        min((_distance(own, other) for at, other in enumerate(known) if kernels[at] != kernel), default=1.0)
        for kernel, own in zip(kernels, known, strict=True)
    ]
    return RankTrust(
        tuple(np.round(pooled, 4).tolist()), tuple(known), tuple(np.round(np.sort(apart), 4).tolist())
    )


def opcode_parts(graph: ConfiguredGraph) -> dict[str, float]:
    """Opcode → the part of a graph's nodes that have it."""
    opcodes, count = np.unique(graph.arrays["node_opcode"], return_counts=True)
    parts = np.round(count / count.sum(), 3)
    return {str(code): part for code, part in zip(opcodes.tolist(), parts.tolist(), strict=True)}


def _distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """From 0, for graphs with the same mix of opcodes, to 1, for graphs without a common one."""
    return 0.5 * sum(abs(one.get(code, 0.0) - other.get(code, 0.0)) for code in {*one, *other})
