"""Rankings that were computed before, in a file of JSON Lines; and a report for fits that nobody follows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apportion.learn.model import Checkpoint
from apportion.learn.ranking.rankings import RankedGraph


class KeptRankings:
    """Ranked graphs by what they were made from; a line that an interruption cut short is forgotten."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith("]}")]
        self._known = {entry["key"]: _graphs(entry["graphs"]) for entry in entries}

    def get(self, made_from: Any, make: Callable[[], Sequence[RankedGraph]]) -> list[RankedGraph]:
        """What was made from this, now or before.

        Args:
            made_from: everything that the result depends on, as JSON can say it.
            make: makes the result where it is not known.
        """
        key = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
        if key not in self._known:
            made = [asdict(graph) for graph in make()]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, "graphs": made}) + "\n")
            self._known[key] = _graphs(made)
        return self._known[key]


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


def _graphs(plain: Sequence[Mapping[str, Any]]) -> list[RankedGraph]:
    return [RankedGraph(**graph) for graph in plain]
