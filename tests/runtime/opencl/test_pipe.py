"""What travels between a process and its worker, and what must not."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from apportion import errors
from apportion.errors import CompileError, DeadlineExceeded, WorkerCrashed
from apportion.runtime.opencl.pipe import (
    ANSWER,
    FAILURE,
    MOST_BYTES,
    Listener,
    failure_of,
    receive,
    send,
    tell,
    tell_failure,
    value_of,
)
from apportion.runtime.plan import Build, DeviceTime, LaunchOutcome

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def never() -> None:
    """Wait for nothing: what is read is there."""


def test_a_request_arrives_as_it_was(pair: Pair) -> None:
    value = ("build", (Build("kernel void f() {}", "f"), {"times": [1.5, None], "data": b"\0\xff"}))
    send(pair[0], value)
    assert receive(pair[1]) == value


def test_an_answer_becomes_a_value_of_the_type_that_was_asked_for(pair: Pair) -> None:
    outcome = LaunchOutcome(
        (DeviceTime("cpu", ((0, 3), (5, 9)), 0.5, float("nan"), 1e-300, 2.0, cold=True),),
        0.1 + 0.2, conflicts={"ü": 3}, covered=frozenset({"a", "b"}),
    )  # fmt: skip
    tell(pair[0], ANSWER, outcome)
    kind, text = Listener(pair[1]).heard(never) or (b"", b"")
    assert kind == ANSWER
    assert repr(value_of(text, LaunchOutcome)) == repr(outcome)


def test_numbers_of_numpy_arrive_as_pythons(pair: Pair) -> None:
    tell(pair[0], ANSWER, {"a": np.int64(7), "b": np.int32(8)})
    _, text = Listener(pair[1]).heard(never) or (b"", b"")
    assert value_of(text, dict[str, int]) == {"a": 7, "b": 8}


def test_two_things_that_were_said_at_once_are_heard_one_after_the_other(pair: Pair) -> None:
    for number in range(3):
        tell(pair[0], ANSWER, number)
    listener = Listener(pair[1])
    assert [listener.heard(never) for _ in range(3)] == [(ANSWER, b"0"), (ANSWER, b"1"), (ANSWER, b"2")]


def test_an_error_arrives_with_what_is_in_it(pair: Pair) -> None:
    error = CompileError("expected ';'", file="k.cl", line=3, diagnostics="all of it")
    tell_failure(pair[0], type(error).__name__, error.args, error.__dict__)
    kind, text = Listener(pair[1]).heard(never) or (b"", b"")
    found = failure_of(text)
    assert kind == FAILURE
    assert isinstance(found, CompileError)
    assert (str(found), found.line, found.diagnostics) == ("k.cl:3: expected ';'", 3, "all of it")


class Mischief:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch mischief",)


@pytest.mark.parametrize(
    "text",
    [
        pickle.dumps(Mischief()),
        # Builds a class and sets an attribute of it, as a pickle may (H19).
        b"\x80\x04capportion.runtime.plan\nOutcome\n}X\x07\0\0\0secondsX\x04\0\0\0evilsb.",
        b"",
        b"{",
        b"[" * 100_000,
        b'{"devices": [], "seconds": "soon"}',
        b'{"devices": [{}], "seconds": 1}',
        b"9" * 100_000,
        b'{"seconds": 1, "devices": "' + b"\xff" * 100 + b'"}',
    ],
)
def test_what_is_no_answer_costs_the_launch_and_changes_nothing(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(vars(LaunchOutcome))
    with pytest.raises(WorkerCrashed, match="The worker sent what is no answer"):
        value_of(text, LaunchOutcome)
    assert list(tmp_path.iterdir()) == []
    assert dict(vars(LaunchOutcome)) == before


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"kind": "get_close_matches", "arguments": [], "attributes": {}}',
        b'{"kind": "Iterable", "arguments": [], "attributes": {}}',
        b'{"kind": "NoDevice", "arguments": 3, "attributes": {}}',
        b'{"kind": ["NoDevice"], "arguments": [], "attributes": {}}',
    ],
)
def test_what_is_no_error_is_one_of_the_worker(text: bytes) -> None:
    assert isinstance(failure_of(text), WorkerCrashed)


def test_an_error_cannot_steer_the_terminal_or_change_its_class() -> None:
    text = (
        b'{"kind": "NoDevice", "arguments": ["\\u001b[2Jgone"], "attributes": {"__class__": "x", "a b": 1}}'
    )
    error = failure_of(text)
    assert type(error) is errors.NoDevice
    assert str(error) == "?[2Jgone"
    assert vars(error) == {}


def test_a_request_that_would_run_something_is_refused(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(Mischief())
    pair[0].sendall(struct.pack("<Q", len(data)) + data)
    with pytest.raises(WorkerCrashed, match=r"no request\. A worker sent a posix\.system\."):
        receive(pair[1])
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_is_longer_than_any_is_not_waited_for(pair: Pair) -> None:
    for length in (0, MOST_BYTES + 1, 2**64 - 1):
        pair[0].sendall(struct.pack("<Q", length))
        with pytest.raises(WorkerCrashed, match="no answer"):
            Listener(pair[1]).heard(never)


def test_whoever_is_not_read_is_not_waited_for_longer_than_that(pair: Pair) -> None:
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"it took no request for 0\.2 s"):
        send(pair[0], bytes(32 << 20), 0.2)
    assert time.monotonic() - started < 5


def test_a_long_request_arrives_piece_by_piece(pair: Pair) -> None:
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(receive(pair[1])))
    reader.start()
    send(pair[0], ("run", bytes(8 << 20)), 20.0)
    reader.join()
    assert found == [("run", bytes(8 << 20))]


def test_a_worker_that_hung_up_says_nothing(pair: Pair) -> None:
    pair[0].close()
    assert receive(pair[1]) is None
    assert Listener(pair[1]).heard(never) is None
