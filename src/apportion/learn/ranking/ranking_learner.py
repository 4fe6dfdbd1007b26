"""The ranking network as a ranker: fitted to sampled configurations of sampled graphs, it scores them all.

A step takes some graphs, and of each some configurations drawn at random; gradients of the graphs are added
up one after the other, so that memory holds one graph however many a step has. Every draw comes from the seed
and the number of the step, so that an interrupted fit goes on as if it had never stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from apportion.data.artifact import read_artifact
from apportion.data.configurations import ConfiguredGraph
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.model import Optimisation, Report
from apportion.learn.nn import fitting
from apportion.learn.nn.losses import loss_called
from apportion.learn.ranking.ranker import Graphs, Ranker, check_graphs, validation_scores
from apportion.learn.ranking.ranking_inputs import GraphInputs, inputs_of
from apportion.learn.ranking.ranking_network import RankingNetwork
from apportion.learn.ranking.ranking_settings import RankingSettings
from apportion.learn.ranking.reached_nodes import configurable_of, logarithmic, select
from apportion.learn.ranking.step import GraphGradients
from apportion.settings import convert

KEPT_BYTES = 1 << 30
"Prepared graphs that stay in memory, of a CPU or of a GPU."
SCORED_FLOATS = 1 << 26
"The most numbers that a layer's moving rows take while all configurations of a graph are scored."


@dataclass(frozen=True)
class LearnerSettings:
    """How a step is drawn, and what is learned from it."""

    network: RankingSettings = field(default_factory=RankingSettings)
    sampled: int = 64
    "Configurations of a graph in a step."
    graphs: int = 1
    "Graphs in a step."
    loss: Literal["list-mle", "pairwise-hinge"] = "list-mle"
    l2: float = 1e-5
    "How much the squares of weights, biases and embeddings apart, add to the loss."
    dropout: float = 0.0
    "The part of a graph's edges or segments that a step leaves out."
    dropped: Literal["edges", "segments"] = "edges"
    averaging: float = 0.0
    "How much of the weights' running mean a step keeps; 0 for the weights themselves."
    validated: int = 512
    "At most so many configurations of each validation graph are scored; 0 for all."
    best: Literal["tau_b", "opa"] = "tau_b"
    "The measure that chooses the weights and ends training early."
    together: int = 128
    "Configurations scored together; it matters only where they attend to each other."

    def __post_init__(self) -> None:
        if self.sampled < 2:
            raise InvalidSetting(f"sampled must be at least 2 configurations, not {self.sampled}")
        if self.graphs < 1 or self.together < 1:
            raise InvalidSetting("graphs and together must be at least 1")
        for name in ("dropout", "averaging"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must lie from 0 to below 1, not {getattr(self, name)}")
        if self.l2 < 0 or self.validated < 0:
            raise InvalidSetting("l2 and validated must not be negative")


class NetworkRanker(Ranker):
    """A `RankingNetwork` with its optimiser."""

    name = "network"
    settings_type = LearnerSettings

    def __init__(self, settings: LearnerSettings, optimisation: Optimisation, seed: int, device: str) -> None:
        self.settings, self.optimisation, self.seed = settings, optimisation, seed
        self.device = fitting.device_called(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = RankingNetwork(settings.network)
        self.network.to(self.device)

    @classmethod
    def untrained(cls, settings: LearnerSettings, optimisation: Optimisation, seed: int, device: str) -> Self:
        return cls(settings, optimisation, seed, device)

    @property
    def chooses(self) -> bool:
        return True

    def scores(self, graph: ConfiguredGraph) -> NDArray[np.float32]:
        inputs = self._inputs(graph, None)
        moving = max((layer.receivers for layer in inputs.layers), default=1) or 1
        settings = self.settings
        room = max(1, SCORED_FLOATS // (moving * settings.network.width))
        attends = settings.network.cross_configuration
        chunk = settings.together if attends else min(room, 4096)
        # Configurations that attend to each other are mixed, so that each lot is like the whole.
        order = np.random.default_rng(0).permutation(graph.configurations) if attends else None
        found = np.empty(graph.configurations, np.float32)
        with torch.inference_mode():
            still = self.network.still(inputs)
            for first in range(0, graph.configurations, chunk):
                which = slice(first, first + chunk) if order is None else order[first : first + chunk]
                found[which] = self.network.scores(still, inputs.rows_of(graph.codes[which])).cpu().numpy()
        return found

    def fit(self, training: Graphs, validation: Graphs, report: Report) -> None:
        check_graphs(training, validation)
        settings, optimisation = self.settings, self.optimisation
        optimiser = self._optimiser()
        gradients = GraphGradients(self.network, loss_called(settings.loss), 1 / settings.graphs)
        progress, averages = fitting.Progress(), fitting.Averages(self.network, settings.averaging)
        if (checkpoint := report.resumed()) is not None:
            progress = fitting.restore(checkpoint, self.network, optimiser, averages)
        else:
            self._fit_scaling(training)
        prepared = _Kept(lambda number: self._inputs(training[number], None), gradients.forget)
        seen, steps, spent = 0, 0, progress.seconds
        started = read = time.monotonic()
        while not progress.ended(optimisation):
            fitting.set_rate(optimiser, fitting.learning_rate(optimisation, progress.step, progress.seconds))
            random = np.random.default_rng([self.seed, progress.step])
            gradients.clear()
            for number in self._drawn(progress.step, len(training)):
                graph = training[number]
                inputs = self._inputs(graph, random) if settings.dropout else prepared[number]
                chosen, codes = graph.sample(random, settings.sampled)
                truth = torch.from_numpy(_truth(graph, chosen)).to(self.device)
                again = None if settings.dropout else number
                gradients.add(inputs, inputs.rows_of(codes), truth, number=again)
                seen += inputs.nodes * len(chosen)
            if optimisation.clip_norm:
                nn.utils.clip_grad_norm_(self.network.parameters(), optimisation.clip_norm)
            optimiser.step()
            # The first steps weigh alike, so that the start is forgotten.
            averages.follow(min(settings.averaging, progress.step / (progress.step + 1)))
            steps, progress.step = steps + 1, progress.step + 1
            progress.seconds = spent + time.monotonic() - started
            last = optimisation.done(progress.step, progress.seconds) == 1.0
            if fitting.is_reported(progress.step, optimisation) or last:
                total = fitting.finite(gradients.loss(), progress.step)
                now = time.monotonic()
                report.stepped(progress.step, loss=total / steps, nodes=seen, seconds=now - read)
                seen, steps, read = 0, 0, now
            if progress.step % optimisation.validate_every == 0 or last:
                with averages.instead():
                    self._validate(validation, progress, report)
                progress.seconds = spent + time.monotonic() - started
                report.reached(fitting.checkpoint_of(self.network, optimiser, averages, progress))
                read = time.monotonic()
        fitting.load_arrays(self.network, progress.best)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return fitting.arrays_of(self.network)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        artifact, weights = read_artifact(folder)
        settings = convert(LearnerSettings, artifact.hyperparameters, source=str(folder))
        ranker = cls(settings, Optimisation(), 0, device)
        try:
            fitting.load_arrays(ranker.network, weights)
        except RuntimeError as error:
            raise MalformedInput(
                f"holds another network than its description: {error}", file=str(folder)
            ) from error
        return ranker

    def _inputs(self, graph: ConfiguredGraph, random: np.random.Generator | None) -> GraphInputs:
        """What the network reads of a graph; with a generator, less what a training step drops."""
        settings = self.settings
        chosen = select(
            graph.graph, configurable_of(graph), hops=settings.network.hops,
            drop=0.0 if random is None else settings.dropout, dropped=settings.dropped, random=random,
        )  # fmt: skip
        return inputs_of(graph, chosen, settings.network, self.device)

    def _drawn(self, step: int, count: int) -> list[int]:
        """The graphs of a step: each once in an epoch, in an order of its own."""
        places = range(step * self.settings.graphs, (step + 1) * self.settings.graphs)
        orders = {place // count for place in places}
        order = {epoch: np.random.default_rng([self.seed, 1, epoch]).permutation(count) for epoch in orders}
        return [int(order[place // count][place % count]) for place in places]

    def _fit_scaling(self, training: Graphs) -> None:
        """Set the means and deviations that features are scaled by, from training graphs alone."""
        tile = self.settings.network.configurations == "tile"
        for prefix, name in (("", "node_feat"), ("option_", "options")):
            count, total, squares = 0, np.zeros(1), np.zeros(1)
            for graph in training:
                rows = np.asarray(graph.arrays[name])
                rows = (rows if prefix and not tile else logarithmic(rows)).astype(np.float64)
                count, total, squares = count + len(rows), total + rows.sum(0), squares + (rows**2).sum(0)
            mean = total / count
            variance = np.maximum(squares / count - mean**2, 0)
            deviation = np.where(variance > 1e-6, np.sqrt(variance), 1.0)
            for end, values in (("mean", mean), ("deviation", deviation)):
                getattr(self.network, prefix + end).copy_(torch.from_numpy(values.astype(np.float32)))

    def _optimiser(self) -> torch.optim.Optimizer:
        """Adam, with the penalty on matrices only."""
        held: list[nn.Parameter] = []
        free: list[nn.Parameter] = []
        embeddings = {id(m.weight) for m in self.network.modules() if isinstance(m, nn.Embedding)}
        for parameter in self.network.parameters():
            (held if parameter.ndim > 1 and id(parameter) not in embeddings else free).append(parameter)
        groups = [
            {"params": held, "weight_decay": 2 * self.settings.l2},
            {"params": free, "weight_decay": 0.0},
        ]
        return torch.optim.Adam(groups, self.optimisation.learning_rate)

    def _validate(self, validation: Graphs, progress: fitting.Progress, report: Report) -> None:
        found = validation_scores(self, validation, most=self.settings.validated)
        better = progress.validated(found[self.settings.best], self.network)
        report.validated(progress.step, found, best=better)


class _Kept:
    """Prepared graphs by number, each made when it is asked for; the oldest go when they take too much."""

    def __init__(self, make: Callable[[int], GraphInputs], gone: Callable[[int], None]) -> None:
        self._make, self._gone, self._kept = make, gone, dict[int, GraphInputs]()
        self._bytes = 0

    def __getitem__(self, number: int) -> GraphInputs:
        if number not in self._kept:
            self._kept[number] = inputs = self._make(number)
            self._bytes += inputs.nbytes
            while self._bytes > KEPT_BYTES and len(self._kept) > 1:
                oldest = next(iter(self._kept))
                self._bytes -= self._kept.pop(oldest).nbytes
                self._gone(oldest)
        return self._kept[number]


def _truth(graph: ConfiguredGraph, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """(B,) what some configurations took, without reading the others'."""
    runtime: NDArray[np.float64] = graph.runtime[chosen].astype(np.float64)
    if "config_runtime_normalizers" in graph.arrays:
        runtime = runtime / graph.arrays["config_runtime_normalizers"][chosen]
    return runtime
