"""Where launches that two devices share lose time: each part alone and both at once, stage by stage.

    python -m reproduction.efficiency.stages cpu gpu --problems bezier triad heat > stages.jsonl
    python -m reproduction.efficiency.stages --table stages.jsonl

A line of JSON for each cut of each kernel: medians in milliseconds of what both devices took at once, and
each of them with the same part while the other did nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from apportion.coexecution.bound import BoundKernel
from apportion.coexecution.sharing import Together
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.plan import LaunchOutcome
from apportion.runtime.split import Split
from apportion.suite import problem_of
from reproduction.efficiency.rounds import bound_stage

STAGES = ("began", "upload", "kernel", "busy", "download", "seconds")


def stages(bound: BoundKernel, share: float, repeats: int) -> dict[str, Any]:
    """What a cut takes: `both` at once, and each device's part by itself."""
    first, second = (info.id for info in bound.devices)
    found = bound.apart(Split({first: share, second: 1 - share}), repeats)
    return {name: _medians(launches) for name, launches in found.items()}


def _medians(launches: list[tuple[float, LaunchOutcome]]) -> dict[str, float]:
    times = {
        "wall": [wall for wall, _ in launches],
        "merge": [outcome.merge_seconds for _, outcome in launches],
    }
    for _, outcome in launches:
        for device in outcome.devices:
            for stage in STAGES:
                times.setdefault(f"{device.device}.{stage}", []).append(getattr(device, stage))
    return {name: round(1e3 * statistics.median(seconds), 4) for name, seconds in times.items()}


def table(path: Path) -> str:
    """The lines of a file as Markdown, and how much longer both take at once than the longer part alone."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [
        "| kernel | cut | both | one alone | the other | both over the longer |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for row in rows:
        alone = [times["wall"] for name, times in row["stages"].items() if name != "both"]
        both = row["stages"]["both"]["wall"]
        ratios.append(both / max(alone))
        cells = " | ".join(f"{one:.2f}" for one in (both, *alone))
        lines.append(f"| `{row['problem']}` | {row['share']:g} | {cells} | {ratios[-1]:.2f} |")
    lines += [
        "",
        f"Median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}, of {len(ratios)}.",
    ]
    return "\n".join(lines)


def parser_of(description: str | None, repeats: int) -> argparse.ArgumentParser:
    """What tools that launch kernels of the suite on two devices are asked, for `bound_kernels`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("devices", nargs="*", help="two of them, as `apportion devices` calls them")
    parser.add_argument("--problems", nargs="+", default=["bezier", "triad", "heat"])
    parser.add_argument("--size", nargs="+", default=["large"], choices=("small", "usual", "large"))
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--table", type=Path, help="print what an earlier run found")
    return parser


def bound_kernels(
    parser: argparse.ArgumentParser, asked: argparse.Namespace, table: Callable[[Path], str]
) -> Iterator[tuple[dict[str, str], BoundKernel]]:
    """The first kernel of each problem at each size, and what it is called in a line of JSON; none where an
    earlier run's table is wanted, which is printed."""
    if asked.table:
        print(table(asked.table))
        return
    if len(asked.devices) != 2:
        parser.error("name two devices")
    with OpenCLBackend() as backend:
        for size, name in product(asked.size, asked.problems):
            problem = problem_of(name)
            instance = problem.instance(getattr(problem, size), seed=0)
            stage = instance.stages[0]
            with Together(
                problem.source(), stage.kernel, asked.devices, backend=backend, trust=True
            ) as kernel:
                said = {"problem": name, "kernel": stage.kernel, "size": size}
                yield said, bound_stage(kernel, instance, stage)


def main() -> None:
    parser = parser_of(__doc__, 5)
    parser.add_argument("--cuts", nargs="+", type=float, default=[0.2, 0.5, 0.8])
    asked = parser.parse_args()
    for said, bound in bound_kernels(parser, asked, table):
        for device in asked.devices:
            bound.run(device)
        for share in asked.cuts:
            row = {**said, "share": share, "stages": stages(bound, share, asked.repeats)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
