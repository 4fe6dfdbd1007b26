"""Worker processes that answer questions: kept warm, limited, stopped when they take too long, replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apportion.errors import DeadlineExceeded, InvalidSetting, LimitExceeded, WorkerCrashed
from apportion.serve.failures import BUG, Failed, Refused

if sys.platform != "win32":
    import resource

Report = Callable[[Any], None]
_LINE_BYTES = 64 << 20
"The longest answer."
_START_SECONDS = 60.0
_RETIRE_BYTES = 1 << 30
"A worker that took this much memory is replaced when it is done: memory that was given back is in pieces."


class _Process:
    """One worker process, seen from the service."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.memory = 0
        self.restricted = False

    @classmethod
    async def start(cls, folder: Path, memory_bytes: int | None) -> _Process:
        """A worker that is ready to be asked; the folder that the service was started in is not its own.

        Raises:
            WorkerCrashed: it does not start.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "apportion.serve.question_worker", str(folder.resolve()),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE_BYTES,
            start_new_session=True, cwd=_own(folder),
        )  # fmt: skip
        found = cls(process)
        try:
            if memory_bytes is not None and sys.platform == "linux":
                resource.prlimit(process.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
            word = await asyncio.wait_for(found.hear(), _START_SECONDS)
            found.restricted = bool(word["ready"]["restricted"])
        except BaseException as error:
            await found.kill()
            if isinstance(error, TimeoutError | WorkerCrashed | ProcessLookupError):
                raise WorkerCrashed("A worker of the service does not start; its log says why") from error
            raise
        return found

    async def hear(self) -> Any:
        """The next line."""
        assert self.process.stdout is not None
        try:
            line = await self.process.stdout.readline()
        except ValueError:  # longer than the limit
            raise LimitExceeded(f"The answer is longer than {_LINE_BYTES:,} bytes. Ask for less") from None
        if not line:
            code = await self.process.wait()
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            raise WorkerCrashed(f"The worker died ({how}) while it answered. Another takes its place")
        return json.loads(line)

    async def ask(self, verb: str, form: Any, report: Report | None) -> Any:
        """The answer to one question."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # `hear` finds out what became of it
            self.process.stdin.write(
                json.dumps({"verb": verb, "form": form}, default=asdict).encode() + b"\n"
            )
            await self.process.stdin.drain()
        while True:
            word = await self.hear()
            if "event" in word:
                if report is not None:
                    report(word["event"])
            elif "answer" in word:
                self.memory = word["answer"]["memory"]
                return word["answer"]["value"]
            elif "error" in word:
                raise Failed(word["error"]["status"], word["error"]["body"])
            else:
                sys.stderr.write(word["bug"])
                raise Failed(500, BUG)

    async def kill(self) -> None:
        """End the process and what it started."""
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform != "win32":
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        with suppress(ProcessLookupError):
            await self.process.wait()


def _own(folder: Path) -> Path:
    """Where workers are, and where they may write."""
    place = folder / "temporary"
    place.mkdir(parents=True, exist_ok=True)
    return place


class Pool:
    """Some worker processes and the questions that wait for them."""

    def __init__(
        self, size: int, *, folder: Path, seconds: float, waiting: int, memory_bytes: int | None = None
    ) -> None:
        if size < 1:
            raise InvalidSetting(f"A pool has one worker at least, not {size}")
        self.size, self.folder, self.seconds, self.most_waiting = size, folder, seconds, waiting
        self.memory_bytes = memory_bytes
        self.waiting = 0
        "Questions that wait."
        self._free: list[_Process] = []
        self._all: set[_Process] = set()
        self._places = asyncio.Semaphore(size)
        self._closed = False

    @property
    def restricted(self) -> bool | None:
        """Whether the workers have given up their right to files; None where none has started."""
        return all(process.restricted for process in self._all) if self._all else None

    async def warm(self) -> None:
        """Start every worker now, so that no client waits for that."""
        started = await asyncio.gather(*(self._start() for _ in range(self.size)))
        self._free += started

    async def ask(
        self, verb: str, form: Any, *, report: Report | None = None, seconds: float | None = None
    ) -> Any:
        """The answer of a worker to one question.

        Whoever cancels this ends the worker that is busy with it.

        Raises:
            Refused: too many questions wait.
            DeadlineExceeded: it took too long.
            Failed, WorkerCrashed: what the worker said, or that it died.
        """
        if self.waiting >= self.most_waiting:
            raise Refused(429, "Too many questions wait for an answer. Ask again later", retry_after=1)
        self.waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.waiting -= 1
        try:
            process = self._free.pop() if self._free else await self._start()
            try:
                limit = self.seconds if seconds is None else seconds
                answer = await asyncio.wait_for(process.ask(verb, form, report), limit)
            except BaseException as error:
                if isinstance(error, Failed) and process.process.returncode is None and error.status != 500:
                    self._free.append(process)
                else:
                    await self._drop(process)
                if isinstance(error, TimeoutError):
                    raise DeadlineExceeded(f"It took longer than {limit:g} seconds and was stopped") from None
                raise
            if process.memory > _RETIRE_BYTES:
                await self._drop(process)
            else:
                self._free.append(process)
            return answer
        finally:
            self._places.release()

    async def close(self) -> None:
        """End every worker."""
        self._closed = True
        for process in list(self._all):
            await self._drop(process)
        self._free.clear()

    async def _start(self) -> _Process:
        if self._closed:
            raise WorkerCrashed("The service is closing")
        process = await _Process.start(self.folder, self.memory_bytes)
        self._all.add(process)
        return process

    async def _drop(self, process: _Process) -> None:
        self._all.discard(process)
        await process.kill()
