"""Seccomp: a process gives up, for ever, all system calls but those of one table.

Linux since 3.17, without privileges (`man 2 seccomp`). The table was found by tracing (`strace -f`) PoCL 3
from pip and Intel's CPU runtime from start to the end of a run, and widened by what CUDA's driver is known to
use. A call that is not in it fails with EPERM, or with ENOSYS where it is younger than Linux 5.3, which C
libraries take as a hint to use the older one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_HARMLESS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "lseek": (8, 62), "close": (3, 57),
    "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "flock": (73, 32),
    "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "truncate": (76, 45),
    "fallocate": (285, 47), "fadvise64": (221, 223), "pipe": (22, None), "pipe2": (293, 59),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "eventfd": (284, None), "eventfd2": (290, 19),
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    "recvfrom": (45, 207), "recvmsg": (47, 212), "sendto": (44, 206), "sendmsg": (46, 211),
    "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205), "getsockopt": (55, 209),
    "setsockopt": (54, 208), "open": (2, None), "openat": (257, 56), "creat": (85, None),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents": (78, None), "getdents64": (217, 61), "getcwd": (79, 17),
    "chdir": (80, 49), "fchdir": (81, 50), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "symlink": (88, None), "symlinkat": (266, 36), "statfs": (137, 43),
    "fstatfs": (138, 44), "umask": (95, 166), "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216),
    "mprotect": (10, 226), "madvise": (28, 233), "brk": (12, 214), "mlock": (149, 228),
    "munlock": (150, 229), "mlock2": (325, 284), "mincore": (27, 232), "msync": (26, 227),
    "mbind": (237, 235), "get_mempolicy": (239, 236), "set_mempolicy": (238, 237),
    "membarrier": (324, 283), "memfd_create": (319, 279), "futex": (202, 98),
    "set_robust_list": (273, 99), "rseq": (334, 293), "set_tid_address": (218, 96), "gettid": (186, 178),
    "getpid": (39, 172), "getppid": (110, 173), "getpgrp": (111, None), "getpgid": (121, 155),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "sched_setaffinity": (203, 122), "sched_getscheduler": (145, 120),
    "sched_getparam": (143, 121), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "getpriority": (140, 141), "getcpu": (309, 168),
    "arch_prctl": (158, None), "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260),
    "waitid": (247, 95), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137),
    "rt_sigpending": (127, 136), "sigaltstack": (131, 132), "pause": (34, None),
    "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "getitimer": (36, 102), "setitimer": (38, 103), "alarm": (37, None), "timer_create": (222, 107),
    "timer_settime": (223, 110), "timer_gettime": (224, 108), "timer_delete": (226, 111),
    "times": (100, 153), "getrusage": (98, 165), "uname": (63, 160), "sysinfo": (99, 179),
    "getrandom": (318, 278), "getrlimit": (97, 163), "capget": (125, 90),
}  # fmt: skip
"""Calls that reach nothing but the process itself, its open files, and paths that Landlock judges →
their numbers on x86-64 and on AArch64."""

_JUDGED: dict[str, tuple[int | None, int | None]] = {
    "fcntl": (72, 25), "ioctl": (16, 29), "kill": (62, 129), "tgkill": (234, 131), "prctl": (157, 167),
    "prlimit64": (302, 261), "sched_setscheduler": (144, 119), "clone": (56, 220), "execve": (59, 221),
    "vfork": (58, None),
}  # fmt: skip
"Calls that are let through with some arguments only."

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"Machine → its column of the tables, and what the kernel calls it (`linux/audit.h`)."
_X32 = 0x40000000
"Numbers from here on are those of x86's x32 interface, which would go round the table."
_FIRST_YOUNG = 424

_CLONE_THREAD, _CLONE_SPAWN = 0x00010000, 0x00004111  # the latter: CLONE_VM | CLONE_VFORK | SIGCHLD
_NAMESPACES = 0x7E020080
"Every CLONE_NEW… flag."
_FCNTL_SIGNALS = (8, 10, 15, 1026)
"F_SETOWN, F_SETSIG, F_SETOWN_EX and F_NOTIFY: they make the kernel send signals to others."
_IOCTL_REACHES_OUT = (0x5412, 0x541C, 0x540E, 0x8901, 0x8902, 0x5452)
"TIOCSTI, TIOCLINUX, TIOCSCTTY, FIOSETOWN, SIOCSPGRP, FIOASYNC: input for terminals, signals to others."
_PRCTL_OWN = (2, 3, 15, 16, 21, 23, 29, 30, 39, 41, 42, 0x53564D41)
"Names of threads and of memory, timer slack, huge pages, and questions."
_SCHED_OTHER, _SCHED_IDLE = 0, 5

_SET_MODE_FILTER = 1
_ALL_THREADS, _SPECULATION_AS_BEFORE = 1, 4  # the latter: no slower branches and loads inside
_GET_ACTION_AVAILABLE = 2
_NO_NEW_PRIVILEGES = 38
_CALL = {"x86_64": 317, "aarch64": 277}

_LOAD, _EQUAL, _GREATER_OR_EQUAL, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16


@dataclass(frozen=True)
class OneOf:
    """The lower half of an argument is one of these values."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class NoneOf:
    """The lower half of an argument is none of these values."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Bits:
    """Some bits of an argument are set, and others are not."""

    argument: int
    on: int = 0
    off: int = 0


Condition = OneOf | NoneOf | Bits
Instruction = tuple[int, int, int, int]


def available() -> bool:
    """Whether this kernel filters system calls, and this machine is one whose numbers we know."""
    if not sys.platform.startswith("linux") or platform.machine() not in _CALL:
        return False
    action = struct.pack("=I", _ERROR)
    return _seccomp(_GET_ACTION_AVAILABLE, 0, action) == 0


def install(*, programs: bool) -> None:
    """Hold every thread of this process, and every program that it starts, to the table.

    Args:
        programs: whether it may start other programs, as `posix_spawn` does; a plain fork is refused anyway.

    Raises:
        OSError: the kernel refuses.
    """
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in program(platform.machine(), os.getpid(), programs=programs)
    )
    kept = ctypes.create_string_buffer(code)
    described = struct.pack("@HP", len(code) // 8, ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0 or _seccomp(
        _SET_MODE_FILTER, _ALL_THREADS | _SPECULATION_AS_BEFORE, described
    ):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def program(machine: str, process: int, *, programs: bool) -> list[Instruction]:
    """The filter, in the kernel's language: `code, jump if true, jump if false, value`."""
    column, architecture = _ARCHITECTURES[machine]
    lines: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        lines += [(_GREATER_OR_EQUAL, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    for numbers in _HARMLESS.values():
        if (number := numbers[column]) is not None:
            lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for name, alternatives in _judgements(process, programs=programs).items():
        number = _JUDGED[name][column]
        if number is None:
            continue
        block = [line for each in alternatives for line in _alternative(each)]
        block.append((_RETURN, 0, 0, _ERROR | errno.EPERM))
        lines += [(_EQUAL, 0, len(block), number), *block]
    lines += [
        (_GREATER_OR_EQUAL, 0, 1, _FIRST_YOUNG),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
    ]
    return lines


def _judgements(process: int, *, programs: bool) -> dict[str, list[tuple[Condition, ...]]]:
    """Call → the alternatives, each of several conditions, in which it is let through."""
    found: dict[str, list[tuple[Condition, ...]]] = {
        "fcntl": [(NoneOf(1, _FCNTL_SIGNALS),)],
        "ioctl": [(NoneOf(1, _IOCTL_REACHES_OUT),)],
        "kill": [(OneOf(0, (process,)),)],
        "tgkill": [(OneOf(0, (process,)),)],
        "prctl": [(OneOf(0, _PRCTL_OWN),)],
        "prlimit64": [(OneOf(0, (0, process)), Bits(2, off=0xFFFFFFFFFFFFFFFF))],  # to ask, not to set
        "sched_setscheduler": [(OneOf(1, (_SCHED_OTHER, _SCHED_IDLE)),)],
        "clone": [(Bits(0, on=_CLONE_THREAD, off=_NAMESPACES),)],
    }
    if programs:
        found["clone"].append((OneOf(0, (_CLONE_SPAWN,)),))
        found["vfork"] = [()]
        found["execve"] = [()]
    return found


def _alternative(conditions: Sequence[Condition]) -> list[Instruction]:
    """Let the call through if all conditions hold; else go on with what follows."""
    lines: list[Instruction] = [(_RETURN, 0, 0, _ALLOW)]
    for condition in reversed(conditions):
        lines = [*_test(condition, len(lines)), *lines]
    return lines


def _test(condition: Condition, ahead: int) -> list[Instruction]:
    """Go on if a condition holds; else jump over the rest of the alternative."""
    low = _ARGUMENTS_AT + 8 * condition.argument
    if isinstance(condition, Bits):
        lines: list[Instruction] = []
        for half in (1, 0):
            on, off = (word >> 32 * half & 0xFFFFFFFF for word in (condition.on, condition.off))
            step: list[Instruction] = []
            if on or off:
                step = [(_LOAD, 0, 0, low + 4 * half)]
                if off:
                    step.append((_ANY_BIT, -1, 0, off))
                if on:
                    step += [(_AND, 0, 0, on), (_EQUAL, 0, -1, on)]
            lines += step
        return _resolved(lines, ahead)
    if isinstance(condition, NoneOf):
        return _resolved([(_LOAD, 0, 0, low), *((_EQUAL, -1, 0, value) for value in condition.values)], ahead)
    last = len(condition.values) - 1
    return _resolved(
        [
            (_LOAD, 0, 0, low),
            *(
                (_EQUAL, last - at, -1 if at == last else 0, value)
                for at, value in enumerate(condition.values)
            ),
        ],
        ahead,
    )


def _resolved(lines: list[Instruction], ahead: int) -> list[Instruction]:
    """The same with −1 replaced by the jump that leaves the alternative."""
    found = []
    for at, (code, true, false, value) in enumerate(lines):
        out = len(lines) - 1 - at + ahead
        found.append((code, out if true < 0 else true, out if false < 0 else false, value))
    return found


def _seccomp(operation: int, flags: int, argument: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(_CALL[platform.machine()], operation, flags, argument))
