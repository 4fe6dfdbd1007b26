"""A worker process that owns the OpenCL drivers, and what happens when it hangs, crashes or eats too much
memory.

A kernel can loop for ever, write anywhere, or make a driver abort. In a process of its own that costs the
launch and no more: the worker is stopped and replaced, and the caller gets an error that says what happened.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from apportion import errors
from apportion.jobs.cage import Confinement, Entered
from apportion.runtime.base import Calibration, DeviceInfo, Limits
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.memory import Region
from apportion.runtime.opencl.confinement import cage_of, header_folders, variables
from apportion.runtime.opencl.pipe import (
    ANSWER,
    BEGUN,
    SEEN,
    Listener,
    expect,
    failure_of,
    printable,
    readable,
    send,
    send_plain,
    value_of,
)
from apportion.runtime.opencl.platforms import worker_environment
from apportion.runtime.opencl.relaunching import Relaunches, fits
from apportion.runtime.opencl.ring import Ring
from apportion.runtime.plan import ArrayPlace, Build, LaunchOutcome, Plan
from apportion.runtime.stream import Span, StreamLaunch

_MOST_PRINTED = 1 << 14
"Bytes of what kernels printed that are told."
_POLL_SECONDS = 0.05
"How often a busy worker's memory is looked at."
_KEPT_PLANS = 32
"Plans that a worker keeps, to be launched again without being sent."
_SERVER = "apportion.runtime.opencl.worker_process"
"What the worker runs, in its cage."
_SWEEP_SECONDS = 5.0
"What a keeper has to end and collect what it keeps, on a busy machine."
_FAREWELL_SECONDS = 0.5
"What a process has to end by itself."
_DRIVER_BYTES = 2 << 30
"What Python, the drivers and their threads may map to write to, used or not, beyond what is measured."
_MOST_THREADS = 1024 + 16 * (os.cpu_count() or 1)
_MOST_LOG_BYTES = 64 << 20
_MOST_DESCRIPTORS = 64
"Files that are handed over at once; Linux takes 253."
_LAST_WORDS = 4096
"Bytes of what a worker printed that are looked at when it has died."
_START_SECONDS = 60.0
"Loading the drivers; some read a whole compiler from a cold disk."


@dataclass(frozen=True)
class _KeptPlan:
    """A plan that the worker keeps in a slot. It is referred to, so that its identity stays taken."""

    slot: int
    plan: Plan
    first: LaunchOutcome
    "What came of its first launch."


class Worker:
    """The drivers, behind a process boundary. Starts on first use; is replaced after it dies."""

    def __init__(self, options: DriverOptions = DEFAULT_DRIVERS, limits: Limits | None = None) -> None:
        self.options = options
        self.limits = limits or Limits()
        self._readable: set[str] = set()
        self._writable: set[str] = set()
        self._scratch: str | None = None
        self._worker_id: int | None = None
        self._confinement: Confinement | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._listener: Listener | None = None
        self._log: Any = None
        self._read_to = 0
        self._attached: set[int] = set()
        self._regions: weakref.WeakValueDictionary[int, Region] = weakref.WeakValueDictionary()
        self._devices: list[DeviceInfo] | None = None
        self._gone: list[int] = []
        self._slots = itertools.cycle(range(_KEPT_PLANS))
        self._sent: dict[int, _KeptPlan] = {}
        "Plan, by identity → what the worker keeps of it."
        self._again: Relaunches | None = None
        self.restarts = 0
        "How many times a worker had to be replaced."
        self._close_at_exit = weakref.WeakMethod(self.close)
        atexit.register(_call, self._close_at_exit)

    # What it does

    def begin(self) -> None:
        """Start the process, and do not wait for it: it loads its drivers meanwhile."""
        if self._process is None:
            self._start()

    def devices(self) -> list[DeviceInfo]:
        """Every device that the drivers offer."""
        if self._devices is None:
            found: list[DeviceInfo] = self._ask(
                "describe", seconds=_START_SECONDS, doing="listing devices", answer=list[DeviceInfo]
            )
            self._devices = found
        return self._devices

    def _described(self) -> list[DeviceInfo]:
        found: list[DeviceInfo] = self._ask(
            "describe", seconds=_START_SECONDS, doing="listing devices", answer=list[DeviceInfo]
        )
        return found

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

    def allow(self, *, readable: Iterable[str] = (), writable: Iterable[str] = ()) -> None:
        """Let the process read, or write, folders; a process that may not yet is replaced."""
        readable, writable = set(readable) - self._readable, set(writable) - self._writable
        if readable or writable:
            self._readable |= readable
            self._writable |= writable
            self.close()

    def build(self, build: Build, devices: list[str]) -> dict[str, int]:
        """Compile a kernel for these devices; the largest work-group each allows."""
        self.allow(readable=header_folders(build.options))
        doing = f"compiling {build.kernel!r} for {', '.join(devices)}"
        largest: dict[str, int] = self._ask(
            "build", build, devices, seconds=self.limits.build_seconds, doing=doing, answer=dict[str, int]
        )
        return largest

    def calibrate(self, device: str, seconds: float = float("inf")) -> Calibration:
        """Measure what a device does per second, as far as that can be done in so many seconds."""
        found: Calibration = self._ask(
            "calibrate",
            device,
            seconds,
            seconds=self.limits.build_seconds,
            doing=f"calibrating {device}",
            answer=Calibration,
        )
        return found

    def printed(self) -> str:
        """What kernels and drivers printed since this was asked last, the end of it if it is much."""
        if self._log is None:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        self._read_to, begun = size, min(self._read_to, size)
        self._log.seek(max(begun, size - _MOST_PRINTED))
        return printable(self._log.read(_MOST_PRINTED).decode(errors="replace"))

    def run(self, plan: Plan) -> LaunchOutcome:
        """Run a plan; its arrays hold the results afterwards."""
        if self._process is not None and (kept := self._sent.get(id(plan))) is not None:
            return self._run_again(kept)
        self.allow(readable=header_folders(plan.build.options))
        self._attach(*(place.region for place in plan.arguments if isinstance(place, ArrayPlace)))
        slot = next(self._slots)
        outcome: LaunchOutcome = self._ask(
            "run", slot, plan, seconds=self.limits.build_seconds, doing=_running(plan), answer=LaunchOutcome
        )
        self._sent = {key: kept for key, kept in self._sent.items() if kept.slot != slot}
        self._sent[id(plan)] = _KeptPlan(slot, plan, outcome)
        return outcome

    def _run_again(self, kept: _KeptPlan) -> LaunchOutcome:
        """Launch what the worker keeps and every device has compiled."""
        if kept.plan.chunks is None and fits(kept.first):
            if self._again is None:
                self._again = Relaunches(self)
            return self._again.launch(kept.slot, kept.first)
        outcome: LaunchOutcome = self._ask(
            "again", kept.slot, seconds=self.limits.seconds, doing=_running(kept.plan), answer=LaunchOutcome
        )
        return outcome

    # Streams

    @property
    def serving(self) -> int | None:
        """The number of the process that has the drivers, while it lives."""
        alive = self._process is not None and self._process.poll() is None
        return self._worker_id if alive else None

    def open_stream(self, region: int, descriptor: int) -> None:
        """Have the worker do what a ring in shared memory says.

        Args:
            region: the ring's memory.
            descriptor: the worker's end of the bell.
        """
        self._attach(region)
        self._ask(
            "open_stream", region, seconds=_START_SECONDS, doing="opening a stream", descriptors=(descriptor,)
        )

    def prepare_stream(self, numbers: Sequence[int], launches: Sequence[StreamLaunch]) -> None:
        """Compile launches of a stream, which get these numbers."""
        places = [place for launch in launches for place in launch.arguments]
        self._attach(*(place.region for place in places if isinstance(place, ArrayPlace)))
        what = dict.fromkeys(f"{launch.build.kernel!r} for {launch.device}" for launch in launches)
        self._ask(
            "prepare_stream", list(numbers), list(launches), seconds=self.limits.build_seconds,
            doing=f"compiling {', '.join(what)}",
        )  # fmt: skip

    def stream_failure(self) -> None:
        """Raise what a stream's command failed of; the worker is replaced then."""
        self._ask("stream_failure", seconds=_START_SECONDS, doing="asking what failed")

    def stream_timeline(self) -> list[Span]:
        """What a stream's commands did lately; the worker keeps it from the first call on."""
        found: list[Span] = self._ask(
            "stream_timeline", seconds=self.limits.seconds, doing="waiting", answer=list[Span]
        )
        return found

    def wait_for_ring(self, ring: Ring, fence: int, process: int | None, look: float = 0.0) -> None:
        """Wait until the worker has come past a fence of a ring.

        Args:
            process: the number of the process that reads the ring; another one knows nothing of it.
            look: for how many seconds is looked for that at least, before sleeping.

        Raises:
            DeadlineExceeded, LimitExceeded, WorkerCrashed: it did not; the worker is replaced.
        """
        if not ring.ended(fence, _POLL_SECONDS, look):
            self._wait_for_ring(ring, process, partial(ring.ended, fence))

    def wait_for_room(self, ring: Ring, process: int | None) -> None:
        """Wait until a ring has room for a command; as `wait_for_ring`."""
        if not ring.room(_POLL_SECONDS):
            self._wait_for_ring(ring, process, ring.room)

    def _wait_for_ring(self, ring: Ring, process: int | None, done: Callable[[float], bool]) -> None:
        began, read = time.monotonic(), -1
        while not done(_POLL_SECONDS):
            if self.serving != process:
                raise self._crash("running queued launches")
            if (used := self._resident_bytes()) > self.limits.memory_bytes:
                self._stop()
                raise errors.LimitExceeded(
                    f"The worker was stopped at {used} bytes of memory while queued launches ran; its limit "
                    f"is {self.limits.memory_bytes}. Use a smaller range, or raise the limit"
                )
            if ring.read != read:  # what it did not come to yet has its own time
                read, began = ring.read, time.monotonic()
            if time.monotonic() - began > self.limits.seconds:
                self._stop()
                raise errors.DeadlineExceeded(
                    f"The worker was stopped {self.limits.seconds:g} s after it was given a queued launch. "
                    "Does the kernel end? If so, give it a longer deadline"
                )

    # Launches that come again

    def open_again(self, region: int, descriptor: int) -> None:
        """Have the worker launch again what a ring in shared memory says; as `open_stream`."""
        self._attach(region)
        self._ask(
            "open_again", region, seconds=_START_SECONDS, doing="opening a ring", descriptors=(descriptor,)
        )

    def again_failure(self) -> None:
        """Raise what a repeated launch failed of."""
        self._ask("again_failure", seconds=_START_SECONDS, doing="asking what failed")

    # The process

    @property
    def confinement(self) -> Confinement:
        """What confines the process; it is started if it is not there."""
        if self._worker_id is None:
            self.devices()
            if self._confinement is None:
                self._ask(
                    "describe", seconds=_START_SECONDS, doing="listing devices", answer=list[DeviceInfo]
                )
        assert self._confinement is not None
        return self._confinement

    @property
    def process_id(self) -> int | None:
        """The number of the process that has the drivers; None while there is none."""
        return self._worker_id

    def close(self) -> None:
        """End the process; twice does nothing, and the next request starts another."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is not None:
            try:
                process.wait(_FAREWELL_SECONDS)
            except subprocess.TimeoutExpired:
                _end(process)
        self._worker_id = self._confinement = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
        if self._log is not None:
            self._log.close()
            self._log = None
            self._read_to = 0
        self._attached.clear()
        self._sent.clear()
        again, self._again = self._again, None
        if again is not None:
            again.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        atexit.unregister(self._close_at_exit)
        self.close()

    def _start(self) -> None:
        if not sys.platform.startswith("linux"):
            raise errors.NotConfined(
                f"Kernels run on Linux alone, where their process can be confined; this is {sys.platform}. "
                "Graphs, predictions, tuning of commands and simulated schedules work here"
            )
        wanted = worker_environment(self.options)  # it can fail, and then nothing is to be closed
        self._scratch = tempfile.mkdtemp(prefix="apportion-")
        environment = variables(wanted, self._scratch)
        cage = cage_of(
            environment, self._scratch, readable=self._readable, writable=self._writable,
            memory_bytes=self.limits.memory_bytes + _DRIVER_BYTES,
        )  # fmt: skip
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        with theirs:
            self._process = subprocess.Popen(
                # -P: nothing is imported from the current folder, where a stranger's files may lie
                [sys.executable, "-P", "-m", "apportion.jobs.caged", _SERVER, str(theirs.fileno()),
                 str(os.getpid()), self._scratch],
                env=environment, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                start_new_session=True,  # an interrupt from the keyboard is ours to handle
            )  # fmt: skip
        self._socket, self._listener = ours, Listener(ours)
        send_plain(ours, cage.plain())

    def _greet(self, end: float) -> None:
        """Hear what confines the worker, before it is asked for anything."""
        connection = self._socket
        assert connection is not None
        assert self._listener is not None
        said = self._listener.heard(partial(self._wait, connection, _START_SECONDS, "starting", end))
        if said is None:
            return  # it died; whoever asks it next is told
        entered = value_of(said[1], Entered)
        self._worker_id, self._confinement = entered.process, entered.confinement
        if self.limits.require_confinement and not self._confinement.whole:
            missing = ", ".join(name.replace("_", " ") for name in self._confinement.missing)
            self.close()
            raise errors.NotConfined(
                f"Kernels would run without limits on {missing}, which this machine cannot set. "
                "Leave out --require-confinement to run them all the same"
            )

    def _attach(self, *numbers: int) -> None:
        """Have the process map regions, as far as it does not yet."""
        gone = []
        while self._gone:
            gone.append(self._gone.pop())
        if old := self._attached.intersection(gone):
            self._attached -= old
            self._ask("detach", sorted(old), seconds=_START_SECONDS, doing="freeing memory")
        known: set[int] = self._attached if self._socket is not None else set()
        new = [self._regions[number] for number in dict.fromkeys(numbers) if number not in known]
        for start in range(0, len(new), _MOST_DESCRIPTORS):
            some = new[start : start + _MOST_DESCRIPTORS]
            self._ask(
                "attach", [(region.number, region.nbytes) for region in some], seconds=_START_SECONDS,
                doing="sharing memory", descriptors=[region.descriptor for region in some],
            )  # fmt: skip
            self._attached.update(region.number for region in some)

    def _ask(
        self,
        request: str,
        *arguments: Any,
        seconds: float,
        doing: str,
        answer: Any = None,
        descriptors: Sequence[int] = (),
        seen: Any = None,
        report: Callable[[Any], None] | None = None,
    ) -> Any:
        """Ask the process for something, and wait until it is done.

        Args:
            seconds: how long compiling may take, or the whole where nothing is compiled.
            doing: what errors say was done.
            answer: the type of the answer; None: there is none.
            descriptors: files that are handed over with the request.
            seen: the type of what is reported on the way.
            report: is told that.
        """
        if self._worker_id is None:
            self.begin()
            expect(Entered, list[DeviceInfo], LaunchOutcome)  # while the process loads its drivers
            self._greet(time.monotonic() + _START_SECONDS)
            seconds += _START_SECONDS
        connection, listener = self._socket, self._listener
        assert connection is not None
        assert listener is not None
        try:
            send(connection, (request, arguments), _START_SECONDS)
            if descriptors:
                socket.send_fds(connection, [b"d"], descriptors)
            end = time.monotonic() + seconds
            begun = False
            said = listener.heard(partial(self._wait, connection, seconds, doing, end))
            while said is not None and said[0] in (BEGUN, SEEN):
                if said[0] == BEGUN:  # compiling is over; now the kernel has its own time
                    if begun:
                        raise errors.WorkerCrashed("The worker sent what is no answer: it began twice")
                    begun = True
                    seconds = self.limits.seconds
                    end = time.monotonic() + seconds
                elif report is not None:
                    report(value_of(said[1], seen))
                    send(connection, True, _START_SECONDS)  # None would say that this process has gone
                said = listener.heard(partial(self._wait, connection, seconds, doing, end))
            if said is not None and said[0] == ANSWER:
                return value_of(said[1], answer)
            error = failure_of(said[1]) if said is not None else None
        except (BrokenPipeError, ConnectionResetError):
            error = None
        except BaseException:  # also an interrupt: a worker in the middle of something is of no more use
            self._stop()
            raise
        if error is None:
            raise self._crash(doing)
        if isinstance(error, errors.LaunchFailed | errors.WorkerCrashed) and not isinstance(
            error, errors.OutOfBoundsWrite
        ):
            self._stop()  # a GPU's context is of no more use after some errors, and does not say so
        raise error

    def _wait(self, connection: socket.socket, seconds: float, doing: str, end: float) -> None:
        while not readable(connection, min(_POLL_SECONDS, max(0.0, end - time.monotonic()))):
            self._check(seconds, doing, end)
        if time.monotonic() >= end:
            self._check(seconds, doing, end)  # also one that goes on talking

    def _check(self, seconds: float, doing: str, end: float) -> None:
        """Raise if the process has used up its time, or has more than it may."""
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
        if (threads := self._threads()) > _MOST_THREADS:
            raise errors.LimitExceeded(f"The worker was stopped at {threads} threads while {doing}")
        if self._log is not None and os.fstat(self._log.fileno()).st_size > _MOST_LOG_BYTES:
            raise errors.LimitExceeded(
                f"The worker was stopped while {doing}: it printed more than {_MOST_LOG_BYTES >> 20} MiB"
            )

    def _threads(self) -> int:
        """Threads of the process: a folder of its own lists them."""
        try:
            return os.stat(f"/proc/{self._worker_id}/task").st_nlink - 2
        except OSError:
            return 0

    def _resident_bytes(self) -> int:
        if self._worker_id is None:
            return 0
        try:
            pages = int(Path(f"/proc/{self._worker_id}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0  # no such file system, or the process has just ended
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _stop(self) -> None:
        self.restarts += 1
        if self._process is not None:
            _end(self._process)
        self.close()

    def _crash(self, doing: str) -> errors.WorkerCrashed:
        process, said = self._process, ""
        status = None
        if process is not None:
            try:
                status = process.wait(5)
            except subprocess.TimeoutExpired:  # it closed the socket, and goes on
                _end(process)
        if self._log is not None:
            self._log.seek(max(0, os.fstat(self._log.fileno()).st_size - _LAST_WORDS))
            lines = printable(self._log.read().decode(errors="replace")).strip().splitlines()
            said = f" It said: {' / '.join(lines[-3:])}" if lines else ""
        self._stop()
        how = f"status {status}"
        if status is not None and status < 0:
            how = signal.Signals(-status).name
        return errors.WorkerCrashed(
            f"The worker died of {how} while {doing}: the kernel or the driver is at fault. "
            f"A new one takes its place.{said}"
        )


def _running(plan: Plan) -> str:
    devices = list(plan.chunks.shares) if plan.chunks else [part.device for part in plan.parts]
    return f"running {plan.build.kernel!r} on {', '.join(dict.fromkeys(devices))}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a keeper and, through it, all that it keeps."""
    process.terminate()
    try:
        process.wait(_SWEEP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _call(method: weakref.WeakMethod[Any]) -> None:
    if (bound := method()) is not None:
        bound()
