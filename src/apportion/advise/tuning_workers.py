"""Configurations measured where a `Runner` works: other processes of this machine, Ray, Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from apportion.advise.study import TriedConfiguration
from apportion.advise.tuning_bench import Bench, Gain
from apportion.errors import JobError
from apportion.jobs import Outcome, Runner
from apportion.jobs.processors import processors
from apportion.measure.space import Configuration

_TOGETHER = 8
"Configurations under way at once where the runner does not say how many workers it has."


@dataclass(frozen=True, eq=False)
class WorkerBench:
    """How a worker makes its bench; the bench itself stays where it was made."""

    bench_of: Callable[[], Bench]
    "A function at the top level of a module, or a partial of one: each worker calls it once."

    @cached_property
    def bench(self) -> Bench:
        """The bench of this process."""
        return self.bench_of()

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerBench, (self.bench_of,)


@dataclass(frozen=True)
class TuningWorkers:
    """A bench whose calls are made by a runner's workers."""

    runner: Runner
    measured: WorkerBench

    @property
    def together(self) -> int:
        """How many configurations are under way at once."""
        workers = getattr(self.runner, "workers", None)
        return workers if isinstance(workers, int) else max(_TOGETHER, processors())

    def measure(self, one: Configuration, best: float) -> TriedConfiguration:
        """What comes of a configuration; see `Bench.measure`."""
        (outcome,) = self.measure_each([(one, best)])
        return found_of(outcome, one)

    def measure_each(
        self, items: Iterable[tuple[Configuration, float]]
    ) -> Iterator[Outcome[TriedConfiguration]]:
        """What comes of configurations, each as soon as it is there."""
        return self.runner.map(partial(_measure, self.measured), items)

    def compare(self, best: Configuration, other: Configuration, than: str) -> Gain | None:
        """How much faster the best is, called in turns by one worker; see `Bench.compare`."""
        (outcome,) = self.runner.map(partial(_compare, self.measured), [(best, other, than)])
        return outcome.value if outcome.succeeded else None


def found_of(outcome: Outcome[TriedConfiguration], one: Configuration) -> TriedConfiguration:
    """What a worker found; a worker that crashed or was late is a failure of its configuration.

    Raises:
        JobError: no worker could be started.
    """
    if outcome.error is None:
        return replace(outcome.unwrap(), configuration=one)
    if type(outcome.error) is JobError:
        raise outcome.error
    return TriedConfiguration(one, (), str(outcome.error).splitlines()[0])


def _measure(measured: WorkerBench, item: tuple[Configuration, float]) -> TriedConfiguration:
    return measured.bench.measure(*item)


def _compare(measured: WorkerBench, item: tuple[Configuration, Configuration, str]) -> Gain | None:
    return measured.bench.compare(*item)
