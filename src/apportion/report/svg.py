"""Drawings as SVG: elements with escaped texts, and whole pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#a463f2")
"Of lines and bars that must be told apart. The first seven are Paul Tol's bright scheme."
Size = float | str
"A number, which gets one digit after the point, or one that is already written."
INK, SOFT, AXIS = "#333", "#666", "#999"

_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def legal(words: str) -> str:
    """The text without what XML cannot say, not even escaped: a mark stands in its place."""
    return _ILLEGAL.sub("\ufffd", words)


def colour(number: int) -> str:
    """The colour of the n-th of several things; they repeat."""
    return COLOURS[number % len(COLOURS)]


def element(tag: str, *inside: str, tip: str = "", **attributes: Any) -> str:
    """`<tag …>inside</tag>`.

    Args:
        tag: its name.
        inside: markup, as it is.
        tip: text that is shown under the pointer.
        attributes: by Python's names: `stroke_width` is `stroke-width`, `class_` is `class`. Numbers with
            a fraction get one digit; what is None is left out.
    """
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    body = (f"<title>{escape(legal(tip))}</title>" if tip else "") + "".join(inside)
    return f"<{tag}{said}>{body}</{tag}>" if body else f"<{tag}{said}/>"


def text(x: float, y: float, words: object, *, anchor: str | None = None, **attributes: Any) -> str:
    """Words that begin, or end at (`end`), or lie around (`middle`) a place."""
    return element("text", escape(legal(str(words))), x=x, y=y, text_anchor=anchor, **attributes)


def rect(x: Size, y: Size, width: Size, height: Size, fill: str | None = None, **attributes: Any) -> str:
    """A rectangle from its upper left corner."""
    return element("rect", x=x, y=y, width=width, height=height, fill=fill, **attributes)


def circle(x: float, y: float, radius: float, fill: str | None = None, **attributes: Any) -> str:
    """A disc around a place."""
    return element("circle", cx=x, cy=y, r=radius, fill=fill, **attributes)


def path(steps: str, stroke: str, **attributes: Any) -> str:
    """A line that is not filled, in SVG's language of paths."""
    return element("path", d=steps, fill="none", stroke=stroke, **attributes)


def polyline(points: Iterable[tuple[float, float]], stroke: str, **attributes: Any) -> str:
    """A line through these places."""
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", points=line, fill="none", stroke=stroke, **attributes)


def group(parts: Iterable[str], *, x: float = 0, y: float = 0) -> str:
    """Several elements, moved together."""
    return element("g", *parts, transform=f"translate({_value(x)} {_value(y)})")


def drawing(
    width: float,
    height: float,
    parts: Iterable[str],
    *,
    label: str,
    paper: str | None = "white",
    **attributes: Any,
) -> str:
    """A picture.

    Args:
        width: of the picture; it shrinks where there is less room.
        height: of the picture.
        parts: its elements, the lowest first.
        label: what it shows, for those who cannot see it.
        paper: the colour behind it in a file of its own; None for a drawing inside a page.
        attributes: more of the picture's, or others.
    """
    behind = [element("rect", width="100%", height="100%", fill=paper)] if paper else []
    shown = {
        "xmlns": "http://www.w3.org/2000/svg" if paper else None,
        "viewBox": f"0 0 {_value(width)} {_value(height)}",
        "width": width,
        "font_family": "system-ui, sans-serif",
        "font_size": 12,
        "role": "img",
        "aria_label": label,
    }
    return element("svg", "\n", *(f"{part}\n" for part in [*behind, *parts]), **{**shown, **attributes})


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(legal(str(value)))
