"""From a kernel to the share of its work that the CPU should take, with how sure that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from apportion import weights
from apportion.advise.describe import Described, KernelRow, describe
from apportion.advise.launch_times import timing_model
from apportion.advise.machine_answers import THIS_MACHINE, devices_asked, guesses, on_this_machine
from apportion.advise.moved_bytes import local_size_of, moved_bytes
from apportion.advise.prediction import Prediction
from apportion.advise.queries import Query, Size
from apportion.advise.timed_share import timed_pairs, timed_share
from apportion.data.records import nearest_class
from apportion.errors import ApportionError, InvalidSetting, UnknownName
from apportion.learn import engines
from apportion.learn.base import Answer, Predictor, open_predictor
from apportion.learn.shares.kernel_model import STRANGE, Answers, share_answers
from apportion.learn.shares.kernel_query import (
    AttributedPredictor,
    KernelQuery,
    ShareAnswer,
    SharePredictor,
)
from apportion.learn.times.timing_model import TimingModel
from apportion.program.compile import CompileOptions
from apportion.program.kernel.bounds import NDRange
from apportion.program.source import Source

CONFIDENCE = 0.9
DEFAULT_PAIR = "cgo17-nvidia"
"Answers where no pair is named and no two calibrated devices of this machine are known."
TASKS = ("load-balance", "device-mapping")
Task = Literal["load-balance", "device-mapping"]
Engine = Literal["numpy", "onnx"]
Answerer = Callable[[Sequence[KernelQuery]], Sequence[Answer[float]]]


def predict(
    source: Source | Path | str,
    *,
    local_size: Size | None = None,
    bytes: int | None = None,
    kernel: str | None = None,
    global_size: Size | None = None,
    task: Task = "load-balance",
    pair: str | None = None,
    model: str | Path | None = None,
    engine: Engine = "numpy",
    compile: CompileOptions | None = None,
    arguments: Sequence[str] = (),
) -> Prediction:
    """Which share of a launch the CPU should take, or with `device-mapping`, which device all of it.

    Args:
        source: a `Source`, or the path of OpenCL C, LLVM IR or bitcode.
        local_size: work-items in a work-group, in one dimension or in each. None: what the kernel requires,
            else 64 in all or fewer; needs `global_size`.
        bytes: moved between host and device for the launch. None: those of the arrays that the code reads and
            writes over the range; needs `global_size`.
        kernel: which one, where the source has several.
        global_size: work-items in all, in one dimension or in each; then the share is said in work-items too.
        task: load-balance or device-mapping.
        pair: of devices: the one whose times the model learned from (see `pairs`), or `this-machine`. None:
            this machine where two or more of its devices are known and calibrated, else `DEFAULT_PAIR`; the
            answer says why.
        model: the name or the folder of a model, instead of the preferred one of a pair.
        engine: what evaluates the model, to the same answer: NumPy, or ONNX Runtime, which takes half a
            second longer to start and then answers a launch four times faster.
        compile: how OpenCL C is compiled.
        arguments: `name=value`, as `apportion run` takes them, where times are predicted.

    Raises:
        InvalidSetting: an impossible size, several kernels and none named, no range where a pair needs it,
            ONNX Runtime for a pair whose model tells times, or no two calibrated devices for `this-machine`.
        UnknownName: no such pair, task, engine or kernel.
        MissingPackage: the engine is not installed.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    launch, assumed = _sized(source, local_size, bytes, kernel, global_size, tuple(arguments), compile)
    found = _predicted(launch, task, pair, model, engine, compile)
    return replace(found, assumed=(*assumed, *found.assumed)) if assumed else found


def _sized(
    source: Source | Path | str,
    local_size: Size | None,
    nbytes: int | None,
    kernel: str | None,
    global_size: Size | None,
    arguments: tuple[str, ...],
    compile: CompileOptions | None,
) -> tuple[Query, tuple[str, ...]]:
    """A launch whose sizes are worked out where they are not given, and which were."""
    if local_size is not None and nbytes is not None:
        return Query(source, local_size, nbytes, kernel, global_size, arguments), ()
    if global_size is None:
        raise InvalidSetting("Give the global size of the launch, or its local size and its bytes")
    whole = (global_size,) if isinstance(global_size, int) else tuple(global_size)
    said: list[str] = []
    if local_size is None:
        local_size, words = local_size_of(source, kernel, whole)
        said.append(words)
    if nbytes is None:
        group = (local_size,) if isinstance(local_size, int) else tuple(local_size)
        nbytes, words = moved_bytes(source, kernel, NDRange(whole, group), arguments, compile)
        said.append(words)
    return Query(source, local_size, nbytes, kernel, global_size, arguments), tuple(said)


def _predicted(
    launch: Query,
    task: Task,
    pair: str | None,
    model: str | Path | None,
    engine: Engine,
    compile: CompileOptions | None,
) -> Prediction:
    _check_task(task)
    here = devices_asked(pair, model, engine)
    if not isinstance(here, str):
        try:
            return on_this_machine(launch, here, task=task, compile=compile)
        except InvalidSetting as error:
            if pair is not None:
                raise
            here = f"no times are predicted for this machine: {error}"
    answer = _by_pair(launch, task, pair or DEFAULT_PAIR, model, engine, compile)
    return _assuming(answer, here)


def predict_all(
    launches: Sequence[Query],
    *,
    task: Task = "load-balance",
    pair: str | None = None,
    model: str | Path | None = None,
    engine: Engine = "numpy",
) -> list[Prediction | ApportionError]:
    """The answer for each launch, or what kept it from one; kernels are read once, answers given at once.

    Raises:
        UnknownName: no such pair, task or engine.
        InvalidSetting: a pair that needs a global size, and a launch without; ONNX Runtime for a pair whose
            model tells times; no two calibrated devices for `this-machine`.
        MissingPackage: the engine is not installed.
    """
    _check_task(task)
    here = devices_asked(pair, model, engine)
    if isinstance(here, str):
        found = _all_by_pair(launches, task, pair or DEFAULT_PAIR, model, engine)
        return [one if isinstance(one, ApportionError) else _assuming(one, here) for one in found]
    return [
        _or_error(
            partial(
                predict, launch.source, local_size=launch.local_size, bytes=launch.bytes,
                kernel=launch.kernel, global_size=launch.global_size, task=task, pair=pair,
                arguments=launch.arguments,
            )
        )
        for launch in launches
    ]  # fmt: skip


def _assuming(answer: Prediction, reason: str) -> Prediction:
    """An answer for the default pair, with why it is for that."""
    if not reason:
        return answer
    return replace(answer, assumed=(f"pair={DEFAULT_PAIR} ({reason})", *answer.assumed))


def _by_pair(
    launch: Query,
    task: Task,
    pair: str,
    model: str | Path | None,
    engine: Engine,
    compile: CompileOptions | None,
) -> Prediction:
    predictor = predictor_for(task, pair, model, engine)
    if isinstance(predictor, TimingModel):
        return _by_times(launch, task, predictor.name if model is None else model, compile)
    _answers(predictor, engine)  # an engine that is not installed is told before anything is compiled
    described = describe(
        launch.source, kernel=launch.kernel, vectorized=predictor.vectorized, compile=compile
    )
    (answer,) = answers_of([launch], [described], task=task, pair=pair, model=model, engine=engine)
    if isinstance(answer, ApportionError):
        raise answer
    return answer


def _all_by_pair(
    launches: Sequence[Query], task: Task, pair: str, model: str | Path | None, engine: Engine
) -> list[Prediction | ApportionError]:
    predictor = predictor_for(task, pair, model, engine)
    if isinstance(predictor, TimingModel):
        named = predictor.name if model is None else model
        return [_or_error(partial(_by_times, launch, task, named, None)) for launch in launches]
    _answers(predictor, engine)
    known: dict[tuple[Any, str | None], KernelRow | ApportionError] = {}
    for launch in launches:
        if (launch.source, launch.kernel) not in known:
            try:
                known[launch.source, launch.kernel] = describe(
                    launch.source, kernel=launch.kernel, vectorized=predictor.vectorized
                )
            except ApportionError as error:
                known[launch.source, launch.kernel] = error
    found = [known[launch.source, launch.kernel] for launch in launches]
    return answers_of(launches, found, task=task, pair=pair, model=model, engine=engine)


def answers_of(
    launches: Sequence[Query],
    rows: Sequence[KernelRow | ApportionError],
    *,
    task: str = "load-balance",
    pair: str = DEFAULT_PAIR,
    model: str | Path | None = None,
    engine: str = "numpy",
) -> list[Prediction | ApportionError]:
    """The answer for each launch of a kernel that is described already, all of them worked out at once.

    Args:
        rows: of each launch's kernel, or why there is none; that error is then its answer.

    Raises:
        UnknownName, MissingPackage: as `predict_all`.
    """
    predictor = shares_model(task, pair, model)
    answers = _answers(predictor, engine)
    found: list[Prediction | ApportionError | None] = [
        row if isinstance(row, ApportionError) else None for row in rows
    ]
    good = [(number, row) for number, row in enumerate(rows) if not isinstance(row, ApportionError)]
    began = time.perf_counter()
    said = _each_or_error(answers, [_asked(launches[number], row) for number, row in good])
    spent = 1e3 * (time.perf_counter() - began) / max(1, len(good))
    for (number, row), answer in zip(good, said, strict=True):
        found[number] = (
            answer
            if isinstance(answer, ApportionError)
            else _prediction(launches[number], row, answer, task, predictor, spent)
        )
    return [one for one in found if one is not None]


def _each_or_error(
    answers: Answerer, queries: Sequence[KernelQuery]
) -> Sequence[Answer[float] | ApportionError]:
    """The answers to all queries at once; where one cannot be answered, each alone."""
    try:
        return answers(queries) if queries else []
    except ApportionError as error:
        if len(queries) == 1:
            return [error]
        return [_each_or_error(answers, [query])[0] for query in queries]


def pairs() -> tuple[str, ...]:
    """The pairs of devices that the package ships models of shares of; `timed_pairs` has those of times."""
    return tuple(sorted({model.about for model in weights.manifest().answering("shares")}))


def model_of(pair: str) -> SharePredictor:
    """The preferred shipped model of shares of a pair of devices, read once.

    Raises:
        UnknownName: there is none.
    """
    shipped = weights.manifest().answering("shares", pair)
    if not shipped:
        raise UnknownName("pair of devices", pair, [*sorted({*pairs(), *timed_pairs()}), THIS_MACHINE])
    return _share_predictor(shipped[0].name)


def predictor_for(
    task: str, pair: str = DEFAULT_PAIR, model: str | Path | None = None, engine: str = "numpy"
) -> SharePredictor | TimingModel:
    """What answers for a pair of devices, or the model of a name or folder, which comes before the pair.

    Raises:
        UnknownName: there is no such pair, model or task.
        InvalidSetting: the model answers another question, or times are asked of ONNX Runtime.
    """
    _check_task(task)
    if model is None and (pair in pairs() or pair not in timed_pairs()):
        return model_of(pair)
    opened = _opened(model or pair)
    if opened.question == "times" and engine != "numpy":
        raise InvalidSetting(
            f"{model or pair} has a model of times, and ONNX forms are of models of shares: "
            f"{', '.join(pairs())}"
        )
    return timing_model(model or pair) if opened.question == "times" else _share_predictor(model or pair)


def is_timed(pair: str, engine: str) -> bool:
    """Whether times answer for a pair; NumPy alone evaluates those."""
    return engine == "numpy" and pair not in pairs() and (pair == THIS_MACHINE or pair in timed_pairs())


def shares_model(task: str, pair: str = DEFAULT_PAIR, model: str | Path | None = None) -> SharePredictor:
    """A model of shares, for one of `TASKS`.

    Raises:
        UnknownName: there is no such pair, model or task.
        InvalidSetting: the model tells times.
    """
    found = predictor_for(task, pair, model, "onnx")
    assert isinstance(found, SharePredictor)
    return found


def forests_model(
    task: str, pair: str = DEFAULT_PAIR, model: str | Path | None = None
) -> AttributedPredictor:
    """A model of shares that is made of forests, for one of `TASKS`.

    Raises:
        UnknownName: there is no such pair, model or task.
        InvalidSetting: the model tells times, or is of another kind.
    """
    found = shares_model(task, pair, model)
    if not isinstance(found, AttributedPredictor):
        raise InvalidSetting(
            f"{model or pair} is a {type(found).__name__}. ONNX Runtime, ONNX files and explanations are for "
            f"forests: see `apportion models list --question shares`"
        )
    return found


@cache
def _opened(model: str | Path) -> Predictor[Any, Any]:
    return open_predictor(model)


def _share_predictor(model: str | Path) -> SharePredictor:
    opened = _opened(model)
    if not isinstance(opened, SharePredictor):
        open_predictor(model, "shares")  # says which models answer
        raise InvalidSetting(f"{model} is a {type(opened).__name__}, which is no SharePredictor")
    return opened


def _answers(predictor: SharePredictor, engine: str) -> Answerer:
    if engine == "numpy":
        return partial(predictor.answer, confidence=CONFIDENCE)
    if not isinstance(predictor, AttributedPredictor):
        raise InvalidSetting(
            f"{predictor.name} is a {type(predictor).__name__}, which NumPy alone evaluates: drop --engine"
        )
    return partial(
        share_answers, inputs_for=predictor.inputs_for, answers=_engine(predictor, engine),
        confidence=CONFIDENCE,
    )  # fmt: skip


@cache
def _engine(model: AttributedPredictor, engine: str) -> Answers:
    answers: Answers = engines.load(engine)(model, CONFIDENCE)
    return answers


def _asked(launch: Query, row: KernelRow) -> KernelQuery:
    graph = row.graph if isinstance(row, Described) else None
    return KernelQuery(graph, launch.bytes, launch.group_items, launch.work_items, row.code)


def _prediction(
    launch: Query,
    described: KernelRow,
    answer: Answer[float],
    task: str,
    model: SharePredictor,
    milliseconds: float,
) -> Prediction:
    low, share, high = answer.low, answer.value, answer.high
    # A device is faster alone exactly when its share is the larger one.
    device = "gpu" if share < 0.5 else "cpu"
    share_class = answer.share_class if isinstance(answer, ShareAnswer) else nearest_class(100 * share)
    if task == "device-mapping":
        low, share, high = (float(end >= 0.5) for end in (low, share, high))
        share_class = round(100 * share)
    warnings = described.warnings
    if answer.familiarity < STRANGE:
        warnings += ("the kernel is unlike what the model learned from: trust the interval, not the share",)
    chance = answer.chance if isinstance(answer, ShareAnswer) else None
    if chance is not None and chance < CONFIDENCE:
        warnings += (
            f"either device may be the faster one: of held-out kernels for which {model.name} named the "
            f"{device}, {chance:.0%} were faster there, so an interval of {CONFIDENCE:.0%} holds both",
        )
    spent = described.milliseconds
    stages = {
        "compile": spent["compile"], "graph": spent["graph"], "predict": spent["features"] + milliseconds
    }  # fmt: skip
    return Prediction(
        share, (low, high), CONFIDENCE, round(share_class), device, answer.familiarity,
        model.name, stages, warnings, launch.cut(share), described.declared, chance=chance,
        nearest=model.nearest(described.code),
    )  # fmt: skip


def _check_task(task: str) -> None:
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)


def _by_times(launch: Query, task: Task, model: str | Path, compile: CompileOptions | None) -> Prediction:
    found = timed_share(launch, model, confidence=CONFIDENCE, compile=compile)
    (low, high), share = found.interval, found.share
    if task == "device-mapping":
        low, share, high = (float(end >= 0.5) for end in (low, float(found.faster == "cpu"), high))
    return Prediction(
        share, (low, high), CONFIDENCE, 25 * round(4 * share), found.faster, found.agreement,
        timing_model(model).name, found.milliseconds, guesses(found.assumed), found.cpu_work_items,
        assumed=tuple(map(str, found.assumed)),
    )  # fmt: skip


def _or_error(answer: Callable[[], Prediction]) -> Prediction | ApportionError:
    try:
        return answer()
    except ApportionError as error:
        return error
