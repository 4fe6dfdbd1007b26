"""What a worker process answers: for each verb the function that the command line calls, and its JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from apportion.advise.analyses import analysis_as_json
from apportion.advise.describe import describe
from apportion.advise.explain import explain
from apportion.advise.inspect import inspect, work_done
from apportion.advise.installation import examine
from apportion.advise.launch_picture import launch_picture
from apportion.advise.launch_run import aimed_for, checked_bounds, run_launch
from apportion.advise.learned_policy import learned
from apportion.advise.predictor import predict
from apportion.advise.recorded_tuning import tune_recorded, tune_table
from apportion.advise.relative_answers import predict as predict_relative
from apportion.advise.relative_answers import profiles_of, shipped
from apportion.coexecution.bound import BoundKernel
from apportion.coexecution.objective import objective_of
from apportion.coexecution.sharing import Together
from apportion.data.configurations import ConfigurationStore
from apportion.errors import ApportionError, InvalidSetting, MissingPackage, UnknownName
from apportion.learn.base import shipped_models
from apportion.learn.ranking.rankings import by_chance, by_measuring, rank_graphs
from apportion.learn.ranking.rankings import summary as ranking_summary
from apportion.learn.ranking.ridge import TuningPlan
from apportion.learn.relative.profile import Profile
from apportion.learn.times.campaign_table import key_of_point, launch_of
from apportion.measure.campaign import Campaign, Point, run_campaign, workloads_of
from apportion.measure.counters.imports import import_files, read_map
from apportion.measure.counters.imports.naming import ImportOptions
from apportion.measure.tuning_table import read_table
from apportion.program import exchange
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.launch import PlannedLaunch
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.source import Source
from apportion.runtime.arguments import arguments_for
from apportion.runtime.backend import open_backend, with_speeds
from apportion.runtime.base import UNHURRIED, Limits, info_from
from apportion.runtime.plan import ArrayPlace
from apportion.runtime.sampling import Repeats
from apportion.runtime.workload import Workload
from apportion.schedule.beliefs import with_errors
from apportion.schedule.policies import policies
from apportion.schedule.problem import ScheduleSettings
from apportion.schedule.readers import readers
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.repeat import repeated_run
from apportion.schedule.report import queue_of
from apportion.schedule.simulate import simulate
from apportion.schedule.trace import parse_systems
from apportion.serve.energy import energy_of
from apportion.serve.failures import without_paths
from apportion.serve.forms import (
    FORMS,
    AnalyzeForm,
    ExplainForm,
    FileForm,
    GraphForm,
    ImportForm,
    InspectForm,
    MeasureForm,
    PictureForm,
    PredictForm,
    RankForm,
    RelativeForm,
    RunForm,
    ScheduleForm,
    SourceForm,
    TrainForm,
    TuneForm,
    size_of_form,
    write_files,
)
from apportion.serve.training import train, trained

Report = Callable[[Any], None]
MODELS = "models"
"Of the service's folder: what was trained here."
_MOST_BARS = 600
"Jobs of a schedule that are drawn."


def answer(verb: str, form: Mapping[str, Any], *, report: Report, folder: Path | None = None) -> Any:
    """The answer to a question, as JSON.

    Args:
        verb: a name of `VERBS`.
        form: what its form holds.
        report: is told how far the work is.
        folder: of the service, where models are kept that it trained.
    """
    if verb in ("train", "models"):
        models = None if folder is None else folder / MODELS
        return (_train if verb == "train" else _models)(form, models, report)
    function = VERBS.get(verb)
    if function is None:
        raise UnknownName("verb", verb, VERBS)
    checked = verb in FORMS and verb != "inspect"
    return function(_adapter(verb).validate_python(form) if checked else form, report)


@cache
def _adapter(verb: str) -> TypeAdapter[Any]:
    return TypeAdapter(FORMS[verb])


def _row(form: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """What models of shares are told of a kernel; the service itself asks them."""
    source = TypeAdapter(SourceForm).validate_python(form["source"])
    row = describe(source.source, kernel=form["kernel"], vectorized=form["vectorized"])
    return {
        "name": row.name, "code": row.code.tolist(), "warnings": row.warnings, "declared": row.declared,
        "milliseconds": row.milliseconds,
    }  # fmt: skip


def _predict(form: PredictForm, report: Report) -> dict[str, Any]:
    query = form.query
    found = predict(
        query.source, local_size=query.local_size, bytes=query.bytes, kernel=query.kernel,
        global_size=query.global_size, task=form.task, pair=form.pair, engine=form.engine,
        arguments=query.arguments,
    )  # fmt: skip
    return found.as_json() | {"warnings": list(found.warnings)}


def _explain(form: ExplainForm, report: Report) -> dict[str, Any]:
    query = form.query
    found = explain(
        query.source, local_size=query.local_size, bytes=query.bytes, kernel=query.kernel,
        global_size=query.global_size, pair=form.pair,
    )  # fmt: skip
    return found.as_json() | {"warnings": list(found.warnings)}


def _inspect(asked: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """The form, and the devices of this machine as `devices` described them."""
    form: InspectForm = _adapter("inspect").validate_python(asked["form"])
    devices = [info_from(values) for values in asked["devices"]]
    found = inspect(
        form.source.source, global_size=size_of_form(form.global_size, "global_size"),
        local_size=None if form.local_size is None else size_of_form(form.local_size, "local_size"),
        kernel=form.kernel, arguments=form.arguments, devices=devices,
    )  # fmt: skip
    said = found.as_json()
    return said if form.ir else {name: value for name, value in said.items() if name != "ir"}


def _graph(form: GraphForm, report: Report) -> Any:
    options = GraphOptions(
        variant=form.variant, function=form.function, recover_pointees=not form.opaque_pointers,
        type_nodes=form.type_nodes, variable_per=form.variable_per,
    )  # fmt: skip
    compile = CompileOptions(optimization=form.optimization)
    source = form.source.source
    graph = graph_of_ir(ir_of(source, compile), name=source.name, options=options)
    return json.loads(exchange.json_text(graph))


def _picture(form: PictureForm, report: Report) -> dict[str, Any]:
    found = launch_picture(form.source.source, function=form.function, limit=form.limit)
    return found.as_json()


def _analyze(form: AnalyzeForm, report: Report) -> dict[str, Any]:
    source = form.source.source
    ir = ir_of(source)
    graph = graph_of_ir(ir, name=source.name, options=GraphOptions(function=form.function))
    return analysis_as_json(
        graph, form.analysis, root=form.root, roots=form.roots, seed=form.seed, mode=form.mode
    )


def _relative(form: RelativeForm, report: Report) -> list[dict[str, Any]]:
    return [
        predict_relative(
            Profile(one.name, one.counters, {**one.seconds, **form.seconds}), systems=form.systems,
            target=form.target,
        ).as_json()
        for one in form.profiles
    ]  # fmt: skip


def _schedule(form: ScheduleForm, report: Report) -> list[dict[str, Any]]:
    """What `apportion schedule simulate --json` prints, with each policy's jobs and queue for a drawing."""
    systems = parse_systems(form.systems)
    with TemporaryDirectory(prefix="schedule-") as folder:
        places = {"trace": form.trace, "throughputs": form.throughputs, "times": form.times}
        files: dict[str, Path] = {}
        for name, text in places.items():
            if text is not None:
                csv = name == "times" or (name == "trace" and form.format == "table")
                files[name] = Path(folder) / (f"{name}.csv" if csv else name)
                files[name].write_text(text, encoding="utf-8")
        request = TraceRequest(
            systems, files.get("trace"), files.get("throughputs"), files.get("times"),
            form.seed, form.jobs, form.load,
        )  # fmt: skip
        trace = readers.load(form.format)(request)
    beliefs = None if form.sigma is None else with_errors(trace, form.sigma, form.seed)
    settings = ScheduleSettings(seed=form.seed)
    sent = [Path(name) if name in files else None for name in places]
    named = replace(request, trace=sent[0], throughputs=sent[1], times=sent[2])
    asked = repeated_run(named, trace.systems, format=form.format, settings=settings, sigma=form.sigma)
    found = []
    for one in simulate(trace, form.policies, beliefs=beliefs, settings=settings):
        schedule = one.schedule
        bars = [
            {"system": systems[system].name, "job": str(job), "begin": begin, "end": end, "slots": slots}
            for system, job, begin, end, slots in zip(
                schedule.system.tolist(), trace.job.tolist(), schedule.start.tolist(), schedule.end.tolist(),
                trace.width.tolist(), strict=True,
            )
        ]  # fmt: skip
        times, waiting = queue_of(trace, one)
        found.append(
            asdict(one.summary)
            | {"repeat": asdict(asked), "schedule": bars[:_MOST_BARS],
               "queue": [times.tolist(), waiting.tolist()]}
        )  # fmt: skip
    return found


def _tune(form: TuneForm, report: Report) -> list[dict[str, Any]]:
    """What `apportion tune --recorded --json` prints."""
    with TemporaryDirectory(prefix="tune-") as folder:
        path = Path(folder) / form.name
        if path.suffix == ".npz":
            path.write_bytes(FileForm(form.name, form.table).content)
            plan = TuningPlan(form.budget, form.random_share, form.check_share)
            return [asdict(run) for run in tune_recorded(path, plan, range(form.seeds))]
        path.write_text(form.table)
        table = read_table(path)
    found = tune_table(table, form.budget, range(form.seeds))
    return [{"seed": seed, **run.as_json()} for seed, run in enumerate(found)]


def _import(form: ImportForm, report: Report) -> dict[str, Any]:
    """What `apportion counters import --json` prints, and the runs as profiles for `relative`."""
    options = ImportOptions(form.program, form.system, form.size, read_map(None))
    with TemporaryDirectory(prefix="import-") as folder:
        path = Path(folder) / form.name
        path.write_text(form.text)
        table = import_files([path], options, form.format)
    summary: dict[str, Any] = {"rows": len(table.frame)}
    summary |= {f"{name}s": table.frame[name].n_unique() for name in ("run", "counter", "system")}
    return summary | {
        "profiles": [
            {"name": one.name, "counters": dict(one.counters), "seconds": dict(one.seconds)}
            for one in profiles_of(table)
        ]
    }  # fmt: skip


def _policies(form: Any, report: Report) -> list[str]:
    """The names of the policies of jobs that run to their end."""
    return list(policies.names())


def _example_profiles(form: Any, report: Report) -> list[dict[str, Any]]:
    """Some of the runs that the shipped model knows, to start from: it was not asked to guess these."""
    reference = shipped().reference
    found = []
    for row in (10, 40, 70):
        counters = dict(zip(reference.counters, reference.values[row].tolist(), strict=True))
        found.append({"name": reference.runs[row], "counters": counters, "seconds": {}})
    return found


def _devices(form: Any, report: Report) -> list[dict[str, Any]]:
    """What `apportion devices --json` prints, one object for each device; none where there is no driver."""
    try:
        with open_backend(limits=UNHURRIED if form.get("speeds") == "new" else None) as backend:
            match form.get("speeds"):
                case "kept":
                    found = backend.devices()
                case "new":
                    found = backend.calibrate()
                case _:
                    found = with_speeds(backend)
    except MissingPackage:
        return []
    return [asdict(info) for info in found]


def _run(form: RunForm, report: Report) -> dict[str, Any]:
    shape = size_of_form(form.global_size, "global_size")
    shape = shape if isinstance(shape, tuple) else (shape,)
    report({"stage": "compiling", "part": 0.0})
    with Together(
        form.source.source, form.kernel, form.devices or None,
        policy="learned+feedback" if form.split == "auto" else form.split, predictor=learned,
        trust=form.trust,
        limits=Limits(seconds=form.seconds),
    ) as shared:  # fmt: skip
        wanted = None if form.local_size is None else size_of_form(form.local_size, "local_size")
        local = shared.local_size(shape) if wanted is None else wanted
        local = local if isinstance(local, tuple) else (local,)
        span = NDRange(shape, local)
        made = arguments_for(shared.signature, shared.access, span, form.arguments, seed=form.seed)
        values = made.values
        report({"stage": "checking bounds", "part": 0.02})
        checked = checked_bounds(shared, made, trust=form.trust)
        bound = shared.bind(*values.values(), global_size=shape, local_size=local)
        power = aimed_for(shared, objective_of(form.objective), form.watts)
        found = run_launch(
            shared, bound, made, checked=checked, repeats=form.repeat, cuts=form.cuts, power=power,
            report=lambda stage, part: report({"stage": stage, "part": part}),
        )  # fmt: skip
        report({"stage": "reading the meters of energy", "part": 0.95})
        metered = energy_of(lambda: bound.run(shared.policy))
        devices = {info.id: info.name for info in shared.devices}
        return found.as_json() | {
            "devices": devices, "launch": _launch(span, values), "work": _work(shared, span, bound),
            "metered": metered,
        }  # fmt: skip


def _work(shared: Together, span: NDRange, bound: BoundKernel) -> dict[str, float]:
    """Multiply-adds and bytes past the caches of the whole launch, for a roofline; nothing where unknown."""
    places = bound.binding.places
    launch = PlannedLaunch(
        ir_of(shared.source, shared.compile), shared.signature.name, span,
        {place: one.nbytes for place, one in enumerate(places) if isinstance(one, ArrayPlace)},
        bound.binding.scalars, str(shared.source.text),
    )  # fmt: skip
    try:
        return work_done(launch)
    except ApportionError:  # the drivers' compilers may know better than ours
        return {}


def _models(form: Any, folder: Path | None, report: Report) -> list[dict[str, Any]]:
    """What `apportion models list --json` prints, and the models that were trained here."""
    return shipped_models() + ([] if folder is None else trained(folder))


def _train(asked: Mapping[str, Any], folder: Path | None, report: Report) -> Any:
    """The form, and the measuring jobs that it names."""
    if folder is None:
        raise InvalidSetting("There is no folder for what is trained")
    form = TypeAdapter(TrainForm).validate_python(asked["form"])
    return _numbers(without_paths(train(form, asked["measured"], folder, report)))


def _numbers(value: Any) -> Any:
    """The same, with null for what is no number: a score of too few launches."""
    if isinstance(value, dict):
        return {name: _numbers(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rank(form: RankForm, report: Report) -> dict[str, Any]:
    """What `apportion rank score --json` prints."""
    with TemporaryDirectory(prefix="rank-") as folder:
        write_files(form.files, Path(folder))
        graphs = ConfigurationStore.open(Path(folder)).graphs(collection=form.collection, side=form.side)
        scorer = by_chance(form.seed) if form.baseline == "random" else by_measuring(form.measured, form.seed)
        found = rank_graphs(graphs, scorer)
    return {**ranking_summary(found), "graphs": found}


def _launch(span: NDRange, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "global_size": span.global_size, "local_size": span.local_size,
        "arguments": {name: _word(value) for name, value in values.items()},
    }  # fmt: skip


def _word(value: Any) -> str:
    """An argument in the words that `--arg` takes."""
    shape = getattr(value, "shape", ())
    if shape:
        return f"{value.dtype}[{'x'.join(map(str, shape))}]"
    nbytes = getattr(value, "nbytes", None)
    return f"local:{nbytes}" if nbytes is not None and not hasattr(value, "dtype") else str(value)


def _measure(form: MeasureForm, report: Report) -> dict[str, Any]:
    """Points as `apportion measure --json` prints them, each reported as soon as it is there."""
    campaign = Campaign(
        sizes=tuple(form.sizes) or Campaign().sizes, local_sizes=tuple(form.local_sizes),
        devices=tuple(form.devices), repeats=Repeats(least=3, most=20, seconds=form.seconds),
        most_seconds=5.0, visit_seconds=20.0,
    )  # fmt: skip
    with TemporaryDirectory(prefix="measure-") as folder:
        files: list[Path] = []
        for number, source in enumerate(form.sources):
            if source.language != "opencl":
                raise InvalidSetting(f"{source.name} is {source.language}; only OpenCL C can be measured")
            files.append(Path(folder) / f"{number:02d}-{source.name.replace(' ', '_')}")
            if files[-1].suffix != ".cl":
                files[-1] = files[-1].with_name(files[-1].name + ".cl")
            files[-1].write_text(source.text)
        forms = dict(zip(files, form.sources, strict=True))

        def read(path: Path) -> Source:
            return replace(forms[path].source, name=str(path))

        workloads = list(workloads_of(files, campaign, read))
        total = sum(len(each.cases) for each in workloads if isinstance(each, Workload))
        points = []
        ir = {each.digest: each for each in workloads if isinstance(each, Workload)}
        for point in run_campaign(
            workloads, Path(folder) / "out", campaign, limits=Limits(seconds=20.0),
            until=time.monotonic() + form.budget,
        ):  # fmt: skip
            said = asdict(point)
            said["source"] = Path(said["source"]).name.partition("-")[2]
            said["work"] = _work_at(ir.get(point.digest), point)
            points.append(said)
            report({"stage": "measuring", "point": said, "done": len(points), "total": total})
    return {"points": points, "failures": sum(bool(point["failure"]) for point in points)}


def _work_at(workload: Workload | None, point: Point) -> dict[str, float]:
    """What the launch of a point does, for a roofline; nothing where it failed or that is unknown."""
    if workload is None or point.failure or not point.seconds:
        return {}
    key = key_of_point(asdict(point))
    try:
        return work_done(launch_of({workload.digest: (_ir(workload.program), workload.source)}, key))
    except ApportionError:
        return {}


@cache
def _ir(source: Source) -> str:
    return ir_of(source)


def _doctor(form: Any, report: Report) -> dict[str, Any]:
    found = examine()
    return found | {
        "compilers": [asdict(one) for one in found["compilers"]],
        "missing": [asdict(one) for one in found["missing"]],
    }


VERBS: Mapping[str, Callable[[Any, Report], Any]] = {
    "row": _row, "predict": _predict, "explain": _explain, "inspect": _inspect, "graph": _graph,
    "picture": _picture, "analyze": _analyze, "relative": _relative, "devices": _devices,
    "doctor": _doctor, "schedule": _schedule, "policies": _policies, "tune": _tune,
    "import": _import,
    "example-profiles": _example_profiles, "run": _run, "measure": _measure, "rank": _rank,
}  # fmt: skip
"Verb → the function that answers it; `train` and `models` are asked with the service's folder."
