"""The contract of streams: launches and copies that are queued one after the other, and nobody waits for
each.

A session asks a stream for what it decided; which bytes are valid where is the session's to know. Whatever is
queued takes effect as if each command ended before the next one began.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from apportion.program.kernel.bounds import NDRange
from apportion.runtime.plan import Build, Place


@dataclass(frozen=True)
class StreamLaunch:
    """A launch of part of a range on one device, as it is prepared once and queued many times."""

    build: Build
    device: str
    span: NDRange
    dimension: int
    first: int
    last: int
    "Work-groups [first, last) along the dimension."
    arguments: tuple[Place, ...]
    "An array's region is the number of its memory."


@dataclass(frozen=True)
class StreamTime:
    """What one launch took, by its device's own clock."""

    count: int
    "Launches that were timed; a few of all."
    seconds: float
    "The median of the latest ones."


@dataclass(frozen=True)
class Span:
    """Something that a device did, for a timeline; seconds since the stream began."""

    what: str
    "`launch`, `to device` or `from device`."
    number: int
    "Of the launch, or of the memory that was copied."
    device: str
    began: float
    ended: float
    nbytes: int = 0


class Stream(ABC):
    """Queues launches and copies. It holds what it prepared: close it, or use it in a `with`."""

    @abstractmethod
    def prepare(self, launches: Sequence[StreamLaunch]) -> list[int]:
        """Compile launches and set their arguments; the numbers to queue them by."""

    @abstractmethod
    def release(self, numbers: Sequence[int]) -> None:
        """Let others have the numbers of prepared launches that are queued no more."""

    @abstractmethod
    def launch(self, number: int) -> None:
        """Queue a prepared launch."""

    @abstractmethod
    def value(self, number: int, argument: int, data: bytes) -> None:
        """Queue a new value, of eight bytes at most, for an argument that a prepared launch takes by
        value."""

    @abstractmethod
    def copy(self, region: int, device: str, start: int, end: int, *, to_device: bool) -> None:
        """Queue a copy of bytes between the host's memory and a device's own."""

    @abstractmethod
    def zero(self, region: int, device: str) -> None:
        """Queue the filling of a device's copy of an array with zeros."""

    @abstractmethod
    def free(self, region: int, device: str) -> None:
        """Let go of a device's copy of an array, when everything queued before has ended."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until everything that was queued has ended.

        Raises:
            LaunchFailed, WorkerCrashed, DeadlineExceeded, LimitExceeded: something queued came to a bad end.
        """

    def wait_for(self, region: int) -> None:
        """Wait until nothing that was queued uses a memory; what else was queued may go on.

        Raises:
            LaunchFailed, WorkerCrashed, DeadlineExceeded, LimitExceeded: as `wait`.
        """
        self.wait()

    @abstractmethod
    def time(self, number: int) -> StreamTime | None:
        """What a prepared launch took; None where it was not timed yet."""

    @abstractmethod
    def timeline(self) -> list[Span]:
        """What devices did lately, oldest first; waits for it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything prepared; twice does nothing."""

    def abandon(self) -> None:
        """Let go of a stream whose devices are gone: nothing is waited for."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
