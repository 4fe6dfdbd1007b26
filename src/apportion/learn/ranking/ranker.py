"""Ranker: what every learner of rankings can do, said without torch; and rankers that do not learn.

A ranker scores the configurations of a graph, low for fast. It is fitted to whole graphs with the runtimes of
their configurations, and asked about graphs that it has not seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_artifact, read_description, write_artifact
from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn import rankers
from apportion.learn.model import Optimisation, Report
from apportion.learn.ranking.ranking_task import METRICS, config_ranking
from apportion.settings import convert

Graphs = Sequence[ConfiguredGraph]


class Ranker(ABC):
    """Something that scores configurations."""

    name: ClassVar[str]
    "What `model.rankers` calls it."
    settings_type: ClassVar[type[Any]]
    "A dataclass: its hyper-parameters, and its seed where it has a field for one."
    settings: Any

    @property
    def chooses(self) -> bool:
        """Whether validation graphs choose its weights; else it may learn from them as well."""
        return False

    @classmethod
    def create(
        cls,
        hyperparameters: Mapping[str, Any],
        *,
        optimisation: Optimisation,
        seed: int = 0,
        device: str = "cpu",
    ) -> Self:
        """An untrained ranker.

        Raises:
            InvalidSetting: a hyper-parameter that it does not know, or with an impossible value.
        """
        seeded = any(one.name == "seed" for one in fields(cls.settings_type))
        given = {"seed": seed, **hyperparameters} if seeded else dict(hyperparameters)
        settings = convert(cls.settings_type, given, source="hyperparameters")
        return cls.untrained(settings, optimisation, seed, device)

    @classmethod
    @abstractmethod
    def untrained(cls, settings: Any, optimisation: Optimisation, seed: int, device: str) -> Self:
        """A ranker with settings of its type."""

    @abstractmethod
    def fit(self, training: Graphs, validation: Graphs, report: Report) -> None:
        """Learn; ends with the weights that did best on the validation graphs."""

    @abstractmethod
    def scores(self, graph: ConfiguredGraph) -> NDArray[Any]:
        """(C,) of all configurations of a graph, low for fast."""

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What it has learned, for a file of weights."""

    def save(self, folder: Path, *, experiment: Mapping[str, Any] | None = None) -> None:
        """Write an artifact that `load` reads back."""
        artifact = Artifact(
            config_ranking.name, self.name, asdict(self.settings), experiment=dict(experiment or {}),
            predictor="ranker",
        )  # fmt: skip
        write_artifact(folder, artifact, self.arrays())

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """The ranker that `save` wrote.

        Raises:
            UnreadableFile, MalformedInput: there is none, or not whole.
        """


def load_ranker(folder: Path, *, device: str = "cpu") -> Ranker:
    """The ranker that an artifact holds, whichever it is.

    Raises:
        UnreadableFile, MalformedInput: there is none, or it is no ranker.
    """
    description = read_description(folder)
    if description.task != config_ranking.name:
        raise MalformedInput(
            f"holds a model for the task {description.task!r}, not a ranker. "
            "Train one with: apportion rank train",
            file=str(folder),
        )
    loaded: Ranker = rankers.load(description.model).load(folder, device=device)
    return loaded


def only(graph: ConfiguredGraph, chosen: NDArray[np.int64]) -> ConfiguredGraph:
    """A graph with some of its configurations, in this order."""
    arrays = {
        name: array[chosen] if name == "codes" or name.startswith(("config_", "compiled_")) else array
        for name, array in graph.arrays.items()
        if name not in ("evaluation", "config_group")
    }
    return ConfiguredGraph(graph.name, graph.collection, graph.side, arrays)


def evenly(graph: ConfiguredGraph, most: int) -> ConfiguredGraph:
    """A graph with the configurations that are evaluated; at most so many, evenly spread, 0 for all."""
    chosen = graph.evaluation
    if most and len(chosen) > most:
        chosen = chosen[np.linspace(0, len(chosen) - 1, most).astype(np.int64)]
    return graph if len(chosen) == graph.configurations else only(graph, chosen)


def check_graphs(training: Graphs, validation: Graphs) -> None:
    """Raise unless there is something to learn from and something to validate with."""
    if not training or not validation:
        raise InvalidSetting("Training needs at least one graph to learn from and one to validate with")
    for graph in (*training, *validation):
        if not graph.labelled:
            raise InvalidSetting(f"{graph.name} has no runtimes, as a test file: it cannot be learned from")


def validation_scores(
    ranker: Ranker, graphs: Graphs, *, most: int = 0, measures: Sequence[str] = ("tau_b", "opa", "slowdown@5")
) -> dict[str, float]:
    """Means over graphs of some measures; of at most `most` configurations each, evenly spread, 0 for all."""
    for name in measures:
        if name not in METRICS:
            raise UnknownName("metric", name, METRICS)
    found = []
    for graph in graphs:
        part = evenly(graph, most)
        truth, scores = part.truth, np.asarray(ranker.scores(part))
        if len(np.unique(truth)) > 1:
            found.append([METRICS[name](truth, scores) for name in measures])
    if not found:
        raise InvalidSetting("No validation graph has two different runtimes: there is nothing to rank")
    return dict(zip(measures, np.mean(found, axis=0).tolist(), strict=True))


@dataclass(frozen=True)
class UntaughtSettings:
    """Nothing to choose but the seed."""

    seed: int = 0


class Untaught(Ranker):
    """A ranker that other graphs teach nothing: all there is to keep are its settings."""

    settings_type: ClassVar[type[UntaughtSettings]] = UntaughtSettings
    validated: ClassVar[int] = 0
    "The most configurations of a validation graph that are scored; 0 for all."

    def __init__(self, settings: UntaughtSettings) -> None:
        self.settings = settings

    @classmethod
    def untrained(
        cls, settings: UntaughtSettings, optimisation: Optimisation, seed: int, device: str
    ) -> Self:
        return cls(settings)

    def fit(self, training: Graphs, validation: Graphs, report: Report) -> None:
        check_graphs(training, validation)
        report.validated(1, validation_scores(self, validation, most=self.validated), best=True)

    def arrays(self) -> dict[str, NDArray[Any]]:
        # A file of weights needs an array: a setting serves.
        name, value = next(iter(asdict(self.settings).items()))
        return {name: np.array([value])}

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        artifact, _ = read_artifact(folder)
        return cls(convert(cls.settings_type, artifact.hyperparameters, source=str(folder)))


class Chance(Untaught):
    """Random scores: what to beat."""

    name = "random"

    def scores(self, graph: ConfiguredGraph) -> NDArray[np.float64]:
        return np.random.default_rng([self.settings.seed, crc32(graph.name.encode())]).random(
            graph.configurations
        )


class Constant(Untaught):
    """The same score for all: it orders nothing, and chooses the first configuration of a file."""

    name = "constant"

    def scores(self, graph: ConfiguredGraph) -> NDArray[np.float64]:
        return np.zeros(graph.configurations)
