"""Counters of the kernel and of the processor, by `perf_event_open`: no program and no library is needed."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from apportion.measure.counters.command import Watcher

_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _SOFTWARE, _TRACEPOINT, _CACHE = 0, 1, 2, 3
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR, _ENABLE_ON_EXEC = 1, 2, 1 << 5, 1 << 6, 1 << 12
_ENABLED_AND_RUNNING = 3  # read_format: total_time_enabled, total_time_running
_CLOSE_ON_EXEC = 8
_EVENT_FILES = (Path("/sys/kernel/tracing/events"), Path("/sys/kernel/debug/tracing/events"))

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Event:
    """Something that the kernel can count."""

    type: int
    config: int
    user_only: bool = True


HARDWARE = {
    "instructions": Event(_HARDWARE, 1),
    "branches": Event(_HARDWARE, 4),
    "branch_misses": Event(_HARDWARE, 5),
    # Cache events: cache | operation << 8 | result << 16.
    "l1_loads": Event(_CACHE, 0),
    "l1_load_misses": Event(_CACHE, 1 << 16),
    "ll_loads": Event(_CACHE, 2),
    "ll_load_misses": Event(_CACHE, 2 | 1 << 16),
}
SOFTWARE = {"page_faults": Event(_SOFTWARE, 2, user_only=False)}
OPENING = ("sys_enter_open", "sys_enter_openat", "sys_enter_openat2", "sys_enter_creat")


def tracepoints() -> dict[str, Event]:
    """The tracepoints of system calls that open files.

    Raises:
        OSError: tracefs is not mounted, or not for us.
    """
    problem = OSError(errno.ENOENT, "tracefs is not mounted at /sys/kernel/tracing")
    for folder in _EVENT_FILES:
        try:
            found = {}
            for name in OPENING:
                with suppress(FileNotFoundError):
                    number = int((folder / "syscalls" / name / "id").read_text())
                    found[name] = Event(_TRACEPOINT, number, user_only=False)
            if found:
                return found
        except OSError as error:
            problem = error
    raise problem


class PerfWatcher(Watcher):
    """Counts events of a process and of all it starts."""

    def __init__(self, events: Mapping[str, Event]) -> None:
        self.events = dict(events)
        self.problems: dict[str, OSError] = {}
        "Event → why the kernel would not count it."
        self._descriptors: dict[str, int] = {}

    def attach(self, process: int) -> None:
        for name, event in self.events.items():
            try:
                self._descriptors[name] = _open(event, process)
            except OSError as error:
                self.problems[name] = error

    def read(self, process: int) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for name in self.events:
            descriptor = self._descriptors.get(name)
            if descriptor is None:
                found[name] = None
                continue
            value, enabled, running = struct.unpack("=3Q", os.read(descriptor, 24))
            # Where there are more events than the processor has counters they take turns.
            found[name] = value * (enabled / running) if running else None
        return found

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


def _open(event: Event, process: int) -> int:
    number = _SYSTEM_CALL.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(errno.ENOSYS, "perf_event_open is not known here")
    flags = _DISABLED | _INHERIT | _ENABLE_ON_EXEC
    if event.user_only:
        flags |= _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    attribute = struct.pack("=IIQQQQQ", event.type, 128, event.config, 0, 0, _ENABLED_AND_RUNNING, flags)
    attribute = attribute.ljust(128, b"\0")
    descriptor = int(_libc.syscall(number, attribute, process, -1, -1, _CLOSE_ON_EXEC))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


def explained(error: OSError) -> tuple[str, str]:
    """Why the kernel refuses to count, and what can be done about it."""
    code = error.errno
    if code in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL):
        if "hypervisor" in _text("/proc/cpuinfo"):
            return (
                "the virtual machine has no virtual performance counters",
                "ask for an instance with a vPMU (often a metal one), or use callgrind, QEMU or ptrace",
            )
        return ("the processor or its driver does not count this", "use callgrind, QEMU or ptrace")
    if code == errno.EACCES:
        level = _text("/proc/sys/kernel/perf_event_paranoid").strip() or "?"
        return (
            f"kernel.perf_event_paranoid is {level}",
            "sysctl kernel.perf_event_paranoid=1, or give the process CAP_PERFMON",
        )
    if code == errno.EPERM:
        filtered = "Seccomp:\t2" in _text("/proc/self/status")
        reason = "a seccomp filter forbids perf_event_open" if filtered else "this user may not count"
        return (
            reason,
            "docker or podman run --cap-add PERFMON (with older ones --cap-add SYS_ADMIN, or --security-opt "
            "seccomp=unconfined)",
        )
    if code == errno.ENOSYS:
        return (
            "the kernel, or the container's sandbox, has no perf_event_open",
            "use callgrind, QEMU or ptrace",
        )
    return (str(error.strerror or error), "see `man perf_event_open`")


def _text(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text()
    return ""
