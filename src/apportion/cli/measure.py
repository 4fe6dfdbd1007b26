"""`apportion measure`: a machine becomes a table of measurements."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.building import USUAL, Building
from apportion.cli.show import note, print_json, progress
from apportion.errors import InvalidSetting
from apportion.jobs.holding import check_ours
from apportion.measure.campaign import (
    JOURNAL,
    LAUNCHES,
    TABLE,
    Campaign,
    kernel_files,
    run_campaign,
    workloads_of,
)
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.observe import processor_time
from apportion.runtime.sampling import Repeats
from apportion.runtime.workload import Workload

_FLAG = Parameter(negative="")
_MUCH_STEAL = 0.02


def measure(
    *sources: Path,
    out: Path,
    devices: str = "all",
    sizes: str = "auto",
    local_sizes: str = "64,256",
    seconds: float = 2.0,
    deadline: float = 20.0,
    budget: float | None = None,
    retry: Annotated[bool, _FLAG] = False,
    passes: int = 1,
    pocl_instances: int | None = None,
    threads: int | None = None,
    trust_source: Annotated[bool, _FLAG] = False,
    backend: str = "opencl",
    building: Building = USUAL,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Measure OpenCL kernels on this machine's devices, into a folder that a later run goes on with.

    A file `NAME.json` beside `NAME.cl` may say what the kernel's arguments are and at which ranges it is
    to be measured; `apportion generate` writes such files. Arguments of other kernels are assumed from
    their code.

    Args:
        sources: Files of OpenCL C, or folders of `.cl` files.
        out: The folder for the results. `measurements.parquet` in it has a row for each measurement, failures
            included.
        devices: `all`, or ids separated by commas.
        sizes: `auto`, or numbers of work-items separated by commas. A kernel whose `NAME.json` names its
            sizes keeps those.
        local_sizes: The work-group sizes to measure, separated by commas.
        seconds: How long one measurement may be repeated until its confidence interval is narrow.
        deadline: How many seconds one kernel may take at one size, compiling included.
        budget: Start no new measurement after this many seconds. By default everything is measured.
        retry: Measure again what failed in an earlier run, for example after you repaired a driver.
        passes: How often to measure everything, one pass after the other. On a machine that others use too,
            passes show how much its times vary.
        pocl_instances: How many independent CPU devices PoCL offers. By default two if there is no other
            device.
        threads: How many threads each CPU device uses.
        trust_source: Run sources that have inline assembly or code that only some compilers read.
        backend: The backend that has the devices: opencl, or one that another package registered.
        json: Print one line of JSON for each measurement.
    """
    files = kernel_files(sources)
    if not files:
        raise InvalidSetting("There is nothing to measure: give files of OpenCL C, or folders that hold some")
    campaign = Campaign(
        sizes=Campaign().sizes if sizes == "auto" else numbers_of(sizes, "--sizes"),
        local_sizes=numbers_of(local_sizes, "--local-sizes"),
        devices=() if devices == "all" else tuple(devices.split(",")),
        repeats=Repeats(least=3, most=20, seconds=seconds),
        most_seconds=deadline / 4,
        visit_seconds=deadline,
        retry=retry,
        passes=passes,
        trust_source=trust_source,
    )
    check_ours(out, (JOURNAL, LAUNCHES, TABLE))
    workloads = list(workloads_of(files, campaign, partial(building.source, language="opencl")))
    total = sum(len(each.cases) for each in workloads if isinstance(each, Workload))
    points = failures = 0
    found = run_campaign(
        workloads, out, campaign, limits=Limits(seconds=deadline),
        drivers=DriverOptions(pocl_instances=pocl_instances, threads=threads),
        backend=backend, until=None if budget is None else time.monotonic() + budget,
    )  # fmt: skip
    known = len(campaign.devices) or 2
    before = processor_time()
    for point in progress(found, label="Measuring", total=total * known * passes, quiet=json):
        points += 1
        failures += bool(point.failure)
        if json:
            print_json(point)
        elif point.failure:
            kernel = f" {point.kernel}" if point.kernel else ""
            note(f"{point.source}{kernel}{f' on {point.device}' if point.device else ''}: {point.failure}")
    note(f"{points} points measured now, {failures} of them failures; all are in {out / TABLE}.")
    after = processor_time()
    if points and before and after and (steal := after.steal_part_since(before)) > _MUCH_STEAL:
        note(
            f"Other machines on the same hardware got {steal:.0%} of the processors' time meanwhile: times "
            "of CPU devices vary by more than their intervals say. Measure again, at another time, with more "
            "--passes."
        )
    if points and failures == points:
        sys.exit(1)


def numbers_of(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidSetting(f"{option} must be numbers with commas between them, not {text!r}") from None
