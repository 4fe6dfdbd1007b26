"""Observers: meters are found when they are asked for, read, and kept with what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.device.base import Limits
from apportion.device.campaign import Campaign, run_campaign, workloads_of
from apportion.device.measure import Repeats
from apportion.device.observe import SWITCH, Observer, packages
from apportion.device.platforms import DriverOptions


def test_a_processors_meter_counts_millionths_of_a_joule(tmp_path: Path) -> None:
    for name, text in {"intel-rapl:0": "2500000", "intel-rapl:1": "not a number"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(text)
    (tmp_path / "intel-rapl:2").mkdir()  # without a file that may be read
    (meter,) = packages(tmp_path)
    assert (meter.name, meter.energy, meter.read()) == ("package 0", True, 2.5)


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
