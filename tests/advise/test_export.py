"""The shipped predictors as files that other programs run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.advise.describe import describe
from apportion.advise.export import export_onnx
from apportion.advise.predictor import Task, predict
from apportion.errors import UnknownName
from apportion.program.kernel.features import inputs_of
from apportion.program.source import Source

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
KERNEL = Source("define void @k(ptr %x) {\n  store float 2.0, ptr %x\n  ret void\n}\n", "llvm", "k.ll")


@pytest.mark.parametrize("task", ["load-balance", "device-mapping"])
def test_a_program_that_knows_nothing_of_apportion_gets_the_same_answer(tmp_path: Path, task: Task) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    path = tmp_path / "balance.onnx"
    size = export_onnx(path, task=task, model="cgo17-amd-recall")
    assert path.stat().st_size == size < 10 << 20
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    said = session.get_modelmeta().custom_metadata_map
    assert (said["model"], said["task"], said["confidence"]) == ("cgo17-amd-recall", task, "0.9")
    rows = {"code": describe(KERNEL).code[None], "inputs": inputs_of(4096, 64)[None]}
    assert len(json.loads(said["inputs"])) == rows["inputs"].shape[1]
    names = ("cpu_share", "low", "high", "familiarity", "share_class")
    share, low, high, familiarity, share_class = (float(one[0]) for one in session.run(names, rows))
    found = predict(KERNEL, local_size=64, bytes=4096, task=task, model="cgo17-amd-recall")
    np.testing.assert_allclose(
        [share, low, high, familiarity, share_class],
        [found.cpu_share, *found.interval, found.familiarity, found.share_class],
        atol=1e-5,
    )


def test_unknown_pairs_and_tasks_are_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="No pair of devices called 'h200'"):
        export_onnx(tmp_path / "a.onnx", pair="h200")
    with pytest.raises(UnknownName, match="No task called 'energy'"):
        export_onnx(tmp_path / "a.onnx", task="energy")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
