"""Experiments: what a TOML file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.experiment import load_experiment
from apportion.program.analysis import analyses

PLAN = "dataflow-published"
"Of several experiments, and so none itself."
SHIPPED = sorted(
    path for path in (Path(__file__).parents[2] / "experiments").glob("dataflow-*.toml") if path.stem != PLAN
)


def test_settings_on_the_command_line_go_over_those_of_the_file(experiment_file: Path) -> None:
    experiment = load_experiment(experiment_file, ["seed=7", "optimisation.max_steps=5", "task=liveness"])
    assert (experiment.seed, experiment.optimisation.max_steps, experiment.task) == (7, 5, "liveness")
    assert experiment.optimisation.learning_rate == 1e-2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed", "A setting is written key=value, not 'seed'"),
        ("sed=1", "sed: Unexpected keyword argument"),
        ("seed=-1", "seed must not be negative, not -1"),
        ("node_budget=0", "node_budget must be at least 1, not 0"),
        ("optimisation.schedule=jump", "optimisation.schedule"),
        ("seed.x=1", "'seed' in 'seed.x' is a value"),
    ],
)
def test_a_wrong_setting_is_named(experiment_file: Path, setting: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        load_experiment(experiment_file, ["seed=1", setting])


def test_an_unknown_task_brings_the_names_of_those_there_are(experiment_file: Path) -> None:
    with pytest.raises((UnknownName, InvalidSetting), match="Did you mean 'liveness'"):
        load_experiment(experiment_file, ["task=livness"])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_experiment_can_be_read(path: Path) -> None:
    experiment = load_experiment(path)
    assert path.stem.removesuffix("-exact") == f"dataflow-{experiment.task}"
    told = dict(experiment.hyperparameters)
    assert 0.0 <= told.pop("dilution") <= 1.0
    assert told == {"width": 32, "selector": 50.0, "steps": 30}


def test_there_is_an_experiment_for_each_of_the_five_analyses() -> None:
    assert {load_experiment(path).task for path in SHIPPED} == set(analyses)
