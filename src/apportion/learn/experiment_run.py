"""Run an experiment: one folder with its settings, metrics, checkpoint, artifact, evaluation and page."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from apportion import __version__
from apportion.data.artifact import arrays_from_bytes, arrays_to_bytes, read_bytes, read_description
from apportion.data.batch import Batches
from apportion.data.store import DataflowStore
from apportion.errors import InvalidSetting, MalformedInput
from apportion.jobs.holding import held
from apportion.jobs.journal import Journal
from apportion.jobs.processors import peak_memory_bytes
from apportion.learn import models, tasks
from apportion.learn.dataflow.evaluation import evaluate
from apportion.learn.dataflow.examples import examples_of
from apportion.learn.experiment import Experiment
from apportion.learn.model import Checkpoint
from apportion.learn.training_page import dataflow_page
from apportion.report.hardware import hardware
from apportion.settings import replace_file

SETTINGS, METRICS, CHECKPOINT = "experiment.json", "metrics.jsonl", "checkpoint.json"
RESULT, PAGE = "evaluation.json", "page.html"


def run(
    experiment: Experiment, folder: Path, *, resume: bool = False, progress: TextIO = sys.stderr
) -> dict[str, Any]:
    """Train, evaluate, and leave everything in `folder`; what is in evaluation.json comes back.

    Args:
        resume: go on where an interrupted run of the same experiment stood; a finished one is only read.

    Raises:
        InvalidSetting: the folder holds a run already, or one of other settings or data.
        MalformedInput: the checkpoint to go on from is corrupt.
    """
    store = DataflowStore.open(experiment.data)
    described = _described(experiment, store)
    log = _Log(folder, experiment, progress)
    if (folder / RESULT).exists():
        log.compare(described, resume=resume)
        log.say(f"{folder} is finished; nothing to do")
        return dict(json.loads(read_bytes(folder / RESULT)))
    with held(folder, (SETTINGS,)):
        return _train(experiment, store, described, log, resume=resume)


def _train(
    experiment: Experiment, store: DataflowStore, described: Mapping[str, Any], log: _Log, *, resume: bool
) -> dict[str, Any]:
    """Train from the start, or from where the run in the log's folder stood, and evaluate."""
    folder = log.folder
    log.open(described, resume=resume)
    started = time.monotonic()
    store.verify()
    examples = partial(examples_of, store, experiment.task, nodes_limit=experiment.nodes_limit)
    learnt = experiment.training_sources or store.source_names
    # A step costs its nodes, and a graph of ten thousand teaches one root like a graph of a hundred.
    smaller = min(experiment.training_nodes_limit or experiment.nodes_limit, experiment.nodes_limit)
    training = examples(
        "train",
        steps_limit=experiment.steps_limit,
        nodes_limit=smaller,
        most=experiment.training_examples,
        seed=experiment.seed,
        sources=learnt,
    )
    # What is validated and tested with is drawn without the seed: the same for every run.
    validation = examples(
        "val", steps_limit=experiment.steps_limit, most=experiment.validation_examples, sources=learnt
    )
    log.say(
        f"{len(training):,} training examples of {training.packed.graphs:,} graphs, {len(validation):,} to "
        f"validate with, read in {time.monotonic() - started:.1f} s"
    )
    model = models.load(experiment.model).create(
        tasks.load(experiment.task), store.vocabulary, experiment.hyperparameters,
        optimisation=experiment.optimisation, seed=experiment.seed, device=_device(experiment),
    )  # fmt: skip
    if experiment.start is not None:
        model.begin_from(_start(experiment.start, store))
    budget = experiment.node_budget
    model.fit(Batches(training, budget, experiment.seed), Batches(validation, budget), log)
    model.save(folder, experiment=described)
    test = examples("test", steps_limit=experiment.test_steps_limit, most=experiment.test_examples)
    evaluation = evaluate(model, test, node_budget=budget)
    positive = int(test.labels.sum())
    result = {
        "task": experiment.task,
        "test": evaluation.scores(last=experiment.steps_limit),
        "by_steps": evaluation.by_steps(),
        "by_source": evaluation.by_source(last=experiment.steps_limit),
        "other_sources": evaluation.scores(
            last=experiment.steps_limit, sources=set(store.source_names) - set(learnt)
        ),
        "validation": max(row["validation_f1"] for row in log.rows() if "validation_f1" in row),
        "updates": log.updates,
        "all_nodes_f1": 2 * positive / (positive + len(test.labels)),
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": hardware(_device(experiment)),
        "seconds": round(log.seconds_before + time.monotonic() - started, 1),
        "peak_memory_bytes": peak_memory_bytes(),
    }
    replace_file(folder / PAGE, dataflow_page(described, log.rows(), result).encode())
    replace_file(folder / RESULT, json.dumps(result, indent=1).encode())
    return result


class _Log:
    """A run's folder while it is trained: the `Report` that the model talks to."""

    def __init__(self, folder: Path, experiment: Experiment, progress: TextIO) -> None:
        self.folder, self.optimisation, self.progress = folder, experiment.optimisation, progress
        self.name = experiment.task
        self._metrics = Journal(folder / METRICS, sync=False)
        self.checkpoint: Checkpoint | None = None
        self.seconds = self.seconds_before = 0.0
        self.updates = 0

    def open(self, described: Mapping[str, Any], *, resume: bool) -> None:
        """Take an empty folder, or one of the same run when it may be resumed."""
        if self.compare(described, resume=resume):
            self._read_checkpoint()
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / SETTINGS, json.dumps(described, indent=1).encode())
        self._cut_metrics(0 if self.checkpoint is None else int(self.checkpoint.state["step"]))

    def compare(self, described: Mapping[str, Any], *, resume: bool) -> bool:
        """Whether the folder holds a run, which must be the same and may then be resumed; it is only read."""
        path = self.folder / SETTINGS
        if path.exists():
            if not resume:
                raise InvalidSetting(
                    f"{self.folder} holds a run already. Add --resume, or choose another --out."
                )
            if _comparable(json.loads(read_bytes(path))) != _comparable(json.loads(json.dumps(described))):
                raise InvalidSetting(
                    f"The run in {self.folder} has other settings, data or version than this experiment. "
                    "Choose another --out."
                )
        return path.exists()

    def rows(self) -> list[dict[str, Any]]:
        """Everything that was logged."""
        return self._metrics.entries()

    def say(self, text: str) -> None:
        """A line for whoever watches."""
        print(f"{self.name}: {text}", file=self.progress, flush=True)

    def resumed(self) -> Checkpoint | None:
        return self.checkpoint

    def stepped(self, step: int, *, loss: float, nodes: int, seconds: float) -> None:
        self.seconds += seconds
        self._metrics.add({"step": step, "loss": loss, "nodes_per_second": nodes / max(seconds, 1e-9)})
        left = self.seconds / self.optimisation.done(step, self.seconds) - self.seconds
        self.say(
            f"step {step:,} of {self.optimisation.max_steps:,}  loss {loss:.5f}  "
            f"{nodes / max(seconds, 1e-9):,.0f} nodes/s  {int(left // 60)}:{int(left % 60):02d} left"
        )

    def validated(self, step: int, scores: Mapping[str, float], *, best: bool) -> None:
        self.updates = step
        self._metrics.add({"step": step, **{f"validation_{name}": value for name, value in scores.items()}})
        line = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
        self.say(f"step {step:,}  validation {line}{'  (best)' if best else ''}")

    def reached(self, checkpoint: Checkpoint) -> None:
        data = arrays_to_bytes(checkpoint.arrays)
        name = f"checkpoint-{checkpoint.state['step']}.safetensors"
        replace_file(self.folder / name, data)
        described = {
            "file": name,
            "sha256": hashlib.sha256(data).hexdigest(),
            "state": dict(checkpoint.state),
        }
        replace_file(self.folder / CHECKPOINT, json.dumps(described, indent=1).encode())
        for old in self.folder.glob("checkpoint-*.safetensors"):
            if old.name != name:
                old.unlink()

    def _read_checkpoint(self) -> None:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return
        try:
            described = json.loads(read_bytes(path))
            name, digest, state = described["file"], described["sha256"], described["state"]
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedInput(
                f"is no checkpoint ({error}). Delete it to start anew.", file=str(path)
            ) from error
        data = read_bytes(self.folder / name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise MalformedInput(
                f"does not have the checksum that {CHECKPOINT} gives: it is cut short or changed. "
                f"Delete {CHECKPOINT} to start anew.",
                file=str(self.folder / name),
            )
        self.checkpoint = Checkpoint(arrays_from_bytes(data, self.folder / name), state)
        self.seconds = self.seconds_before = float(state["seconds"])
        self.updates = int(state["step"])
        self.say(f"going on from step {state['step']:,}")

    def _cut_metrics(self, step: int) -> None:
        """Forget what was logged after the checkpoint: it will be logged again.

        A checkpoint follows a validation, and one more validation of the same step follows the last.
        """
        kept = 0
        for row in self._metrics.entries():
            if row["step"] > step:
                break
            kept += 1
            if row["step"] == step and "loss" not in row:
                break
        self._metrics.keep(kept)


def _described(experiment: Experiment, store: DataflowStore) -> dict[str, Any]:
    settings = {
        **asdict(experiment),
        "data": str(experiment.data),
        # By its name: a folder of runs may be moved.
        "start": None if experiment.start is None else experiment.start.name,
    }
    return {"settings": settings, "data_fingerprint": store.fingerprint, "version": __version__}


def _comparable(described: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal to go on with a run. A dataset may be moved: its fingerprint says which it is."""
    settings = {name: value for name, value in described["settings"].items() if name != "data"}
    return {**described, "settings": settings}


def _start(folder: Path, store: DataflowStore) -> Path:
    """A run to go on from, once it is sure that it was trained on this store."""
    theirs = read_description(folder).experiment.get("data_fingerprint")
    if theirs != store.fingerprint:
        raise InvalidSetting(
            f"The run in {folder} was trained on the dataset {theirs}, and this one is {store.fingerprint}: "
            "what it learnt from could be tested on here. Start anew, or from a run on this dataset."
        )
    return folder


def _device(experiment: Experiment) -> str:
    """The device to train on: what the experiment says, or a GPU where the driver shows one."""
    if experiment.device != "auto":
        return experiment.device
    return "cuda" if Path("/dev/nvidia0").exists() else "cpu"
