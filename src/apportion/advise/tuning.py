"""Tune a function of yours: measure some configurations, rank the rest, return the best.

    import apportion

    space = {"tile": (8, 16, 32, 64), "unroll": (1, 2, 4)}
    tuning = apportion.tune(blur, space, arguments=(image,), budget=8)
    tuning.best                 # {"tile": 32, "unroll": 2}
    tuning.write_page("blur.html")

The function is called with the arguments, and with the configuration as keywords. A Triton kernel is launched
on `grid`; a function of JAX arrays is compiled for each configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from apportion.errors import InvalidSetting
from apportion.learn.ranking.ridge import TuningPlan
from apportion.learn.ranking.tuner import TunedGraph, tune_graph
from apportion.measure.clocks import clock_for
from apportion.measure.space import Configuration, Space

_RANDOM_SHARE, _CHECK_SHARE = 0.3, 0.5
"Finding the best asks for more looks at what is predicted to be the best than ranking all does."


@dataclass(frozen=True)
class Tunable:
    """A function with the space of its configurations, for `apportion rank tune` to find in a file."""

    function: Callable[..., object]
    space: Mapping[str, Sequence[object]] | Space
    arguments: tuple[object, ...] = ()
    grid: Callable[[Configuration], tuple[int, ...]] | None = None
    "How many programs of a Triton kernel a configuration launches."
    expected: object = None
    "What the function must return; configurations that return something else are left out."
    default: Configuration | None = None
    "What it is called with so far."

    @property
    def configurations(self) -> Space:
        """The space."""
        return self.space if isinstance(self.space, Space) else Space(self.space)


@dataclass(frozen=True)
class TriedConfiguration:
    """One configuration that was tried."""

    configuration: Configuration
    seconds: tuple[float, ...]
    "Every repeat."
    failure: str = ""

    @property
    def median(self) -> float:
        """Seconds; NaN when it failed."""
        return float("nan") if self.failure else float(np.median(self.seconds))


@dataclass(frozen=True, eq=False)
class Tuning:
    """What tuning found."""

    name: str
    space: Space
    measured: tuple[TriedConfiguration, ...]
    predicted: NDArray[np.float64]
    "(C,) seconds, of every configuration of the space in its order."
    kind: str
    "The model that was chosen: one of `model.withingraph.FITS`."
    tau_b: float
    "How well it ordered measured configurations that it was not fitted to; NaN when there were too few."
    default: TriedConfiguration | None = None

    @property
    def fastest(self) -> TriedConfiguration:
        """The fastest that was measured."""
        return min((one for one in self.measured if not one.failure), key=lambda one: one.median)

    @property
    def best(self) -> Mapping[str, object]:
        """Its configuration."""
        return self.fastest.configuration

    @property
    def speedup(self) -> float:
        """Of the best over the default; over the median of those drawn by chance when there is no default."""
        base = (
            self.default.median
            if self.default
            else float(np.nanmedian([one.median for one in self.measured]))
        )
        return base / self.fastest.median

    def write_page(self, path: str | Path) -> None:
        """Write an HTML page that needs nothing else."""
        from apportion.advise.tuning_page import page  # the page imports this module's types

        Path(path).write_text(page(self))


def tune(
    function: Callable[..., object] | Tunable,
    space: Mapping[str, Sequence[object]] | Space | None = None,
    *,
    budget: int,
    arguments: Sequence[object] = (),
    grid: Callable[[Configuration], tuple[int, ...]] | None = None,
    expected: object = None,
    default: Configuration | None = None,
    repeats: int = 5,
    seed: int = 0,
    progress: bool = True,
) -> Tuning:
    """Measure `budget` configurations of a function, rank all, and find the best.

    Args:
        function: called as `function(*arguments, **configuration)`; or a Triton kernel; or a `Tunable`.
        space: parameter → its values; a `Space` says which combinations are allowed.
        budget: how many configurations are measured.
        arguments: what the function is called with each time.
        grid: configuration → how many programs of a Triton kernel are launched.
        expected: what the function must return, within one part in a hundred.
        default: the configuration used so far: measured as well, to say what is gained.
        repeats: how often each is timed; those chosen together take turns.
        seed: draws the first configurations.
        progress: show a bar on a terminal.

    Raises:
        InvalidSetting: the space or the budget is impossible, or fewer than two configurations could be run.
    """
    if isinstance(function, Tunable):
        tunable = function
    elif space is None:
        raise InvalidSetting("A function needs a space to be tuned in: {'tile': (8, 16, 32)}")
    else:
        tunable = Tunable(function, space, tuple(arguments), grid, expected, default)
    if repeats < 1:
        raise InvalidSetting(f"repeats must be at least 1, not {repeats}")
    known = tunable.configurations
    bench = _Bench(tunable, repeats)
    if tunable.default is not None:
        known.codes([tunable.default])  # raises for one that is not of the space
        bench.measure([tunable.default])
    codes = known.codes(known.configurations)
    with _shown(progress, min(budget, len(codes))) as advance:

        def measure(chosen: NDArray[np.int64]) -> NDArray[np.float64]:
            found = bench.measure([known.configurations[index] for index in chosen])
            advance(len(found))
            return np.array([one.median for one in found])

        plan = TuningPlan(budget, _RANDOM_SHARE, _CHECK_SHARE)
        tuned: TunedGraph = tune_graph(codes, known.counts, measure, plan, ordered=True, seed=seed)
    name = getattr(tunable.function, "__name__", type(tunable.function).__name__)
    measured = tuple(bench.known[_key(known.configurations[index])] for index in tuned.measured)
    start = None if tunable.default is None else bench.known[_key(tunable.default)]
    return Tuning(name, known, measured, tuned.scores, tuned.model.kind, tuned.model.tau_b, start)


class _Bench:
    """Calls of one function, each configuration timed once for all."""

    def __init__(self, tunable: Tunable, repeats: int) -> None:
        self._tunable, self._repeats = tunable, repeats
        self._function = _callable(tunable)
        self._clock = clock_for(tunable.arguments)
        self.known: dict[str, TriedConfiguration] = {}

    def measure(self, configurations: Sequence[Configuration]) -> list[TriedConfiguration]:
        """Each of them, in turns."""
        fresh = [one for one in configurations if _key(one) not in self.known]
        failures = {_key(one): self._failure(one) for one in fresh}
        times: dict[str, list[float]] = {_key(one): [] for one in fresh}
        for _ in range(self._repeats):
            for one in fresh:
                if not failures[_key(one)]:
                    times[_key(one)].append(self._clock.time(lambda one=one: self._call(one))[0])  # type: ignore[misc]
        for one in fresh:
            self.known[_key(one)] = TriedConfiguration(one, tuple(times[_key(one)]), failures[_key(one)])
        return [self.known[_key(one)] for one in configurations]

    def _call(self, one: Configuration) -> Any:
        return self._function(*self._tunable.arguments, **one)

    def _failure(self, one: Configuration) -> str:
        """Why a configuration cannot be used, after the call that warms it up; empty when it can."""
        try:
            _, result = self._clock.time(lambda: self._call(one))
        except Exception as error:  # whatever a user's function raises
            first = str(error).strip().splitlines()
            return f"{type(error).__name__}: {first[0][:200] if first else ''}"
        wanted = self._tunable.expected
        if wanted is None:
            return ""
        got, want = np.asarray(result, np.float64), np.asarray(wanted, np.float64)
        if got.shape != want.shape or not np.allclose(
            got, want, rtol=1e-2, atol=1e-2 * float(np.abs(want).max())
        ):
            return "wrong result"
        return ""


def _callable(tunable: Tunable) -> Callable[..., Any]:
    """The function as it is called: a Triton kernel on its grid, a function of JAX arrays compiled."""
    function = tunable.function
    if hasattr(function, "arg_names") and hasattr(function, "warmup"):  # a Triton kernel
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


@contextmanager
def _shown(wanted: bool, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's stderr, or nothing; what is yielded moves it on."""
    if not wanted or not sys.stderr.isatty():
        yield lambda count: None
        return
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=total)
        yield lambda count: bar.advance(task, count)


def _key(one: Configuration) -> str:
    return repr(sorted(one.items()))


def by_time(tuning: Tuning) -> Iterator[TriedConfiguration]:
    """What was measured, the fastest first; failures last."""
    yield from sorted(tuning.measured, key=lambda one: (bool(one.failure), one.median))
