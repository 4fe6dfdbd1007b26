"""Arrays of NPZ archives, checked against what a file of its kind must hold; large ones in chunks of rows.

`numpy.load` reads a member whole and would unpickle objects; here nothing is unpickled, and a member of
gigabytes passes through memory a few megabytes at a time.
"""

from __future__ import annotations

import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from apportion.errors import MalformedInput, UnreadableFile

Member = tuple[str, int]
"What an array must be: its type, and its number of dimensions."

DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, SyntaxError, EOFError, ValueError,
    RuntimeError, OverflowError, MemoryError, OSError,
)  # fmt: skip
"""What reading arrays raises: a RuntimeError for a compression or encryption that Python has not, errors of
Python's own parser for a header that is none, a MemoryError for one that promises more than there is."""


class NpzFile:
    """An archive that is open for reading; use it in a `with`.

    Raises:
        UnreadableFile: there is no such file.
        MalformedInput: it is no archive, is cut short, lacks an array, or has one of another type.
    """

    def __init__(
        self, path: Path, members: Mapping[str, Member], optional: Mapping[str, Member] | None = None
    ) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except OSError as error:
            raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
        except (zipfile.BadZipFile, RuntimeError, ValueError) as error:
            raise self.broken(f"it is no NPZ archive, or was cut short ({error})") from error
        self.shapes: dict[str, tuple[int, ...]] = {}
        try:
            self._check(members, optional or {})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._archive.close()

    def read(self, name: str) -> NDArray[Any]:
        """A whole array."""
        parts = list(self.rows(name, max(1, self.shapes[name][0])))
        return parts[0] if parts else np.zeros(self.shapes[name], self._dtypes[name])

    def rows(self, name: str, chunk: int) -> Iterator[NDArray[Any]]:
        """An array in pieces of at most `chunk` rows, in order.

        Raises:
            MalformedInput: the archive is damaged; also found by its checksum after the last row.
        """
        (count, *rest), dtype = self.shapes[name], self._dtypes[name]
        row_bytes = dtype.itemsize * int(np.prod(rest, dtype=np.int64))
        try:
            with self._archive.open(f"{name}.npy") as opened:
                stream = cast(BinaryIO, opened)
                _header(stream)
                for first in range(0, count, chunk):
                    here = min(chunk, count - first)
                    data = stream.read(here * row_bytes)
                    if len(data) != here * row_bytes:
                        raise EOFError("the data end before the array does")
                    yield np.frombuffer(data, dtype).reshape(here, *rest)
                if stream.read(1):
                    raise ValueError("there are data behind the end of the array")
        except DAMAGE as error:
            raise self.broken(f"{name} cannot be read ({error})") from error

    def broken(self, problem: str) -> MalformedInput:
        """The error that says what is wrong with this file."""
        return MalformedInput(f"{problem}. Download or unpack it again.", file=str(self.path))

    def _check(self, members: Mapping[str, Member], optional: Mapping[str, Member]) -> None:
        there = {name.removesuffix(".npy") for name in self._archive.namelist()}
        lacking = [name for name in members if name not in there]
        if lacking:
            raise self.broken(f"it has no {lacking[0]}, only {', '.join(sorted(there)) or 'nothing'}")
        self._dtypes: dict[str, np.dtype[Any]] = {}
        extra = {name: member for name, member in optional.items() if name in there}
        for name, (kind, dimensions) in {**members, **extra}.items():
            try:
                with self._archive.open(f"{name}.npy") as stream:
                    shape, fortran, dtype = _header(cast(BinaryIO, stream))
            except DAMAGE as error:
                raise self.broken(f"{name} cannot be read ({error})") from error
            if dtype != np.dtype(kind) or len(shape) != dimensions or (fortran and dimensions > 1):
                order = " in column order" if fortran else ""
                raise self.broken(
                    f"{name} has type {dtype} and shape {shape}{order}, not type {kind} "
                    f"and {dimensions} dimensions"
                )
            self.shapes[name], self._dtypes[name] = shape, dtype


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(stream)
    reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = reader(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled")
    return shape, fortran, dtype
