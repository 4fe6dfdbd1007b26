"""Tar archives from elsewhere, one file after the other: damaged ones are errors, bombs do not go off.

Python's `tarfile` takes a damaged header in the middle for the end of the archive, and leaves the checksum of
a compressed one unread. Here the rest of the archive must be empty, and is read to its end.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from apportion.errors import LimitExceeded, MalformedInput, UnreadableFile

MOST_RATIO = 200
"Times that an archive may be larger unpacked; source code and LLVM IR shrink to a tenth or twentieth."
FREE_BYTES = 64 << 20
"What any archive may hold unpacked, however small it is."
MOST_MEMBER_BYTES = 256 << 20
"Of one file, which is in memory at once."
_CHUNK = 1 << 20
_FORMATS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\0": lzma.open,
    b"BZh": bz2.open,
}
"How compressed files begin → what reads them."


def files_in(path: Path, suffixes: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    """Name and contents of each plain file, in the archive's order.

    Args:
        suffixes: ends of the names that are wanted, in small letters; all when not given.

    Raises:
        UnreadableFile: the archive is not there, or is none.
        MalformedInput: it is damaged or cut short; what was yielded before is as it was put in.
        LimitExceeded: it is larger unpacked than anything honest would be.
    """
    try:
        size = path.stat().st_size
        with _decompressed(path) as opened:
            stream = _Bounded(opened, max(FREE_BYTES, MOST_RATIO * size), path)
            with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r:") as archive:
                for member in archive:
                    wanted = not suffixes or Path(member.name).suffix.lower() in suffixes
                    if member.isfile() and wanted:
                        if member.size > MOST_MEMBER_BYTES:
                            raise LimitExceeded(
                                f"{path} holds {member.name} of {member.size:,} bytes; "
                                f"{MOST_MEMBER_BYTES:,} are the most for one file"
                            )
                        file = archive.extractfile(member)
                        data = file.read() if file is not None else b""
                        if len(data) != member.size:
                            raise MalformedInput(f"{member.name} is cut short", file=str(path))
                        yield member.name, data
            _check_end(stream, path)
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        if isinstance(error, MalformedInput):
            raise
        raise MalformedInput(f"No archive, damaged, or cut short: {error}", file=str(path)) from error
    except OSError as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"Cannot read {path}: {error.strerror or error}") from error


def _decompressed(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        start = file.read(6)
    for magic, reader in _FORMATS.items():
        if start.startswith(magic):
            return cast(BinaryIO, reader(path, "rb"))
    return path.open("rb")


class _Bounded(io.RawIOBase):
    """A file of limited length, which remembers what was read from it last."""

    def __init__(self, file: BinaryIO, most: int, path: Path) -> None:
        self._file, self._most, self._path = file, most, path
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        self._check(self._file.tell() + max(0, size))
        self.last = self._file.read(size if size >= 0 else self._most)
        return self.last

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:
            self._check(offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def _check(self, position: int) -> None:
        if position > self._most + tarfile.RECORDSIZE:
            raise LimitExceeded(
                f"{self._path} holds more than {self._most:,} bytes when it is unpacked, which is more than "
                f"{MOST_RATIO} times its size. Unpack it yourself if it is to be trusted"
            )


def _check_end(stream: _Bounded, path: Path) -> None:
    """An archive ends with a block of zeros, and holds nothing but zeros behind it."""
    if len(stream.last) < tarfile.BLOCKSIZE or any(stream.last):
        raise MalformedInput(
            "It is damaged or cut short: the files in it do not reach its end", file=str(path)
        )
    while chunk := stream.read(_CHUNK):
        if any(chunk):
            raise MalformedInput("It is damaged: something follows its end", file=str(path))
