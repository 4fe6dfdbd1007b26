"""Processes on this machine: a deadline and a memory limit for each item, and a crash costs one item.

Each worker is a child of its own with a pipe of its own. The pools of the standard library share theirs, and
give up all that is under way when one worker dies. Workers are spawned rather than forked: a fork would
copy the locks of the caller's threads (NumPy, torch and OpenCL start some), and the children of a fork server
are not ours to wait for. A start costs about 0.1 s, once for each worker and once for each one replaced.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from apportion.errors import (
    DeadlineExceeded,
    InvalidSetting,
    ItemFailed,
    JobError,
    LimitExceeded,
    WorkerCrashed,
)
from apportion.jobs.base import Outcome, Runner, as_ours, outcome_of
from apportion.jobs.processors import processors
from apportion.jobs.values import packed, restored

if sys.platform != "win32":
    import resource

T = TypeVar("T")
R = TypeVar("R")

_START_SECONDS = 120.0
"A worker that has not loaded the function by then is given up; importing torch on a busy disk takes 30."
_STARTS = 3
"So many workers in a row may die before they have loaded the function; then it is no accident."
_LOOK_SECONDS = 1.0
"How often workers are looked at that say nothing: one that forked leaves its pipe open when it dies."
_FAREWELL_SECONDS = 2.0
"What a worker that is no longer needed has to run its exit handlers."


@dataclass(frozen=True)
class LocalRunner(Runner):
    """Runs items in processes on this machine.

    Each `map` starts its own workers when the first items are there and ends them with its iteration. A
    worker that passes the deadline is killed, with the processes it started, and replaced; the others go on.
    While the caller does not ask for the next outcome nobody is killed, and each worker finishes at most one
    item.
    """

    workers: int | None = None
    "How many processes; None takes one for each processor this process may use."

    deadline_seconds: float | None = None
    "How long one item may take; None lets it take as long as it likes."

    memory_bytes: int | None = None
    "Address space that a worker may take beyond what it holds once the function is loaded; None: no limit."

    fresh: bool = False
    "Each item has a process of its own: for work that leaves a trace there, as a library's cache."

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InvalidSetting(f"workers must be at least 1, not {self.workers}")
        if self.deadline_seconds is not None and not self.deadline_seconds > 0:
            raise InvalidSetting(f"deadline_seconds must be positive, not {self.deadline_seconds}")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise InvalidSetting(f"memory_bytes must be positive, not {self.memory_bytes}")

    @classmethod
    def at(
        cls, place: str, *, workers: int | None = None, deadline_seconds: float | None = None
    ) -> LocalRunner:
        if place:
            raise InvalidSetting(f"The runner local takes no place, so {place!r} after it means nothing")
        return cls(workers, deadline_seconds)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[Outcome[R]]:
        if not hasattr(os, "setsid"):
            raise JobError("Worker processes need Linux or macOS. Use a runner on a cluster: ray or slurm")
        return self._outcomes(packed_function(function), items)

    def _outcomes(self, program: bytes, items: Iterable[Any]) -> Iterator[Outcome[Any]]:
        workers = self.workers or processors()
        supply = ItemSupply(items)
        pending: deque[tuple[int, bytes]] = deque()
        crew = _Crew(program, self.memory_bytes, fresh=self.fresh)
        atexit.register(crew.kill)  # an iterator that nobody closed before the interpreter left
        try:
            while True:
                while len(pending) + len(crew.busy()) < workers and (item := supply.next()) is not None:
                    if isinstance(item, Outcome):
                        yield item
                    else:
                        pending.append(item)
                if not pending and not crew.busy():
                    break
                while crew.broken is None and len(crew.free()) < len(pending) and len(crew.members) < workers:
                    crew.hire()
                for worker in crew.free():
                    if worker.ready and pending:
                        worker.give(*pending.popleft())
                if crew.broken is not None and not crew.busy():
                    raise crew.broken
                yield from crew.outcomes(self.deadline_seconds)
            crew.dismiss()
            if supply.error is not None:
                raise supply.error
        finally:
            crew.kill()
            atexit.unregister(crew.kill)


def packed_function(function: Callable[[Any], Any]) -> bytes:
    """The function for other processes of ours to load by its name.

    Raises:
        InvalidSetting: it has none there.
    """
    try:
        return packed(function)
    except Exception as error:
        raise InvalidSetting(
            f"{function!r} cannot travel to another process ({error}). "
            "Give a function at the top level of a module, or a functools.partial of one."
        ) from error


class ItemSupply:
    """The items, numbered and pickled one by one as they are asked for."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = enumerate(items)
        self._ended = False
        self.error: Exception | None = None
        "What the items raised; kept until the items already taken have had their outcomes."

    def next(self) -> tuple[int, bytes] | Outcome[Any] | None:
        """The next item's number and bytes, or its outcome when it has no bytes; None after the last."""
        if self._ended:
            return None
        try:
            index, item = next(self._items)
        except StopIteration:
            self._ended = True
            return None
        except Exception as error:
            self._ended, self.error = True, error
            return None
        try:
            return index, _travelling(item, "the item cannot travel to a worker")
        except ItemFailed as error:
            return Outcome(index, error=error)


class _Worker:
    """The parent's side of one process."""

    def __init__(self, program: bytes, memory_bytes: int | None) -> None:
        context = get_context("spawn")
        self.connection, self._theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(self._theirs, program, memory_bytes))
        self.ready = False
        self.item_index: int | None = None
        self.since = time.monotonic()

    def start(self) -> None:
        resource_tracker.ensure_running()  # its start would lift the mask below
        # A Ctrl-C is for the caller. Until the worker has left the terminal's group it must not see one.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
            self._theirs.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def give(self, item_index: int, item: bytes) -> None:
        self.item_index, self.since = item_index, time.monotonic()
        with suppress(OSError):  # it died since it was last heard of; the next look at it finds that out
            self.connection.send_bytes(item_index.to_bytes(8, "little") + item)

    def seconds(self) -> float:
        return time.monotonic() - self.since

    def died(self) -> bool:
        """Whether the process has ended; it is not reaped, so that its group's number stays its own."""
        pid = self.process.pid
        assert pid is not None
        try:
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # reaped all the same: starting another process does that
            return True

    def end(self) -> None:
        """Have the process end, with all that it started, and do not wait for that."""
        pid = self.process.pid
        if pid is None:
            return
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no group of its own yet, or is gone
            self.process.kill()
        self.connection.close()

    def kill(self) -> int | None:
        """End the process and all that it started; its exit status, negative for a signal.

        Interrupted, it can be called again; a worker that was never started has no status.
        """
        if self.process.pid is None:
            return None
        self.end()
        self.process.join()
        return self.process.exitcode


class _Crew:
    """The workers of one map."""

    def __init__(self, program: bytes, memory_bytes: int | None, *, fresh: bool = False) -> None:
        self._program, self._memory_bytes, self._fresh = program, memory_bytes, fresh
        self._lost_starts = 0
        self.members: list[_Worker] = []
        self._leaving: list[_Worker] = []
        self.broken: JobError | None = None
        "Why there is no sense in hiring; raised once those that are busy have answered."

    def busy(self) -> list[_Worker]:
        return [worker for worker in self.members if worker.item_index is not None]

    def free(self) -> list[_Worker]:
        """Those that wait for an item, or will when they have started."""
        return [worker for worker in self.members if worker.item_index is None]

    def hire(self) -> None:
        worker = _Worker(self._program, self._memory_bytes)
        self.members.append(worker)  # first, so that an interruption finds it among those to be killed
        worker.start()

    def outcomes(self, deadline_seconds: float | None) -> Iterator[Outcome[Any]]:
        """Wait until something happens, then say what: none, one or several outcomes."""
        waits = [_LOOK_SECONDS]
        if deadline_seconds is not None:
            waits += [max(0.0, deadline_seconds - worker.seconds()) for worker in self.busy()]
        answered = wait([worker.connection for worker in self.members], min(waits))
        for worker in list(self.members):
            outcome: Outcome[Any] | None = None
            if worker.connection in answered:
                outcome = self._heard(worker)
            elif worker.died():
                outcome = self._lost(worker)
            elif worker.item_index is not None:
                if deadline_seconds is not None and worker.seconds() >= deadline_seconds:
                    outcome = self._late(worker, deadline_seconds)
            elif not worker.ready and worker.seconds() >= _START_SECONDS:
                self._lost(worker)
            if outcome is not None:
                yield outcome

    def dismiss(self) -> None:
        """Let the workers leave by themselves; those that dawdle are killed by `kill`."""
        for worker in self.members:
            worker.connection.close()
        patience = time.monotonic() + _FAREWELL_SECONDS
        for worker in self.members:
            wait([worker.process.sentinel], max(0.0, patience - time.monotonic()))

    def kill(self) -> None:
        while self.members:
            self._fire(self.members[-1])
        while self._leaving:
            self._leaving[-1].process.join()
            self._leaving.pop()

    def _retire(self, worker: _Worker) -> None:
        """End a worker that has done its item. One that used a GPU takes a while to go: nobody waits."""
        worker.end()
        self._leaving.append(worker)
        self.members.remove(worker)
        self._leaving = [other for other in self._leaving if other.process.exitcode is None]

    def _fire(self, worker: _Worker) -> int | None:
        status = worker.kill()
        self.members.remove(worker)  # only now: see hire
        return status

    def _heard(self, worker: _Worker) -> Outcome[Any] | None:
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            return self._lost(worker)
        if worker.item_index is None:  # its first word: nothing when it has loaded the function, or why not
            if message:
                self._fire(worker)
                self.broken = JobError(f"A worker cannot load the function. {message.decode()}")
            else:
                worker.ready, self._lost_starts = True, 0
            return None
        item_index, worker.item_index = worker.item_index, None
        seconds = worker.seconds()
        if self._fresh:
            self._retire(worker)
        try:
            outcome: Outcome[Any] = restored(message)
            if isinstance(outcome.error, LimitExceeded) and not self._fresh:
                self._fire(worker)  # what is left of its address space is in pieces
            return outcome if outcome.value is None else replace(outcome, value=restored(outcome.value))
        except Exception as error:  # a class that can be packed but not restored
            return Outcome(item_index, error=as_ours(error), seconds=seconds)

    def _lost(self, worker: _Worker) -> Outcome[Any] | None:
        item_index, seconds, ready = worker.item_index, worker.seconds(), worker.ready
        fate = _fate(self._fire(worker))
        if item_index is not None:
            return Outcome(item_index, error=WorkerCrashed(f"The worker {fate}"), seconds=seconds)
        if not ready:
            self._lost_starts += 1
            if self._lost_starts >= _STARTS:
                self.broken = WorkerCrashed(
                    f"{_STARTS} workers in a row were lost before they had loaded the function; "
                    f"the last one {fate}. A script must call map under `if __name__ == '__main__':`."
                )
        return None

    def _late(self, worker: _Worker, deadline_seconds: float) -> Outcome[Any]:
        item_index, seconds = worker.item_index, worker.seconds()
        assert item_index is not None
        self._fire(worker)
        error = DeadlineExceeded(f"It took longer than the {deadline_seconds:g} s it was given")
        return Outcome(item_index, error=error, seconds=seconds)


def _fate(status: int | None) -> str:
    if status is None or status >= 0:
        return f"left with exit status {status} in the middle"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    hint = "; the machine may have run out of memory" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


def _work(connection: Connection, program: bytes, memory_bytes: int | None) -> None:
    """The worker's side: load the function, say so, then answer each item until the pipe is closed."""
    os.setsid()  # its own group: a Ctrl-C in the terminal is not for it, and it dies with all it started
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.dup2(2, 1)  # stdout belongs to the caller's results; what an item prints is a note
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        function = pickle.loads(program)
    except BaseException as error:
        connection.send_bytes(f"{type(error).__name__}: {error}".encode())
        return
    if memory_bytes is not None:
        _limit_memory(memory_bytes)
    # The pipe closes when the work is over: for a worker that was still starting, before its first word.
    with suppress(EOFError, OSError):
        connection.send_bytes(b"")
        while True:
            connection.send_bytes(_answer(function, connection.recv_bytes(), memory_bytes))


def loaded_in_worker(data: bytes) -> Any:
    """What the process that started this worker has packed: a function, or an item. Only for workers."""
    return pickle.loads(data)


def _answer(function: Callable[[Any], Any], message: bytes, memory_bytes: int | None) -> bytes:
    def bytes_of_value(item: bytes) -> bytes:
        try:
            value = function(pickle.loads(item))
            return _travelling(value, "the value cannot travel back from its worker")
        except MemoryError:
            if memory_bytes is None:
                raise
        # Said only here, where all that filled the memory is free again.
        raise LimitExceeded(
            f"It wanted more memory than the {memory_bytes:,} bytes it was given. Raise memory_bytes."
        )

    item_index = int.from_bytes(message[:8], "little")
    return packed(outcome_of(bytes_of_value, message[8:], item_index))


def _travelling(value: Any, complaint: str) -> bytes:
    try:
        return packed(value)
    except MemoryError:
        raise
    except Exception as error:
        raise ItemFailed(type(error).__name__, f"{complaint}: {error}", traceback.format_exc()) from error


def _limit_memory(memory_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # a limit met in native code aborts: no need for its core


def _die_with_parent() -> None:
    # Not PR_SET_PDEATHSIG: that one fires when the thread that started the worker ends, not the process.
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)
