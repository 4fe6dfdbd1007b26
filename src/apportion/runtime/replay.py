"""The backend `replay`: launches take what they took on another machine, and compute nothing.

A recording is a folder with `devices.json` and one or more files of launches, anywhere below it:

- `launches.jsonl`, as a `Recorder` writes it: what single launches took, device by device;
- `efficiency.jsonl`, as `python -m reproduction efficiency` writes it: curves of cuts between two devices.

Policies are developed on it, and tested, on machines without the devices.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.runtime.backend import Backend, info_of
from apportion.runtime.base import DeviceInfo, Limits, info_from
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.memory import Region
from apportion.runtime.plan import Build, DeviceTime, LaunchOutcome, Plan
from apportion.runtime.supply import Supply
from apportion.runtime.visit import Launched, Seen, Visit
from apportion.settings import replace_file

DEVICES, LAUNCHES, CURVES = "devices.json", "launches.jsonl", "efficiency.jsonl"
_NEAR = 1e-3
"Shares that differ by less are the same launch."


@dataclass(frozen=True)
class ReplaySettings:
    """What is added to recorded times; nothing, unless a rehearsal asks for it."""

    noise: float = 0.0
    "The standard deviation of the logarithm of a launch's time."
    after_another: float = 1.0
    "A launch takes this times its time right after one by other devices; 1.15 on the Xeon with an H200."
    after_shared: float = 1.0
    "The same where one of the two was shared; 1.07 there."
    seed: int = 0

    def __post_init__(self) -> None:
        if self.noise < 0 or min(self.after_another, self.after_shared) < 1:
            raise InvalidSetting(f"noise must not be below 0, nor factors below 1: {self}")


NO_NOISE = ReplaySettings()


@dataclass
class RecordedKernel:
    """What launches of one kernel over one range took."""

    launches: list[tuple[dict[str, float], float, dict[str, float]]] = field(default_factory=list)
    "Shares, seconds, and seconds of each device until it was done."
    curve: dict[float, float] = field(default_factory=dict)
    "Share of the first device → seconds, where whole curves were recorded."

    def seconds(self, shares: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """What a launch with these shares takes, and each of its devices: as recorded where it was, else by
        the curve, else by lines through what each device took.

        Raises:
            UnknownName: a device was never recorded.
        """
        same = [launch for launch in self.launches if _same(launch[0], shares)]
        if same:
            whole = float(np.median([seconds for _, seconds, _ in same]))
            return whole, {name: float(np.median([each[2][name] for each in same])) for name in shares}
        lines = self._lines()
        if missing := [name for name in shares if name not in lines]:
            raise UnknownName("recorded device", missing[0], lines)
        taken = {name: lines[name][0] + lines[name][1] * share for name, share in shares.items()}
        beyond = [
            seconds - max(devices.values()) for shares, seconds, devices in self.launches if len(shares) > 1
        ]
        whole = max(taken.values()) + (
            max(0.0, float(np.median(beyond))) if beyond and len(shares) > 1 else 0.0
        )
        if self.curve and len(shares) == 2:
            cuts = sorted(self.curve)
            first = next(iter(lines))
            whole = float(np.interp(shares.get(first, 0.0), cuts, [self.curve[cut] for cut in cuts]))
            slower = whole / max(*taken.values(), 1e-12)
            taken = {name: min(each, each * slower) for name, each in taken.items()}
        return whole, taken

    def _lines(self) -> dict[str, tuple[float, float]]:
        """Device → (fixed, rate): the line through what it took for its shares."""
        points: dict[str, list[tuple[float, float]]] = {}
        for shares, _, devices in self.launches:
            for name, share in shares.items():
                points.setdefault(name, []).append((share, devices[name]))
        return {name: _line(each) for name, each in points.items()}


def _same(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    return a.keys() == b.keys() and all(abs(a[name] - b[name]) <= _NEAR for name in a)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    shares, seconds = (np.array(each) for each in zip(*points, strict=True))
    if np.ptp(shares) < _NEAR:  # nothing is known of what does not shrink with the share
        return 0.0, float(np.median(seconds / shares))
    rate, fixed = np.polyfit(shares, seconds, 1)
    least = float(np.min(seconds))
    fixed = min(max(float(fixed), 0.0), least)
    return fixed, max(float(np.median((seconds - fixed) / shares)), 1e-9) if rate <= 0 else float(rate)


@dataclass(frozen=True, eq=False)
class Recording:
    """Devices, and what kernels took on them."""

    devices: tuple[DeviceInfo, ...]
    kernels: Mapping[tuple[str, int], RecordedKernel]
    "Kernel and work-items → what its launches took."

    @classmethod
    def load(cls, folder: Path) -> Recording:
        """The recording in a folder.

        Raises:
            UnreadableFile: there is none.
            MalformedInput: it is not one.
        """
        path = folder / DEVICES
        kernels: dict[tuple[str, int], RecordedKernel] = {}
        try:
            said = json.loads(path.read_text())
            devices = tuple(info_from(each) for each in said)
            for path in sorted(folder.rglob(LAUNCHES)):
                for line in path.read_text().splitlines():
                    row = json.loads(line)
                    kernel = kernels.setdefault((row["kernel"], row["work_items"]), RecordedKernel())
                    kernel.launches.append((row["shares"], row["seconds"], row["devices"]))
            for path in sorted(folder.rglob(CURVES)):
                for line in path.read_text().splitlines():
                    _add_curve(kernels, json.loads(line))
        except OSError as error:
            raise UnreadableFile(f"Cannot read the recording {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedInput(f"not a recording of launches ({error})", file=str(path)) from error
        return cls(devices, kernels)


def _add_curve(kernels: dict[tuple[str, int], RecordedKernel], row: dict[str, Any]) -> None:
    """Take a row of an efficiency study: each device alone, and cuts between them."""
    alone = {name: 1e-3 * measured["median"] for name, measured in row["alone"].items()}
    if not alone:
        return
    kernel = kernels.setdefault((row["kernel"], row["work_items"]), RecordedKernel())
    kernel.launches += [({name: 1.0}, seconds, {name: seconds}) for name, seconds in alone.items()]
    curve = {float(cut): 1e-3 * taken for cut, taken in row["curve"].items() if 0 < float(cut) < 1}
    if len(alone) != 2 or not curve:
        return
    (first, one), (second, other) = alone.items()
    kernel.curve = {0.0: other, **dict(sorted(curve.items())), 1.0: one}
    parts = _fixed_parts(curve, one, other)
    for share in (0.25, 0.5, 0.75):  # points of the lines, so that they are fitted again
        for name, whole, part, each in ((first, one, parts[0], share), (second, other, parts[1], 1 - share)):
            kernel.launches.append(({name: each}, whole, {name: whole * (part + (1 - part) * each)}))
    kernel.launches = [launch for launch in kernel.launches if launch[0] != {}]


def _fixed_parts(curve: Mapping[float, float], one: float, other: float) -> tuple[float, float]:
    """Of what two devices take alone, the parts that do not shrink with the share: those under which the
    longer of both is nearest to the curve, cuts near the best device's time first."""
    cuts, taken = (np.array(each) for each in zip(*curve.items(), strict=True))
    weights = np.where(taken < 1.5 * min(one, other), 3.0, 1.0)
    grid = np.linspace(0.0, 0.9, 31)
    first, second = grid[:, None, None], grid[None, :, None]
    lines = np.maximum(
        one * (first + (1 - first) * cuts), other * (second + (1 - second) * (1 - cuts))
    )  # (31, 31, cuts)
    off = (weights * np.log(lines / taken) ** 2).sum(axis=2)
    a, b = np.unravel_index(int(off.argmin()), off.shape)
    return float(grid[a]), float(grid[b])


class ReplayBackend(Backend):
    """Devices of a recording: launches take what they took there, and arrays stay as they are."""

    computes: ClassVar[bool] = False

    def __init__(self, recording: Recording, settings: ReplaySettings = NO_NOISE) -> None:
        self.recording, self.settings = recording, settings
        self._random = np.random.default_rng(settings.seed)
        self._before: frozenset[str] = frozenset()

    @classmethod
    def open(cls, place: str, drivers: DriverOptions, limits: Limits | None) -> Self:
        """The recording in a folder."""
        if not place:
            raise InvalidSetting("A recording is a folder: say replay:FOLDER")
        return cls(Recording.load(Path(place)))

    def devices(self) -> list[DeviceInfo]:
        """The devices that were recorded."""
        return list(self.recording.devices)

    def build(self, build: Build, devices: Sequence[str]) -> dict[str, int]:
        """What the recorded devices allow; nothing is compiled."""
        self._known(build.kernel)
        return {name: info_of(name, self.recording.devices).max_work_group_size for name in devices}

    def allocate(self, nbytes: int) -> Region:
        """Memory of this process."""
        return Region(nbytes)

    def launch(self, plan: Plan) -> LaunchOutcome:
        """What the launch took where it was recorded, or what follows from others of the same kernel."""
        kernel = self._kernel(plan)
        ranges = _ranges(plan)
        groups = plan.span.groups[plan.dimension]
        shares = {name: sum(last - first for first, last in each) / groups for name, each in ranges.items()}
        shares = {name: share for name, share in shares.items() if share > 0}
        seconds, taken = kernel.seconds(shares)
        factor = self._disturbance(frozenset(shares))
        devices = tuple(
            DeviceTime(
                name, tuple(ranges[name]), 0.0, factor * taken[name], 0.0, factor * taken[name],
                busy=factor * taken[name],
            )
            for name in shares
        )  # fmt: skip
        slowest = max(each.seconds for each in devices)
        return LaunchOutcome(devices, max(factor * seconds, slowest), max(0.0, factor * seconds - slowest))

    def calibrate(self, devices: Sequence[str] | None = None) -> list[DeviceInfo]:
        """The recorded speeds: nothing is measured."""
        return [info for info in self.recording.devices if devices is None or info.id in devices]

    def measure(
        self, visit: Visit, seconds: float, report: Callable[[tuple[str, Launched]], None] | None = None
    ) -> list[Seen]:
        """What the shares of a visit take on each device."""
        kernel, found = self._kernel(visit.plan), []
        for name in visit.devices:
            launches = []
            for share in visit.shares if visit.repeats is not None else ():
                _, taken = kernel.seconds({name: share})
                launches.append(Launched(share, 0.0, taken[name], 0.0, taken[name]))
                if report is not None:
                    report((name, launches[-1]))
            found.append(Seen(name, tuple(launches)))
        return found

    def close(self) -> None:
        """There is nothing to let go of."""

    def _disturbance(self, devices: frozenset[str]) -> float:
        before, self._before = self._before, devices
        factor = math.exp(self._random.normal(0, self.settings.noise)) if self.settings.noise else 1.0
        if before and before != devices:
            shared = max(len(before), len(devices)) > 1
            factor *= self.settings.after_shared if shared else self.settings.after_another
        return factor

    def _kernel(self, plan: Plan) -> RecordedKernel:
        key = plan.build.kernel, plan.span.work_items
        if key not in self.recording.kernels:
            self._known(plan.build.kernel)
            sizes = sorted(items for kernel, items in self.recording.kernels if kernel == key[0])
            raise UnknownName(
                f"recorded launch of {key[0]!r} with this many work-items", str(key[1]), map(str, sizes)
            )
        return self.recording.kernels[key]

    def _known(self, kernel: str) -> None:
        names = dict.fromkeys(name for name, _ in self.recording.kernels)
        if kernel not in names:
            raise UnknownName("recorded kernel", kernel, names)


def _ranges(plan: Plan) -> dict[str, list[tuple[int, int]]]:
    """Device → the work-groups that it does; chunks are handed out in turn."""
    found: dict[str, list[tuple[int, int]]] = {}
    if plan.chunks is None:
        for each in plan.parts:
            found.setdefault(each.device, []).append((each.first, each.last))
        return found
    supply, waiting = Supply(plan), list(plan.chunks.shares)
    while waiting:
        for name in tuple(waiting):
            if (part := supply.take(name)) is None:
                waiting.remove(name)
            elif part[0] < part[1]:
                found.setdefault(name, []).append(part)
    return found


class Recorder(Backend):
    """A backend that remembers what its launches took."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._launches: list[dict[str, Any]] = []

    def devices(self) -> list[DeviceInfo]:
        """Those of the backend."""
        return self.backend.devices()

    def build(self, build: Build, devices: Sequence[str]) -> dict[str, int]:
        """As the backend does."""
        return self.backend.build(build, devices)

    def allocate(self, nbytes: int) -> Region:
        """As the backend does."""
        return self.backend.allocate(nbytes)

    def launch(self, plan: Plan) -> LaunchOutcome:
        """Run on the backend, and remember how long it took."""
        outcome = self.backend.launch(plan)
        groups = plan.span.groups[plan.dimension]
        done = [each for each in outcome.devices if each.groups]
        self._launches.append({
            "kernel": plan.build.kernel, "work_items": plan.span.work_items,
            "shares": {each.device: each.groups / groups for each in done}, "seconds": outcome.seconds,
            "devices": {each.device: each.seconds for each in done},
        })  # fmt: skip
        return outcome

    def calibrate(self, devices: Sequence[str] | None = None) -> list[DeviceInfo]:
        """As the backend does."""
        return self.backend.calibrate(devices)

    def measure(
        self, visit: Visit, seconds: float, report: Callable[[tuple[str, Launched]], None] | None = None
    ) -> list[Seen]:
        """As the backend does; visits are not remembered."""
        return self.backend.measure(visit, seconds, report)

    def save(self, folder: Path) -> None:
        """Write what was recorded to a folder that `Recording.load` reads.

        Raises:
            UnreadableFile: the folder cannot be written to.
        """
        devices = [dataclasses.asdict(info) for info in self.devices()]
        replace_file(folder / DEVICES, json.dumps(devices, indent=1))
        replace_file(folder / LAUNCHES, "".join(json.dumps(launch) + "\n" for launch in self._launches))

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()
