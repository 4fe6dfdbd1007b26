"""A command in a child process that can do no harm: limits on time, memory, output, and files.

No limit needs code of ours between fork and exec, which is never safe in a process with threads: Landlock is
taken on by a thread that exists only to start the child (see `landlock`), and resource limits are set from
outside (`prlimit`) before the child is given its input. A launcher program between us and the command would
do the same for 13 ms a start; this way a start takes 1.5 ms in all. The price: what a command does in its
first millisecond, before it reads its input, is not limited in memory and file size. Compilers read first.

Elsewhere than on Linux the limits are those on time and output: there is no call that limits another process.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import IO

from apportion.errors import DeadlineExceeded, InvalidSetting, JobError, LimitExceeded, WorkerCrashed
from apportion.jobs import landlock

if sys.platform != "win32":
    import resource

_CHUNK = 1 << 16
_LINUX = sys.platform.startswith("linux")
_OUT_OF_MEMORY = (b"out of memory", b"bad_alloc", b"MemoryError", b"Cannot allocate memory", b"OutOfMemory")
"What programs say when an allocation fails."
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True)
class ChildLimits:
    """What a child process may use."""

    seconds: float = 30.0
    "Wall-clock time from start to end; the same number of seconds of one processor, rounded up."

    memory_bytes: int = 2 << 30
    "Address space of each process: what it maps, used or not."

    output_bytes: int = 64 << 20
    "Standard output and standard error together, and the size of each file it writes."

    def __post_init__(self) -> None:
        for name in ("seconds", "memory_bytes", "output_bytes"):
            if not getattr(self, name) > 0:
                raise InvalidSetting(f"{name} must be more than 0, not {getattr(self, name)}")


@dataclass(frozen=True)
class Finished:
    """A child process that ended by itself."""

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    "Wall-clock time from start to end."

    file_access_restricted: bool
    "False where the kernel has no Landlock: the child could then read what this user can."


_DEFAULT = ChildLimits()


def run(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    limits: ChildLimits = _DEFAULT,
    programs: Sequence[Path] = (),
    readable: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end, with nothing but what is given here.

    It starts in an empty folder of its own, where it may write and which is removed afterwards, with an empty
    environment, in a process group of its own that does not outlive it.

    Args:
        command: an absolute path and its arguments; no shell is involved.
        stdin: what it can read from its standard input.
        limits: what it may use.
        programs: files and folders that it may read and execute; the command itself is one of them.
        readable: files and folders that it may read.
        environment: the variables it sees.

    Raises:
        DeadlineExceeded: it ran out of time and was killed.
        LimitExceeded: it ran out of memory, or wrote too much, and was killed.
        WorkerCrashed: it died of a signal.
        JobError: it could not be started.
    """
    with tempfile.TemporaryDirectory(prefix="apportion-", ignore_cleanup_errors=True) as folder:
        rights = [
            (Path(command[0]), landlock.EXECUTE),
            *((path, landlock.EXECUTE) for path in programs),
            *((path, landlock.READ) for path in readable),
            (Path(folder), landlock.WRITE),
        ]
        start = time.monotonic()
        process = _started(command, folder, dict(environment or {}), rights)
        child = _Child(process, stdin, limits, start)
        try:
            if _LINUX:
                _limit(process.pid, limits)
                child.talk()
            else:
                child.talk_by_threads()
        finally:
            child.end()
        return child.finished(Path(command[0]).name)


def _started(
    command: Sequence[str], folder: str, environment: dict[str, str], rights: Sequence[tuple[Path, int]]
) -> subprocess.Popen[bytes]:
    descriptor = landlock.ruleset(rights) if landlock.version() else None
    started: list[subprocess.Popen[bytes]] = []
    failed: list[Exception] = []

    def start() -> None:
        try:
            if descriptor is not None:
                landlock.restrict_this_thread(descriptor)
            started.append(
                subprocess.Popen(
                    command,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=folder,
                    env=environment,
                    start_new_session=True,
                )
            )
        except Exception as error:
            failed.append(error)

    try:
        thread = threading.Thread(target=start, name="apportion-start")
        thread.start()
        thread.join()
    finally:
        if descriptor is not None:
            os.close(descriptor)
    if failed:
        raise JobError(f"Cannot start {command[0]}: {failed[0]}") from failed[0]
    return started[0]


def _limit(process: int, limits: ChildLimits) -> None:
    """Set what the kernel enforces. The child is already running, but has been given no input."""
    processor_seconds = ceil(limits.seconds)
    wanted = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_FSIZE: limits.output_bytes,
        resource.RLIMIT_CPU: processor_seconds,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        try:
            _, most = resource.prlimit(process, kind)
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.prlimit(process, kind, (value, value))
        except ProcessLookupError:  # it has already ended
            return


@dataclass
class _Child:
    """A running child process: its pipes are served until it ends or exceeds a limit."""

    process: subprocess.Popen[bytes]
    stdin: bytes
    limits: ChildLimits
    start: float
    written: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )
    late: bool = False
    talkative: bool = False
    seconds: float = 0.0

    def talk(self) -> None:
        """Feed and read the child until it ends, or a limit is reached."""
        deadline = self.start + self.limits.seconds
        end = os.pidfd_open(self.process.pid)
        try:
            with selectors.DefaultSelector() as pipes:
                pipes.register(end, selectors.EVENT_READ, "end")
                for name in self.written:
                    pipe: IO[bytes] = getattr(self.process, name)
                    os.set_blocking(pipe.fileno(), False)
                    pipes.register(pipe, selectors.EVENT_READ, name)
                feed: IO[bytes] = self.process.stdin  # type: ignore[assignment]
                os.set_blocking(feed.fileno(), False)
                pipes.register(feed, selectors.EVENT_WRITE, "stdin")
                unsent = memoryview(self.stdin)
                ended = False
                while not self.talkative:
                    # Once it has ended what is in the pipes is taken, but not waited for: a process that it
                    # left behind may hold them open.
                    ready = pipes.select(0 if ended else max(0.0, deadline - time.monotonic()))
                    if not ended and any(key.data == "end" for key, _ in ready):
                        ended = True
                        pipes.unregister(end)
                    # The deadline holds for a child that always reads or writes, too.
                    self.late = not ended and (not ready or time.monotonic() >= deadline)
                    if self.late or not ready:
                        return
                    for key, _ in ready:
                        if key.data == "end":
                            continue
                        if key.data == "stdin":
                            unsent = unsent[_sent(feed, unsent) :]
                            if not unsent:
                                pipes.unregister(feed)
                                feed.close()
                        elif not self._take(key.data):
                            pipes.unregister(key.fileobj)
                    if ended and not any(key.data in self.written for key in pipes.get_map().values()):
                        return
        finally:
            os.close(end)

    def talk_by_threads(self) -> None:
        """The same with a thread for each pipe, for systems where pipes and processes cannot be waited for
        together."""
        readers = [threading.Thread(target=self._take_all, args=(name,)) for name in self.written]
        feeder = threading.Thread(target=self._feed_all)
        for thread in (*readers, feeder):
            thread.start()
        try:
            self.process.wait(max(0.0, self.start + self.limits.seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.late = not self.talkative
        finally:
            self._kill()
            for thread in (*readers, feeder):
                thread.join(_LAST_WORDS_SECONDS)  # a process that it left behind may hold a pipe open

    def _take_all(self, name: str) -> None:
        with suppress(OSError, ValueError):
            while self._take(name):
                if self.talkative:
                    self._kill()

    def _feed_all(self) -> None:
        feed: IO[bytes] = self.process.stdin  # type: ignore[assignment]
        with suppress(OSError, ValueError):
            unsent = memoryview(self.stdin)
            while unsent:
                unsent = unsent[_sent(feed, unsent) :]
            feed.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform != "win32":
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()

    def end(self) -> None:
        """Kill what is left of the process group, and collect the child. Its number is ours until then."""
        for name in ("stdin", "stdout", "stderr"):
            getattr(self.process, name).close()
        self._kill()
        self.process.wait()
        self.seconds = time.monotonic() - self.start

    def finished(self, name: str) -> Finished:
        """What became of it."""
        limits, code = self.limits, self.process.returncode
        if self.late or (_LINUX and code == -signal.SIGXCPU):
            raise DeadlineExceeded(f"{name} took longer than {limits.seconds:g} seconds and was stopped")
        if self.talkative or (_LINUX and code == -signal.SIGXFSZ):
            raise LimitExceeded(f"{name} wrote more than {limits.output_bytes:,} bytes and was stopped")
        stderr = bytes(self.written["stderr"])
        died = -code if code < 0 else code - 128  # 128 + n: some programs report a death inside them that way
        if 0 < died < signal.NSIG:
            if any(words in stderr for words in _OUT_OF_MEMORY):
                raise LimitExceeded(f"{name} needed more than {limits.memory_bytes:,} bytes of memory")
            raise WorkerCrashed(f"{name} crashed ({signal.strsignal(died)})")
        return Finished(
            returncode=code,
            stdout=bytes(self.written["stdout"]),
            stderr=stderr,
            seconds=self.seconds,
            file_access_restricted=bool(landlock.version()),
        )

    def _take(self, name: str) -> bool:
        """Read what there is; False at the end of the pipe."""
        pipe: IO[bytes] = getattr(self.process, name)
        chunk = pipe.read(_CHUNK)
        if chunk is None:
            return True
        self.written[name] += chunk
        self.talkative = sum(len(written) for written in self.written.values()) > self.limits.output_bytes
        return bool(chunk)


def _sent(pipe: IO[bytes], data: memoryview) -> int:
    """How many bytes the pipe took; all of them when nobody reads it any more."""
    try:
        return pipe.write(data[:_CHUNK]) or 0
    except BrokenPipeError:
        return len(data)
