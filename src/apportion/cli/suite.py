"""`apportion suite`: the bundled kernels and programs, verified and timed on the devices of this machine."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Annotated, Literal

from cyclopts import Parameter

from apportion.advise.learned_policy import learned
from apportion.cli.show import note, print_json, print_table, progress
from apportion.errors import InvalidSetting
from apportion.runtime.backend import open_backend
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.suite import PROBLEMS, problem_of
from apportion.suite.base import Problem
from apportion.suite.programs import PROGRAMS, program_of
from apportion.suite.programs.base import Program
from apportion.suite.run import Result, run_programs, run_suite

_FLAG = Parameter(negative="")


def suite(
    action: Literal["run", "list"],
    *problems: str,
    programs: Annotated[bool, _FLAG] = False,
    devices: str | None = None,
    small: Annotated[bool, _FLAG] = False,
    large: Annotated[bool, _FLAG] = False,
    repeat: int | None = None,
    seconds: float = 60.0,
    threads: int | None = None,
    copying: str = "",
    backend: str = "opencl",
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """List the bundled kernels, or verify and time them on each device alone and on all devices at once.

    `run` compares each result with NumPy's.

    Args:
        action: `list` shows the bundled kernels, `run` runs them.
        problems: The names of the kernels to run. By default all.
        programs: Take programs of many kernels instead. Each runs on every device alone, and in a
            session that chooses a device for each kernel.
        devices: The ids of the devices to use, separated by commas. By default all.
        small: Use small inputs: enough to verify the results, too small to time.
        large: Use inputs that keep a fast device busy for some milliseconds.
        repeat: How many timed runs of each kernel, or rounds of each program after its first; 3 by default.
        seconds: The deadline of each launch, in seconds.
        threads: How many threads each CPU device uses.
        copying: The ids of CPU devices that work on copies of all arrays, like a device with its own memory.
        backend: What runs the kernels: opencl, or replay:FOLDER, which replays recorded times and computes
            nothing.
        json: Print one line of JSON for each result.
    """
    if programs and large:
        raise InvalidSetting("Programs have no large inputs. Leave out --large")
    chosen: list[Problem] = (
        [] if programs else [problem_of(name) for name in problems] or list(PROBLEMS.values())
    )
    whole: list[Program] = []
    if programs:
        whole = [program_of(name) for name in problems] or list(PROGRAMS.values())
    if action == "list":
        _list_programs(whole, json=json) if programs else _list(chosen, json=json)
        return
    size = "small" if small else "large" if large else "usual"
    options = DriverOptions(threads=threads, copying=tuple(filter(None, copying.split(","))))
    names = devices.split(",") if devices else None
    with open_backend(backend, options, Limits(seconds=seconds)) as opened:
        count = len(names or opened.devices())
        total = (len(chosen) + len(whole)) * (count + (count > 1))
        # One of the two is empty.
        found = chain(
            run_suite(chosen, opened, devices=names, size=size, repeats=repeat or 3, predictor=learned),
            run_programs(whole, opened, devices=names, size=size, repeats=repeat or 3, predictor=learned),
        )
        results: list[Result] = []
        for result in progress(found, label="Running", total=total, quiet=json):
            results.append(result)
            if json:
                print_json(result)
    if not json:
        _print(results)
    failures = sum(result.verified is False for result in results)
    note(f"{sum(result.verified is True for result in results)} of {len(results)} verified.")
    if failures:
        sys.exit(1)


def _list(chosen: list[Problem], *, json: bool) -> None:
    rows = [(p.name, p.question, ", ".join(sorted(p.traits)), p.chai) for p in chosen]
    if not json:
        print_table(("problem", "what it computes", "traits", "after CHAI's"), rows)
        return
    for name, question, traits, chai in rows:
        print_json({"problem": name, "question": question, "traits": traits, "chai": chai})


def _list_programs(chosen: list[Program], *, json: bool) -> None:
    if not json:
        print_table(("program", "what it computes"), [(each.name, each.question) for each in chosen])
        return
    for each in chosen:
        print_json({"program": each.name, "question": each.question})


def _print(results: list[Result]) -> None:
    print_table(
        ("name", "device", "ms", "verified", "remarks"),
        [
            (
                result.problem,
                result.device,
                "" if result.milliseconds is None else f"{result.milliseconds:.3f}",
                {True: "yes", False: "no", None: ""}[result.verified],
                result.said,
            )
            for result in results
        ],
        right=("ms",),
    )
