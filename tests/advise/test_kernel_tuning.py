"""An OpenCL kernel tuned on a real device: macros, work-group sizes, and configurations that compute wrongly."""

from __future__ import annotations

import json

import pytest

from apportion.advise.kernel_tuning import _sizes
from apportion.cli import main
from apportion.measure.tuning_table import space_of_t1

pytest.importorskip("pyopencl", reason="pyopencl is not installed")
pytestmark = pytest.mark.xdist_group("opencl")

SOURCE = """
kernel void scale(global float *y, global const float *x) {
    size_t first = get_global_id(0) * ITEMS;
    for (int i = 0; i < ITEMS; ++i) {
        float sum = 0;
        for (int turn = 0; turn < WORK; ++turn) sum += x[first + i] * turn;
        y[first + i] = sum;
    }
}
"""


@pytest.mark.parametrize("where", [(), ("--runner", "local")])
def test_a_kernel_is_tuned_and_wrong_configurations_are_left_out(where, tmp_path, capsys):
    (tmp_path / "scale.cl").write_text(SOURCE)
    words = [
        "tune",
        "--opencl",
        str(tmp_path / "scale.cl"),
        "-n",
        "16384 // ITEMS",
        "-l",
        "LX",
        "--repeats",
        "2",
    ]
    words += [
        "--arg",
        "x=float32[16384]",
        "--arg",
        "y=float32[16384]",
        "--param",
        "ITEMS=1,4,16",
        "--param",
        "LX=1,16,64",
    ]
    words += ["--param", "WORK=8,9", "--allowed", "LX <= 64", "--budget", "6", "--json"]
    words += ["--default", "ITEMS=1", "--default", "LX=16", "--default", "WORK=8"]
    words += ["--results", str(tmp_path / "t1.json"), "--results-format", "t1"]
    with pytest.raises(SystemExit) as ended:
        main([*words, *where])
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["best"]["WORK"] == 8  # what the default computes is right
    failures = {one["failure"] for one in said["measured"] if one["configuration"]["WORK"] == 9}
    assert all(failure.startswith("WrongResult: y: element") for failure in failures)
    assert 0 < said["value"] < 1
    found = said["best"]
    assert said["how_to"].startswith(
        f"To run it: apportion run {tmp_path / 'scale.cl'} -n {16384 // found['ITEMS']}"
    )
    assert f" -l {found['LX']} -D ITEMS={found['ITEMS']} " in said["how_to"]
    assert said["objective"] == "seconds"
    described = json.loads((tmp_path / "t1.json").read_text())
    assert described["KernelSpecification"]["GlobalSize"] == {"X": "16384 // ITEMS"}
    assert described["KernelSpecification"]["LocalSize"] == {"X": "LX"}
    assert len(space_of_t1(tmp_path / "t1.json").configurations) == 18
    if said["best"] != {"ITEMS": 1, "LX": 16, "WORK": 8}:
        low, high = said["speedup_interval"]
        assert said["than"] == "the default"
        assert low <= said["speedup"] <= high


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("1024", (1024,)), ("1024x64", (1024, 64)), ("8192 // A, A", (2048, 4)), ("1024,64", (1024, 64))],
)
def test_sizes_are_written_as_everywhere_or_as_expressions(text, sizes):
    assert _sizes(text, {"A": 4}) == sizes


def test_a_kernel_without_a_range_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tune", "--opencl", str(tmp_path / "k.cl"), "--param", "A=1,2", "--budget", "2"])
    assert ended.value.code == 1
    assert "A kernel needs its --global-size" in capsys.readouterr().err
