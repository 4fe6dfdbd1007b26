"""ShareNetwork: the thesis' networks (Chapter 5) that read a kernel's program graph, answered by NumPy.

The one that it chose (Figure 5.4): six steps of gated messages by two alternating layers, the mean of the
states after each step, the sizes of the launch, batch normalisation, and an extended readout. Every other row
of its ablation differs in what `graph_vectors` makes of the graph, or in the readout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_artifact, write_artifact
from apportion.data.batch import Graph
from apportion.data.records import CLASSES, nearest_class
from apportion.data.scaling import Standard
from apportion.errors import MalformedInput
from apportion.learn.base import check_confidence
from apportion.learn.shares.colours import GraphSet
from apportion.learn.shares.graph_vectors import GraphVectors
from apportion.learn.shares.kernel_model import ConformalScores, Familiarity
from apportion.learn.shares.kernel_query import KernelQuery, ShareAnswer, SharePredictor
from apportion.learn.shares.network_settings import KernelNetworkSettings
from apportion.learn.shares.share_forest import CODE_AT
from apportion.program.graph import ProgramGraph
from apportion.program.vocabulary import Vocabulary
from apportion.settings import convert

Form = Literal["regression", "classification", "device-mapping"]
"What the network was trained to say: a share in percent, one of the five classes, or the faster device."
EPSILON = 1e-5
"Of the batch normalisation."
_READ_BY = ("layers", "pooling", "steps", "both_ways")
"The settings that decide how a graph is read; the others show in the weights."
Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class ShareNetwork(SharePredictor):
    """Everything that prediction needs."""

    kind: ClassVar[str] = "share-network"
    "Its entry of `apportion.learn.predictors`."

    name: str
    form: Form
    settings: KernelNetworkSettings
    texts: tuple[str, ...]
    "Node texts that the network has learned, in the order of its embedding; the last row is for all others."
    weights: Arrays
    calibration: ConformalScores
    "Errors in percent of the work, on applications that the network had not seen."
    known: Familiarity
    about: Mapping[str, Any]
    "The experiment that made it."

    @property
    def vectorized(self) -> bool:
        return bool(self.about.get("vectorized", False))

    def answer(self, queries: Sequence[KernelQuery], *, confidence: float = 0.9) -> list[ShareAnswer]:
        half = self.calibration.quantile(check_confidence(confidence))
        if not queries:
            return []
        said = self.scores(queries)
        code = np.stack([query.code for query in queries])[:, CODE_AT]
        near = self.known.of_each(code).tolist()
        found = []
        for score, familiar in zip(said, near, strict=True):
            share = self._share(score)
            ends = max(0.0, share - half) / 100, min(100.0, share + half) / 100
            voted = nearest_class(share)
            right = self.about.get("right", {}).get("gpu" if share < 50 else "cpu")
            found.append(ShareAnswer(share / 100, *ends, confidence, familiar, round(voted), right))
        return found

    def scores(self, queries: Sequence[KernelQuery]) -> Floats:
        """(N, outputs): what the network says; each graph is read once."""
        pooled: dict[int, Floats] = {}
        for query in queries:
            graph = query.read_graph()
            if id(graph) not in pooled:
                pooled[id(graph)] = self._pooled(graph)
        sizes = [[math.log1p(query.group_items), math.log1p(query.bytes)] for query in queries]
        graphs = [pooled[id(query.read_graph())] for query in queries]
        rows: Numbers = np.hstack([np.stack(graphs), np.array(sizes)]).astype(np.float64)
        scale = self.weights["norm.weight"] / np.sqrt(self.weights["norm.variance"] + EPSILON)
        rows = (rows - self.weights["norm.mean"]) * scale + self.weights["norm.bias"]
        for number in range(self._readouts):
            if number:
                rows = np.maximum(rows, 0)
            rows = rows @ self.weights[f"readout.{number}.weight"] + self.weights[f"readout.{number}.bias"]
        return np.asarray(rows, np.float32)

    def _share(self, score: Floats) -> float:
        """The CPU's share in percent that a row of scores says."""
        if self.form == "regression":
            return float(np.clip(score[0], 0, 100))
        if self.form == "classification":
            return float(CLASSES[int(score.argmax())])
        return 0.0 if score[1] > score[0] else 100.0  # the second score is the GPU's

    def _pooled(self, graph: ProgramGraph) -> Floats:
        """(D,): what the network makes of a graph."""
        text = self._vocabulary.ids(graph).astype(np.int32)
        gates = self.weights.get("0.gates")
        position = graph.edge_position if gates is None else np.minimum(graph.edge_position, len(gates) - 1)
        read = Graph(text, graph.edges, graph.edge_flow, position.astype(np.int32))
        return GraphVectors(self.settings, self.weights).of(GraphSet.of([read]))

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.numbered(self.texts)

    @cached_property
    def _readouts(self) -> int:
        return sum(name.startswith("readout.") and name.endswith(".weight") for name in self.weights)

    def save(self, folder: Path) -> Path:
        """Write the model to `folder`, which comes back."""
        scaling = self.known.scaling
        arrays: dict[str, NDArray[Any]] = {
            **{f"network.{name}": values for name, values in self.weights.items()},
            "score": self.calibration.score, "weight": self.calibration.weight,
            "mean": scaling.mean, "deviation": scaling.deviation,
            "kernels": self.known.kernels, "distance": self.known.distance,
        }  # fmt: skip
        task = "device-mapping" if self.form == "device-mapping" else "load-balance"
        network = {name: getattr(self.settings, name) for name in _READ_BY}
        artifact = Artifact(
            task, self.kind, {"form": self.form, **network}, self.texts,
            experiment=dict(self.about), predictor=self.kind, name=self.name,
        )  # fmt: skip
        write_artifact(folder, artifact, arrays)
        return folder

    @classmethod
    def load(cls, folder: Path) -> Self:
        artifact, kept = read_artifact(folder)
        prefix, said = "network.", artifact.hyperparameters
        network = {name: said[name] for name in _READ_BY if name in said}
        try:
            return cls(
                artifact.name or folder.name, said["form"],
                convert(KernelNetworkSettings, network, source=str(folder)), artifact.vocabulary,
                {n.removeprefix(prefix): values for n, values in kept.items() if n.startswith(prefix)},
                ConformalScores(kept["score"], kept["weight"]),
                Familiarity(Standard(kept["mean"], kept["deviation"]), kept["kernels"], kept["distance"]),
                artifact.experiment,
            )  # fmt: skip
        except KeyError as error:
            raise MalformedInput(f"is no network of shares ({error} is missing)", file=str(folder)) from error
