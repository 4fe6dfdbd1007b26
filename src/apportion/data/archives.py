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
from apportion.settings import replace_file

MOST_RATIO = 200
"Times that an archive may be larger unpacked; source code and LLVM IR shrink to a tenth or twentieth."
FREE_BYTES = 64 << 20
"What any archive may hold unpacked, however small it is."
MOST_MEMBER_BYTES = 256 << 20
"Of one file, which is in memory at once."
MOST_KNOWN_MEMBER_BYTES = 4 << 30
"The same in an archive whose unpacked size is published."
_CHUNK = 1 << 20
_FORMATS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\0": lzma.open,
    b"BZh": bz2.open,
}
"How compressed files begin → what reads them."


def unpack(path: Path, folder: Path, *, most: int = 0) -> int:
    """Write an archive's files and its links to them below a folder; how many files there were.

    Args:
        most: bytes that it may hold unpacked, where that is known; else as `files_in` has it.

    Raises:
        UnreadableFile, MalformedInput, LimitExceeded: as `files_in`; a name or a link that leads out of the
            folder is damage too.
    """
    count = 0
    for name, data in _members(path, (), most, MOST_KNOWN_MEMBER_BYTES if most else MOST_MEMBER_BYTES):
        target = _inside(folder, folder / name, path)
        if isinstance(data, bytes):
            replace_file(target, data)
            count += 1
            continue
        _inside(folder, target.parent / data, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.symlink_to(data)
    return count


def _inside(folder: Path, target: Path, archive: Path) -> Path:
    """A path as it is written, if it lies below a folder even where links lie on the way to it."""
    if not target.resolve().is_relative_to(folder.resolve()):
        raise MalformedInput(f"it holds {str(target)!r}, which leads out of the folder", file=str(archive))
    return target


def files_in(path: Path, suffixes: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    """Name and contents of each plain file, in the archive's order.

    Args:
        suffixes: ends of the names that are wanted, in small letters; all when not given.

    Raises:
        UnreadableFile: the archive is not there, or is none.
        MalformedInput: it is damaged or cut short; what was yielded before is as it was put in.
        LimitExceeded: it is larger unpacked than anything honest would be.
    """
    for name, data in _members(path, suffixes, 0, MOST_MEMBER_BYTES):
        if isinstance(data, bytes):
            yield name, data


def _members(
    path: Path, suffixes: Collection[str], most: int, most_member: int
) -> Iterator[tuple[str, bytes | str]]:
    """Each plain file with its contents, each symbolic link with what it points to.

    Raises:
        UnreadableFile: the archive is not there, or is none.
        MalformedInput: it is damaged or cut short; what was yielded before is as it was put in.
        LimitExceeded: it is larger unpacked than anything honest would be.
    """
    try:
        size = path.stat().st_size
        with _decompressed(path) as opened:
            stream = _Bounded(
                opened, max(FREE_BYTES, most or MOST_RATIO * size), path,
                "it is known to hold" if most else f"{MOST_RATIO} times its size",
            )  # fmt: skip
            with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r:") as archive:
                for member in archive:
                    if member.issym() and not suffixes:
                        yield member.name, member.linkname
                    wanted = not suffixes or Path(member.name).suffix.lower() in suffixes
                    if member.isfile() and wanted:
                        if member.size > most_member:
                            raise LimitExceeded(
                                f"{path} holds {member.name} of {member.size:,} bytes; "
                                f"{most_member:,} are the most for one file"
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

    def __init__(self, file: BinaryIO, most: int, path: Path, why: str) -> None:
        self._file, self._most, self._path, self._why = file, most, path, why
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
                f"{self._why}. Unpack it yourself if it is to be trusted"
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
