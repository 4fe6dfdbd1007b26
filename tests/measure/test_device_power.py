"""What devices draw: measured by the meters that may be read, kept, and given where there are none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, UnknownName
from apportion.measure.device_power import power_model
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.observe import Observer
from apportion.runtime.opencl.backend import OpenCLBackend

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
pytestmark = pytest.mark.xdist_group("opencl")


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenCLBackend]:
    with OpenCLBackend(
        DriverOptions(pocl_instances=2, threads=1, vendors=False), Limits(seconds=20)
    ) as backend:
        yield backend


def _constant(watts: float) -> Observer:
    """A meter of a processor that always draws the same."""
    return Observer("package 0", lambda: watts * time.perf_counter(), energy=True)


def test_what_is_drawn_whatever_happens_is_the_idle_machines(opened: OpenCLBackend) -> None:
    power = power_model(opened, opened.devices(), meters=[_constant(40.0)], fresh=True)
    assert power.idle == pytest.approx(40.0, rel=0.05)
    assert all(watts < 4.0 for watts in power.active.values())
    assert set(power.origin.values()) == {"measured"}


def test_what_a_working_device_draws_is_its_own(opened: OpenCLBackend) -> None:
    pid = opened.worker.process_id

    def joules() -> float:  # 90 W while the worker computes
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return 90.0 * (int(words[11]) + int(words[12])) / 100 + 10.0 * time.perf_counter()

    (info, *_) = opened.devices()
    power = power_model(opened, [info], meters=[Observer("package 0", joules, energy=True)], fresh=True)
    assert power.active[info.id] > power.idle  # more than the ten that never cease


def test_what_was_measured_is_kept_for_the_same_devices_and_meters(
    opened: OpenCLBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path))
    first = power_model(opened, opened.devices(), meters=[_constant(40.0)])
    again = power_model(opened, opened.devices(), meters=[_constant(90.0)])
    assert again == first
    (kept,) = (tmp_path / "power").glob("*.json")
    kept.write_text("{")
    assert power_model(opened, opened.devices(), meters=[_constant(90.0)]).idle == pytest.approx(90, rel=0.05)


def test_without_a_meter_watts_are_asked_for(opened: OpenCLBackend) -> None:
    with pytest.raises(InvalidSetting, match=r"What cpu2 draws cannot be measured.* --watts cpu2=120:30"):
        power_model(opened, opened.devices(), {"cpu": 100}, meters=[])
    power = power_model(opened, opened.devices(), {"cpu": "100:20", "cpu2": 30}, meters=[])
    assert (power.idle, power.active) == (20.0, {"cpu": 100.0, "cpu2": 30.0})
    assert set(power.origin.values()) == {"given"}
    with pytest.raises(UnknownName, match="No device called 'gpu'"):
        power_model(opened, opened.devices(), {"gpu": 100}, meters=[])
    with pytest.raises(InvalidSetting, match="Write the watts of cpu like 120 or 120:30, not 'much'"):
        power_model(opened, opened.devices(), {"cpu": "much"}, meters=[])
