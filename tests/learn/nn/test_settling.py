"""What is chosen after training, for F1 on what is known: where the bound between labelled and not lies, and whether
what is labelled without a root is taken off."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from apportion.data.artifact import read_artifact, write_artifact  # noqa: E402
from apportion.data.batch import Batches  # noqa: E402
from apportion.learn import tasks  # noqa: E402
from apportion.learn.dataflow.programl import DISCOUNT, OFFSET, NodeNetwork, Programl, best_margin  # noqa: E402
from apportion.learn.model import Optimisation  # noqa: E402
from apportion.testing.model_checks import Silence, eight_examples  # noqa: E402


def _f1(labelled: np.ndarray, labels: np.ndarray) -> float:
    return 2 * float((labelled & (labels == 1)).sum()) / float(labelled.sum() + labels.sum())


def test_the_margin_is_the_best_of_all() -> None:
    generator = np.random.default_rng(3)
    labels = (generator.random(400) < 0.1).astype(np.int64)
    margins = (generator.normal(size=400) + 2 * labels - 2).astype(np.float32)
    found = best_margin(margins, labels)
    tried = [_f1(margins > bound, labels) for bound in np.linspace(-6, 4, 2001)]
    assert _f1(margins > found, labels) == pytest.approx(max(tried))
    assert max(tried) > _f1(margins > 0, labels)


def test_nodes_with_one_margin_are_not_told_apart() -> None:
    margins = np.array([2.0, -0.1, -0.1, -0.1, -3.0], np.float32)
    found = best_margin(margins, np.array([1, 1, 1, 0, 0]))
    assert -3.0 < found < -0.1  # all three or none


def test_nothing_is_moved_for_nothing() -> None:
    margins = np.array([2.0, 1.0, -1.0], np.float32)
    assert best_margin(margins, np.array([1, 1, 0])) == 0.0
    assert best_margin(margins, np.array([0, 0, 0])) == 0.0


def trained() -> tuple[Programl, Batches]:
    batches = Batches(eight_examples(), 1000)
    model = Programl.create(
        tasks.load("reachability"), ["a", "b"], {"width": 6, "steps": 4}, seed=4,
        optimisation=Optimisation(learning_rate=1e-2, max_steps=300, validate_every=50),
    )  # fmt: skip
    model.fit(batches, batches, Silence())
    return model, batches


def test_what_is_labelled_whatever_is_asked_is_no_answer() -> None:
    model, batches = trained()
    network = model.network
    assert isinstance(network, NodeNetwork)
    assert model.score(batches)["f1"] == 1.0
    assert not network.get_buffer(DISCOUNT)  # there was nothing to take off
    with torch.no_grad():  # one text is far from all that was learnt, and labelled for itself
        network.embedding.text.weight[0] *= 20
    batch = next(iter(batches))
    asked, unasked = model.predict(batch), model.predict(replace(batch, root=batch.root[:0]))
    labelled = model.task.decide(unasked)
    assert labelled.any()
    before = model.score(batches)["f1"]
    settled = model.settle(batches)
    assert network.get_buffer(DISCOUNT)
    assert settled["f1"] > before + 0.3
    assert model.score(batches) == settled
    # Nothing changes where nothing would be labelled without a root.
    network.get_buffer(OFFSET).zero_()
    after = model.predict(batch)
    np.testing.assert_array_equal(after[~labelled], asked[~labelled])
    assert (after[labelled, 1] < asked[labelled, 1]).all()


def test_what_was_chosen_is_saved_and_older_weights_have_chosen_nothing(tmp_path: Path) -> None:
    model, batches = trained()
    model.network.get_buffer(DISCOUNT).fill_(1)
    model.save(tmp_path / "saved")
    batch = next(iter(batches))
    np.testing.assert_array_equal(Programl.load(tmp_path / "saved").predict(batch), model.predict(batch))
    artifact, weights = read_artifact(tmp_path / "saved")
    older = {name: array for name, array in weights.items() if name not in (DISCOUNT, OFFSET)}
    write_artifact(tmp_path / "older", artifact, older)
    loaded = Programl.load(tmp_path / "older").network
    assert not loaded.get_buffer(DISCOUNT)
    assert not loaded.get_buffer(OFFSET).any()
