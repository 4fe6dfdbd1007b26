"""Queued launches and copies inside the process that owns the drivers.

Each device works off its own queue in order. Where a command needs what another device is still computing, it
is waited for; commands that need nothing of each other run at once.

A queue that keeps times makes every launch longer, on an H200 by about what a short kernel takes. Launches
whose times are known go to a second queue that keeps none. Queues change only when both are empty.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from apportion.errors import ApportionError, LaunchFailed
from apportion.runtime import memory
from apportion.runtime.opencl.commands import FREE, LAUNCH, TO_DEVICE, VALUE, ZERO
from apportion.runtime.opencl.queue import Queue
from apportion.runtime.opencl.running import out_of_bounds
from apportion.runtime.opencl.staging import WORTH_IT
from apportion.runtime.plan import ArrayPlace, LocalPlace, ValuePlace
from apportion.runtime.stream import Span, StreamLaunch

Bytes = NDArray[np.uint8]
_ALWAYS_TIMED, _TIMED_ONE_IN = 3, 8
"""Launches of each kind that are timed one by one; later on one in so many. Chosen: with eight, programs that
launch each kernel once a round kept times for eight rounds, up to a fifth longer each on an H200."""
_KEPT_TIMES = 9
_UNREAD = 64
"Events that are kept unread before the oldest are looked at."
_TRACED = 4096
_UNFLUSHED, _MOST_UNFLUSHED = 8, 64
"""Launches that are handed to a driver at once, where more wait: a flush takes as long as a launch. Twice as
many each time, since the device is busy by then. Chosen."""
_TIMED_AGAIN = 16
"Of the stretches between two waits, one in so many keeps times again. Chosen."


class _Timed(NamedTuple):
    number: int
    event: cl.Event
    trace: tuple[str, int, str, float, int] | None


class _PreparedLaunch:
    """A kernel with its arguments set, and what it touches."""

    def __init__(self, launch: StreamLaunch, queue: Queue) -> None:
        self.launch, self.queue = launch, queue
        self.kernel = cl.Kernel(queue.kernel(launch.build).program, launch.build.kernel)
        # pyopencl's own way for bytes; `set_arg` takes ten times as long, since it tries others first.
        self._set = getattr(self.kernel, "_set_arg_buf", self.kernel.set_arg)
        span, dimension = launch.span, launch.dimension
        size, offset = list(span.global_size), list(span.offset)
        size[dimension] = (launch.last - launch.first) * span.local_size[dimension]
        offset[dimension] += launch.first * span.local_size[dimension]
        self.size, self.local = tuple(size), span.local_size
        self.offset = tuple(offset) if any(offset) else None
        places = [place for place in launch.arguments if isinstance(place, ArrayPlace)]
        self.regions = tuple({place.region: None for place in places})
        self.written = tuple({place.region: place for place in places if place.written})
        self.guarded = {place.region: place for place in places if place.written}
        "What must be whole about it after a launch: the guards of each array that is written."
        self.latest: cl.Event | None = None
        "Of the last time it was launched."
        self.epoch = -1
        self.count = 0
        self.checked = False
        "Whether the guards of a device's own memory were looked at after a launch."
        self.times: deque[float] = deque(maxlen=_KEPT_TIMES)
        self.values: dict[int, bytes] = {}

    def set_value(self, argument: int, data: bytes) -> None:
        """Change an argument that is passed by value."""
        self.values[argument] = data
        self._set(argument, data)


class Engine:
    """Executes commands in order, each device on its own queue.

    Args:
        devices: id → its queue.
        regions: number → the memory of an array, as the host sees it.
        told: is called with the number of a prepared launch, how often it was timed, and the median.
    """

    def __init__(
        self,
        devices: Mapping[str, Queue],
        regions: Mapping[int, tuple[Bytes, int]],
        told: Callable[[int, int, float], None],
    ) -> None:
        self.devices, self.regions, self._told = devices, regions, told
        self._ids = list(devices)
        self._prepared: dict[int, _PreparedLaunch] = {}
        self._epoch = 0
        # The last command on each device that is not known to have ended, and what it was about.
        self._last: dict[str, cl.Event] = {}
        # Memory → device → the last event there that wrote it, and that read it, for what other devices do.
        self._wrote: dict[int, tuple[str, cl.Event]] = {}
        self._read: dict[int, dict[str, cl.Event]] = {}
        self._unread: deque[_Timed] = deque()
        self._trace: deque[Span] = deque(maxlen=_TRACED)
        self._began = time.perf_counter()
        self.tracing = False
        self.failure: ApportionError | None = None
        self._since_wait: set[_PreparedLaunch] = set()
        "Launched since the last wait."
        # While one device does everything its queue keeps the order, and nothing need be noted.
        self._only: str | None = None
        self._unflushed, self._flush_after = 0, _UNFLUSHED
        self._timeless: dict[str, cl.CommandQueue] = {}
        "Device → a queue that keeps no times."
        self._keeps_times = True
        self._stretches = 0
        self._something_new = True
        "Whether a launch that is hardly known came since the last wait."

    def prepare(self, number: int, launch: StreamLaunch) -> None:
        """Compile a launch and set its arguments."""
        self._prepared[number] = _PreparedLaunch(launch, self.devices[launch.device])
        self._told(number, 0, 0.0)

    def execute(self, what: int, a: int, b: int, c: int) -> None:
        """Do one command; after one that failed all others are left out, until `told_failure`."""
        if self.failure is not None:
            return
        try:
            if what == LAUNCH:
                self._launch(a)
            elif what == VALUE:
                number, argument, size = a >> 16, a >> 8 & 0xFF, a & 0xFF
                self._prepared[number].set_value(argument, (b & (1 << 64) - 1).to_bytes(8, "little")[:size])
            elif what == FREE:
                self._free(a, self._ids[b])
            elif what == ZERO:
                self._zero(a, self._ids[b])
            else:
                device, region = self._ids[a >> 32], a & 0xFFFFFFFF
                self._copy(region, device, b, c, to_device=what == TO_DEVICE)
        except ApportionError as error:
            self.failure = error
        except cl.Error as error:
            self.failure = LaunchFailed(f"A queued command failed: {error}")

    def finish(self) -> None:
        """Wait for every device."""
        try:
            if len(self._last) > 1:
                self._flush()  # so that one begins before another has ended
            for device in list(self._last):
                self._queue_of(device).finish()
            while self._unread:
                self._look(self._unread.popleft())
            if self.failure is None:
                for device, event in self._last.items():
                    if event.command_execution_status < 0:
                        raise LaunchFailed(f"A queued kernel failed on {device}")
                self._check_guards(self._since_wait)
        except cl.Error as error:
            if self.failure is None:
                self.failure = LaunchFailed(f"A queued kernel failed: {error}")
        except ApportionError as error:
            self.failure = self.failure or error
        self._last.clear()
        self._since_wait.clear()
        self._only = None
        self._unflushed, self._flush_after = 0, _UNFLUSHED
        self._stretches += 1
        self._keeps_times = self.tracing or self._something_new or self._stretches % _TIMED_AGAIN == 0
        self._something_new = False
        self._wrote.clear()
        self._read.clear()

    def settle(self, region: int) -> None:
        """Wait for what uses a memory, while devices go on with the rest."""
        try:
            self._flush()
            users = [prepared for prepared in self._since_wait if region in prepared.regions]
            events = [prepared.latest for prepared in users if prepared.latest is not None]
            events += self._read.get(region, {}).values()
            if (wrote := self._wrote.get(region)) is not None:
                events.append(wrote[1])
            for event in events:
                event.wait()
            if self.failure is None:
                self._check_guards(users)
        except cl.Error as error:
            if self.failure is None:
                self.failure = LaunchFailed(f"A queued kernel failed: {error}")
        except ApportionError as error:
            self.failure = self.failure or error
        complete = cl.command_execution_status.COMPLETE
        if all(event.command_execution_status == complete for event in self._last.values()):
            self.finish()  # nothing is queued any more

    def _check_guards(self, launched: Iterable[_PreparedLaunch]) -> None:
        """Raise an error where one of these launches wrote outside its arguments."""
        seen: set[int] = set()
        for prepared in launched:
            queue = prepared.queue
            for region, place in prepared.guarded.items():
                if region not in self.regions:  # it was let go of meanwhile
                    continue
                if queue.info.shares_memory:
                    whole, nbytes = self.regions[region]
                    if region not in seen and (broken := memory.overrun(whole, nbytes)) is not None:
                        memory.draw_guards(whole, nbytes)
                        raise out_of_bounds(prepared.launch.build, place, "", broken)
                    seen.add(region)
                elif prepared.checked or region not in queue.own:
                    continue  # looking at a device's own memory costs copies: after the first launches only
                elif (broken := queue.own[region].overrun(queue)) is not None:
                    queue.forget(region)
                    raise out_of_bounds(prepared.launch.build, place, f" on {queue.info.id}", broken)
            prepared.checked = True

    def told_failure(self) -> ApportionError | None:
        """What failed, if something did; from now on commands are done again."""
        failure, self.failure = self.failure, None
        return failure

    def timeline(self) -> list[Span]:
        """What was done lately."""
        self.finish()
        return sorted(self._trace, key=lambda span: span.began)

    def idle(self) -> None:
        """Hand over what was queued, and look at what has ended meanwhile."""
        if self._unflushed:
            self._flush()
            self._flush_after = _UNFLUSHED
        unread = self._unread
        while unread and unread[0].event.command_execution_status == cl.command_execution_status.COMPLETE:
            self._look(unread.popleft())

    # Commands

    def _launch(self, number: int) -> None:
        prepared = self._prepared[number]
        queue, device = prepared.queue, prepared.launch.device
        if prepared.epoch != self._epoch:
            self._set_arguments(prepared)
        if self.tracing:
            self._keep_times()
        if device != self._only:
            self._turn_to(device)
            self._wait_for_others(device, prepared.regions, prepared.written)
        try:
            event = cl.enqueue_nd_range_kernel(
                self._queue_of(device), prepared.kernel, prepared.size, prepared.local, prepared.offset
            )
        except cl.Error as error:
            raise LaunchFailed(
                f"{device} ({queue.info.name}) could not run {prepared.launch.build.kernel!r}: {error}"
            ) from error
        self._last[device] = prepared.latest = event
        self._since_wait.add(prepared)
        self._unflushed += 1
        if self._unflushed >= self._flush_after:
            self._flush()
            self._flush_after = min(_MOST_UNFLUSHED, 2 * self._flush_after)
        if self._only is None:
            self._note(device, event, prepared.regions, prepared.written)
        count = prepared.count = prepared.count + 1
        if count < _ALWAYS_TIMED:
            self._something_new = True
        if not self._keeps_times:
            return
        if self.tracing or count <= _ALWAYS_TIMED or count % _TIMED_ONE_IN == 0:
            trace = ("launch", number, device, self._now(), 0) if self.tracing else None
            self._unread.append(_Timed(number, event, trace))
            if len(self._unread) > _UNREAD:
                self._look(self._unread.popleft())

    def _copy(self, region: int, device: str, start: int, end: int, *, to_device: bool) -> None:
        queue = self.devices[device]
        home, nbytes = self.regions[region]
        if end - start >= WORTH_IT:
            self._keep_times()  # large copies go by way of pinned memory, on the device's usual queue
        buffer = queue.own_buffer(region, nbytes)
        if device != self._only:
            self._turn_to(device)
            self._wait_for_others(device, (region,), (region,))
        began, values = self._now(), memory.data_of(home, nbytes)
        copy, commands = buffer.upload if to_device else buffer.download, self._queue_of(device)
        event = copy(queue, values, (start, end), commands) or cl.enqueue_marker(commands)
        commands.flush()
        self._last[device] = event
        self._note(device, event, (region,), (region,))
        if self.tracing:
            what = "to device" if to_device else "from device"
            event.wait()
            self._trace.append(Span(what, region, device, began, self._now(), end - start))

    def _zero(self, region: int, device: str) -> None:
        if device != self._only:
            self._turn_to(device)
        queue, (_, nbytes) = self.devices[device], self.regions[region]
        buffer = queue.own_buffer(region, nbytes)
        commands = self._queue_of(device)
        event = cl.enqueue_fill_buffer(commands, buffer.data, np.zeros(1, np.uint8), 0, nbytes)
        self._last[device] = event
        self._note(device, event, (region,), (region,))

    def _free(self, region: int, device: str) -> None:
        queue = self.devices[device]
        self._keep_times()
        queue.queue.finish()
        queue.own.pop(region, None)
        self._epoch += 1

    def _flush(self) -> None:
        for device in self._last:
            self._queue_of(device).flush()
        self._unflushed = 0

    # Queues

    def _queue_of(self, device: str) -> cl.CommandQueue:
        """The queue that is in use now."""
        if self._keeps_times:
            return self.devices[device].queue
        if device not in self._timeless:
            self._timeless[device] = cl.CommandQueue(self.devices[device].context)
        return self._timeless[device]

    def _keep_times(self) -> None:
        """Use the queues that keep times until the next wait."""
        self._something_new = True
        if not self._keeps_times:
            for device in self._last:
                self._queue_of(device).finish()
            self._keeps_times = True

    # Order

    def _turn_to(self, device: str) -> None:
        """Work on another device than the only one so far: from now on it is noted who does what."""
        if self._only is None and not self._last:
            self._only = device
        elif self._only is not None:
            # What it did so far counts as done when its last command has ended; both work until then.
            only, self._only = self._only, None
            self._queue_of(only).flush()
            for prepared in self._since_wait:
                self._note(only, self._last[only], prepared.regions, prepared.written)

    def _wait_for_others(self, device: str, read: tuple[int, ...], written: tuple[int, ...]) -> None:
        """Wait for what other devices do with the same memory."""
        for region in read:
            wrote = self._wrote.get(region)
            if wrote is not None and wrote[0] != device:
                wrote[1].wait()
        for region in written:
            for other, event in self._read.get(region, {}).items():
                if other != device:
                    event.wait()

    def _note(self, device: str, event: cl.Event, read: tuple[int, ...], written: tuple[int, ...]) -> None:
        for region in read:
            self._read.setdefault(region, {})[device] = event
        for region in written:
            self._wrote[region] = device, event

    # Arguments and times

    def _set_arguments(self, prepared: _PreparedLaunch) -> None:
        queue = prepared.queue
        for number, place in enumerate(prepared.launch.arguments):
            match place:
                case ArrayPlace():
                    home, nbytes = self.regions[place.region]
                    shared = queue.info.shares_memory
                    value: Any = (
                        queue.shared_buffer(place.region, home, nbytes)
                        if shared
                        else queue.own_buffer(place.region, nbytes).data
                    )
                    prepared.kernel.set_arg(number, value)
                case ValuePlace():
                    prepared.kernel.set_arg(number, prepared.values.get(number, place.data))
                case LocalPlace():
                    prepared.kernel.set_arg(number, cl.LocalMemory(place.nbytes))
        prepared.epoch = self._epoch

    def _look(self, timed: _Timed) -> None:
        timed.event.wait()
        profile = timed.event.profile
        seconds = 1e-9 * (profile.end - profile.start)
        prepared = self._prepared.get(timed.number)
        if prepared is not None:
            prepared.times.append(seconds)
            self._told(timed.number, prepared.count, statistics.median(prepared.times))
        if timed.trace is not None:
            what, number, device, queued, _ = timed.trace
            began = queued + max(0.0, 1e-9 * (profile.start - profile.queued))
            self._trace.append(Span(what, number, device, began, began + seconds))

    def _now(self) -> float:
        return time.perf_counter() - self._began
