"""Threads that compute for a CPU give way to those that feed other devices, while both share a launch.

A CPU device has a thread for each processor, so that a thread which copies to a GPU, or waits for one, finds
none free when it wakes up: on 16 processors a copy of 1.3 ms took 9.1 while the CPU computed. How nice one is
counts only when its time slice is over; a thread of the class `SCHED_IDLE` is put aside the moment any other
wants to run.

Such a thread also gives way to every other program, so a machine that has more to do would hardly get on with
it. That is right as long as a device waits to be fed, and no longer: the second launch in a row that only
computes puts the threads back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyopencl as cl

from apportion.errors import ApportionError
from apportion.runtime.opencl.calibration import exercise
from apportion.runtime.opencl.queue import Queue

_TASKS = Path("/proc/self/task")
_EXERCISE_SECONDS = 0.004
_AT_WORK_NS = 500_000
"Run time in exercises from which on a thread is taken for one that computes."
_EXERCISES = 5
"So many at most until as many threads are found as the device has processors: others may use them too."


class ThreadPriority:
    """Which threads compute for which device of this process, and which of them give way now."""

    def __init__(self) -> None:
        self._computing: dict[str, frozenset[int]] = {}
        self._behind: frozenset[int] = frozenset()
        self._for_ever = not hasattr(os, "SCHED_IDLE")
        self._lately = False
        "Whether the last launch of a device that computes here was shared."

    def arrange(self, queues: Iterable[Queue] = ()) -> None:
        """Let threads give way, or no longer, as it is best for a launch on these devices.

        Only to devices that are fed: two that compute on the same processors stay equal.
        """
        queues = list(queues)
        hosts = [queue for queue in queues if queue.info.shares_memory]
        if queues and not hosts:
            return  # nobody computes here
        fed = len(hosts) < len(queues)
        lately, self._lately = self._lately, fed
        if queues and lately and not fed:
            return  # once in a row is left as it is: whether to share is being found out, and time counts
        self._put_behind(frozenset().union(*(self._threads(queue) for queue in hosts if fed)))

    def _threads(self, queue: Queue) -> frozenset[int]:
        # Found when first needed: it takes some milliseconds, which a device that is used alone is spared.
        if queue.info.id not in self._computing:
            self._computing[queue.info.id] = computing_threads(queue)
        return self._computing[queue.info.id]

    def _put_behind(self, wanted: frozenset[int]) -> None:
        """Change the class of those threads alone for which it changes: launches in a loop pay nothing."""
        if self._for_ever:
            wanted |= self._behind
        for thread in wanted - self._behind:
            with suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        for thread in self._behind - wanted:
            try:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
            except PermissionError:
                # Only with RLIMIT_NICE at 20 or more, or CAP_SYS_NICE, does Linux take a thread back.
                self._for_ever = True
                return
            except OSError:  # it has ended
                continue
        self._behind = wanted


def computing_threads(queue: Queue) -> frozenset[int]:
    """The threads of this process that run while a CPU device computes; none where the system does not tell.

    By what they do and not by when they began: some loaders start a driver's threads when they look for its
    platform, others when its devices are asked for.
    """
    before = _run_times()
    found: frozenset[int] = frozenset()
    with suppress(cl.Error, ApportionError):
        for _ in range(_EXERCISES if before else 0):
            exercise(queue, _EXERCISE_SECONDS)
            after = _run_times()
            found = frozenset(
                thread for thread, time in after.items() if time - before.get(thread, 0) > _AT_WORK_NS
            )
            if len(found) >= queue.info.compute_units:
                break
    return found


def _run_times() -> dict[int, int]:
    """Thread of this process that is not Python's → nanoseconds for which it ran."""
    # After a fork, Python 3.11 still takes the main thread's number for that of the process before.
    ours = {os.getpid(), *(thread.native_id for thread in threading.enumerate())}
    times: dict[int, int] = {}
    with suppress(OSError):
        for task in _TASKS.iterdir():
            if int(task.name) not in ours:
                with suppress(OSError, ValueError, IndexError):  # a thread may end meanwhile
                    times[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return times
