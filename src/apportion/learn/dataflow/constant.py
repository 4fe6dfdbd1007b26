"""What to beat: answers that do not look at the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_artifact, write_artifact
from apportion.data.batch import Batch, Batches
from apportion.learn import tasks
from apportion.learn.model import Model, Optimisation, Report
from apportion.learn.task import Task
from apportion.settings import convert


@dataclass(frozen=True)
class ConstantSettings:
    """Which answer."""

    answer: Literal["no", "yes", "majority"] = "majority"
    "No to every node, yes to every node, or what most training nodes are."


class ConstantNodes(Model):
    """One answer for every node."""

    def __init__(self, task: Task[Any], settings: ConstantSettings, rate: float) -> None:
        self.task, self.settings, self.rate = task, settings, rate

    @classmethod
    def create(
        cls,
        task: Task[Any],
        vocabulary: Sequence[str],
        hyperparameters: Mapping[str, Any],
        *,
        optimisation: Optimisation,
        seed: int = 0,
        device: str = "cpu",
    ) -> Self:
        settings = convert(ConstantSettings, dict(hyperparameters), source="hyperparameters")
        return cls(task, settings, {"no": 0.0, "yes": 1.0, "majority": 0.5}[settings.answer])

    def fit(self, training: Batches, validation: Batches, report: Report) -> None:
        if self.settings.answer == "majority":
            self.rate = float(training.examples.labels.mean())
        report.validated(1, self.score(validation), best=True)

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        return np.tile(np.array([1 - self.rate, self.rate], np.float32), (batch.nodes, 1))

    def save(self, folder: Path, *, experiment: Mapping[str, Any] | None = None) -> None:
        artifact = Artifact(
            self.task.name,
            "constant",
            asdict(self.settings),
            experiment=dict(experiment or {}),
            predictor="data-flow",
        )
        write_artifact(folder, artifact, {"rate": np.array([self.rate])})

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        artifact, weights = read_artifact(folder)
        settings = convert(ConstantSettings, artifact.hyperparameters, source=str(folder))
        return cls(tasks.load(artifact.task), settings, float(weights["rate"][0]))
