from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.errors import MalformedInput, OutOfBoundsWrite, UnknownName, UnreadableFile
from apportion.program.kernel.bounds import NDRange
from apportion.runtime import devices
from apportion.runtime.base import DeviceInfo, Launch, Timing
from apportion.runtime.opencl.devices import OpenCLDevice
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.replay import RecordedDevice, Recorder, key_of

SOURCE = "kernel void twice(global int *a, int shift) { a[get_global_id(0) + shift] *= 2; }"
INFO = DeviceInfo("gpu", "a GPU", "gpu", "v", "p", "d", "1", 80, 1 << 34, 1 << 15, 1024)


def _launch(values: np.ndarray, shift: int = 0) -> Launch:
    return Launch(SOURCE, "twice", (values, np.int32(shift)), NDRange((64,), (16,)))


def test_a_recording_answers_with_the_timing_it_holds() -> None:
    launch = _launch(np.ones(64, np.int32))
    with RecordedDevice(INFO, {key_of(launch): Timing(0.5, kernel=0.25)}) as device:
        assert device.run(launch) == Timing(0.5, kernel=0.25)


def test_a_launch_that_was_not_recorded_is_unknown() -> None:
    with pytest.raises(
        UnknownName, match=r"No recorded launch called 'twice 64/16 [0-9a-f]{16}'. There are none."
    ):
        RecordedDevice(INFO, {}).run(_launch(np.ones(64, np.int32)))


def test_what_a_recorder_saves_a_recording_loads(worker: Worker, tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.int32)
    with Recorder(OpenCLDevice("cpu3", worker)) as recorder:
        timing = recorder.run(_launch(values))
    assert values.tolist() == [2 * i for i in range(64)]
    recorder.save(tmp_path / "cpu3.json")
    loaded = RecordedDevice.load(tmp_path / "cpu3.json")
    assert loaded.info == recorder.info
    assert loaded.run(_launch(values)) == timing


def test_a_single_device_finds_out_of_bounds_writes_too(worker: Worker) -> None:
    with OpenCLDevice("cpu2", worker) as device, pytest.raises(OutOfBoundsWrite, match="at byte 256"):
        device.run(_launch(np.ones(64, np.int32), shift=1))


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1, 2]")
    with pytest.raises(MalformedInput, match="not a recording of a device"):
        RecordedDevice.load(tmp_path / "x.json")
    with pytest.raises(UnreadableFile, match="Cannot read the recording"):
        RecordedDevice.load(tmp_path / "y.json")


def test_devices_are_known_by_name() -> None:
    assert devices.names() == ["opencl", "recorded"]
    assert devices.load("recorded") is RecordedDevice
