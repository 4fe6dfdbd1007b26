"""`apportion export`: the shipped predictors for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from apportion.advise.export import export_onnx
from apportion.advise.predictor import DEFAULT_PAIR
from apportion.cli.show import note, size_in_words


def export(
    *,
    onnx: Path,
    task: Literal["load-balance", "device-mapping"] = "load-balance",
    pair: str = DEFAULT_PAIR,
    model: str | None = None,
) -> None:
    """Write the predictor as an ONNX file, from features of kernels to shares, intervals and familiarity.

    Every ONNX runtime with the operators of ai.onnx 17 and ai.onnx.ml 3 can run it; the file's metadata
    name its inputs and outputs.

    Args:
        onnx: The file to write.
        task: load-balance predicts a share of the work, device-mapping the one faster device.
        pair: The devices that the model is for: cgo17-nvidia, cgo17-amd, or another pair that has a model.
        model: A model to write instead of the pair's own, by its name or its folder. `apportion models` lists
            them.
    """
    written = export_onnx(onnx, task=task, pair=pair, model=model)
    note(f"{onnx}: {size_in_words(written)}, the predictor of {model or pair} for {task}")
