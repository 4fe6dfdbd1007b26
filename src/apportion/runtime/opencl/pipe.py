"""What travels over the socket between a process and its worker.

Requests are pickles of our own making, which only the worker reads. Kernels of strangers run inside the
worker, so what it sends is not trusted: answers are JSON, and become values of the types that were asked for.
Each read has a limit on its size and, in the process that asks, on its time.
"""

from __future__ import annotations

import json
import pickle
import select
import socket
import struct
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from apportion import errors
from apportion.errors import JobError, WorkerCrashed
from apportion.jobs.values import restored

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ANSWER, FAILURE, BEGUN, SEEN = b"a", b"f", b"b", b"s"
"""First byte of what a worker says: the answer, an error, "compiling is over, the kernels run", and "this was
measured; write it down"."""

MOST_BYTES = 16 << 20
"Of one answer. The longest are those of a campaign's visits, some kilobytes."
_MOST_TEXT = 1 << 16
_CHUNK = 1 << 16
_LENGTH = struct.Struct("<Q")
_Plain = str | int | float | bool | None


def send(connection: socket.socket, value: Any, seconds: float | None = None) -> None:
    """Send a request.

    Raises:
        DeadlineExceeded: the worker has not taken it in this time.
    """
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)  # there is no error of ours in it
    unsent = memoryview(_LENGTH.pack(len(data)) + data)
    end = None if seconds is None else time.monotonic() + seconds
    while unsent:
        try:
            unsent = unsent[connection.send(unsent, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not _comes(connection, select.POLLOUT, left):
                raise errors.DeadlineExceeded(
                    f"The worker was stopped: it took no request for {seconds:g} s"
                ) from None


def readable(connection: socket.socket, seconds: float) -> bool:
    """Whether there is something to read within a time, or the other side has hung up."""
    return _comes(connection, select.POLLIN, seconds)


def receive(connection: socket.socket) -> Any:
    """Receive a request, in the worker; None when the other side has hung up."""
    head = _exactly(connection, _LENGTH.size)
    body = _exactly(connection, _LENGTH.unpack(head)[0]) if head is not None else None
    if body is None:
        return None
    try:
        return restored(body, only=("apportion.runtime.", "apportion.program."))
    except JobError as error:
        raise WorkerCrashed(f"The worker was sent what is no request. {error}") from None


def tell(connection: socket.socket, kind: bytes, value: Any = None) -> None:
    """Say something, in the worker."""
    from pydantic_core import to_json  # here: a worker begins to load its drivers before it has to answer

    data = kind + to_json(value, fallback=_number)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def tell_failure(connection: socket.socket, kind: str, arguments: Any, attributes: dict[str, Any]) -> None:
    """Say that a request came to nothing: the name of an error of ours, and what is in it."""
    plain = {name: value for name, value in attributes.items() if isinstance(value, _Plain)}
    shown = [value if isinstance(value, _Plain) else str(value) for value in arguments]
    tell(connection, FAILURE, {"kind": kind, "arguments": shown, "attributes": plain})


class Listener:
    """The reading end of a worker's answers, in the process that asks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()

    def heard(self, wait: Callable[[], None]) -> tuple[bytes, bytes] | None:
        """The kind and the text of what the worker says next; None when it has hung up.

        Args:
            wait: returns when there is something to read, or raises when that took too long.

        Raises:
            WorkerCrashed: it is longer than any answer.
        """
        while (length := self._length()) is None or len(self._data) < _LENGTH.size + length:
            wait()
            piece = self._connection.recv(_CHUNK)
            if not piece:
                return None
            self._data += piece
        whole = bytes(self._data[_LENGTH.size : _LENGTH.size + length])
        del self._data[: _LENGTH.size + length]
        return whole[:1], whole[1:]

    def _length(self) -> int | None:
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if not 1 <= length <= MOST_BYTES:
            raise WorkerCrashed(f"The worker sent what is no answer: {length:,} bytes of it")
        return int(length)


def value_of(text: bytes, kind: Any) -> Any:
    """An answer as a value of the type that was asked for.

    Raises:
        WorkerCrashed: it is none.
    """
    try:
        return _adapter(kind).validate_json(text)
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
        first = printable(str(error)).strip().split("\n")
        raise WorkerCrashed(
            f"The worker sent what is no answer: {' '.join(first[1:3]) or first[0]}"
        ) from None


def expect(*kinds: Any) -> None:
    """Make ready for answers of these types, which takes some 50 ms the first time."""
    for kind in kinds:
        _adapter(kind)


def failure_of(text: bytes) -> errors.ApportionError:
    """An error of ours as it was in the worker; its own constructor may want other arguments."""
    said = value_of(text, dict[str, Any])
    kind = getattr(errors, str(said.get("kind")), None)
    arguments, attributes = said.get("arguments"), said.get("attributes")
    if not (
        isinstance(kind, type)
        and issubclass(kind, errors.ApportionError)
        and isinstance(arguments, list)
        and isinstance(attributes, dict)
    ):
        return WorkerCrashed("The worker sent what is no error")
    error = kind.__new__(kind)
    error.args = tuple(printable(value) if isinstance(value, str) else value for value in arguments)
    error.__dict__.update(
        {
            name: printable(value) if isinstance(value, str) else value
            for name, value in attributes.items()
            if name.isidentifier() and not name.startswith("_") and isinstance(value, _Plain)
        }
    )
    return error


def printable(text: str) -> str:
    """A worker's words without what would steer a terminal, and not longer than anybody reads."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text[:_MOST_TEXT]
    )


def send_plain(connection: socket.socket, value: dict[str, Any]) -> None:
    """Send a cage as JSON, to a process that is not yet inside."""
    data = json.dumps(value).encode()
    connection.sendall(_LENGTH.pack(len(data)) + data)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # here: only who asks a worker needs it, when the worker has started

    return TypeAdapter(kind)


def _comes(connection: socket.socket, what: int, seconds: float | None) -> bool:
    # Not `select`, which takes no descriptor beyond 1,023: each array of a program may have two.
    poll = select.poll()
    poll.register(connection, what)
    return bool(poll.poll(None if seconds is None else 1e3 * seconds))


def _number(value: Any) -> Any:
    """A number of NumPy's as one of Python's."""
    return value.item()


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
