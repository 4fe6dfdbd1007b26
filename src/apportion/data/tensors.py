"""Several arrays in one file that is mapped, not read: the safetensors format, written in pieces.

The format is eight bytes that give the length of a JSON header, the header (name → type, shape, place), and
the arrays' bytes one after the other. Other programs read it with the `safetensors` package. Here an array
may come as a file of raw bytes, so that one larger than memory can be written.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import MalformedInput, UnreadableFile
from apportion.settings import whole_file

TYPES = {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "U16": "<u2", "U8": "|u1"}
_NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}


@dataclass(frozen=True)
class RawArray:
    """An array whose bytes lie in a file."""

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes the file must have."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


def write_tensors(
    path: Path, arrays: Mapping[str, NDArray[Any] | RawArray], metadata: Mapping[str, str]
) -> None:
    """Write a file that is there whole or not at all."""
    # Wide types first, so that each array begins at a multiple of its item's size.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    place = 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": _NAMES[array.dtype], "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }  # fmt: skip
        place += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(path) as part, part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            array = arrays[name]
            if isinstance(array, RawArray):
                with array.path.open("rb") as raw:
                    shutil.copyfileobj(raw, file, 1 << 20)
            else:
                file.write(np.ascontiguousarray(array).tobytes())


def map_tensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a file, mapped for reading, and its metadata.

    Raises:
        UnreadableFile: there is no such file.
        MalformedInput: it is of another kind or was cut short.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > size:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if 8 + length + end != size:
            raise ValueError(f"it has {size:,} bytes instead of {8 + length + end:,}")
        # Plain arrays over one map: numpy's own class of mapped arrays makes every slice slower.
        whole: NDArray[np.uint8] = np.asarray(np.memmap(path, np.uint8, mode="r"))[8 + length :]
        arrays: dict[str, NDArray[Any]] = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            arrays[name] = whole[first:last].view(TYPES[entry["dtype"]]).reshape(entry["shape"])
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        problem = f"It is damaged ({error}). Delete it and pack again."
        raise MalformedInput(problem, file=str(path)) from error
    return arrays, metadata
