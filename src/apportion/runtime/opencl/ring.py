"""A ring of commands in memory that two processes share: one writes, the other reads, nothing is pickled.

A command is four whole numbers. The reader looks for new ones for a few microseconds before it goes to sleep;
only a sleeping reader is rung. Numbers are written before the count that tells of them, which is enough where
a processor's stores are seen in order (x86-64); elsewhere the system calls of a ring of the bell order them.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOTS = 1024
"Commands that fit: a writer that is further ahead waits."
WORDS = 4
TIMED = 4096
"Prepared launches whose times are told."
HEADER = 8
_WRITTEN, _READ, _READER_SLEEPS, _ENDED, _WRITER_SLEEPS, _FAILED = range(6)
SIZE = 8 * (HEADER + SLOTS * WORDS) + 16 * TIMED
"Bytes of a ring with its times."
_SPIN_SECONDS = 30e-6
"""How long is looked for news before sleeping: about what waking up takes. Chosen: longer spinning takes a
processor from the kernels of a small machine."""


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

    # The writer

    def push(self, what: int, a: int = 0, b: int = 0, c: int = 0) -> None:
        """Write a command; the reader is woken up if it sleeps."""
        words, count = self._words, self._count
        while count - words[_READ] >= SLOTS:
            time.sleep(20e-6)
        place = HEADER + (count % SLOTS) * WORDS
        words[place] = what
        words[place + 1] = a
        words[place + 2] = b
        words[place + 3] = c
        self._count = words[_WRITTEN] = count + 1
        if words[_READER_SLEEPS]:
            words[_READER_SLEEPS] = 0
            self._bell.send(b"!")

    @property
    def read(self) -> int:
        """How many commands were taken."""
        return int(self._words[_READ])

    @property
    def failed(self) -> bool:
        """Whether a command failed; those after it were left out."""
        return bool(self._words[_FAILED])

    def ended(self, fence: int, seconds: float) -> bool:
        """Whether the reader has come past a fence, within a time."""
        words, end = self._words, time.perf_counter() + min(seconds, _SPIN_SECONDS)
        while words[_ENDED] < fence:
            if time.perf_counter() >= end:
                break
        else:
            return True
        words[_WRITER_SLEEPS] = 1
        if words[_ENDED] < fence and select.select([self._bell], [], [], seconds)[0]:
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
            end = time.perf_counter() + _SPIN_SECONDS
            while words[_WRITTEN] == count and time.perf_counter() < end:
                pass
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
