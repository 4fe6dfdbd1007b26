"""A results page that is stored as its words, `NAME.md.jinja`, and its tables, `NAME.json`.

Words can be changed without measuring again, and programs can read the numbers. `take` takes apart a page
that was edited, or written by its experiment; `render` puts it together.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from apportion.errors import MalformedInput, UnreadableFile
from apportion.report.tabular import markdown_table
from apportion.settings import convert, read_json, replace_file

KEPT = Path(__file__).parent / "kept"
_ROW = re.compile(r"^\|.*\|$")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class KeptTable:
    """A table of a page, as it is printed."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    "Numbers of the columns that are set to the right."

    def __str__(self) -> str:
        """Markdown."""
        align = "".join("r" if column in self.right else "l" for column in range(len(self.columns)))
        return markdown_table(self.columns, self.rows, align=align)


def render(name: str, folder: Path = KEPT) -> str:
    """A page from its words and its tables.

    Raises:
        UnreadableFile, MalformedInput, InvalidSetting: they are not there, or are damaged.
    """
    path = folder / f"{name}.md.jinja"
    try:
        words = path.read_text()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror or error}") from error
    tables = convert(dict[str, KeptTable], read_json(path.with_name(f"{name}.json")), source=f"{name}.json")
    engine = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return engine.from_string(words).render(table=tables)


def take(name: str, page: str, folder: Path = KEPT) -> None:
    """Take a page apart into words and tables, and store both.

    Raises:
        MalformedInput: rows of a table are not equally long.
    """
    if "{{" in page or "{%" in page:
        raise MalformedInput("has {{ or {%, which a template would take for its own", file=f"{name}.md")
    words: list[str] = []
    tables: dict[str, KeptTable] = {}
    for line in _parts(page):
        if isinstance(line, str):
            words.append(line)
            continue
        heading = _heading(words)
        names = (heading if number == 1 else f"{heading}_{number}" for number in itertools.count(1))
        called = next(name for name in names if name not in tables)
        tables[called] = _table(line, name)
        words.append(f"{{{{ table.{called} }}}}")
    replace_file(folder / f"{name}.md.jinja", "\n".join(words))
    replace_file(folder / f"{name}.json", _lines_of(tables))


def _parts(page: str) -> Iterator[str | list[str]]:
    """The lines of a page; the lines of a table together."""
    rows: list[str] = []
    for line in page.split("\n"):
        if _ROW.match(line):
            rows.append(line)
            continue
        if rows:
            yield rows
            rows = []
        yield line
    if rows:
        yield rows


def _table(lines: list[str], name: str) -> KeptTable:
    cells = [tuple(cell.strip() for cell in _CELL.split(line)[1:-1]) for line in lines]
    columns, rule, *rows = cells
    if not all(re.fullmatch(r":?-+:?", cell) for cell in rule) or {len(row) for row in cells} != {
        len(columns)
    }:
        raise MalformedInput(f"has a table whose rows are not alike, at {lines[0]:.60}", file=f"{name}.md")
    right = tuple(column for column, cell in enumerate(rule) if cell.endswith(":"))
    return KeptTable(columns, tuple(rows), right)


def _heading(words: list[str]) -> str:
    """A name for a table: the heading above it."""
    headings = (line.lstrip("# ") for line in reversed(words) if line.startswith("#"))
    letters = re.sub(r"\W+", "_", next(headings, "").lower(), flags=re.ASCII)
    return letters[:40].strip("_") or "table"


def _lines_of(tables: Mapping[str, KeptTable]) -> str:
    """JSON with a line for each row, so that a change of one number is a change of one line."""
    parts = []
    for name, table in tables.items():
        said = asdict(table)
        rows = ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in said.pop("rows"))
        rest = "".join(
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n" for key, value in said.items()
        )
        parts.append(f' {json.dumps(name)}: {{\n{rest}  "rows": [\n{rows}\n  ]\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
