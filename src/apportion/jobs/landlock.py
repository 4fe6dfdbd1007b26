"""Landlock: a thread of this process gives up its right to files, and its children never get it back.

Linux since 5.13, without privileges (`man 7 landlock`). The restriction belongs to the *thread* that asks for
it and to the processes it starts, so `child.run` lends one short-lived thread to it and the rest of the
process goes on as before. `stat` is not covered: whether a file exists can still be seen.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture but Alpha
_CREATE_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38  # prctl; Landlock asks for it

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_SPECIAL_FILES = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11  # devices, sockets, pipes
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_FILE_SYSTEM_BITS = {1: 13, 2: 14, 3: 15, 4: 15}  # by version; 16 from version 5 on
_TCP = 0b11  # bind and connect, from version 4
_SCOPED = 0b11  # abstract sockets and signals to the outside, from version 6

READ = _READ_FILE | _READ_DIR
EXECUTE = READ | _EXECUTE
LIST = _READ_DIR
WRITE = ((1 << 13) - 1 | _TRUNCATE) & ~_EXECUTE
"Read, write, make and remove: all but execute."
KEEP = (WRITE | _REFER) & ~_SPECIAL_FILES
"The same for plain files and folders, which may also be moved from one folder to another."
DEVICE = READ | _WRITE_FILE | _IOCTL_DEVICE
"Read, write and control, but make and remove nothing."

if sys.platform != "win32":
    _libc = ctypes.CDLL(None, use_errno=True)


@cache
def version() -> int:
    """The Landlock version of the running kernel; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _CREATE_VERSION)))


def ruleset(rights: Iterable[tuple[Path, int]]) -> int:
    """A file descriptor that stands for "these paths, with these rights, and nothing else".

    Paths that cannot be reached are left out. The caller closes it.

    Raises:
        OSError: the kernel has no Landlock, or refuses a rule.
    """
    handled = (1 << _FILE_SYSTEM_BITS.get(version(), 16)) - 1
    words = [handled]
    if version() >= 4:
        words.append(_TCP)
    if version() >= 6:
        words.append(_SCOPED)
    attribute = struct.pack(f"={len(words)}Q", *words)
    descriptor = _checked(_libc.syscall(_CREATE_RULESET, attribute, len(attribute), 0))
    try:
        for path, right in rights:
            _allow(descriptor, path, right & handled)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def restrict_this_thread(descriptor: int) -> None:
    """Give up, for ever, everything that the ruleset does not name.

    Raises:
        OSError: the kernel refuses.
    """
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_libc.syscall(_RESTRICT_SELF, descriptor, 0))


def _allow(descriptor: int, path: Path, right: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what we cannot reach, the child cannot either
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            right &= _FILE_RIGHTS
        _checked(_libc.syscall(_ADD_RULE, descriptor, _PATH_BENEATH, struct.pack("=Qi", right, place), 0))
    finally:
        os.close(place)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result
