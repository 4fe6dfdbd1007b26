"""Queries: launches to be predicted, a kernel with its sizes, checked; and files of them."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.program.kernel.bounds import NDRange, sizes_in_words, sizes_of
from apportion.program.source import Source

LARGEST_GROUP = 1 << 16
LARGEST_BYTES = 1 << 60
Size = int | tuple[int, ...]
"Work-items in one dimension, or in each."


@dataclass(frozen=True)
class Query:
    """A kernel and how it is to be launched."""

    source: Source | Path | str
    "A `Source`, or the path of OpenCL C, LLVM IR or bitcode."
    local_size: Size
    "Of a work-group."
    bytes: int
    "Moved between host and device."
    kernel: str | None = None
    "Which one, where the source has several."
    global_size: Size | None = None
    "Of the whole range, where it is known."
    arguments: tuple[str, ...] = ()
    "`name=value`, as `apportion run` takes them; where times are predicted, the rest is assumed."

    def __post_init__(self) -> None:
        if not 1 <= self.group_items <= LARGEST_GROUP or min(_dimensions(self.local_size)) < 1:
            raise InvalidSetting(
                f"local_size must be 1 to {LARGEST_GROUP} work-items, not {size_in_words(self.local_size)}"
            )
        if self.bytes < 0:
            raise InvalidSetting(f"bytes must not be negative, not {self.bytes}")
        if self.bytes > LARGEST_BYTES:
            raise InvalidSetting(f"bytes must be at most 2^60, not {self.bytes}")
        if self.global_size is not None:
            NDRange(_dimensions(self.global_size), _dimensions(self.local_size))

    @property
    def group_items(self) -> int:
        """Work-items of a work-group."""
        return math.prod(_dimensions(self.local_size))

    @property
    def work_items(self) -> int | None:
        """Work-items of the whole range, where it is known."""
        return None if self.global_size is None else math.prod(_dimensions(self.global_size))

    def cut(self, cpu_share: float) -> int | None:
        """How many work-items the CPU takes: whole work-groups, nearest to a share from 0 to 1."""
        if self.work_items is None:
            return None
        return round(cpu_share * (self.work_items // self.group_items)) * self.group_items


def size_of(text: str, name: str = "size") -> Size:
    """`1024` or `1024x64`, as command lines and tables write sizes.

    Raises:
        InvalidSetting: it is neither.
    """
    numbers = sizes_of(text, name)
    return numbers[0] if len(numbers) == 1 else numbers


def size_in_words(size: Size) -> str:
    """The same, the other way round."""
    return sizes_in_words(_dimensions(size))


@dataclass(frozen=True)
class MeasuredQuery:
    """A launch of a file, with what else its line says."""

    query: Query
    columns: Mapping[str, str]

    def number(self, column: str) -> float | None:
        """The number in a column, or None where there is none.

        Raises:
            MalformedInput: it holds something else.
        """
        text = (self.columns.get(column) or "").strip()
        try:
            return float(text) if text else None
        except ValueError as error:
            raise MalformedInput(f"{column} must be a number, not {text!r}") from error


def read_queries(
    path: Path, *, folder: Path | None = None, needed: Sequence[str] = ()
) -> list[MeasuredQuery]:
    """The launches of a CSV file; see `read_rows`.

    Raises:
        UnreadableFile: there is no such file.
        MalformedInput: a column is missing, or a value is no size; with its line.
    """
    found = read_rows(path, folder=folder, needed=needed)
    for row in found:
        if isinstance(row, MalformedInput):
            raise row
    return [row for row in found if isinstance(row, MeasuredQuery)]


def read_rows(
    path: Path, *, folder: Path | None = None, needed: Sequence[str] = ()
) -> list[MeasuredQuery | MalformedInput]:
    """The launches of a CSV file with the columns source, local_size and bytes; kernel, global_size and
    arguments if it has them. What is wrong with a line stands in its place.

    Args:
        path: of the file.
        folder: where sources are looked for first, before beside the file.
        needed: columns that the file must have too.

    Raises:
        UnreadableFile: there is no such file.
        MalformedInput: a column is missing.
    """
    columns = ("source", "local_size", "bytes", *needed)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise MalformedInput(
                    f"the table lacks the column {missing[0]!r}; it needs {', '.join(columns)}",
                    file=str(path), line=1,
                )  # fmt: skip
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    found: list[MeasuredQuery | MalformedInput] = []
    for line, row in enumerate(rows, start=2):
        try:
            source = path.parent / row["source"]
            if folder is not None and (folder / row["source"]).exists():
                source = folder / row["source"]
            query = Query(
                source, size_of(row["local_size"], "local_size"), int(row["bytes"]),
                row.get("kernel") or None,
                size_of(row["global_size"], "global_size") if row.get("global_size") else None,
                tuple((row.get("arguments") or "").split()),
            )  # fmt: skip
            columns_said = {name: value for name, value in row.items() if isinstance(value, str)}
            found.append(MeasuredQuery(query, columns_said))
        except (TypeError, ValueError, AttributeError) as error:
            found.append(MalformedInput(str(error), file=str(path), line=line))
    return found


def _dimensions(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)
