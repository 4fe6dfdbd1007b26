"""A program in two processes: a keeper, and a worker that enters a cage before it runs a module of ours.

Run as `python -P -m apportion.jobs.caged MODULE DESCRIPTOR PARENT SCRATCH`. Over the socket come a length and
a cage in JSON; back go a length, the letter a, and what confines the worker, in JSON. Then the worker calls
`main(DESCRIPTOR)` of the module.

The keeper ends everything that the worker started when either of them ends, or the process that asked for
them: it takes in whoever loses its parent, removes the scratch folder, and leaves the same way as the worker
did.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from apportion.jobs.cage import Cage, Entered, die_with_parent, enter

_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.5
"How often it is looked whether the parent is still there, where the kernel does not tell."
_MOST_BYTES = 1 << 20
_COUNT_SECONDS = 0.1
"How often the processes are counted that the worker has."
_MOST_PROCESSES, _MOST_A_PROCESSOR = 512, 16
"""Processes and threads that a worker may have, and as many more for each processor: PoCL and Intel's runtime
have one for each processor and instance. A kernel could else start more than the machine has numbers for."""


class _Told(Exception):
    """Somebody asked the keeper to end."""


def main() -> None:
    """Start the worker, and keep it."""
    module, descriptor, parent, scratch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    keeper = os.getpid()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it leaves as the worker did
    worker = os.fork()
    if worker == 0:
        die_with_parent()
        if os.getppid() != keeper:
            os._exit(1)
        os.setpgid(0, 0)
        _work(module, descriptor)
        os._exit(0)  # without the drivers' own clean-up, which some of them do not survive
    os.close(descriptor)
    status = _keep(worker, parent)
    _sweep(worker)
    _remove(scratch)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def _work(module: str, descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        cage = Cage.of(json.loads(_message(connection)))
        confinement = enter(cage)
        entered = Entered(os.getpid(), confinement)
        said = b"a" + json.dumps(asdict(entered)).encode()
        connection.sendall(struct.pack("<Q", len(said)) + said)
    importlib.import_module(module).main(descriptor)


def _message(connection: socket.socket) -> bytes:
    head = connection.recv(8, socket.MSG_WAITALL)
    if len(head) < 8:
        os._exit(1)  # nobody is there any more
    (length,) = struct.unpack("<Q", head)
    return connection.recv(min(length, _MOST_BYTES), socket.MSG_WAITALL)


def _keep(worker: int, parent: int) -> int:
    """Wait until the worker ends, or must be ended; its status."""

    def told(number: int, frame: object) -> None:
        raise _Told

    signal.signal(signal.SIGTERM, told)
    with suppress(_Told):
        _wait(worker, parent)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)  # nothing happens to one that has ended and is not yet waited for
    return os.waitpid(worker, 0)[1]


def _wait(worker: int, parent: int) -> None:
    try:
        ends = [os.pidfd_open(worker), os.pidfd_open(parent)]
    except OSError:
        while os.getppid() == parent and not _ended(worker):
            time.sleep(_LOOK_SECONDS)
        return
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    most = _MOST_PROCESSES + _MOST_A_PROCESSOR * (os.cpu_count() or 1)
    others = _of_machine()
    while os.getppid() == parent and not poll.poll(1000 * _COUNT_SECONDS):
        if (now := _of_machine()) > others + most:
            if (ours := _counted(worker)) > most:
                return
            others = now - ours  # it was they that became more
            with suppress(ProcessLookupError):
                os.killpg(worker, signal.SIGCONT)


def _of_machine() -> int:
    """Processes and threads of the whole machine: one look, some ten microseconds."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _counted(group: int) -> int:
    """Processes and threads of a process group, which nobody in a cage can leave; while they are counted they
    are stopped, or they would become more meanwhile."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGSTOP)
    found = 0
    for entry in os.scandir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit():
                said = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                found += int(said[17]) if int(said[2]) == group else 0
    return found


def _ended(process: int) -> bool:
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _sweep(worker: int) -> None:
    """Kill and collect whatever is left of what the worker started."""
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:  # all that have ended, before they are looked for again
                pass
        except ChildProcessError:
            return


def _children() -> list[int]:
    found: list[int] = []
    with suppress(OSError, ValueError):
        found = [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    return found


def _remove(folder: str) -> None:
    """Remove a folder and all that is in it; links are removed, not followed."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(folder)


if __name__ == "__main__":
    main()
