"""A real service in a process of its own, and a way to ask it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

TOKEN = "a-token-for-the-tests-only"
SAXPY = (Path(__file__).parents[2] / "src/apportion/serve/starters/saxpy.cl").read_text()
MATMUL = (Path(__file__).parents[2] / "src/apportion/serve/starters/matmul.cl").read_text()
HANGING = "__kernel void hang(__global volatile int* x) { while (x[0] != 12345) ; }"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@cache
def described(method: str, path: str, failed: bool) -> TypeAdapter[Any] | None:
    """The type that the description gives to what an address answers; None where that is no JSON."""
    from apportion.serve.answers import ANSWERS, ErrorAnswer

    if failed:
        return TypeAdapter(ErrorAnswer) if path.startswith("/api/") else None
    address = re.sub(r"^/api/jobs/[0-9a-f]{16}(?=/|$)", "/api/jobs/{id}", path)
    kind = ANSWERS.get(f"{method} {address}")
    return None if kind is None else TypeAdapter(kind)


def as_described(method: str, path: str, answer: Answer) -> None:
    """Raise where an answer is not what the description of its address says."""
    kind = described(method, path.partition("?")[0], answer.status >= 400)
    if kind is not None:
        kind.validate_json(answer.text, strict=True)


@dataclass
class Service:
    """A running `apportion serve`."""

    folder: Path
    options: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None
    base: str = ""
    log: Path = field(default_factory=Path)

    def start(self) -> Service:
        self.log = self.folder / "log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-c", "from apportion.cli import main; main()", "serve", "--port", "0",
                    "--token", TOKEN, "--folder", str(self.folder), *self.options,
                ],
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        self.base = self.process.stdout.readline().partition("/#")[0]
        assert self.base.startswith("http://"), self.log.read_text()
        return self

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = TOKEN,
        headers: dict[str, str] | None = None, data: bytes | None = None,
    ) -> Answer:  # fmt: skip
        sent = {"Content-Type": "application/json", **(headers or {})}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        raw = json.dumps(body).encode() if body is not None else data
        request = urllib.request.Request(self.base + path, method=method, data=raw, headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                answer = Answer(response.status, dict(response.headers), response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                answer = Answer(error.code, dict(error.headers), error.read().decode())
        as_described(method, path, answer)
        return answer

    def job(self, path: str, body: Any, *, seconds: float = 90.0) -> dict[str, Any]:
        """A job, at its end."""
        begun = self.ask("POST", path, body)
        assert begun.status == 202, begun.text
        return self.ended(begun.json["id"], seconds=seconds)

    def ended(self, id: str, *, seconds: float = 90.0) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            job = self.ask("GET", f"/api/jobs/{id}").json
            if job["state"] not in ("waiting", "running"):
                return job
            time.sleep(0.05)
        raise AssertionError(f"the job is still {job['state']}")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the usual settings, for all tests of one worker."""
    found = Service(tmp_path_factory.mktemp("service")).start()
    yield found
    found.stop()


def opencl(text: str, name: str = "kernel.cl") -> dict[str, Any]:
    """A source as requests hold it."""
    return {"text": text, "name": name, "language": "opencl"}
