"""Fitting the ranking network: steps, early ends, running means, and going on after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from apportion.errors import InvalidSetting, MalformedInput  # noqa: E402
from apportion.learn.model import Checkpoint, Optimisation  # noqa: E402
from apportion.learn.nn.fitting import Progress  # noqa: E402
from apportion.learn.ranking.ranking_learner import NetworkRanker  # noqa: E402
from apportion.testing.model_checks import Silence  # noqa: E402
from apportion.testing.ranker_checks import layout_graph, tile_graph  # noqa: E402

GRAPHS = [layout_graph(seed) for seed in range(4)]


class Following(Silence):
    """Remembers what it was told."""

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        super().__init__(checkpoint)
        self.losses: list[float] = []
        self.scores: list[Mapping[str, float]] = []

    def stepped(self, step: int, *, loss: float, nodes: int, seconds: float) -> None:
        self.losses.append(loss)

    def validated(self, step: int, scores: Mapping[str, float], *, best: bool) -> None:
        self.scores.append(scores)


def made(steps: int = 40, *, optimisation: Mapping[str, Any] | None = None, **settings: Any) -> NetworkRanker:
    chosen = Optimisation(
        **{"learning_rate": 1e-2, "max_steps": steps, "validate_every": 20, **(optimisation or {})}
    )
    network = {"width": 8, "opcode_width": 4, **settings.pop("network", {})}
    return NetworkRanker.create({"network": network, "sampled": 16, **settings}, optimisation=chosen, seed=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"graphs": 2, "averaging": 0.8},
        {"dropout": 0.3},
        {"dropout": 0.3, "dropped": "segments", "network": {"norm": "graph"}},
    ],
    ids=str,
)
def test_a_fit_that_was_interrupted_and_resumed_equals_one_that_was_not(settings: dict[str, Any]) -> None:
    often = {"optimisation": {"validate_every": 5}, **settings}
    whole, first, second = made(10, **often), made(5, **often), made(10, **often)
    one, two = Silence(), Silence()
    whole.fit(GRAPHS[:3], GRAPHS[3:], one)
    first.fit(GRAPHS[:3], GRAPHS[3:], two)
    second.fit(GRAPHS[:3], GRAPHS[3:], two)
    assert one.checkpoint is not None
    assert two.checkpoint is not None
    assert set(one.checkpoint.arrays) == set(two.checkpoint.arrays)
    for name, array in one.checkpoint.arrays.items():
        np.testing.assert_array_equal(two.checkpoint.arrays[name], array, err_msg=name)
    np.testing.assert_array_equal(second.scores(GRAPHS[3]), whole.scores(GRAPHS[3]))


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "pairwise-hinge"},
        {"network": {"attention": "nodes"}},
        {"network": {"cross_configuration": True, "convolution": "sage", "norm": "graph"}},
        {"network": {"hops": 1, "layout_embedding": True}, "dropout": 0.2},
    ],
    ids=str,
)
def test_every_option_lowers_the_loss(settings: dict[str, Any]) -> None:
    report = Following()
    made(40, **settings).fit(GRAPHS, GRAPHS, report)
    assert report.losses[-1] < report.losses[0]


def test_a_step_takes_each_graph_once_in_an_epoch() -> None:
    ranker = made(graphs=2)
    drawn = [number for step in range(6) for number in ranker._drawn(step, 4)]
    assert [sorted(drawn[first : first + 4]) for first in (0, 4, 8)] == [[0, 1, 2, 3]] * 3
    assert drawn[:4] != drawn[4:8] or drawn[4:8] != drawn[8:]


def test_training_ends_when_validation_no_longer_gets_better() -> None:
    report = Following()
    impatient = {"patience": 2, "validate_every": 5, "learning_rate": 1e-9}
    made(1000, optimisation=impatient).fit(GRAPHS[:3], GRAPHS[3:], report)
    assert len(report.scores) == 3


def test_the_weights_that_validated_best_are_kept() -> None:
    report = Following()
    ranker = made(60, optimisation={"validate_every": 10, "learning_rate": 0.1}, validated=0)
    ranker.fit(GRAPHS[:3], GRAPHS[3:], report)
    best = max(scores["tau_b"] for scores in report.scores)
    again = Following(None)
    final = made(1, validated=0)
    final.network.load_state_dict(ranker.network.state_dict())
    final._validate(GRAPHS[3:], Progress(), again)
    assert again.scores[0]["tau_b"] == pytest.approx(best)


def test_a_running_mean_moves_slower_than_the_weights() -> None:
    plain, averaged = made(20, optimisation={"validate_every": 20}), made(20, averaging=0.95)
    start = plain.network.enter.weight.detach().clone()
    for ranker in (plain, averaged):
        ranker.fit(GRAPHS, GRAPHS, Silence())
    moved = [float((r.network.enter.weight.detach() - start).norm()) for r in (plain, averaged)]
    assert 0 < moved[1] < moved[0]


def test_the_penalty_is_on_matrices_and_draws_them_to_nothing() -> None:
    free, held = made(20), made(20, l2=1.0)
    for ranker in (free, held):
        ranker.fit(GRAPHS, GRAPHS, Silence())
    assert float(held.network.head.weight.detach().norm()) < 0.8 * float(
        free.network.head.weight.detach().norm()
    )
    groups = held._optimiser().param_groups
    assert [group["weight_decay"] for group in groups] == [2.0, 0.0]
    assert any(parameter is held.network.opcode.weight for parameter in groups[1]["params"])


def test_scaling_comes_from_the_training_graphs() -> None:
    ranker = made(1)
    ranker.fit(GRAPHS[:2], GRAPHS[2:], Silence())
    features = np.log1p(np.concatenate([graph.arrays["node_feat"] for graph in GRAPHS[:2]]))
    np.testing.assert_allclose(ranker.network.mean.numpy(), features.mean(0), atol=1e-4)
    np.testing.assert_allclose(ranker.network.deviation.numpy(), features.std(0), atol=1e-3)


def test_scores_do_not_depend_on_how_many_are_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = made(1)
    whole = ranker.scores(GRAPHS[0])
    monkeypatch.setattr("apportion.learn.ranking.ranking_learner.SCORED_FLOATS", 8 * 12 * 7)
    np.testing.assert_allclose(ranker.scores(GRAPHS[0]), whole, rtol=1e-5, atol=1e-6)


def test_few_prepared_graphs_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apportion.learn.ranking.ranking_learner.KEPT_BYTES", 1)
    kept, roomy = made(20), made(20)
    kept.fit(GRAPHS, GRAPHS, Silence())
    monkeypatch.setattr("apportion.learn.ranking.ranking_learner.KEPT_BYTES", 1 << 30)
    roomy.fit(GRAPHS, GRAPHS, Silence())
    np.testing.assert_array_equal(kept.scores(GRAPHS[0]), roomy.scores(GRAPHS[0]))


def test_a_loss_that_explodes_says_what_to_do() -> None:
    ranker = made(40, optimisation={"learning_rate": 1e30})
    with pytest.raises(InvalidSetting, match="Lower learning_rate, or set clip_norm"):
        ranker.fit(GRAPHS, GRAPHS, Silence())


def test_a_checkpoint_of_another_network_is_refused() -> None:
    report = Silence()
    made(20).fit(GRAPHS, GRAPHS, report)
    with pytest.raises(MalformedInput, match="does not fit this experiment's network"):
        made(40, network={"width": 10}).fit(GRAPHS, GRAPHS, report)


def test_networks_run_on_a_cpu_or_on_cuda() -> None:
    with pytest.raises(InvalidSetting, match="No device is called 'tpu'; use cpu or cuda"):
        NetworkRanker.create({}, optimisation=Optimisation(), device="tpu")


def test_tiles_need_a_network_for_tiles() -> None:
    with pytest.raises(InvalidSetting, match="set configurations = 'tile'"):
        made(1).scores(tile_graph(0))
