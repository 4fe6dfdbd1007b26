"""Values over a socket between a process and its worker: a length, then a pickle of our own making."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

BEGUN = "begun"
"What a worker says between request and answer: compiling is over, the kernels run."


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
    return None if body is None else pickle.loads(body)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)
