"""Predictors of shares: what they are told of one launch (KernelQuery) and what they say (ShareAnswer)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.learn.base import Answer, Predictor
from apportion.program.graph import ProgramGraph
from apportion.program.kernel.features import vector_of


@dataclass(frozen=True, eq=False)
class KernelQuery:
    """A kernel's program graph or its features, and the sizes of its launch."""

    graph: ProgramGraph | None
    "None where only the features are known."
    bytes: int
    "Moved between host and device."
    group_items: int
    "Work-items of a work-group."
    work_items: int | None = None
    "Of the whole range, where it is known."
    known_code: NDArray[np.float64] | None = None
    "The features of the kernel, where they were counted before."

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.group_items < 1:
            raise InvalidSetting(
                f"A launch moves 0 bytes or more in work-groups of 1 item or more, not {self.bytes} bytes in "
                f"groups of {self.group_items}"
            )

    @cached_property
    def code(self) -> NDArray[np.float64]:
        """(F,): the features of the kernel."""
        if self.known_code is not None:
            return self.known_code
        return vector_of(self.read_graph())

    def read_graph(self) -> ProgramGraph:
        """The program graph.

        Raises:
            InvalidSetting: only features are known.
        """
        if self.graph is None:
            raise InvalidSetting("This model reads program graphs, and only features of the kernel are known")
        return self.graph


@dataclass(frozen=True)
class KnownKernel:
    """A kernel that a model learned from, beside the one it is asked about."""

    kernel: str
    "Its application and its name."
    distance: float
    "Root mean square of the differences of their features, each in standard deviations of the known kernels."

    def __str__(self) -> str:
        return f"{self.kernel} ({self.distance:.2f})"

    def as_json(self) -> dict[str, Any]:
        """The name, and the distance to three digits."""
        return {"kernel": self.kernel, "distance": round(self.distance, 3)}


@dataclass(frozen=True, eq=False)
class ShareAnswer(Answer[float]):
    """The part of the work that the CPU should take, from 0 to 1."""

    share_class: int = 0
    "Of 0, 25, 50, 75 and 100 percent, the one that the predictor would choose."
    chance: float | None = None
    """Of a predictor that names a device: of the held-out rows for which it named the same one, the part that
    were faster there. None for one that says shares."""


class SharePredictor(Predictor[KernelQuery, float]):
    """A predictor of shares; it also says what it is called and from which IR it learned."""

    question: ClassVar[str] = "shares"
    name: str
    "What users call it."

    @property
    def vectorized(self) -> bool:
        """Whether a compiler made vectors of single values in the IR that it learned from."""
        return False

    def nearest(self, code: NDArray[np.float64]) -> tuple[KnownKernel, ...]:
        """The known kernels that are most like one with features (F,), nearest first; none where the model
        keeps no names."""
        return ()


class AttributedPredictor(SharePredictor):
    """A predictor of shares that reads rows of features, and can take an answer apart."""

    @abstractmethod
    def inputs_for(self, query: KernelQuery) -> NDArray[np.float64]:
        """(I,): what is told of a launch beside its code, as `program.kernel.features.inputs_of` gives it.

        Raises:
            InvalidSetting: the range of the launch is needed, and it has none.
        """

    @abstractmethod
    def attributed(self, query: KernelQuery) -> tuple[float, dict[str, float]]:
        """What is said before anything is looked at, and what each feature adds, in percent of the work.

        Together they are the answer, before it is cut at 0 and 100.
        """
