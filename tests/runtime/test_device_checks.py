"""Every kind of device passes the checks that are meant for anybody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.runtime.base import Device
from apportion.runtime.opencl.devices import OpenCLDevice
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.replay import RecordedDevice, Recorder
from apportion.testing.device_checks import DeviceChecks, launches


class TestPoCL(DeviceChecks):
    @pytest.fixture(autouse=True)
    def _worker(self, worker: Worker) -> None:
        self.worker = worker

    def device(self) -> Device:
        return OpenCLDevice("cpu", self.worker)


class TestPoCLWithCopies(TestPoCL):
    def device(self) -> Device:
        return OpenCLDevice("cpu3", self.worker)


class TestARecording(DeviceChecks):
    computes = False

    path: Path

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _recording(cls, worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.path = tmp_path_factory.mktemp("recording") / "cpu2.json"
        with Recorder(OpenCLDevice("cpu2", worker)) as recorder:
            for launch, _, _ in launches().values():
                recorder.run(launch)
            recorder.save(cls.path)

    def device(self) -> Device:
        return RecordedDevice.load(self.path)
