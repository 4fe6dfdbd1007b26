"""What a result was made on."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.report.hardware import hardware


def test_a_gpu_is_called_what_the_driver_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("the driver itself says what GPU is here")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware("cuda") == "a CUDA device"
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    command.chmod(0o755)
    assert hardware("cuda") == "NVIDIA H200"
    command.write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    assert hardware("cuda") == "a CUDA device"


def test_a_processor_has_a_name_and_cores() -> None:
    assert hardware("cpu").endswith(" cores")
