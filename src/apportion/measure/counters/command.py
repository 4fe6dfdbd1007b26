"""A command that is run to be counted: started behind a gate, watched, and stopped at its deadline.

The gate is a shell that waits for a line and then becomes the command: watchers attach in between, so that
they see the command from its first instruction and nothing of what came before.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from apportion.errors import DeadlineExceeded, InvalidSetting, JobError, WorkerCrashed

_GATE = 'read -r _; exec "$@" < "$0"'
_LOOK_SECONDS = 0.005
_SAID = 400
"So many characters of what a command said last are told when it fails."


@dataclass(frozen=True)
class Command:
    """What is run, again and again."""

    words: tuple[str, ...]
    stdin: Path = Path(os.devnull)
    seconds: float = 600.0
    "The deadline of one execution."
    exit_status: int = 0
    "The one that means success."

    def __post_init__(self) -> None:
        if not self.words:
            raise InvalidSetting("There is no command: write it behind `--`")
        if shutil.which(self.words[0]) is None:
            raise InvalidSetting(f"There is no program {self.words[0]!r}, or it cannot be executed")
        if not self.seconds > 0:
            raise InvalidSetting(f"seconds must be more than 0, not {self.seconds}")
        if not self.stdin.exists():
            raise InvalidSetting(f"There is no file {self.stdin} to read from")

    @property
    def program(self) -> str:
        """The absolute path of what is executed."""
        return os.path.realpath(shutil.which(self.words[0]) or self.words[0])

    @property
    def name(self) -> str:
        """What tables call it."""
        return Path(self.words[0]).name


class Watcher(ABC):
    """Something that counts while a command runs as it always does."""

    @abstractmethod
    def attach(self, process: int) -> None:
        """Get ready: the process exists, but is not yet the command."""

    def look(self, process: int) -> None:  # noqa: B027  most need not look in between
        """Look at the running process; called every few milliseconds."""

    @abstractmethod
    def read(self, process: int) -> dict[str, float | None]:
        """What was counted. The process has ended, but is still there to be asked."""

    def close(self) -> None:  # noqa: B027  most hold nothing
        """Let go of what is held; twice does nothing."""


@dataclass(frozen=True)
class Ended:
    """A command that ended well."""

    seconds: float
    readings: tuple[dict[str, float | None], ...]
    "Of each watcher."


def execute(
    command: Command, watchers: Sequence[Watcher] = (), *, words: Sequence[str] | None = None
) -> Ended:
    """Run a command once; what it writes to standard output is thrown away.

    Args:
        words: run these instead: the command inside something that counts.

    Raises:
        DeadlineExceeded: it took too long and was killed, with all it started.
        WorkerCrashed: it died of a signal.
        JobError: it ended with another exit status than it should.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, str(command.stdin), *(words or command.words)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
        )  # fmt: skip
        try:
            for watcher in watchers:
                watcher.attach(process.pid)
            start = time.monotonic()
            if process.stdin is not None:
                process.stdin.write(b"\n")
                process.stdin.close()
            late = not _watch(process.pid, start + command.seconds, watchers)
            seconds = time.monotonic() - start
            readings = tuple(watcher.read(process.pid) for watcher in watchers) if not late else ()
        finally:
            for watcher in watchers:
                watcher.close()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _raise_for(command, process.returncode, late, said)
    return Ended(seconds, readings)


def _watch(process: int, deadline: float, watchers: Sequence[Watcher]) -> bool:
    """Wait for the end, looking in between; False when the deadline came first."""
    end = os.pidfd_open(process)
    looking = [watcher for watcher in watchers if type(watcher).look is not Watcher.look]
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(end, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if selector.select(min(left, _LOOK_SECONDS) if looking else left):
                    return True
                for watcher in looking:
                    watcher.look(process)
    finally:
        os.close(end)


def _raise_for(command: Command, status: int, late: bool, said: IO[bytes]) -> None:
    if late:
        raise DeadlineExceeded(
            f"{command.name} took longer than {command.seconds:g} seconds and was stopped; "
            "give it more with --seconds"
        )
    said.seek(0)
    words = said.read().decode(errors="replace").strip()[-_SAID:]
    last = f"; it said: {words}" if words else ""
    if status < 0:
        raise WorkerCrashed(f"{command.name} was ended by a signal ({signal.strsignal(-status)}){last}")
    if status != command.exit_status:
        raise JobError(f"{command.name} ended with exit status {status}, not {command.exit_status}{last}")
