"""Jobs drawn from runs that were measured on several systems, placed by predictions of models that never saw
their program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.advise.relative_answers import shipped
from apportion.data.counter_table import SECONDS, TABLE_I, CounterTable
from apportion.data.published.aiwc import FOUR_SYSTEMS
from apportion.learn.relative.relative_model import Reference, RelativeModel
from apportion.learn.relative.relative_table import table_of
from apportion.schedule import Beliefs, JobTrace, ScheduleSettings, SystemSlots, simulate
from apportion.schedule.trace import Floats

LAUNCHES = 10_000
"The measured runs take less than some seconds: a job is so many of one."
SLOTS = 50
POLICIES = ("round_robin", "random", "user_rr", "fastest", "eft", "careful", "oracle_eft", "oracle_careful")
STRENGTH = 30.0
"Of the ridge regression for our programs; it was not chosen on them."
SIX_SYSTEMS = {
    "xeon-4": "cpu",
    "xeon-1": "cpu",
    "xeon-16": "cpu",
    "h200-10": "gpu",
    "h200-25": "gpu",
    "h200-100": "gpu",
}
"Of our own table; the first is where a run's time is known."


@dataclass(frozen=True, eq=False)
class PredictedRuns:
    """Measured runs, and what a model that never saw their application says of them."""

    title: str
    of: str
    "What a run is, for the page."
    systems: tuple[str, ...]
    kinds: tuple[str, ...]
    runs: tuple[str, ...]
    application: tuple[str, ...]
    log_times: Floats  # (N, S): log2 seconds
    predicted: Floats  # (N, S): log2 seconds, the first system's time known

    def sigma(self) -> Floats:  # (N, S)
        """What is believed of each run's errors: the root mean square over the other applications."""
        error, application = (self.predicted - self.log_times) ** 2, np.array(self.application)
        found = np.zeros(error.shape)
        for name in np.unique(application):
            found[application == name] = np.sqrt(error[application != name].mean(axis=0))
        return found


def predicted_runs(programs: Path) -> Iterator[PredictedRuns]:
    """Published runs of OpenCL kernels on four systems; our own programs on six, where their table is."""
    yield _of(shipped().on(FOUR_SYSTEMS), ("cpu", "cpu", "gpu", "gpu"),
              "Published kernels on four systems", "a kernel of the Extended OpenDwarfs")  # fmt: skip
    if not programs.exists():
        return
    source = CounterTable.read(programs)
    known = {name for group in TABLE_I.values() for name in group} | {SECONDS}
    operators = tuple(sorted(set(source.frame["counter"].unique().to_list()) - known))
    table = table_of(source, name=programs.stem, counters=operators, systems=tuple(SIX_SYSTEMS))
    reference = Reference(
        table.runs, table.application, table.systems, table.counters, table.values, table.log_times
    )
    model = RelativeModel(programs.stem, reference, "counters", STRENGTH, "counters", STRENGTH)
    yield _of(model, tuple(SIX_SYSTEMS.values()), "Our own programs on six systems",
              "a program of torch at one size")  # fmt: skip


def _of(model: RelativeModel, kinds: tuple[str, ...], title: str, of: str) -> PredictedRuns:
    reference = model.reference
    vector = model.held_out(0)
    predicted = reference.log_times[:, [0]] + (vector - vector[:, [0]])
    return PredictedRuns(title, of, reference.systems, kinds, reference.runs, reference.application,
                         reference.log_times, predicted)  # fmt: skip


def measured_jobs(runs: PredictedRuns, jobs: int, draws: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The policies' numbers over draws of jobs, all at once and at a load of 0.85."""
    seconds, predicted = LAUNCHES * np.exp2(runs.log_times), LAUNCHES * np.exp2(runs.predicted)
    sigma, usual = runs.sigma(), _usual(runs)
    systems = tuple(
        SystemSlots(name, SLOTS, kind) for name, kind in zip(runs.systems, runs.kinds, strict=True)
    )
    found: dict[str, dict[str, list[list[float]]]] = {}
    for setting, load in (("all at once", 0.0), ("load 0.85", 0.85)):
        kept: dict[str, list[list[float]]] = {name: [] for name in POLICIES}
        for seed in range(draws):
            rows = np.random.default_rng([seed, 5]).integers(0, len(seconds), jobs)
            work = float(seconds[rows].min(axis=1).mean())
            rate = max(load, 1e-9) * SLOTS * len(systems) / work
            gaps = np.random.default_rng([seed, 6]).exponential(1 / rate, jobs)
            names: Any = np.arange(jobs)
            trace = JobTrace(
                systems, names, np.cumsum(gaps) if load else np.zeros(jobs), np.ones(jobs, np.int64),
                np.ascontiguousarray(seconds[rows]), rows.astype(np.int32), runs.runs,
            )  # fmt: skip
            beliefs = Beliefs(np.ascontiguousarray(predicted[rows]), np.ascontiguousarray(sigma[rows]))
            for result in simulate(trace, POLICIES, beliefs=beliefs, settings=ScheduleSettings(seed=seed)):
                one = result.summary
                kept[one.policy].append([one.makespan_s, one.avg_bounded_slowdown_fastest, one.avg_jct_s,
                                         one.makespan_s / (one.lp_bound_s or math.nan)])  # fmt: skip
        found[setting] = kept
        careful, oracle = (np.mean([row[2] for row in kept[name]]) for name in ("careful", "oracle_careful"))
        say(f"{runs.title}, {setting}: careful {careful / oracle:.3f} of its oracle's completion")
    fastest = seconds.min(axis=1)
    return {
        "title": runs.title, "of": runs.of, "jobs": jobs, "draws": draws, "runs": len(seconds),
        "applications": len(set(runs.application)), "systems": list(runs.systems), "anchor": runs.systems[0],
        "sigma": np.sqrt(((runs.predicted - runs.log_times) ** 2).mean(axis=0)).tolist(),
        **{name: _choice(seconds, chosen, fastest) for name, chosen in (
            ("model", predicted.argmin(axis=1)), ("usual", usual))},
        "found": found,
    }  # fmt: skip


def _usual(runs: PredictedRuns) -> np.ndarray:  # (N,)
    """The system that is fastest on average over the other applications: what needs no model."""
    application, chosen = np.array(runs.application), np.zeros(len(runs.runs), int)
    for name in np.unique(application):
        chosen[application == name] = runs.log_times[application != name].mean(axis=0).argmin()
    return chosen


def _choice(seconds: Floats, chosen: np.ndarray, fastest: Floats) -> list[float]:
    """How often that is the fastest system, and the mean of its time over the best."""
    named = seconds[np.arange(len(seconds)), chosen]
    return [float((named <= fastest).mean()), float((named / fastest).mean())]
