"""One launch inside a worker process: devices fed at once, results brought home, merged and guarded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from apportion.errors import LaunchFailed, OutOfBoundsWrite
from apportion.program.kernel.bounds import Interval
from apportion.runtime import memory, merge
from apportion.runtime.opencl.queue import OwnBuffer, Queue
from apportion.runtime.plan import ArrayPlace, Build, DeviceTime, LocalPlace, Plan, SamplerPlace, ValuePlace
from apportion.runtime.supply import Supply

Bytes = NDArray[np.uint8]
P = ParamSpec("P")
T = TypeVar("T")
_MOST_REACHES = 1024


class Prepared:
    """A plan with what does not change from launch to launch: its devices, and how far its parts reach."""

    def __init__(self, plan: Plan, queues: list[Queue]) -> None:
        self.plan, self.queues = plan, queues
        self.launches = 0
        self._reached: dict[tuple[int, int, int, bool], Interval | None] = {}

    def touched(self, place: ArrayPlace, part: tuple[int, int], *, write: bool) -> Interval | None:
        """The bytes of an array that a part can read or write, where known; worked out once."""
        key = (place.region, *part, write)
        if key not in self._reached:
            if len(self._reached) > _MOST_REACHES:  # chunks of ever other sizes
                self._reached.clear()
            self._reached[key] = self.plan.touched(place, *part, write=write)
        return self._reached[key]


class _Begun(NamedTuple):
    """A device that computes, since when, and what it was given."""

    at: float
    enqueued: float
    events: list[tuple[tuple[int, int], cl.Event]]


class Running:
    """One launch of a plan while it runs."""

    def __init__(
        self,
        prepared: Prepared,
        regions: Mapping[int, tuple[Bytes, int]],
        report: Callable[[], None],
    ) -> None:
        self.prepared, self.regions = prepared, regions
        self.plan, self.queues = prepared.plan, prepared.queues
        plan = self.plan
        self.first = prepared.launches == 0
        prepared.launches += 1
        self.alone = len(self.queues) == 1
        self._report = report
        self._idle = {queue.info.id for queue in self.queues}
        self._lock = threading.Lock()
        self.places = [place for place in plan.arguments if isinstance(place, ArrayPlace)]
        self.images = [place for place in self.places if place.image is not None]
        # What each device wrote on its own copy, to be merged: region → copies, in the order of the queues.
        self.copies: dict[int, dict[str, Bytes]] = {place.region: {} for place in self.places}
        self.ranges: dict[str, list[tuple[int, int]]] = {queue.info.id: [] for queue in self.queues}
        self.supply = Supply(plan)

    def compile(self) -> None:
        """Compile for every device."""
        for queue in self.queues:
            queue.kernel(self.plan.build)

    def launch(self, started: float) -> tuple[DeviceTime, ...]:
        """Start every device at once, and wait for all."""
        # What computes by itself is started first, which takes some ten microseconds, and waited for last: a
        # thread of its own would come to it when the one that feeds the others lets go of the interpreter.
        ahead = {queue: _done(self._told, queue, self._begin) for queue in self.queues if self._early(queue)}
        fed = [queue for queue in self.queues if queue not in ahead]
        feed = partial(self._feed, started=started)
        times = {queue: queue.thread.submit(self._told, queue, feed) for queue in fed[:-1]}
        # The last device is fed from here: handing it to a thread and waking up again would cost it time.
        times |= {queue: _done(self._told, queue, feed) for queue in fed[-1:]}
        for queue, begun in ahead.items():
            end = partial(self._end, begun=begun, started=started)
            times[queue] = _done(self._told, queue, end)
        # Every device is waited for, also when one fails, so that none still writes when the error is told.
        futures = [times[queue] for queue in self.queues]
        failures = [error for future in futures if (error := future.exception()) is not None]
        if failures:
            raise failures[0]
        return tuple(future.result() for future in futures)

    def _told(self, queue: Queue, step: Callable[[Queue], T]) -> T:
        """What a step on a device gives; a driver's error says where it happened."""
        try:
            return step(queue)
        except cl.Error as error:
            raise LaunchFailed(
                f"{queue.info.id} ({queue.info.name}) could not run {self.plan.build.kernel!r}: {error}"
            ) from error

    def _early(self, queue: Queue) -> bool:
        """Whether a device is started before the others are fed: that takes no time, as nothing is copied."""
        return (
            not self.alone
            and self.plan.chunks is None
            and queue.begins_at_once(self.plan.build, self.plan.span.local_size)
            and all(self._in_place(place) and place.image is None for place in self.places)
        )

    def _begin(self, queue: Queue) -> _Begun:
        """Start a device on all its parts, and come back while it computes."""
        clock = time.perf_counter
        begun = clock()
        kernel = queue.kernel(self.plan.build)
        self._set_arguments(queue, kernel, {})
        enqueued = clock()
        events: list[tuple[tuple[int, int], cl.Event]] = []
        while (part := self.supply.take(queue.info.id)) is not None:
            if part[0] < part[1]:
                events.append((part, self._enqueue(queue, kernel, part)))
        queue.queue.flush()
        self._begun(queue)
        return _Begun(begun, enqueued, events)

    def _end(self, queue: Queue, begun: Future[_Begun], started: float) -> DeviceTime:
        """Wait for a device that was started; when it was done its own clock tells, however late this is."""
        queue.queue.finish()  # also when not all could be enqueued
        now = time.perf_counter()
        at, enqueued, events = begun.result()
        busy = taken = 0.0
        for part, event in events:
            event.wait()  # it fails when the kernel has
            busy += 1e-9 * (event.profile.end - event.profile.start)
            taken = 1e-9 * (event.profile.end - events[0][1].profile.queued)
            _append(self.ranges[queue.info.id], part)
        done = min(now, enqueued + max(busy, taken))
        ranges = tuple(self.ranges[queue.info.id])
        return DeviceTime(
            queue.info.id, ranges, enqueued - at, done - enqueued, 0.0, done - started, at - started, busy
        )

    def _feed(self, queue: Queue, started: float) -> DeviceTime:
        clock = time.perf_counter
        kernel = queue.kernel(self.plan.build)
        upload = compute = download = busy = 0.0
        cold = False
        buffers: dict[int, OwnBuffer] = {}
        begun = clock()
        self._set_arguments(queue, kernel, buffers)
        upload += clock() - begun
        while (part := self.supply.take(queue.info.id)) is not None:
            if part[0] == part[1]:  # fewer work-groups than devices
                continue
            t0 = clock()
            if buffers:
                self._upload(queue, buffers, part)
            t1 = clock()
            cold |= queue.first_launch(self.plan.build, self.plan.span.local_size)
            if self.images and not self.ranges[queue.info.id]:
                queue.fill_images(self.images)
            event = self._enqueue(queue, kernel, part)
            self._begun(queue)
            event.wait()
            if self.images:
                queue.empty_images([place for place in self.images if place.written])
            t2 = clock()
            busy += 1e-9 * (event.profile.end - event.profile.start)
            if buffers:
                self._download(queue, buffers, part)
            t3 = clock()
            upload, compute, download = upload + t1 - t0, compute + t2 - t1, download + t3 - t2
            _append(self.ranges[queue.info.id], part)
        self._begun(queue)  # also when the others took all chunks
        t0 = clock()
        if buffers and self.ranges[queue.info.id]:
            self._download_copies(queue, buffers)
        ended = clock()
        return DeviceTime(
            queue.info.id,
            tuple(self.ranges[queue.info.id]),
            upload,
            compute,
            download + ended - t0,
            ended - started,
            begun - started,
            busy,
            cold,
        )

    def _begun(self, queue: Queue) -> None:
        """Note that a device has compiled and begun; tell when the last one has."""
        with self._lock:
            if queue.info.id not in self._idle:
                return
            self._idle.discard(queue.info.id)
            if self._idle:
                return
        self._report()

    def _set_arguments(self, queue: Queue, kernel: cl.Kernel, buffers: dict[int, OwnBuffer]) -> None:
        holds, build = queue.holds, self.plan.build
        if holds.get(build) is self.prepared:
            return  # this very plan was the kernel's last
        holds.pop(build, None)
        for number, place in enumerate(self.plan.arguments):
            match place:
                case ArrayPlace():
                    buffer = self._buffer(queue, place, buffers)
                    if place.image is None:
                        kernel.set_arg(number, buffer)
                    else:
                        # PoCL copies no pixels from a part of a buffer: all of it, and where they start.
                        own = buffers.get(place.region)
                        where = (buffer, 0) if own is None else (own.whole, own.front)
                        kernel.set_arg(number, queue.image(place.region, place.image, *where))
                case ValuePlace():
                    kernel.set_arg(number, place.data)
                case SamplerPlace():
                    kernel.set_arg(number, queue.sampler(place.sampler))
                case LocalPlace():
                    kernel.set_arg(number, cl.LocalMemory(place.nbytes))
        if queue.info.shares_memory and not self.images and all(map(self._in_place, self.places)):
            holds[build] = self.prepared

    def _enqueue(self, queue: Queue, kernel: cl.Kernel, part: tuple[int, int]) -> cl.Event:
        span, dimension = self.plan.span, self.plan.dimension
        size, offset = list(span.global_size), list(span.offset)
        size[dimension] = (part[1] - part[0]) * span.local_size[dimension]
        offset[dimension] += part[0] * span.local_size[dimension]
        return cl.enqueue_nd_range_kernel(
            queue.queue, kernel, tuple(size), span.local_size, tuple(offset) if any(offset) else None
        )

    def _in_place(self, place: ArrayPlace) -> bool:
        """Whether devices that share memory with the host work on the array itself."""
        return not place.written or (not self.plan.checked and (self.alone or place.merge == "slice"))

    def _buffer(self, queue: Queue, place: ArrayPlace, buffers: dict[int, OwnBuffer]) -> cl.Buffer:
        home, nbytes = self.regions[place.region]
        if not queue.info.shares_memory:
            buffers[place.region] = queue.own_buffer(place.region, nbytes)
            return buffers[place.region].data
        if self._in_place(place):
            return queue.shared_buffer(place.region, home, nbytes)
        whole = queue.private_copy(place.region, home, nbytes)
        copy = self.copies[place.region][queue.info.id] = memory.data_of(whole, nbytes)
        if self._probed(place):
            np.bitwise_xor(copy, self.plan.probe, out=copy)
        return queue.shared_buffer(place.region, whole, nbytes)

    def _upload(self, queue: Queue, buffers: dict[int, OwnBuffer], part: tuple[int, int]) -> None:
        """Bring what this part needs, and no more, where the analysis knows how far it reaches."""
        first_part = not self.ranges[queue.info.id]
        for place in self.places:
            home, nbytes = self.regions[place.region]
            needed: Interval | None = self.prepared.touched(place, part, write=False)
            values = memory.data_of(home, nbytes)
            if place.written and not self._in_place(place):
                needed = None
                values = values ^ np.uint8(self.plan.probe) if self._probed(place) else values
            elif place.written and place.merge != "slice":
                needed = None  # all of it comes back
            elif place.written and not place.covered and needed is not None:
                # What is not written must stay as it was, so the slice that comes back goes there first.
                writes = self.prepared.touched(place, part, write=True)
                needed = None if writes is None else _hull(needed, writes)
            if needed is None:
                if not first_part:
                    continue
                needed = (0, nbytes)
            buffers[place.region].upload(queue, values, needed)
        queue.queue.finish()

    def _download(self, queue: Queue, buffers: dict[int, OwnBuffer], part: tuple[int, int]) -> None:
        """Bring back the slices that this part wrote."""
        for place in self.places:
            if place.merge == "slice" and self._in_place(place):
                home, nbytes = self.regions[place.region]
                written = self.prepared.touched(place, part, write=True)
                if written is not None:
                    buffers[place.region].download(queue, memory.data_of(home, nbytes), written)
                elif not self.alone:
                    raise LaunchFailed(
                        f"It is not known which part of {place.name!r} the device {queue.info.id} wrote"
                    )
        queue.queue.finish()

    def _download_copies(self, queue: Queue, buffers: dict[int, OwnBuffer]) -> None:
        """Bring back whole what could not be brought back in slices."""
        for place in self.places:
            if not place.written:
                continue
            home, nbytes = self.regions[place.region]
            if not self._in_place(place):
                copy = memory.data_of(queue.private_copy(place.region, home, nbytes), nbytes)
                buffers[place.region].download(queue, copy, (0, nbytes))
                self.copies[place.region][queue.info.id] = copy
            elif place.merge != "slice" or self._unknown(queue, place):
                buffers[place.region].download(queue, memory.data_of(home, nbytes), (0, nbytes))
        queue.queue.finish()

    def _unknown(self, queue: Queue, place: ArrayPlace) -> bool:
        ranges = self.ranges[queue.info.id]
        return any(self.prepared.touched(place, part, write=True) is None for part in ranges)

    def _probed(self, place: ArrayPlace) -> bool:
        """Whether copies start as something else than the array, so that what is never written shows."""
        writes_only = place.settled and place.merge == "slice" and place.read_reach == ()
        return bool(self.plan.probe) and writes_only

    def gapless(self) -> frozenset[str]:
        """After a probe: the arguments of which each device wrote all that it may write."""
        found = set()
        for place in self.places:
            home = memory.data_of(*self.regions[place.region])
            copies = self.copies[place.region]
            if self._probed(place) and all(self._gapless(place, home, *each) for each in copies.items()):
                found.add(place.name)
        return frozenset(found)

    def _gapless(self, place: ArrayPlace, home: Bytes, device: str, copy: Bytes) -> bool:
        for part in self.ranges[device]:
            written = self.prepared.touched(place, part, write=True)
            if written is None:
                return False
            start = home[slice(*written)] ^ np.uint8(self.plan.probe)
            if merge.any_equal(start, copy[slice(*written)], place.dtype):
                return False
        return True

    def bring_together(self) -> tuple[dict[str, int], dict[str, int]]:
        """Merge the devices' copies into the arrays; conflicts and stray writes per argument."""
        conflicts: dict[str, int] = {}
        strays: dict[str, int] = {}
        undo = merge.Undo() if self.plan.undo else None
        for place in self.places:
            copies = self.copies[place.region]
            if not place.written or not copies:
                continue
            home = memory.data_of(*self.regions[place.region])
            if place.merge in merge.COMBINE:
                merge.combine(place.merge, home, list(copies.values()), place.dtype, undo)
                continue
            if place.merge == "slice":
                strays[place.name] = sum(
                    self._strays(place, home, name, copy) for name, copy in copies.items()
                )
            conflicts[place.name] = merge.take_changes(home, list(copies.values()), place.dtype, undo)
        if undo is not None and any(conflicts.values()):
            undo.back()
        return conflicts, strays

    def _strays(self, place: ArrayPlace, home: Bytes, device: str, copy: Bytes) -> int:
        expected = [self.prepared.touched(place, part, write=True) for part in self.ranges[device]]
        known = [interval for interval in expected if interval is not None]
        return merge.strays(home, copy, known, place.dtype) if len(known) == len(expected) else 0

    def check_guards(self) -> None:
        """Raise an error where a kernel wrote outside its arguments, and mend the guards."""
        for place in self.places:
            home, nbytes = self.regions[place.region]
            wholes = [(home, "")] + [
                (queue.private[place.region], f" on {queue.info.id}")
                for queue in self.queues
                if place.region in queue.private
            ]
            for whole, where in wholes:
                if (broken := memory.overrun(whole, nbytes)) is not None:
                    memory.draw_guards(whole, nbytes)
                    raise out_of_bounds(self.plan.build, place, where, broken)
            if not (self.plan.checked or (self.alone and self.first)):
                continue  # reading guards back from a device costs a transfer each: on first use only
            for queue in self.queues:
                if (own := queue.own.get(place.region)) is not None and (
                    broken := own.overrun(queue)
                ) is not None:
                    queue.forget(place.region)
                    raise out_of_bounds(self.plan.build, place, f" on {queue.info.id}", broken)


def out_of_bounds(build: Build, place: ArrayPlace, where: str, broken: str) -> OutOfBoundsWrite:
    """The error of a kernel that wrote outside an argument.

    Args:
        where: on which device, in words, or nothing.
        broken: the place of the first byte.
    """
    return OutOfBoundsWrite(
        f"The kernel {build.kernel!r} wrote out of bounds{where}: {broken} of the argument "
        f"{place.name!r}, which has {place.nbytes}. Give it a larger array or a smaller range, or "
        "correct the kernel"
    )


def _done(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """What a call gives or raises here and now, told as a thread would tell it."""
    future: Future[T] = Future()
    try:
        future.set_result(call(*args, **kwargs))
    except Exception as failure:
        future.set_exception(failure)
    return future


def _append(ranges: list[tuple[int, int]], part: tuple[int, int]) -> None:
    """Add a range, joining it with a neighbour."""
    for position, (first, last) in enumerate(ranges):
        if part[0] == last or part[1] == first:
            ranges[position] = (min(first, part[0]), max(last, part[1]))
            return
    ranges.append(part)


def _hull(a: Interval, b: Interval) -> Interval:
    filled = [interval for interval in (a, b) if interval[1] > interval[0]]
    return (min(i[0] for i in filled), max(i[1] for i in filled)) if filled else (0, 0)
