"""What the service allows: who may ask, how much, how often and for how long."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from apportion.errors import InvalidSetting
from apportion.settings import cache_folder

_LOOPBACK_NAMES = ("localhost",)


@dataclass(frozen=True)
class ServiceSettings:
    """How `apportion serve` behaves."""

    host: str = "127.0.0.1"
    "The interface it listens on."
    port: int = 8765
    names: tuple[str, ...] = ()
    "Other names that clients call it by, as through a tunnel or a proxy: NAME or NAME:PORT."
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    "What a client must know to run code, to write, or to see jobs; beyond loopback, for everything."
    runs_code: bool = True
    "Whether kernels that clients send may be run on this machine's devices."
    folder: Path = field(default_factory=lambda: cache_folder("serve"))
    "Where jobs and their results are kept."
    body_bytes: int = 1 << 20
    "The largest request."
    body_seconds: float = 10.0
    "How long a client may take to send a request, headers and body each."
    answer_seconds: float = 20.0
    "How long a question may take that is answered at once: predict, explain, graph and the like."
    job_seconds: float = 600.0
    "How long a job may take: a run, or measuring."
    launch_seconds: float = 30.0
    "How long one launch of a kernel may take."
    memory_bytes: int = 4 << 30
    "What one worker process may take."
    workers: int = 2
    "Processes that answer questions."
    waiting: int = 64
    "Questions that may wait for a worker; further ones are told to come back later (429)."
    waiting_jobs: int = 32
    "Jobs that may wait for the devices."
    waiting_jobs_of_client: int = 16
    "How many of them one client may have."
    requests_per_second: float = 1000.0
    "How many requests a client may send on average."
    burst: int = 2000
    "How many requests a client may send at once before the average counts."
    at_once: int = 128
    "How many requests of one client may be under way, event streams among them."
    kept_jobs: int = 1000
    "Finished jobs that are kept; the oldest go first."

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidSetting(f"port must lie between 0 and 65535, not {self.port}")
        if len(self.token) < 16:
            raise InvalidSetting(f"A token must have at least 16 characters, not {len(self.token)}")
        for named in self.names:
            if not re.fullmatch(r"(?:[\w-][\w.-]*|\[[\da-fA-F:.]+\])(?::\d+)?", named):
                raise InvalidSetting(f"A name is NAME or NAME:PORT, as addresses have it, not {named[:60]!r}")
        for name in (
            "body_bytes", "body_seconds", "answer_seconds", "job_seconds", "launch_seconds", "memory_bytes",
            "workers", "waiting", "waiting_jobs", "waiting_jobs_of_client", "requests_per_second", "burst",
            "at_once", "kept_jobs",
        ):  # fmt: skip
            if not getattr(self, name) > 0:
                raise InvalidSetting(f"{name} must be more than 0, not {getattr(self, name)}")

    @cached_property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host in _LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @cached_property
    def _hosts(self) -> frozenset[str]:
        names = {self.host} if ":" not in self.host else {f"[{self.host}]"}
        if self.on_loopback or self._on_all:
            names |= {"127.0.0.1", "localhost", "[::1]"}
        if self._on_all:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        with_port = {f"{name}:{self.port}" for name in names}
        return frozenset(with_port | (names if self.port == 80 else set()) | {*map(str.lower, self.names)})

    @cached_property
    def _on_all(self) -> bool:
        """Whether it listens on every interface."""
        return self.host in ("0.0.0.0", "::")

    def is_ours(self, host: str) -> bool:
        """Whether a `Host` header names this service.

        Another name comes from a page that rebinds its own to us. An address in digits cannot be rebound: on
        every interface each of them may be one of ours.
        """
        return host.lower() in self._hosts or (self._on_all and _is_address(host, self.port))

    def is_own_page(self, origin: str, host: str) -> bool:
        """Whether an `Origin` header names a page of this service, which asks the host that it came from."""
        schemes = ("http", "https") if host.lower() in map(str.lower, self.names) else ("http",)
        return origin.lower() in {f"{scheme}://{host.lower()}" for scheme in schemes}

    @property
    def place(self) -> str:
        """HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """Where a browser finds the page; the token stands behind `#`, which browsers never send."""
        return f"http://{self.place}/#token={self.token}"


def _is_address(host: str, port: int) -> bool:
    """Whether it is an address in digits with this port."""
    found = re.fullmatch(r"(?:\[([\da-f:.]+)\]|([\d.]+)):(\d+)", host.lower())
    if found is None or found[3] != str(port):
        return False
    try:
        ipaddress.ip_address(found[1] or found[2])
    except ValueError:
        return False
    return True
