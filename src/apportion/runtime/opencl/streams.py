"""Both ends of a stream: what a session talks to, and the thread of a worker that does what it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.jobs.processors import processors
from apportion.runtime.opencl.commands import (
    FENCE,
    FREE,
    FROM_DEVICE,
    LAUNCH,
    SETTLE,
    STOP,
    TO_DEVICE,
    VALUE,
    ZERO,
)
from apportion.runtime.opencl.ring import LOOK_SECONDS, SIZE, SPARE_PROCESSORS, TIMED, Ring, serve
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace
from apportion.runtime.stream import Span, Stream, StreamLaunch, StreamTime

if TYPE_CHECKING:
    from apportion.runtime.opencl.driver import Driver
    from apportion.runtime.opencl.engine import Engine


class WorkerStream(Stream):
    """A stream to a worker process, through a ring in shared memory."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._ids = {info.id: number for number, info in enumerate(worker.devices())}
        self._region = worker.region(SIZE)
        ours, theirs = socket.socketpair()
        with theirs:
            worker.open_stream(self._region.number, theirs.fileno())
        self._bell = ours
        self._ring = Ring(self._region.array(np.uint8, SIZE), ours)
        self._push = self._ring.push
        self._fence = 0
        self._process = worker.serving
        self._ring.when_full = partial(worker.wait_for_room, self._ring, self._process)
        self._waited = True
        self._on_host: dict[int, bool] = {}
        "Prepared launch → whether the host's processors run it."
        self._released: list[int] = []
        self._shares_memory = {info.id: info.shares_memory for info in worker.devices()}
        self._most_look = LOOK_SECONDS if processors() >= SPARE_PROCESSORS else 0.0
        self._look = self._most_look

    def prepare(self, launches: Sequence[StreamLaunch]) -> list[int]:
        """Compile in the worker, and keep it there: one request for all."""
        self.wait()  # compiling takes long, and memory that was let go of may be forgotten now
        numbers = numbers_for(len(launches), len(self._on_host), self._released)
        self._worker.prepare_stream(numbers, launches)
        self._released = [number for number in self._released if number not in numbers]
        for number, launch in zip(numbers, launches, strict=True):
            self._on_host[number] = self._shares_memory[launch.device]
        return numbers

    def release(self, numbers: Sequence[int]) -> None:
        """The next launches that are prepared get them; all that are queued have ended by then."""
        self._released += numbers

    def launch(self, number: int) -> None:
        """Write it to the ring."""
        self._waited = False
        if self._on_host[number]:
            self._look = 0.0  # whoever looks takes a processor from it
        self._push(LAUNCH, number)

    def value(self, number: int, argument: int, data: bytes) -> None:
        """Write it to the ring."""
        self._push(
            VALUE, number << 16 | argument << 8 | len(data), int.from_bytes(data, "little", signed=True)
        )

    def copy(self, region: int, device: str, start: int, end: int, *, to_device: bool) -> None:
        """Write it to the ring."""
        self._waited = False
        what = TO_DEVICE if to_device else FROM_DEVICE
        self._push(what, self._ids[device] << 32 | region, start, end)

    def zero(self, region: int, device: str) -> None:
        """Write it to the ring."""
        self._waited = False
        self._push(ZERO, region, self._ids[device])

    def free(self, region: int, device: str) -> None:
        """Write it to the ring."""
        self._waited = False
        self._push(FREE, region, self._ids[device])

    def wait(self) -> None:
        """Wait for a fence behind everything."""
        if self._waited:
            return
        self._waited = True
        self._pass_fence(FENCE)
        self._look = self._most_look

    def wait_for(self, region: int) -> None:
        """Wait for a fence behind what uses the memory."""
        self._pass_fence(SETTLE, region)

    def _pass_fence(self, what: int, region: int = 0) -> None:
        self._fence += 1
        self._push(what, self._fence, region)
        self._worker.wait_for_ring(self._ring, self._fence, self._process, self._look)
        if self._ring.failed:
            self._worker.stream_failure()

    def time(self, number: int) -> StreamTime | None:
        """What the worker wrote beside the ring."""
        count = int(self._ring.counts[number])
        return StreamTime(count, float(self._ring.seconds[number])) if count else None

    def timeline(self) -> list[Span]:
        """What the worker kept."""
        self.wait()
        return self._worker.stream_timeline()

    def close(self) -> None:
        """Tell the worker's thread to end."""
        if self._bell.fileno() >= 0:
            if self._worker.serving == self._process:
                with contextlib.suppress(OSError):
                    self._push(STOP)
            self.abandon()

    def abandon(self) -> None:
        """Close this side of the bell."""
        self._bell.close()


class DirectStream(Stream):
    """A stream to drivers that are loaded in this process: nothing stands between, and nothing protects."""

    def __init__(self, driver: Driver, attach: Callable[[int], None]) -> None:
        self._driver, self._attach = driver, attach
        self._ids = {info.id: number for number, info in enumerate(driver.describe())}
        self._counts = np.zeros(TIMED, np.int64)
        self._seconds = np.zeros(TIMED)
        self._engine: Engine = driver.engine(self._told)
        self._prepared: set[int] = set()
        self._released: list[int] = []

    def _told(self, number: int, count: int, seconds: float) -> None:
        self._counts[number], self._seconds[number] = count, seconds

    def prepare(self, launches: Sequence[StreamLaunch]) -> list[int]:
        """Compile here."""
        numbers = numbers_for(len(launches), len(self._prepared), self._released)
        if not self._prepared.isdisjoint(numbers):
            self.wait()  # those that had them may still be queued
        for number, launch in zip(numbers, launches, strict=True):
            for place in launch.arguments:
                if isinstance(place, ArrayPlace):
                    self._attach(place.region)
            self._engine.prepare(number, launch)
            self._prepared.add(number)
        self._released = [number for number in self._released if number not in numbers]
        return numbers

    def release(self, numbers: Sequence[int]) -> None:
        """The next launches that are prepared get them."""
        self._released += numbers

    def launch(self, number: int) -> None:
        """Queue it."""
        self._engine.execute(LAUNCH, number, 0, 0)

    def value(self, number: int, argument: int, data: bytes) -> None:
        """Set it."""
        self._engine.execute(
            VALUE, number << 16 | argument << 8 | len(data), int.from_bytes(data, "little"), 0
        )

    def copy(self, region: int, device: str, start: int, end: int, *, to_device: bool) -> None:
        """Queue it."""
        what = TO_DEVICE if to_device else FROM_DEVICE
        self._engine.execute(what, self._ids[device] << 32 | region, start, end)

    def zero(self, region: int, device: str) -> None:
        """Queue it."""
        self._engine.execute(ZERO, region, self._ids[device], 0)

    def free(self, region: int, device: str) -> None:
        """Queue it."""
        self._engine.execute(FREE, region, self._ids[device], 0)

    def wait(self) -> None:
        """Wait for every device."""
        self._engine.finish()
        if (failure := self._engine.told_failure()) is not None:
            raise failure

    def wait_for(self, region: int) -> None:
        """Wait for what uses the memory."""
        self._engine.settle(region)
        if (failure := self._engine.told_failure()) is not None:
            raise failure

    def time(self, number: int) -> StreamTime | None:
        """What was told."""
        count = int(self._counts[number])
        return StreamTime(count, float(self._seconds[number])) if count else None

    def timeline(self) -> list[Span]:
        """What the engine kept."""
        return self._engine.timeline()

    def close(self) -> None:
        """Wait, so that nothing uses memory any more."""
        self._engine.finish()


def numbers_for(count: int, given: int, released: Sequence[int]) -> list[int]:
    """Numbers for launches to be prepared: those of others that are queued no more, then new ones.

    Args:
        given: how many numbers there were so far.

    Raises:
        InvalidSetting: there are not so many.
    """
    again = list(released[:count])
    last = given + count - len(again)
    if last > TIMED:
        raise InvalidSetting(
            f"A session prepares {TIMED} different launches at most. Launch over fewer arrays at a time"
        )
    return [*again, *range(given, last)]


def serve_ring(memory: NDArray[np.uint8], descriptor: int, make: Callable[..., Engine]) -> Engine:
    """The worker's side: a thread that does what the ring says, with an engine that `make` makes."""
    bell = socket.socket(fileno=descriptor)
    ring = Ring(memory, bell)

    def told(number: int, count: int, seconds: float) -> None:
        ring.seconds[number] = seconds
        ring.counts[number] = count

    engine = make(told)
    threading.Thread(target=serve, args=(ring, engine), daemon=True, name="stream").start()
    return engine
