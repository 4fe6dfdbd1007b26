from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apportion.cli import main
from apportion.measure.campaign import JOURNAL, LAUNCHES, TABLE
from apportion.runtime.observe import ProcessorTime
from apportion.suite import problem_of

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")

RECORDING = Path(__file__).parents[2] / "docs" / "results" / "co-execution"


def test_kernels_are_measured_on_the_devices_of_another_backend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bezier = problem_of("bezier")
    (tmp_path / "bezier.cl").write_text(str(bezier.source().text))
    with pytest.raises(SystemExit) as ended:
        main(["measure", str(tmp_path / "bezier.cl"), "--out", str(tmp_path / "out"), "--sizes", "4194304",
              "--local-sizes", "64", "--backend", f"replay:{RECORDING}", "--json"])  # fmt: skip
    assert not ended.value.code
    points = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(point["device"], point["device_name"], point["failure"]) for point in points] == [
        ("cpu", "cpu-skylake-avx512-Intel(R) Xeon(R) Processor", ""), ("gpu", "NVIDIA H200", ""),
    ]  # fmt: skip
    assert all(point["seconds"] > 0 for point in points)
    with pytest.raises(SystemExit):
        main(["devices", "--backend", "cuda"])
    assert "No backend called 'cuda'" in capsys.readouterr().err


def test_a_folder_of_kernels_becomes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.cl").write_text("kernel void one(global int *y) { y[get_global_id(0)] = 1; }")
    with pytest.raises(SystemExit) as stopped:
        main(
            ["measure", str(tmp_path), "--out", str(tmp_path / "out"), "--devices", "cpu", "--sizes", "128",
             "--local-sizes", "32", "--seconds", "0.05", "--json"]
        )  # fmt: skip
    assert not stopped.value.code
    said = capsys.readouterr()
    (point,) = (json.loads(line) for line in said.out.splitlines())
    assert (point["kernel"], point["work_items"], point["device"], point["failure"]) == (
        "one",
        128,
        "cpu",
        "",
    )
    assert "1 points measured now, 0 of them failures" in said.err
    assert (tmp_path / "out" / "measurements.parquet").exists()


def test_a_kill_in_the_middle_of_a_point_loses_one_launch_at_most(tmp_path: Path) -> None:
    (tmp_path / "slow.cl").write_text(
        "kernel void slow(global float *y) { float v = get_global_id(0);"
        " for (int i = 0; i < 20000; ++i) v = v * 0.5f + 1.0f; y[get_global_id(0)] = v; }"
    )
    out = tmp_path / "out"
    command = [
        sys.executable, "-c", "from apportion.cli import main; main()", "measure", str(tmp_path / "slow.cl"),
        "--out", str(out), "--sizes", "256,512,1024", "--local-sizes", "32", "--seconds", "3",
        "--pocl-instances", "2", "--threads", "1", "--deadline", "120",
    ]  # fmt: skip
    campaign = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 240
        while not (_lines(out / JOURNAL) and len(_lines(out / LAUNCHES)) > 4):
            assert time.monotonic() < end, "the campaign does not get on"
            time.sleep(0.002)
    finally:
        os.kill(campaign.pid, signal.SIGKILL)
        campaign.wait()
    before, flying = _lines(out / JOURNAL), [json.loads(line) for line in _lines(out / LAUNCHES)]
    if {launch["key"] for launch in flying} & {json.loads(line)["key"] for line in before}:
        flying = []  # the kill came after a point had reached the journal and before its launches were dropped
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = _lines(out / JOURNAL)
    assert after[: len(before)] == before
    points = {point["key"]: point for point in map(json.loads, after)}
    assert len(points) == len(after) == 6
    assert not any(point["failure"] for point in points.values())
    for key in {launch["key"] for launch in flying}:
        assert points[key]["repeats"] >= sum(
            launch["key"] == key and launch["share"] == 1 for launch in flying
        )
    assert _lines(out / LAUNCHES) == []
    assert (out / TABLE).exists()


def _lines(path: Path) -> list[str]:
    """The lines of a file that are whole."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def test_a_machine_whose_time_others_got_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.cl").write_text("kernel void one(global int *y) { y[get_global_id(0)] = 1; }")
    times = iter([ProcessorTime(100.0, 1.0), ProcessorTime(108.0, 3.0)])
    monkeypatch.setattr("apportion.cli.measure.processor_time", lambda: next(times))
    with pytest.raises(SystemExit) as stopped:
        main(
            ["measure", str(tmp_path), "--out", str(tmp_path / "out"), "--devices", "cpu", "--sizes", "128",
             "--local-sizes", "32", "--seconds", "0.05", "--passes", "2"]
        )  # fmt: skip
    assert not stopped.value.code
    said = " ".join(capsys.readouterr().err.split())
    assert "2 points measured now" in said
    assert "got 20% of the processors' time" in said


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.cl").write_text("kernel void k(global float *a) { a[get_global_id(0)] = 1; }")
    with pytest.raises(SystemExit) as left:
        main(["measure", str(tmp_path / "k.cl"), "--out", str(tmp_path), "--sizes", "256"])
    assert left.value.code == 1
    assert f"{tmp_path} holds files of something else, such as k.cl" in " ".join(
        capsys.readouterr().err.split()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["k.cl"]


def test_nothing_to_measure_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["measure", str(tmp_path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 1
    assert "There is no .cl file in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("measure", "nothere", "--out", "out"), "There is no file or folder nothere"),
        (("measure", "k.cl", "--devices", "cpu,tpu", "--out", "out"), "No device called 'tpu'"),
        (("calibrate", "nothere", "--devices", "cpu"), "There is no file or folder nothere"),
        (("calibrate", "--devices", "tpu"), "No device called 'tpu'"),
    ],
)
def test_what_is_not_there_ends_with_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cl").write_text("kernel void f(global int *x) { x[get_global_id(0)] = 1; }")
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert stopped.value.code == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_run_in_which_everything_failed_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.cl").write_text("kernel void f(global float *x) { x[get_global_id(0)] = 1; }\n")
    (tmp_path / "f.json").write_text('{"kernel": "f", "arguments": {"x": "float32[N]"}}')
    with pytest.raises(SystemExit) as ended:
        main(["measure", str(tmp_path / "f.cl"), "--out", str(tmp_path / "out")])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("f.cl: MalformedInput: ")


def test_guesses_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.cl").write_text("kernel void f(global T *x) { x[get_global_id(0)] = FACTOR; }\n")
    with pytest.raises(SystemExit) as ended:
        main(["measure", str(tmp_path / "f.cl"), "--out", str(tmp_path / "out"), "--guess", "--sizes", "4096",
              "--local-sizes", "64", "--devices", "cpu"])  # fmt: skip
    assert not ended.value.code
    err = capsys.readouterr().err
    assert "Guessed: -D T=float, -D FACTOR=16" in err
    assert "1 points measured now, 0 of them failures" in err
