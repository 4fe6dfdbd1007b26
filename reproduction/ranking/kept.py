"""Rankings that were computed before, in a file of JSON Lines; and a report for fits that nobody follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apportion.jobs.journal import Results
from apportion.learn.model import Checkpoint
from apportion.learn.ranking.rankings import RankedGraph


class KeptRankings:
    """Ranked graphs by what they were made from."""

    def __init__(self, path: Path) -> None:
        self._results = Results(path)

    def get(self, made_from: Any, make: Callable[[], Sequence[RankedGraph]]) -> list[RankedGraph]:
        """What was made from this, now or before.

        Args:
            made_from: everything that the result depends on, as JSON can say it.
            make: makes the result where it is not known.
        """
        entry = self._results.get(made_from, lambda: {"graphs": [asdict(graph) for graph in make()]})
        return [RankedGraph(**graph) for graph in entry["graphs"]]


class Silence:
    """Follows a fit of seconds and says nothing."""

    def resumed(self) -> Checkpoint | None:
        return None

    def stepped(self, step: int, *, loss: float, nodes: int, seconds: float) -> None:
        pass

    def validated(self, step: int, scores: Mapping[str, float], *, best: bool) -> None:
        pass

    def reached(self, checkpoint: Checkpoint) -> None:
        pass
