"""Training runs: what they leave, going on after an interruption, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from apportion.cli.train import train
from apportion.data.artifact import arrays_from_bytes, arrays_to_bytes, read_artifact, write_artifact
from apportion.data.store import DataflowStore
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn import models
from apportion.learn.dataflow.evaluation import evaluate
from apportion.learn.dataflow.examples import examples_of
from apportion.learn.experiment import load_experiment
from apportion.learn.experiment_run import run


def test_a_run_leaves_its_settings_metrics_artifact_evaluation_and_page(
    experiment_file: Path, tmp_path: Path
) -> None:
    said = io.StringIO()
    result = run(load_experiment(experiment_file), tmp_path / "run", progress=said)
    folder = tmp_path / "run"
    settings = json.loads((folder / "experiment.json").read_text())
    assert settings["settings"]["optimisation"]["max_steps"] == 30
    assert settings["data_fingerprint"]
    assert settings["version"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [10, 20, 30]
    # The last time with the bound between labelled and not that validation chose.
    validated = [(row["step"], row["validation_f1"]) for row in rows if "validation_f1" in row]
    assert [step for step, _ in validated] == [10, 20, 30, 30]
    assert validated[-1][1] > max(f1 for _, f1 in validated[:-1])
    assert json.loads((folder / "evaluation.json").read_text()) == result
    assert 0 <= result["test"]["f1"]["low"] <= result["test"]["f1"]["value"] <= 1
    assert sum(row["examples"] for row in result["by_steps"]) >= result["test"]["examples"]
    html = (folder / "page.html").read_text()
    assert html.count("<polyline") == 2
    assert "http" not in html
    artifact, weights = read_artifact(folder)
    assert (artifact.task, artifact.model) == ("reachability", "programl")
    assert weights["embedding.text.weight"].shape == (len(artifact.vocabulary) + 1, 6)
    assert "nodes/s" in said.getvalue()
    assert "left" in said.getvalue()


def test_the_artifact_scores_what_the_run_says(experiment_file: Path, tmp_path: Path) -> None:
    experiment = load_experiment(experiment_file)
    result = run(experiment, tmp_path / "run", progress=io.StringIO())
    model = models.load("programl").load(tmp_path / "run")
    test = examples_of(DataflowStore.open(experiment.data), "reachability", "test")
    assert evaluate(model, test, node_budget=999).scores() == result["test"]


def test_a_run_resumed_after_an_interruption_equals_one_that_was_not(
    experiment_file: Path, tmp_path: Path
) -> None:
    experiment = load_experiment(experiment_file)
    run(experiment, tmp_path / "whole", progress=io.StringIO())

    class Interrupt(io.StringIO):
        def write(self, text: str) -> int:
            if "step 20  validation" in text:
                raise KeyboardInterrupt
            return super().write(text)

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "cut", progress=Interrupt())
    said = io.StringIO()
    run(experiment, tmp_path / "cut", resume=True, progress=said)
    assert "going on from step 10" in said.getvalue()
    one, two = (read_artifact(tmp_path / name)[1] for name in ("whole", "cut"))
    for name, array in one.items():
        np.testing.assert_array_equal(two[name], array, err_msg=name)
    logged = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    rows = [[json.loads(line) | {"nodes_per_second": 0} for line in lines] for lines in logged]
    assert rows[0] == rows[1]


def test_a_run_that_had_only_to_be_evaluated_ends_as_if_it_had_never_stopped(
    experiment_file: Path, tmp_path: Path
) -> None:
    experiment = load_experiment(experiment_file, ["optimisation.averaging=0.9"])
    whole = run(experiment, tmp_path / "whole", progress=io.StringIO())
    for path in (
        tmp_path / "whole"
    ).iterdir():  # as a kill after the artifact and before the evaluation leaves it
        if path.name not in ("evaluation.json", "page.html"):
            (tmp_path / "cut").mkdir(exist_ok=True)
            (tmp_path / "cut" / path.name).write_bytes(path.read_bytes())
    said = io.StringIO()
    resumed = run(experiment, tmp_path / "cut", resume=True, progress=said)
    assert "going on from step 30" in said.getvalue()
    assert "nodes/s" not in said.getvalue()
    measured = ("date", "seconds", "peak_memory_bytes")
    assert {k: v for k, v in resumed.items() if k not in measured} == {
        k: v for k, v in whole.items() if k not in measured
    }
    for name, array in read_artifact(tmp_path / "whole")[1].items():
        np.testing.assert_array_equal(read_artifact(tmp_path / "cut")[1][name], array, err_msg=name)
    logged = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "cut")]
    assert logged[0] == logged[1]


def test_weights_that_no_longer_answer_as_they_did_replace_nothing(
    experiment_file: Path, tmp_path: Path
) -> None:
    experiment = load_experiment(experiment_file)
    folder = tmp_path / "run"
    run(experiment, folder, progress=io.StringIO())
    before = (folder / "weights.safetensors").read_bytes()
    (folder / "evaluation.json").unlink()
    described = json.loads((folder / "checkpoint.json").read_text())
    path = folder / described["file"]
    arrays = arrays_from_bytes(path.read_bytes(), path)
    kept = {name: -array if name.startswith("best/readout") else array for name, array in arrays.items()}
    path.write_bytes(arrays_to_bytes(kept))
    described["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "checkpoint.json").write_text(json.dumps(described))
    with pytest.raises(MalformedInput, match=r"holds weights whose f1 on validation is 0\.\d+ here and was"):
        run(experiment, folder, resume=True, progress=io.StringIO())
    assert (folder / "weights.safetensors").read_bytes() == before


def test_a_run_goes_on_where_its_dataset_was_moved_to(experiment_file: Path, tmp_path: Path) -> None:
    experiment = load_experiment(experiment_file)
    run(experiment, tmp_path / "run", progress=io.StringIO())
    (tmp_path / "run" / "evaluation.json").unlink()
    moved = tmp_path / "moved"
    shutil.copytree(experiment.data, moved)
    run(replace(experiment, data=moved), tmp_path / "run", resume=True, progress=io.StringIO())
    assert (tmp_path / "run" / "evaluation.json").exists()


def test_a_run_goes_on_from_an_earlier_one(experiment_file: Path, tmp_path: Path) -> None:
    run(load_experiment(experiment_file), tmp_path / "first", progress=io.StringIO())
    settings = [f"start={tmp_path / 'first'}", "optimisation.learning_rate=1e-12", "optimisation.max_steps=1"]
    second = load_experiment(experiment_file, settings)
    run(second, tmp_path / "second", progress=io.StringIO())
    before, after = (read_artifact(tmp_path / name) for name in ("first", "second"))
    for name, weights in before[1].items():
        np.testing.assert_allclose(weights, after[1][name], atol=1e-9)
    assert after[0].experiment["settings"]["start"] == "first"


def test_only_a_run_on_the_same_data_and_of_the_same_shape_is_gone_on_from(
    experiment_file: Path, tmp_path: Path
) -> None:
    run(load_experiment(experiment_file), tmp_path / "first", progress=io.StringIO())
    start = f"start={tmp_path / 'first'}"
    wider = load_experiment(experiment_file, [start, "hyperparameters.width=8"])
    with pytest.raises(InvalidSetting, match="another hyperparameters"):
        run(wider, tmp_path / "wider", progress=io.StringIO())
    artifact, weights = read_artifact(tmp_path / "first")
    elsewhere = replace(artifact, experiment={**artifact.experiment, "data_fingerprint": "other"})
    write_artifact(tmp_path / "elsewhere", elsewhere, weights)
    there = load_experiment(experiment_file, [f"start={tmp_path / 'elsewhere'}"])
    with pytest.raises(InvalidSetting, match="trained on the dataset other"):
        run(there, tmp_path / "there", progress=io.StringIO())


def test_a_finished_run_is_not_run_again(experiment_file: Path, tmp_path: Path) -> None:
    experiment = load_experiment(experiment_file)
    result = run(experiment, tmp_path / "run", progress=io.StringIO())
    said = io.StringIO()
    assert run(experiment, tmp_path / "run", resume=True, progress=said) == result
    assert "is finished" in said.getvalue()


def test_a_folder_that_holds_a_run_is_left_alone(experiment_file: Path, tmp_path: Path) -> None:
    run(load_experiment(experiment_file), tmp_path / "run", progress=io.StringIO())
    with pytest.raises(InvalidSetting, match=r"holds a run already\. Add --resume"):
        run(load_experiment(experiment_file), tmp_path / "run", progress=io.StringIO())
    with pytest.raises(InvalidSetting, match="has other settings, data or version"):
        run(
            load_experiment(experiment_file, ["seed=9"]),
            tmp_path / "run",
            resume=True,
            progress=io.StringIO(),
        )


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("checkpoint-10.safetensors", lambda data: data[:-4], "does not have the checksum"),
        ("checkpoint-10.safetensors", lambda data: b"", "cut short or changed"),
        ("checkpoint.json", lambda data: data[:20], "is no checkpoint"),
        ("checkpoint.json", lambda data: b"{}", "Delete it to start anew"),
    ],
)
def test_a_corrupt_checkpoint_is_named(
    experiment_file: Path, tmp_path: Path, file: str, damage: object, message: str
) -> None:
    experiment = load_experiment(experiment_file)

    class Interrupt(io.StringIO):
        def write(self, text: str) -> int:
            if "step 20  validation" in text:
                raise KeyboardInterrupt
            return super().write(text)

    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "run", progress=Interrupt())
    path = tmp_path / "run" / file
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(MalformedInput, match=message):
        run(experiment, tmp_path / "run", resume=True, progress=io.StringIO())


def test_a_task_without_examples_says_so(experiment_file: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSetting, match="has no train example of reachability with at most 1 steps and 2"
    ):
        run(
            load_experiment(experiment_file, ["steps_limit=1", "nodes_limit=2"]),
            tmp_path / "run", progress=io.StringIO(),
        )  # fmt: skip


def test_the_command_prints_a_row_per_experiment(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(experiment_file, set=("optimisation.max_steps=3",), out=tmp_path / "run", json=True)
    printed = capsys.readouterr()
    assert list(json.loads(printed.out)) == ["small"]
    train(experiment_file, set=("optimisation.max_steps=3",), out=tmp_path / "run", resume=True)
    assert "small" in capsys.readouterr().out
    with pytest.raises(InvalidSetting, match="Name at least one experiment"):
        train()
