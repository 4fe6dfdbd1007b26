"""`apportion calibrate`: a shipped timing model adapted to this machine by a few measured kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.calibrate import MOST_KERNELS
from apportion.advise.calibrate import calibrate as adapt
from apportion.cli.show import note, print_json, print_table
from apportion.measure.campaign import Campaign, asked_for, kernel_files, workloads_of
from apportion.runtime.backend import open_backend
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.sampling import Repeats
from apportion.runtime.workload import Workload
from apportion.suite.generator import drawn

_SEED = 4
"Of the kernels that are measured when none are given; models do not learn from this one."


def calibrate(
    *sources: Path,
    kernels: int = 12,
    devices: str = "all",
    model: str | None = None,
    deadline: float = 20.0,
    pocl_instances: int | None = None,
    threads: int | None = None,
    backend: str = "opencl",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Adapt a shipped timing model to this machine, and say how far off it was before and is now.

    What is found is kept, and used by predictions and by `apportion run` from now on.

    Args:
        sources: The kernels to measure, as for `apportion measure`. By default generated kernels.
        kernels: How many kernels to generate, at most 20.
        devices: `all`, or ids separated by commas.
        model: The timing model, by its name or its folder. By default the first that `apportion models list`
            shows.
        deadline: How many seconds measuring one kernel may take.
        pocl_instances: How many independent CPU devices PoCL offers. By default two if there is no other
            device.
        threads: How many threads each CPU device uses.
        backend: The backend that has the devices: opencl, or one that another package registered.
        json: Print one line of JSON for each device.
    """
    campaign = Campaign(
        repeats=Repeats(least=3, most=9, seconds=0.5),
        shares=(1.0,),
        most_seconds=deadline / 4,
        visit_seconds=deadline,
    )
    files = kernel_files(sources)
    if files:
        workloads = [each for each in workloads_of(files, campaign) if isinstance(each, Workload)]
    else:
        workloads = [drawn(_SEED, number).workload() for number in range(min(kernels, MOST_KERNELS))]
    options = DriverOptions(pocl_instances=pocl_instances, threads=threads)
    with open_backend(backend, options, Limits(seconds=deadline)) as opened:
        known = asked_for(opened.devices(), () if devices == "all" else tuple(devices.split(",")))
        found = adapt(workloads, opened, campaign, model=model, devices=known, report=note)
    if json:
        for one in found:
            print_json(one)
        return
    columns = ("device", "kernels", "off by, before", "off by, after")
    rows = [
        (f"{one.device} ({one.name})", one.kernels, f"× {one.before:.2f}", f"× {one.after:.2f}")
        for one in found
    ]
    print_table(columns, rows, right=columns[1:])
