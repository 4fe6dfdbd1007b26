from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest

from apportion.cli import main
from apportion.runtime.base import Limits

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")

SOURCE = """
kernel void scale(global const float *x, global float *y, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i];
}
kernel void past(global int *y) { y[get_global_id(0) + 1] = 1; }
"""


def _done(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert not stopped.value.code


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scale.cl"
    path.write_text(SOURCE)
    return path


def test_a_run_prints_the_promised_keys_and_writes_its_results(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.arange(512, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    _done(
        ["run", str(file), "--kernel", "scale", "--global-size", "512", "--local-size", "32", "--json",
         "--devices", "cpu,cpu2", "--split", "0.25", "--repeat", "2", "--arg", f"x={tmp_path / 'x.npy'}",
         "--arg", "a=2.5", "--arg", "y=float32[N]", "--out", f"y={tmp_path / 'y.npy'}",
         "--report", str(tmp_path / "report.html")]
    )  # fmt: skip
    said = json.loads(capsys.readouterr().out)
    assert {
        "policy", "split", "milliseconds", "alone", "verified", "merge", "conflicts", "reason",
    } <= set(said)  # fmt: skip
    assert said["split"] == {"cpu": 0.25, "cpu2": 0.75}
    assert set(said["alone"]) == {"cpu", "cpu2"}
    assert (said["verified"], said["merge"], said["conflicts"]) == (True, {"y": "slice"}, 0)
    assert np.load(tmp_path / "y.npy").tolist() == (2.5 * x).tolist()
    page = (tmp_path / "report.html").read_text()
    assert "scale on cpu, cpu2" in page
    assert "<polyline" in page
    assert "http" not in page  # it needs nothing else


def test_a_table_for_people_names_every_device(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _done(
        [
            "run",
            str(file),
            "--kernel",
            "scale",
            "-n",
            "512",
            "--devices",
            "cpu,cpu2",
            "--trust",
            "--repeat",
            "1",
        ]
    )
    said = capsys.readouterr()
    assert "cpu2" in said.out
    assert "Verified: no. Conflicts: 0." in said.err


@pytest.mark.parametrize(("split", "policy"), [("auto", "learned+feedback"), ("learned", "learned")])
def test_a_split_is_predicted_where_nothing_was_launched_yet(
    split: str, policy: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _done(["run", str(file), "--kernel", "scale", "-n", "512", "--devices", "cpu,cpu2", "--split", split,
           "--repeat", "1", "--json"])  # fmt: skip
    said = json.loads(capsys.readouterr().out)
    assert said["policy"] == policy
    assert said["verified"]
    expected = (
        "predicted from calibrated speeds" if split == "learned" else ("earlier launches", "cpu", "sharing")
    )
    assert said["reason"].startswith(expected)


def test_a_timing_model_that_is_named_predicts_the_first_launch(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _done(["run", str(file), "--kernel", "scale", "-n", "2048", "--devices", "cpu,cpu2", "--split", "learned",
           "--model", "xeon-h200", "--repeat", "1", "--json"])  # fmt: skip
    said = json.loads(capsys.readouterr().out)
    assert "predicted from the timing model xeon-h200" in said["reason"]
    with pytest.raises(SystemExit):
        main(["run", str(file), "--kernel", "scale", "-n", "64", "--model", "nowhere"])
    assert "No model, or folder of one, called 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--kernel", "past", "-n", "64", "--arg", "y=int32[N]", "--trust", "--split", "cpu"],
            "wrote out of bounds",
        ),
        (["--kernel", "scale", "-n", "many"], "--global-size must be written like 1024 or 1024x64"),
        (["--kernel", "scale", "-n", "64", "--arg", "z=1"], "No argument called 'z'"),
        (["-n", "64"], "There are: past, scale"),
        (["--kernel", "scale", "-n", "64", "--split", "1.5"], "A share must lie between 0 and 1, not 1.5"),
        (["--kernel", "scale", "-n", "64", "--out", "y"], "Write it like --out y=result.npy, not 'y'"),
    ],
)
def test_what_goes_wrong_is_one_line(
    more: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(file), *more])
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_what_a_kernel_prints_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        'kernel void hello(global int *x) { if (get_global_id(0) == 3) printf("item %d\\n", 3); x[0] = 1; }'
    )
    (tmp_path / "hello.cl").write_text(text)
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(tmp_path / "hello.cl"), "-n", "64", "--split", "cpu", "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["printed"] == "item 3\n"
    assert "x=int32[64]=zeros" in json.loads(out)["assumed"][0]
    assert "Assumed: x=int32[64]" in err


def test_the_compilers_reason_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\nkernel void h(global half *x) { half y = x[0]; x[1] = y; }"
    (tmp_path / "half.cl").write_text(half)
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path / "half.cl"), "-n", "64"])
    said = capsys.readouterr().err
    assert "refuses the kernel 'h':\n" in said
    assert "apportion: The compiler of cpu" in said
    assert "half" in said.partition("refuses the kernel")[2]


def test_a_kernel_runs_beside_one_that_the_device_cannot_compile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.cl").write_text(
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
        "kernel void narrow(global half *x) { half y = x[0]; x[1] = y; }\n"
        "kernel void wide(global float *x) { x[get_global_id(0)] += 1; }\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "two.cl"), "--kernel", "wide", "-n", "256", "--repeat", "1", "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out)["verified"] is True


def test_strays_are_found_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "past.cl").write_text(
        "kernel void past(global const int *x, global int *y) {\n  y[get_global_id(0)] = x[get_global_id(0) + 9];\n}\n"
    )
    for more in ((), ("--check",)):
        with pytest.raises(SystemExit):
            main(["run", str(tmp_path / "past.cl"), "-n", "64", "--arg", "x=int32[N]", *more])
        assert "past.cl:2: past: work-item 55 reads 4 bytes at byte 256 of 'x'" in capsys.readouterr().err


def test_a_small_number_gets_a_fitting_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "kernel void thr(global uchar *x, uchar n) { int i = get_global_id(0); if (i < n) x[i] = n; }"
    (tmp_path / "thr.cl").write_text(text)
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(tmp_path / "thr.cl"), "-n", "1024", "--split", "cpu", "--json"])
    assert "n=255 (it bounds the work-items of dimension 0; as much as fits)" in capsys.readouterr().out


def test_no_gain_is_claimed_that_repeats_do_not_show(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(file), "--kernel", "scale", "-n", "64", "--split", "cpu"])
    said = capsys.readouterr().err
    assert "times the speed" not in said
    assert "One device does it all" in said


def test_the_first_run_says_that_it_calibrates_and_what_it_left_out(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path))
    monkeypatch.setattr(Limits, "__init__", partialmethod(Limits.__init__, calibration_seconds=1e-6))
    words = ["run", str(file), "--kernel", "scale", "-n", "512", "--devices", "cpu,cpu2", "--repeat", "1"]
    _done(words)
    said = " ".join(capsys.readouterr().err.split())
    assert "Calibrating cpu, cpu2: what a device does per second is measured once, in about 1e-06 s a" in said
    assert "cpu2: there was no time to measure 21 of its speeds (worth divisions, worth roots," in said
    assert "Measure them with: apportion devices --calibrate" in said
    _done(words)
    assert "Calibrating" not in capsys.readouterr().err


def test_a_run_for_least_energy_uses_the_device_that_draws_less_and_tells_joules(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _done(
        ["run", str(file), "--kernel", "scale", "-n", "4096", "--arg", "a=2.5", "--devices", "cpu,cpu2", "--json",
         "--objective", "energy", "--watts", "cpu=5000", "--watts", "cpu2=5:1", "--fresh"]
    )  # fmt: skip
    said = json.loads(capsys.readouterr().out)
    assert said["split"] == {"cpu": 0.0, "cpu2": 1.0}
    assert said["energy"]["watts"] == {"idle": 1.0, "cpu": 5000.0, "cpu2": 5.0}
    assert said["energy"]["origin"] == {"cpu": "given", "cpu2": "given"}
    assert said["energy"]["joules"] < said["energy"]["alone"]["cpu"]
    assert said["reason"].startswith("least energy")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--objective", "enrgy"], "No objective called 'enrgy'. Did you mean 'energy'?"),
        (
            ["--objective", "energy", "--split", "even"],
            "--objective chooses the split itself: leave --split out",
        ),
        (["--objective", "energy", "--watts", "cpu"], "Write it like --watts cpu=120:30, not 'cpu'"),
    ],
)
def test_an_objective_that_cannot_be_had_is_one_line(
    file: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(file), "--kernel", "scale", "-n", "4096", *words])
    assert stopped.value.code == 1
    assert message in capsys.readouterr().err
