"""Showing things: results on stdout as a table or as JSON, notes and progress on stderr."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

T = TypeVar("T")

_PIPED_WIDTH = 100
"Columns of a table that is not printed on a terminal: long cells wrap. Programs read `--json`."

_WHOLE_WORD = 26
"Letters of the longest word that stays whole where a cell wraps, if there is room."


def print_json(value: Any) -> None:
    """Print `value` on one line, so that several make JSON Lines; NaN and infinity are refused, not invented.

    Dataclasses become objects, paths and NumPy values become what they hold.
    """
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain) + "\n")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
) -> None:
    """Print rows under these columns; those named in `right` are aligned to the right, as numbers are."""
    # Text, not str: a bracket in a file name or in 'apportion[opencl]' is no markup.
    cells = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(file=sys.stdout, width=_PIPED_WIDTH if piped else None)
    texts = [[column, *(row[place].plain for row in cells)] for place, column in enumerate(columns)]
    widths = _widths(texts, console.width - 3 * len(columns) - 1)
    table = Table(title=title, title_justify="left", title_style="bold")
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold", width=width)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _widths(texts: Sequence[Sequence[str]], room: int) -> Sequence[int | None]:
    """The width of each column such that words stay whole and cells take few lines; None: rich decides."""
    wanted = [max(len(line) for text in column for line in text.split("\n")) for column in texts]
    if sum(wanted) <= room:
        return [None] * len(texts)
    words = [[word for text in column for word in text.split()] for column in texts]
    widths = [max((len(word) for word in each if len(word) <= _WHOLE_WORD), default=1) for each in words]
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    for _ in range(room - sum(widths)):
        fullest = max(range(len(widths)), key=lambda place: wanted[place] / widths[place])
        widths[fullest] += 1
    return widths


def note(message: str) -> None:
    """Say something that is not a result, on stderr; a progress bar on the screen stays whole."""
    print(message, file=sys.stderr, flush=True)


def progress(items: Iterable[T], *, label: str, total: int | None = None, quiet: bool = False) -> Iterator[T]:
    """The same items, with a bar on stderr that moves as they are taken.

    Args:
        items: taken one by one, so a generator stays lazy; closing this iterator closes it.
        label: what is being done, left of the bar.
        total: how many there will be; None shows a running count.
        quiet: show nothing; so does a stderr that is no terminal. Pass the command's `--json`.
    """
    try:
        if quiet or not sys.stderr.isatty():
            yield from items
            return
        with _bar() as bar:
            task = bar.add_task(label, total=total)
            for item in items:
                bar.advance(task)
                yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


def rounded(value: Any) -> Any:
    """Plain values with measured numbers in six digits: what a clock tells has no more."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {name: rounded(each) for name, each in value.items()}
        case list() | tuple():
            return [rounded(each) for each in value]
    return value


def shortened(value: Any) -> str:
    """A value of an answer in a table's cell: what is very long is cut."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) < 400 else f"{text[:400]}… (--json prints it whole)"


def size_in_words(count: int) -> str:
    """A number of bytes for people: `3.2 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        # Results printed meanwhile belong to stdout, not to the bar's stderr.
        redirect_stdout=False,
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars, without importing NumPy
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
