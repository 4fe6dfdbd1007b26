"""How good a node classifier is: over all examples, and by the steps that the exact answer takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.batch import Batches, Examples
from apportion.model.base import Model
from apportion.task.metrics import BINARY, Counts, bootstrap, counts

BUCKETS = ((0, 5), (6, 10), (11, 20), (21, 30), (31, 60), (61, 200), (201, 10**9))
"Steps of the exact analysis, first and last."


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of right and wrong answers per example."""

    counts: Counts  # (I, 4)
    steps: NDArray[np.int64]  # (I,)
    graph: NDArray[np.int64]  # (I,)

    def scores(self, *, first: int = 0, last: int = 10**9) -> dict[str, Any] | None:
        """Every metric with its interval over graphs, for examples of these steps; None if there is none."""
        chosen = (self.steps >= first) & (self.steps <= last)
        if not chosen.any():
            return None
        scores: dict[str, Any] = {
            name: asdict(bootstrap(self.counts[chosen], measure, groups=self.graph[chosen], samples=300))
            for name, measure in BINARY.items()
        }
        return {
            "examples": int(chosen.sum()),
            "graphs": len(np.unique(self.graph[chosen])),
            "nodes": int(self.counts[chosen].sum()),
            **scores,
        }

    def by_steps(self) -> list[dict[str, Any]]:
        """Scores per bucket of steps, empty ones left out."""
        rows = []
        for first, last in BUCKETS:
            if (scores := self.scores(first=first, last=last)) is not None:
                rows.append({"first": first, "last": last, **scores})
        return rows


def evaluate(model: Model, examples: Examples, *, node_budget: int) -> Evaluation:
    """Ask `model` every question and count its answers."""
    rows = []
    for batch in Batches(examples, node_budget):
        assert batch.labels is not None
        decided = model.task.decide(model.predict(batch))
        rows.append(counts(batch.labels, decided, batch.graph_start[:-1]))
    return Evaluation(np.concatenate(rows), examples.steps, examples.graph)
