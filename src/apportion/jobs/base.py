"""One function over many inputs: every outcome, success or failure, is kept.

A runner says where the work is done; what it promises is the same everywhere, and
`apportion.testing.RunnerChecks` holds each one to it.
"""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from apportion.errors import ApportionError, InvalidSetting, ItemFailed

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What became of one item: a value, or the error that took its place."""

    item_index: int
    "The item's place among the items, from 0; outcomes come as they finish, not in this order."

    value: R | None = None
    error: ApportionError | None = None
    "None when the item succeeded, whatever its value."

    seconds: float = 0.0
    "How long the function ran for this item."

    def __post_init__(self) -> None:
        if self.item_index < 0:
            raise InvalidSetting(f"item_index counts from 0, so it cannot be {self.item_index}")
        if self.seconds < 0:
            raise InvalidSetting(f"seconds cannot be negative, but is {self.seconds}")
        if self.error is not None and self.value is not None:
            raise InvalidSetting("An outcome has a value or an error, not both")

    @property
    def succeeded(self) -> bool:
        return self.error is None

    def unwrap(self) -> R:
        """The value; the error is raised when there is none."""
        if self.error is not None:
            raise self.error
        return cast(R, self.value)


class Runner(ABC):
    """Somewhere to run one function over many items."""

    @classmethod
    @abstractmethod
    def at(cls, place: str, *, workers: int | None = None, deadline_seconds: float | None = None) -> Runner:
        """The runner that a user names on the command line, as in `slurm:gpu`.

        Args:
            place: what stands after the name and its colon, here `gpu`; empty without one.
            workers: how many items run at once, at most; None leaves it to the runner.
            deadline_seconds: how long one item may take; None sets no limit.

        Raises:
            InvalidSetting: there is no such place, or a number is out of range.
        """

    @abstractmethod
    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[Outcome[R]]:
        """One outcome for each item, each as soon as it is there.

        Outcomes come in the order in which they finish; `item_index` says whose they are. An item that fails
        costs nobody else anything: its outcome carries the error. Items are taken as they are needed, so
        they may be endless. Closing the iterator stops the work.

        Args:
            function: a function at the top level of an importable module, or a `functools.partial` of one,
                because it travels to other processes by name.
            items: what to call it with; they travel too, so they must survive pickling. Values come back as
                `jobs.values` restores them: plain values, arrays, dataclasses, named tuples, enumerations.

        Raises:
            InvalidSetting: the function cannot travel.
            JobError: no worker can be started. What the items themselves raise while they are being
                taken is raised as well, after the outcomes of those already taken.
        """


def outcome_of(function: Callable[[T], R], item: T, item_index: int) -> Outcome[R]:
    """Call the function here and now; whatever it raises becomes the outcome's error.

    Our own errors stay what they are, with the worker's traceback as a note; others become `ItemFailed`.
    """
    start = time.perf_counter()
    try:
        value = function(item)
    # A SystemExit or KeyboardInterrupt of the function is its own affair too: it must not end the worker.
    except BaseException as error:
        return Outcome(item_index, error=as_ours(error), seconds=time.perf_counter() - start)
    return Outcome(item_index, value=value, seconds=time.perf_counter() - start)


def as_ours(error: BaseException) -> ApportionError:
    """The error as one of ours, with its traceback in words: it is going to leave this process."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, ApportionError):
        return ItemFailed(type(error).__name__, str(error), text)
    error.add_note(text)
    return error
