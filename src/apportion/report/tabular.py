"""Tables as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import repeat

_NUMBER = ' class="n"'
_RULES = {"l": "---", "r": "---:"}


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, align: str = "l") -> str:
    """A table, or the sentence that there is nothing in it.

    Args:
        columns: what stands above each column.
        rows: a cell for each column, as text: what HTML would take for markup is escaped.
        align: a letter for each column, `l` for left and `r` for right as numbers are; the last one goes on.
    """
    sides = _sides(align, len(columns))

    def cells(tag: str, values: Sequence[object]) -> str:
        return "".join(
            f"<{tag}{_NUMBER if side == 'r' else ''}>{escape(str(value))}</{tag}>"
            for value, side in zip(values, sides, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    if not body:
        return "<p>None.</p>"
    return f'<div class="scroll"><table><tr>{cells("th", columns)}</tr>{body}</table></div>'


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, align: str = "l") -> str:
    """The lines of a table. `align` as in `html_table`; cells are Markdown."""
    rules = [_RULES[side] for side in _sides(align, len(columns))]
    lines = [_line(columns), f"|{'|'.join(rules)}|"]
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"{len(row)} cells do not go under {len(columns)} columns: {row!r}")
        lines.append(_line(row))
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _sides(align: str, count: int) -> str:
    return (align + "".join(repeat(align[-1], count)))[:count]
