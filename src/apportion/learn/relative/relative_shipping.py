"""The shipped model of relative performance: chosen, and its sigmas checked, on applications left out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from apportion import __version__
from apportion.learn.relative.performance import measures_of
from apportion.learn.relative.relative_features import NEEDED
from apportion.learn.relative.relative_model import Reference, RelativeModel
from apportion.learn.relative.relative_table import RelativeTable

STRENGTHS = (10.0, 30.0, 100.0, 300.0)
FEATURES = ("counters", "shape", "both")


@dataclass(frozen=True)
class LeftOut:
    """What a model reaches on applications that it did not see, beside what knows nothing of a run."""

    regret: float
    "How many times as long as the best system the chosen one takes, on average."
    usual_regret: float
    "The same of always choosing the system that is the fastest on average."
    order: float
    "Share of the runs whose systems are all in the right order."
    usual_order: float
    r2: float
    "Of times in parts of the slowest."


def left_out_of(model: RelativeModel) -> LeftOut:
    """Each application predicted by the others, from counters alone."""
    truth = model.reference.log_times
    application = np.array(model.reference.application)
    usual = np.empty_like(truth)
    for name in np.unique(application):
        usual[application == name] = truth[application != name].mean(axis=0)
    ours, theirs = measures_of(truth, model.held_out(None)), measures_of(truth, usual)
    return LeftOut(ours["regret"], theirs["regret"], ours["order"], theirs["order"], ours["r2"])


@dataclass(frozen=True)
class Trust:
    """Whether a model knows what it does not know, on applications that were held out."""

    held: float
    "Share of relative times within one sigma, each application counting once; two thirds were promised."
    held_rows: float
    "The same, each run counting once."
    timed_held: float
    timed_held_rows: float
    "Both with the time on the profiled system known."
    near_regret: float
    "Regret over the nearer half of the runs."
    far_regret: float
    "Regret over the farther half, by distance from the known applications."
    abstained: float
    "Share of the runs that lie so far off that it would have given no answer."


def model_of(table: RelativeTable, *, systems: tuple[str, ...], profiled: str) -> RelativeModel:
    """The model of all runs; features and strength are those with the least regret on applications left out.

    Args:
        systems: over which the choice is made; the model knows all of the table's.
        profiled: the system whose time is known in the choice for the regressions that know one.
    """
    reference = Reference(
        table.runs, table.application, table.systems, table.counters, table.values, table.log_times
    )
    plain = RelativeModel(table.name, reference)
    four = plain.on(systems)
    at = systems.index(profiled)
    truth = four.reference.log_times

    def regret(features: str, strength: float, timed: int | None) -> float:
        tried = RelativeModel(table.name, four.reference, features, strength, features, strength)
        return measures_of(truth, tried.held_out(timed))["regret"]

    sets = FEATURES if set(NEEDED) <= set(table.counters) else FEATURES[:1]
    grid = list(product(sets, STRENGTHS))
    best = min(grid, key=lambda one: regret(one[0], one[1], None))
    timed = min(grid, key=lambda one: regret(one[0], one[1], at))
    about = {
        "experiment": "python -m reproduction relative-performance --ship", "data": table.digest,
        "runs": len(table.runs), "chosen_by": "regret, leave one application out, over " + ", ".join(systems),
        "version": __version__,
    }  # fmt: skip
    return RelativeModel(table.name, reference, best[0], best[1], timed[0], timed[1], about)


def trust_of(model: RelativeModel, *, systems: tuple[str, ...], profiled: str, unfamiliar: float) -> Trust:
    """Each application in turn unknown to the model: how often sigmas hold, and what distance says."""
    four = model.on(systems)
    reference = four.reference
    application = np.array(reference.application)
    at = systems.index(profiled)
    held, timed, lost, distance, silent, of = [], [], [], [], [], []
    for name in np.unique(application):
        known = application != name
        fewer = RelativeModel(
            model.name,
            Reference(
                tuple(np.array(reference.runs)[known].tolist()), tuple(application[known].tolist()), systems,
                reference.counters, reference.values[known], reference.log_times[known],
            ),
            model.features, model.strength, model.timed_features, model.timed_strength,
        )  # fmt: skip
        for row in np.flatnonzero(~known).tolist():
            times = reference.log_times[row]
            truth = times - times.mean()
            answer = fewer.vector(reference.values[[row]])
            with_time = fewer.vector(reference.values[[row]], {profiled: float(times[at])})
            held.append(float(np.mean(np.abs(answer.vector - truth) <= answer.sigma)))
            of.append(name)
            timed.append(float(np.mean(np.abs(with_time.vector - truth) <= with_time.sigma)))
            lost.append(float(times[int(answer.vector.argmin())] - times.min()))
            distance.append(answer.distance)
            silent.append(answer.familiarity < unfamiliar)
    far = np.array(distance) > np.median(distance)
    regret = np.array(lost)
    names = np.array(of)

    def by_application(values: list[float]) -> float:
        return float(np.mean([np.array(values)[names == name].mean() for name in np.unique(names)]))

    return Trust(
        by_application(held), float(np.mean(held)), by_application(timed), float(np.mean(timed)),
        float(2 ** regret[~far].mean()),
        float(2 ** regret[far].mean()), float(np.mean(silent)),
    )  # fmt: skip
