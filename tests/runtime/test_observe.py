"""Observers: meters are found when they are asked for, read, and kept with what was measured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apportion.measure.campaign import Campaign, run_campaign, workloads_of
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.observe import SWITCH, Observer, ProcessorTime, packages, processor_time
from apportion.runtime.sampling import Repeats


def test_a_processors_meter_counts_millionths_of_a_joule(tmp_path: Path) -> None:
    for name, text in {"intel-rapl:0": "2500000", "intel-rapl:1": "not a number"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(text)
    (tmp_path / "intel-rapl:2").mkdir()  # without a file that may be read
    (meter,) = packages(tmp_path)
    assert (meter.name, meter.energy, meter.read()) == ("package 0", True, 2.5)


def test_time_that_other_machines_got_is_told_apart_from_time_that_was_used(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"

    def at(user: int, steal: int) -> ProcessorTime:
        stat.write_text(f"cpu  {user * tick} 0 {tick} 900 5 0 {tick} {steal * tick} 0 0\ncpu0 1 2 3\n")
        found = processor_time(stat)
        assert found is not None
        return found

    before, after = at(10, 2), at(18, 4)
    assert (before.used, before.steal) == (12.0, 2.0)
    assert after.steal_part_since(before) == pytest.approx(0.2)
    assert before.steal_part_since(before) == 0
    stat.write_text("nonsense\n")
    assert processor_time(stat) is None
    assert processor_time(tmp_path / "none") is None


def test_nothing_is_observed_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert Observer.found() == []
    monkeypatch.setenv(SWITCH, "counters")
    found = Observer.found()
    assert [meter.name for meter in found] == ["processor seconds", "page faults", "switches"]
    before = found[0].read()
    assert sum(range(1 << 20)) > 0
    assert found[0].read() > before


def test_counters_of_launches_are_kept_with_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    monkeypatch.setenv(SWITCH, "energy,counters")
    source = tmp_path / "fill.cl"
    source.write_text("kernel void fill(global int *y) { y[get_global_id(0)] = 1; }")
    campaign = Campaign(sizes=(1 << 16,), local_sizes=(64,), repeats=Repeats(least=3, most=3))
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    workloads = workloads_of([source], campaign)
    (point,) = run_campaign(workloads, tmp_path / "out", campaign, limits=Limits(seconds=10), drivers=drivers)
    counted = dict(part.split(":") for part in point.counters.split(","))
    assert set(counted) == {"processor seconds", "page faults", "switches"}
    assert float(counted["processor seconds"]) > 0
    assert point.joules is None or point.joules >= 0
