"""The one torch loop: it makes a Model of any network that turns a batch into scores."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apportion.data.artifact import Artifact, read_artifact, write_artifact
from apportion.data.batch import Batch, Batches
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn import tasks
from apportion.learn.model import Model, Optimisation, Report
from apportion.learn.nn import fitting
from apportion.learn.nn.cuda_buffers import BufferPool, GraphBuffers
from apportion.learn.nn.cuda_graphs import GraphRecorder
from apportion.learn.nn.losses import loss_called
from apportion.learn.task import Task

ROUNDING = 0.01
"How much a validation score may differ between machines and precisions that compute the same."
PREPARING = 4
"Threads that prepare batches for a GPU."


class NetworkModel(Model):
    """A network with its optimiser. A subclass says what the network is and what it reads."""

    name: ClassVar[str]

    def __init__(
        self,
        task: Task[Any],
        vocabulary: Sequence[str],
        hyperparameters: Mapping[str, Any],
        optimisation: Optimisation,
        seed: int,
        device: str,
    ) -> None:
        self.task, self.vocabulary, self.optimisation = task, tuple(vocabulary), optimisation
        self.hyperparameters = dict(hyperparameters)
        self.device = fitting.device_called(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = self.network_of(len(self.vocabulary) + 1, task.outputs, hyperparameters)
        self.network.to(self.device)

    @staticmethod
    @abstractmethod
    def network_of(texts: int, outputs: int, hyperparameters: Mapping[str, Any]) -> nn.Module:
        """A new network for that many texts and scores."""

    @abstractmethod
    def inputs_of(self, batch: Batch, *, gradients: bool) -> Any:
        """What the network reads of a batch, on the model's device; labels, if any, as `.labels`."""

    @abstractmethod
    def arrays_of(self, batch: Batch, *, gradients: bool) -> dict[str, NDArray[Any]]:
        """The same as arrays of 32 bits on the host, to be copied into a CUDA graph's buffers."""

    @property
    @abstractmethod
    def buffered(self) -> bool:
        """Whether batches are copied into buffers of fixed size, so that work on them can be recorded."""

    @abstractmethod
    def buffered_inputs(self, buffers: GraphBuffers, kinds: int) -> Any:
        """What the network reads of the batch in a CUDA graph's buffers."""

    @classmethod
    def create(
        cls,
        task: Task[Any],
        vocabulary: Sequence[str],
        hyperparameters: Mapping[str, Any],
        *,
        optimisation: Optimisation,
        seed: int = 0,
        device: str = "cpu",
    ) -> Self:
        return cls(task, vocabulary, hyperparameters, optimisation, seed, device)

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        # not inference_mode: the buffers serve training too, and its tensors could not
        with torch.no_grad():
            if self.buffered:
                scores: Tensor = self._answering(self.arrays_of(batch, gradients=False), batch.kinds)
            else:
                scores = self.network(self.inputs_of(batch, gradients=False))
        return scores[: batch.nodes].float().cpu().numpy()

    @cached_property
    def _answering(self) -> RecordedWork:
        return RecordedWork(self, self.network)

    def fit(self, training: Batches, validation: Batches, report: Report) -> None:
        if len(training.examples) == 0 or len(validation.examples) == 0:
            raise InvalidSetting("Training needs at least one example to learn from and one to validate with")
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.optimisation.precision == "tf32" else "highest")
        try:
            self._fit(training, validation, report)
        finally:
            torch.set_float32_matmul_precision(before)

    def _fit(self, training: Batches, validation: Batches, report: Report) -> None:
        settings, loss_of = self.optimisation, loss_called(self.task.loss)
        on_gpu = self.device.type == "cuda"
        # As a tensor, so that a recorded step reads the rate of the moment.
        rate = torch.tensor(settings.learning_rate, device=self.device)
        optimiser = torch.optim.Adam(
            self.network.parameters(), rate if on_gpu else settings.learning_rate,
            fused=on_gpu, capturable=on_gpu,
        )  # fmt: skip
        progress, averages = fitting.Progress(), fitting.Averages(self.network, settings.averaging)
        if (checkpoint := report.resumed()) is not None:
            progress = fitting.restore(checkpoint, self.network, optimiser, averages, self._load)
        loss_sum, nodes, steps = torch.zeros((), device=self.device), 0, 0

        def step(inputs: Any) -> None:
            optimiser.zero_grad(set_to_none=True)
            loss = loss_of(self.network(inputs), inputs.labels.long())
            loss.backward()  # type: ignore[no-untyped-call]
            if settings.clip_norm:
                nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip_norm)
            optimiser.step()
            averages.follow()
            loss_sum.add_(loss.detach())

        buffered = RecordedWork(self, step) if self.buffered else None
        started = read = time.monotonic()
        spent = progress.seconds
        for epoch, index, batch, arrays in self._stream(training, progress.epoch, progress.index):
            if progress.ended(settings):
                break
            fitting.set_rate(optimiser, fitting.learning_rate(settings, progress.step, progress.seconds))
            if buffered is None:
                step(self.inputs_of(batch, gradients=True))
            else:
                buffered(arrays, batch.kinds)
            nodes, steps = nodes + batch.nodes, steps + 1
            progress.step, progress.epoch, progress.index = progress.step + 1, epoch, index + 1
            progress.seconds = spent + time.monotonic() - started
            last = settings.done(progress.step, progress.seconds) == 1.0
            if fitting.is_reported(progress.step, settings) or last:
                mean = fitting.finite(float(loss_sum) / steps, progress.step)
                now = time.monotonic()
                report.stepped(progress.step, loss=mean, nodes=nodes, seconds=now - read)
                loss_sum.zero_()
                nodes, steps, read = 0, 0, now
            if progress.step % settings.validate_every == 0 or last:
                with averages.instead():
                    self._validate(validation, progress, report)
                progress.seconds = spent + time.monotonic() - started
                report.reached(fitting.checkpoint_of(self.network, optimiser, averages, progress))
                read = time.monotonic()
        self._load(progress.best)
        if settled := self.settle(validation):
            self._compare(settled, progress)
            report.validated(progress.step, settled, best=True)

    def settle(self, validation: Batches) -> dict[str, float]:
        """Choose what training leaves open, such as where a decision lies; the scores then, if one was."""
        del validation
        return {}

    def _compare(self, settled: Mapping[str, float], progress: fitting.Progress) -> None:
        """Refuse to end with less than what was kept: what is chosen at the end can only add to it.

        Weights that were kept elsewhere, before an interruption, may answer otherwise here.
        """
        now, then = settled[self.task.best], progress.best_score
        if then is not None and now < then - ROUNDING:
            raise MalformedInput(
                f"holds weights whose {self.task.best} on validation is {now:.4f} here and was {then:.4f} "
                "when they were kept: they were changed since, or this machine computes something else. "
                "Nothing was replaced.",
                file="checkpoint",
            )

    def _validate(self, validation: Batches, progress: fitting.Progress, report: Report) -> None:
        scores = self.score(validation)
        better = progress.validated(scores[self.task.best], self.network)
        report.validated(progress.step, scores, best=better)

    def _stream(
        self, batches: Batches, epoch: int, index: int
    ) -> Iterator[tuple[int, int, Batch, dict[str, NDArray[Any]]]]:
        """Batches from a place on without end: epoch, place within it, the batch, and on a GPU its arrays.

        On a GPU some threads prepare the next ones while it works.
        """

        def places() -> Iterator[tuple[int, int, int]]:
            at, skip = epoch, index
            while True:
                for place, number in enumerate(batches.order(at).tolist()):
                    if place >= skip:
                        yield at, place, number
                at, skip = at + 1, 0

        def prepare(number: int) -> tuple[Batch, dict[str, NDArray[Any]]]:
            batch = batches.examples.batch(batches.composition[number])
            return batch, self.arrays_of(batch, gradients=True) if self.buffered else {}

        if self.device.type == "cpu":
            for at, place, number in places():
                yield at, place, *prepare(number)
            return
        waiting: deque[tuple[int, int, Future[tuple[Batch, dict[str, NDArray[Any]]]]]] = deque()
        with ThreadPoolExecutor(PREPARING) as pool:
            for at, place, number in places():
                waiting.append((at, place, pool.submit(prepare, number)))
                if len(waiting) > 2 * PREPARING:
                    first_at, first_place, future = waiting.popleft()
                    yield first_at, first_place, *future.result()

    def _load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        fitting.load_arrays(self.network, arrays)

    def save(self, folder: Path, *, experiment: Mapping[str, Any] | None = None) -> None:
        artifact = Artifact(
            self.task.name, self.name, self.hyperparameters, self.vocabulary, dict(experiment or {}),
            predictor="data-flow",
        )  # fmt: skip
        write_artifact(folder, artifact, fitting.arrays_of(self.network))

    def begin_from(self, folder: Path) -> None:
        artifact, weights = read_artifact(folder)
        mine = (self.task.name, self.name, self.hyperparameters, self.vocabulary)
        theirs = (artifact.task, artifact.model, artifact.hyperparameters, artifact.vocabulary)
        what = ("task", "model", "hyperparameters", "vocabulary")
        if other := [name for name, one, two in zip(what, mine, theirs, strict=True) if one != two]:
            raise InvalidSetting(f"The run in {folder} has another {' and '.join(other)}; start anew")
        self._load(weights)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        artifact, weights = read_artifact(folder)
        task = tasks.load(artifact.task)
        model = cls(task, artifact.vocabulary, artifact.hyperparameters, Optimisation(), 0, device)
        try:
            model._load(weights)
        except RuntimeError as error:
            raise MalformedInput(
                f"holds another network than its description: {error}", file=str(folder)
            ) from error
        return model


class RecordedWork:
    """Some work of a model on a batch: recorded once for each set of buffers, then replayed."""

    def __init__(self, model: NetworkModel, work: Callable[[Any], Any]) -> None:
        self.model, self.work = model, work
        self._recorder = GraphRecorder()
        self._pools: dict[int, BufferPool] = {}
        self._inputs: dict[tuple[int, int], Any] = {}

    def __call__(self, arrays: dict[str, NDArray[Any]], kinds: int) -> Any:
        """What the work returns of a batch's arrays; good until the next call."""
        pool = self._pools.setdefault(kinds, BufferPool(kinds, self.model.device))
        number, buffers = pool.fill(arrays)
        key = (kinds, number)
        if key not in self._inputs:
            self._inputs[key] = self.model.buffered_inputs(buffers, kinds)
        return self._recorder(key, partial(self.work, self._inputs[key]))
