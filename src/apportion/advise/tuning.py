"""Tune a function of yours: measure some configurations, learn from them, return the best.

    import apportion

    space = {"tile": (8, 16, 32, 64), "unroll": (1, 2, 4)}
    tuning = apportion.tune(blur, space, arguments=(image,), budget=8)
    tuning.best                 # {"tile": 32, "unroll": 2}
    tuning.write_page("blur.html")

The function is called with the arguments, and with the configuration as keywords. A Triton kernel is launched
on `grid`; a function of JAX arrays is compiled for each configuration.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from apportion.advise.program_ranking import GraphOf, predicted_start
from apportion.advise.study import Study, TriedConfiguration
from apportion.advise.tuning_bench import (
    RETURNED,
    SECONDS,
    Bench,
    BenchSettings,
    Gain,
    why_all_failed,
)
from apportion.advise.tuning_workers import TuningWorkers, WorkerBench, found_of
from apportion.errors import InvalidSetting
from apportion.jobs import Outcome, Runner, runner_of
from apportion.learn.ranking.measures import agreement
from apportion.learn.tuning.search import KnownTable, Search, SearchPlan
from apportion.measure.results import Tolerance
from apportion.measure.space import Configuration, Range, Space, Values, key_of, plain
from apportion.measure.tuning_table import Tried, TuningTable, read_table, write_cache, write_t1, write_t4
from apportion.program.hlo.jax import object_of
from apportion.settings import replace_file

_WAIT_SECONDS = 0.2
"Between looks at a study in which others measure all that is left."
AUTOMATIC = "automatic"
"The shipped ranker, where it is familiar with the program."
FORMATS = ("t4", "kernel-tuner", "t1")
"In which results are written; T1 is the space that was searched."
_PREDICTED = 200_000
"Configurations up to which all of a space are predicted."


@dataclass(frozen=True)
class Tunable:
    """A function with the space of its configurations, for `apportion tune` to find in a file."""

    function: Callable[..., Any]
    space: Mapping[str, Values] | Space
    arguments: tuple[Any, ...] = ()
    grid: Callable[[Configuration], tuple[int, ...]] | None = None
    "How many programs of a Triton kernel a configuration launches."
    expected: Any = None
    "What the function must return; configurations that return something else are left out."
    default: Configuration | None = None
    "What it is called with so far."
    objective: str = SECONDS
    "`seconds`, or `returned`: the function returns the number to be made small, or a dict that has it."
    in_words: Callable[[Configuration], Mapping[str, str]] | None = None
    "What a configuration means, for people."
    how_to: str | Callable[[Configuration], str] = ""
    "How what was found is put to use: in words, or what makes them of a configuration."
    graph: GraphOf | None = None
    """The program with some of its configurations, as rankers see it: a `program_ranking.TiledKernel`, for
    one. Where a shipped ranker is familiar with it, the search starts from the predicted order."""
    place: str = ""
    "`file.py:name` or `module:name` from which a worker can load it; not needed where it can be pickled."

    @cached_property
    def configurations(self) -> Space:
        """The space."""
        return self.space if isinstance(self.space, Space) else Space(self.space)


@dataclass(frozen=True, eq=False)
class Tuning:
    """What tuning found."""

    name: str
    space: Space
    measured: tuple[TriedConfiguration, ...]
    "In the order in which they were measured, failures too."
    predicted: NDArray[np.float64]
    "(C,) the value of every configuration of the space; empty where the space is too large to go through."
    tau_b: float
    "How well the model orders measured configurations, each predicted from the others; NaN for few."
    default: TriedConfiguration | None = None
    gain: Gain | None = None
    "The best beside the default, or beside the median configuration measured: both called again, in turns."
    objective: str = SECONDS
    tunable: Tunable | None = None
    ranker: str | None = None
    "The ranker whose order the search started from."

    @property
    def fastest(self) -> TriedConfiguration:
        """The best that was measured."""
        return min((one for one in self.measured if not one.failure), key=lambda one: one.median)

    @property
    def best(self) -> Configuration:
        """Its configuration."""
        return self.fastest.configuration

    @property
    def speedup(self) -> float:
        """Of the best over what it was compared with; NaN where nothing was. `gain` says how sure that is."""
        return math.nan if self.gain is None else self.gain.value

    @property
    def front(self) -> tuple[TriedConfiguration, ...]:
        """Of several metrics: what no other configuration beats in one without losing in another."""
        ran = [one for one in self.measured if not one.failure]

        def beats(other: TriedConfiguration, one: TriedConfiguration) -> bool:
            a, b = [other.value, *other.metrics.values()], [one.value, *one.metrics.values()]
            return all(x <= y for x, y in zip(a, b, strict=True)) and a != b

        return tuple(one for one in ran if not any(beats(other, one) for other in ran))

    def in_words(self, one: Configuration) -> Mapping[str, str]:
        """A configuration as people read it."""
        if self.tunable is not None and self.tunable.in_words is not None:
            return self.tunable.in_words(one)
        return {name: str(value) for name, value in one.items()}

    @property
    def how_to(self) -> str:
        """How the best is put to use; empty where the tunable does not say."""
        said = "" if self.tunable is None else self.tunable.how_to
        return said(self.best) if callable(said) else said

    @property
    def table(self) -> TuningTable:
        """What was measured, for other tools and for a later `warm_start`."""
        return _table_of(self.name, self.measured, self.objective)

    def write_page(self, path: str | Path) -> None:
        """Write an HTML page that needs nothing else."""
        from apportion.advise.tuning_page import page  # the page imports this module's types

        replace_file(Path(path), page(self))

    def write(self, path: str | Path, *, format: str = FORMATS[0]) -> None:
        """Write what was measured in the T4 schema or as a cache file of Kernel Tuner's (`kernel-tuner`), or
        the space in the T1 schema.

        Raises:
            InvalidSetting: there is no such format, or it cannot say what the space says.
        """
        if format not in FORMATS:
            raise InvalidSetting(f"Results are written as one of {', '.join(FORMATS)}, not as {format!r}")
        if format == "t4":
            write_t4(Path(path), self.table)
        elif format == "t1":
            kernel = None if self.tunable is None else getattr(self.tunable.function, "as_t1", None)
            write_t1(Path(path), self.space, kernel=kernel)
        else:
            write_cache(Path(path), self.table, self.space)


WarmStart = Tuning | TuningTable | str | Path
"Measurements of the same space elsewhere: a tuning, a table, or a file (study, CSV, Kernel Tuner, T4)."


def tune(
    function: Callable[..., Any] | Tunable,
    space: Mapping[str, Values] | Space | None = None,
    *,
    budget: int | None = None,
    seconds: float | None = None,
    arguments: Sequence[Any] = (),
    grid: Callable[[Configuration], tuple[int, ...]] | None = None,
    expected: Any = None,
    tolerance: Tolerance | None = None,
    default: Configuration | None = None,
    objective: str | None = None,
    repeats: int | None = None,
    prune: float | None = None,
    confirm: int | None = None,
    seed: int = 0,
    study: str | Path | None = None,
    warm_start: WarmStart | Sequence[WarmStart] = (),
    ranker: str | Path | None = AUTOMATIC,
    runner: Runner | str | None = None,
    progress: bool = True,
) -> Tuning:
    """Measure some configurations of a function, each chosen by what those before it took, and find the best.

    Args:
        function: called as `function(*arguments, **configuration)`; or a Triton kernel; or a `Tunable`.
        space: parameter → its values, or a `Range`; a `Space` says which combinations are allowed.
        budget: how many configurations are measured.
        seconds: how long that may take; the first of the two limits counts.
        arguments: what the function is called with each time.
        grid: configuration → how many programs of a Triton kernel are launched.
        expected: what the function must return: numbers, arrays, and dicts and tuples of them.
        tolerance: how far elements of it may be off.
        default: the configuration used so far: measured first, to say what is gained.
        objective: `seconds`, what a call takes; `returned`, the number that the function returns (or the
            first of a dict that it returns); or a key of that dict.
        repeats: how often each is called after a first call; 5, or 1 where what is returned counts.
        prune: stop repeating where the first repeat takes so many times what the best one does; 3.
        confirm: how often the best, and what it is compared with, are called in turns at the end; 15.
        seed: draws what is drawn at random.
        study: a file that keeps every measurement: the same call goes on where it was, and several processes
            take part in one study.
        warm_start: measurements of the same space on another GPU, or at another size.
        ranker: of a `Tunable` with a `graph`: the name or folder of the ranker whose order the search starts
            from; by default the shipped one, where it is familiar with the program; None for no ranker.
        runner: where configurations are measured: `local` (a process of its own each, so that a crash costs
            one configuration), `ray`, `slurm`, as `apportion.jobs.runner_of` reads them, or a `Runner`. As
            many are measured at once as it has workers. The function must be importable there.
        progress: show a bar on a terminal.

    Raises:
        InvalidSetting: the space or a limit is impossible, an option would do nothing, or no configuration
            could be run (it says why).
    """
    tunable = _tunable(function, space, arguments, grid, expected, default, objective)
    _refuse_unused(tunable, tolerance, prune, confirm, ranker)
    if budget is None and seconds is None:
        raise InvalidSetting("Give a limit: a budget of measurements, or seconds")
    if budget is not None and budget < 1:
        raise InvalidSetting(f"budget must be at least 1 measurement, not {budget}")
    if seconds is not None and not seconds > 0:
        raise InvalidSetting(f"seconds must be more than 0, not {seconds}")
    usual = BenchSettings.repeats if tunable.objective == SECONDS else 1
    settings = BenchSettings(
        usual if repeats is None else repeats, tunable.objective, tolerance or Tolerance(),
        BenchSettings.prune if prune is None else prune,
        BenchSettings.confirm if confirm is None else confirm,
    )  # fmt: skip
    known = tunable.configurations
    if tunable.default is not None:
        tunable = replace(tunable, default=plain(tunable.default))
    if tunable.default is not None and not known.holds(tunable.default):
        raise InvalidSetting(
            f"The default {dict(tunable.default)} is no configuration of the space: a value is not among "
            "those of its parameter, or the combination is not allowed"
        )
    if isinstance(runner, str):
        runner = runner_of(runner, workers=1 if runner == "local" else None)
    bench: Bench | TuningWorkers = (
        bench_of(tunable, settings)
        if runner is None
        else TuningWorkers(runner, WorkerBench(partial(bench_of, _travelling(tunable), settings)))
    )
    most = min(math.inf if budget is None else budget, known.size)
    name = getattr(tunable.function, "__name__", type(tunable.function).__name__)
    warm = [known_of(one, known) for one in _listed(warm_start)]
    first = min(SearchPlan.first, max(1, int(most) // 2)) if math.isfinite(most) else SearchPlan.first
    start_from = None
    if tunable.graph is not None and ranker is not None:
        chosen = None if ranker == AUTOMATIC else ranker
        start_from = predicted_start(tunable.graph, known, model=chosen, seed=seed)
    if start_from is not None:
        warm.append(start_from[0])
    search = Search(known, seed=seed, known=warm, settings=SearchPlan(first=first))
    kept = Study(known, None if study is None else Path(study), name=name)
    for one in kept.measured.values():
        search.tell(one.configuration, one.median)
    end = None if seconds is None else time.monotonic() + seconds
    start = None
    with _shown(progress, most) as advance:
        if tunable.default is not None:
            start = _first(kept, bench, tunable.default)
            search.tell(start.configuration, start.median)
            advance()
        for _ in _measured(search, kept, bench, most, end):
            advance()
    found = _told(name, tunable, search, kept, bench, start)
    return found if start_from is None else replace(found, ranker=start_from[1])


def known_of(source: WarmStart, space: Space) -> KnownTable:
    """Measurements of elsewhere, those of configurations that a space has.

    Raises:
        UnreadableFile, MalformedInput: the file is not there, or holds none.
        InvalidSetting: fewer than two of them are of the space.
    """
    if isinstance(source, Tuning):
        table = source.table
    elif isinstance(source, TuningTable):
        table = source
    else:
        path = Path(source)
        table = _of_study(path, space) if _is_study(path) else read_table(path)
    rows = [row for row in table.rows if _is_like(row.configuration, space)]
    rows = [Tried({name: row.configuration[name] for name in space.values}, row.seconds) for row in rows]
    if sum(math.isfinite(row.seconds) for row in rows) < 2:
        raise InvalidSetting(
            f"{table.name} has no two configurations that ran with the parameters {', '.join(space.values)}"
        )
    return KnownTable([row.configuration for row in rows], [row.seconds for row in rows])


def _is_like(one: Configuration, space: Space) -> bool:
    """Whether a configuration has all parameters of a space, and numbers where the space has numbers."""
    if not set(one) >= set(space.values):
        return False
    numbers = [
        name for name, values in space.values.items()
        if isinstance(values, Range) or all(isinstance(value, int | float) for value in values)
    ]  # fmt: skip
    return all(one[name] is None or isinstance(one[name], int | float) for name in numbers)


def by_time(tuning: Tuning) -> Iterator[TriedConfiguration]:
    """What was measured, the fastest first; failures last."""
    yield from sorted(tuning.measured, key=lambda one: (bool(one.failure), one.median))


def _tunable(
    function: Callable[..., Any] | Tunable, space: Mapping[str, Values] | Space | None,
    arguments: Sequence[Any],
    grid: Callable[[Configuration], tuple[int, ...]] | None, expected: Any, default: Configuration | None,
    objective: str | None,
) -> Tunable:  # fmt: skip
    if isinstance(function, Tunable):
        given = {"space": space, "arguments": arguments or None, "grid": grid, "expected": expected,
                 "default": default, "objective": objective}  # fmt: skip
        twice = [name for name, value in given.items() if value is not None]
        if twice:
            raise InvalidSetting(f"A Tunable says its {twice[0]} itself; give it there")
        return function
    if space is None:
        raise InvalidSetting("A function needs a space to be tuned in: {'tile': (8, 16, 32)}")
    return Tunable(function, space, tuple(arguments), grid, expected, default, objective or SECONDS)


def _refuse_unused(
    tunable: Tunable, tolerance: Tolerance | None, prune: float | None, confirm: int | None,
    ranker: str | Path | None,
) -> None:  # fmt: skip
    """Options that are given are used or refused."""
    timed = tunable.objective == SECONDS
    for name, given in (("prune", prune), ("confirm", confirm)):
        if given is not None and not timed:
            raise InvalidSetting(f"{name} means nothing where what the function returns counts; leave it out")
    if tolerance is not None and tunable.expected is None:
        raise InvalidSetting("tolerance means nothing without what is expected; give expected, too")
    if tunable.grid is not None and not _is_triton(tunable.function):
        raise InvalidSetting("grid means nothing for a function that is no Triton kernel; leave it out")
    if ranker not in (AUTOMATIC, None) and tunable.graph is None:
        raise InvalidSetting(
            f"The ranker {str(ranker)!r} orders nothing without a graph of the program: give a Tunable one"
        )


def bench_of(tunable: Tunable | str, settings: BenchSettings) -> Bench:
    """A bench of a function, of a Triton kernel on its grid, or of what `file.py:name` is."""
    if isinstance(tunable, str):
        tunable = object_of(tunable)
        assert isinstance(tunable, Tunable)
    return Bench(_callable(tunable), tunable.arguments, tunable.expected, settings)


def _travelling(tunable: Tunable) -> Tunable | str:
    """What a worker needs of it: its place, or itself without the conditions of its space, often lambdas."""
    parameters = tunable.configurations.values
    return tunable.place or replace(
        tunable, space=parameters, default=None, in_words=None, how_to="", graph=None
    )


def _first(study: Study, bench: Bench | TuningWorkers, default: Configuration) -> TriedConfiguration:
    """What the default takes: the first measurement of a study, or what it has of it."""
    with study.turn():
        found = study.measured.get(key_of(default))
        if found is None:
            study.claim(default)
    if found is None:
        found = bench.measure(default, math.inf)
        study.add(found)
    return found


def _measured(
    search: Search,
    study: Study,
    bench: Bench | TuningWorkers,
    most: float,
    end: float | None,
) -> Iterator[TriedConfiguration]:
    """Configurations measured, each when it is done, until a limit or the end of the space."""
    under_way: dict[int, Configuration] = {}
    together = 1 if isinstance(bench, Bench) else bench.together

    def items() -> Iterator[tuple[Configuration, float]]:
        """What to measure next, as long as somebody is free; with the best value so far."""
        while len(under_way) < together and (end is None or time.monotonic() < end):
            one = _claimed(search, study, most, tuple(under_way.values()))
            if one is None:
                return
            under_way[next(places)] = one
            values = [found.median for found in study.measured.values() if not found.failure]
            yield one, min(values, default=math.inf)

    while len(study.measured) < most and (end is None or time.monotonic() < end):
        places = itertools.count()
        under_way.clear()
        before = len(study.measured)
        for place, outcome in _outcomes(bench, items()):
            one = under_way.pop(place)
            found = outcome if isinstance(outcome, TriedConfiguration) else found_of(outcome, one)
            study.add(found)
            search.tell(found.configuration, found.median)
            yield found
        if len(study.measured) == before:
            if not study.claimed:
                return
            time.sleep(_WAIT_SECONDS)  # others measure what is left


def _outcomes(
    bench: Bench | TuningWorkers, items: Iterator[tuple[Configuration, float]]
) -> Iterator[tuple[int, TriedConfiguration | Outcome[TriedConfiguration]]]:
    if isinstance(bench, Bench):
        for place, item in enumerate(items):
            yield place, bench.measure(*item)
    else:
        for outcome in bench.measure_each(items):
            yield outcome.item_index, outcome


def _claimed(
    search: Search, study: Study, most: float, under_way: Sequence[Configuration]
) -> Configuration | None:
    """The next configuration, claimed in the study; None where the budget or the space is used up."""
    with study.turn():
        for found in study.measured.values():
            search.tell(found.configuration, found.median)
        search.forget_asked()
        others = [*study.claimed, *under_way]
        for other in others:
            search.note_asked(other)
        asked = search.ask() if len(study.measured) + len(others) < most else []
        if asked:
            study.claim(asked[0])
    return asked[0] if asked else None


def _told(
    name: str,
    tunable: Tunable,
    search: Search,
    study: Study,
    bench: Bench | TuningWorkers,
    start: TriedConfiguration | None,
) -> Tuning:
    space, measured = tunable.configurations, tuple(study.measured.values())
    ran = [one for one in measured if not one.failure]
    if not ran:
        what = why_all_failed(measured) or "nothing was measured in the time that there was"
        raise InvalidSetting(f"None of {len(measured)} configurations could be run: {what}")
    best = min(ran, key=lambda one: one.median)
    gain = None
    if start is not None and not start.failure:
        if key_of(start.configuration) != key_of(best.configuration):
            gain = bench.compare(best.configuration, start.configuration, "the default")
    elif len(ran) > 2:
        middle = sorted(ran, key=lambda one: one.median)[len(ran) // 2]
        gain = bench.compare(best.configuration, middle.configuration, "the median configuration measured")
    predicted, tau_b = np.zeros(0), math.nan
    if space.size <= _PREDICTED and len(ran) > 1:
        predicted = search.predict(space.configurations)
    if len(ran) > 4:
        truth, left_out = search.left_out()
        tau_b = agreement(truth - truth.min() + 1, left_out).tau_b if np.ptp(truth) else math.nan
    return Tuning(name, space, measured, predicted, tau_b, start, gain, tunable.objective, tunable)


def _callable(tunable: Tunable) -> Callable[..., Any]:
    """The function as it is called: a Triton kernel on its grid, a function of JAX arrays compiled."""
    function = tunable.function
    if _is_triton(function):
        grid = tunable.grid
        if grid is None:
            raise InvalidSetting("A Triton kernel needs a grid: lambda configuration: (programs,)")

        def launch(*arguments: Any, **one: Any) -> Any:
            function[grid(one)](*arguments, **one)  # type: ignore[index]

        return launch
    if any(type(one).__module__.partition(".")[0] in ("jax", "jaxlib") for one in tunable.arguments):
        from apportion.program.hlo.jax import jax  # only for functions of JAX arrays

        return jax().jit(function, static_argnames=tuple(tunable.configurations.values))  # type: ignore[no-any-return]
    return function


def _is_triton(function: Callable[..., Any]) -> bool:
    return hasattr(function, "arg_names") and hasattr(function, "warmup")


def _listed(sources: WarmStart | Sequence[WarmStart]) -> Iterable[WarmStart]:
    return (sources,) if isinstance(sources, Tuning | TuningTable | str | Path) else sources


def _is_study(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"study"' in file.readline()
    except OSError:
        return False


def _of_study(path: Path, space: Space) -> TuningTable:
    kept = Study.read(path, space)
    return _table_of(path.stem, kept, SECONDS)


def _table_of(name: str, measured: Iterable[TriedConfiguration], objective: str) -> TuningTable:
    rows = [Tried(one.configuration, one.median, one.failure, one.seconds) for one in measured]
    return TuningTable(name, tuple(rows), objective)


@contextmanager
def _shown(wanted: bool, total: float) -> Iterator[Callable[[], None]]:
    """A bar on a terminal's stderr, or nothing; what is yielded moves it on."""
    if not wanted or not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=total if math.isfinite(total) else None)
        yield lambda: bar.advance(task, 1)


__all__ = [
    "RETURNED",
    "SECONDS",
    "Gain",
    "Range",
    "Space",
    "Study",
    "Tolerance",
    "TriedConfiguration",
    "Tunable",
    "Tuning",
    "by_time",
    "known_of",
    "tune",
]
