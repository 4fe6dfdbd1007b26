"""The page about programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.learn.metrics import Interval
from apportion.report.numbers import with_interval
from apportion.report.tabular import markdown_table

SESSION, ASSIGNMENT = "session", "best assignment"
_DRAWS, _SEED = 4000, 20
"Draws of the bootstrap, and their seed."
PATH_MICROSECONDS = 60.0
FIRST_CALL_MILLISECONDS = 150.0
Rounds = Mapping[str, Sequence[float]]
"Method → seconds of each round."

_HOW = """A round is all launches of a program, until the last has ended; results stay where they are. Every
method runs the same kernels over the same arrays, compiled before; what each computed in its first round is
compared with NumPy. *all cpu* and *all gpu* are plain pyopencl with all data kept on the device, kernels
bound once and values set only where they change. *best assignment* gives all launches of a kernel to one
device: it is searched, from the better device alone, by moving one kernel at a time, and arrays move whole
where a launch lacks them. StarPU 1.3 (Debian's) has its performance models trained by 12 rounds of their
own; its OpenCL workers stand for both devices, and what a program reads between launches is left out for
it, which can only help it. A session does not know what the program's kernels take: its first rounds are
told one by one. Two sessions before it, which were told the device, had its kernels compiled, as they were
for the others, and their times predicted. *Later* is the median from the third round on; of the others, the
median without the first round."""

_PATH = """Microseconds, medians over 15 turns of 200 launches of a kernel over 1,024 work-items that does
next to nothing. *queue*: from the Python call until the launch is handed on. *each*: the same loop with one
wait at its end. *there and back*: a launch and a wait, again and again. `opencl-direct` has no process
between; `share` is a bound kernel with everything to one device, which waits by its nature; a byte there
and back is what a process that only answers takes: isolation costs no less."""
_CALLS = """Milliseconds, the least and the median of some turns, each a process of its own. *open* is until
the devices are known and the kernel is read; a driver of NVIDIA's takes most of that, with or without us.
*share, known* begins with what earlier processes learned, *fresh* forgets that. The kernel's IR is given
here, since the machine has no compiler."""
_LOST = """Medians of rounds, from the third on for the sessions. *told the device* is a session whose
launches are all asked for on the better device: what it takes beyond plain pyopencl there is the price
of a process between and of keeping track of arrays. What a session that decides takes beyond that is the
price of deciding, of devices that are tried, and of wrong choices; below 0 is noise. *a launch* divides
the first price by the launches of a round: much of it is paid once a round, where Python waits."""
_FEW = """`taskset` confines everything to so many processors; what was calibrated before does not count.
Once, calibrating did not end within 120 s with 4 of 16."""
_RATIOS = """Milliseconds of a round; ratios of medians with the interval that 95 % of redrawn rounds give,
in parentheses."""


def page(found: Mapping[str, Any], remarks: str = "") -> str:
    """The page in Markdown.

    Args:
        remarks: what must be known of these runs.
    """
    rows = found["programs"]
    starpu = {row["program"]: row for row in found["starpu"]}
    compared = [_Compared(row, starpu.get(row["program"])) for row in rows]
    before = {row["program"]: _Compared(row, None) for row in found["replaced"]}
    parts = [
        "# Programs of many kernels",
        "",
        f"{len(rows)} programs in a session, beside plain pyopencl on one device, the best assignment of "
        "kernels to devices that a search finds, and StarPU, each in one run on a machine that was lent for "
        "minutes. Measured by `tools/lent-programs.sh`; made from what it brought back by "
        "`python -m reproduction programs`.",
        "",
        *_machine(found),
        "",
        *([remarks.rstrip(), ""] if remarks else []),
        *_goals(compared, before, found),
        "",
        "## Programs",
        "",
        _table(compared, before),
        "",
        _RATIOS,
        "",
        _HOW,
        "",
        *_verified(rows, found["starpu"]),
        "",
        "## Where kernels went",
        "",
        _placements(rows),
        "",
        *_lost(rows),
        "",
        *_launch_path(found["launch path"]),
        "",
        *_first_call(found["first call"]),
        "",
        *_confined(found),
    ]
    return "\n".join(parts).rstrip() + "\n"


class _Compared:
    """A program's rounds by every method."""

    def __init__(self, row: Mapping[str, Any], starpu: Mapping[str, Any] | None) -> None:
        self.name, rounds = str(row["program"]), row["rounds"]
        self.run = int(row["run"])
        self.alone = {name: each for name, each in rounds.items() if name.startswith("all ")}
        self.assignment: Sequence[float] = rounds[ASSIGNMENT]
        self.session: Sequence[float] = rounds[SESSION]
        self.starpu: Rounds = dict(starpu["rounds"]) if starpu else {}
        self.later = _drawn(self.session[2:] or self.session[1:])
        self.best_alone = min((_drawn(each[1:]) for each in self.alone.values()), key=_middle)
        best = [self.best_alone, _drawn(self.assignment[1:])]
        self.best_static = min(best, key=_middle)
        self.best_starpu = min((_drawn(each[1:]) for each in self.starpu.values()), key=_middle, default=None)
        first = min(each[0] for each in (*self.alone.values(), self.assignment))
        self.first = self.session[0] / first

    @property
    def second(self) -> float:
        """The second round over the best static assignment's median."""
        return self.session[1] / _middle(self.best_static)


Drawn = NDArray[np.float64]
"The median, and medians of redrawn rounds."


def _drawn(rounds: Sequence[float]) -> Drawn:
    values = np.array(rounds, float)
    again = np.random.default_rng(_SEED).choice(values, (_DRAWS, len(values)))
    return np.concatenate([[np.median(values)], np.median(again, axis=1)])


def _middle(drawn: Drawn) -> float:
    return float(drawn[0])


def _interval(drawn: Drawn) -> Interval:
    return Interval.resampled(drawn[0], drawn[1:])


def _ratio(above: Drawn, below: Drawn) -> Drawn:
    # Rounds of two methods are drawn apart from each other.
    return np.concatenate(
        [above[:1] / below[:1], above[1:] / np.random.default_rng(_SEED).permutation(below[1:])]
    )


def _geometric(ratios: Sequence[Drawn]) -> Interval:
    """The geometric mean over programs, and its interval when programs and their rounds are drawn anew."""
    logs = np.log(np.stack(ratios))  # (P, 1 + draws)
    chosen = np.random.default_rng(_SEED).integers(len(logs), size=(logs.shape[1] - 1, len(logs)))
    again = logs[chosen, np.arange(1, logs.shape[1])[:, None]].mean(axis=1)
    return Interval.resampled(math.exp(logs[:, 0].mean()), np.exp(again))


def _said(drawn: Drawn) -> str:
    return with_interval(_interval(drawn), ".2f")


def _machine(found: Mapping[str, Any]) -> list[str]:
    infos = found["devices"].get("devices", [])
    named = "; ".join(
        f"*{info['id']}*: {info['name']} ({info['platform']} {info['driver']}, {info['compute_units']} units)"
        for info in infos
    )
    return [f"Devices: {named}."] if named else []


def _goals(
    compared: Sequence[_Compared], before: Mapping[str, _Compared], found: Mapping[str, Any]
) -> list[str]:
    assignment = [_ratio(each.later, each.best_static) for each in compared]
    alone = {each.name: _ratio(each.later, each.best_alone) for each in compared}
    worst = max(alone, key=lambda name: _middle(alone[name]))
    mean = _geometric(assignment)
    first = math.exp(sum(math.log(each.first) for each in compared) / len(compared))
    over = [name for name, ratio in alone.items() if _middle(ratio) > 1.05]
    rows = [
        (
            "later rounds over the best static assignment, geometric mean", with_interval(mean), "≤ 1.03",
            _met(mean.value <= 1.03),
        ),
        (
            f"the worst later round over everything on one device ({worst})", _said(alone[worst]),
            "≤ 1.05 everywhere", _missed_by(over, len(compared)),
        ),
        ("first round over the quickest first round of the others, geometric mean", f"{first:.2f}", "≤ 1.25",
         _met(first <= 1.25)),
    ]  # fmt: skip
    if before:
        groups = [
            (f"*of these: {len(before)} of the last run*", [e for e in compared if e.name in before]),
            ("*the same in the run before*", list(before.values())),
            (f"*of these: {len(compared) - len(before)} of the run before*",
             [e for e in compared if e.name not in before]),
        ]  # fmt: skip
        for label, group in groups:
            if group:
                later = with_interval(_geometric([_ratio(e.later, e.best_static) for e in group]))
                began = math.exp(sum(math.log(e.first) for e in group) / len(group))
                rows.append((f"{label}: later rounds; first round", f"{later}; {began:.2f}", "", ""))
    for name in compared[0].alone:
        alike = [_ratio(_drawn(each.alone[name][1:]), each.best_static) for each in compared]
        rows.append((
            f"*for comparison*: everything on {name.removeprefix('all ')} by plain pyopencl, over the same",
            with_interval(_geometric(alike)), "", "",
        ))  # fmt: skip
    if theirs := [
        _ratio(each.best_starpu, each.best_static) for each in compared if each.best_starpu is not None
    ]:
        rows.append((
            "*for comparison*: StarPU's better policy, over the same",
            with_interval(_geometric(theirs)), "", "",
        ))  # fmt: skip
    if beside := {
        each.name: _ratio(each.later, each.best_starpu) for each in compared if each.best_starpu is not None
    }:
        behind = [name for name, ratio in beside.items() if _middle(ratio) >= 1]
        rows.append((
            f"later rounds over StarPU's better policy, geometric mean of {len(beside)}",
            with_interval(_geometric(list(beside.values()))), "< 1 on every program",
            _missed_by(behind, len(beside)),
        ))  # fmt: skip
    for row in found["launch path"]:
        queue, back = row["session"]["queue"], row["session"]["there and back"]
        short = queue <= PATH_MICROSECONDS and back <= 2 * PATH_MICROSECONDS
        rows.append((
            f"launch path of a session on {row['device']}: to queued work; there and back",
            f"{queue:.1f} µs; {back:.0f} µs", f"≤ {PATH_MICROSECONDS:.0f} µs each way", _met(short),
        ))  # fmt: skip
        back = row["share"]["there and back"]
        rows.append((
            f"of a bound kernel of `share` on {row['device']}: there and back, with its copies",
            f"{back:.0f} µs", f"≤ {2 * PATH_MICROSECONDS:.0f} µs", _met(back <= 2 * PATH_MICROSECONDS),
        ))  # fmt: skip
    if known := found["first call"].get("share, known"):
        plain = min(
            (each for name, each in found["first call"].items() if name.startswith("plain")), key=_opening
        )
        rows.append((
            "first call of a known kernel in a new process: opening the devices, and the call",
            f"{known['open']['median']:.0f} + {known['first call']['median']:.0f} ms (plain pyopencl, one "
            f"device: {plain['open']['median']:.0f} + {plain['first call']['median']:.0f} ms)",
            f"≤ {FIRST_CALL_MILLISECONDS:.0f} ms", _met(_opening(known) <= FIRST_CALL_MILLISECONDS),
        ))  # fmt: skip
    return ["## Goals", "", markdown_table(("", "found", "goal", ""), rows, align="lrll")]


def _opening(stages: Mapping[str, Mapping[str, float]]) -> float:
    """Milliseconds until the first results are there, after importing."""
    return stages["open"]["median"] + stages["first call"]["median"]


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _missed_by(names: Sequence[str], count: int) -> str:
    return f"missed by {len(names)} of {count}: {', '.join(names)}" if names else "met"


def _table(compared: Sequence[_Compared], before: Mapping[str, _Compared]) -> str:
    others = list(dict.fromkeys(name for each in compared for name in each.alone))
    policies = list(dict.fromkeys(name for each in compared for name in each.starpu))
    columns = (
        "program", *others, "best assignment", *(f"StarPU {name}" for name in policies),
        "session: round 1", "2", "3", "later", "later / best assignment or device",
        "later / best device", "later / StarPU",
        *(["run", "the first of these, in the run before"] if before else []),
    )  # fmt: skip
    rows = []
    for each in compared:
        times = [_middle(_drawn(each.alone[name][1:])) for name in others]
        times.append(_middle(_drawn(each.assignment[1:])))
        theirs = [
            _middle(_drawn(each.starpu[name][1:])) if name in each.starpu else None for name in policies
        ]
        mine = [*each.session[:3], *[each.session[-1]] * (3 - len(each.session)), _middle(each.later)]
        rows.append((
            each.name, *map(_milliseconds, times), *map(_milliseconds, theirs), *map(_milliseconds, mine),
            _said(_ratio(each.later, each.best_static)), _said(_ratio(each.later, each.best_alone)),
            _said(_ratio(each.later, each.best_starpu)) if each.best_starpu is not None else "",
            *([each.run, _earlier(before.get(each.name))] if before else []),
        ))  # fmt: skip
    return markdown_table(columns, rows, align="l" + "r" * (len(columns) - 1))


def _earlier(before: _Compared | None) -> str:
    return "" if before is None else _said(_ratio(before.later, before.best_static))


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g}"


def _verified(rows: Sequence[Mapping[str, Any]], starpu: Sequence[Mapping[str, Any]]) -> list[str]:
    said = [
        (f"{row['program']} ({method})", words)
        for row in (*rows, *starpu)
        for method, words in row["said"].items()
    ]
    wrong = [f"{name}: {words}" for name, words in said if words != "ok"]
    return [f"Results compared with NumPy's: {len(said)}; wrong: {len(wrong)}. {'; '.join(wrong)}".strip()]


def _placements(rows: Sequence[Mapping[str, Any]]) -> str:
    def counted(devices: Sequence[str]) -> str:
        return ", ".join(f"{devices.count(name)} on {name}" for name in sorted(set(devices)))

    told = [
        (
            row["program"], counted([str(each["device"]) for each in row["decisions"]]),
            counted(list(row["assignment"].values())), row["tried"],
            sum(len(each["measured"]) > 1 for each in row["decisions"]),
        )
        for row in rows
    ]  # fmt: skip
    columns = (
        "program", "kernels and ranges of the session", "kernels of the best assignment",
        "assignments that were tried", "tried on both devices by the session",
    )  # fmt: skip
    return markdown_table(columns, told, align="lllrr")


def _lost(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What sessions add to plain pyopencl on the better device."""
    told = []
    for row in rows:
        rounds = row["rounds"]
        alone = {name: _middle(_drawn(each[1:])) for name, each in rounds.items() if name.startswith("all ")}
        best = min(alone, key=lambda name: alone[name])
        asked = rounds.get(f"{SESSION}, {best}")
        counts = [each["launches"] for each in row["decisions"] if "launches" in each]
        if not asked or not counts:
            continue
        launches = sum(counts) / len(rounds[SESSION])
        there, decided = _middle(_drawn(asked[2:])), _middle(_drawn(rounds[SESSION][2:]))
        told.append((
            row["program"], f"{launches:.0f}", *map(_milliseconds, (alone[best], there, decided)),
            f"{1e3 * (there - alone[best]):+.2f}", f"{1e6 * (there - alone[best]) / launches:+.1f}",
            f"{1e3 * (decided - there):+.2f}",
        ))  # fmt: skip
    if not told:
        return []
    columns = (
        "program", "launches of a round", "plain pyopencl, ms", "told the device, ms", "session, ms",
        "price of a session, ms", "of that, a launch, µs", "price of deciding, ms",
    )  # fmt: skip
    return ["## Where time is lost", "", markdown_table(columns, told, align="l" + "r" * 7), "", _LOST]


def _launch_path(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    told = [
        (row["device"], name, *(f"{stages[stage]:.1f}" for stage in ("queue", "each", "there and back")))
        for row in rows
        for name, stages in row.items()
        if name != "device"
    ]
    return [
        "## What a launch costs",
        "",
        _PATH,
        "",
        markdown_table(("device", "method", "queue", "each", "there and back"), told, align="llrrr"),
    ]


def _first_call(found: Mapping[str, Any]) -> list[str]:
    if not found:
        return []
    stages = list(next(iter(found.values())))
    told = [
        (method, *(f"{each[stage]['least']:.0f} / {each[stage]['median']:.0f}" for stage in stages))
        for method, each in found.items()
    ]
    return [
        "## First calls in new processes",
        "",
        _CALLS,
        "",
        markdown_table(("method", *stages), told, align="l" + "r" * len(stages)),
    ]


def _confined(found: Mapping[str, Any]) -> list[str]:
    told = []
    for name, infos in found["devices"].items():
        part = found["parts"].get(name)
        if part is None:
            continue
        processors = name.removeprefix("devices").lstrip("-") or "all"
        kernels = found["confined"].get(processors, [])
        failed = sum(bool(each["failure"]) for each in kernels)
        told.append((
            processors, f"{part['seconds']} s" if part["code"] == 0 else "did not end",
            ", ".join(f"{info['id']} {info['compute_units']} units" for info in infos),
            sum(info["left_out"] for info in infos),
            f"{len(kernels) - failed} of {len(kernels)}" if kernels else "",
        ))  # fmt: skip
    if not told:
        return []
    columns = (
        "processors",
        "listing and calibrating",
        "devices",
        "speeds left out",
        "kernels of the suite that ran",
    )
    return [
        "## A machine confined to few of its processors",
        "",
        _FEW,
        "",
        markdown_table(columns, told, align="rrlrr"),
    ]
