"""The wire format of protocol buffers, as far as program graphs and HLO need it: fields in, fields out.

A message is a sequence of fields, each a number, a type and a value. Which numbers mean what is the business
of the reader; fields that it does not know are passed over, as the format intends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import MalformedInput

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Field = tuple[int, int | bytes]

_FLAG = bytes((0x0A, 0x05, 0x1A, 0x03, 0x0A, 0x01))
"What precedes a value below 128 in a list of features that have one integer each."


def fields(data: bytes) -> Iterator[Field]:
    """The fields of a message: number and value, an int for a varint, bytes for everything else.

    Raises:
        MalformedInput: the message is cut short, or is none; the caller knows the file.
    """
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            yield number, value
            continue
        if kind == BYTES:
            size, place = _varint(data, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise MalformedInput(f"byte {place} is no field of a protocol buffer")
        if number == 0 or place + size > end:
            raise MalformedInput(f"the message ends before its field {number} at byte {place} does")
        yield number, data[place : place + size]
        place += size


def varints(data: bytes) -> list[int]:
    """The signed numbers of a packed field."""
    values, place = [], 0
    while place < len(data):
        value, place = _varint(data, place)
        values.append(signed(value))
    return values


def signed(value: int) -> int:
    """A varint as the signed 64-bit number it stands for."""
    return value - (1 << 64) if value >> 63 else value


def flags(data: bytes) -> NDArray[np.int64] | None:
    """A FeatureList of one small integer each, all at once; None when it is written in another way."""
    if len(data) % 7:
        return None
    rows = np.frombuffer(data, np.uint8).reshape(-1, 7)
    if not np.array_equal(rows[:, :6], np.broadcast_to(np.frombuffer(_FLAG, np.uint8), (len(rows), 6))):
        return None
    return rows[:, 6].astype(np.int64) if not np.any(rows[:, 6] & 0x80) else None


def flag_bytes(values: NDArray[Any]) -> bytes:
    """The inverse of `flags`, for values below 128."""
    rows = np.empty((len(values), 7), np.uint8)
    rows[:, :6] = np.frombuffer(_FLAG, np.uint8)
    rows[:, 6] = values
    return rows.tobytes()


def message(parts: Iterable[Field]) -> bytes:
    """The bytes of a message with these fields; a zero or an empty text is left out, as the format has it."""
    out = bytearray()
    for number, value in parts:
        if isinstance(value, int):
            if value:
                out += _varint_bytes(number << 3 | VARINT) + _varint_bytes(value)
        else:
            out += _varint_bytes(number << 3 | BYTES) + _varint_bytes(len(value)) + value
    return bytes(out)


def packed(values: Iterable[int]) -> bytes:
    """Numbers as a packed field holds them."""
    return b"".join(_varint_bytes(value) for value in values)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    if place < len(data) and data[place] < 0x80:  # most numbers have one byte
        return data[place], place + 1
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise MalformedInput(f"the message ends within a number at byte {place}")
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _varint_bytes(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
