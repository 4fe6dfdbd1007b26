"""First launches again, on times that were measured: what calibrated speeds would choose, at what cost.

    python tools/replay.py docs/results/co-execution > docs/results/co-execution.md

The folder holds `devices.json` (of `tools/campaign.py measure`) and folders of `apportion suite efficiency`,
each for one size of the suite's instances. Forecasts are made here for the devices there; the time of a cut
is read from the curve that was measured there. Nothing is launched. That is no measurement of the policy:
what choosing takes is not in it, nor what happens after the first launch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from apportion.device import feedback
from apportion.device.base import Calibration, DeviceInfo
from apportion.device.feedback import foretold
from apportion.device.forecast import Forecast, from_speeds
from apportion.device.launching import Launcher
from apportion.device.platforms import DriverOptions
from apportion.device.together import Together
from apportion.device.worker import Worker
from apportion.suite import PROBLEMS
from apportion.suite.efficiency import Row, row_from
from apportion.suite.efficiencypage import mean_with_interval

NOW, BEFORE = feedback.PROMISED, 0.8
SIZES = {"large": "instances that keep a fast device busy for some milliseconds", "usual": "smaller ones"}


def devices(path: Path) -> list[DeviceInfo]:
    """The devices of the machine, with what they do per second."""
    found = []
    for said in json.loads(path.read_text()):
        tuples = {name: tuple(said[name]) for name in ("faults", "max_work_item_sizes")}
        found.append(DeviceInfo(**{**said, **tuples, "calibration": Calibration(**said["calibration"])}))
    return found


def forecasts(rows: list[Row], size: str, infos: list[DeviceInfo], worker: Worker) -> list[Forecast]:
    """What calibrated speeds foretell of every row's launch."""
    found = []
    for row in rows:
        problem = PROBLEMS[row.problem]
        instance = problem.instance(getattr(problem, size))
        stage = next(stage for stage in instance.stages if stage.kernel == row.kernel)
        with Together(problem.source(), stage.kernel, ["cpu", "cpu2"], worker=worker) as kernel:
            bound = kernel.bind(
                *instance.values(stage, instance.arrays),
                global_size=stage.global_size,
                local_size=stage.local_size,
            )
            enquiry = Launcher(kernel, bound.binding, bound.span, bound.case).enquiry()
            found.append(from_speeds(enquiry, infos))
    return found


def milliseconds(row: Row, share: float) -> float:
    """What a cut took, between the cuts that were measured."""
    first, second = row.alone
    times = {0.0: row.alone[second].median, 1.0: row.alone[first].median}
    times |= {float(cut): taken for cut, taken in row.curve.items() if 0 < float(cut) < 1}
    cuts = sorted(times)
    return float(np.interp(share, cuts, [times[cut] for cut in cuts]))


def replayed(
    rows: list[Row], said: list[Forecast], infos: list[DeviceInfo]
) -> list[tuple[Row, float, float]]:
    """Each row with the first device's share at the first launch, and how near that comes to the best cut."""
    found = []
    for row, forecast in zip(rows, said, strict=True):
        first, second = (info.id for info in infos)
        if row.obstacle:
            alone = {name: forecast.models[name].seconds(1.0) for name in (first, second)}
            share = float(alone[first] < alone[second])
        else:
            share = foretold(forecast, infos).split.shares[first]
        assert row.oracle is not None
        found.append((row, share, min(1.0, row.oracle.median / milliseconds(row, share))))
    return found


def page(
    earlier: dict[str, list[tuple[Row, float, float]]],
    parts: dict[str, list[tuple[Row, float, float]]],
    measured: dict[str, list[Row]],
    machine: Any,
) -> str:
    """The page, in Markdown."""
    lines = [
        "# One kernel on a 16-core Xeon and an H200",
        "",
        f"{machine['cpu']}; {machine['gpu']}; {machine['on']}. Kernels of the suite, wall clock as the "
        f"caller "
        "sees it, transfers and merging included; how it is measured, every kernel, and the curves of cuts:",
        "",
        *(f"- [{SIZES[size]}](co-execution/{size}/co-execution.md)" for size in measured),
        "",
        "| instances | kernels | first launch | third launch | worst third launch over best alone |",
        "|---|---:|---:|---:|---:|",
    ]
    for size, rows in measured.items():
        cells = [
            mean_with_interval([getattr(row, name).median for row in rows])
            for name in ("first_efficiency", "efficiency")
        ]
        worst = max(row.against_best.median for row in rows if row.against_best is not None)
        said = " | ".join(f"{mean:.3f} ({low:.3f} to {high:.3f})" for mean, low, high in cells)
        lines.append(f"| {size} | {len(rows)} | {said} | {worst:.1f} |")
    lines += [
        "",
        "Wanted: 0.85 at the first launch, 0.95 at the third, never more than 1.05 over the best device "
        "alone, and at most 2 % of host overhead in launches of 100 ms and more. Which are met, and why "
        "others are not, stands on those pages.",
        "",
        "## Replay",
        "",
        "`python tools/replay.py docs/results/co-execution`: what calibrated speeds and what the kernel "
        "is made "
        "of (learned from nothing) choose for the first launch, at the times that were measured for that "
        "cut. "
        "It is no measurement of the policy: what choosing takes is not in it. A first launch is shared only "
        f"where that promises {NOW:g} of the best device's time, a rule that was set on an earlier run over "
        f"the same kernels; beside it the rule as it was before, {BEFORE:g}.",
        "",
        "| instances | kernels | efficiency of the first launch, replayed | worst | with the rule before "
        "| share off the best cut, percent |",
        "|---|---:|---:|---|---:|---:|",
    ]
    for size, replay in parts.items():
        mean, low, high = mean_with_interval([near for _, _, near in replay])
        worst_row, _, least = min(replay, key=lambda one: one[2])
        before = mean_with_interval([near for _, _, near in earlier[size]])
        off = mean_with_interval([100 * abs(share - row.oracle_share) for row, share, _ in replay])
        lines.append(
            f"| {size} | {len(replay)} | {mean:.3f} ({low:.3f} to {high:.3f}) "
            f"| {least:.2f}, `{worst_row.kernel}` | {before[0]:.3f} ({before[1]:.3f} to {before[2]:.3f}) "
            f"| {off[0]:.1f} ({off[1]:.1f} to {off[2]:.1f}) |"
        )
    lines += ["", "| kernel | best cut (cpu) | chosen, large | efficiency |", "|---|---:|---:|---:|"]
    lines += [
        f"| `{row.kernel}` | {row.oracle_share:.3g} | {share:.3g} | {near:.3f} |"
        for row, share, near in parts["large"]
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    folder = Path(sys.argv[1])
    infos = devices(folder / "devices.json")
    measured, parts, earlier = {}, {}, {}
    with Worker(DriverOptions(pocl_instances=2, threads=1, vendors=False)) as worker:
        for size in SIZES:
            lines = (folder / size / "efficiency.jsonl").read_text().splitlines()
            rows = [row for row in map(row_from, map(json.loads, lines)) if row.efficiency is not None]
            measured[size] = rows
            said = forecasts(rows, size, infos, worker)
            parts[size] = replayed(rows, said, infos)
            feedback.PROMISED = BEFORE
            earlier[size] = replayed(rows, said, infos)
            feedback.PROMISED = NOW
    machine = json.loads((folder / "large" / "machine.json").read_text())
    print(page(earlier, parts, measured, machine), end="")


if __name__ == "__main__":
    main()
