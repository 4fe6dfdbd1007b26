"""A small store to train on, and an experiment over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.data.dataflow import LabelSettings, build

EXPERIMENT = """
task = "reachability"
data = "{data}"
device = "cpu"
node_budget = 400

[hyperparameters]
width = 6
steps = 3

[optimisation]
learning_rate = 1e-2
max_steps = 30
validate_every = 10
"""


def program(number: int) -> str:
    """A function with some additions, a branch and two returns."""
    additions = [f"  %v{i + 1} = add i32 %v{i}, {number + i}" for i in range(3 + number)]
    return "\n".join([
        f"define i32 @f{number}(i32 %v0) {{", *additions, f"  %c = icmp eq i32 %v{number}, 0",
        "  br i1 %c, label %x, label %y", "x:", "  ret i32 %v0", "y:", f"  ret i32 %v{1 + number}", "}", "",
    ])  # fmt: skip


@pytest.fixture(scope="session")
def dataflow_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store of fifteen programs."""
    folder = tmp_path_factory.mktemp("store")
    programs = folder / "programs"
    programs.mkdir()
    for number in range(15):
        (programs / f"program{number}.ll").write_text(program(number))
    return build([programs], folder / "built", LabelSettings()).folder


@pytest.fixture
def experiment_file(dataflow_store: Path, tmp_path: Path) -> Path:
    """A TOML file."""
    path = tmp_path / "small.toml"
    path.write_text(EXPERIMENT.format(data=dataflow_store))
    return path
