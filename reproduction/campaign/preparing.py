"""Before a campaign: every program compiled by all processors at once, run once, and compared between
devices.

Compiling takes longer than measuring, and what measures must have the machine to itself. Drivers keep what
they compiled; what they do not keep goes to a folder of binaries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from apportion.errors import ApportionError
from apportion.measure.campaign import Campaign, Compiled, visit_of
from apportion.runtime.backend import Backend, open_backend
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.workload import Case, Workload


@dataclass(frozen=True)
class PreparedWorkload:
    """What came of a workload."""

    workload: Workload
    failure: str = ""
    "Why it cannot be measured; empty when it can."
    said: str = ""
    "How results differ between devices; empty when they do not."


def prepare(
    workloads: Iterable[Workload],
    campaign: Campaign,
    *,
    processes: int,
    drivers: DriverOptions,
    limits: Limits,
    compiled: Compiled,
    report: Callable[[PreparedWorkload], None],
    until: float | None = None,
) -> None:
    """Compile and try every workload, with so many workers at once; `report` is called from their threads.

    Args:
        workloads: taken one by one, so that later ones may still be in the making.
        until: when to begin no more, by `time.monotonic`.

    Raises:
        Exception: what a worker could not begin with, or what making workloads raised.
    """
    waiting = iter(workloads)
    turn = threading.Lock()

    def following() -> Workload | None:
        with turn:
            return next(waiting, None)

    opened = threading.Event()

    def work(number: int) -> None:
        # One process opens the devices before the others do: a driver that finds its hardware asleep wakes it
        # up for each of them, one after the other.
        if number:
            opened.wait()
        try:
            with open_backend("opencl", drivers, limits) as backend:
                infos = backend.devices()
                opened.set()
                names = [info.id for info in infos if not campaign.devices or info.id in campaign.devices]
                while (workload := following()) is not None:
                    if until is not None and time.monotonic() > until:
                        return
                    report(_tried(workload, campaign, backend, names, compiled))
        finally:
            opened.set()

    with ThreadPoolExecutor(processes, thread_name_prefix="prepare") as pool:
        workers = [pool.submit(work, number) for number in range(processes)]
    for worker in workers:
        worker.result()


def _tried(
    workload: Workload, campaign: Campaign, backend: Backend, devices: list[str], compiled: Compiled
) -> PreparedWorkload:
    said = ""
    try:
        for case in _cases(workload):
            visit = replace(
                visit_of(workload, case, devices, campaign, compiled), repeats=None, compare=1 << 20
            )
            for seen in backend.measure(visit, campaign.visit_seconds):
                if seen.failure:
                    return PreparedWorkload(workload, f"{seen.device}: {seen.failure}")
                said = said or seen.said
    except ApportionError as error:
        return PreparedWorkload(workload, f"{type(error).__name__}: {error}")
    return PreparedWorkload(workload, "", said)


def _cases(workload: Workload) -> list[Case]:
    """The smallest case of each program that drivers compile: one for each work-group size, or for each
    range where the range is part of the build."""
    smallest: dict[object, Case] = {}
    for case in sorted(workload.cases, key=lambda case: case.span.work_items):
        whole = any(
            name in workload.source for name in ("get_global_size", "get_num_groups", "get_global_linear_id")
        )
        key = (case.span.local_size, case.span.global_size) if whole else case.span.local_size
        smallest.setdefault(key, case)
    return list(smallest.values())
