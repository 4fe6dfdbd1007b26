"""A program of many kernels over arrays that stay where they are.

    with Session() as s:
        old, new = s.array(grid), s.zeros(grid.shape, grid.dtype)
        step = s.kernel(source, "jacobi")
        for _ in range(100):
            step(old, new, width, global_size=(width, height))
            old, new = new, old
        result = old.numpy()

Everything happens as if each line ended before the next one began. In truth launches are queued: a launch
moves what
its device lacks and no more, launches on different devices run at once, and results come home when Python
reads them.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index, is_
from pathlib import Path
from typing import Any, Self

import numpy as np

from apportion.coexecution.expected_times import Belief
from apportion.coexecution.forecast import (
    Forecast,
    LaunchQuery,
    Predictor,
    from_speeds,
    kernel_seconds,
)
from apportion.coexecution.launch_memory import LaunchMemory, identity_of
from apportion.coexecution.objective import Objective, PowerModel
from apportion.coexecution.program_placement import (
    PLACING,
    LaunchGroup,
    PlacementSettings,
    Planner,
    ProgramStep,
    Where,
)
from apportion.coexecution.session_array import ArrayMemory, SessionArray
from apportion.coexecution.sharing import Size, as_source, sizes_of
from apportion.errors import CompileError, DataLost, InvalidSetting, JobError, UnknownName
from apportion.program.compile import CompileOptions, driver_options, driver_text, ir_of
from apportion.program.kernel.access import KernelAccess, accesses_of
from apportion.program.kernel.bounds import Interval, NDRange
from apportion.program.kernel.launch_values import contents_of
from apportion.program.kernel.signature import KernelArgument, Signature, signatures_of
from apportion.program.source import Source
from apportion.program.untrusted import check_runnable
from apportion.runtime.backend import Backend, info_of, open_backend
from apportion.runtime.base import DeviceInfo, Limits, LocalMemory, Value
from apportion.runtime.binding import checked_array, local_bytes, scalar_bytes
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.plan import ArrayPlace, Build, LocalPlace, Place, Plan, ValuePlace
from apportion.runtime.residency import HOST, Residency, joined
from apportion.runtime.stream import Stream, StreamLaunch

_COMPILE = CompileOptions()
_KEPT_LAUNCHES = 512
"Bound launches of one kernel that are kept, and kernels of one session."
_RANGES_PER_DOUBLING = 4
"""Ranges that are told apart while work-items double: those of one differ by a fifth at most, about as much
as launches vary (`BeliefSettings.noise`). Chosen."""
_BY_RING = 8
"Bytes of a value that can be changed without preparing a launch anew."
_KEPT_FORECASTS = 1024
_Predicted = tuple[Forecast, Mapping[str, float]]
_forecasts: dict[Any, _Predicted] = {}
"""What was predicted in this process, for the sessions that come later: a prediction takes milliseconds, as
long as a short program."""


@dataclass(frozen=True)
class SessionSettings:
    """How a session works."""

    lookahead: int = 16
    """Launches that wait to be placed together while a kernel is new, so that what comes next is known.
    Chosen: they are queued within a millisecond."""
    memory_share: float = 0.9
    "The part of a device's memory that arrays may take. Chosen: drivers need some for themselves."
    memory_bytes: Mapping[str, int] | None = None
    "Device → bytes that arrays may take, where it is not to be that part."
    explore: bool = True
    "Whether devices whose times are unknown are tried where that is expected to pay for itself."
    idle_arrays: int = 64
    """Arrays that nobody refers to any more, whose memory is kept for new ones of the same form. Chosen: a
    round makes fewer."""
    idle_bytes: int = 1 << 28
    "Bytes of them. Chosen: small beside a machine's memory."
    queued_arrays: int = 16
    """Of one form, that launches still use: with so many the next one waits for them instead of taking more
    memory. Chosen: as many as `lookahead` launches have at least."""

    def __post_init__(self) -> None:
        if self.lookahead < 1:
            raise InvalidSetting(f"lookahead must be at least 1, not {self.lookahead}")
        if not 0 < self.memory_share <= 1:
            raise InvalidSetting(f"memory_share must be above 0 and at most 1, not {self.memory_share}")
        if min(self.idle_arrays, self.idle_bytes) < 0 or self.queued_arrays < 1:
            raise InvalidSetting(
                f"idle_arrays and idle_bytes must be at least 0, and queued_arrays at least 1, not {self}"
            )


USUAL = SessionSettings()


@dataclass(frozen=True)
class Decision:
    """Where launches of one kernel over one range run, and why."""

    kernel: str
    work_items: int
    device: str
    reason: str
    launches: int
    milliseconds: Mapping[str, float]
    "Device → what a launch is believed to take."
    measured: tuple[str, ...]
    "Devices on which it was measured."


@dataclass(frozen=True)
class TimelineEvent:
    """Something that a device did; milliseconds since the session began."""

    what: str
    "A kernel's name, or `array → device`, or `array ← device`."
    device: str
    began: float
    ended: float
    nbytes: int = 0


Touch = tuple[ArrayMemory, Interval | None, Interval | None]
"An array, the bytes that must be valid before a launch, and those that it writes."


class Session:
    """Arrays and kernels of a program. It holds devices: close it, or use it in a `with`.

    Threads may share one: what each asks for happens in the order in which they come.

    Args:
        devices: ids of the devices that are used; None: all.
        predictor: predicts what a kernel takes before it ran.
        backend: what runs launches: one that is open, or the name of one.
        memory: where what launches take is kept for later processes; None: nowhere.
        fresh: forget what was kept there of the kernels that are launched.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        *,
        predictor: Predictor = from_speeds,
        backend: Backend | str = "opencl",
        drivers: DriverOptions = DEFAULT_DRIVERS,
        limits: Limits | None = None,
        settings: SessionSettings = USUAL,
        placement: PlacementSettings = PLACING,
        memory: LaunchMemory | None = None,
        fresh: bool = False,
    ) -> None:
        self._owned, self._closed = isinstance(backend, str), False
        self.lock = threading.RLock()
        self.backend = open_backend(backend, drivers, limits) if isinstance(backend, str) else backend
        known = self.backend.devices()
        names = [info.id for info in known] if devices is None else list(devices)
        self.devices: list[DeviceInfo] = [info_of(name, known) for name in names] or [info_of("cpu", known)]
        self.predictor, self.settings = predictor, settings
        self._memory, self._fresh = memory, fresh
        self._planner = Planner(
            [_where(info, number, placement) for number, info in enumerate(self.devices)], placement
        )
        self._places = {info.id: number for number, info in enumerate(self.devices)}
        self._locations = [place.location for place in self._planner.places]
        self._room = [self._bytes_allowed(info) for info in self.devices]
        self._taken = [0] * len(self.devices)
        self._arrays: dict[int, ArrayMemory] = {}
        self.gone: list[ArrayMemory] = []
        "Memory of arrays that nobody refers to any more; it is looked at when an array is made."
        self._idle: deque[ArrayMemory] = deque()
        "Memory that new arrays may get, the oldest first."
        self._idle_bytes = 0
        self._lent: set[ArrayMemory] = set()
        self._names = itertools.count(1)
        self._clock = 0
        "How many launches and copies were queued."
        self._ended = 0
        "How many of them are known to have ended."
        self._busy = 0
        "Bits of the places for which something was queued since."
        self._think_at = 0
        self._stream: Stream | None = None
        self.generation = 0
        "How often the devices were opened; what was prepared before counts no more."
        self._prepared: dict[int, str] = {}
        self._bound_launches: weakref.WeakValueDictionary[int, BoundLaunch] = weakref.WeakValueDictionary()
        "What was prepared, by its number."
        self.unused: list[tuple[int, list[int]]] = []
        "Numbers that nobody launches by any more, with the generation that they are of."
        self._tracing = False
        self._pending: list[tuple[BoundLaunch, tuple[Any, ...]]] = []
        self._writing: dict[ArrayMemory, list[Interval]] = {}
        "Bytes at home that something queued writes: a kernel, or a copy of a result."
        self._kernels: dict[Any, SessionKernel] = {}
        self._groups: dict[Any, LaunchGroup] = {}
        self._asked_for: dict[tuple[LaunchGroup, int], LaunchGroup] = {}
        "Group and place → the launches of it that must run there."

    def aim_for(self, objective: Objective, power: PowerModel) -> None:
        """Place launches for another objective than time, from now on."""

        def value(seconds: float, working: Mapping[str, float]) -> float:
            return objective.value(seconds, power.joules(seconds, working))

        self._planner.value = value
        self._planner.aim = f"expected to take least {objective}"

    # Arrays

    def array(self, values: Any, *, name: str | None = None) -> SessionArray:
        """An array that holds a copy of `values`, whatever its strides were.

        Raises:
            InvalidSetting: it is no array of numbers or structures.
        """
        given = np.asarray(values)
        made, _ = self._made(given.shape, given.dtype.newbyteorder("="), name)
        made.memory.home[...] = given
        made.memory.zero = False
        return made

    def zeros(self, shape: int | tuple[int, ...], dtype: Any, *, name: str | None = None) -> SessionArray:
        """An array of zeros.

        Raises:
            InvalidSetting: no such array can go to a device.
        """
        made, fresh = self._made(sizes_of_array(shape), np.dtype(dtype), name)
        if not fresh:
            made.memory.clear()
        return made

    def _made(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], name: str | None
    ) -> tuple[SessionArray, bool]:
        """An array, and whether its memory holds nothing but zeros; else anything may be in it."""
        if dtype.hasobject or dtype.kind not in "biufcV":
            raise InvalidSetting(f"An array of {dtype} cannot go to a device: give numbers or structures")
        with self.lock:
            self._refuse_if_closed()
            self._collect()
            name = name or f"array {next(self._names)}"
            memory = self._idle_memory(shape, dtype)
            if memory is not None:
                memory.begin(name)
                return SessionArray(self, memory), False
            region = self.backend.allocate(math.prod(shape) * dtype.itemsize)
            memory = self._arrays[region.number] = ArrayMemory(region, shape, dtype, name)
            return SessionArray(self, memory), True

    def _collect(self) -> None:
        """Take back the memory of arrays that nobody refers to any more."""
        if not self.gone:
            return
        waiting = {array for bound, _ in self._pending for array in bound.distinct}
        later = []
        while self.gone:
            memory = self.gone.pop()
            if memory in waiting:
                later.append(memory)
                continue
            memory.idle, memory.lent, memory.residency = True, False, Residency(memory.nbytes)
            self._lent.discard(memory)
            self._idle.append(memory)
            self._idle_bytes += memory.nbytes
            if memory.forgotten or not memory.nbytes:
                self._drop(memory)
        self.gone += later
        most = self.settings
        while self._idle and (len(self._idle) > most.idle_arrays or self._idle_bytes > most.idle_bytes):
            self._drop(self._idle[0])

    def _idle_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayMemory | None:
        """Memory of that form that nobody uses."""
        if self._tracing:  # the timeline names arrays by their memory
            return None
        like = [memory for memory in self._idle if memory.shape == shape and memory.dtype == dtype]
        found = next((memory for memory in like if memory.used <= self._ended), None)
        if found is None and like:
            nbytes = sum(memory.nbytes for memory in like)
            if len(like) >= self.settings.queued_arrays or 2 * nbytes > self.settings.idle_bytes:
                self._drain()
                found = like[0]
        if found is not None:
            self._idle.remove(found)
            self._idle_bytes -= found.nbytes
        return found

    def _drop(self, memory: ArrayMemory) -> None:
        """Let go of idle memory, everywhere, and of the launches over it."""
        self._idle.remove(memory)
        self._idle_bytes -= memory.nbytes
        self._arrays.pop(memory.number, None)
        self._writing.pop(memory, None)
        self._release(memory)
        for kernel in memory.kernels:
            kernel.unbind(memory)

    def locations_of(self, array: SessionArray) -> list[str]:
        """Where an array is valid, in words: `host`, or ids of devices; `part of` it where not all is."""
        names = {place.location: place.device for place in self._planner.places if place.location != HOST}
        found = []
        residency = array.memory.residency
        for location in residency.locations():
            name = "host" if location == HOST else names[location]
            whole = residency.whole >> location & 1
            found.append(name if whole else f"part of it on {name}")
        return found

    def forget(self, array: SessionArray) -> None:
        """Let go of an array on all devices: its memory goes when nothing refers to it any more."""
        with self.lock:
            self.wait()
            memory = array.memory
            memory.forgotten = True
            self._release(memory)
            for kernel in memory.kernels:
                kernel.unbind(memory)

    # Kernels

    def kernel(
        self,
        source: str | Path | Source,
        name: str | None = None,
        *,
        compile: CompileOptions = _COMPILE,
        trust_source: bool = False,
    ) -> SessionKernel:
        """A kernel of OpenCL C, to be called with arrays of this session.

        Args:
            trust_source: run a source that has inline assembly, or code for some compilers only.

        Raises:
            UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
            UnknownName: there is no such kernel.
        """
        key = as_source(source), name, compile, trust_source
        with self.lock:
            if key not in self._kernels:
                made = SessionKernel(self, key[0], name, compile, trust_source=trust_source)
                if len(self._kernels) >= _KEPT_LAUNCHES:
                    del self._kernels[next(iter(self._kernels))]
                self._kernels[key] = made
            return self._kernels[key]

    # Waiting and looking

    def wait(self) -> None:
        """Wait until everything launched so far has ended.

        Raises:
            JobError: a launch came to a bad end. The message says which arrays are lost, if any are.
        """
        with self.lock:
            self._flush()
            for array in self._lent:
                self._copy_home(array)
            self._drain()

    def explain(self) -> list[Decision]:
        """Where each kernel runs, and why; after everything launched so far has ended."""
        with self.lock:
            return self._explained()

    def _explained(self) -> list[Decision]:
        self.wait()
        groups = [group for group in [*self._groups.values(), *self._asked_for.values()] if group.count]
        self._learn(groups)
        return [
            Decision(
                group.name.rpartition(" ")[0], int(group.name.rpartition(" ")[2]),
                self.devices[group.place].id if group.place is not None else "", group.reason, group.count,
                {name: 1e3 * group.belief.seconds(name) for name in group.belief.names},
                tuple(self.devices[place].id for place in sorted(group.measured)),
            )
            for group in groups
        ]  # fmt: skip

    def timeline(self) -> list[TimelineEvent]:
        """What devices did, launches and copies, oldest first. The first call begins to keep it."""
        with self.lock:
            return self._traced()

    def _traced(self) -> list[TimelineEvent]:
        self.wait()
        self._tracing = True
        events = []
        for span in self._opened().timeline():
            what = self._prepared.get(span.number, "?")
            if span.what != "launch":
                array = self._arrays.get(span.number)
                arrow = "→" if span.what == "to device" else "←"
                what = f"{array.name if array is not None else 'an array'} {arrow} {span.device}"
            events.append(TimelineEvent(what, span.device, 1e3 * span.began, 1e3 * span.ended, span.nbytes))
        return events

    def report(self) -> str:
        """A page of HTML: where each kernel runs and why, and the timeline with its copies drawn."""
        from apportion.coexecution.session_page import session_page  # few ask for it, and it draws

        events = self.timeline()
        return session_page(self.explain(), events)

    def close(self) -> None:
        """Wait for what was launched, bring results home, and let go of the devices; twice does nothing.
        Arrays stay readable."""
        with self.lock:
            try:
                if not self._closed and (self._stream is not None or self._pending):
                    self.wait()
                    self._collect()
                    for array in self._arrays.values():
                        self._copy_home(array)
                    self._drain()
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        self._pending.clear()
        if self._stream is not None:
            self._keep_times()
            stream, self._stream = self._stream, None
            stream.close()
        if self._owned:
            self.backend.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise InvalidSetting("The session is closed: open another one, and make its arrays and kernels")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:
            self.close()
        else:  # what waits is of no more use, and must not hide what was raised
            with self.lock:
                self._let_go()

    # What arrays ask for

    def bring_home(self, array: SessionArray) -> None:
        """Make the host's memory hold what an array holds.

        Raises:
            DataLost: a device died with the only copy, or kept it when the session was closed.
        """
        with self.lock:
            self._bring_home(array.memory)

    def _bring_home(self, array: ArrayMemory) -> None:
        if self._closed:
            if away := array.residency.lacks(HOST, 0, array.nbytes):
                raise DataLost(f"{_lost_in_words(array, away)}. It was not at home when the session closed")
            return
        self._flush()
        self._planner.note(ProgramStep(None, ((array.number, array.nbytes),), ()))
        self._copy_home(array)
        self._wait_for(array)
        if array.nbytes and (lost := array.residency.nowhere()):
            raise DataLost(_lost_in_words(array, lost))

    def about_to_write(self, array: SessionArray, *, whole: bool) -> None:
        """Let Python write an array's memory: no launch uses it any more, and other copies count no more."""
        memory = array.memory
        with self.lock:
            if whole and not self._closed:
                self._flush()
                self._wait_for(memory)
            elif not whole:
                self._bring_home(memory)
            memory.residency.wrote(HOST, 0, memory.nbytes)
            memory.zero = False

    def lend(self, array: SessionArray) -> None:
        """Let another library write an array's memory at any time."""
        with self.lock:
            self.about_to_write(array, whole=False)
            array.memory.lent = True
            self._lent.add(array.memory)

    # Launching

    def launch(self, bound: BoundLaunch, values: tuple[Any, ...]) -> None:
        """Queue a launch, or keep it until enough is known to place it."""
        group = bound.group
        with self.lock:
            if self._closed:
                self._refuse_if_closed()
            group.count += 1
            if group.place is not None and not self._pending:
                if self._clock >= self._think_at and bound.pinned is None:
                    self._think([])  # steps are not noted for ever: this one need not follow the last noted
                self._execute(bound, values)
                return
            self._pending.append((bound, values))
            if len(self._pending) >= self.settings.lookahead:
                self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        pending = self._pending
        try:
            self._think([bound.step for bound, _ in pending])
            self._prepare_together([bound for bound, _ in pending])
            while pending:
                self._execute(*pending[0])
                del pending[0]
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Leave out launches that were asked for: what they would have written is lost, not as it was."""
        for bound, values in self._pending:
            for array, _, wrote in bound.touched(values):
                if wrote is None:
                    continue
                for location in {HOST, *self._locations}:
                    array.residency.lose(location, *wrote)
        self._pending.clear()

    def _prepare_together(self, bounds: Sequence[BoundLaunch]) -> None:
        """Prepare launches at once: each request takes a fraction of a millisecond, which is all that many
        programs take."""
        try:
            self._opened()
            self._prepare([(bound, self._place_of(bound)) for bound in dict.fromkeys(bounds)])
        except CompileError:  # told when it is the turn of whoever is at fault
            return
        except JobError as error:
            waiting, self._pending = self._pending, []
            told = self._died(error)
            self._pending = waiting
            if isinstance(told, DataLost):
                raise told from error  # else nothing is lost, and all may be tried one after the other

    def _place_of(self, bound: BoundLaunch) -> int:
        place = bound.pinned if bound.pinned is not None else bound.group.place
        assert place is not None
        return place

    def _think(self, coming: list[ProgramStep]) -> None:
        steps = [*self._planner.steps, *coming]
        self._learn({step.group for step in steps if step.group is not None})
        # As long again as everything so far: thinking takes ever less of the time.
        self._think_at = max(2 * self._clock, self._clock + self.settings.lookahead)
        pinned = {
            step.group: step.group.place for step in steps if step.group and len(step.group.allowed) == 1
        }
        valid = {array.number: array.residency.whole for array in self._arrays.values()}
        if self._planner.plan(coming, valid, explore=self.settings.explore):
            # What is tried is judged when it was launched a few times, not when the program is twice as long.
            self._think_at = self._clock + 2 * max(self.settings.lookahead, len(steps))
        for group in pinned:
            if group is not None and group.place is None:
                group.place = group.allowed[0]

    def _learn(self, groups: Iterable[LaunchGroup]) -> None:
        """Take account of what launches took by their devices' clocks."""
        if self._stream is None:
            return
        for bound in list(self._bound_launches.values()):
            if bound.group not in groups:
                continue
            for place, number in bound.numbers.items():
                time = self._stream.time(number)
                if time is not None and time.count > bound.told.get(place, 0):
                    before = bound.group.measured.get(place, 0)
                    if before < time.count:
                        bound.group.belief.observe(self.devices[place].id, time.seconds, time.count - before)
                        bound.group.measured[place] = time.count
                    bound.told[place] = time.count

    def _execute(self, bound: BoundLaunch, values: tuple[Any, ...]) -> None:
        group, place = bound.group, self._place_of(bound)
        self._clock = clock = self._clock + 1
        self._busy |= 1 << place
        location = self._locations[place]
        bit = 1 << location
        touched = bound.touched(values)
        try:
            stream = self._opened()  # first: what was prepared for another one counts no more
            number = bound.numbers.get(place)
            if number is None or bound.generation != self.generation:
                self._prepare([(bound, place)])
                number = bound.numbers[place]
            for array, needed, _ in touched:
                array.used = clock
                if array.lent:
                    array.residency.wrote(HOST, 0, array.nbytes)
                if location != HOST and not array.held >> place & 1:
                    self._hold(place, [each for each, _, _ in touched])
                if needed is not None and not array.residency.whole & bit:
                    self._bring(array, place, location, needed)
            sent = bound.sent[place]
            if sent != values:
                self._send_values(stream, bound, number, sent, values)
                bound.sent[place] = values
            stream.launch(number)
        except JobError as error:
            raise self._died(error) from error
        for array, _, wrote in touched:
            if wrote is not None:
                residency = array.residency
                if residency.whole != bit or residency.parts or wrote[1] - wrote[0] != array.nbytes:
                    residency.wrote(location, *wrote)
                array.zero = False
                if location == HOST:
                    self._write(array, wrote)
        if group.count < 4 * self._planner.settings.window:
            group.tried.add(place)
            self._planner.note(bound.step)

    def _send_values(
        self, stream: Stream, bound: BoundLaunch, number: int, sent: tuple[Any, ...], values: tuple[Any, ...]
    ) -> None:
        for position, (old, new) in enumerate(zip(sent, values, strict=True)):
            if old != new:
                stream.value(number, bound.value_places[position], new)

    def _prepare(self, wanted: Sequence[tuple[BoundLaunch, int]]) -> None:
        """Prepare launches for places, those that are not yet."""
        stream = self._opened()
        for bound, _ in wanted:
            if bound.generation != self.generation:
                bound.numbers.clear()
                bound.told.clear()
                bound.generation = self.generation
        new = [(bound, place) for bound, place in wanted if place not in bound.numbers]
        if not new:
            return
        while self.unused and not self._tracing:  # the timeline names launches by their numbers
            generation, unused = self.unused.pop()
            if generation == self.generation:
                stream.release(unused)
        numbers = stream.prepare([bound.launch_for(self.devices[place].id) for bound, place in new])
        for (bound, place), number in zip(new, numbers, strict=True):
            bound.numbers[place] = number
            bound.sent[place] = bound.first_values
            self._prepared[number] = bound.group.name.rpartition(" ")[0]
            self._bound_launches[number] = bound

    def _opened(self) -> Stream:
        if self._stream is None:
            self._stream = self.backend.stream()
            self.generation += 1
            self._prepared.clear()
            self._bound_launches.clear()
            for array in self._arrays.values():
                array.held = 0
            self._taken = [0] * len(self.devices)
            self._tracing = False
        return self._stream

    # Moving

    def _bring(self, array: ArrayMemory, place: int, location: int, needed: Interval) -> None:
        """Copy to a device what it lacks; by way of the host, where another device has it."""
        residency = array.residency
        if array.zero and location != HOST:
            self._opened().zero(array.number, self.devices[place].id)
            residency.copied(location, 0, array.nbytes)
            return
        for source, interval in residency.sources(location, *needed):
            if source != HOST:
                self._copy(array, source, interval, to_device=False)
        if location != HOST:
            for _, interval in residency.sources(location, *needed):
                self._copy(array, location, interval, to_device=True)
        if lost := residency.lacks(location, *needed):
            raise DataLost(_lost_in_words(array, lost))

    def _copy(self, array: ArrayMemory, location: int, part: Interval, *, to_device: bool) -> None:
        at, device = next(
            (at, place.device) for at, place in enumerate(self._planner.places) if place.location == location
        )
        self._busy |= 1 << at
        if not to_device:
            self._write(array, part)
        self._opened().copy(array.number, device, *part, to_device=to_device)
        self._clock += 1
        array.used = self._clock
        array.residency.copied(location if to_device else HOST, *part)

    def _write(self, array: ArrayMemory, part: Interval) -> None:
        """Note that bytes at home are not what they will be."""
        known = self._writing.get(array)
        if known is None:
            self._writing[array] = [part]
        elif part not in known:
            self._writing[array] = joined([*known, part])

    def _copy_home(self, array: ArrayMemory) -> None:
        try:
            for source, interval in array.residency.sources(HOST, 0, array.nbytes):
                self._copy(array, source, interval, to_device=False)
        except JobError as error:
            raise self._died(error) from error

    def _wait_for(self, array: ArrayMemory) -> None:
        """Wait until nothing that was queued uses an array; devices that have nothing to do with it go on."""
        if array.used <= self._ended:
            return
        if self._stream is None or self._busy.bit_count() < 2:
            self._drain()  # one device does what was queued in order: there is little that could go on
            return
        try:
            self._stream.wait_for(array.number)
        except JobError as error:
            raise self._died(error) from error
        array.used = self._ended
        self._writing.pop(array, None)

    def _drain(self) -> None:
        if self._stream is not None:
            try:
                self._stream.wait()
            except JobError as error:
                raise self._died(error) from error
        self._writing.clear()
        self._ended, self._busy = self._clock, 0

    def _hold(self, place: int, arrays: list[ArrayMemory]) -> None:
        """Make room on a device for the arrays of a launch; others are brought home and let go of."""
        wanted = {array.number: array for array in arrays if not array.held >> place & 1}
        needed = sum(array.nbytes for array in wanted.values())
        held = [array for array in self._arrays.values() if array.held >> place & 1 and array not in arrays]
        for array in sorted(held, key=lambda each: (not each.idle, each.used)):
            if self._taken[place] + needed <= self._room[place]:
                break
            self._evict(array, place)
        if self._taken[place] + needed > self._room[place]:
            raise InvalidSetting(
                f"{self.devices[place].id} has room for {self._room[place]} bytes, and one launch needs "
                f"{sum(array.nbytes for array in set(arrays))}. Use smaller arrays, or another device"
            )
        for array in wanted.values():
            array.held |= 1 << place
            self._taken[place] += array.nbytes

    def _evict(self, array: ArrayMemory, place: int) -> None:
        location = self._locations[place]
        for start, end in array.residency.valid(location):
            for interval in array.residency.lacks(HOST, start, end):
                self._copy(array, location, interval, to_device=False)
        array.residency.drop(location)
        self._opened().free(array.number, self.devices[place].id)
        array.held &= ~(1 << place)
        self._taken[place] -= array.nbytes

    def _release(self, array: ArrayMemory) -> None:
        for place in range(len(self.devices)):
            if array.held >> place & 1 and self._stream is not None:
                self._evict(array, place)

    # When a device dies

    def _died(self, error: JobError) -> JobError:
        """What is lost with the devices; they are opened anew when they are needed next."""
        if isinstance(error, DataLost):  # of an earlier death
            return error
        lost: list[str] = []
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.abandon()
        self._collect()
        for array in self._arrays.values():
            for location in set(self._locations) - {HOST}:
                array.residency.drop(location)
            array.held = 0
        for array, intervals in self._writing.items():
            # What was being written at home may be written in part, or not at all.
            for interval in intervals:
                array.residency.lose(HOST, *interval)
        self._give_up()
        for array in self._arrays.values():
            if array.nbytes and not array.idle and (gone := array.residency.nowhere()):
                lost.append(_lost_in_words(array, gone))
        self._writing.clear()
        self._ended, self._busy = self._clock, 0
        if not lost:
            return error
        said = str(error).removesuffix(".")
        return DataLost(f"{said}. {'; '.join(lost)}. What the others hold is still there")

    # Predictions

    def asked_for(self, group: LaunchGroup, place: int) -> LaunchGroup:
        """The launches of a group that must run at one place."""
        if (group, place) not in self._asked_for:
            self._asked_for[group, place] = LaunchGroup(
                group.name, group.belief, (place,), place, "asked for"
            )
        return self._asked_for[group, place]

    def group_of(self, kernel: SessionKernel, bound: BoundLaunch) -> LaunchGroup:
        """The launches that a launch belongs to, as far as its time goes: those of about as many
        work-items."""
        key = kernel.build, _like(bound.span), bound.sizes
        if key not in self._groups:
            forecast, by_speeds = self._forecast(kernel, bound)
            nbytes = sum(array.nbytes for array in bound.distinct)
            allowed = tuple(
                place
                for place, info in enumerate(self.devices)
                if self._locations[place] == HOST or nbytes <= self._room[place]
                if int(np.prod(bound.span.local_size)) <= info.max_work_group_size
            )
            if not allowed:
                names = ", ".join(info.id for info in self.devices)
                raise InvalidSetting(
                    f"A launch of {kernel.signature.name!r} takes {nbytes} bytes in work-groups of "
                    f"{bound.span.local_size}: more than {names} can hold or run"
                )
            belief = Belief(self._without_copies(forecast, by_speeds, bound), forecast.spread)
            name = f"{kernel.signature.name} {bound.span.work_items}"
            group = self._groups[key] = LaunchGroup(name, belief, allowed)
            if self._memory is not None and self._fresh:
                self._memory.forget(self._identity(key))
            elif self._memory is not None:
                known = self._memory.recall_times(self._identity(key), belief)
                group.tried |= {self._places[device] for device in known if device in self._places}
        return self._groups[key]

    def _identity(self, key: Any) -> tuple[object, ...]:
        """What a group of launches is kept under."""
        return "session", key, identity_of(self.devices)

    def _keep_times(self) -> None:
        if self._memory is not None:
            self._learn(self._groups.values())
            for key, group in self._groups.items():
                tried = [self.devices[place].id for place in sorted(group.tried | group.measured.keys())]
                self._memory.keep_times(self._identity(key), group.belief, tried if group.measured else [])
            self._memory.prune()

    def _forecast(self, kernel: SessionKernel, bound: BoundLaunch) -> _Predicted:
        """What a launch will take, and what its kernel takes alone by the speeds of devices with memory of
        their own."""
        contents = {
            number: contents_of(array.home)
            for number, array in bound.arrays.items()
            if array.dtype.kind in "iu" and array.residency.whole & 1 << HOST
        }
        query = LaunchQuery(
            kernel.source, kernel.signature.name, kernel.compile, kernel.access, bound.plan, contents
        )
        key = (
            self.predictor, kernel.source, kernel.compile, kernel.signature.name, bound.span, bound.sizes,
            frozenset(bound.plan.scalars.items()), frozenset(contents.items()), tuple(self.devices),
        )  # fmt: skip
        if key not in _forecasts:
            if len(_forecasts) >= _KEPT_FORECASTS:
                del _forecasts[next(iter(_forecasts))]
            apart = [info for info in self.devices if not info.shares_memory]
            found = {info.id: kernel_seconds(query, info) for info in apart}
            known = {name: seconds for name, seconds in found.items() if seconds is not None}
            _forecasts[key] = self.predictor(query, self.devices), known
        return _forecasts[key]

    def _without_copies(
        self, forecast: Forecast, by_speeds: Mapping[str, float], bound: BoundLaunch
    ) -> dict[str, float]:
        """What kernels take alone: forecasts count copies, which a session makes only where they are needed.

        What copies take is known less well than what is left without them: on an H200, where kernels took
        0.01 to 0.07 ms, forecasts less their copies said 0.3 to 2 ms and calibrated speeds 0.02 to 0.2.
        """
        nbytes = sum(array.nbytes for array in bound.distinct)
        found = {}
        calibrated = all(info.calibration is not None for info in self.devices)
        for place, where in enumerate(self._planner.places):
            whole = forecast.models[where.device].seconds(1.0)
            if not calibrated:  # such a forecast has no unit: say what memory takes at least
                found[where.device] = whole * nbytes / 1e10
                continue
            copies = 0.0 if self._locations[place] == HOST else bound.bytes_there * where.to_device
            copies += 0.0 if self._locations[place] == HOST else bound.bytes_back * where.from_device
            kernel = max(whole - copies, 0.05 * whole)
            found[where.device] = max(min(kernel, by_speeds.get(where.device, kernel)), 2e-6)
        return found

    def _bytes_allowed(self, info: DeviceInfo) -> int:
        given = self.settings.memory_bytes or {}
        return given.get(info.id, int(info.memory_bytes * self.settings.memory_share))


class SessionKernel:
    """A kernel of a session. Call it with arrays of the session: the launch is queued."""

    def __init__(
        self,
        session: Session,
        source: Source,
        name: str | None,
        compile: CompileOptions,
        *,
        trust_source: bool = False,
    ) -> None:
        self.session, self.source, self.compile = session, source, compile
        signatures, accesses = _analysed(source, compile, trust_source)
        names = list(signatures)
        if name is None and len(names) != 1:
            raise UnknownName("kernel", "", names)
        if (name or names[0]) not in signatures:
            raise UnknownName("kernel", str(name), names)
        self.signature: Signature = signatures[name or names[0]]
        self.access: KernelAccess = accesses[self.signature.name]
        self.build = Build(driver_text(source, compile), self.signature.name, driver_options(source, compile))
        self._bound: dict[Any, BoundLaunch] = {}

    def __call__(
        self,
        *arguments: SessionArray | Value | LocalMemory,
        global_size: Size,
        local_size: Size | None = None,
        offset: Size = (),
        device: str | None = None,
    ) -> None:
        """Queue a launch.

        Args:
            device: where it must run; None: where the program ends soonest.
        """
        arrays = tuple(
            value.memory.number if isinstance(value, SessionArray) else None for value in arguments
        )
        locals_ = tuple(value for value in arguments if isinstance(value, LocalMemory))
        key = arrays, locals_, global_size, local_size, offset, device
        bound = self._bound.get(key)
        if bound is None:
            with self.session.lock:
                bound = self._bind(arguments, global_size, local_size, offset, device)
                if len(self._bound) >= _KEPT_LAUNCHES:
                    del self._bound[next(iter(self._bound))]
                self._bound[key] = bound
                for memory in bound.distinct:
                    memory.kernels.add(self)
        bound(*[value for value in arguments if not isinstance(value, SessionArray | LocalMemory)])

    def bind(
        self,
        *arguments: SessionArray | Value | LocalMemory,
        global_size: Size,
        local_size: Size | None = None,
        offset: Size = (),
        device: str | None = None,
    ) -> BoundLaunch:
        """A launch that can be queued any number of times, with other values if need be: `bound(2.5, 7)`."""
        bound = self._bind(arguments, global_size, local_size, offset, device)
        bound.arguments = arguments
        return bound

    def unbind(self, memory: ArrayMemory) -> None:
        """Forget the launches over an array."""
        for key in [key for key, bound in self._bound.items() if memory in bound.distinct]:
            del self._bound[key]

    def _bind(
        self, arguments: Sequence[Any], global_size: Size, local_size: Size | None, offset: Size,
        device: str | None,
    ) -> BoundLaunch:  # fmt: skip
        shape = sizes_of(global_size)
        local = sizes_of(local_size) if local_size is not None else self._local_size(shape)
        if 0 in shape:
            return _Nothing(self)
        with self.session.lock:
            return BoundLaunch(self, arguments, NDRange(shape, local, sizes_of(offset)), device)

    def _local_size(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.signature.required_local_size is not None:
            return self.signature.required_local_size[: len(shape)]
        most = min(info.max_work_group_size for info in self.session.devices)
        wanted = {1: (64,), 2: (16, 4), 3: (8, 4, 2)}[len(shape)]
        local = tuple(int(np.gcd(size, each)) for size, each in zip(shape, wanted, strict=True))
        return local if np.prod(local) <= most else (1,) * len(shape)


class BoundLaunch:
    """A kernel with its arrays and its range."""

    def __init__(
        self,
        kernel: SessionKernel,
        arguments: Sequence[SessionArray | Value | LocalMemory],
        span: NDRange,
        device: str | None,
    ) -> None:
        self.kernel, self.span, self.session = kernel, span, kernel.session
        self.arguments: Sequence[Any] = ()
        "Arrays that must stay as long as this does."
        self.arrays: dict[int, ArrayMemory] = {}
        self.value_places: list[int] = []
        self._places, values = self._checked(arguments)
        self.first_values = tuple(values)
        self._given: tuple[tuple[Value, ...], tuple[bytes, ...]] = (), self.first_values
        "The values of the latest launch, and their bytes."
        self._kinds = [_number_of(kernel.signature.arguments[place]) for place in self.value_places]
        "The types of NumPy whose bytes are the values'."
        # Which bytes are touched depends on whole numbers alone.
        self._sizes = [
            position
            for position, place in enumerate(self.value_places)
            if np.dtype(kernel.signature.arguments[place].scalar_type or np.float32).kind in "iu"
        ]
        self.distinct = list({id(array): array for array in self.arrays.values()}.values())
        self.sizes = tuple((array.nbytes, array.dtype.str) for array in self.arrays.values())
        self._touched: dict[tuple[Any, ...], tuple[Touch, ...]] = {}
        self._latest: tuple[Any, ...] | None = None
        self._latest_touched: tuple[Touch, ...] = ()
        self.numbers: dict[int, int] = {}
        self.sent: dict[int, tuple[Any, ...]] = {}
        self.told: dict[int, int] = {}
        self.generation = self.session.generation
        self.plan = self._plan(self.first_values)
        touched = self.touched(self.first_values)
        self.bytes_there = sum(need[1] - need[0] for _, need, _ in touched if need)
        self.bytes_back = sum(wrote[1] - wrote[0] for _, _, wrote in touched if wrote)
        self.pinned: int | None = None
        if device is not None:
            self.pinned = self.session._places[info_of(device, self.session.devices).id]
        self.group = self.session.group_of(kernel, self)
        if self.pinned is not None:
            self.group = self.session.asked_for(self.group, self.pinned)
        self.step = ProgramStep(
            self.group,
            tuple((array.number, array.nbytes) for array, need, _ in touched if need),
            tuple(array.number for array, _, wrote in touched if wrote),
        )

    def __del__(self) -> None:
        if numbers := self.__dict__.get("numbers"):
            self.session.unused.append((self.generation, list(numbers.values())))

    def __call__(self, *values: Value) -> None:
        """Queue the launch, with these values in the order of the kernel's parameters, or with the first
        ones."""
        if not values:
            self.session.launch(self, self.first_values)
            return
        given, known = self._given
        if len(values) == len(given) and all(map(is_, values, given)):
            self.session.launch(self, known)  # a loop mostly gives the same objects
            return
        arguments = self.kernel.signature.arguments
        if len(values) != len(self.value_places):
            names = ", ".join(arguments[place].name for place in self.value_places)
            raise InvalidSetting(
                f"The launch takes {len(self.value_places)} values ({names}), not {len(values)}"
            )
        data, fixed = self._bytes_of(values)
        if data != self.first_values and max(map(len, data), default=0) > _BY_RING:
            changed = [a != b and len(b) > _BY_RING for a, b in zip(self.first_values, data, strict=True)]
            if any(changed):
                raise InvalidSetting("A value of more than 8 bytes cannot change: bind the launch anew")
        if fixed:
            self._given = values, data
        self.session.launch(self, data)

    def _bytes_of(self, values: tuple[Value, ...]) -> tuple[tuple[bytes, ...], bool]:
        """What values are in bytes, and whether none of them can be changed later."""
        arguments, found, fixed = self.kernel.signature.arguments, [], True
        for place, kind, value in zip(self.value_places, self._kinds, values, strict=True):
            if type(value) is kind:
                found.append(value.tobytes())
            else:
                fixed = fixed and isinstance(value, int | float | np.generic)
                found.append(scalar_bytes(arguments[place], value))
        return tuple(found), fixed

    def touched(self, values: tuple[Any, ...]) -> tuple[Touch, ...]:
        """The arrays with the bytes that must be valid before a launch with these values, and those
        written."""
        if values is self._latest or values == self._latest:
            return self._latest_touched
        key = tuple(values[position] for position in self._sizes)
        if key not in self._touched:
            if len(self._touched) >= _KEPT_LAUNCHES:
                self._touched.clear()
            self._touched[key] = self._touch(values)
        self._latest, self._latest_touched = values, self._touched[key]
        return self._latest_touched

    def launch_for(self, device: str) -> StreamLaunch:
        """What a stream prepares."""
        return StreamLaunch(
            self.kernel.build, device, self.span, 0, 0, self.span.groups[0], self.plan.arguments
        )

    def _touch(self, values: tuple[Any, ...]) -> tuple[Touch, ...]:
        plan = self._plan(values)
        found: dict[int, Touch] = {}
        groups = self.span.groups[plan.dimension]
        for number, array in self.arrays.items():
            place = plan.arguments[number]
            assert isinstance(place, ArrayPlace)
            everything = (0, array.nbytes)
            reads = everything if place.read_reach is None else plan.touched(place, 0, groups, write=False)
            need: Interval | None = everything if reads is None else reads
            wrote: Interval | None = None
            if place.written:
                known = plan.touched(place, 0, groups, write=True) if place.write_reach is not None else None
                wrote = everything if known is None else known
                # What is not written of it must stay as it was.
                need = _hull(need, wrote)
            elif need is not None and need[0] >= need[1]:
                need = None
            if id(array) in found:  # one array as several arguments
                _, before_need, before_wrote = found[id(array)]
                need, wrote = _hull(before_need, need), _hull(before_wrote, wrote)
            found[id(array)] = array, need, wrote
        return tuple(found.values())

    def _plan(self, values: tuple[Any, ...]) -> Plan:
        signature, scalars = self.kernel.signature, {}
        places = list(self._places)
        for position, data in zip(self.value_places, values, strict=True):
            argument = signature.arguments[position]
            places[position] = ValuePlace(argument.name, data)
            kind = argument.scalar_type
            if kind is not None and argument.components == 1 and np.dtype(kind).kind in "iu":
                scalars[argument.index] = int(np.frombuffer(data, kind)[0])
        dimension = max(range(self.span.dimensions), key=lambda d: (self.span.groups[d] > 1, d))
        return Plan(
            self.kernel.build, self.span, dimension, tuple(places), program=self.kernel.access.program,
            scalars=scalars,
        )  # fmt: skip

    def _checked(
        self, arguments: Sequence[SessionArray | Value | LocalMemory]
    ) -> tuple[list[Place], list[bytes]]:
        signature = self.kernel.signature
        if len(arguments) != len(signature.arguments):
            names = ", ".join(f"{argument.name}: {argument.type}" for argument in signature.arguments)
            raise InvalidSetting(
                f"The kernel {signature.name!r} takes {len(signature.arguments)} arguments ({names}), not "
                f"{len(arguments)}"
            )
        places: list[Place] = []
        values: list[bytes] = []
        for argument, value in zip(signature.arguments, arguments, strict=True):
            if argument.is_image or argument.is_sampler:
                raise InvalidSetting(
                    f"The argument {argument.name!r} is {argument.type}: sessions keep arrays alone. Share "
                    "the kernel with apportion.share instead"
                )
            if not argument.is_supported:
                raise InvalidSetting(
                    f"The argument {argument.name!r} is a {argument.type}, which no host passes"
                )
            if argument.space == "local":
                places.append(LocalPlace(argument.name, local_bytes(argument, value)))
            elif argument.is_pointer:
                if not isinstance(value, SessionArray):
                    raise InvalidSetting(
                        f"The argument {argument.name!r} is an array: give one of this session, such as "
                        f"session.array(values), not {type(value).__name__}"
                    )
                if value.session is not self.session:
                    raise InvalidSetting(f"The argument {argument.name!r} is an array of another session")
                memory = value.memory
                checked_array(argument, memory.home)
                use = self.kernel.access.arguments[argument.index]
                self.arrays[argument.index] = memory
                places.append(
                    ArrayPlace(
                        argument.name, memory.number, value.nbytes, value.dtype.str, use.merge,
                        use.read_reach, use.write_reach, use.settled,
                    )
                )  # fmt: skip
            else:
                if isinstance(value, SessionArray | LocalMemory):
                    raise InvalidSetting(
                        f"The argument {argument.name!r} is passed by value, not as an array"
                    )
                data = scalar_bytes(argument, value)
                self.value_places.append(argument.index)
                places.append(ValuePlace(argument.name, data))
                values.append(data)
        return places, values


class _Nothing(BoundLaunch):
    """A launch over no work-items: nothing happens."""

    def __init__(self, kernel: SessionKernel) -> None:
        self.kernel, self.session = kernel, kernel.session
        self.distinct: list[ArrayMemory] = []

    def __call__(self, *values: Value) -> None:
        """Do nothing."""


@lru_cache(maxsize=64)
def _analysed(
    source: Source, compile: CompileOptions, trust_source: bool
) -> tuple[dict[str, Signature], dict[str, KernelAccess]]:
    """The kernels of a source, and what each reads and writes."""
    text = str(source.text)
    ir = ir_of(source, compile)
    if not trust_source:
        check_runnable(text, ir, source.name)
    return signatures_of(ir, text), accesses_of(ir, text)


def _where(info: DeviceInfo, number: int, settings: PlacementSettings) -> Where:
    if info.shares_memory:
        return Where(info.id, HOST, 0.0, 0.0)
    speeds = info.calibration
    there = speeds.to_device if speeds is not None else settings.bytes_per_second
    back = speeds.from_device if speeds is not None else settings.bytes_per_second
    return Where(info.id, number + 1, 1 / there, 1 / back)


def _like(span: NDRange) -> tuple[object, ...]:
    """What ranges have in common whose launches take about the same time.

    A range that changes with every launch, as where a matrix is factorised, must not be a new kernel every
    time: nothing would ever be known of it.
    """
    return span.dimensions, span.local_size, round(_RANGES_PER_DOUBLING * math.log2(span.work_items))


def sizes_of_array(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The shape of an array.

    Raises:
        InvalidSetting: it is none.
    """
    try:
        found = tuple(map(index, (shape,) if isinstance(shape, int | np.integer) else shape))
    except TypeError:
        found = None
    if found is None or min(found, default=0) < 0:
        raise InvalidSetting(f"The shape of an array is whole numbers from 0 on, not {shape!r}")
    return found


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    filled = [interval for interval in (a, b) if interval is not None and interval[1] > interval[0]]
    return (min(i[0] for i in filled), max(i[1] for i in filled)) if filled else None


def _lost_in_words(array: ArrayMemory, lost: list[Interval]) -> str:
    count = sum(end - start for start, end in lost)
    what = "all" if count == array.nbytes else f"{count} of {array.nbytes} bytes (from {lost[0][0]} on)"
    return f"{array.name!r} is lost: {what}"


def _number_of(argument: KernelArgument) -> type[np.generic] | None:
    """The type of NumPy that an argument's values are; None where it is no single number."""
    one = argument.scalar_type is not None and argument.components == 1
    return np.dtype(argument.scalar_type).type if one else None
