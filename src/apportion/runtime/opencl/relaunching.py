"""Launching again what a worker keeps: a ring says which plan, and numbers in shared memory say what it took.

A program that launches one kernel in a loop sends the same request and gets the same kind of answer every
time. Nothing is pickled, written as JSON or checked against a type then: the first launch of a plan went over
the socket, and of a later one only the numbers differ.
"""

from __future__ import annotations

import math
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apportion.errors import ApportionError, LaunchFailed, WorkerCrashed
from apportion.runtime.opencl import ring
from apportion.runtime.opencl.commands import AGAIN, FENCE
from apportion.runtime.opencl.ring import Ring
from apportion.runtime.plan import DeviceTime, LaunchOutcome

if TYPE_CHECKING:
    from apportion.runtime.opencl.worker import Worker

_NUMBERS = 1024
"Numbers of one answer that fit."
_SIZE = ring.SIZE + 8 * _NUMBERS
_OF_LAUNCH, _OF_DEVICE = 2, 7


class Relaunches:
    """The asking end. It holds a ring: close it.

    Args:
        worker: whose process launches; it must not have been replaced since.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._region = worker.region(_SIZE)
        self._bell, theirs = socket.socketpair()
        with theirs:
            worker.open_again(self._region.number, theirs.fileno())
        memory = self._region.array(np.uint8, _SIZE)
        self._ring = Ring(memory, self._bell)
        self._numbers = memoryview(memory[ring.SIZE :]).cast("B")  # type: ignore[arg-type]
        self._process = worker.serving
        self._fence = 0

    def launch(self, slot: int, first: LaunchOutcome) -> LaunchOutcome:
        """Launch what the worker keeps in a slot, and wait for it.

        Args:
            first: what came of its first launch: the same devices do the same parts again.

        Raises:
            DeadlineExceeded, LimitExceeded, WorkerCrashed, LaunchFailed: it came to a bad end.
        """
        self._fence += 1
        self._ring.push(AGAIN, slot, wake=False)
        self._ring.push(FENCE, self._fence)
        self._worker.wait_for_ring(self._ring, self._fence, self._process)
        if self._ring.failed:
            self._worker.again_failure()
        return _outcome(first, _layout(_length(first)).unpack_from(self._numbers))

    def close(self) -> None:
        """Let the worker's thread end; twice does nothing."""
        if self._bell.fileno() >= 0:
            self._bell.close()


class Relauncher:
    """The launching end, inside the worker: it does the commands of the ring.

    Args:
        again: launches what is kept in a slot.
        memory: that of the ring.
    """

    def __init__(self, again: Callable[[int], LaunchOutcome], memory: NDArray[np.uint8]) -> None:
        self._again = again
        self._numbers = memoryview(memory[ring.SIZE : _SIZE]).cast("B")  # type: ignore[arg-type]
        self.failure: ApportionError | None = None

    def execute(self, what: int, a: int, b: int, c: int) -> None:
        """Launch, and write down what it took."""
        self.failure = None
        try:
            numbers = _numbers(self._again(a))
        except ApportionError as error:
            self.failure = error
        except Exception as error:  # a bug of ours, or a driver's error nobody translated: with its place
            self.failure = LaunchFailed(f"{type(error).__name__}: {error}")
            self.failure.__dict__["traceback"] = traceback.format_exc()
        else:
            _layout(len(numbers)).pack_into(self._numbers, 0, *numbers)

    def finish(self) -> None:
        """A launch has ended when it was executed."""

    def idle(self) -> None:
        """There is nothing to do between launches."""


def serve_again(again: Callable[[int], LaunchOutcome], memory: NDArray[np.uint8], bell: int) -> Relauncher:
    """Launch in a thread what a ring says, inside the worker.

    Args:
        bell: the descriptor of this process's end of the bell.
    """
    relauncher = Relauncher(again, memory)
    commands = Ring(memory, socket.socket(fileno=bell))
    threading.Thread(target=ring.serve, args=(commands, relauncher), daemon=True, name="again").start()
    return relauncher


def fits(outcome: LaunchOutcome) -> bool:
    """Whether what comes of a launch can be told by numbers."""
    return _length(outcome) <= _NUMBERS


def _length(outcome: LaunchOutcome) -> int:
    return _OF_LAUNCH + _OF_DEVICE * len(outcome.devices) + len(outcome.conflicts) + len(outcome.strays)


def _numbers(outcome: LaunchOutcome) -> list[float]:
    numbers = [outcome.seconds, outcome.merge_seconds]
    for time in outcome.devices:
        numbers += (
            time.upload, time.kernel, time.download, time.seconds, time.began, time.busy, time.cold,
        )  # fmt: skip
    numbers += outcome.conflicts.values()
    numbers += outcome.strays.values()
    return numbers


def _outcome(first: LaunchOutcome, numbers: tuple[float, ...]) -> LaunchOutcome:
    """What came of a launch like the first one. The numbers come from a process that strangers' kernels run
    in."""
    if not all(map(math.isfinite, numbers)):
        raise WorkerCrashed("The worker sent what is no answer: a time that is no number")
    devices, at = [], _OF_LAUNCH
    for time in first.devices:
        upload, kernel, download, seconds, began, busy, cold = numbers[at : at + _OF_DEVICE]
        devices.append(
            DeviceTime(time.device, time.ranges, upload, kernel, download, seconds, began, busy, bool(cold))
        )
        at += _OF_DEVICE
    counts = list(map(int, numbers[at:]))
    conflicts = dict(zip(first.conflicts, counts, strict=False))
    strays = dict(zip(first.strays, counts[len(conflicts) :], strict=True))
    return LaunchOutcome(tuple(devices), numbers[0], numbers[1], conflicts, strays)


@lru_cache(maxsize=64)
def _layout(count: int) -> struct.Struct:
    return struct.Struct(f"{count}d")
