from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting, MalformedInput, OutOfBoundsWrite, UnknownName, UnreadableFile
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.backend import open_backend
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.plan import Build, Plan
from apportion.runtime.replay import Recorder, Recording, ReplayBackend, ReplaySettings
from apportion.runtime.sampling import Repeats
from apportion.runtime.split import Split
from apportion.runtime.visit import Visit
from apportion.suite import problem_of
from apportion.suite.run import run_suite
from apportion.testing.backend_checks import KernelCall, run

SOURCE = "kernel void twice(global int *a, int shift) { a[get_global_id(0) + shift] *= 2; }"
FOLDER = Path(__file__).parents[2] / "docs" / "results" / "co-execution"


def _call(values: np.ndarray, shift: int = 0) -> KernelCall:
    return KernelCall(SOURCE, "twice", (values, np.int32(shift)), NDRange((64,), (16,)))


def _folder(tmp_path: Path, *launches: tuple[dict[str, float], float, dict[str, float]]) -> Path:
    (tmp_path / "devices.json").write_text((FOLDER / "devices.json").read_text())
    lines = [
        {"kernel": "twice", "work_items": 64, "shares": shares, "seconds": seconds, "devices": devices}
        for shares, seconds, devices in launches
    ]
    (tmp_path / "launches.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_a_launch_takes_what_was_recorded_and_computes_nothing(tmp_path: Path) -> None:
    values = np.ones(64, np.int32)
    with open_backend(f"replay:{_folder(tmp_path, ({'gpu': 1.0}, 0.5, {'gpu': 0.4}))}") as backend:
        outcome = run(backend, _call(values), Split.alone("gpu"))
    assert (outcome.seconds, outcome.devices[0].seconds) == (0.5, 0.4)
    assert values.tolist() == [1] * 64


def test_a_cut_that_was_not_recorded_follows_from_lines_through_those_that_were(tmp_path: Path) -> None:
    recorded = [
        ({"cpu": share, "gpu": 1 - share}, 1.0, {"cpu": 0.1 + 0.8 * share, "gpu": 0.2 + 0.4 * (1 - share)})
        for share in (0.25, 0.75)
    ]
    backend = ReplayBackend(Recording.load(_folder(tmp_path, *recorded)))
    cpu, gpu = run(backend, _call(np.ones(64, np.int32)), Split.even(["cpu", "gpu"])).devices
    assert cpu.seconds == pytest.approx(0.5)
    assert gpu.seconds == pytest.approx(0.4)


def test_what_was_not_recorded_is_unknown(tmp_path: Path) -> None:
    backend = ReplayBackend(Recording.load(_folder(tmp_path, ({"gpu": 1.0}, 0.5, {"gpu": 0.5}))))
    other = KernelCall(SOURCE, "twice", (np.ones(64, np.int32), np.int32(0)), NDRange((32,), (16,)))
    with pytest.raises(
        UnknownName, match="No recorded launch of 'twice' with this many work-items called '32'"
    ):
        run(backend, other, Split.alone("gpu"))
    with pytest.raises(UnknownName, match="No recorded device called 'cpu'"):
        run(backend, _call(np.ones(64, np.int32)), Split.alone("cpu"))
    with pytest.raises(InvalidSetting, match="say replay:FOLDER"):
        open_backend("replay")


def test_noise_and_what_a_launch_after_another_takes_can_be_rehearsed(tmp_path: Path) -> None:
    recording = Recording.load(
        _folder(tmp_path, ({"gpu": 1.0}, 1.0, {"gpu": 1.0}), ({"cpu": 1.0}, 1.0, {"cpu": 1.0}))
    )
    steady = ReplayBackend(recording, ReplaySettings(after_another=1.5))
    order = ("gpu", "gpu", "cpu", "cpu")
    call = _call(np.ones(64, np.int32))
    assert [run(steady, call, Split.alone(name)).seconds for name in order] == [1.0, 1.0, 1.5, 1.0]
    noisy = ReplayBackend(recording, ReplaySettings(noise=0.1))
    times = [run(noisy, call, Split.alone("gpu")).seconds for _ in range(200)]
    assert np.std(np.log(times)) == pytest.approx(0.1, rel=0.2)


def test_what_a_recorder_saves_a_recording_loads(backend: OpenCLBackend, tmp_path: Path) -> None:
    values = np.arange(64, dtype=np.int32)
    recorder = Recorder(backend)
    outcome = run(recorder, _call(values), Split.even(["cpu", "cpu3"]))
    assert values.tolist() == [2 * i for i in range(64)]
    recorder.save(tmp_path)
    replay = ReplayBackend(Recording.load(tmp_path))
    assert replay.devices() == recorder.devices()
    again = run(replay, _call(values), Split.even(["cpu", "cpu3"]))
    assert again.seconds == pytest.approx(outcome.seconds)
    assert [each.seconds for each in again.devices] == [each.seconds for each in outcome.devices]


def test_co_execution_runs_on_curves_of_another_machine_policies_included() -> None:
    problem = problem_of("bezier")
    instance = problem.instance(problem.usual)
    (stage,) = instance.stages
    with Together(problem.source(), "bezier", backend=f"replay:{FOLDER}") as kernel:
        assert [info.id for info in kernel.devices] == ["cpu", "gpu"]
        bound = kernel.bind(
            *instance.values(stage, instance.arrays),
            global_size=stage.global_size,
            local_size=stage.local_size,
        )
        launches = [bound.run("learned+feedback") for _ in range(12)]
        oracle = bound.run("oracle")
        gpu = bound.run("gpu")
    assert gpu.seconds == pytest.approx(1.622e-3, rel=1e-3)
    assert oracle.seconds < 0.95 * gpu.seconds
    assert launches[-1].seconds <= 1.05 * gpu.seconds
    assert not any(launch.verified for launch in launches)


def test_the_suite_runs_on_a_recording_and_claims_no_results(tmp_path: Path) -> None:
    problems = [problem_of("bezier"), problem_of("triad")]
    with open_backend(f"replay:{FOLDER}") as backend:
        results = list(run_suite(problems, backend, repeats=1))
    assert {result.device for result in results} == {"cpu", "gpu", "together"}
    assert all(result.milliseconds for result in results)
    assert {result.verified for result in results} == {None}
    assert {result.said for result in results} == {"replayed: nothing was computed"}


def test_measuring_asks_a_recording_for_its_shares(tmp_path: Path) -> None:
    backend = ReplayBackend(Recording.load(_folder(tmp_path, ({"gpu": 1.0}, 1.0, {"gpu": 1.0}))))
    plan = Plan(Build(SOURCE, "twice"), NDRange((64,), (16,)), 0, ())
    (seen,) = backend.measure(Visit(plan, {}, ("gpu",), Repeats()), 1.0)
    assert [launch.seconds for launch in seen.launches] == [1.0, 0.5, 0.25]


def test_a_single_device_finds_out_of_bounds_writes_too(backend: OpenCLBackend) -> None:
    with pytest.raises(OutOfBoundsWrite, match="at byte 256"):
        run(backend, _call(np.ones(64, np.int32), shift=1), Split.alone("cpu2"))


def test_a_folder_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "devices.json").write_text("[1, 2]")
    with pytest.raises(MalformedInput, match="not a recording of launches"):
        Recording.load(tmp_path)
    with pytest.raises(UnreadableFile, match="Cannot read the recording"):
        Recording.load(tmp_path / "nowhere")
