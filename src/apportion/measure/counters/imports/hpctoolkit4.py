"""HPCToolkit's databases since 2022 (version 4): `meta.db` names the metrics, `profile.db` has their values.

By the description that HPCToolkit puts into each database (FORMATS.md); docs/decisions/0006 says why not
through hatchet.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from apportion.errors import MalformedInput, UnreadableFile

_Found = TypeVar("_Found")
_VERSION = 4
_EXECUTION = 2  # the scope that includes all that was called: an inclusive metric
_SUM = 0  # how the values of threads are combined
_ITSELF = "$$"  # the formula of a value that is combined as it is
_SUMMARY = 1  # a flag of profiles of several threads; the first profile is that of all
_EVERYWHERE = 0  # the context above all others


def read(folder: Path) -> tuple[str, dict[str, float], dict[str, float], int]:
    """The program's name; event → its sum over all threads, and its largest in one; how many threads."""
    name, metrics = _in_file(folder / "meta.db", b"meta", _metrics)
    summary, threads = _in_file(folder / "profile.db", b"prof", _profiles)
    totals = {
        event: summary.get(number, 0.0)  # what is zero is not written
        for event, (number, _) in metrics.items()
        if number is not None
    }
    longest = {
        event: max(thread.get(number, 0.0) for thread in threads)
        for event, (_, number) in metrics.items()
        if number is not None and threads
    }
    if not summary or not totals:
        raise MalformedInput(
            "it has no inclusive metric of the whole execution", file=str(folder / "profile.db")
        )
    return name, totals, longest, len(threads)


def _in_file(path: Path, kind: bytes, find: Callable[[mmap.mmap], _Found]) -> _Found:
    """What a function finds in a file that says to be of this kind, as far as the file goes."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            magic, said, version = struct.unpack_from("<10s4sB", content)
            if (magic, said) != (b"HPCTOOLKIT", kind):
                raise ValueError(f"it starts with {magic + said!r}")
            if version != _VERSION:
                raise ValueError(f"it is of version {version}, and only {_VERSION} can be read")
            return find(content)
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise MalformedInput(f"not a whole file of HPCToolkit ({error})", file=str(path)) from error


def _metrics(meta: mmap.mmap) -> tuple[str, dict[str, tuple[int | None, int | None]]]:
    """The program's name; event → the number of its inclusive sum in summaries, and in threads."""
    (general,) = struct.unpack_from("<Q", meta, 0x18)
    (title,) = struct.unpack_from("<Q", meta, general)
    (section,) = struct.unpack_from("<Q", meta, 0x38)
    first, count, metric_size, instance_size, summary_size = struct.unpack_from("<QIBBB", meta, section)
    found = {}
    for metric in range(first, first + count * metric_size, metric_size):
        name, instances, summaries, instance_count, summary_count = struct.unpack_from("<QQQHH", meta, metric)
        in_summaries = in_threads = None
        for at in range(instances, instances + instance_count * instance_size, instance_size):
            scope, number = struct.unpack_from("<QH", meta, at)
            if meta[scope + 8] == _EXECUTION:
                in_threads = number
        for at in range(summaries, summaries + summary_count * summary_size, summary_size):
            scope, formula, combined, number = struct.unpack_from("<QQBxH", meta, at)
            if meta[scope + 8] == _EXECUTION and combined == _SUM and _text(meta, formula) == _ITSELF:
                in_summaries = number
        found[_text(meta, name)] = (in_summaries, in_threads)
    return _text(meta, title), found


def _profiles(profile: mmap.mmap) -> tuple[dict[int, float], list[dict[int, float]]]:
    """What the whole execution has of each metric: the summary of all threads, and each thread."""
    (section,) = struct.unpack_from("<Q", profile, 0x18)
    first, count, size = struct.unpack_from("<QIB", profile, section)
    if not count:
        raise ValueError("it has no profile")
    threads = [
        dict(_everywhere(profile, block))
        for block in range(first + size, first + count * size, size)
        if not struct.unpack_from("<I", profile, block + 0x28)[0] & _SUMMARY
    ]
    return dict(_everywhere(profile, first)), threads


def _everywhere(profile: mmap.mmap, block: int) -> Iterator[tuple[int, float]]:
    """A metric's number and its value, in the context above all others, which comes first if there."""
    value_count, values, context_count, contexts = struct.unpack_from("<QQI4xQ", profile, block)
    if not context_count:
        return
    context, start = struct.unpack_from("<IQ", profile, contexts)
    if context != _EVERYWHERE:
        return
    end = value_count if context_count == 1 else struct.unpack_from("<IQ", profile, contexts + 12)[1]
    for index in range(start, end):
        yield struct.unpack_from("<Hd", profile, values + 10 * index)


def _text(content: mmap.mmap, start: int) -> str:
    end = content.find(b"\0", start)
    if end < 0:
        raise ValueError("a text has no end")
    return content[start:end].decode("utf-8")
