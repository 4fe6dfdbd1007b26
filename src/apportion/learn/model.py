"""Model: what every learner can do, said without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.batch import Batch, Batches
from apportion.errors import InvalidSetting
from apportion.learn.task import Task


@dataclass(frozen=True)
class Optimisation:
    """How weights are fitted, and when that ends."""

    learning_rate: float = 2.5e-4
    schedule: Literal["constant", "cosine"] = "constant"
    "How the learning rate moves after the warm-up: not at all, or along a cosine to nothing at the end."
    warmup_steps: int = 0
    clip_norm: float = 0.0
    "Gradients longer than this are shortened to it; 0 leaves them."
    max_steps: int = 10_000
    max_seconds: float = 0.0
    "Training ends here unless steps end it first; 0 for never. What time ends is not exactly repeatable."
    validate_every: int = 500
    patience: int = 0
    "Validations without a better score after which training ends; 0 for never."
    enough: float = 0.0
    "The validation score at which training ends; 0 for never."
    averaging: float = 0.0
    """What stays of the averaged weights at each step, such as 0.999; they are validated and kept instead of
    the last ones. 0 for no averages."""
    precision: Literal["full", "tf32"] = "full"
    "Matrix products on a GPU: 32-bit floats, or their 19-bit form on its matrix units."

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise InvalidSetting(f"learning_rate must be positive, not {self.learning_rate}")
        for name in ("max_steps", "validate_every"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("warmup_steps", "clip_norm", "patience", "max_seconds", "enough"):
            if getattr(self, name) < 0:
                raise InvalidSetting(f"{name} must not be negative, not {getattr(self, name)}")
        if not 0 <= self.averaging < 1:
            raise InvalidSetting(f"averaging must be at least 0 and below 1, not {self.averaging}")

    def done(self, step: int, seconds: float) -> float:
        """How much of the training is behind after so many steps and seconds, from 0 to 1."""
        in_time = seconds / self.max_seconds if self.max_seconds else 0.0
        return min(1.0, max(step / self.max_steps, in_time))


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a fit stands: everything that it needs to go on as if it had never stopped."""

    arrays: Mapping[str, NDArray[Any]]
    state: Mapping[str, Any]
    "Plain numbers, strings, lists and None: what JSON can say."


class Report(Protocol):
    """Who follows a fit: it is told what happens, and may hold a place to go on from."""

    def resumed(self) -> Checkpoint | None:
        """Where an earlier, interrupted fit stood, or None."""

    def stepped(self, step: int, *, loss: float, nodes: int, seconds: float) -> None:
        """`step` steps are done; the loss and the nodes are of the steps since the last call."""

    def validated(self, step: int, scores: Mapping[str, float], *, best: bool) -> None:
        """The validation examples were scored after `step` steps."""

    def reached(self, checkpoint: Checkpoint) -> None:
        """A place to go on from."""


class Model(ABC):
    """Something that learns a task from batches of graphs."""

    task: Task[Any]

    @classmethod
    @abstractmethod
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
        """An untrained model.

        Raises:
            InvalidSetting: a hyper-parameter that this model does not know, or with an impossible value.
        """

    @abstractmethod
    def fit(self, training: Batches, validation: Batches, report: Report) -> None:
        """Learn; ends with the weights that did best on the validation examples."""

    @abstractmethod
    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Scores (N, C)."""

    @abstractmethod
    def save(self, folder: Path, *, experiment: Mapping[str, Any] | None = None) -> None:
        """Write an artifact that `load` reads back."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """The model that `save` wrote.

        Raises:
            UnreadableFile, MalformedInput: there is none, or not whole.
        """

    def begin_from(self, folder: Path) -> None:
        """Take the weights of a model that `save` wrote, to learn on from there.

        Raises:
            InvalidSetting: it is another kind of model, or this kind learns everything anew.
            UnreadableFile, MalformedInput: there is none, or not whole.
        """
        raise InvalidSetting(f"A {type(self).__name__} learns everything anew; it cannot go on from {folder}")

    def score(self, batches: Batches) -> dict[str, float]:
        """The task's metrics over all examples together."""
        return self.metrics(*self.answers(batches))

    def answers(self, batches: Batches) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The truth (N,) and the scores (N, C) of all examples together."""
        truth, scores = [], []
        for batch in batches:
            assert batch.labels is not None
            truth.append(batch.labels)
            scores.append(self.predict(batch))
        return np.concatenate(truth), np.concatenate(scores)

    def metrics(self, true: NDArray[Any], scores: NDArray[np.float32]) -> dict[str, float]:
        """The task's metrics of what is decided by scores."""
        said = self.task.decide(scores)
        return {name: metric(true, said) for name, metric in self.task.metrics.items()}
