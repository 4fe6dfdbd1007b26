"""The service on a socket: uvicorn, with a deadline for the headers of a request too."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from apportion.errors import InvalidSetting
from apportion.serve.app import application
from apportion.serve.service_settings import ServiceSettings


class _PatientProtocol(HttpToolsProtocol):
    """A connection that is closed when the headers of its first request take too long to arrive."""

    headers_seconds = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the clock."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.headers_seconds, transport.close)

    def on_headers_complete(self) -> None:
        """Stop it; from now on the guard waits for the body."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop it."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)


def serve(settings: ServiceSettings, listening: socket.socket) -> None:
    """Answer on a socket of `bound` until the process is told to end."""
    server_of(settings).run(sockets=[listening])


def server_of(settings: ServiceSettings) -> uvicorn.Server:
    """The server, which has not begun yet."""
    protocol = type("Protocol", (_PatientProtocol,), {"headers_seconds": settings.body_seconds})
    return uvicorn.Server(
        uvicorn.Config(
            application(settings), http=protocol, ws="none", lifespan="on", log_level="warning",
            access_log=False, server_header=False, date_header=False, timeout_keep_alive=15,
            limit_concurrency=1024, timeout_graceful_shutdown=3, proxy_headers=False,
        )
    )  # fmt: skip


def bound(settings: ServiceSettings) -> socket.socket:
    """A socket at the settings' host and port.

    Raises:
        InvalidSetting: the port is taken, or the host is no address of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends without delay only where the socket names its protocol: 40 ms an answer otherwise.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
    except OSError as error:
        found.close()
        raise InvalidSetting(
            f"Cannot listen on {settings.host} port {settings.port}: {error.strerror}. "
            "Choose another with --port, or 0 for any that is free"
        ) from error
    found.listen(1024)  # from now on clients wait instead of being refused
    return found
