"""`apportion export` and `apportion predict --engine onnx` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.cli import main

pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
LL = "define void @f() {\n  ret void\n}\n"


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0


def test_export_writes_an_onnx_file_and_says_what_it_is(tmp_path: Path, capsys) -> None:
    run("export", "--onnx", str(tmp_path / "balance.onnx"), "--task", "device-mapping")
    assert (tmp_path / "balance.onnx").stat().st_size > 1 << 20
    assert "the predictor of cgo17-nvidia for device-mapping" in capsys.readouterr().err


def test_predict_answers_by_either_engine(tmp_path: Path, capsys) -> None:
    (tmp_path / "f.ll").write_text(LL)
    shares = []
    for engine in ("numpy", "onnx"):
        run(
            "predict",
            str(tmp_path / "f.ll"),
            "--local-size",
            "64",
            "--bytes",
            "9",
            "--engine",
            engine,
            "--json",
        )
        shares.append(json.loads(capsys.readouterr().out)["cpu_share"])
    assert shares[0] == pytest.approx(shares[1], abs=1e-5)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "none").write_text("a file")
    with pytest.raises(SystemExit) as left:
        main(["export", "--onnx", str(tmp_path / "none" / "balance.onnx")])
    assert left.value.code == 1
    assert capsys.readouterr().err.startswith("apportion: Cannot write")
