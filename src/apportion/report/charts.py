"""Charts as SVG: curves, horizontal bars, histograms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from apportion.report.html import paragraph
from apportion.report.svg import (
    AXIS,
    COLOURS,
    INK,
    SOFT,
    circle,
    colour,
    drawing,
    path,
    polyline,
    rect,
    text,
)

Points = Sequence[tuple[float, float]]
Words = Callable[[float], str]
"How a number of an axis is written."
HISTOGRAM_HEIGHT = 260
_WIDTH, _HEIGHT, _LEFT, _TOP, _FOOT = 720, 240, 70, 22, 38


def plain_number(value: float) -> str:
    """A number of an axis: whole from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def curves(
    lines: Mapping[str, Points],
    *,
    across: str,
    up: str,
    dots: Mapping[str, Points] | None = None,
    from_zero: bool = True,
    across_words: Words = plain_number,
    up_words: Words = plain_number,
) -> str:
    """Lines and dots over one axis, with their names where there are several; for inside a page.

    Args:
        lines: name → places, from left to right.
        across: what the horizontal axis says.
        up: what the vertical axis says.
        dots: name → places that no line joins.
        from_zero: both axes begin at 0; otherwise each at its least value.
        across_words: how numbers of the horizontal axis are written.
        up_words: how numbers of the vertical axis are written.
    """
    series = [*lines.values(), *(dots or {}).values()]
    every = [point for points in series for point in points]
    if not every:
        return paragraph(f"{up} over {across}: there are no values.")
    left, right = min(x for x, _ in every), max(x for x, _ in every)
    low, high = min(y for _, y in every), max(y for _, y in every)
    if from_zero:
        left, low = min(left, 0.0), min(low, 0.0)
    inner, tall = _WIDTH - _LEFT - 14, _HEIGHT - _TOP - _FOOT

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return (
            _LEFT + inner * (x - left) / ((right - left) or 1.0),
            _TOP + tall * (1 - (y - low) / ((high - low) or 1.0)),
        )

    parts = [path(f"M{_LEFT} {_TOP}V{_TOP + tall}H{_LEFT + inner}", AXIS)]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        over, value = left + part * (right - left), low + part * (high - low)
        x, y = place((over, value))
        anchor = "start" if part == 0 else "end" if part == 1 else "middle"
        parts.append(text(x, _TOP + tall + 15, across_words(over), anchor=anchor, class_="soft"))
        parts.append(text(_LEFT - 5, y + 4, up_words(value), anchor="end", class_="soft"))
    parts.append(text(_LEFT + inner, _HEIGHT - 7, f"{across} →", anchor="end", class_="soft"))
    parts.append(text(_LEFT, 13, f"↑ {up}", class_="soft"))
    for number, (name, points) in enumerate(lines.items()):
        parts.append(polyline(map(place, points), colour(number), stroke_width=2, tip=name))
    for number, (name, points) in enumerate((dots or {}).items(), len(lines)):
        for x, y in points:
            tip = f"{name}: {across_words(x)}, {up_words(y)}"
            parts.append(circle(*place((x, y)), 4, colour(number), tip=tip))
    names = [*lines, *(dots or {})]
    named, height = _names(names, _HEIGHT + 4) if len(names) > 1 else ([], _HEIGHT)
    return drawing(_WIDTH, height, [*parts, *named], label=f"{up} over {across}", paper=None)


def _names(names: Sequence[str], top: float) -> tuple[list[str], float]:
    """A coloured square for each name, in as many lines as they need, and where these end."""
    parts, x, y = [], float(_LEFT), top
    for number, name in enumerate(names):
        long = 26 + 7.0 * len(name)
        if x + long > _WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + 17
        parts += [rect(x, y, 9, 9, colour(number)), text(x + 13, y + 9, name)]
        x += long
    return parts, y + 17


def bars(
    rows: Iterable[tuple[str, float, str]],
    *,
    most: float | None = None,
    errors: Sequence[tuple[float, float]] = (),
    colours: Sequence[str] = (),
    title: str = "",
    paper: str | None = None,
) -> str:
    """Horizontal bars.

    Args:
        rows: name, value, and the value in words, which stands behind the bar.
        most: the value of a bar that is as long as can be; without it the largest.
        errors: low and high of each, drawn as whiskers.
        colours: of each; without them all are alike.
        title: stands above.
        paper: the colour behind.
    """
    known = list(rows)
    most = max((value for _, value, _ in known), default=1.0) if most is None else most
    left = max(130.0, 16 + 6.8 * max((len(name) for name, _, _ in known), default=0))
    behind = 20 + 6.8 * max((len(said) for _, _, said in known), default=0)
    inner, top = max(200.0, _WIDTH - left - behind), 34 if title else 4
    parts = [text(8, 20, title, font_weight="bold", fill=INK)] if title else []

    def long(value: float) -> float:
        return inner * min(1.0, max(0.0, value / most)) if most else 0.0

    for number, (name, value, said) in enumerate(known):
        y, fill = top + number * 26, colours[number] if colours else COLOURS[0]
        parts.append(text(left - 8, y + 13, name, anchor="end"))
        parts.append(rect(left, y, max(long(value), 1.0), 18, fill))
        if errors:
            low, high = (long(end) for end in errors[number])
            parts.append(path(f"M{left + low:.1f} {y + 9}H{left + high:.1f}", INK, stroke_width=2))
            parts.append(text(left + inner + 8, y + 13, said))
        else:
            parts.append(text(left + long(value) + 6, y + 13, said))
    return drawing(
        left + inner + behind, top + len(known) * 26 + 8, parts, label=title or "bars", paper=paper
    )


def histogram(
    title: str, counts: Sequence[int], names: Sequence[str], *, below: str, every: int = 1, width: int = 420
) -> list[str]:
    """Bars that stand beside each other, as parts of a drawing that is `HISTOGRAM_HEIGHT` high.

    Args:
        title: stands above.
        counts: how tall each bar is; written above it where there is room.
        names: of the bars.
        below: what the horizontal axis says.
        every: a name stands below each so many bars.
        width: of the whole.
    """
    left, top, foot = 44, 34, HISTOGRAM_HEIGHT - 48
    inner, most = width - left - 12, max(*counts, 1)
    wide = inner / len(counts)
    parts = [text(left, 20, title, font_weight="bold", fill=INK)]
    for number, (count, name) in enumerate(zip(counts, names, strict=True)):
        x, tall = left + number * wide, (foot - top) * count / most
        parts.append(rect(x + 1, foot - tall, wide - 2, tall, COLOURS[0], tip=f"{name}: {count}"))
        if wide > 7.0 * len(str(most)):
            parts.append(text(x + wide / 2, foot - tall - 4, count, anchor="middle", font_size=10))
        if number % every == 0:
            parts.append(text(x + wide / 2, foot + 16, name, anchor="middle"))
    parts.append(path(f"M{left} {top}V{foot}H{width - 12}", SOFT))
    parts.append(text(left - 6, top + 8, most, anchor="end"))
    parts.append(text(left + inner / 2, HISTOGRAM_HEIGHT - 12, below, anchor="middle"))
    return parts
