"""From a kernel to the share of its work that the CPU should take, with how sure that is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from apportion.data.published.cgo17 import PAIRS
from apportion.data.records import nearest_class
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.model.kernelmodel import Estimate, KernelModel
from apportion.program.compile import CompileOptions, ir_of, kernels_of, known_function
from apportion.program.features import asks_for_its_place, features_of, in_order, inputs_of
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.source import Source

WEIGHTS = Path(__file__).parent / "weights"
CONFIDENCE = 0.9
STRANGE = 0.1
"A kernel stranger than nine in ten of the training kernels are to other applications gets a warning."
LARGEST_GROUP = 1 << 16
Task = Literal["load-balance", "device-mapping"]

# The models learned from IR for x86-64, where OpenCL's address spaces are all one.
_TARGET = "x86_64-unknown-unknown"


@dataclass(frozen=True)
class Prediction:
    """The answer for one launch."""

    cpu_share: float
    "The part of the work that the CPU should take, from 0 to 1."
    interval: tuple[float, float]
    "It holds the best share of a kernel from a program never seen with probability `confidence`."
    confidence: float
    share_class: int
    "The nearest of 0, 25, 50, 75 and 100 percent."
    device: str
    "Where the whole launch goes when it is not shared: cpu or gpu."
    familiarity: float
    "How near the kernel is to those learned from: 1 for one of them, 0 for one farther than any of them."
    model: str
    milliseconds: dict[str, float]
    "compile, graph, predict."
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The keys of `apportion predict --json`; warnings go another way."""
        return {
            "cpu_share": round(self.cpu_share, 4),
            "interval": [round(end, 4) for end in self.interval],
            "confidence": self.confidence,
            "class": self.share_class,
            "device": self.device,
            "familiarity": round(self.familiarity, 4),
            "model": self.model,
            "milliseconds": {stage: round(value, 3) for stage, value in self.milliseconds.items()},
        }


def predict(
    source: Source | Path | str,
    *,
    local_size: int,
    bytes: int,
    kernel: str | None = None,
    task: Task = "load-balance",
    pair: str = "cgo17-nvidia",
    compile: CompileOptions | None = None,
) -> Prediction:
    """Which share of a launch the CPU should take, or with `device-mapping`, which device all of it.

    Args:
        source: a `Source`, or the path of OpenCL C, LLVM IR or bitcode.
        local_size: work-items in a work-group.
        bytes: moved between host and device for the launch.
        kernel: which one, where the source has several.
        pair: of devices: the one whose times the model learned from.

    Raises:
        InvalidSetting: an impossible size, or several kernels and none named.
        UnknownName: no such pair, task or kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    if not 1 <= local_size <= LARGEST_GROUP:
        raise InvalidSetting(f"local_size must be 1 to {LARGEST_GROUP} work-items, not {local_size}")
    if bytes < 0:
        raise InvalidSetting(f"bytes must not be negative, not {bytes}")
    if task not in ("load-balance", "device-mapping"):
        raise UnknownName("task", task, ("load-balance", "device-mapping"))
    model = model_of(pair)
    began = time.perf_counter()
    if not isinstance(source, Source):
        source = Source.read(source)
    target = _TARGET if source.language == "opencl" else None
    ir = ir_of(source, compile or CompileOptions(target=target))
    warnings = []
    chosen = _kernel(ir, kernel, source.name)
    if chosen is None:
        warnings.append(f"{source.name} has no OpenCL kernel; all of it was taken for one")
    compiled = time.perf_counter()
    graph = graph_of_ir(ir, name=source.name, options=GraphOptions(function=chosen))
    built = time.perf_counter()
    if len(graph.functions) == 0 or graph.nodes < 2:
        raise MalformedInput("it defines no function", file=source.name)
    features = features_of(graph)
    if not asks_for_its_place(features):
        warnings.append(
            "the kernel never asks for a global, local or group id: every work-item does the same work, "
            "and sharing it between devices gains nothing"
        )
    estimate = model.estimate(in_order(features), inputs_of(bytes, local_size), confidence=CONFIDENCE)
    if estimate.familiarity < STRANGE:
        warnings.append("the kernel is unlike what the model learned from: trust the interval, not the share")
    answered = time.perf_counter()
    spent = {"compile": compiled - began, "graph": built - compiled, "predict": answered - built}
    return _prediction(
        estimate, task, pair, {stage: 1e3 * seconds for stage, seconds in spent.items()}, tuple(warnings)
    )


@cache
def model_of(pair: str) -> KernelModel:
    """The shipped model of a pair of devices, read once.

    Raises:
        UnknownName: there is none.
    """
    if pair not in PAIRS:
        raise UnknownName("pair of devices", pair, PAIRS)
    return KernelModel.load(WEIGHTS, pair)


def _kernel(ir: str, wanted: str | None, name: str) -> str | None:
    if wanted is not None:
        return known_function(ir, wanted)
    kernels = kernels_of(ir)
    if len(kernels) > 1:
        raise InvalidSetting(f"{name} has {len(kernels)} kernels. Name one of: {', '.join(kernels)}")
    return kernels[0] if kernels else None


def _prediction(
    estimate: Estimate, task: Task, pair: str, milliseconds: dict[str, float], warnings: tuple[str, ...]
) -> Prediction:
    low, share, high = estimate.low / 100, estimate.share / 100, estimate.high / 100
    # A device is faster alone exactly when its share is the larger one.
    device = "gpu" if share < 0.5 else "cpu"
    if task == "device-mapping":
        low, share, high = (float(end >= 0.5) for end in (low, share, high))
    return Prediction(
        share, (low, high), CONFIDENCE, nearest_class(100 * share), device, estimate.familiarity,
        f"{pair}-extra-trees", milliseconds, warnings,
    )  # fmt: skip
