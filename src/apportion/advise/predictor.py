"""From a kernel to the share of its work that the CPU should take, with how sure that is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion import weights
from apportion.advise.describe import KernelRow, describe
from apportion.advise.queries import Query, Size
from apportion.advise.timed_share import TimedShare, timed_pairs, timed_share
from apportion.data.described import described_in
from apportion.errors import ApportionError, InvalidSetting, UnknownName
from apportion.learn import engines
from apportion.learn.shares.kernel_model import STRANGE, Answers, Estimate, KernelModel
from apportion.program.compile import CompileOptions
from apportion.program.kernel.features import RANGE_INPUTS, inputs_of
from apportion.program.source import Source

WEIGHTS = weights.WEIGHTS
CONFIDENCE = 0.9
TASKS = ("load-balance", "device-mapping")
Task = Literal["load-balance", "device-mapping"]
Engine = Literal["numpy", "onnx"]


@dataclass(frozen=True)
class Prediction:
    """The answer for one launch."""

    cpu_share: float
    "The part of the work that the CPU should take, from 0 to 1."
    interval: tuple[float, float]
    "It holds the best share of a kernel from a program never seen with probability `confidence`."
    confidence: float
    share_class: int
    "Of 0, 25, 50, 75 and 100 percent, the one that most trees are nearest to."
    device: str
    "Where the whole launch goes when it is not shared: cpu or gpu."
    familiarity: float
    "How near the kernel is to those learned from: 1 for one of them, 0 for one farther than any of them."
    model: str
    milliseconds: dict[str, float]
    "compile, graph, predict."
    warnings: tuple[str, ...] = ()
    cpu_work_items: int | None = None
    "The share in whole work-groups, where the range of the launch is known."
    recovered: tuple[str, ...] | None = None
    "Functions that the source lacks and that were declared; None for a source that compiles as it is."
    assumed: tuple[str, ...] = ()
    "Arguments that were not given and that the answer rests on, with their values and why."

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
            **({} if self.cpu_work_items is None else {"cpu_work_items": self.cpu_work_items}),
            **({} if self.recovered is None else {"recovered": list(self.recovered)}),
            **({"assumed": list(self.assumed)} if self.assumed else {}),
        }


def predict(
    source: Source | Path | str,
    *,
    local_size: Size,
    bytes: int,
    kernel: str | None = None,
    global_size: Size | None = None,
    task: Task = "load-balance",
    pair: str = "cgo17-nvidia",
    engine: Engine = "numpy",
    compile: CompileOptions | None = None,
    arguments: Sequence[str] = (),
) -> Prediction:
    """Which share of a launch the CPU should take, or with `device-mapping`, which device all of it.

    Args:
        source: a `Source`, or the path of OpenCL C, LLVM IR or bitcode.
        local_size: work-items in a work-group, in one dimension or in each.
        bytes: moved between host and device for the launch.
        kernel: which one, where the source has several.
        global_size: work-items in all, in one dimension or in each; then the share is said in work-items too.
        task: load-balance or device-mapping.
        pair: of devices: the one whose times the model learned from; see `pairs`.
        engine: what evaluates the model, to the same answer: NumPy, or ONNX Runtime, which takes half a
            second longer to start and then answers a launch four times faster.
        compile: how OpenCL C is compiled.
        arguments: `name=value`, as `apportion run` takes them, for pairs whose times were learned.

    Raises:
        InvalidSetting: an impossible size, several kernels and none named, no range where a pair needs it, or
            ONNX Runtime for a pair whose model tells times.
        UnknownName: no such pair, task, engine or kernel.
        MissingPackage: the engine is not installed.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    launch = Query(source, local_size, bytes, kernel, global_size, tuple(arguments))
    if is_timed(pair, engine):
        return _by_times(launch, task, pair, compile)
    model = shares_model(task, pair)
    _answers(model, engine)  # an engine that is not installed is told before anything is compiled
    described = describe(source, kernel=kernel, vectorized=model.vectorized, compile=compile)
    (answer,) = answers_of([launch], [described], task=task, pair=pair, engine=engine)
    if isinstance(answer, ApportionError):
        raise answer
    return answer


def predict_all(
    launches: Sequence[Query],
    *,
    task: Task = "load-balance",
    pair: str = "cgo17-nvidia",
    engine: Engine = "numpy",
) -> list[Prediction | ApportionError]:
    """The answer for each launch, or what kept it from one; kernels are read once, answers given at once.

    Raises:
        UnknownName: no such pair, task or engine.
        InvalidSetting: a pair that needs a global size, and a launch without; ONNX Runtime for a pair whose
            model tells times.
        MissingPackage: the engine is not installed.
    """
    if is_timed(pair, engine):
        return [_timed_or_error(launch, task, pair) for launch in launches]
    model = shares_model(task, pair)
    _answers(model, engine)
    for launch in launches:
        inputs_for(launch, model)
    known: dict[tuple[Any, str | None], KernelRow | ApportionError] = {}
    for launch in launches:
        if (launch.source, launch.kernel) not in known:
            try:
                known[launch.source, launch.kernel] = describe(
                    launch.source, kernel=launch.kernel, vectorized=model.vectorized
                )
            except ApportionError as error:
                known[launch.source, launch.kernel] = error
    found = [known[launch.source, launch.kernel] for launch in launches]
    return answers_of(launches, found, task=task, pair=pair, engine=engine)


def answers_of(
    launches: Sequence[Query],
    rows: Sequence[KernelRow | ApportionError],
    *,
    task: str = "load-balance",
    pair: str = "cgo17-nvidia",
    engine: str = "numpy",
) -> list[Prediction | ApportionError]:
    """The answer for each launch of a kernel that is described already, all of them worked out at once.

    Args:
        rows: of each launch's kernel, or why there is none; that error is then its answer.

    Raises:
        UnknownName, MissingPackage: as `predict_all`.
    """
    model = shares_model(task, pair)
    answers = _answers(model, engine)
    found: list[Prediction | ApportionError | None] = []
    good: list[tuple[int, KernelRow, NDArray[np.float64]]] = []
    for number, (launch, row) in enumerate(zip(launches, rows, strict=True)):
        found.append(row if isinstance(row, ApportionError) else None)
        if not isinstance(row, ApportionError):
            try:
                good.append((number, row, inputs_for(launch, model)))
            except ApportionError as error:
                found[number] = error
    if good:
        began = time.perf_counter()
        estimates = answers(np.stack([row.code for _, row, _ in good]), np.stack([told for *_, told in good]))
        spent = 1e3 * (time.perf_counter() - began) / len(good)
        for (number, row, _), estimate in zip(good, estimates, strict=True):
            found[number] = _prediction(launches[number], row, estimate, task, pair, spent)
    return [one for one in found if one is not None]


def pairs() -> tuple[str, ...]:
    """The pairs of devices that the package ships models of shares of; `timed_pairs` has those of times."""
    return tuple(described_in(WEIGHTS))


@cache
def model_of(pair: str) -> KernelModel:
    """The shipped model of a pair of devices, read once.

    Raises:
        UnknownName: there is none.
    """
    if pair not in pairs():
        raise UnknownName("pair of devices", pair, sorted({*pairs(), *timed_pairs()}))
    return KernelModel.load(WEIGHTS, pair)


def shares_model(task: str, pair: str) -> KernelModel:
    """The shipped model of a pair of devices, for one of `TASKS`.

    Raises:
        UnknownName: there is no such pair or task.
        InvalidSetting: the pair has a model of times alone.
    """
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    if pair not in pairs() and pair in timed_pairs():
        raise InvalidSetting(
            f"{pair} has a model of times, and ONNX forms are of models of shares: {', '.join(pairs())}"
        )
    return model_of(pair)


def is_timed(pair: str, engine: str) -> bool:
    """Whether times answer for a pair; NumPy alone evaluates those."""
    return engine == "numpy" and pair not in pairs() and pair in timed_pairs()


@cache
def _answers(model: KernelModel, engine: str) -> Answers:
    answers: Answers = engines.load(engine)(model, CONFIDENCE)
    return answers


def inputs_for(launch: Query, model: KernelModel) -> NDArray[np.float64]:
    """(I,): what a model is told of a launch beside its code.

    Raises:
        InvalidSetting: the model knows ranges, and the launch has none.
    """
    needs_range = RANGE_INPUTS[0] in model.inputs
    if needs_range and launch.work_items is None:
        raise InvalidSetting(
            f"The models of {model.name} know the range of a launch: give its global size (--global-size)"
        )
    return inputs_of(launch.bytes, launch.group_items, launch.work_items if needs_range else None)


def _prediction(
    launch: Query, described: KernelRow, estimate: Estimate, task: str, pair: str, milliseconds: float
) -> Prediction:
    low, share, high = estimate.low / 100, estimate.share / 100, estimate.high / 100
    # A device is faster alone exactly when its share is the larger one.
    device = "gpu" if share < 0.5 else "cpu"
    share_class = estimate.share_class
    if task == "device-mapping":
        low, share, high = (float(end >= 0.5) for end in (low, share, high))
        share_class = round(100 * share)
    warnings = described.warnings
    if estimate.familiarity < STRANGE:
        warnings += ("the kernel is unlike what the model learned from: trust the interval, not the share",)
    spent = described.milliseconds
    stages = {
        "compile": spent["compile"], "graph": spent["graph"], "predict": spent["features"] + milliseconds
    }  # fmt: skip
    return Prediction(
        share, (low, high), CONFIDENCE, share_class, device, estimate.familiarity,
        f"{pair}-pooled-forests", stages, warnings, launch.cut(share),
        described.declared,
    )  # fmt: skip


def _by_times(launch: Query, task: Task, pair: str, compile: CompileOptions | None) -> Prediction:
    found = timed_share(launch, pair, confidence=CONFIDENCE, compile=compile)
    (low, high), share = found.interval, found.share
    if task == "device-mapping":
        low, share, high = (float(end >= 0.5) for end in (low, float(found.faster == "cpu"), high))
    return Prediction(
        share, (low, high), CONFIDENCE, 25 * round(4 * share), found.faster, found.agreement,
        f"{pair}-times", found.milliseconds, _warnings(found), launch.cut(share),
        assumed=tuple(map(str, found.assumed)),
    )  # fmt: skip


def _warnings(found: TimedShare) -> tuple[str, ...]:
    guessed = [each.name for each in found.assumed if each.guessed]
    if not guessed:
        return ()
    return (
        f"the answer may hang on {', '.join(guessed)}, which were assumed: the interval holds other values "
        "too; give them with --arg NAME=VALUE",
    )


def _timed_or_error(launch: Query, task: Task, pair: str) -> Prediction | ApportionError:
    try:
        return _by_times(launch, task, pair, None)
    except ApportionError as error:
        return error
