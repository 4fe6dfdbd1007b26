"""Tuning on recorded runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.advise.recorded_tuning import tune_recorded, tune_runs
from apportion.errors import InvalidSetting
from apportion.learn.ranking.recorded_runs import GraphRuns
from apportion.learn.ranking.ridge import TuningPlan


def test_a_graph_of_our_own_is_tuned_from_its_runs():
    tile, stage = np.meshgrid([16, 32, 64, 128, 256], [1, 2, 3, 4, 5, 6, 7, 8], indexing="ij")
    parameters = np.stack([tile.ravel(), stage.ravel()], 1)
    runtime = 1000 + 300 * np.abs(np.log2(parameters[:, 0]) - 6) + 40 * np.abs(parameters[:, 1] - 3)
    repeats = np.repeat(runtime.round().astype(np.int64)[:, None], 4, axis=1)
    runs = GraphRuns(
        "product.M1", "a GPU", ("TILE", "STAGES"), parameters, repeats, np.zeros((40, 24), np.float32), 0
    )
    (found,) = tune_runs(runs, TuningPlan(16, 0.3, 0.5), [0])
    assert (found.measured, found.distinct, found.slowdown) == (16, 40, 0)
    assert found.tau_b > 0.5
    with pytest.raises(InvalidSetting, match="has 40 different configurations: a budget of 39 leaves none"):
        tune_runs(runs, TuningPlan(39), [0])


def test_real_alexnet_is_ranked_from_a_hundred_configurations(shared_data: Path):
    path = shared_data / "tpugraphs" / "layout-xla-alexnet.npz"
    if not path.is_file():
        pytest.skip(f"no TpuGraphs sample at {path}")
    (found,) = tune_recorded(path, TuningPlan(100), [1])
    assert found.distinct == 29_905
    assert found.tau_b > 0.70
    assert found.tau_b_untied > 0.70
    assert found.slowdown < 0.01
