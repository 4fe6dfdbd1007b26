"""Every learner of the registry, and what they have in common."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("ziglang")

from apportion.cli import main
from apportion.data.counter_table import CounterTable
from apportion.errors import InvalidSetting, UnknownName
from apportion.learn import learners
from apportion.learn.learner import learner_of
from apportion.learn.shares.network_settings import KernelNetworkSettings
from apportion.learn.times.campaign_table import CampaignTable, save_table
from apportion.program.kernel.launch import LAUNCH, TOTALS
from apportion.program.source import Source
from apportion.testing.learner_checks import LearnerChecks

KERNELS = [
    Source(
        f"kernel void k(global float *x) {{ int i = get_global_id(0); x[i] = {body}; }}", "opencl", f"k{n}.cl"
    )
    for n, body in enumerate(("x[i] + 1", "x[i] * x[i]", "sqrt(x[i])", "x[i] / 3", "exp(x[i])"))
]


def campaign(folder: Path) -> dict[str, Any]:
    """Kernels that a CPU and a GPU both ran, as `apportion measure` writes them."""
    rows = []
    for number, source in enumerate(KERNELS):
        (folder / source.name).write_text(str(source.text))
        for items in (1024, 65536):
            for device, seconds in (("cpu", 1e-6 * items), ("gpu", 1e-3 + 1e-7 * items / (number + 1))):
                rows.append(
                    {"source": source.name, "suite": "mine", "digest": source.digest, "kernel": "k",
                     "work_items": items, "group_items": 64, "local_size": "64", "device": device,
                     "device_name": device, "bytes_moved": 4 * items, "seconds": seconds, "agrees": None}
                )  # fmt: skip
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / "measurements.parquet")
    return {"pair": "mine", "measurements": str(folder), "sources": str(folder)}


class TestPooledForests(LearnerChecks):
    name = "pooled-forests"

    def settings(self, folder: Path) -> dict[str, Any]:
        return {"data": campaign(folder), "hyperparameters": {"trees": 2}}


class TestShareForest(LearnerChecks):
    name = "share-forest"

    def settings(self, folder: Path) -> dict[str, Any]:
        return {"data": campaign(folder), "hyperparameters": {"trees": 2}}


class TestShareNetwork(LearnerChecks):
    name = "share-network"

    def settings(self, folder: Path) -> dict[str, Any]:
        pytest.importorskip("torch")
        return {
            "data": campaign(folder), "hyperparameters": {"hidden": 8, "steps": 2}, "held_out": 2, "rare": 1,
            "fitting": {"epochs": 2, "validate_every": 2, "precision": "full"},
        }  # fmt: skip


class TestLaunchTimes(LearnerChecks):
    name = "launch-times"

    def settings(self, folder: Path) -> dict[str, Any]:
        random = np.random.default_rng(0)
        count = 24
        totals = np.zeros((count, len(TOTALS)))
        totals[:, 0] = 1
        totals[:, 1] = 2 ** random.integers(10, 21, count)
        features = np.zeros((count, len(LAUNCH)))
        features[:, : len(TOTALS)] = np.log1p(totals)
        rate = np.stack([totals[:, 1] * 1e-9, totals[:, 1] * 1e-10], axis=1)
        names = tuple(f"k{number // 2}" for number in range(count))
        table = CampaignTable(
            ("cpu", "gpu"), names, ("s",) * count, names, tuple(f"{n}/64" for n in range(count)), features,
            totals, np.full((count, 2), 1e-5), rate,
        )  # fmt: skip
        save_table(table, folder / "table.parquet")
        small = {"kind": "extra-trees", "trees": 2, "leaf": 2}
        return {
            "data": str(folder / "table.parquet"), "folds": 2,
            "hyperparameters": {"whole": small, "fixed": small, "contrast": small},
        }  # fmt: skip


class TestRelative(LearnerChecks):
    name = "relative"

    @pytest.fixture(autouse=True)
    def _runs(self, timed_runs: CounterTable) -> None:
        self.runs = timed_runs

    def settings(self, folder: Path) -> dict[str, Any]:
        self.runs.write(folder / "own.parquet")
        return {"data": str(folder / "own.parquet")}


class TestDataFlow(LearnerChecks):
    name = "data-flow"

    @pytest.fixture(autouse=True)
    def _store(self, dataflow_store: Path) -> None:
        pytest.importorskip("torch")
        self.store = dataflow_store

    def settings(self, folder: Path) -> dict[str, Any]:
        return {"task": "reachability", "data": str(self.store), "model": "constant", "node_budget": 400}


def test_every_learner_of_the_registry_is_checked() -> None:
    # Rankers are trained from stores in tests/learn/ranking/test_ranking_run.py.
    checked = {
        "share-forest",
        "share-network",
        "pooled-forests",
        "launch-times",
        "relative",
        "data-flow",
        "ranking",
    }
    assert set(learners) == checked


def test_a_file_names_its_learner_or_a_task_that_has_a_usual_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('task = "device-mapping"\n')
    assert type(learner_of(path)).__name__ == "ShareForestLearner"
    path.write_text('task = "liveness"\ndata = "store"\n')
    assert type(learner_of(path, ["seed=4"])).__name__ == "AnalysisLearner"
    path.write_text("seed = 1\n")
    with pytest.raises(InvalidSetting, match="names no learner"):
        learner_of(path)
    path.write_text('learner = "forest"\n')
    with pytest.raises(UnknownName, match="No learner called 'forest'"):
        learner_of(path)


def test_the_data_of_a_learner_of_shares_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('learner = "pooled-forests"\n[data]\npair = "h200"\n')
    with pytest.raises(InvalidSetting, match="h200 is no pair of devices of CGO17"):
        learner_of(path)
    path.write_text('learner = "pooled-forests"\n[data]\npair = "h200"\nmeasurements = "m"\n')
    with pytest.raises(InvalidSetting, match=r"Measurements need the folder of their kernels: data\.sources"):
        learner_of(path)


def test_a_model_of_ones_own_is_found_by_its_name_and_its_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("APPORTION_HOME", str(tmp_path / "home"))
    data = campaign(tmp_path)
    lines = [f'{key} = "{value}"' for key, value in data.items()]
    experiment = tmp_path / "mine.toml"
    experiment.write_text("\n".join(['learner = "share-forest"', "[data]", *lines]))
    run("train", experiment, "--set", "hyperparameters.trees=2", "--name", "office")
    assert (tmp_path / "home" / "models" / "office" / "artifact.json").is_file()
    kernel = tmp_path / "f.cl"
    kernel.write_text("kernel void f(global float *x) { x[get_global_id(0)] = 1; }")
    launch = ("predict", kernel, "-l", "64", "-n", "65536", "--bytes", "262144", "--json")
    capsys.readouterr()
    answers = []
    for which in (("--model", "office"), ("--pair", "mine")):
        run(*launch, *which)
        answers.append(json.loads(capsys.readouterr().out)["cpu_share"])
    assert answers[0] == answers[1]
    run("models", "list", "--json")
    listed = {line["name"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (listed["office"]["about"], listed["office"]["question"]) == ("mine", "shares")
    assert "xeon-h200" in listed
    run("train", experiment, "--name", "xeon-h200", code=1)
    assert "xeon-h200 is a model that the package ships" in capsys.readouterr().err


def run(*words: object, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert int(ended.value.code or 0) == code


def test_every_row_of_the_ablation_is_an_experiment_in_both_forms() -> None:
    pytest.importorskip("torch")
    folder = Path(__file__).parents[2] / "experiments"
    found = {}
    for path in folder.glob("load-balance-*.toml"):
        said = re.search(r'row "(.*?)" of the ablation', path.read_text())
        if said:
            settings = learner_of(path, ()).settings
            found[said[1], settings.form] = settings
            assert settings.form == ("classification" if path.stem.endswith("-classes") else "regression")
    plan = tomllib.loads((folder / "ablation.toml").read_text())
    thesis = [row for row in plan["rows"] if not re.search(", |learned|device mapping", row["name"])]
    assert len(thesis) == 11
    for row in thesis:
        for form in ("regression", "classification"):
            settings = found[row["name"], form]
            wanted = KernelNetworkSettings(**row["network"])
            assert settings.hyperparameters == wanted
            assert settings.fitting.batch == row.get("batch", 256)


def test_a_row_that_pools_otherwise_is_trained_on_measured_launches_and_asked_without_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    row = Path(__file__).parents[2] / "experiments" / "load-balance-top-k-extended-classes.toml"
    small = {
        **{f"data.{key}": value for key, value in campaign(tmp_path).items()},
        "hyperparameters.hidden": 8, "hyperparameters.steps": 2, "held_out": 2, "rare": 1,
        "fitting.epochs": 2, "fitting.validate_every": 2,
    }  # fmt: skip
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    run("train", row, *settings, "--out", tmp_path / "model")
    monkeypatch.setitem(sys.modules, "torch", None)
    kernel = tmp_path / "k0.cl"
    capsys.readouterr()
    run("predict", kernel, "-l", "64", "--bytes", "4096", "--model", tmp_path / "model", "--json")
    assert json.loads(capsys.readouterr().out)["cpu_share"] in (0, 0.25, 0.5, 0.75, 1)
