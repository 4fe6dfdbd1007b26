"""A ring of commands in memory that two processes share: one writes, the other reads, nothing is pickled.

A command is four whole numbers. The reader looks for new ones for a few microseconds before it goes to sleep;
only a sleeping reader is rung. Numbers are written before the count that tells of them, which is enough where
a processor's stores are seen in order (x86-64); elsewhere the system calls of a ring of the bell order them.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import ApportionError
from apportion.jobs.processors import processors
from apportion.runtime.opencl.commands import FENCE, SETTLE, STOP
from apportion.runtime.opencl.pipe import readable

SLOTS = 1024
"Commands that fit: a writer that is further ahead waits."
WORDS = 4
TIMED = 4096
"Prepared launches whose times are told."
HEADER = 8
_WRITTEN, _READ, _READER_SLEEPS, _ENDED, _WRITER_SLEEPS, _FAILED = range(6)
SIZE = 8 * (HEADER + SLOTS * WORDS) + 16 * TIMED
"Bytes of a ring with its times."
_SPIN_SECONDS, _SPARE_SPIN_SECONDS = 30e-6, 1e-4
"""How long is looked for news before sleeping: about what waking up takes on an idle machine, and longer
where processors are spare. Chosen."""
SPARE_PROCESSORS = 4
"With so many, looking takes no processor from whom is looked for. Chosen."
LOOK_SECONDS = 3e-4
"""How long is looked for the end of launches on a device that has processors of its own: as long as a short
program's round takes. With sleeping, a launch and a wait took 42 µs on a Xeon with an H200; with nothing
between program and driver, 23 µs. Chosen."""
_LOOKS_ANEW = 64
"""Waits after which looking is tried again where it was in vain. Where one processor serves both ends,
whoever looks keeps the other from running: a launch and a wait took 92 µs with looking every time and 31 µs
without, on two busy processors."""


class _Patience:
    """How long to look for news before sleeping: not at all where that was in vain the last time."""

    def __init__(self) -> None:
        self._spare = processors() >= SPARE_PROCESSORS
        self._waits, self._worth_it = 0, self._spare

    def seconds(self) -> float:
        """For the wait that begins now."""
        self._waits += 1
        most = _SPARE_SPIN_SECONDS if self._spare else _SPIN_SECONDS
        return most if self._worth_it or self._waits % _LOOKS_ANEW == 0 else 0.0

    def learn(self, looked: float, came: bool) -> None:
        """Take account of whether news came while they were looked for."""
        if looked:
            self._worth_it = came


class Ring:
    """Both ends of a ring; a process uses one of them.

    Args:
        memory: SIZE bytes that both processes see.
        bell: this process's end of a socket pair.
    """

    def __init__(self, memory: NDArray[np.uint8], bell: socket.socket) -> None:
        whole = memoryview(memory[:SIZE]).cast("B")  # type: ignore[arg-type]
        numbers = 8 * (HEADER + SLOTS * WORDS)
        self._words = whole[:numbers].cast("q")
        self.counts: NDArray[np.int64] = memory[numbers : numbers + 8 * TIMED].view(np.int64)
        "Prepared launch → how often it was timed."
        self.seconds: NDArray[np.float64] = memory[numbers + 8 * TIMED : SIZE].view(np.float64)
        "Prepared launch → the median of its latest times."
        self._bell = bell
        self._count = 0
        self._patience = _Patience()
        self.when_full: Callable[[], object] = partial(self.room, math.inf)
        "What a writer does that finds no room: it comes back when there is some."

    # The writer

    def push(self, what: int, a: int = 0, b: int = 0, c: int = 0, *, wake: bool = True) -> None:
        """Write a command; the reader is woken up if it sleeps, unless another command follows at once."""
        words, count = self._words, self._count
        if count - words[_READ] >= SLOTS:
            self.when_full()
        place = HEADER + (count % SLOTS) * WORDS
        words[place] = what
        words[place + 1] = a
        words[place + 2] = b
        words[place + 3] = c
        self._count = words[_WRITTEN] = count + 1
        if wake and words[_READER_SLEEPS]:
            words[_READER_SLEEPS] = 0
            with contextlib.suppress(OSError):  # a reader that is gone is found out by the next wait
                self._bell.send(b"!")

    def room(self, seconds: float) -> bool:
        """Whether there is room for a command within a time."""
        end = time.monotonic() + seconds
        while self._count - self._words[_READ] >= SLOTS:
            if time.monotonic() >= end:
                return False
            time.sleep(20e-6)
        return True

    @property
    def read(self) -> int:
        """How many commands were taken."""
        return int(self._words[_READ])

    @property
    def failed(self) -> bool:
        """Whether a command failed; those after it were left out."""
        return bool(self._words[_FAILED])

    def ended(self, fence: int, seconds: float, look: float = 0.0) -> bool:
        """Whether the reader has come past a fence, within a time.

        Args:
            look: for how many seconds is looked for it at least, before sleeping.
        """
        words = self._words
        if looks := min(seconds, max(look, self._patience.seconds())):
            end = time.perf_counter() + looks
            while words[_ENDED] < fence and time.perf_counter() < end:
                pass
        came = words[_ENDED] >= fence
        self._patience.learn(looks, came)
        if came:
            return True
        words[_WRITER_SLEEPS] = 1
        if words[_ENDED] < fence and readable(self._bell, seconds):
            with contextlib.suppress(OSError):  # whoever waits sees that the reader is gone
                self._bell.recv(64)
        words[_WRITER_SLEEPS] = 0
        return bool(words[_ENDED] >= fence)

    # The reader

    def take(self, idle: Any = None) -> tuple[int, int, int, int] | None:
        """The next command; waits for it. None when the writer is gone.

        Args:
            idle: called once before going to sleep.
        """
        words, count = self._words, self._count
        if words[_WRITTEN] == count:
            if looks := self._patience.seconds():
                end = time.perf_counter() + looks
                while words[_WRITTEN] == count and time.perf_counter() < end:
                    pass
            self._patience.learn(looks, words[_WRITTEN] != count)
            if words[_WRITTEN] == count and idle is not None:
                idle()
            while words[_WRITTEN] == count:
                words[_READER_SLEEPS] = 1
                if words[_WRITTEN] == count:
                    with contextlib.suppress(OSError):
                        if not self._bell.recv(64):
                            return None
                words[_READER_SLEEPS] = 0
        place = HEADER + (count % SLOTS) * WORDS
        command = words[place], words[place + 1], words[place + 2], words[place + 3]
        self._count = count + 1
        words[_READ] = self._count
        return command

    def tell_ended(self, fence: int) -> None:
        """Say that everything before a fence has ended."""
        self._words[_ENDED] = fence
        if self._words[_WRITER_SLEEPS]:
            with contextlib.suppress(OSError):
                self._bell.send(b"!")

    def tell_failed(self, failed: bool) -> None:
        """Say that a command failed, or that it was told why."""
        self._words[_FAILED] = int(failed)


class Executor(Protocol):
    """What does the commands of a ring, in the process that reads it."""

    failure: ApportionError | None

    def execute(self, what: int, a: int, b: int, c: int) -> None:
        """Do one command, or begin it; what goes wrong is kept as the failure."""

    def finish(self) -> None:
        """Wait until everything that was begun has ended."""

    def settle(self, region: int) -> None:
        """Wait until everything that was begun with a memory has ended."""

    def idle(self) -> None:
        """Use the time when nothing is to be done for now."""


def serve(ring: Ring, executor: Executor) -> None:
    """Do what a ring says until it says to stop, or its writer is gone."""
    execute, take, idle = executor.execute, ring.take, executor.idle
    try:
        while (command := take(idle)) is not None:
            what, a, b, c = command
            if what == FENCE:
                executor.finish()
                ring.tell_failed(executor.failure is not None)
                ring.tell_ended(a)
            elif what == SETTLE:
                executor.settle(b)
                ring.tell_failed(executor.failure is not None)
                ring.tell_ended(a)
            elif what == STOP:
                return
            else:
                execute(what, a, b, c)
    except BaseException:
        os._exit(3)  # a bug of ours: the other side must not wait for ever
