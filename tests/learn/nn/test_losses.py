"""Losses by name."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from apportion.errors import UnknownName  # noqa: E402
from apportion.learn.nn.losses import loss_called  # noqa: E402


def test_list_mle_is_the_likelihood_of_the_order_fastest_first():
    scores, runtime = torch.tensor([[1.0], [0.0], [2.0]]), torch.tensor([20.0, 10.0, 30.0])
    weight = [math.exp(-0.0), math.exp(-1.0), math.exp(-2.0)]
    chance = weight[0] / sum(weight) * weight[1] / (weight[1] + weight[2])
    assert loss_called("list-mle")(scores, runtime).item() == pytest.approx(-math.log(chance) / 3)
    assert loss_called("list-mle")(scores, -runtime) > loss_called("list-mle")(scores, runtime)


def test_a_loss_that_is_not_there_is_named():
    with pytest.raises(UnknownName, match=r"No loss called 'hinge'"):
        loss_called("hinge")
