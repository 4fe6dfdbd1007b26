"""Sources that watch a command while it runs as it always does: /proc, events of kernel and processor."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from apportion.measure.counters.command import Watcher
from apportion.measure.counters.counter_source import MissingCounter, Reading, WatchingSource
from apportion.measure.counters.perfevents import (
    HARDWARE,
    SOFTWARE,
    Event,
    PerfWatcher,
    explained,
    tracepoints,
)

_PAGE_FAULTS = (9, 10, 11, 12)  # minflt, cminflt, majflt, cmajflt in /proc/PID/stat, counted from 0


class ProcWatcher(Watcher):
    """Reads what the kernel keeps of every process."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._threads = 1

    def attach(self, process: int) -> None:
        self._before = _accounts(process)

    def look(self, process: int) -> None:
        with suppress(OSError):
            text = Path(f"/proc/{process}/status").read_text()
            if match := re.search(r"^Threads:\s+(\d+)", text, re.MULTILINE):
                self._threads = max(self._threads, int(match[1]))

    def read(self, process: int) -> dict[str, float | None]:
        after = _accounts(process)
        found: dict[str, float | None] = {
            name: value - self._before.get(name, 0.0) for name, value in after.items()
        }
        return {**found, "threads": float(self._threads), "page_levels": page_levels()}


class ProcSource(WatchingSource):
    """Page faults, bytes read and written, threads, page table levels."""

    name = "proc"
    counts: ClassVar[Mapping[str, str]] = {
        "page_faults": "exact", "io_bytes_read": "exact", "io_bytes_written": "exact", "threads": "sampled",
        "page_levels": "static",
    }  # fmt: skip

    def watcher(self) -> Watcher:
        return ProcWatcher()

    def reading(self, watcher: Watcher, counted: Mapping[str, float | None], seconds: float) -> Reading:
        values = {name: counted.get(name) for name in self.counts}
        problem = MissingCounter("the kernel does not tell it of this process", "mount /proc without hidepid")
        return Reading(values, seconds, {name: problem for name, value in values.items() if value is None})


class _PerfSource(WatchingSource):
    """What the sources that use `perf_event_open` share."""

    def events(self) -> Mapping[str, Event]:
        raise LookupError(self.name)

    def watcher(self) -> Watcher:
        return PerfWatcher(self.events())

    def values(self, counted: Mapping[str, float | None]) -> dict[str, float | None]:
        """Counters from events."""
        return dict(counted)

    def reading(self, watcher: Watcher, counted: Mapping[str, float | None], seconds: float) -> Reading:
        values = {**dict.fromkeys(self.counts), **self.values(counted)}
        problems = {}
        if isinstance(watcher, PerfWatcher) and (not watcher.events or watcher.problems):
            problem = self.problem(watcher)
            problems = {name: problem for name, value in values.items() if value is None}
        return Reading(values, seconds, problems)

    def problem(self, watcher: PerfWatcher) -> MissingCounter:
        """Why the kernel did not count."""
        return MissingCounter(*explained(next(iter(watcher.problems.values()))))


class SoftwareSource(_PerfSource):
    """Page faults, by the kernel's software event: of the command and all it starts."""

    name = "software"
    counts: ClassVar[Mapping[str, str]] = {"page_faults": "exact"}

    def events(self) -> Mapping[str, Event]:
        return SOFTWARE


class PerfSource(_PerfSource):
    """The processor's own counters, in user space."""

    name = "perf"
    counts: ClassVar[Mapping[str, str]] = {
        "instructions": "exact", "control_ratio": "exact", "branch_miss_ratio": "exact",
        "l1_miss_hit_ratio": "exact", "ll_miss_hit_ratio": "exact",
    }  # fmt: skip

    def events(self) -> Mapping[str, Event]:
        return HARDWARE

    def values(self, counted: Mapping[str, float | None]) -> dict[str, float | None]:
        return {
            "instructions": counted.get("instructions") or None,
            "control_ratio": _ratio(counted.get("branches"), counted.get("instructions")),
            "branch_miss_ratio": _ratio(counted.get("branch_misses"), counted.get("branches")),
            "l1_miss_hit_ratio": _missed(counted.get("l1_load_misses"), counted.get("l1_loads")),
            "ll_miss_hit_ratio": _missed(counted.get("ll_load_misses"), counted.get("ll_loads")),
        }


class TracepointSource(_PerfSource):
    """System calls that open files, successful or not, by the kernel's tracepoints."""

    name = "tracepoints"
    counts: ClassVar[Mapping[str, str]] = {"fds_opened": "exact"}

    def events(self) -> Mapping[str, Event]:
        try:
            return tracepoints()
        except OSError:
            return {}

    def problem(self, watcher: PerfWatcher) -> MissingCounter:
        if watcher.events:
            return super().problem(watcher)
        return MissingCounter(
            "tracefs is not mounted, or not for this user",
            "as root: mount -t tracefs nodev /sys/kernel/tracing; the source trace needs neither",
        )

    def values(self, counted: Mapping[str, float | None]) -> dict[str, float | None]:
        known = [value for value in counted.values() if value is not None]
        return {"fds_opened": sum(known) if known else None}


def page_levels() -> float | None:
    """The levels of this machine's page tables, as far as its kernel tells."""
    if platform.machine() == "x86_64":
        with suppress(OSError):
            return 5.0 if re.search(r"^flags\s*:.*\bla57\b", Path("/proc/cpuinfo").read_text(), re.M) else 4.0
    # With pages of 4 KiB a level translates 9 bits, of 16 KiB 11, of 64 KiB 13; user space has 48 bits.
    if platform.machine() == "aarch64":
        offset = os.sysconf("SC_PAGE_SIZE").bit_length() - 1
        return float(-(-(48 - offset) // (offset - 3)))
    return None


def _accounts(process: int) -> dict[str, float]:
    """What /proc tells of a process, also of one that has ended and was not yet waited for."""
    found: dict[str, float] = {}
    with suppress(OSError, ValueError, IndexError):
        # The name, in brackets, may hold blanks and brackets.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        found["page_faults"] = float(sum(int(fields[place - 2]) for place in _PAGE_FAULTS))
    with suppress(OSError, ValueError):
        text = Path(f"/proc/{process}/io").read_text()
        lines = dict(line.split(": ") for line in text.splitlines())
        found["io_bytes_read"] = float(lines["rchar"])
        found["io_bytes_written"] = float(lines["wchar"])
    return found


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _missed(misses: float | None, accesses: float | None) -> float | None:
    """Misses over hits."""
    if misses is None or not accesses or accesses <= misses:
        return None
    return misses / (accesses - misses)
