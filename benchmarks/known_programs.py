"""Programs whose instructions are known one by one: made here byte by byte, for x86-64, without symbols.

All run the same loop of three additions of floating-point numbers, a decrement and a jump; one has it in its
file, the other writes it into fresh memory first, as a compiler does that works at run time.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from apportion.measure.counters.command import Command

TURNS = 20_000
ADD, DECREMENT = bytes.fromhex("f20f58c1"), bytes.fromhex("ffc9")
_LOOP = b"\xb9" + struct.pack("<I", TURNS) + 3 * ADD + DECREMENT + b"\x75" + struct.pack("b", -16)
_EXIT = bytes.fromhex("31ff b83c000000 0f05")
_BASE, _HEADERS = 0x400000, 64 + 56


@dataclass(frozen=True)
class KnownProgram:
    """A program and what a count of it must say."""

    name: str
    command: Command
    expected: Mapping[str, float]


def known_programs(folder: Path) -> tuple[KnownProgram, KnownProgram]:
    """Both programs, written to a folder."""
    return _in_file(folder), _in_fresh_memory(folder)


def _in_file(folder: Path) -> KnownProgram:
    """A move, the loop, and three instructions that end the process."""
    total = 4 + 5 * TURNS
    expected = {
        "instructions": total, "fp_ratio": 3 * TURNS / total, "int_ratio": (TURNS + 1) / total,
        "control_ratio": (TURNS + 1) / total, "mem_ratio": 0.0, "independent_ratio": 0.5,
    }  # fmt: skip
    command = Command((str(_written(folder / "loop", _LOOP + _EXIT)),))
    return KnownProgram("a loop in a file without symbols", command, expected)


def _in_fresh_memory(folder: Path) -> KnownProgram:
    """Eight instructions that map memory, five that copy the loop there and call it; it returns, and ends."""
    map_memory = bytes.fromhex(
        "b809000000 31ff be00100000 ba07000000 41ba22000000 49c7c0ffffffff 4531c9 0f05"
    )
    copied = _LOOP + b"\xc3"
    length = len(map_memory) + 3 + 7 + 5 + 2 + 2 + len(_EXIT)
    copy = bytes.fromhex("4889c7 48c7c6") + struct.pack("<I", _BASE + _HEADERS + length)
    copy += b"\xb9" + struct.pack("<I", len(copied)) + bytes.fromhex("f3a4 ffd0")
    total = 8 + 5 + 1 + 5 * TURNS + 1 + 3
    expected = {
        "instructions": total, "fp_ratio": 3 * TURNS / total, "int_ratio": (TURNS + 3) / total,
        "control_ratio": (TURNS + 4) / total, "mem_ratio": 3 / total, "independent_ratio": 0.5,
    }  # fmt: skip
    command = Command((str(_written(folder / "made", map_memory + copy + _EXIT + copied)),))
    return KnownProgram("the same loop, in memory made at run time", command, expected)


def _written(path: Path, code: bytes) -> Path:
    """An executable file with no symbols, no library and no other code than this."""
    entry, size = _BASE + _HEADERS, _HEADERS + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    path.write_bytes(header + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 4096) + code)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
