"""Published numbers and goals are data."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from apportion.errors import InvalidSetting
from reproduction.campaign.page import _TARGETS
from reproduction.dataflow import page as dataflow
from reproduction.kernels import page as kernels
from reproduction.published import published
from reproduction.ranking import page as ranking
from reproduction.relative import page as relative


def test_each_table_has_its_numbers():
    assert dataflow.PUBLISHED["liveness"] == "0.937 / 0.956"
    assert kernels.PUBLISHED.reported["load-balance"]["cgo17-nvidia"]["mae"] == {"thesis": 7.324}
    assert kernels.PUBLISHED.goals["device-mapping"]["cgo17-amd"]["accuracy"]["suite"] == 0.588
    assert ranking.PUBLISHED.opa["GNN"][50] == 73.97
    assert ranking.PUBLISHED.parts["layout:nlp:default"] == (55.0, 65.0, 55.0)
    assert ranking.PUBLISHED.total[100] == {1: 17.58}
    assert relative.TARGETS["application", "regret"] == (1.12, False)
    assert list(relative.FEW_TARGETS) == [5, 20, 50]
    assert _TARGETS["regret"] == 1.10


def test_a_number_that_is_missing_is_named():
    @dataclass(frozen=True)
    class Other:
        nothing: float

    with pytest.raises(InvalidSetting, match=r"published\.toml: .*nothing: Field required"):
        published("dataflow", Other)
