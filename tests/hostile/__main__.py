"""Run hostile kernels, and write the page of what was tried.

    python -m tests.hostile RECORD.json [--driver pocl] [--seconds 40] [--jobs 4]
    python -m tests.hostile --page docs/results/hostile.md

The first runs every attempt against the drivers that are here, or those that are named, and keeps what became
of each; with a time, those that it has time for; with jobs, in several workers at once. The second makes the page of all records in the folder
`hostile` beside it. Drivers are `pocl`, `intel`, `nvidia`, and `beside`: PoCL in a process that has opened a
GPU's driver too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from apportion.errors import ApportionError
from apportion.report.hardware import processor
from tests.hostile.kernels import ATTEMPTS, Attempt
from tests.hostile.plain import CARD_ATTEMPTS, PLAIN_ATTEMPTS
from tests.hostile.trying import PLATFORMS, problem_of, target

Keep = Callable[[dict[str, Any]], None]
"What writes down what became of an attempt."

_TITLES = {
    "pocl": "PoCL 3",
    "intel": "Intel's runtime",
    "nvidia": "NVIDIA's driver",
    "beside": "PoCL 3 beside NVIDIA's driver",
}


def main() -> int:
    """Try, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("record", type=Path, nargs="?", help="where to keep what became of each attempt")
    parser.add_argument("--driver", action="append", choices=PLATFORMS)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="of each driver: begin nothing after so long"
    )
    parser.add_argument("--jobs", type=int, default=1, help="workers that try at the same time")
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    if chosen.page is not None:
        records = [
            json.loads(file.read_text()) for file in sorted((chosen.page.parent / "hostile").glob("*.json"))
        ]
        chosen.page.write_text(page(records))
        return 0
    if chosen.record is None:
        parser.error("RECORD.json or --page is wanted")
    return tried(chosen.record, chosen.driver or list(PLATFORMS), chosen.seconds, chosen.jobs)


def attempts_on(driver: str) -> list[Attempt]:
    """What is tried against a driver; first what is quick: what must end its process takes longer."""
    if driver == "nvidia":
        return [*PLAIN_ATTEMPTS, *CARD_ATTEMPTS]
    if driver == "beside":
        return sorted(ATTEMPTS, key=lambda one: not one.allowed or one.exhausts)
    return [*ATTEMPTS, *PLAIN_ATTEMPTS]


def tried(out: Path, drivers: Sequence[str], seconds: float, jobs: int = 1) -> int:
    """Try everything for which there is time, and write it down as it goes; 1 if something was not survived."""
    record: dict[str, Any] = {
        "command": f"python -m tests.hostile {' '.join(sys.argv[1:]).replace(str(out), out.name)}", "date": str(datetime.now(UTC).date()),
        "system": f"Linux {platform.release()}", "hardware": processor(), "processors": os.cpu_count(),
        "drivers": {}, "cases": [],
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    writing = Lock()

    def keep(case: dict[str, Any]) -> None:
        with writing:
            record["cases"].append(case)
            print(f"{case['driver']}, {case['category']}: {case['name']}: {case['problem'] or 'survived'}"
                  f" ({case['seconds']} s)", flush=True)  # fmt: skip
            out.write_text(json.dumps(record, indent=1) + "\n")

    for driver in drivers:
        waiting: SimpleQueue[Attempt] = SimpleQueue()
        for attempt in attempts_on(driver):
            waiting.put(attempt)
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(jobs) as pool:
            for done in [
                pool.submit(_try, driver, waiting, end, record["drivers"], keep) for _ in range(jobs)
            ]:
                done.result()
    return 1 if any(case["problem"] is not None for case in record["cases"]) else 0


def _try(driver: str, waiting: SimpleQueue[Attempt], end: float, drivers: dict[str, Any], keep: Keep) -> None:
    """Try what waits, in a worker of its own, until nothing does or the time is over."""
    try:
        with target(driver) as (worker, device):
            name = next(info.name for info in worker.devices() if info.id == device)
            confinement = worker.confinement
            drivers[driver] = {"device": name, "confinement": asdict(confinement)}
            while time.monotonic() < end:
                attempt = waiting.get_nowait()
                if attempt.preamble and not confinement.whole:
                    print(f"{driver}: {attempt.name}: not tried, since nothing would hold it: "
                          f"{', '.join(confinement.missing)}", flush=True)  # fmt: skip
                    continue
                started = time.monotonic()
                with tempfile.TemporaryDirectory() as folder:
                    problem = problem_of(attempt, worker, device, Path(folder), driver)
                keep({"driver": driver, "category": attempt.category, "name": attempt.name,
                      "problem": problem, "seconds": round(time.monotonic() - started, 2)})  # fmt: skip
    except Empty:
        return
    except (KeyError, ApportionError) as error:
        print(f"{driver}: {'is not here' if isinstance(error, KeyError) else error}", flush=True)


def page(records: Sequence[dict[str, Any]]) -> str:
    """The table of what was tried and survived, what was not, and the list of attempts."""
    cases = [case for record in records for case in record["cases"]]
    drivers = [name for name in PLATFORMS if any(case["driver"] == name for case in cases)]
    everything = [*ATTEMPTS, *PLAIN_ATTEMPTS, *CARD_ATTEMPTS]
    categories = list(dict.fromkeys(one.category for one in everything))

    def cell(driver: str, category: str | None) -> str:
        here = [c for c in cases if c["driver"] == driver and category in (None, c["category"])]
        return f"{len(here)} / {sum(c['problem'] is None for c in here)}" if here else "–"

    lines = ["# Hostile kernels", "", _ABOUT, ""]
    for record in records:
        took = sum(case["seconds"] for case in record["cases"])
        lines.append(f"- `{record['command']}`, {record['date']}, {record['system']}, {record['hardware']}, {took:.0f} s: "
                     + "; ".join(f"{_TITLES[name]} ({about['device']})" for name, about in record["drivers"].items()))  # fmt: skip
    lines += [
        "",
        "| category | " + " | ".join(_TITLES[name] for name in drivers) + " |",
        "|---|" + "---:|" * len(drivers),
    ]
    lines += [
        f"| {category} | " + " | ".join(cell(name, category) for name in drivers) + " |"
        for category in categories
    ]
    lines += ["| all | " + " | ".join(f"**{cell(name, None)}**" for name in drivers) + " |", ""]
    missed = [
        f"- {_TITLES[case['driver']]}, {case['category']}, {case['name']}: {case['problem']}"
        for case in cases
        if case["problem"] is not None
    ]
    lines += ["What was not survived:", "", *missed] if missed else ["All were survived."]
    for record in records:
        for name, about in record["drivers"].items():
            left = [
                one
                for one in attempts_on(name)
                if (name, one.name) not in {(c["driver"], c["name"]) for c in cases}
            ]
            if left:
                lines += ["", f"Not tried with {_TITLES[name]} (the time was over, or they were added later): "
                          f"{', '.join(f'{one.category}: {one.name}' for one in left)}."]  # fmt: skip
            if cards := [path for path in about["confinement"]["devices"] if "nvidia" in path]:
                lines += [
                    "",
                    f"Open to the process of {_TITLES[name]}: {', '.join(f'`{path}`' for path in cards)}.",
                ]
    lines += [
        "",
        _REST % (_BESIDE if "beside" in drivers else _NOT_BESIDE),
        "",
        "| category | what is tried |",
        "|---|---|",
    ]
    lines += [
        f"| {category} | {'; '.join(one.name for one in everything if one.category == category)} |"
        for category in categories
    ]
    return "\n".join(lines) + "\n"


_ABOUT = """\
A kernel is *survived* when what it tried failed or its launch was ended, the user's files are as they were, nothing of them was told,
and the next kernel of the same worker gives the right result. Cases are tried / survived."""

_BESIDE = """\
What a fault in NVIDIA's driver would allow is tried from PoCL in a process that has that driver and its device files open."""

_NOT_BESIDE = """\
**Not shown:** what a fault in NVIDIA's driver would allow, tried by system calls from a process that has that driver and its device
files open. The PoCL 5 of that machine, built with LLVM's assertions, ended at every kernel with inline assembly, so that 101 of them
cost their launches and tried nothing (`--driver beside`, 2026-11-19)."""

_REST = """\
*It came to 0*: the loop without end was left out by the driver's compiler, and did no harm; it is written so since that none can.

Kernels go round every check of the source: they are handed to the driver's compiler as they are, on processors with system calls in
inline assembly, as a fault in a driver would allow. A GPU's kernel makes no system calls: against NVIDIA's driver stands what plain
OpenCL C, its assembly (PTX) and its compiler can do.

%s

What does not hold: a kernel that takes all descriptors costs the launch after its own too, and a kernel can lower the priority of
other processes of the same user.

Other hostile input, each with its test:

| what | test |
|---|---|
| answers of a worker that are no answers | `tests/runtime/opencl/test_pipe.py` |
| one construct of a source, repeated 50,000 times | `tests/program/test_include_growth.py` |
| mutated IR, constructs that are repeated | [fuzzing.md](fuzzing.md) |
| damaged, cut and oversized archives | `tests/data/test_archives.py` |
| two to eight processes on one output | `tests/jobs/test_holding.py` |

The attempts:"""


if __name__ == "__main__":
    raise SystemExit(main())
