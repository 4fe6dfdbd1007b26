"""Models of shares as ONNX files, whichever they are: `onnx_of` finds the form."""

from __future__ import annotations

import json
from itertools import product
from typing import Literal

import numpy as np

from apportion.errors import InvalidSetting
from apportion.learn.onnx_values import DOUBLE, OnnxGraph, OnnxValue, input_or_output
from apportion.learn.shares.kernel_model import KernelModel
from apportion.learn.shares.kernel_query import AttributedPredictor
from apportion.learn.shares.onnx_graph import (
    SIGNATURE,
    familiarity_of,
    give_answers,
    middle,
    onnx_of_pool,
    trees,
    voted,
)
from apportion.learn.shares.share_forest import CODE, STEP, ShareForest
from apportion.program.kernel.features import FEATURES, INPUTS, RANGE_INPUTS


def onnx_of(
    model: AttributedPredictor,
    *,
    confidence: float,
    task: Literal["load-balance", "device-mapping"] = "load-balance",
) -> bytes:
    """The model as the bytes of an ONNX file, with intervals of this confidence; see `SIGNATURE`.

    Raises:
        InvalidSetting: the model has no such form.
    """
    if isinstance(model, KernelModel):
        return onnx_of_pool(model, confidence=confidence, task=task)
    if isinstance(model, ShareForest):
        return _onnx_of_forest(model, confidence, task)
    raise InvalidSetting(f"{model.name} is a {type(model).__name__}, which has no ONNX form")


def _onnx_of_forest(model: ShareForest, confidence: float, task: str) -> bytes:
    graph = OnnxGraph()
    code, inputs = graph.given("code"), graph.given("inputs")
    kept = code.columns([FEATURES.index(name) for name in CODE])
    value = _between(model, kept, inputs)
    count = len(model.forest.root)
    heard = value * 0.0 + 1.0 / count
    share, spread = middle(graph, count, value, heard)
    familiarity = familiarity_of(graph, model.known, kept)
    quantile = model.calibration.quantile(confidence)
    outputs = give_answers(graph, task, share, spread, familiarity, quantile, voted(graph, value, heard))
    told = (*INPUTS, *(RANGE_INPUTS if model.ranged else ()))
    described = {
        "model": model.name, "task": task, "confidence": str(confidence), "code": json.dumps(FEATURES),
        "inputs": json.dumps(told), "signature": json.dumps(SIGNATURE), "made_by": json.dumps(model.about),
    }  # fmt: skip
    return graph.written(
        model.name,
        [
            input_or_output("code", DOUBLE, ("N", len(FEATURES))),
            input_or_output("inputs", DOUBLE, ("N", len(told))),
        ],
        outputs,
        described,
        "; ".join(f"{one}: {words}" for one, words in SIGNATURE.items()),
    )


def _between(model: ShareForest, kept: OnnxValue, inputs: OnnxValue) -> OnnxValue:
    """(N, trees): what each tree says, interpolated between the points of the grid of sizes."""
    graph, octaves = kept.graph, 1 / np.log(2)
    smooth = [inputs.columns([0]) * octaves]
    group = inputs.columns([1]) * octaves
    if model.ranged:
        smooth.append(inputs.columns([len(INPUTS)]) * octaves)
    below = [graph.add("Floor", size / STEP) * STEP for size in smooth]
    part = [(size - low) / STEP for size, low in zip(smooth, below, strict=True)]
    said: OnnxValue | None = None
    for upper in product((0, 1), repeat=len(smooth)):
        size, *rest = [low + STEP * up for low, up in zip(below, upper, strict=True)]
        ranged = [column for one in rest for column in (one, one - group, size - one)]
        weight: OnnxValue | None = None
        for each, up in zip(part, upper, strict=True):
            one = each if up else each.taken_from(1)
            weight = one if weight is None else weight * one
        assert weight is not None
        corner = trees(graph, model.forest, graph.join(kept, size, group, size - group, *ranged)) * weight
        said = corner if said is None else said + corner
    assert said is not None
    return said
