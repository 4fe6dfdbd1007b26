"""The results page of co-execution: every kernel of the suite, and its curve of cuts as a drawing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.report.numbers import with_interval
from apportion.report.svg import AXIS, SOFT, circle, drawing, group, path, polyline, rect, text
from apportion.report.tabular import markdown_table
from apportion.runtime.sampling import Measured
from reproduction.efficiency.rounds import STEAL_TIME, Row

_THIRD, _FIRST, _OVER_ALONE, _OVERHEAD = 0.95, 0.85, 1.05, 0.02
"What is wanted."
_LENGTHS = ((0.0, 1.0), (1.0, 10.0), (10.0, 100.0), (100.0, float("inf")))
"Launches by their milliseconds, for the table of overheads."
CURVES = "co-execution-curves.svg"


def page(rows: Sequence[Row], machine: Mapping[str, Any], command: str, remarks: str = "") -> str:
    """The page in Markdown; its drawing is `curves(rows)`, in a file called `CURVES` beside it.

    Args:
        machine: what it ran on, in words: the values are printed as they are.
        command: what makes the rows.
        remarks: what there is to say of them, in Markdown.
    """
    good = [row for row in rows if row.efficiency is not None]
    shared = [row for row in good if not row.obstacle]
    turn = max((row.in_a_row for row in good), default=0)
    lines = [
        "# One kernel on two devices: how near the chosen cut comes to the best one",
        "",
        f"`{command}`: {', '.join(f'{key} {value}' for key, value in machine.items())}.",
        "",
        f"{len(good)} kernels of {len({row.problem for row in good})} problems; the work of {len(shared)} "
        "can be shared. Wall clock as the caller sees it, transfers and merging included, medians with 95 % "
        "intervals (order statistics). What is compared is launched in turn in each round, "
        f"{turn} times in a row. The oracle is the best cut of a 0.1 grid refined twice by halves, or a "
        "device alone, measured again in the rounds; efficiency is its time over the policy's, round by "
        "round, first launch by first, third by third. *From the third on* is the mean of the third to the "
        f"{turn}th launch. Policy: `learned+feedback`, which starts "
        f"each trial without memory; first launches are predicted from {_origins(good)}."
        f"{_disturbed(good)}",
        "",
        *([remarks.rstrip(), ""] if remarks else []),
        *_summary(good),
        "",
        f"![split curves]({CURVES})",
        "",
        *_table(good),
    ]
    failed = [row for row in rows if row.failure]
    if failed:
        lines += ["", "Failed:", "", *(f"- {row.problem} / {row.kernel}: {row.failure}" for row in failed)]
    return "\n".join([*lines, ""])


def _disturbed(rows: Sequence[Row]) -> str:
    """How many rounds were left out, if any were."""
    left_out, rounds = sum(row.disturbed for row in rows), sum(row.rounds for row in rows)
    said = f" Rounds in which other machines on the same hardware got more than {STEAL_TIME:.0%} of the "
    return (
        f"{said}processors' time do not count: {left_out} of {rounds}.".replace("%", " %") if left_out else ""
    )


def _origins(rows: Sequence[Row]) -> str:
    return " or ".join(sorted({row.origin for row in rows if row.origin})) or "nothing"


def mean_with_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The mean, and the middle 95 % of means of resampled values."""
    draws = np.random.default_rng(seed).choice(values, (2000, len(values))).mean(1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return statistics.fmean(values), float(low), float(high)


def _summary(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["Nothing was measured."]
    lines = [markdown_table(("", "target", "here", "met"), _targets(rows)), ""]
    for when, over in _over_alone(rows).items():
        slower = [kernel for kernel, each in over.items() if each.median > _OVER_ALONE]
        clearly = [kernel for kernel, each in over.items() if each.low > _OVER_ALONE]
        lines.append(
            f"More than 5 % slower than the best device alone, {when}: {', '.join(slower) or 'none'}; by the "
            f"whole of their intervals: {', '.join(clearly) or 'none'}."
        )
    lines += _first_launches(rows)
    settled = [row.lasting_against_best or row.against_best for row in rows if not row.obstacle]
    gains = [1 / each.median for each in settled if each is not None]
    if gains:
        lines.append(
            "Against the best device alone, kernels that can be shared are "
            f"{statistics.geometric_mean(gains):.2f} times as fast on average (geometric mean; most "
            f"{max(gains):.2f})."
        )
    return [*lines, "", _overheads(rows)]


def _targets(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What was wanted, what was found, and whether that is enough: lines of a table."""
    lines = []
    for name, part, target in (
        ("first launch", "first_efficiency", _FIRST),
        ("third launch", "efficiency", _THIRD),
        ("launches from the third on", "lasting_efficiency", _THIRD),
    ):
        found = [each.median for row in rows if (each := getattr(row, part)) is not None]
        if found:
            mean = mean_with_interval(found)
            said = with_interval(mean)
            lines.append(_target(f"mean efficiency of the {name}", target, said, mean[0] >= target))
    for when, over in _over_alone(rows).items():
        worst = max(over, key=lambda kernel: over[kernel].median)
        said, met = f"{_interval(over[worst], 3)}, `{worst}`", over[worst].median <= _OVER_ALONE
        lines.append(_target(f"worst over the best device alone, {when}", _OVER_ALONE, said, met))
    long = [over / total for row in rows for total, over in row.overheads if total >= 100]
    said = f"{statistics.median(long):.2%} (median of {len(long)})" if long else "no such launch"
    met = bool(long) and statistics.median(long) <= _OVERHEAD
    return [*lines, _target("host overhead of launches of 100 ms and more", _OVERHEAD, said, met)]


def _over_alone(rows: Sequence[Row]) -> dict[str, dict[str, Measured]]:
    """When → kernel → its time over that of the best device alone."""
    found = {
        when: {row.kernel: each for row in rows if (each := getattr(row, part)) is not None}
        for when, part in (
            ("from the third launch on", "lasting_against_best"),
            ("at the third launch", "against_best"),
        )
    }
    return {when: over for when, over in found.items() if over}


def _overheads(rows: Sequence[Row]) -> str:
    lines = []
    for low, high in _LENGTHS:
        chosen = [(t, o) for row in rows for t, o in row.overheads if low <= t < high]
        if chosen:
            label = f"{low:g} to {high:g} ms" if high < float("inf") else f"{low:g} ms and more"
            over = statistics.median(o for _, o in chosen)
            share = statistics.median(o / t for t, o in chosen)
            lines.append((label, len(chosen), f"{1e3 * over:.0f} µs", f"{share:.2%}"))
    columns = ("launches of", "number", "time in which no device worked, median", "share of the launch")
    return markdown_table(columns, lines, align="lr")


def _target(name: str, target: float, said: str, met: bool) -> tuple[str, ...]:
    return name, f"{target:g}", said, "yes" if met else "**no**"


@dataclass(frozen=True)
class FirstLaunches:
    """How far first launches are from the best cuts: means with intervals."""

    device: str
    launches: int
    off: tuple[float, float, float]
    "Percent of the work by which the device's share is off the best one."
    constant: float
    "The share that would be off least if all launches had it."
    constant_off: tuple[float, float, float]
    cost: tuple[float, float, float]
    "Time over the best cut's."


def first_launches(rows: Sequence[Row]) -> FirstLaunches | None:
    """First launches of some rows, beside the best constant; None where there is none."""
    known = [row for row in rows if row.first_efficiency is not None and row.first_shares]
    if not known:
        return None
    name = next(iter(known[0].devices))
    best = np.array([row.oracle_share for row in known])
    off = 100 * np.abs(np.array([row.first_shares.get(name, 0.0) for row in known]) - best)
    constant = min(np.linspace(0, 1, 21), key=lambda share: np.abs(share - best).mean())
    cost = [1 / row.first_efficiency.median for row in known if row.first_efficiency]
    error, flat, time = (
        mean_with_interval(list(each)) for each in (off, 100 * np.abs(constant - best), cost)
    )
    return FirstLaunches(name, len(known), error, float(constant), flat, time)


def _first_launches(rows: Sequence[Row]) -> list[str]:
    """How far the shares of first launches are from the best ones, beside the best constant, and what they
    cost."""
    found = first_launches(rows)
    if found is None:
        return []
    return [
        f"Shares of first launches are off the best cut by {with_interval(found.off, '.1f')} percent of the "
        f"work, those of the best constant, {found.constant:g} for {found.device}, by "
        f"{with_interval(found.constant_off, '.1f')}; first launches take {with_interval(found.cost)} of the "
        f"best cut's time (means over {found.launches} kernels).",
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    names = list(rows[0].devices)
    columns = [
        "kernel", *(f"{name} alone, ms" for name in names), f"best cut ({names[0]})", "its ms",
        "first launch", "efficiency", "third launch", "its ms", "efficiency", "from the third on",
        "over best alone", "merge",
    ]  # fmt: skip
    lines = []
    for row in rows:
        cells = [f"`{row.kernel}`", *(_interval(row.alone.get(name)) for name in names)]
        cells += [f"{row.oracle_share:.3g}", _interval(row.oracle)]
        cells += [f"{row.first_shares.get(names[0], 0):.3f}", _interval(row.first_efficiency, 3)]
        cells += [f"{row.settled_shares.get(names[0], 0):.3f}", _interval(row.settled)]
        cells += [_interval(row.efficiency, 3), _interval(row.lasting_efficiency, 3)]
        cells.append(_interval(row.lasting_against_best or row.against_best, 3))
        cells.append("one device" if row.obstacle else ", ".join(sorted(set(row.merge.values()))))
        lines.append(cells)
    return [markdown_table(columns, lines, align="l" + "r" * (len(columns) - 2) + "l")]


def _interval(measured: Measured | None, digits: int = 2) -> str:
    if measured is None:
        return ""
    return with_interval((measured.median, measured.low, measured.high), f".{digits}f")


def curves(rows: Sequence[Row], columns: int = 5) -> str:
    """Milliseconds over the share of the first device, a panel for each kernel that can be shared."""
    drawn = [row for row in rows if row.curve]
    width, height, gap = 190, 130, 14
    lines = -(-max(len(drawn), 1) // columns)
    size = columns * (width + gap) + gap, lines * (height + gap) + gap + 24
    panels = []
    for number, row in enumerate(drawn):
        x = gap + number % columns * (width + gap)
        y = 24 + gap + number // columns * (height + gap)
        panels.append(group(_panel(row, width, height), x=x, y=y))
    first = next(iter(drawn[0].devices)) if drawn else "the first device"
    legend = (
        f"milliseconds over the share of {first}; "
        "line: measured cuts, ring: the best, square: first launch, dot: third launch"
    )
    return drawing(*size, [text(gap, 20, legend), *panels], label=legend)


def _panel(row: Row, width: int, height: int) -> list[str]:
    points = sorted((float(share), milliseconds) for share, milliseconds in row.curve.items())
    most = 1.05 * min(max(value for _, value in points), 6 * min(value for _, value in points))
    left, top, bottom = 6, 18, 14

    def place(share: float, value: float) -> tuple[float, float]:
        x = left + share * (width - 2 * left)
        return x, top + (height - top - bottom) * (1 - min(value, most) / most)

    marks = []
    if row.oracle is not None:
        at = place(row.oracle_share, row.oracle.median)
        marks.append(circle(*at, 6, "none", stroke="#228833", stroke_width=2))
    name = next(iter(row.devices))
    if row.first is not None:
        x, y = place(row.first_shares.get(name, 0.0), row.first.median)
        marks.append(rect(x - 3, y - 3, 6, 6, "#ee6677"))
    if row.settled is not None:
        marks.append(circle(*place(row.settled_shares.get(name, 0.0), row.settled.median), 3, "#aa3377"))
    base, right = height - bottom, width - left
    return [
        rect(0, 0, width, height, "#f7f7f7"),
        text(left, 12, row.kernel, font_size=10, font_weight="bold"),
        text(right, 12, f"{most:.3g} ms", font_size=9, anchor="end", fill=SOFT),
        path(f"M{left} {base}H{right}", AXIS),
        text(left, height - 3, 0, font_size=9, fill=SOFT),
        text(right, height - 3, 1, font_size=9, anchor="end", fill=SOFT),
        polyline((place(*point) for point in points), "#4477aa", stroke_width=1.5),
        *marks,
    ]
