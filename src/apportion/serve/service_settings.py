"""What the service allows: who may ask, how much, how often and for how long."""

from __future__ import annotations

import ipaddress
import secrets
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
    waiting_jobs: int = 16
    "Jobs that may wait for the devices."
    requests_per_second: float = 1000.0
    "How many requests a client may send on average."
    burst: int = 2000
    "How many requests a client may send at once before the average counts."
    kept_jobs: int = 1000
    "Finished jobs that are kept; the oldest go first."

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidSetting(f"port must lie between 0 and 65535, not {self.port}")
        if len(self.token) < 16:
            raise InvalidSetting(f"A token must have at least 16 characters, not {len(self.token)}")
        for name in (
            "body_bytes", "body_seconds", "answer_seconds", "job_seconds", "launch_seconds", "memory_bytes",
            "workers", "waiting", "waiting_jobs", "requests_per_second", "burst", "kept_jobs",
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
    def hosts(self) -> frozenset[str]:
        """The `Host` headers that are answered: others come from a page that rebinds its name to us."""
        names = {self.host, "127.0.0.1", "localhost", "[::1]"} if self.on_loopback else {self.host}
        if ":" in self.host:
            names = {name for name in names if name != self.host} | {f"[{self.host}]"}
        return frozenset({f"{name}:{self.port}" for name in names} | (names if self.port == 80 else set()))

    @cached_property
    def origins(self) -> frozenset[str]:
        """The `Origin` headers that are answered: the page's own."""
        return frozenset(f"http://{host}" for host in self.hosts)

    @property
    def address(self) -> str:
        """Where a browser finds the page; the token stands behind `#`, which browsers never send."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/#token={self.token}"
