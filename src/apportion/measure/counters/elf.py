"""The code in an object file (ELF, 64 bits), by the addresses that the file itself uses."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_LOADED, _EXECUTABLE = 1, 1
_AT_FIXED_ADDRESSES = 2  # e_type ET_EXEC


@dataclass(frozen=True, eq=False)
class ObjectFile:
    """What a file would put into memory."""

    data: bytes | mmap.mmap
    segments: tuple[tuple[int, int, int, bool], ...]
    "Address, place in the file, size, and whether it is code; of each part that is loaded."
    fixed: bool = False
    "Whether it is loaded at the addresses that it names itself."

    @classmethod
    def read(cls, path: str | Path) -> Self | None:
        """The file, or None when it is not there or no such file."""
        try:
            with Path(path).open("rb") as file:  # hundreds of MB, of which a little is looked at
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if data[:5] != b"\x7fELF\x02":
                return None
            order = "<" if data[5] == 1 else ">"
            (kind_of_file,) = struct.unpack_from(f"{order}H", data, 16)
            (table,) = struct.unpack_from(f"{order}Q", data, 32)
            size, count = struct.unpack_from(f"{order}2H", data, 54)
            segments = []
            for number in range(count):
                kind, flags, place, address, _, length = struct.unpack_from(
                    f"{order}2I4Q", data, table + number * size
                )
                if kind == _LOADED:
                    segments.append((address, place, length, bool(flags & _EXECUTABLE)))
        except (OSError, ValueError, struct.error):
            return None
        return cls(data, tuple(segments), kind_of_file == _AT_FIXED_ADDRESSES)

    def at(self, address: int, size: int) -> bytes:
        """The bytes at an address; fewer at the end of a segment, none where nothing is loaded."""
        for start, place, length, _ in self.segments:
            if start <= address < start + length:
                begin = place + address - start
                return self.data[begin : min(begin + size, place + length)]
        return b""

    def code(self) -> Iterator[bytes]:
        """Each part that can be executed."""
        for _, place, length, executable in self.segments:
            if executable:
                yield self.data[place : place + length]
