"""Every model of the table, the training loop, and going on after an interruption."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from apportion.data.batch import Batches
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn import models, tasks
from apportion.learn.dataflow.programl import Programl
from apportion.learn.model import Checkpoint, Optimisation
from apportion.learn.nn.fitting import learning_rate
from apportion.learn.nn.losses import loss_called
from apportion.testing.model_checks import ModelChecks, Silence, eight_examples


class TestPrograml(ModelChecks):
    name = "programl"
    hyperparameters = {"width": 16, "steps": 5}  # noqa: RUF012


class TestConstant(ModelChecks):
    name = "constant"
    hyperparameters: dict[str, Any] = {}  # noqa: RUF012
    learns = False


def test_every_model_of_the_table_is_checked_above() -> None:
    assert {check.name for check in ModelChecks.__subclasses__()} == set(models)


@pytest.mark.parametrize(("answer", "f1"), [("no", 0.0), ("yes", 2 * 13 / (96 + 13)), ("majority", 0.0)])
def test_constant_answers_score_what_the_share_of_positives_allows(answer: str, f1: float) -> None:
    model = models.load("constant").create(
        tasks.load("reachability"), [], {"answer": answer}, optimisation=Optimisation()
    )
    batches = Batches(eight_examples(), 1000)
    model.fit(batches, batches, Silence())
    assert model.score(batches)["f1"] == pytest.approx(f1)


def made(**optimisation: Any) -> Programl:
    return Programl.create(
        tasks.load("reachability"), ["a", "b"], {"width": 6, "steps": 3}, seed=4,
        optimisation=Optimisation(**{"learning_rate": 5e-3, "validate_every": 5, **optimisation}),
    )  # fmt: skip


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_a_run_that_was_interrupted_and_resumed_equals_one_that_was_not(averaging: float) -> None:
    training, validation = Batches(eight_examples(), 30, seed=1), Batches(eight_examples(50), 60)
    whole, first, second = (made(max_steps=steps, averaging=averaging) for steps in (20, 10, 20))
    one, two = Silence(), Silence()
    whole.fit(training, validation, one)
    first.fit(training, validation, two)
    second.fit(training, validation, two)
    assert one.checkpoint is not None
    assert two.checkpoint is not None
    assert one.checkpoint.state["step"] == two.checkpoint.state["step"] == 20
    assert one.checkpoint.arrays.keys() == two.checkpoint.arrays.keys()
    for name, array in one.checkpoint.arrays.items():
        np.testing.assert_array_equal(two.checkpoint.arrays[name], array, err_msg=name)


def test_averaged_weights_are_kept_and_training_goes_on_with_the_others() -> None:
    batches = Batches(eight_examples(), 1000)
    start = made()
    weights = [{name: value.detach().numpy().copy() for name, value in start.network.named_parameters()}]
    for steps in (1, 2):
        report = Silence()
        made(max_steps=steps, validate_every=1).fit(batches, batches, report)
        assert report.checkpoint is not None
        weights.append({name: report.checkpoint.arrays[f"network/{name}"] for name in weights[0]})
    averaged, report = made(max_steps=2, validate_every=2, averaging=0.75), Silence()
    averaged.fit(batches, batches, report)
    assert report.checkpoint is not None
    for name, value in averaged.network.named_parameters():
        np.testing.assert_array_equal(report.checkpoint.arrays[f"network/{name}"], weights[2][name])
        expected = 0.75 * (0.75 * weights[0][name] + 0.25 * weights[1][name]) + 0.25 * weights[2][name]
        np.testing.assert_allclose(value.detach().numpy(), expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(
            report.checkpoint.arrays[f"average/{name}"], expected, rtol=1e-5, atol=1e-7
        )
    with pytest.raises(InvalidSetting, match="averaging must be at least 0 and below 1, not 1"):
        made(averaging=1)


def test_the_same_seed_gives_the_same_model_and_another_another() -> None:
    batch = next(iter(Batches(eight_examples(), 60)))
    same = [made().predict(batch) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    other = Programl.create(
        tasks.load("reachability"), ["a", "b"], {"width": 6, "steps": 3}, optimisation=Optimisation(), seed=5
    )
    assert not np.array_equal(other.predict(batch), same[0])


def test_a_checkpoint_of_another_network_is_refused() -> None:
    batches, report = Batches(eight_examples(), 60), Silence()
    made(max_steps=5).fit(batches, batches, report)
    larger = Programl.create(
        tasks.load("reachability"),
        ["a", "b"],
        {"width": 9, "steps": 3},
        optimisation=Optimisation(max_steps=9),
    )
    with pytest.raises(MalformedInput, match="does not fit this experiment's network"):
        larger.fit(batches, batches, Silence(report.checkpoint))
    with pytest.raises(MalformedInput, match="Start anew"):
        larger.fit(batches, batches, Silence(Checkpoint({}, {})))


class Counting(Silence):
    """Notes the steps of validations."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def validated(self, step: int, scores: Any, *, best: bool) -> None:
        self.steps.append(step)


def test_training_ends_when_validation_stops_improving() -> None:
    batches, report = Batches(eight_examples(), 1000), Counting()
    made(max_steps=10_000, validate_every=1, patience=3, learning_rate=1e-12).fit(batches, batches, report)
    assert report.steps == [1, 2, 3, 4, 4]  # once more with the bound that is chosen at the end


def test_training_ends_when_its_time_is_over() -> None:
    batches, report = Batches(eight_examples(), 1000), Silence()
    made(max_steps=10**9, validate_every=10**9, max_seconds=0.2).fit(batches, batches, report)
    assert report.checkpoint is not None
    assert 0.2 <= report.checkpoint.state["seconds"] < 30


def test_the_best_weights_are_kept_not_the_last() -> None:
    batches, report = Batches(eight_examples(), 1000), Silence()
    model = made(max_steps=60, validate_every=10, learning_rate=2e-2)
    model.fit(batches, batches, report)
    assert report.checkpoint is not None
    assert model.score(batches)["f1"] == report.checkpoint.state["best_score"]


def test_the_learning_rate_warms_up_and_falls_along_a_cosine() -> None:
    settings = Optimisation(learning_rate=1.0, schedule="cosine", warmup_steps=9, max_steps=1000)
    assert learning_rate(settings, 0, 0) == pytest.approx(0.1)
    assert learning_rate(settings, 500, 0) == pytest.approx(0.5)
    assert learning_rate(settings, 1000, 0) == pytest.approx(0.0)
    timed = Optimisation(learning_rate=1.0, schedule="cosine", max_steps=1000, max_seconds=10)
    assert learning_rate(timed, 0, 5) == pytest.approx(0.5)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="learning_rate must be positive, not 0"):
        Optimisation(learning_rate=0)
    with pytest.raises(InvalidSetting, match="max_steps must be at least 1, not 0"):
        Optimisation(max_steps=0)
    with pytest.raises(UnknownName, match=r"No loss called 'hinge'\. There are: cross-entropy"):
        loss_called("hinge")
    with pytest.raises(InvalidSetting, match="use cpu or cuda"):
        Programl.create(tasks.load("datadep"), [], {}, optimisation=Optimisation(), device="gpu")
    with pytest.raises(InvalidSetting, match="steps must be at least 1, not 0"):
        Programl.create(tasks.load("datadep"), [], {"steps": 0}, optimisation=Optimisation())
