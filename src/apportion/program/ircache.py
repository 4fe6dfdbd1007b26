"""IR that was made before, kept by the hash of everything it was made from.

Each entry begins with the hash of its own text, so that one that was cut short or damaged counts as absent.
The folder stays below `MOST_BYTES`: what has not been used for longest goes first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from apportion.settings import cache_folder, whole_file

FORMAT = "apportion-ir-1"
"Changes when entries of older versions must no longer be used."

MOST_BYTES = 512 << 20
_STORES_BETWEEN_LOOKS = 64  # adding up the folder takes longer than storing one entry

_stores = count()


def key_of(parts: Iterable[str | bytes]) -> str:
    """The hash of these parts; no two different lists of parts have the same."""
    digest = hashlib.sha256(FORMAT.encode())
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def load(key: str) -> str | None:
    """The text kept under a key, or None."""
    try:
        path = _path(key)
        head, _, body = path.read_bytes().partition(b"\n")
        if head != _head(body):
            return None
        with suppress(OSError):
            os.utime(path)  # it was used: it goes last
        return body.decode()
    except (OSError, UnicodeDecodeError):
        return None


def store(key: str, text: str) -> None:
    """Keep a text under a key; a cache that cannot be written is no reason to fail."""
    body = text.encode()
    with suppress(OSError):
        path = _path(key)
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as part:
            part.write_bytes(_head(body) + b"\n" + body)
        if next(_stores) % _STORES_BETWEEN_LOOKS == 0:
            shrink(cache_folder("ir"), MOST_BYTES)


def shrink(folder: Path, most_bytes: int) -> None:
    """Remove the entries that were used longest ago, until the rest take less than four fifths of this."""
    entries = []
    for path in folder.glob("*/*"):
        with suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= most_bytes:
        return
    for _, size, path in sorted(entries):
        if total <= 0.8 * most_bytes:
            return
        with suppress(OSError):
            path.unlink()
            total -= size


def _path(key: str) -> Path:
    return cache_folder("ir") / key[:2] / key[2:]


def _head(body: bytes) -> bytes:
    return f"{FORMAT} {hashlib.sha256(body).hexdigest()}".encode()
