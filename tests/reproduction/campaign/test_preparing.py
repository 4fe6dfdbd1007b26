"""Before a campaign: everything is compiled and tried, by several workers at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from apportion.errors import MalformedInput
from apportion.jobs import LocalRunner
from apportion.measure.campaign import Campaign
from apportion.program.compile import ir_of
from apportion.program.source import Source
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.sampling import Repeats
from apportion.runtime.workload import Workload
from apportion.suite import PROBLEMS
from reproduction.campaign.preparing import PreparedWorkload, prepare
from reproduction.campaign.suite_workloads import keep_instances, kept_instance, workloads_of

CAMPAIGN = Campaign(repeats=Repeats(least=1, most=2), visit_seconds=15.0)


def _prepared(workloads: Iterator[Workload], *devices: str) -> list[PreparedWorkload]:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    found: list[PreparedWorkload] = []
    prepare(
        workloads,
        Campaign(devices=devices, repeats=CAMPAIGN.repeats, visit_seconds=CAMPAIGN.visit_seconds),
        processes=2,
        drivers=DriverOptions(pocl_instances=2, threads=1, vendors=False),
        limits=Limits(seconds=10),
        compiled=lambda each: ir_of(Source(each.source, "opencl", each.name)),
        report=found.append,
    )
    return found


def _of_the_suite(folder: Path, *names: str) -> Iterator[Workload]:
    for name in names:
        yield from workloads_of(PROBLEMS[name], kept_instance(PROBLEMS[name], 4096, folder))


@pytest.mark.parametrize("devices", [(), ("cpu",)])
def test_every_workload_is_tried_on_all_devices_or_on_some(tmp_path: Path, devices: tuple[str, ...]) -> None:
    found = _prepared(_of_the_suite(tmp_path, "triad", "transposition"), *devices)
    assert sorted(each.workload.name for each in found) == ["transposition", "triad"]
    assert [(each.failure, each.said) for each in found] == [("", "")] * 2


def test_what_goes_wrong_while_workloads_are_made_is_not_lost(tmp_path: Path) -> None:
    def broken() -> Iterator[Workload]:
        yield from _of_the_suite(tmp_path, "triad")
        raise MalformedInput("no arrays", file="here")

    with pytest.raises(MalformedInput, match="no arrays"):
        _prepared(broken())


def test_instances_of_every_problem_are_made_by_other_processes(tmp_path: Path) -> None:
    outcomes = LocalRunner(2).map(partial(keep_instances, tmp_path, (256,)), list(PROBLEMS))
    assert [each.error for each in outcomes if each.error is not None] == []
    assert len(list(tmp_path.glob("*-256.json"))) == len(PROBLEMS)
