"""Gradients of a step over several graphs, added up as work is done or replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from apportion.learn.nn.losses import list_mle
from apportion.learn.ranking.ranking_inputs import GraphInputs, inputs_of, whole_graph
from apportion.learn.ranking.ranking_network import RankingNetwork
from apportion.learn.ranking.ranking_settings import RankingSettings
from apportion.learn.ranking.step import GraphGradients
from apportion.testing.ranker_checks import layout_graph

SETTINGS = RankingSettings(width=8, opcode_width=4)
GRAPHS = [layout_graph(number) for number in range(2)]


class Replayed:
    """Does what it was first given for a key, however it is called later: as a recording does."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Callable[[], Any]] = {}

    def __call__(self, key: Hashable, function: Callable[[], Any]) -> Any:
        return self.known.setdefault(key, function)()

    def forget(self, key: Hashable) -> None:
        self.known.pop(key, None)


def prepared(device: str = "cpu") -> tuple[RankingNetwork, list[GraphInputs]]:
    torch.manual_seed(0)
    network = RankingNetwork(SETTINGS).to(device)
    return network, [inputs_of(graph, whole_graph(graph), SETTINGS, torch.device(device)) for graph in GRAPHS]


def drawn(number: int, inputs: GraphInputs, seed: int) -> tuple[Any, Any]:
    chosen, codes = GRAPHS[number].sample(np.random.default_rng(seed), 6)
    truth = torch.from_numpy(GRAPHS[number].truth[chosen]).to(inputs.opcode.device)
    return inputs.rows_of(codes), truth


def steps(device: str, **settings: Any) -> list[np.ndarray]:
    """All gradients after each of three steps over both graphs, the first one drawn twice in the last."""
    network, inputs = prepared(device)
    gradients = GraphGradients(network, list_mle, 0.5, **settings)
    found = []
    for step, graphs in enumerate(((0, 1), (1, 0), (0, 0))):
        gradients.clear()
        for place, number in enumerate(graphs):
            gradients.add(inputs[number], *drawn(number, inputs[number], 10 * step + place), number=number)
        found.append(np.concatenate([p.grad.cpu().numpy().ravel() for p in network.parameters()]))
    return found


def test_gradients_and_losses_are_those_of_one_sum() -> None:
    network, inputs = prepared()
    gradients = GraphGradients(network, list_mle, 0.5)
    gradients.clear()
    total = torch.zeros(())
    for number in (0, 1):
        rows, truth = drawn(number, inputs[number], number)
        gradients.add(inputs[number], rows, truth)
        total = total + 0.5 * list_mle(network(inputs[number], rows)[:, None], truth)
    wanted = torch.autograd.grad(total, list(network.parameters()))
    for parameter, gradient in zip(network.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-7)
    assert gradients.loss() == pytest.approx(float(total.detach()), rel=1e-6)
    assert gradients.loss() == 0


def test_replayed_work_reads_the_configurations_of_the_moment() -> None:
    for own, replayed in zip(steps("cpu"), steps("cpu", recorder=Replayed()), strict=True):
        np.testing.assert_array_equal(own, replayed)


def test_inputs_that_were_made_again_are_not_worked_on_by_an_old_recording() -> None:
    recorder = Replayed()
    network, inputs = prepared()
    gradients = GraphGradients(network, list_mle, 1.0, recorder)
    gradients.clear()
    gradients.add(inputs[0], *drawn(0, inputs[0], 0), number=0)
    first = recorder.known[0]
    again = prepared()[1][0]
    gradients.add(again, *drawn(0, again, 0), number=0)
    assert recorder.known[0] is not first
    gradients.forget(0)
    assert not recorder.known


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_recordings_on_a_gpu_give_the_gradients_of_a_cpu() -> None:
    for cpu, gpu in zip(steps("cpu"), steps("cuda"), strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=1e-3, atol=1e-5)
