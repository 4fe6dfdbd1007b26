"""`apportion suite`: the bundled kernels, verified and timed."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table, progress
from apportion.device.base import Limits
from apportion.device.platforms import DriverOptions
from apportion.device.worker import Worker
from apportion.suite import PROBLEMS, problem_of
from apportion.suite.run import Result, run_suite

_FLAG = Parameter(negative="")


def suite(
    action: Literal["run", "list"],
    *problems: str,
    devices: str | None = None,
    small: Annotated[bool, _FLAG] = False,
    repeat: int = 3,
    seconds: float = 60.0,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """List the bundled problems, or run them: verified against NumPy, timed on each device and on all
    together.

    Args:
        action: `list` or `run`.
        problems: names of problems; all when none is given.
        devices: ids of devices, with commas between them; all when not given.
        small: small instances, to verify only.
        repeat: timed runs; the median is told.
        seconds: the deadline of each launch.
        json: print one line of JSON per result.
    """
    chosen = [problem_of(name) for name in problems] or list(PROBLEMS.values())
    if action == "list":
        rows = [(p.name, p.question, ", ".join(sorted(p.traits)), p.chai) for p in chosen]
        if json:
            for name, question, traits, chai in rows:
                print_json({"problem": name, "question": question, "traits": traits, "chai": chai})
        else:
            print_table(("problem", "what it computes", "traits", "after CHAI's"), rows)
        return
    failures = 0
    results: list[Result] = []
    with Worker(DriverOptions(), Limits(seconds=seconds)) as worker:
        names = devices.split(",") if devices else None
        count = len(names or worker.devices())
        total = len(chosen) * (count + (count > 1))
        found = run_suite(chosen, worker, devices=names, small=small, repeats=repeat)
        for result in progress(found, label="Running", total=total, quiet=json):
            failures += not result.verified
            results.append(result)
            if json:
                print_json(result)
    if not json:
        _print(results)
    note(f"{len(results) - failures} of {len(results)} verified.")
    if failures:
        sys.exit(1)


def _print(results: list[Result]) -> None:
    print_table(
        ("problem", "device", "ms", "verified", "merge, or what went wrong"),
        [
            (
                result.problem,
                result.device,
                "" if result.milliseconds is None else f"{result.milliseconds:.3f}",
                "yes" if result.verified else "no",
                result.said,
            )
            for result in results
        ],
        right=("ms",),
    )
