from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion import weights
from apportion.advise import launch_times as timing
from apportion.advise.learned_policy import fitting_model, learned, together
from apportion.learn.base import list_again
from apportion.learn.forest import Forest
from apportion.learn.times.timing_model import DeviceModel, TimingModel
from apportion.program.kernel.launch import LAUNCH, TOTALS
from apportion.runtime.base import DeviceInfo

CPU, GPU = (
    DeviceInfo(
        name, f"a {name}", name, "v", "p", "d", "1", 8, 1 << 30, 1 << 15, 1024, shares_memory=name == "cpu"
    )
    for name in ("cpu", "gpu")
)
SOURCE = """
kernel void scale(global const float *x, global float *y, float a) { y[get_global_id(0)] = a * x[get_global_id(0)]; }
"""


def _constant(value: float) -> Forest:
    """One tree that is one leaf."""
    one = np.zeros(1, np.int32)
    return Forest(one.astype(np.int16), np.zeros(1), one, one, np.array([value]), one, 0)


def _device(kind: str, name: str, seconds: float) -> DeviceModel:
    coefficients = np.zeros(len(TOTALS))
    coefficients[0] = seconds  # of a launch, whatever it does
    return DeviceModel(kind, name, coefficients, _constant(0.0), _constant(0.0), 0.1, {})


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(weights, "WEIGHTS", tmp_path)
    list_again(tmp_path)
    timing.timing_model.cache_clear()
    yield tmp_path
    timing.timing_model.cache_clear()


def _ship(folder: Path, name: str, cpu: str, gpu: str) -> None:
    TimingModel(name, tuple(LAUNCH), (_device("cpu", cpu, 0.03), _device("gpu", gpu, 0.01)), {}).save(
        folder / name
    )
    list_again(folder)


def test_without_a_model_that_fits_speeds_predict(shipped: Path) -> None:
    assert fitting_model([CPU, GPU]) is None
    _ship(shipped, "nameless", "", "")
    assert fitting_model([CPU, GPU]) is None  # nobody knows what it learned from


def test_a_model_of_few_kernels_is_not_asked(shipped: Path) -> None:
    devices = (_device("cpu", "a Xeon", 0.03), _device("gpu", "an H200", 0.01))
    TimingModel("young", tuple(LAUNCH), devices, {"kernels": 7}).save(shipped / "young")
    list_again(shipped)
    assert fitting_model([CPU, GPU]) is None
    TimingModel("grown", tuple(LAUNCH), devices, {"kernels": 700}).save(shipped / "grown")
    list_again(shipped)
    assert fitting_model([CPU, GPU]) == "grown"


def test_a_model_of_a_cpu_and_a_gpu_does_not_fit_two_cpus(shipped: Path) -> None:
    _ship(shipped, "some-machine", "a Xeon", "an H200")
    assert fitting_model([CPU, GPU]) == "some-machine"
    assert fitting_model([CPU, replace(CPU, id="cpu2")]) is None
    assert fitting_model([CPU, replace(GPU, kind="accelerator")]) is None


def test_the_learned_policy_runs_and_says_what_it_was_predicted_from(shipped: Path) -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    x, y = np.ones(256, np.float32), np.zeros(256, np.float32)
    with together(SOURCE, "scale", policy="learned", trust=True) as kernel:
        execution = kernel(x, y, 2.0, global_size=256)
        bound = kernel.bind(x, y, 2.0, global_size=256)
    assert "calibrated speeds" in execution.reason
    assert y.tolist() == [2.0] * 256
    _ship(shipped, "some-machine", "a Xeon", "an H200")
    query = bound._launcher.query()
    forecast = learned(query, [CPU, GPU])
    assert forecast.origin == "the timing model some-machine"
    assert forecast.models["cpu"].seconds(1.0) == pytest.approx(3 * forecast.models["gpu"].seconds(1.0))
