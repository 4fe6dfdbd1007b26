"""What every runner promises, as tests to inherit."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from apportion.errors import InvalidSetting, ItemFailed, JobError, MalformedIR, WorkerCrashed
from apportion.jobs.base import Outcome, Runner


class RunnerChecks:
    """Inherit from this in the tests of a runner, and say how to make one:

    ```python
    class TestLocalRunner(RunnerChecks):
        def runner(self) -> Runner:
            return LocalRunner(workers=2)
    ```
    """

    look_ahead = 64
    "How many items the runner may take before it has given the first outcome."

    def runner(self) -> Runner:
        """A runner to be checked; each check makes its own."""
        raise TypeError(f"{type(self).__name__} must say how to make its runner")

    def test_every_item_has_exactly_one_outcome(self) -> None:
        outcomes = list(self.runner().map(double, range(20)))
        assert sorted(outcome.item_index for outcome in outcomes) == list(range(20))
        assert all(outcome.unwrap() == 2 * outcome.item_index for outcome in outcomes)

    def test_no_items_give_no_outcomes(self) -> None:
        assert list(self.runner().map(double, [])) == []

    def test_a_value_of_none_is_a_success(self) -> None:
        (outcome,) = self.runner().map(nothing, [1])
        assert outcome.succeeded
        assert outcome.unwrap() is None

    def test_a_partial_of_a_function_travels(self) -> None:
        outcomes = self.runner().map(functools.partial(power, exponent=3), [2, 3])
        assert values(outcomes) == {0: 8, 1: 27}

    def test_an_exception_is_kept_and_the_others_go_on(self) -> None:
        outcomes = by_index(self.runner().map(reciprocal, [1, 0, 2]))
        assert outcomes[0].value == 1
        assert outcomes[2].value == 0.5
        error = outcomes[1].error
        assert isinstance(error, ItemFailed)
        assert error.exception_type == "ZeroDivisionError"
        assert error.message == "division by zero"
        assert "in reciprocal" in error.traceback
        assert str(error) == "ZeroDivisionError: division by zero"

    def test_an_error_of_ours_arrives_as_it_was_raised(self) -> None:
        (outcome,) = self.runner().map(refuse, ["a.ll"])
        assert isinstance(outcome.error, MalformedIR)
        assert str(outcome.error) == "a.ll:3:7: expected a type"
        assert (outcome.error.file, outcome.error.line, outcome.error.column) == ("a.ll", 3, 7)

    def test_an_exit_in_the_function_is_its_own_failure(self) -> None:
        outcomes = by_index(self.runner().map(leave_politely, [0, 1]))
        assert isinstance(outcomes[1].error, ItemFailed)
        assert outcomes[1].error.exception_type == "SystemExit"
        assert outcomes[0].succeeded

    def test_a_crash_costs_one_item(self) -> None:
        outcomes = by_index(self.runner().map(die_at_three, range(8)))
        assert sorted(outcomes) == list(range(8))
        assert isinstance(outcomes[3].error, WorkerCrashed)
        assert [index for index, outcome in outcomes.items() if not outcome.succeeded] == [3]

    def test_an_item_that_cannot_travel_is_an_error_of_its_own(self) -> None:
        outcomes = by_index(self.runner().map(nothing, [1, threading.Lock(), 3]))
        assert [outcomes[index].succeeded for index in range(3)] == [True, False, True]
        assert "the item cannot travel to a worker" in str(outcomes[1].error)

    def test_a_value_that_cannot_travel_is_an_error_and_no_hang(self) -> None:
        outcomes = by_index(self.runner().map(lock_at_one, range(3)))
        assert [outcomes[index].succeeded for index in range(3)] == [True, False, True]
        assert "the value cannot travel back" in str(outcomes[1].error)

    def test_a_value_that_cannot_be_restored_is_an_error_and_no_hang(self) -> None:
        (outcome,) = self.runner().map(broken_value, [1])
        assert isinstance(outcome.error, ItemFailed)
        assert "cannot be restored" in str(outcome.error)

    def test_a_value_that_would_be_made_by_a_call_is_an_error_and_nothing_is_called(self) -> None:
        called.clear()
        (outcome,) = self.runner().map(made_by_a_call, [1])
        assert isinstance(outcome.error, JobError)
        assert "called_here" in str(outcome.error)
        assert called == []

    def test_a_function_that_cannot_travel_is_refused_at_once(self) -> None:
        error = raised(lambda: self.runner().map(lambda item: item, [1]))
        assert isinstance(error, InvalidSetting)
        assert "cannot travel to another process" in str(error)

    def test_items_are_taken_as_they_are_needed(self) -> None:
        taken = itertools.count()
        outcomes = self.runner().map(double, (next(taken) for _ in itertools.repeat(None)))
        for _ in range(5):
            next(outcomes)
        close(outcomes)
        assert next(taken) <= 5 + self.look_ahead

    def test_an_error_among_the_items_comes_after_their_outcomes(self) -> None:
        outcomes: list[Outcome[int]] = []
        error = raised(lambda: outcomes.extend(self.runner().map(double, two_items_then_an_error())))
        assert isinstance(error, LookupError)
        assert str(error) == "no third item"
        assert values(outcomes) == {0: 2, 1: 4}

    def test_large_items_and_values_travel_whole(self) -> None:
        (outcome,) = self.runner().map(double, [b"x" * 3_000_000])
        assert outcome.unwrap() == b"x" * 6_000_000


def by_index(outcomes: Iterator[Outcome[Any]]) -> dict[int, Outcome[Any]]:
    return {outcome.item_index: outcome for outcome in outcomes}


def values(outcomes: Any) -> dict[int, Any]:
    return {outcome.item_index: outcome.unwrap() for outcome in outcomes}


def raised(action: Callable[[], object]) -> Exception | None:
    """What the action raises: pytest is not asked, since the package can be used without it."""
    try:
        action()
    except Exception as error:
        return error
    return None


def close(outcomes: Iterator[Any]) -> None:
    """Close an iterator of a runner: it must be a generator, or have `close` as generators do."""
    outcomes.close()  # type: ignore[attr-defined]


def two_items_then_an_error() -> Iterator[int]:
    yield 1
    yield 2
    raise LookupError("no third item")


# What follows travels to the workers by name.


def double(item: Any) -> Any:
    return item + item


def nothing(item: object) -> None:
    del item


def power(item: int, exponent: int) -> int:
    return int(item**exponent)


def reciprocal(item: float) -> float:
    return 1 / item


def refuse(item: str) -> None:
    raise MalformedIR("expected a type", file=item, line=3, column=7)


def leave_politely(item: int) -> None:
    if item == 1:
        raise SystemExit(2)


def die_at_three(item: int) -> int:
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def lock_at_one(item: int) -> object:
    return threading.Lock() if item == 1 else item


def broken_value(item: int) -> object:
    return _Unrestorable(item)


def made_by_a_call(item: int) -> object:
    return _MadeByACall(item)


called: list[int] = []


def called_here(item: int) -> int:
    called.append(item)
    return item


class _MadeByACall:
    def __init__(self, item: int) -> None:
        self.item = item

    def __reduce__(self) -> tuple[Any, ...]:
        return called_here, (self.item,)


@dataclass
class _Unrestorable:
    item: int

    def __setstate__(self, state: object) -> None:
        raise ValueError("cannot be restored")
