"""How good a node classifier is: over all examples, and by the steps that the exact answer takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.batch import Batches, Examples
from apportion.learn.metrics import BINARY, Counts, bootstrap, counts
from apportion.learn.model import Model

BUCKETS = ((0, 5), (6, 10), (11, 20), (21, 30), (31, 60), (61, 200), (201, 10**9))
"Steps of the exact analysis, first and last."


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of right and wrong answers per example."""

    counts: Counts  # (I, 4)
    steps: NDArray[np.int64]  # (I,)
    graph: NDArray[np.int64]  # (I,)
    source: NDArray[np.str_]  # (I,) the corpus it came from

    def scores(
        self, *, first: int = 0, last: int = 10**9, sources: Collection[str] | None = None
    ) -> dict[str, Any] | None:
        """Every metric with its interval over graphs, for examples of these steps; None if there is none.

        Args:
            first: leaves out examples of fewer steps.
            last: leaves out examples of more.
            sources: keeps only examples of these corpora.
        """
        chosen = (self.steps >= first) & (self.steps <= last)
        if sources is not None:
            chosen &= np.isin(self.source, list(sources))
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
            "counts": self.counts[chosen].sum(axis=0).tolist(),
            **scores,
        }

    def by_steps(self) -> list[dict[str, Any]]:
        """Scores per bucket of steps, empty ones left out."""
        rows = []
        for first, last in BUCKETS:
            if (scores := self.scores(first=first, last=last)) is not None:
                rows.append({"first": first, "last": last, **scores})
        return rows

    def by_source(self, *, last: int) -> list[dict[str, Any]]:
        """Scores per corpus for examples of at most `last` steps, the largest corpus first."""
        rows = []
        for source in np.unique(self.source).tolist():
            if (scores := self.scores(last=last, sources=(source,))) is not None:
                rows.append({"source": source, **scores})
        return sorted(rows, key=lambda row: -row["examples"])


def evaluate(model: Model, examples: Examples, *, node_budget: int) -> Evaluation:
    """Ask `model` every question and count its answers."""
    rows = []
    for batch in Batches(examples, node_budget):
        assert batch.labels is not None
        decided = model.task.decide(model.predict(batch))
        rows.append(counts(batch.labels, decided, batch.graph_start[:-1]))
    names = np.full(examples.packed.graphs, "", np.str_) if examples.source is None else examples.source
    return Evaluation(np.concatenate(rows), examples.steps, examples.graph, names[examples.graph])
