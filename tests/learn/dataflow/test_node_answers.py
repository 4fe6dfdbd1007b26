"""A ProGraML network answers by NumPy what it answers by torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from apportion.data.artifact import read_artifact, write_artifact
from apportion.data.batch import Batch, Graph, pack
from apportion.errors import MalformedInput
from apportion.learn import tasks
from apportion.learn.dataflow.node_answers import NodeAnswers
from apportion.learn.dataflow.programl import DISCOUNT, OFFSET, Programl
from apportion.learn.model import Optimisation


def graph(seed: int, nodes: int, edges: int) -> Graph:
    random = np.random.default_rng(seed)
    return Graph(
        random.integers(0, 4, nodes).astype(np.int32),
        random.integers(0, nodes, (2, edges)).astype(np.int32),
        random.integers(0, 3, edges).astype(np.uint8),
        (random.geometric(0.6, edges) - 1).astype(np.int32),
    )


def batch() -> Batch:
    packed = pack([graph(0, 30, 90), graph(1, 1, 0), graph(2, 12, 5)])
    return packed.batch([0, 0, 1, 2], [0, 7, 0, 11])


@pytest.fixture(params=[0.0, 1.0], ids=["plain", "discounted"])
def network(request, tmp_path: Path) -> Programl:
    task = tasks.load("reachability")
    settings = {"width": 6, "steps": 5, "dilution": 0.5, "selector": 3.0}
    made = Programl.create(task, ("a", "b", "c"), settings, optimisation=Optimisation(), seed=3)
    made.network.get_buffer(DISCOUNT).fill_(request.param)
    made.network.get_buffer(OFFSET)[1] = 0.3
    made.save(tmp_path / "model")
    return made


def test_its_scores_are_those_of_torch(network: Programl, tmp_path: Path) -> None:
    scores = NodeAnswers.load(tmp_path / "model").predict(batch())
    wanted = network.predict(batch())
    assert np.ptp(wanted) > 0.05
    np.testing.assert_allclose(scores, wanted, atol=2e-6)


def test_parts_of_a_batch_are_answered_as_the_whole(network: Programl, tmp_path: Path, monkeypatch) -> None:
    whole = NodeAnswers.load(tmp_path / "model").predict(batch())
    monkeypatch.setattr("apportion.learn.dataflow.node_answers._NODES_AT_ONCE", 31)
    parts = NodeAnswers.load(tmp_path / "model").predict(batch())
    np.testing.assert_allclose(parts, whole, atol=2e-6)


def test_an_artifact_that_lacks_an_array_is_named(network: Programl, tmp_path: Path) -> None:
    artifact, arrays = read_artifact(tmp_path / "model")
    del arrays["readout.gate.weight"]
    write_artifact(tmp_path / "broken", artifact, arrays)
    with pytest.raises(MalformedInput, match=r"another network than its description: 'readout.gate.weight'"):
        NodeAnswers.load(tmp_path / "broken")
