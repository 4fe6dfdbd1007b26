from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.cli import main

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")


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


def test_nothing_to_measure_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["measure", str(tmp_path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 1
    assert "There is nothing to measure" in capsys.readouterr().err
