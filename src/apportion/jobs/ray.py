"""Items over a Ray cluster: each worker is a process on some node, and the death of a node costs no outcome.

Each worker is an actor that holds a `LocalRunner` of one process, so that deadlines, memory limits, crashes
and what may come back are as on one machine. An item whose node dies is tried again elsewhere.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray

from apportion.errors import InvalidSetting, JobError, WorkerCrashed
from apportion.jobs.base import Outcome, Runner
from apportion.jobs.local import ItemSupply, LocalRunner, loaded_in_worker, packed_function
from apportion.jobs.values import packed, restored

T = TypeVar("T")
R = TypeVar("R")

_LOOK_SECONDS = 1.0
"How often the cluster is looked at while no worker answers."
_START_SECONDS = 120.0
"A cluster that has started no worker by then has no room for one."


@dataclass(frozen=True)
class RayRunner(Runner):
    """Runs items on a Ray cluster. Every node needs the same Python and the same packages."""

    address: str | None = None
    "HOST:PORT of the head, `auto` for the cluster that runs here; None: RAY_ADDRESS, else a cluster of "
    "this machine alone. With `ray://` before it, by Ray's client from outside (package ray[client])."

    workers: int | None = None
    "How many at most; None: one for each processor of the cluster."

    deadline_seconds: float | None = None
    memory_bytes: int | None = None
    "For each item, as for `LocalRunner`."

    retries: int = 2
    "How often an item is tried again when the node it ran on dies."

    labels: Mapping[str, str] = field(default_factory=dict)
    "Only nodes with these labels, such as `{'system': 'lassen'}`."

    def __post_init__(self) -> None:
        LocalRunner(self.workers, self.deadline_seconds, self.memory_bytes)  # the same checks
        if self.retries < 0:
            raise InvalidSetting(f"retries is 0 or more, not {self.retries}")

    @classmethod
    def at(
        cls, place: str, *, workers: int | None = None, deadline_seconds: float | None = None
    ) -> RayRunner:
        address = f"ray:{place}" if place.startswith("//") else place or None
        return cls(address, workers, deadline_seconds)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[Outcome[R]]:
        return self._outcomes(packed_function(function), items)

    def _outcomes(self, program: bytes, items: Iterable[Any]) -> Iterator[Outcome[Any]]:
        connect(self.address)
        supply, crew = ItemSupply(items), _RayCrew(self, program)
        waiting: deque[tuple[int, bytes, int]] = deque()  # item, its bytes, how often it was tried
        try:
            while True:
                while len(waiting) + len(crew.busy) < crew.most and (item := supply.next()) is not None:
                    if isinstance(item, Outcome):
                        yield item
                    else:
                        waiting.append((*item, 0))
                if not waiting and not crew.busy:
                    break
                crew.hire(len(waiting))
                while waiting and crew.free:
                    crew.give(*waiting.popleft())
                for item_index, data, tries, outcome in crew.heard():
                    if outcome is not None:
                        yield outcome
                    elif tries < self.retries:
                        waiting.appendleft((item_index, data, tries + 1))
                    else:
                        lost = WorkerCrashed(f"The node that it ran on was lost, {tries + 1} times in a row")
                        yield Outcome(item_index, error=lost)
            if supply.error is not None:
                raise supply.error
        finally:
            crew.end()


def connect(address: str | None) -> None:
    """Be a client of the cluster; when already connected, that connection serves.

    Raises:
        JobError: no cluster answers there.
    """
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except Exception as error:  # Ray raises builtins of many kinds here
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise JobError(f"No Ray cluster answers at {address or 'this machine'}: {first}") from error


class _RayWorker:
    """On some node: one process of this machine, fed item by item."""

    def __init__(self, program: bytes, deadline_seconds: float | None, memory_bytes: int | None) -> None:
        runner = LocalRunner(1, deadline_seconds, memory_bytes)
        self._item: Any = None
        self._outcomes = runner.map(loaded_in_worker(program), self._items())

    def _items(self) -> Iterator[Any]:
        while True:
            yield self._item

    def ready(self) -> None:
        """Answer: then the worker is there."""

    def answer(self, item_index: int, data: bytes) -> bytes:
        """The outcome of an item, as bytes."""
        self._item = loaded_in_worker(data)
        outcome = next(self._outcomes)
        return packed(Outcome(item_index, value=outcome.value, error=outcome.error, seconds=outcome.seconds))


class _RayCrew:
    """The workers of one map."""

    def __init__(self, runner: RayRunner, program: bytes) -> None:
        self._runner, self._program = runner, program
        self._starting: dict[Any, Any] = {}  # what says that it is there → worker
        self._silent = 0.0
        self.free: list[Any] = []
        self.busy: dict[Any, tuple[Any, int, bytes, int]] = {}  # answer to come → worker, item, bytes, tries
        self.most = self._room()

    def _room(self) -> int:
        processors = int(ray.cluster_resources().get("CPU", 0))
        return max(1, min(self._runner.workers or processors, processors))

    def hire(self, wanted: int) -> None:
        while len(self.free) + len(self._starting) < wanted and self._members() < self.most:
            options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0}
            if self._runner.labels:
                options["label_selector"] = dict(self._runner.labels)
            worker = ray.remote(_RayWorker).options(**options).remote(
                self._program, self._runner.deadline_seconds, self._runner.memory_bytes
            )  # fmt: skip
            self._starting[worker.ready.remote()] = worker

    def _members(self) -> int:
        return len(self.free) + len(self._starting) + len(self.busy)

    def give(self, item_index: int, data: bytes, tries: int) -> None:
        worker = self.free.pop()
        self.busy[worker.answer.remote(item_index, data)] = (worker, item_index, data, tries)

    def heard(self) -> Iterator[tuple[int, bytes, int, Outcome[Any] | None]]:
        """Wait until something happens; items that were answered, or None for an outcome that was lost."""
        awaited = [*self._starting, *self.busy]
        there, _ = ray.wait(awaited, timeout=_LOOK_SECONDS) if awaited else ([], [])
        if not there and not self.busy and not self.free:
            self._silent += _LOOK_SECONDS
            if self._silent >= _START_SECONDS:
                raise JobError(
                    f"The cluster has started no worker within {_START_SECONDS:g} s: no node has room"
                )
        for answer in there:
            self._silent = 0.0
            if answer in self._starting:
                worker = self._starting.pop(answer)
                try:
                    ray.get(answer)
                    self.free.append(worker)
                except ray.exceptions.RayActorError:
                    self.most = self._room()
                continue
            worker, item_index, data, tries = self.busy.pop(answer)
            try:
                outcome: Outcome[Any] = restored(ray.get(answer))
            except ray.exceptions.RayActorError:  # its node is gone
                self.most = self._room()
                yield item_index, data, tries, None
                continue
            except ray.exceptions.RayTaskError as error:
                # What LocalRunner raises for the whole map, such as a function that cannot be loaded there.
                raise error.cause if isinstance(error.cause, JobError) else JobError(str(error)) from error
            self.free.append(worker)
            yield item_index, data, tries, outcome

    def end(self) -> None:
        workers = [*self.free, *self._starting.values(), *(worker for worker, *_ in self.busy.values())]
        for worker in workers:
            with suppress(Exception):  # the cluster may be gone
                ray.kill(worker)
