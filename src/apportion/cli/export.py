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
        onnx: the file to write.
        task: a share of the work, or one device for all of it.
        pair: of devices: cgo17-nvidia, cgo17-amd, or another that the package has a model of.
        model: the name or the folder of a model, instead of that of a pair: see `apportion models`.
    """
    written = export_onnx(onnx, task=task, pair=pair, model=model)
    note(f"{onnx}: {size_in_words(written)}, the predictor of {model or pair} for {task}")
