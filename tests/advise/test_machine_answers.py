"""Predictions answer for the devices of this machine where these are known, and say so where they are not."""

from __future__ import annotations

import json

import pytest

from apportion.advise.predictor import predict, predict_all
from apportion.advise.queries import Query
from apportion.cli import main
from apportion.errors import InvalidSetting
from apportion.program.source import Source
from apportion.runtime.base import Calibration, DeviceInfo
from apportion.runtime.known_devices import keep_devices

pytest.importorskip("ziglang")
SAXPY = Source(
    "kernel void saxpy(global const float *x, global float *y, float a, int n) {"
    " int i = get_global_id(0); if (i < n) y[i] += a * x[i]; }",
    "opencl",
    "saxpy.cl",
)
MEGABYTES = 1 << 26


def device(id: str, bandwidth: float | None = 1e10, name: str = "") -> DeviceInfo:
    speeds = None if bandwidth is None else Calibration(1e10, 1e10, bandwidth, 1e12, 1e-5)
    return DeviceInfo(
        id,
        name or id,
        "cpu",
        "",
        "",
        "",
        "",
        4,
        1 << 30,
        1 << 15,
        256,
        shares_memory=True,
        calibration=speeds,
    )


def test_two_calibrated_devices_of_this_machine_answer_by_default() -> None:
    keep_devices([device("cpu", 3e10), device("cpu2", 1e10)])
    found = predict(SAXPY, local_size=64, bytes=MEGABYTES)
    assert found.machine is not None
    assert (found.device, found.model, found.familiarity) == ("cpu", "calibrated speeds", 0.0)
    assert found.cpu_share == pytest.approx(0.75, abs=0.02)
    assert found.machine.cut.worth_sharing
    assert found.machine.cut.shares == pytest.approx({"cpu": 0.75, "cpu2": 0.25}, abs=0.02)
    slow, quick = found.machine.devices[1].times.seconds, found.machine.devices[0].times.seconds
    assert slow == pytest.approx(3 * quick, rel=0.05)
    # 8 bytes for each work-item.
    assert found.assumed[0] == (
        "global_size=8388608 (over it the arrays that the code reaches hold 67,108,864 bytes)"
    )
    assert found.cpu_work_items == pytest.approx(0.75 * (1 << 23), rel=0.03)
    low, high = found.interval
    assert low <= found.cpu_share <= high
    said = found.as_json()["machine"]
    assert said["cut"]["worth_sharing"] is True
    assert "curve" not in said["cut"]


def test_a_launch_that_is_too_short_is_not_worth_sharing() -> None:
    keep_devices([device("cpu"), device("cpu2")])
    found = predict(SAXPY, local_size=64, bytes=4096)
    assert found.machine is not None
    assert not found.machine.cut.worth_sharing
    assert found.cpu_share in (0.0, 1.0)


def test_three_devices_share_too() -> None:
    keep_devices([device("cpu", 2e10), device("cpu2"), device("cpu3")])
    found = predict(SAXPY, local_size=64, bytes=MEGABYTES)
    assert found.machine is not None
    assert found.machine.cut.shares == pytest.approx({"cpu": 0.5, "cpu2": 0.25, "cpu3": 0.25}, abs=0.02)
    assert found.machine.cut.share_interval is not None


def test_what_is_misjudged_of_a_kernel_is_misjudged_alike_on_two_devices_of_one_name() -> None:
    def width() -> float:
        low, high = predict(SAXPY, local_size=64, bytes=MEGABYTES).interval
        return high - low

    keep_devices([device("cpu", name="a"), device("cpu2", name="a")])
    alike = width()
    keep_devices([device("cpu", name="a"), device("cpu2", name="b")])
    assert alike < 0.15 < width()


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([], "of this machine no calibrated device is known"),
        ([device("cpu"), device("cpu2", None)], "of this machine only cpu is known and calibrated"),
    ],
)
def test_without_a_second_calibrated_device_a_pair_is_assumed_and_told(
    known: list[DeviceInfo], said: str
) -> None:
    if known:
        keep_devices(known)
    reason = f"{said}: `apportion devices` finds and measures its devices"
    found = predict(SAXPY, local_size=64, bytes=MEGABYTES)
    assert found.model == "cgo17-nvidia"
    assert found.machine is None
    assert found.assumed == (f"pair=cgo17-nvidia ({reason})",)
    (same,) = predict_all([Query(SAXPY, 64, MEGABYTES)])
    assert not isinstance(same, Exception)
    assert (same.assumed, same.cpu_share) == (found.assumed, found.cpu_share)
    assert predict(SAXPY, local_size=64, bytes=MEGABYTES, pair="cgo17-nvidia").assumed == ()
    with pytest.raises(InvalidSetting, match="this-machine cannot be predicted: of this machine"):
        predict(SAXPY, local_size=64, bytes=MEGABYTES, pair="this-machine")


def test_pairs_and_engines_that_are_named_are_answered_as_before() -> None:
    keep_devices([device("cpu"), device("cpu2")])
    assert predict(SAXPY, local_size=64, bytes=MEGABYTES, pair="cgo17-amd").model == "cgo17-amd"
    assert predict(SAXPY, local_size=64, bytes=MEGABYTES, model="gnn-load-balance").machine is None
    pytest.importorskip("onnxruntime")
    found = predict(SAXPY, local_size=64, bytes=MEGABYTES, engine="onnx")
    assert found.assumed == (
        "pair=cgo17-nvidia (the engine onnx evaluates models of shares alone, not times of this machine's "
        "devices)",
    )


def test_a_range_that_does_not_follow_from_the_bytes_must_be_given() -> None:
    keep_devices([device("cpu"), device("cpu2")])
    same = Source(
        "kernel void one(global float *x) { x[get_global_id(0) % 16] = 1; }", "opencl", "one.cl"
    )  # fmt: skip
    found = predict(same, local_size=64, bytes=64)
    assert found.model == "cgo17-nvidia"
    assert "How many work-items move 64 bytes does not follow from the code" in found.assumed[0]
    with pytest.raises(InvalidSetting, match=r"give the global size \(--global-size\)"):
        predict(same, local_size=64, bytes=64, pair="this-machine")
    assert predict(same, local_size=64, bytes=64, global_size=4096).machine is not None


def test_the_command_shows_devices_verdict_and_what_all_answers_assumed(tmp_path, capsys) -> None:
    keep_devices([device("cpu", 3e10), device("cpu2", 1e10)])
    (tmp_path / "saxpy.cl").write_text(str(SAXPY.text))
    words = ["--local-size", "64", "--bytes", str(MEGABYTES)]
    with pytest.raises(SystemExit) as left:
        main(["predict", str(tmp_path / "saxpy.cl"), *words])
    assert not left.value.code
    out, err = capsys.readouterr()
    assert "this machine (measured speeds" in out
    assert "cpu share" in out
    assert "Sharing takes" in err
    assert "Assumed: global_size=8388608" in err
    (tmp_path / "launches.csv").write_text("source,local_size,bytes\nsaxpy.cl,64,1048576\nsaxpy.cl,64,4096\n")
    with pytest.raises(SystemExit):
        main(["predict", "--batch", str(tmp_path / "launches.csv"), "--pair", "this-machine", "--json"])
    out, _ = capsys.readouterr()
    assert [json.loads(line)["machine"]["name"] for line in out.splitlines()] == ["this machine"] * 2
    with pytest.raises(SystemExit):
        main(["predict", "--batch", str(tmp_path / "launches.csv"), "--model", "cgo17-amd-recall", "--json"])
    out, _ = capsys.readouterr()
    assert [json.loads(line)["model"] for line in out.splitlines()] == ["cgo17-amd-recall"] * 2
