"""Values over a socket between a process and its worker: a length, then a pickle of our own making.

Kernels of strangers run inside the worker, so what it sends is not trusted: only plain values and dataclasses
of this package and of what it is told about programs are restored.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

from apportion.errors import JobError, WorkerCrashed
from apportion.jobs.values import restored

BEGUN = "begun"
"What a worker says between request and answer: compiling is over, the kernels run."
SEEN = "seen"
"What the first of a pair is that a worker sends between request and answer: something is measured."


def send(connection: socket.socket, value: Any) -> None:
    """Send one value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)  # there is no error of ours in it
    connection.sendall(struct.pack("<Q", len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Receive one value; None when the other side has hung up."""
    head = _exactly(connection, 8)
    if head is None:
        return None
    body = _exactly(connection, struct.unpack("<Q", head)[0])
    if body is None:
        return None
    try:
        return restored(body, only=("apportion.runtime.", "apportion.program."))
    except JobError as error:
        raise WorkerCrashed(f"The worker sent what is no answer. {error}") from None


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
