"""Devices that were found are known later without starting a driver."""

from __future__ import annotations

from datetime import date

import pytest

from apportion.runtime import known_devices as known
from apportion.runtime.base import Calibration, DeviceInfo
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend

CPU = DeviceInfo(
    "cpu", "a cpu", "cpu", "", "", "", "", 4, 1 << 30, 1 << 15, 256,
    max_work_item_sizes=(256, 256, 64), faults=("one",), calibration=Calibration(1.0, 2.0, 3.0, 4.0, 5.0, {"x": 6.0}),
)  # fmt: skip


def test_what_is_kept_comes_back_and_damage_is_nothing_known() -> None:
    assert known.known_devices() is None
    bare = DeviceInfo("gpu", "a gpu", "gpu", "", "", "", "", 4, 1 << 30, 1 << 15, 256)
    known.keep_devices([CPU, bare])
    found = known.known_devices()
    assert found == known.KnownDevices(date.today(), (CPU, bare))
    assert found.calibrated == (CPU,)
    for damaged in (
        "",
        "[]",
        '{"found": "yesterday", "devices": []}',
        '{"found": "2026-01-01", "devices": [1]}',
    ):
        known._file().write_text(damaged)
        assert known.known_devices() is None


@pytest.mark.xdist_group("opencl")
def test_listing_the_drivers_devices_keeps_them() -> None:
    pytest.importorskip("pyopencl")
    with OpenCLBackend(DriverOptions(threads=1)) as backend:
        backend.devices()
    assert known.known_devices() is None  # not the devices that other commands would find
    with OpenCLBackend() as backend:
        listed = backend.devices()
    found = known.known_devices()
    assert found is not None
    assert list(found.devices) == listed
