"""A worker process that owns the OpenCL drivers, and what happens when it hangs, crashes or eats too much
memory.

A kernel can loop for ever, write anywhere, or make a driver abort. In a process of its own that costs the
launch and no more: the worker is stopped and replaced, and the caller gets an error that says what happened.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from apportion import errors
from apportion.runtime.base import Calibration, DeviceInfo, Limits
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.memory import Region
from apportion.runtime.opencl.pipe import BEGUN, SEEN, receive, send
from apportion.runtime.opencl.platforms import worker_environment
from apportion.runtime.plan import ArrayPlace, Build, Outcome, Plan

_POLL_SECONDS = 0.05
"How often a busy worker's memory is looked at."
_KEPT_PLANS = 32
"Plans that a worker keeps, to be launched again without being sent."
_START_SECONDS = 60.0
"Loading the drivers; some read a whole compiler from a cold disk."


class Worker:
    """The drivers, behind a process boundary. Starts on first use; is replaced after it dies."""

    def __init__(self, options: DriverOptions = DEFAULT_DRIVERS, limits: Limits | None = None) -> None:
        self.options = options
        self.limits = limits or Limits()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._log: Any = None
        self._attached: set[int] = set()
        self._regions: weakref.WeakValueDictionary[int, Region] = weakref.WeakValueDictionary()
        self._devices: list[DeviceInfo] | None = None
        self._gone: list[int] = []
        self._slots = itertools.cycle(range(_KEPT_PLANS))
        # Plan, by identity → the slot in which the worker keeps it, and the plan, whose identity stays taken.
        self._sent: dict[int, tuple[int, Plan]] = {}
        self.restarts = 0
        "How many times a worker had to be replaced."
        self._close_at_exit = weakref.WeakMethod(self.close)
        atexit.register(_call, self._close_at_exit)

    # What it does

    def devices(self) -> list[DeviceInfo]:
        """Every device that the drivers offer."""
        if self._devices is None:
            found: list[DeviceInfo] = self._ask("describe", seconds=_START_SECONDS, doing="listing devices")
            self._devices = found
        return self._devices

    def region(self, nbytes: int) -> Region:
        """Fresh shared memory; it lives as long as the region or an array over it is referred to."""
        if nbytes > self.limits.memory_bytes:
            raise errors.LimitExceeded(
                f"An array of {nbytes} bytes is more than the {self.limits.memory_bytes} bytes a worker "
                "may use"
            )
        region = Region(nbytes)
        self._regions[region.number] = region
        weakref.finalize(region, self._gone.append, region.number)
        return region

    def shared(self, values: NDArray[Any]) -> tuple[Region, NDArray[Any]]:
        """A copy of an array in shared memory."""
        region = self.region(values.nbytes)
        array = region.array(values.dtype, values.shape)
        array[...] = values
        return region, array

    def build(self, build: Build, devices: list[str]) -> dict[str, int]:
        """Compile a kernel for these devices; the largest work-group each allows."""
        doing = f"compiling {build.kernel!r} for {', '.join(devices)}"
        largest: dict[str, int] = self._ask(
            "build", build, devices, seconds=self.limits.build_seconds, doing=doing
        )
        return largest

    def calibrate(self, device: str) -> Calibration:
        """Measure what a device does per second."""
        found: Calibration = self._ask(
            "calibrate", device, seconds=self.limits.build_seconds, doing=f"calibrating {device}"
        )
        return found

    def run(self, plan: Plan) -> Outcome:
        """Run a plan; its arrays hold the results afterwards."""
        for place in plan.arguments:
            if isinstance(place, ArrayPlace):
                self._attach(place.region)
        devices = list(plan.chunks.shares) if plan.chunks else [part.device for part in plan.parts]
        doing = f"running {plan.build.kernel!r} on {', '.join(dict.fromkeys(devices))}"
        outcome: Outcome
        if self._process is not None and (kept := self._sent.get(id(plan))) is not None:
            # The worker has this very plan, and every device has compiled it.
            outcome = self._ask("again", kept[0], seconds=self.limits.seconds, doing=doing)
            return outcome
        slot = next(self._slots)
        outcome = self._ask("run", slot, plan, seconds=self.limits.build_seconds, doing=doing)
        self._sent = {key: kept for key, kept in self._sent.items() if kept[0] != slot}
        self._sent[id(plan)] = slot, plan
        return outcome

    # The process

    def close(self) -> None:
        """End the process; twice does nothing, and the next request starts another."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.kill()
            process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None
        self._attached.clear()
        self._sent.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        atexit.unregister(self._close_at_exit)
        self.close()

    def _start(self) -> None:
        environment = worker_environment(self.options)  # it can fail, and then nothing is to be closed
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "apportion.runtime.opencl.server", str(theirs.fileno())],
                env=environment, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                start_new_session=True,  # an interrupt from the keyboard is ours to handle
            )  # fmt: skip
        self._socket = ours

    def _attach(self, number: int) -> None:
        while self._gone:
            old = self._gone.pop()
            if old in self._attached:
                self._attached.discard(old)
                self._ask("detach", old, seconds=_START_SECONDS, doing="freeing memory")
        if self._socket is not None and number in self._attached:
            return
        region = self._regions[number]
        self._ask(
            "attach", number, region.nbytes, seconds=_START_SECONDS, doing="sharing memory",
            descriptor=region.descriptor,
        )  # fmt: skip
        self._attached.add(number)

    def _ask(
        self,
        request: str,
        *arguments: Any,
        seconds: float,
        doing: str,
        descriptor: int = -1,
        report: Callable[[Any], None] | None = None,
    ) -> Any:
        if self._process is None:
            self._start()
            seconds += _START_SECONDS
        connection = self._socket
        assert connection is not None
        try:
            send(connection, (request, arguments))
            if descriptor >= 0:
                socket.send_fds(connection, [b"d"], [descriptor])
            end = time.monotonic() + seconds
            self._wait(connection, seconds, doing, end)
            answer = receive(connection)
            while report is not None and answer is not None and answer[0] == SEEN:
                report(answer[1])
                send(connection, SEEN)
                self._wait(connection, seconds, doing, end)
                answer = receive(connection)
            if answer == BEGUN:  # compiling is over; now the kernel has its own time
                seconds = self.limits.seconds
                self._wait(connection, seconds, doing, time.monotonic() + seconds)
                answer = receive(connection)
        except (BrokenPipeError, ConnectionResetError):
            answer = None
        except BaseException:  # also an interrupt: a worker in the middle of something is of no more use
            self._stop()
            raise
        if answer is None:
            raise self._crash(doing)
        done, value = answer
        if not done:
            error = _rebuilt(*value)
            if isinstance(error, errors.LaunchFailed) and not isinstance(error, errors.OutOfBoundsWrite):
                self._stop()  # a GPU's context is of no more use after some errors, and does not say so
            raise error
        return value

    def _wait(self, connection: socket.socket, seconds: float, doing: str, end: float) -> None:
        while not select.select([connection], [], [], min(_POLL_SECONDS, max(0.0, end - time.monotonic())))[
            0
        ]:
            if time.monotonic() >= end:
                raise errors.DeadlineExceeded(
                    f"The worker was stopped after {seconds:g} s of {doing}. "
                    "Does the kernel end? If so, give it a longer deadline"
                )
            if (used := self._resident_bytes()) > self.limits.memory_bytes:
                raise errors.LimitExceeded(
                    f"The worker was stopped at {used} bytes of memory while {doing}; "
                    f"its limit is {self.limits.memory_bytes}. Use a smaller range, or raise the limit"
                )

    def _resident_bytes(self) -> int:
        if self._process is None:
            return 0
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0  # no such file system, or the process has just ended
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _stop(self) -> None:
        self.restarts += 1
        if self._process is not None:
            self._process.kill()
        self.close()

    def _crash(self, doing: str) -> errors.WorkerCrashed:
        process, said = self._process, ""
        status = process.wait(5) if process is not None else None
        if self._log is not None:
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines()
            said = f" It said: {' / '.join(lines[-3:])}" if lines else ""
        self._stop()
        how = f"status {status}"
        if status is not None and status < 0:
            how = signal.Signals(-status).name
        return errors.WorkerCrashed(
            f"The worker died of {how} while {doing}: the kernel or the driver is at fault. "
            f"A new one takes its place.{said}"
        )


def _call(method: weakref.WeakMethod[Any]) -> None:
    if (bound := method()) is not None:
        bound()


def _rebuilt(name: str, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> errors.ApportionError:
    """An error of ours as it was in the worker; its own constructor may want other arguments."""
    kind: type[errors.ApportionError] = getattr(errors, name)
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error
