"""The shipped predictors in a form that other programs run."""

from __future__ import annotations

from pathlib import Path

from apportion.advise.predictor import CONFIDENCE, DEFAULT_PAIR, Task, forests_model
from apportion.learn import exports
from apportion.settings import replace_file


def export_onnx(
    path: Path, *, task: Task = "load-balance", pair: str = DEFAULT_PAIR, model: str | Path | None = None
) -> int:
    """Write the predictor of a pair of devices, or a model, as an ONNX file; its size in bytes comes back.

    Inputs and outputs are those of `model.onnxgraph.SIGNATURE`, which the file's metadata have too.

    Raises:
        UnknownName: no such pair or task.
        InvalidSetting: the pair's model tells times, not shares.
        MissingPackage: the extra `onnx` is not installed.
        UnreadableFile: it cannot be written there.
    """
    forests = forests_model(task, pair, model)
    data: bytes = exports.load("onnx")(forests, confidence=CONFIDENCE, task=task)
    replace_file(path, data)
    return len(data)
