"""One output, one writer: whoever writes to a file or folder holds it until the work is done.

The lock is the kernel's (`flock`), so that it goes with the process that took it, however that ends; what is
written in the lock file only says who it is. It lies beside a file, and inside a folder.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from apportion.errors import AlreadyWritten, UnreadableFile

if sys.platform != "win32":
    import fcntl

_TRIES = 100


@contextmanager
def held(out: Path, known_by: Sequence[str] = ()) -> Iterator[None]:
    """Hold an output file, or a folder, which is made: two writers would undo each other's work.

    Args:
        known_by: as `check_ours` has it, for a folder.

    Raises:
        AlreadyWritten: another process holds it; the message says which, and for how long. Or the folder
            holds what is not ours.
        UnreadableFile: nothing can be written there.
    """
    if known_by:
        check_ours(out, known_by)
    folder = bool(known_by) or out.is_dir() or not out.suffix
    place = out / ".lock" if folder else out.with_name(f".{out.name}.lock")
    descriptor = _locked(out, place)
    try:
        yield
    finally:
        with suppress(OSError):
            place.unlink()  # before the lock is given back, so that it is ours
        os.close(descriptor)


def check_ours(folder: Path, known_by: Sequence[str]) -> None:
    """Refuse a folder with files of something else: results go into a new one, or into one of an earlier run.

    Args:
        known_by: patterns of paths in it; every folder of this kind has one of them from its first result on.

    Raises:
        AlreadyWritten: the folder holds something, and nothing of an earlier run.
    """
    if not folder.is_dir() or any(next(folder.glob(pattern), None) is not None for pattern in known_by):
        return
    others = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if others:
        raise AlreadyWritten(
            f"{folder} holds files of something else, such as {others[0]}. Name a folder that is new, or "
            "that an earlier run of the same kind wrote"
        )


def lock(descriptor: int, *, wait: bool = False) -> None:
    """Take the lock of an open file, which goes when the file is closed. Windows has none: nothing happens.

    Raises:
        BlockingIOError: another process holds it, and `wait` is false.
    """
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _locked(out: Path, place: Path) -> int:
    """A descriptor of the lock file, which is held until it is closed."""
    for _ in range(_TRIES):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UnreadableFile(f"Cannot write to {out}: {error.strerror}") from error
        try:
            lock(descriptor)
        except BlockingIOError:
            said = _owner(descriptor)
            os.close(descriptor)
            raise AlreadyWritten(
                f"{out} is being written{said}. Wait until that has ended, or write to another place"
            ) from None
        except OSError:  # a file system without locks: as if there were nobody else
            return descriptor
        with suppress(OSError):
            if os.fstat(descriptor).st_ino == os.stat(place).st_ino:
                _sign(descriptor)
                return descriptor
        os.close(descriptor)  # whoever held it has just removed it
    raise UnreadableFile(f"Cannot write to {out}: its lock {place} comes and goes")


def _sign(descriptor: int) -> None:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:3]]) if sys.argv and sys.argv[0] else "Python"
    owner = {"process": os.getpid(), "host": socket.gethostname(), "since": time.time(), "command": command}
    with suppress(OSError):  # a full disk holds the lock all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)


def _owner(descriptor: int) -> str:
    """Who holds a lock, as ` by process 12 on host (apportion measure), for 3 minutes`; else nothing."""
    try:
        said = json.loads(os.pread(descriptor, 4096, 0))
        minutes = max(0.0, time.time() - float(said["since"])) / 60
        age = f"{minutes:.0f} minutes" if minutes >= 1 else "less than a minute"
        return f" by process {int(said['process'])} on {said['host']} ({said['command']}), for {age}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
