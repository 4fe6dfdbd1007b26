"""Where a fit stands, the running mean of weights, and going on after a stop."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.model import Checkpoint, Optimisation
from apportion.learn.nn import fitting


class Net(nn.Module):
    """One layer that is used, one that is not, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(2, 1), nn.Linear(2, 1)
        self.register_buffer("mean", torch.ones(2))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.used(values - self.mean)


def stepped(network: Net, optimiser: torch.optim.Optimizer, averages: fitting.Averages, steps: int) -> None:
    for number in range(steps):
        optimiser.zero_grad()
        network(torch.tensor([[1.0, float(number)]])).square().sum().backward()
        optimiser.step()
        averages.follow()


def fresh(keep: float = 0.5) -> tuple[Net, torch.optim.Optimizer, fitting.Averages]:
    torch.manual_seed(0)
    network = Net()
    return network, torch.optim.Adam(network.parameters(), 0.1), fitting.Averages(network, keep)


def test_a_running_mean_follows_the_weights_and_takes_their_place_meanwhile() -> None:
    network, optimiser, averages = fresh()
    before = network.used.weight.detach().clone()
    stepped(network, optimiser, averages, 1)
    now = network.used.weight.detach().clone()
    with averages.instead():
        assert torch.allclose(network.used.weight, (before + now) / 2)
    assert torch.equal(network.used.weight, now)
    averages.follow(keep=0.0)
    with averages.instead():
        assert torch.equal(network.used.weight, now)


def test_without_a_running_mean_the_weights_stay_themselves() -> None:
    network, optimiser, averages = fresh(keep=0.0)
    stepped(network, optimiser, averages, 1)
    now = network.used.weight.detach().clone()
    with averages.instead():
        assert torch.equal(network.used.weight, now)
    assert averages.arrays() == {}


def test_a_fit_goes_on_as_if_it_had_never_stopped() -> None:
    network, optimiser, averages = fresh()
    stepped(network, optimiser, averages, 3)
    progress = fitting.Progress(step=3, index=2, best_score=0.5, best=fitting.arrays_of(network))
    kept = fitting.checkpoint_of(network, optimiser, averages, progress)
    stepped(network, optimiser, averages, 3)
    other, again, mean = fresh()
    assert fitting.restore(kept, other, again, mean).plain() == progress.plain()
    stepped(other, again, mean, 3)
    for one, two in (
        (fitting.arrays_of(network), fitting.arrays_of(other)),
        (averages.arrays(), mean.arrays()),
    ):
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    "lost", ["network/used.weight", "average/used.weight", "optimiser/exp_avg/used.weight"]
)
def test_a_checkpoint_that_lacks_something_is_refused(lost: str) -> None:
    network, optimiser, averages = fresh()
    stepped(network, optimiser, averages, 1)
    kept = fitting.checkpoint_of(network, optimiser, averages, fitting.Progress(step=1))
    arrays = {name: array for name, array in kept.arrays.items() if name != lost}
    with pytest.raises(MalformedInput, match="does not fit this experiment's network"):
        fitting.restore(Checkpoint(arrays, kept.state), *fresh())


def test_the_best_weights_are_kept_until_patience_ends() -> None:
    network, _, _ = fresh()
    progress, settings = fitting.Progress(), Optimisation(max_steps=100, patience=2)
    assert progress.validated(0.5, network)
    best = progress.best
    assert not progress.validated(0.4, network)
    assert not progress.ended(settings)
    assert not progress.validated(0.5, network)
    assert progress.ended(settings)
    assert progress.best is best


def test_a_rate_is_set_where_recorded_work_looks_for_it() -> None:
    network, optimiser, _ = fresh()
    fitting.set_rate(optimiser, 0.3)
    assert optimiser.param_groups[0]["lr"] == 0.3
    place = torch.tensor(0.1)
    recorded = torch.optim.Adam(network.parameters(), place, capturable=False)
    fitting.set_rate(recorded, 0.3)
    assert recorded.param_groups[0]["lr"] is place
    assert float(place) == pytest.approx(0.3)


def test_a_loss_that_is_no_number_is_said_at_once() -> None:
    assert fitting.finite(0.5, 3) == 0.5
    with pytest.raises(InvalidSetting, match=r"The loss is nan after 3 steps\. Lower learning_rate"):
        fitting.finite(math.nan, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [("meta", "Networks run on cpu or cuda, not 'meta'"), ("gpu9", "No device is called 'gpu9'")],
)
def test_networks_run_on_what_is_here(name: str, said: str) -> None:
    assert fitting.device_called("cpu").type == "cpu"
    with pytest.raises(InvalidSetting, match=said):
        fitting.device_called(name)
