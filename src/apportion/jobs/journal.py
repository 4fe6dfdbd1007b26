"""Journals: files of JSON Lines from which work that was interrupted goes on.

What `add` returned from is there for the next run, whole. A last line that was cut off, by a kill or a full
disk, is forgotten; a wrong line anywhere else is an error, since something else wrote it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from apportion.errors import MalformedInput, UnreadableFile
from apportion.jobs.holding import held, lock

Entry = dict[str, Any]


class Journal:
    """Entries in a file, one line each.

    Args:
        path: the file; its folder is made with the first entry.
        sync: wait until an entry is on the disk, not only with the operating system: it then outlives a power
            failure, at some milliseconds each.
    """

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path, self.sync = path, sync
        self._held: IO[bytes] | None = None
        self._seen = self._lines = 0
        "Bytes and lines that were read."

    def entries(self) -> list[Entry]:
        """Every whole entry, in the order in which they were added.

        Raises:
            UnreadableFile, MalformedInput: the file cannot be read, or holds something else.
        """
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise UnreadableFile(f"Cannot read {self.path}: {error.strerror}") from error
        return self._parsed(data[: _whole(data)], 1)

    def _parsed(self, data: bytes, first: int) -> list[Entry]:
        found: list[Entry] = []
        for number, line in enumerate(data.splitlines(), first):
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise MalformedInput(
                    f"not a line of a journal ({error})", file=str(self.path), line=number
                ) from error
            if not isinstance(entry, dict):
                raise MalformedInput("not an entry of a journal", file=str(self.path), line=number)
            found.append(entry)
        return found

    def add(self, *entries: Mapping[str, Any]) -> None:
        """Write entries behind the others: all of them, or after an interruption the first few.

        Raises:
            UnreadableFile: the file cannot be written.
        """
        text = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
        with self._open() as file:
            try:
                file.write(text)
                file.flush()
                if self.sync:
                    os.fsync(file.fileno())
            except OSError as error:
                raise UnreadableFile(f"Cannot write {self.path}: {error.strerror}") from error

    def keep(self, count: int) -> None:
        """Forget all but the first so many entries."""
        with self._open() as file:
            file.seek(0)
            file.truncate(sum(len(line) for line in file.readlines()[:count]))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from the same work; the file stays open, so that adding is quick.

        Raises:
            AlreadyWritten: another process does that work.
        """
        with held(self.path), self._open() as file:
            self._held = file
            try:
                yield
            finally:
                self._held = None

    @contextmanager
    def turn(self) -> Iterator[list[Entry]]:
        """Keep other processes from reading and adding for a moment; what was added since the last turn.

        Processes that share a journal look at what the others did, and then add, without one between.

        Raises:
            UnreadableFile, MalformedInput: the file cannot be used, or holds something else.
        """
        with self._open() as file:
            file.seek(self._seen)
            data = file.read()
            new = self._parsed(data, self._lines + 1)
            self._seen, self._lines = self._seen + len(data), self._lines + len(new)
            self._held = file
            try:
                yield new
            finally:
                self._held = None
                added = os.fstat(file.fileno()).st_size - self._seen
                file.seek(self._seen)
                self._lines += file.read(added).count(b"\n")
                self._seen += added

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        """The file, locked, with its end at the end of the last whole line."""
        if self._held is not None:
            yield self._held
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("a+b")
        except OSError as error:
            raise UnreadableFile(f"Cannot write {self.path}: {error.strerror}") from error
        with file:
            lock(file.fileno(), wait=True)
            file.seek(0)
            data = file.read()
            if _whole(data) < len(data):
                file.truncate(_whole(data))
            yield file


class Results:
    """Results by what they were made from: each is made once, and read from the journal from then on.

    Args:
        path: the journal.
        digits: hexadecimal digits of the hash that names a result.
    """

    def __init__(self, path: Path, *, digits: int = 16) -> None:
        self._journal, self._digits = Journal(path), digits
        self._known = {entry["key"]: entry for entry in self._journal.entries()}

    def get(self, made_from: object, make: Callable[[], Mapping[str, Any]]) -> Entry:
        """What was made from this, now or before.

        Args:
            made_from: everything that the result depends on, as JSON can say it.
            make: makes the entry where it is not known.
        """
        key = digest_of(made_from, digits=self._digits)
        if key not in self._known:
            # As it is read next time, so that it does not matter who made it.
            entry: Entry = json.loads(json.dumps({"key": key, **make()}))
            self._journal.add(entry)
            self._known[key] = entry
        return self._known[key]


def digest_of(made_from: object, *, digits: int = 16) -> str:
    """A hash of what JSON can say; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:digits]


def _whole(data: bytes) -> int:
    """Bytes up to the end of the last whole line."""
    return data.rfind(b"\n") + 1
