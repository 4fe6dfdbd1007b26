"""Several rankers as one: their scores, brought to one scale within each graph, are averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import read_artifact
from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting
from apportion.learn import rankers
from apportion.learn.model import Checkpoint, Optimisation, Report
from apportion.learn.ranking.ranker import Graphs, Ranker, check_graphs, load_ranker, validation_scores
from apportion.settings import convert


@dataclass(frozen=True)
class Member:
    """One of the rankers."""

    model: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AverageSettings:
    """Which rankers."""

    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise InvalidSetting("members must name at least one ranker")


class AverageRanker(Ranker):
    """The mean of what its members say; each member has a seed of its own."""

    name = "average"
    settings_type = AverageSettings

    def __init__(self, settings: AverageSettings, members: list[Ranker]) -> None:
        self.settings, self.members = settings, members

    @classmethod
    def untrained(cls, settings: AverageSettings, optimisation: Optimisation, seed: int, device: str) -> Self:
        count = len(settings.members)
        members: list[Ranker] = [
            rankers.load(member.model).create(
                member.hyperparameters, optimisation=optimisation, seed=seed * count + number, device=device
            )
            for number, member in enumerate(settings.members)
        ]
        return cls(settings, members)

    @property
    def chooses(self) -> bool:
        return any(member.chooses for member in self.members)

    def fit(self, training: Graphs, validation: Graphs, report: Report) -> None:
        check_graphs(training, validation)
        for member in self.members:
            member.fit(training, validation, _Unresumed(report))
        report.validated(1, validation_scores(self, validation, most=2_000), best=True)

    def scores(self, graph: ConfiguredGraph) -> NDArray[np.float64]:
        return np.mean([_standard(member.scores(graph)) for member in self.members], axis=0)  # type: ignore[no-any-return]

    def save(self, folder: Path, *, experiment: Mapping[str, Any] | None = None) -> None:
        for number, member in enumerate(self.members):
            member.save(folder / f"member-{number}", experiment=experiment)
        super().save(folder, experiment=experiment)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"members": np.array([len(self.members)])}

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        artifact, _ = read_artifact(folder)
        settings = convert(AverageSettings, artifact.hyperparameters, source=str(folder))
        numbers = range(len(settings.members))
        return cls(settings, [load_ranker(folder / f"member-{number}", device=device) for number in numbers])


class _Unresumed:
    """Passes on what members say, but no checkpoint: that of one is none of another."""

    def __init__(self, report: Report) -> None:
        self.stepped, self.validated = report.stepped, report.validated

    def resumed(self) -> Checkpoint | None:
        return None

    def reached(self, checkpoint: Checkpoint) -> None:
        pass


def _standard(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Scores with mean 0 and deviation 1; equal ones become 0."""
    values = np.asarray(scores, np.float64)
    standard: NDArray[np.float64] = (values - values.mean()) / (values.std() or 1.0)
    return standard
