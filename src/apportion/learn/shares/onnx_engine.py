"""A kernel model answered by ONNX Runtime: the graph of `onnxgraph`, on one thread."""

from __future__ import annotations

import onnxruntime

from apportion.learn.shares.kernel_model import Answers, Numbers, ShareEstimate
from apportion.learn.shares.kernel_query import AttributedPredictor
from apportion.learn.shares.onnx_forms import onnx_of


def by_onnx(model: AttributedPredictor, confidence: float) -> Answers:
    """What `kernelmodel.by_numpy` gives, by ONNX Runtime; making and loading the graph takes its time."""
    options = onnxruntime.SessionOptions()
    # A launch takes less time than it takes to wake a second thread.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx_of(model, confidence=confidence), options, providers=["CPUExecutionProvider"]
    )

    def answers(code: Numbers, inputs: Numbers) -> list[ShareEstimate]:
        share, low, high, familiarity, share_class = session.run(
            ["cpu_share", "low", "high", "familiarity", "share_class"], {"code": code, "inputs": inputs}
        )
        percent = (100 * part for part in (share, low, high))
        columns = (part.tolist() for part in (*percent, familiarity, share_class))
        return [ShareEstimate(*row) for row in zip(*columns, strict=True)]

    return answers
