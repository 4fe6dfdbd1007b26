"""Values over a socket between a process and its worker: a length, then a pickle of our own making.

Kernels of strangers run inside the worker, so what it sends is not trusted: only our own value classes are
restored, and nothing that a pickle could otherwise call.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from dataclasses import is_dataclass
from typing import Any

from apportion.errors import WorkerCrashed

BEGUN = "begun"
"What a worker says between request and answer: compiling is over, the kernels run."
SEEN = "seen"
"What the first of a pair is that a worker sends between request and answer: something is measured."


def send(connection: socket.socket, value: Any) -> None:
    """Send one value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    connection.sendall(struct.pack("<Q", len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Receive one value; None when the other side has hung up."""
    head = _exactly(connection, 8)
    if head is None:
        return None
    body = _exactly(connection, struct.unpack("<Q", head)[0])
    return None if body is None else _Values(io.BytesIO(body)).load()


class _Values(pickle.Unpickler):
    """Restores plain values and the dataclasses of this package and of what it is told about programs."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith(("apportion.device.", "apportion.program.")):
            found = super().find_class(module, name)
            if isinstance(found, type) and is_dataclass(found):
                return found
        raise WorkerCrashed(f"The worker sent {module}.{name}, which is no answer")


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
