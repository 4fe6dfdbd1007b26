"""Visits inside a worker process: arrays from a pool, programs kept, devices measured in turn.

Nothing starts with a visit that a former one left usable: arrays that kernels only read serve every kernel
that wishes for the same, buffers of devices go with them, and a program is compiled once. That is what
makes some thirty visits a second possible.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from apportion.errors import ApportionError, UnreadableFile
from apportion.runtime import memory, verify
from apportion.runtime.observe import Observer
from apportion.runtime.opencl.queue import Queue
from apportion.runtime.opencl.running import Prepared, Running
from apportion.runtime.plan import ArrayPlace, Build, Plan
from apportion.runtime.sampling import Repeats, summary
from apportion.runtime.split import Part
from apportion.runtime.visit import Launched, Seen, Visit
from apportion.runtime.words import ArrayWord
from apportion.settings import replace_file

Bytes = NDArray[np.uint8]
Report = Callable[[tuple[str, Launched]], None]
_LEAST_CAPACITY = 1 << 16


@dataclass
class _Slot:
    """Memory for one argument, as large as any of its size class may need."""

    whole: Bytes
    kind: tuple[str, str] = ("", "")
    "Type and filling of what it holds."
    valid: int = 0
    "How many bytes from the start hold that."


@dataclass(frozen=True, eq=False)
class _Pooled:
    """An array of a visit, in memory of the pool."""

    number: int
    whole: Bytes
    nbytes: int
    initial: Bytes
    "What it holds at first."

    @property
    def data(self) -> Bytes:
        return memory.data_of(self.whole, self.nbytes)


class ArrayPool:
    """Memory for arrays that is used again, and what arrays are filled with, made once for all lengths."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, bool, int], _Slot] = {}
        self._numbers = itertools.count(-1, -1)  # regions of the other process have numbers above 0
        self._masters: dict[tuple[str, str], NDArray[Any]] = {}

    def take(self, position: int, word: ArrayWord, written: bool) -> _Pooled:
        """The array that an argument wishes for, holding what it asks for, between guards."""
        capacity = max(_LEAST_CAPACITY, 1 << (word.nbytes - 1).bit_length())
        key = (position, written, capacity)
        if key not in self._slots:
            self._slots[key] = _Slot(memory.guarded(capacity))
        slot = self._slots[key]
        whole = slot.whole[: memory.total_bytes(word.nbytes)]
        initial = self._initial(position, word)
        kind = (word.dtype, word.fill)
        if written or kind != slot.kind:
            slot.kind, slot.valid = kind, 0
        data = memory.data_of(whole, word.nbytes)
        if slot.valid < word.nbytes:
            data[slot.valid :] = initial[slot.valid :]
        # The guard takes the place of what a longer array would hold there.
        slot.valid = 0 if written else word.nbytes
        memory.draw_guards(whole, word.nbytes)
        return _Pooled(next(self._numbers), whole, word.nbytes, initial)

    def _initial(self, position: int, word: ArrayWord) -> Bytes:
        fill, _, rest = word.fill.partition(":")
        if fill == "file":
            values = _file(Path(rest), word.kind, word.count)
            return values.view(np.uint8).reshape(-1)
        shift = 64 * position if fill in ("random", "below") else 0  # two arguments do not hold the same
        key = (word.dtype, word.fill)
        master = self._masters.get(key)
        if master is None or len(master) < shift + word.count:
            length = max(1 << 16, 1 << (shift + word.count - 1).bit_length())
            master = self._masters[key] = _filled(word, length)
        return master[shift : shift + word.count].view(np.uint8).reshape(-1)


def _filled(word: ArrayWord, count: int) -> NDArray[Any]:
    """Numbers of which the first are the same however many are asked for."""
    kind = word.kind
    if kind.fields is not None:
        return replace(word, count=count).values(np.random.default_rng(0))
    match word.fill:
        case "zeros":
            return np.zeros(count, kind)
        case "ones":
            return np.ones(count, kind)
        case "range":
            return np.arange(count).astype(kind)
    noise = np.random.default_rng(0).random(count, np.float32)
    if kind.kind == "f":
        return noise.astype(kind)
    return np.minimum((noise.astype(np.float64) * word.bound).astype(np.int64), word.bound - 1).astype(kind)


def _file(path: Path, kind: np.dtype[Any], count: int) -> NDArray[Any]:
    try:
        values: NDArray[Any] = np.ascontiguousarray(np.load(path, allow_pickle=False)).reshape(-1)
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"Cannot read the array {path}: {error}") from error
    if values.dtype != kind or len(values) != count:
        raise UnreadableFile(f"{path} holds {len(values)} numbers of {values.dtype}, not {count} of {kind}")
    return values


class Visitor:
    """Does visits on the devices of a worker."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self.queues = queues
        self.pool = ArrayPool()
        self.observers = Observer.found()

    def visit(self, visit: Visit, report: Report) -> list[Seen]:
        """Warm up every device, compare results, then launch shares in turn until intervals are narrow."""
        arrays = {
            place.region: self.pool.take(place.region, visit.arrays[place.region], place.written)
            for place in visit.plan.arguments
            if isinstance(place, ArrayPlace)
        }
        places = tuple(
            replace(place, region=arrays[place.region].number) if isinstance(place, ArrayPlace) else place
            for place in visit.plan.arguments
        )
        stay = _Stay(replace(visit.plan, arguments=places), list(arrays.values()), self.queues)
        try:
            return self._seen(visit, stay, report)
        finally:
            for queue, pooled in itertools.product(self.queues.values(), arrays.values()):
                queue.forget(pooled.number)

    def _seen(self, visit: Visit, stay: _Stay, report: Report) -> list[Seen]:
        seen: dict[str, Seen] = {}
        reference: dict[str, NDArray[Any]] = {}
        for device in visit.devices:
            try:
                self._program(visit, self.queues[device])
                first = stay.launch(device, 1.0, check=True)
                results = stay.results(visit.compare)
                said = _difference(results, reference)
                seen[device] = Seen(
                    device, (), first.seconds, None if not reference else said is None, said or ""
                )
                reference = reference or results
            except ApportionError as error:
                seen[device] = Seen(device, failure=f"{type(error).__name__}: {error}")
        measured = [device for device in visit.devices if not seen[device].failure]
        if visit.repeats is not None and measured:
            found = self._measured(visit, visit.repeats, stay, measured, report)
            for device, launches, observed in found:
                energy = [observed.pop(meter.name) for meter in self.observers if meter.energy]
                seen[device] = replace(
                    seen[device], launches=tuple(launches), joules=sum(energy) if energy else None,
                    counters=observed,
                )  # fmt: skip
        return [seen[device] for device in visit.devices]

    def _measured(
        self, visit: Visit, repeats: Repeats, stay: _Stay, devices: list[str], report: Report
    ) -> list[tuple[str, list[Launched], dict[str, float]]]:
        launches = {device: list(visit.known.get(device, ())) for device in devices}
        names = [observer.name for observer in self.observers]
        observed: dict[str, dict[str, float]] = {device: dict.fromkeys(names, 0.0) for device in devices}
        active = list(devices)
        began = time.perf_counter()
        rounds = min(sum(one.share == 1.0 for one in launches[device]) for device in devices)
        for number in itertools.count(rounds + 1):
            for share in stay.distinct(visit.shares):
                for device in list(active):
                    before = [observer.read() for observer in self.observers]
                    launched = stay.launch(device, share)
                    for observer, start in zip(self.observers, before, strict=True):
                        observed[device][observer.name] += observer.read() - start
                    launches[device].append(launched)
                    report((device, launched))
                    if share == 1.0 and launched.seconds > visit.most_seconds:
                        active.remove(device)
            spent_seconds = time.perf_counter() - began
            enough = number >= repeats.least and (
                all(_narrow(launches[device], repeats.width) for device in devices)
                or spent_seconds > repeats.seconds
            )
            if enough or not active or number >= repeats.most or spent_seconds > 6 * repeats.seconds:
                break
        return [(device, launches[device], observed[device]) for device in devices]

    def _program(self, visit: Visit, queue: Queue) -> None:
        """Have the program ready: from the folder of binaries where there is one, which it else goes to."""
        build = visit.plan.build
        if not visit.binaries or queue.info.kind == "cpu":  # PoCL keeps its own
            queue.kernel(build)
            return
        path = Path(visit.binaries) / f"{_digest(build)}.bin"
        if path.exists():
            try:
                queue.adopt(build, path.read_bytes())
                return
            except cl.Error:  # of another version of the driver
                path.unlink(missing_ok=True)
        (binary,) = queue.kernel(build).program.get_info(cl.program_info.BINARIES)
        replace_file(path, binary)


class _Stay:
    """A plan with its arrays, launched on one device at a time."""

    def __init__(self, plan: Plan, arrays: list[_Pooled], queues: Mapping[str, Queue]) -> None:
        self.plan, self.queues = plan, queues
        self.regions = {pooled.number: (pooled.whole, pooled.nbytes) for pooled in arrays}
        self.written = {
            place.region: place for place in plan.arguments if isinstance(place, ArrayPlace) and place.written
        }
        self._pooled = {pooled.number: pooled for pooled in arrays}
        self._groups = plan.span.groups[plan.dimension]
        self._prepared: dict[tuple[str, int], Prepared] = {}

    def distinct(self, shares: tuple[float, ...]) -> list[float]:
        """The shares that make different numbers of groups."""
        return list({max(1, round(share * self._groups)): share for share in shares[::-1]}.values())[::-1]

    def launch(self, device: str, share: float, *, check: bool = False) -> Launched:
        """Launch the first part of the range on one device, from what the arrays held at first."""
        for number, place in self.written.items():
            if check or place.read_reach != ():
                pooled = self._pooled[number]
                pooled.data[:] = pooled.initial
        groups = max(1, round(share * self._groups))
        if (device, groups) not in self._prepared:
            plan = replace(self.plan, parts=(Part(device, 0, groups),))
            self._prepared[device, groups] = Prepared(plan, [self.queues[device]])
        running = Running(self._prepared[device, groups], self.regions, _nothing)
        running.compile()
        (times,) = running.launch(time.perf_counter())
        if check:
            running.check_guards()
        return Launched(groups / self._groups, times.upload, times.kernel, times.download, times.seconds)

    def results(self, most: int) -> dict[str, NDArray[Any]]:
        """What the last launch left in the written arrays, or evenly spaced elements of it."""
        found = {}
        for number, place in self.written.items():
            values = self._pooled[number].data.view(place.dtype)
            step = max(1, len(values) // most) if most else 1
            found[place.name] = values[::step].copy()
        return found


def _difference(found: dict[str, NDArray[Any]], reference: dict[str, NDArray[Any]]) -> str | None:
    for name, values in found.items():
        if name in reference and (said := verify.difference(values, reference[name])) is not None:
            return f"{name}: {said}"
    return None


def _narrow(launches: list[Launched], width: float) -> bool:
    return summary([launched.seconds for launched in launches if launched.share == 1.0]).width <= width


def _digest(build: Build) -> str:
    return hashlib.sha256(f"{build.options}\0{build.kernel}\0{build.source}".encode()).hexdigest()[:32]


def _nothing() -> None:
    """Nobody waits for a visit's launches to begin: its time is limited as a whole."""
