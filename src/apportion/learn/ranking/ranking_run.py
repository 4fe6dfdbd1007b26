"""Run a ranking experiment: a store, a ranker and a seed make one folder with metrics, artifact and page."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from apportion import __version__
from apportion.data.artifact import read_bytes
from apportion.data.configurations import ConfigurationStore, ConfiguredGraph
from apportion.data.published.tpugraphs import COLLECTIONS
from apportion.errors import InvalidSetting, UnknownName
from apportion.jobs.holding import held
from apportion.jobs.processors import peak_memory_bytes
from apportion.learn import rankers
from apportion.learn.experiment_run import PAGE, RESULT, SETTINGS, _device, _Log
from apportion.learn.model import Optimisation
from apportion.learn.ranking.rank_predictor import trust_of
from apportion.learn.ranking.ranker import evenly
from apportion.learn.ranking.ranking_task import config_ranking
from apportion.learn.ranking.rankings import rank_graphs, summary
from apportion.learn.training_page import ranking_page
from apportion.settings import replace_file


@dataclass(frozen=True)
class RankingExperiment:
    """One run: a store, a ranker, and how the one is fitted to the other."""

    data: Path
    "The folder of a configuration store."
    model: str = "network"
    "One of `model.rankers`."
    collections: tuple[str, ...] = ()
    "Which of the store's collections; all when empty."
    held_out: float = 0.0
    "The part of the training graphs that chooses the weights; 0: the validation side does, as in papers."
    evaluated: int = 0
    "At most so many configurations of a graph are evaluated, evenly spread; 0 for all that are published so."
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    optimisation: Optimisation = field(default_factory=Optimisation)

    def __post_init__(self) -> None:
        if self.model not in rankers:
            raise UnknownName("ranker", self.model, rankers.names())
        for name in self.collections:
            if name not in COLLECTIONS:
                raise UnknownName("collection", name, COLLECTIONS)
        if not 0 <= self.held_out < 1:
            raise InvalidSetting(f"held_out must lie from 0 to below 1, not {self.held_out}")
        for name in ("seed", "evaluated"):
            if getattr(self, name) < 0:
                raise InvalidSetting(f"{name} must not be negative, not {getattr(self, name)}")

    @property
    def task(self) -> str:
        """What runs are filed under."""
        return config_ranking.name


def run_ranking(
    experiment: RankingExperiment, folder: Path, *, resume: bool = False, progress: TextIO | None = None
) -> dict[str, Any]:
    """Train, evaluate, and leave everything in `folder`; what is in evaluation.json comes back.

    Args:
        resume: go on where an interrupted run of the same experiment stood; a finished one is only read.
        progress: who watches; stderr by default.

    Raises:
        InvalidSetting: the folder holds a run already, or the store has nothing to learn from.
        MalformedInput: the checkpoint to go on from is corrupt.
    """
    store = ConfigurationStore.open(experiment.data)
    settings = {**asdict(experiment), "data": str(experiment.data)}
    described = {"settings": settings, "data_fingerprint": store.fingerprint, "version": __version__}
    # It asks for the task's name and the optimisation, which both kinds of experiment have.
    log = _Log(folder, experiment, progress or sys.stderr)  # type: ignore[arg-type]
    if (folder / RESULT).exists():
        log.compare(described, resume=resume)
        log.say(f"{folder} is finished; nothing to do")
        return dict(json.loads(read_bytes(folder / RESULT)))
    with held(folder, (SETTINGS,)):
        log.open(described, resume=resume)
        return _train(experiment, store, described, log)


def _train(
    experiment: RankingExperiment, store: ConfigurationStore, described: Mapping[str, Any], log: _Log
) -> dict[str, Any]:
    """Train from the start, or from where the run in the log's folder stood, and evaluate."""
    folder = log.folder
    started = time.monotonic()
    training, validation, tested = sides(store, experiment)
    log.say(
        f"{len(training)} graphs to learn from, {len(validation)} to validate with, {len(tested)} to evaluate"
    )
    ranker = rankers.load(experiment.model).create(
        experiment.hyperparameters, optimisation=experiment.optimisation, seed=experiment.seed,
        device=_device(experiment),  # type: ignore[arg-type]
    )  # fmt: skip
    ranker.fit(training, validation, log)
    trust = asdict(trust_of(ranker, training, validation))
    ranker.save(folder, experiment={**described, "trust": trust})
    ranked = rank_graphs([evenly(graph, experiment.evaluated) for graph in tested], ranker.scores)
    result = json.loads(
        json.dumps(
            {
                "evaluation": summary(ranked),
                "graphs": ranked,
                "seed": experiment.seed,
                "seconds": round(log.seconds_before + time.monotonic() - started, 1),
                "peak_memory_bytes": peak_memory_bytes(),
            },
            default=asdict,
        )
    )
    replace_file(folder / PAGE, ranking_page(described, log.rows(), result).encode())
    replace_file(folder / RESULT, json.dumps(result, indent=1).encode())
    return dict(result)


def sides(
    store: ConfigurationStore, experiment: RankingExperiment
) -> tuple[list[ConfiguredGraph], list[ConfiguredGraph], list[ConfiguredGraph]]:
    """The graphs to learn from, to validate with, and to evaluate, which are not learned from.

    Raises:
        InvalidSetting: one of the three would be empty.
    """
    graphs = [
        g for g in store.graphs() if not experiment.collections or g.collection in experiment.collections
    ]
    training = [graph for graph in graphs if graph.side == "train"]
    tested = [graph for graph in graphs if graph.side != "train" and graph.labelled]
    validation = [graph for graph in tested if graph.side == "valid"]
    if experiment.held_out:
        order = np.random.default_rng(experiment.seed).permutation(len(training))
        chosen = set(order[: max(1, round(experiment.held_out * len(training)))].tolist())
        validation = [graph for number, graph in enumerate(training) if number in chosen]
        training = [graph for number, graph in enumerate(training) if number not in chosen]
    for what, found in (("learn from", training), ("validate with", validation), ("evaluate", tested)):
        if not found:
            raise InvalidSetting(
                f"{store.folder} has no graph with runtimes to {what}: see `apportion rank show`"
            )
    return training, validation, tested
