"""How a data-flow network that was trained on one store does on another, and on files it cannot have seen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_description
from apportion.data.batch import Examples
from apportion.data.store import DataflowStore, Split
from apportion.learn import models
from apportion.learn.dataflow.evaluation import Evaluation, evaluate
from apportion.learn.dataflow.examples import drawn_instances, packed_examples
from apportion.learn.model import Model
from apportion.program.vocabulary import Vocabulary
from apportion.report.hardware import hardware

Numbers = NDArray[np.int64]


class StoredNetwork:
    """A network in a folder, asked about the graphs of a store.

    Args:
        folder: what `write_artifact` left.
        settings: the settings of a run on the store: its limits, and how many examples it was asked. Examples
            are drawn without a seed, so that the network answers what the run answered.
    """

    def __init__(self, folder: Path, store: DataflowStore, settings: Mapping[str, Any]) -> None:
        self.folder, self.store, self.settings = folder, store, settings
        self.artifact: Artifact = read_description(folder)

    @property
    def at_home(self) -> bool:
        """Whether it was trained on this very store."""
        return self.artifact.experiment.get("data_fingerprint") == self.store.fingerprint

    @property
    def strange(self) -> bool:
        """Whether it was trained on another store, and it is known of which corpora that was made."""
        return not self.at_home and self.artifact.experiment.get("sources") is not None

    def validation(self) -> float:
        """F1 on the store's validation part; the one that its training noted when this is its store."""
        about = self.artifact.experiment
        if self.at_home and "validation" in about:
            return float(about["validation"])
        return _f1(self._validated[0].scores())

    def validation_new_to(self, other: StoredNetwork) -> float:
        """The same on such graphs only as another network cannot have seen."""
        evaluation, _, graphs = self._validated
        return _f1(other._unseen(evaluation, graphs, 10**9))

    @cached_property
    def _validated(self) -> tuple[Evaluation, Examples, Numbers]:
        return self._evaluate("val", "steps_limit", "validation_examples")

    def scores(self) -> dict[str, Any]:
        """What a run's evaluation.json says, on the store's test part, and `unseen`: the same on less.

        A store's split depends on all of its files, so that a file that another store learnt from may be a
        test file here. `unseen` is scored on graphs of corpora that the network's store did not have, less
        those whose edges equal a graph's of the others.
        """
        evaluation, asked, graphs = self._evaluate("test", "test_steps_limit", "test_examples")
        last = int(self.settings["steps_limit"])
        positive = int(asked.labels.sum())
        return {
            "task": self.artifact.task,
            "test": evaluation.scores(last=last),
            "by_steps": evaluation.by_steps(),
            "by_source": evaluation.by_source(last=last),
            "unseen": self._unseen(evaluation, graphs, last),
            "all_nodes_f1": 2 * positive / (positive + len(asked.labels)),
            "date": datetime.now(UTC).date().isoformat(),
            "hardware": hardware("cpu"),
        }

    def _evaluate(self, split: Split, steps: str, most: str) -> tuple[Evaluation, Examples, Numbers]:
        """Its answers, the questions, and the number in the store of each of their graphs."""
        model: Model = models.load(self.artifact.model).load(self.folder)
        drawn = drawn_instances(
            self.store, self.artifact.task, split, steps_limit=int(self.settings[steps]),
            nodes_limit=int(self.settings["nodes_limit"]), most=int(self.settings[most]),
        )  # fmt: skip
        examples = packed_examples(self.store, drawn)
        # The network's own numbers for the store's texts; the store's last number is every other text.
        known = Vocabulary.numbered(self.artifact.vocabulary)
        numbers = np.array([*map(known.number, self.store.vocabulary), known.unknown], np.int32)
        asked = replace(examples, packed=replace(examples.packed, text=numbers[examples.packed.text]))
        evaluation = evaluate(model, asked, node_budget=int(self.settings["node_budget"]))
        return evaluation, asked, np.unique(self.store.columns["instance_graph"][drawn]).astype(np.int64)

    def _unseen(self, evaluation: Evaluation, graphs: Numbers, last: int) -> dict[str, Any] | None:
        if not self.strange:
            return evaluation.scores(last=last) if self.at_home else None
        theirs = np.isin(self.store.sources, self.artifact.experiment["sources"])
        known = {_edges(self.store, int(graph)) for graph in np.flatnonzero(theirs)}
        new = np.array(
            [not theirs[graph] and _edges(self.store, int(graph)) not in known for graph in graphs]
        )
        marked = replace(evaluation, source=np.where(new, "new", "known")[evaluation.graph])
        return marked.scores(last=last, sources=("new",))


def _f1(scores: Mapping[str, Any] | None) -> float:
    """0 where there was nothing to score."""
    return 0.0 if scores is None else float(scores["f1"]["value"])


def _edges(store: DataflowStore, number: int) -> bytes:
    """A digest of a graph without its texts."""
    graph = store.graph(number)
    digest = hashlib.sha256(str(len(graph.node_text_id)).encode())
    for array in (graph.edges, graph.edge_flow, graph.edge_position):
        digest.update(np.ascontiguousarray(array, np.int64).data)
    return digest.digest()
