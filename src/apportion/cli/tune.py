"""`apportion tune`: measure a few configurations of a program, learn from them, name the best."""

from __future__ import annotations

import json as jsons
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from apportion.advise.command_tuning import as_words, configuration_of, space_of, tunable_command
from apportion.advise.layout_tuning import tunable_layouts
from apportion.advise.recorded_tuning import tune_recorded, tune_table
from apportion.advise.study import ASKED, Study, TriedConfiguration
from apportion.advise.tuning import AUTOMATIC, FORMATS, SECONDS, Tunable, Tuning, by_time, known_of
from apportion.advise.tuning import tune as tune_function
from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.jobs import Runner, runner_of
from apportion.learn.metrics import over_seeds
from apportion.learn.ranking.ridge import TuningPlan
from apportion.learn.tuning.search import Search
from apportion.measure.space import Space
from apportion.measure.tuning_table import read_table, space_of_t1
from apportion.program.hlo.jax import object_of, spec_of

_SHOWN = 5
_LIST = Parameter(negative="")
_MANY = Parameter(consume_multiple=True, negative="")
_FLAG = Parameter(negative="")


def tune(
    program: str | None = None,
    *,
    budget: int | None = None,
    seconds: float | None = None,
    command: str | None = None,
    opencl: Path | None = None,
    global_size: Annotated[str | None, Parameter(name=["--global-size", "-n"])] = None,
    local_size: Annotated[str | None, Parameter(name=["--local-size", "-l"])] = None,
    kernel: str | None = None,
    arg: Annotated[tuple[str, ...], _LIST] = (),
    device: str | None = None,
    param: Annotated[tuple[str, ...], _LIST] = (),
    allowed: str | None = None,
    when: Annotated[tuple[str, ...], _LIST] = (),
    space: Path | None = None,
    default: Annotated[tuple[str, ...], _LIST] = (),
    objective: str | None = None,
    timeout: float | None = None,
    study: Path | None = None,
    warm_start: Annotated[tuple[Path, ...], _LIST] = (),
    model: Annotated[str, Parameter(name=["--model", "--ranker"])] = AUTOMATIC,
    ask: Annotated[bool, _FLAG] = False,
    tell: str | None = None,
    runner: str | None = None,
    workers: int | None = None,
    recorded: Path | None = None,
    shapes: Annotated[tuple[str, ...], _MANY] = (),
    configurations: int | None = None,
    repeats: int | None = None,
    prune: float | None = None,
    confirm: int | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    random_share: float | None = None,
    check_share: float | None = None,
    out: Path | None = None,
    results: Path | None = None,
    results_format: str | None = None,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Measure a few configurations of a program, each chosen by what those before it took, and name the best.

    It tunes an `apportion.Tunable` in a file, the layouts of a JAX function, a command (--command), an OpenCL
    kernel (--opencl) or a table of earlier measurements (--recorded). Any other program can --ask and --tell.

    Args:
        program: file.py:name or module:name of an `apportion.Tunable`, or of a JAX function whose array
            layouts are tuned for the --shapes.
        budget: How many configurations to measure.
        seconds: How many seconds measuring may take. The first of the two limits to be reached counts.
        command: A command with parameters in braces: "./prog -t {tile}".
        opencl: A file of OpenCL C. Each parameter is defined in it as a macro of the same name.
        global_size: For --opencl: all work-items, 1048576 or 1024x1024, or an expression over the parameters
            with commas between the dimensions: "1048576 // ITEMS, 64".
        local_size: For --opencl: the work-items of a work-group, 16x16, or expressions: "LX, LY". By default
            one that suits the kernel.
        kernel: The kernel's name, if the file has several.
        arg: For --opencl: an argument, written as for `apportion run`: `x=float32[1048576]`. Arguments that
            you leave out are assumed from the code.
        device: For --opencl: the device that runs the kernel. By default the first.
        param: A parameter of the command or kernel and its values: tile=8,16,32, threads=1..64,
            size=32..1024:32 or rate=1e-4..1:log.
        allowed: An expression that is true for the combinations that may be measured: "tile * threads <=
            1024".
        when: When a parameter has an effect: "depth:mode=='tree'".
        space: Instead of --param: a file with the parameters, in the T1 schema or as {"tile": [8, 16]}.
        default: The value that the command or kernel uses today, as tile=16, once for each parameter.
        objective: For --command: seconds minimises how long it runs, returned the last number that it prints.
        timeout: A run of the command fails after this many seconds; 600 by default.
        study: A file that keeps every measurement. The same command continues from it, and several may share
            it.
        warm_start: Measurements of the same parameters on another GPU or at another size: a study, a CSV
            file, a cache file of Kernel Tuner, or T4.
        model: For JAX layouts, and for a Tunable that names its graph: the ranker, by its name or its folder,
            whose predicted order the search starts from. By default a shipped one, if it is familiar with the
            program; `none` starts without. `apportion models list --question ranking` lists them.
        ask: Print the next configuration of the --study as JSON, and measure nothing.
        tell: Tell the --study a result: '{"configuration": {"tile": 8}, "value": 0.1}', or with "failure"
            instead of "value".
        runner: Where configurations are measured: local (each in a process of its own, so that a crash costs
            one configuration), ray, ray:HOST:PORT, slurm, or slurm:PARTITION.
        workers: How many configurations the runner measures at once. By default 1 for local, because they
            would slow each other down; on a cluster as many as it has room for.
        recorded: Instead of a program: a table of measured configurations (CSV, Kernel Tuner, T4) or of
            layouts (NPZ). Its times are used, and nothing is run.
        shapes: The shapes that the JAX function is called with: f32[128,256] f32[256].
        configurations: For JAX layouts: how many to draw at random and choose from; 1,000 by default.
        repeats: How often each configuration is timed. By default 5, or 1 for --objective returned.
        prune: Stop repeating a configuration whose first run takes this many times the best time; 3 by
            default.
        confirm: How often the best and the default are called at the end, alternately, to compare them; 15 by
            default.
        seeds: For --recorded: how often the search is repeated with other random numbers; 1 by default.
        seed: Seed of the random numbers; 0 by default.
        random_share: For --recorded layouts: the part of the budget that is drawn at random.
        check_share: For --recorded layouts: the part of the budget for those that are predicted to be the
            fastest.
        out: Write a page (HTML) about the search.
        results: Write the measurements to a file, for other tools and for --warm-start.
        results_format: t4 by default, kernel-tuner for a cache file, or t1 for the space alone.
        json: Print the result as JSON.
    """
    given = {
        "param": param, "allowed": allowed, "when": when, "space": space, "default": default,
        "objective": objective, "timeout": timeout, "study": study, "warm-start": warm_start,
        "shapes": shapes, "configurations": configurations, "repeats": repeats, "prune": prune,
        "confirm": confirm, "seeds": seeds, "seed": seed, "random-share": random_share,
        "check-share": check_share, "out": out, "results": results, "seconds": seconds,
        "runner": runner, "workers": workers,
        "results-format": results_format, "model": None if model == AUTOMATIC else model,
        "global-size": global_size, "local-size": local_size, "kernel": kernel, "arg": arg, "device": device,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None and value != ()}
    if ask or tell is not None:
        if ask and tell is not None:
            raise InvalidSetting("Either --ask or --tell: each is one step of the study")
        given |= {} if budget is None else {"budget": budget}
        _only(given, {"param", "allowed", "when", "space", "study", "warm-start", "seed"}, "--ask and --tell")
        _ask_or_tell(_space(param, allowed, when, space), study, warm_start, seed or 0, tell)
        return
    if sum(one is not None for one in (program, command, opencl, recorded)) != 1:
        raise InvalidSetting(
            "Give either a program to tune, a --command, an --opencl file or a --recorded file"
        )
    if recorded is not None:
        _tune_recorded(recorded, given, budget, seeds or 1, random_share, check_share, json)
        return
    if command is not None:
        used = {"param", "allowed", "when", "space", "default", "objective", "timeout"}
        found = _of_command(command, _space(param, allowed, when, space), default, objective, timeout)
    elif opencl is not None:
        used = {"param", "allowed", "when", "space", "default", "global-size", "local-size", "kernel", "arg"}
        used |= {"device"}
        found = _of_kernel(
            opencl, _space(param, allowed, when, space), default, global_size, local_size, kernel, arg, device
        )
    else:
        assert program is not None
        found, used = _of_program(program, shapes, configurations, seed or 0)
    if results_format is not None and results is None:
        raise InvalidSetting("--results-format says how --results are written: name that file, too")
    if results_format not in (None, *FORMATS):
        raise InvalidSetting(f"--results-format is one of {', '.join(FORMATS)}, not {results_format!r}")
    anyway = {
        "model",
        "results-format",
        "seconds",
        "study",
        "warm-start",
        "repeats",
        "prune",
        "confirm",
        "seed",
        "out",
        "results",
    }
    anyway |= {"runner", "workers"}
    what = "a command" if command is not None else "a kernel" if opencl is not None else "a program"
    _only(given, used | anyway, what)
    tuning = tune_function(
        found, budget=budget, seconds=seconds, repeats=repeats,
        prune=prune, confirm=confirm, seed=seed or 0, study=study, warm_start=warm_start,
        runner=_runner(runner, workers), ranker=None if model == "none" else model, progress=not json,
    )  # fmt: skip
    if out is not None:
        tuning.write_page(out)
        note(f"Wrote {out}")
    if results is not None:
        tuning.write(results, format=results_format or FORMATS[0])
        note(f"Wrote {results}")
    _print(tuning, json)


def _runner(name: str | None, workers: int | None) -> Runner | None:
    if name is None:
        if workers is not None:
            raise InvalidSetting("--workers are those of a --runner: name one, as --runner local")
        return None
    return runner_of(name, workers=1 if name == "local" and workers is None else workers)


def _only(given: dict[str, Any], used: set[str], what: str) -> None:
    """Options that are given are used or refused."""
    odd = sorted(set(given) - used)
    if odd:
        raise InvalidSetting(f"--{odd[0]} means nothing for {what}; leave it out")


def _space(param: tuple[str, ...], allowed: str | None, when: tuple[str, ...], file: Path | None) -> Space:
    if file is None:
        return space_of(param, allowed=allowed, when=when)
    if param or allowed or when:
        raise InvalidSetting("Give the space either as --param … or as a --space file")
    return space_of_t1(file)


def _of_command(
    command: str, space: Space, default: tuple[str, ...], objective: str | None, timeout: float | None
) -> Tunable:
    start = configuration_of(default, space) if default else None
    seconds = 600.0 if timeout is None else timeout
    return tunable_command(command, space, objective=objective or SECONDS, timeout=seconds, default=start)


def _of_kernel(
    source: Path, space: Space, default: tuple[str, ...], global_size: str | None, local_size: str | None,
    kernel: str | None, arguments: tuple[str, ...], device: str | None,
) -> Tunable:  # fmt: skip
    from apportion.advise.kernel_tuning import tunable_kernel  # only kernels need a device

    if global_size is None:
        raise InvalidSetting("A kernel needs its --global-size: how many work-items")
    start = configuration_of(default, space) if default else None
    return tunable_kernel(
        source, space, global_size=global_size, local_size=local_size, kernel=kernel, arguments=arguments,
        device=device, default=start,
    )  # fmt: skip


def _of_program(
    program: str, shapes: tuple[str, ...], configurations: int | None, seed: int
) -> tuple[Tunable, set[str]]:
    found = object_of(program)
    if isinstance(found, Tunable):
        file, _, name = program.rpartition(":")
        there = f"{Path(file).absolute()}:{name}" if file.endswith(".py") else program
        return replace(found, place=there), set()
    if not callable(found):
        raise InvalidSetting(f"{program} is neither an apportion.Tunable nor a function")
    if not shapes:
        raise InvalidSetting(f"{program} is a function: say the --shapes that it is called with")
    drawn = 1_000 if configurations is None else configurations
    layouts = tunable_layouts(found, [spec_of(shape) for shape in shapes], drawn, seed=seed)
    return layouts, {"shapes", "configurations"}


def _ask_or_tell(
    space: Space, path: Path | None, warm_start: tuple[Path, ...], seed: int, tell: str | None
) -> None:
    if path is None:
        raise InvalidSetting("--ask and --tell need a --study")
    study = Study(space, path)
    if tell is not None:
        study.add(_said(tell, space))
        return
    with study.turn():
        # Each question draws anew, and goes on from what is known.
        search = Search(
            space, seed=seed + len(study.measured), known=[known_of(one, space) for one in warm_start]
        )
        for found in study.measured.values():
            search.tell(found.configuration, found.median)
        for other in study.claimed:
            search.note_asked(other)
        asked = search.ask()
        if asked:
            study.claim(asked[0], by=ASKED)
    if not asked:
        raise InvalidSetting(f"Every configuration of the space is measured in {path}, or was asked for")
    print_json(dict(asked[0]))


def _said(text: str, space: Space) -> TriedConfiguration:
    try:
        said = jsons.loads(text)
        one, value, failure = said["configuration"], said.get("value"), str(said.get("failure", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        example = '{"configuration": {"tile": 8}, "value": 0.1}'
        raise InvalidSetting(f"Write what came of a configuration like {example}, not {text!r}") from error
    if not isinstance(one, dict) or not space.holds(one):
        raise InvalidSetting(f"{one} is no configuration of the space")
    if failure or value is None:
        return TriedConfiguration(one, (), failure or "it failed")
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidSetting(f"The value must be a finite number, not {value!r}")
    return TriedConfiguration(one, (float(value),), value=float(value))


def _print(tuning: Tuning, json: bool) -> None:
    if json:
        gain = tuning.gain
        print_json({
            "best": dict(tuning.best), "in_words": dict(tuning.in_words(tuning.best)),
            "how_to": tuning.how_to,
            "value": tuning.fastest.median, "objective": tuning.objective,
            "speedup": None if gain is None else gain.value,
            "speedup_interval": None if gain is None else [gain.low, gain.high],
            "than": None if gain is None else gain.than,
            "ranker": tuning.ranker,
            "tau_b": None if math.isnan(tuning.tau_b) else tuning.tau_b,
            "configurations": len(tuning.predicted)
            or (None if math.isinf(tuning.space.size) else tuning.space.size),
            "measured": [
                {
                    "configuration": dict(one.configuration), "seconds": one.seconds, "failure": one.failure,
                    "value": None if one.failure else one.value, "metrics": dict(one.metrics),
                    "pruned": one.pruned,
                }
                for one in tuning.measured
            ],
        })  # fmt: skip
        return
    names = tuple(tuning.space.values)
    shown = names if len(names) <= 8 else ()
    timed = tuning.objective == SECONDS
    unit = "ms" if timed else tuning.objective
    rows = [
        (
            *(tuning.in_words(one.configuration)[name] for name in shown),
            one.failure or f"{one.median * (1e3 if timed else 1):.4g}",
        )
        for one in list(by_time(tuning))[:_SHOWN]
    ]
    size = len(tuning.predicted) or tuning.space.size
    of = "" if math.isinf(size) else f" of {size:,.0f}"
    print_table(
        (*shown, unit),
        rows,
        right=(*shown, unit),
        title=f"{len(tuning.measured)}{of} measured",
    )
    if tuning.ranker is not None:
        note(f"The search started from the order that {tuning.ranker} predicts.")
    note(f"Best: {as_words(tuning.in_words(tuning.best))}")
    if tuning.gain is not None:
        note(f"It is {tuning.gain.in_words()}.")
    elif tuning.default is not None and timed:
        note("Nothing that was measured is faster than the default.")
    elif tuning.default is not None and not tuning.default.failure:
        note(f"The default has {tuning.default.median:.4g}, the best {tuning.fastest.median:.4g}.")
    if tuning.how_to:
        note(tuning.how_to)


def _tune_recorded(
    recorded: Path, given: dict[str, Any], budget: int | None, seeds: int, random_share: float | None,
    check_share: float | None, json: bool,
) -> None:  # fmt: skip
    if budget is None:
        raise InvalidSetting("Give the --budget: how many configurations are measured")
    if seeds < 1:
        raise InvalidSetting(f"seeds must be at least 1, not {seeds}")
    if recorded.suffix != ".npz":
        _only(given, {"seeds", "warm-start"}, "a recorded table")
        _print_table_tuned(recorded, given.get("warm-start", ()), budget, seeds, json)
        return
    _only(given, {"seeds", "random-share", "check-share"}, "a recorded layout file")
    plan = TuningPlan(
        budget,
        TuningPlan.random_share if random_share is None else random_share,
        TuningPlan.check_share if check_share is None else check_share,
    )
    found = tune_recorded(recorded, plan, range(seeds))
    if json:
        print_json(found)
        return
    columns = (
        "seed", "best configuration", "runtime, ms", "slower than the best", "model", "tau-b of the rest",
        "tied", "tau-b, ties broken", "OPA, ties broken",
    )  # fmt: skip
    rows = [
        (
            seed, run.best, f"{run.runtime_ns / 1e6:.3f}", f"{run.slowdown:.3%}", run.model,
            f"{run.tau_b:.4f}", f"{run.tied_scores / run.pairs:.1%}", f"{run.tau_b_untied:.4f}",
            f"{run.opa_untied:.4f}",
        )
        for seed, run in enumerate(found)
    ]  # fmt: skip
    title = f"{found[0].measured} of {found[0].distinct:,} different configurations measured"
    print_table(columns, rows, right=columns, title=title)
    if seeds > 1:
        interval = over_seeds([run.tau_b for run in found])
        note(f"tau-b over seeds: {interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]")


def _print_table_tuned(
    recorded: Path, warm_start: tuple[Path, ...], budget: int, seeds: int, json: bool
) -> None:
    table = read_table(recorded)
    found = tune_table(table, budget, range(seeds), known=[known_of(one, table.space) for one in warm_start])
    if json:
        print_json([{"seed": seed, **run.as_json()} for seed, run in enumerate(found)])
        return
    rows = [
        (seed, as_words(run.best), f"{run.seconds * 1e3:.4g}", f"{run.over_best:.3f}", f"{run.by_chance:.3f}")
        for seed, run in enumerate(found)
    ]
    columns = ("seed", "best found", "ms", "over the best there is", "random search")
    print_table(
        columns, rows, right=("seed", *columns[2:]), title=f"{budget} of {len(table.rows):,} measured"
    )
    if seeds > 1:
        interval = over_seeds([run.over_best for run in found])
        note(f"Over the best there is: {interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]")
