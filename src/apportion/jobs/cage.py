"""A cage: what a process may still do while it runs code that a stranger wrote, or a driver that compiled it.

The process enters by itself, before it sees anything of a stranger's, and never comes out: files by Landlock,
system calls by seccomp, capabilities and namespaces, limits on resources. What the machine cannot do is said
in the `Confinement`, so that a caller can refuse to go on.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from apportion.errors import InvalidSetting
from apportion.jobs import landlock, seccomp

if sys.platform != "win32":
    import resource

_PDEATHSIG, _CAPBSET_DROP, _AMBIENT, _AMBIENT_CLEAR_ALL = 1, 24, 47, 4  # prctl
_NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x08000000, 0x10000000, 0x40000000
_CAP_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH, _LAST_CAPABILITY = 1, 2, 63
_SIGKILL = 9
_NICENESS_BACK = 20  # RLIMIT_NICE: threads that gave way may come back to the ordinary class


@dataclass(frozen=True)
class Cage:
    """What is left to a process."""

    readable: tuple[str, ...] = ()
    "Files and folders that it may read."
    writable: tuple[str, ...] = ()
    "Folders in which it may also make, write, move and remove files."
    programs: tuple[str, ...] = ()
    "Programs that it may start; none: it cannot start any."
    devices: tuple[str, ...] = ()
    "Device files that it may read, write and control."
    open_files: int = 4096
    "Descriptors that it may hold."
    file_bytes: int = 4 << 30
    "Size of each file that it writes."
    private_bytes: int | None = None
    "Memory of its own, as far as it can be written to; None: no limit, as GPU drivers ask for address space."

    def __post_init__(self) -> None:
        for name in ("open_files", "file_bytes", "private_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {value}")

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """From plain values, as JSON brings them."""
        return cls(**_with_tuples(values))

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Confinement:
    """What holds a process, and what does not."""

    files: bool
    "It reaches the files it was given, and no others (Landlock)."
    system_calls: bool
    "Calls that reach beyond the process fail: no sockets, no signals or tracing of others (seccomp)."
    privileges: bool
    "It has no privileges and can gain none, even if a superuser started it."
    network: bool
    "It has no network; by a namespace of its own, or since no socket can be made."
    programs: tuple[str, ...] = ()
    "What it may start: nothing but this."
    devices: tuple[str, ...] = ()
    "Device files that stay open to it, and with them the drivers in the kernel."

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """What this machine could not do."""
        return tuple(
            name for name in ("files", "system_calls", "privileges", "network") if not getattr(self, name)
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values for a machine to read."""
        return {
            "whole": self.whole,
            "missing": [name.replace("_", " ") for name in self.missing],
            "programs": list(self.programs),
            "devices": list(self.devices),
        }

    def sentence(self) -> str:
        """The same in words."""
        said = (
            "Kernels run confined"
            if self.whole
            else f"Kernels run without limits on {', '.join(name.replace('_', ' ') for name in self.missing)}"
        )
        if self.devices:
            said += f"; open to them: {', '.join(self.devices)}"
        return f"{said}."


@dataclass(frozen=True)
class Entered:
    """What a process says once it is inside."""

    process: int
    "Its number."
    confinement: Confinement


NONE = Confinement(files=False, system_calls=False, privileges=False, network=False)
"A process that nothing holds."


def _with_tuples(values: Mapping[str, Any]) -> Any:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def enter(cage: Cage) -> Confinement:
    """Give up everything that the cage does not name, for ever; to be called before any thread is started.

    Nothing here raises where the kernel cannot do something: the result says what is missing.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _limit(cage)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")  # the first to go when memory runs out
    separate = _own_namespaces(libc)
    privileges = _drop_capabilities(libc)
    files = _restrict_files(cage)
    calls = False
    if seccomp.available():
        with suppress(OSError):
            seccomp.install(programs=bool(cage.programs))
            calls = True
    there = tuple(path for path in cage.devices if os.path.exists(path))
    return Confinement(files, calls, privileges, separate or calls, cage.programs, tuple(sorted(there)))


def tried(_: object = None) -> Confinement:
    """What would confine a process on this machine; the process that asks is then inside."""
    return enter(Cage(readable=("/",)))


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, _SIGKILL, 0, 0, 0)


def _limit(cage: Cage) -> None:
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: cage.open_files,
        resource.RLIMIT_FSIZE: cage.file_bytes,
    }
    if cage.private_bytes is not None:
        wanted[resource.RLIMIT_DATA] = cage.private_bytes
    for kind, value in wanted.items():
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (value, value))
    if hasattr(resource, "RLIMIT_NICE"):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NICE, (_NICENESS_BACK, _NICENESS_BACK))


def _own_namespaces(libc: ctypes.CDLL) -> bool:
    """A network and shared memory of its own; for ordinary users, by a user namespace.

    A superuser keeps the namespace that its files belong to, and loses its capabilities instead.
    """
    user, group = os.getuid(), os.getgid()
    if user == 0:
        return bool(libc.unshare(_NEW_NETWORK | _NEW_IPC) == 0)
    if libc.unshare(_NEW_USER | _NEW_NETWORK | _NEW_IPC) != 0:
        return False
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _drop_capabilities(libc: ctypes.CDLL) -> bool:
    """Keep none, but for the one by which a superuser reads and writes its own cache wherever it lies, within
    what Landlock leaves."""
    libc.prctl(_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, words = struct.pack("=Ii", _CAP_VERSION_3, 0), ctypes.create_string_buffer(24)
    if libc.capget(header, words) != 0:
        return False
    kept = 1 << _CAP_DAC_OVERRIDE | 1 << _CAP_DAC_READ_SEARCH if landlock.version() else 0
    low = struct.unpack("=6I", words.raw)
    held = low[1] & kept & 0xFFFFFFFF
    for capability in range(_LAST_CAPABILITY + 1):
        if not held >> capability & 1:
            libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    return bool(libc.capset(header, struct.pack("=6I", held, held, 0, 0, 0, 0)) == 0)


def _restrict_files(cage: Cage) -> bool:
    if not landlock.version():
        return False
    rights: Iterable[tuple[Path, int]] = [
        *((Path(path), landlock.READ) for path in cage.readable),
        *((Path(path), landlock.KEEP) for path in cage.writable),
        *((Path(path), landlock.EXECUTE) for path in cage.programs),
        *((Path(path), landlock.DEVICE) for path in cage.devices),
    ]
    try:
        descriptor = landlock.ruleset(rights)
    except OSError:
        return False
    try:
        landlock.restrict_this_thread(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
