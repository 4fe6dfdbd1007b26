"""The page about energy: the cut for each objective beside the fastest one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from apportion.coexecution.objective import TIME, Objective
from apportion.measure.device_power import KERNELS
from apportion.report.numbers import with_interval
from apportion.report.tabular import markdown_table
from reproduction.energy.choices import (
    METERED,
    CutEnergy,
    best,
    energies,
    fitted_power,
    measured_watts,
    middle,
    off_by,
    predicted,
)
from reproduction.energy.measure import EnergyRow, row_from

ENERGY, EDP = Objective("energy"), Objective("edp")
CAP = 0.8
"The limit of power: so much of what the fastest cut draws. Chosen before anything was measured."
GIVEN = {"cpu": (100.0, 20.0)}
"""Watts of a processor that no meter may read: while it works, beyond what it draws idle, and idle. Round
numbers for 16 of a large Xeon's hardware threads and their memory; not measured."""
_DRAWS, _SEED = 4000, 20
_METHOD = f"""Each cut is launched again and again for some tenths of a second, between two moments at
which the card's meter (NVML) moved; the card's energy is divided by the time between them. Time in which
arrays are put back between launches counts as idle. *fastest* is the cut of least time; *within a limit*
the fastest of those that draw at most {CAP:.0%} of what the fastest one draws. All of them are chosen on
the launches that are told, so that each column is the least of some noisy numbers: a second run would give
a little less of a gain."""


def page(found: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    machine, rows = found["machine"], [row_from(row) for row in found["rows"]]
    idle = {name: float(watts) for name, watts in machine["idle"].items()}
    measured = [row for row in rows if not row.failure]
    unread = [
        name
        for name, meter in METERED.items()
        if name in machine and not any(m.startswith(meter) for m in idle)
    ]
    given = {name: GIVEN[name] for name in unread if name in GIVEN}
    kernels = {row.kernel: energies(row, idle, {}) for row in measured}
    kernels = {name: cuts for name, cuts in kernels.items() if len(cuts) > 1}
    whole = {row.kernel: energies(row, idle, given) for row in measured if row.kernel in kernels}
    parts = [
        "# Energy: what a cut draws",
        "",
        f"{len(kernels)} kernels of the suite under up to {max(len(row.cuts) for row in rows)} cuts each, "
        "large instances, measured by `tools/lent-programs.sh`; made from what it brought back by "
        "`python -m reproduction energy`.",
        "",
        *_said(machine, idle, unread, given),
        "",
        "## What a choice wins",
        "",
        _METHOD,
        "",
        *_noise(measured, idle),
    ]
    views: list[tuple[str, Mapping[str, Sequence[CutEnergy]]]] = [("What the meters count", kernels)]
    if given:
        words = ", ".join(
            f"{name} {active:.0f} W while it works and {rest:.0f} W idle"
            for name, (active, rest) in given.items()
        )
        views.append((f"With given watts: {words}", whole))
    for title, cuts in views:
        parts += [f"### {title}", "", _gains(cuts), ""]
    parts += ["## The model of power", "", *_model(measured, idle, given, whole if given else kernels), ""]
    title, cuts = views[-1]
    parts += [
        "## Kernel by kernel",
        "",
        f"{title}. Each cell: share of the first device, milliseconds, joules.",
        "",
        _kernels(cuts),
    ]
    failed = [row for row in rows if row.failure]
    if failed:
        parts += [
            "",
            f"Failed: {'; '.join(f'{row.kernel}: {row.failure.splitlines()[0]}' for row in failed)}.",
        ]
    return "\n".join(parts).rstrip() + "\n"


def _said(
    machine: Mapping[str, Any],
    idle: Mapping[str, float],
    unread: Sequence[str],
    given: Mapping[str, tuple[float, float]],
) -> list[str]:
    meters = ", ".join(f"{name} {watts:.0f} W idle" for name, watts in idle.items())
    devices = "; ".join(f"*{name}*: {machine[name]}" for name in ("cpu", "gpu") if name in machine)
    said = [f"Devices: {devices}.", "", f"Meters that could be read: {meters or 'none'}."]
    for name in unread:
        more = (
            f" Numbers that hold its {given[name][0]:.0f} W are told apart: that is given, not measured."
            if name in given
            else ""
        )
        said += [
            "",
            f"**What {name} draws could not be read there**: no meter of it is offered to us.{more}",
        ]
    return said


def _noise(rows: Sequence[EnergyRow], idle: Mapping[str, float]) -> list[str]:
    """What the meters say of cuts in which only a device worked that they do not count."""
    alone = [(row, cut) for row in rows for cut in row.cuts if cut.share == 1.0 and "gpu" in row.devices]
    watts = [found for _, cut in alone if (found := measured_watts(cut, idle)) is not None]
    if len(watts) < 5:
        return []
    low, high = np.quantile(watts, [0.1, 0.9])
    return [
        f"How well the meter tells watts: in {len(watts)} cuts the card had nothing to do. It is said to "
        f"have drawn {middle(watts):.0f} W in the middle of them, and between {low:.0f} and {high:.0f} W in "
        "four of five. Smaller differences between cuts are noise.",
        "",
    ]


def _gains(kernels: Mapping[str, Sequence[CutEnergy]]) -> str:
    chosen = {name: _chosen(cuts) for name, cuts in kernels.items()}
    rows = []
    for label in next(iter(chosen.values())):
        energy, seconds, changed = [], [], 0
        for each in chosen.values():
            fastest, mine = each["fastest"], each[label]
            if mine is None or fastest is None:
                continue
            energy.append(mine.joules / fastest.joules)
            seconds.append(mine.seconds / fastest.seconds)
            changed += mine.share != fastest.share
        if label != "fastest" and energy:
            rows.append(
                (
                    label,
                    len(energy),
                    with_interval(_geometric(energy), ".3f"),
                    with_interval(_geometric(seconds), ".3f"),
                    changed,
                )
            )
    columns = (
        "cut",
        "kernels",
        "energy / the fastest cut's",
        "time / the fastest cut's",
        "kernels with another cut",
    )
    return markdown_table(columns, rows, align="lrrrr")


def _chosen(cuts: Sequence[CutEnergy]) -> dict[str, CutEnergy | None]:
    fastest = best(cuts, TIME)
    limit = Objective("power", CAP * fastest.watts)
    alone = {share: next((cut for cut in cuts if cut.share == share), None) for share in (1.0, 0.0)}
    within = best(cuts, limit)
    return {
        "fastest": fastest,
        "least energy": best(cuts, ENERGY),
        "least energy × time": best(cuts, EDP),
        f"within {CAP:.0%} of the fastest cut's watts": within
        if within.watts <= CAP * fastest.watts
        else None,
        "everything on the first device (cpu)": alone[1.0],
        "everything on the second (gpu)": alone[0.0],
    }


def _model(
    rows: Sequence[EnergyRow],
    idle: Mapping[str, float],
    given: Mapping[str, tuple[float, float]],
    kernels: Mapping[str, Sequence[CutEnergy]],
) -> list[str]:
    power = fitted_power(rows, idle, given)
    others = {name: cuts for name, cuts in kernels.items() if name not in KERNELS}
    if not power.active or not others:
        return ["The two kernels that calibrating uses were not measured here."]
    ratios = [each for cuts in others.values() for each in off_by(cuts, power)]
    low, high = np.quantile(ratios, [0.1, 0.9])
    regret = [
        min(cuts, key=lambda cut: predicted(cut, power)).joules / best(cuts, ENERGY).joules
        for cuts in others.values()
    ]
    fastest = [best(cuts, TIME).joules / best(cuts, ENERGY).joules for cuts in others.values()]
    watts = ", ".join(
        f"{name} {active:.0f} W ({power.origin[name]})" for name, active in power.active.items()
    )
    return [
        f"Idle {power.idle:.0f} W; while they work, beyond that: {watts}. Fitted as `apportion` does "
        f"it, from {' and '.join(KERNELS)} on each device alone; judged on the {len(others)} other "
        "kernels, with the times that they took.",
        "",
        f"Predicted joules over measured ones: median {middle(ratios):.2f}, four in five between {low:.2f} "
        f"and {high:.2f} ({len(ratios)} cuts). The cut that the model takes for that of least energy draws "
        f"{with_interval(_geometric(regret))} of the least; the fastest cut draws "
        f"{with_interval(_geometric(fastest))}.",
    ]


def _kernels(kernels: Mapping[str, Sequence[CutEnergy]]) -> str:
    labels = list(_chosen(next(iter(kernels.values()))))[:4]
    rows = []
    for name, cuts in sorted(kernels.items()):
        chosen = _chosen(cuts)
        rows.append((name, *(_cell(chosen[label]) for label in labels)))
    return markdown_table(("kernel", *labels), rows, align="l" + "r" * len(labels))


def _cell(cut: CutEnergy | None) -> str:
    return "" if cut is None else f"{cut.share:.0%}: {1e3 * cut.seconds:.3g} ms, {cut.joules:.3g} J"


def _geometric(values: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean, and its interval when kernels are drawn anew."""
    logs = np.log(values)
    again = np.random.default_rng(_SEED).choice(logs, (_DRAWS, len(logs))).mean(axis=1)
    low, high = np.quantile(again, [0.025, 0.975])
    return math.exp(float(logs.mean())), math.exp(float(low)), math.exp(float(high))
