"""How much longer a launch takes right after another device's, or after one that both shared.

    python -m reproduction.efficiency.after cpu gpu --problems triad heat --size large > after.jsonl
    python -m reproduction.efficiency.after --table after.jsonl

For each kernel the device that is faster alone is launched twice after each of: itself, the other device, and
a cut that both share. A line of JSON for each: the medians of the two launches' stages, in milliseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from apportion.coexecution.bound import Execution
from reproduction.efficiency.rounds import Bench
from reproduction.efficiency.stages import bound_kernels, parser_of

STAGES = ("upload", "kernel", "busy", "download")
_CUT = 0.1
ITSELF, OTHER, SHARED = "itself", "another device", "a shared launch"


def after(bench: Bench, repeats: int) -> dict[str, Any]:
    """What the better device takes: what was launched before → the medians of two launches."""
    names = [info.id for info in bench.bound.devices]
    for _ in range(2):
        for name in names:
            bench.run(name)
        bench.run(_CUT)
    quickest = {name: min(bench.run(name).wall_seconds for _ in range(3)) for name in names}
    best, other = sorted(names, key=lambda name: quickest[name])
    launches: dict[str, list[tuple[Execution, Execution]]] = {ITSELF: [], OTHER: [], SHARED: []}
    for _ in range(repeats):
        policies: dict[str, str | float] = {ITSELF: best, OTHER: other, SHARED: _CUT}
        for before, policy in policies.items():
            bench.run(policy)
            launches[before].append((bench.run(best), bench.run(best)))
    return {
        "device": best,
        "repeats": repeats,
        "after": {
            before: [_medians([pair[place] for pair in pairs]) for place in range(2)]
            for before, pairs in launches.items()
        },
    }


def _medians(launches: list[Execution]) -> dict[str, float]:
    times = {"wall": [launch.wall_seconds for launch in launches]}
    for launch in launches:
        (device,) = launch.outcome.devices
        for stage in STAGES:
            times.setdefault(stage, []).append(getattr(device, stage))
    return {name: round(1e3 * statistics.median(seconds), 4) for name, seconds in times.items()}


def table(path: Path) -> str:
    """The lines of a file as Markdown: times over those of a launch that follows two of its own."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    lines = ["| device | right after | kernels | first launch | most | second launch |",
             "|---|---|---:|---:|---:|---:|"]  # fmt: skip
    for device in sorted({row["device"] for row in rows}):
        for before in (OTHER, SHARED):
            factors = [
                [launch["wall"] / row["after"][ITSELF][1]["wall"] for launch in row["after"][before]]
                for row in rows
                if row["device"] == device
            ]
            first, second = zip(*factors, strict=True)
            once, again = (f"{statistics.geometric_mean(each):.2f}" for each in (first, second))
            lines.append(f"| {device} | {before} | {len(factors)} | {once} | {max(first):.2f} | {again} |")
    return "\n".join([*lines, "", "Geometric means over kernels of quotients of medians."])


def main() -> None:
    parser = parser_of(__doc__, 14)
    asked = parser.parse_args()
    for said, bound in bound_kernels(parser, asked, table):
        bound.binding.remember()
        print(json.dumps(said | after(Bench(bound), asked.repeats)), flush=True)
        print(f"{said['kernel']}, {said['size']}", file=sys.stderr)


if __name__ == "__main__":
    main()
