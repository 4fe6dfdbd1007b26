"""Task: a question, the shape of its answer, its loss and metrics, and how scores become a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName

Decision = TypeVar("Decision")
Array = NDArray[Any]
Metric = Callable[[Array, Array], float]
"Of what is true and what was decided."


@dataclass(frozen=True)
class Task(Generic[Decision]):
    """A value, not to be inherited from. Letters for shapes: N things asked about, C outputs."""

    name: str
    question: str
    "One sentence, shown by the command line and the page."
    outputs: int
    "C, the scores that a model gives for each thing asked about."
    loss: str
    "The name of a loss in `learn.nn.losses`."
    target: Callable[[Any], Array]
    "The truth (N,) of an example."
    metrics: Mapping[str, Metric]
    best: str
    "The metric by which one model is better than another; more is better."
    decide: Callable[[Array], Decision]
    "Scores (N, C) → decision."

    def __post_init__(self) -> None:
        if self.outputs < 1:
            raise InvalidSetting(f"Task {self.name!r} needs at least one output, not {self.outputs}")
        if self.best not in self.metrics:
            raise UnknownName("metric", self.best, self.metrics)
