"""From a run's profile to its relative performance over systems, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import weights
from apportion.advise.systems import KnownSystem, kept_systems
from apportion.data.counter_table import SECONDS, CounterTable
from apportion.data.published.aiwc import FOUR_SYSTEMS
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn.base import open_predictor
from apportion.learn.relative.mixture import Known, estimate
from apportion.learn.relative.performance import CENTRED, order_of, vector_of
from apportion.learn.relative.profile import Profile
from apportion.learn.relative.relative_features import features_of
from apportion.learn.relative.relative_model import UNFAMILIAR, RelativeModel, VectorAnswer
from apportion.settings import read_json

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Relative:
    """The answer for one run."""

    name: str
    target: str
    vector: Mapping[str, float]
    "System → relative performance, in the terms of `target`."
    order: tuple[str, ...]
    "Fastest first."
    sigma: Mapping[str, float]
    "System → uncertainty of the log2 time relative to the systems' mean; one is a factor of 2."
    distance: float
    "To the nearest known run, in deviations of the counters."
    familiarity: float
    abstains: bool
    "Whether the run is too unlike the known ones: then vector and order are guesses."
    measured: tuple[str, ...] = ()
    "Systems whose times were known."
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The keys of `apportion relative predict --json`; who abstains names no vector and no order."""
        return {
            "run": self.name,
            "target": self.target,
            "abstains": self.abstains,
            "vector": None
            if self.abstains
            else {name: round(value, 4) for name, value in self.vector.items()},
            "order": None if self.abstains else list(self.order),
            "sigma": {name: round(value, 4) for name, value in self.sigma.items()},
            "distance": round(self.distance, 4),
            "familiarity": round(self.familiarity, 4),
            "measured": list(self.measured),
            "warnings": list(self.warnings),
        }


def predict(
    profile: Profile,
    *,
    systems: Sequence[str] = (),
    target: str = CENTRED,
    model: RelativeModel | None = None,
    added: Mapping[str, KnownSystem] | None = None,
) -> Relative:
    """The relative performance of a run.

    Args:
        systems: over which ones: known to the model, or added with `apportion systems add`; by default the
            model's four and every one that was added.
        target: `centred`, `slowest`, or one of the systems.
        model: by default the shipped one.
        added: systems known from a few runs; by default those that are kept.

    Raises:
        UnknownName: no such system or target.
        InvalidSetting: fewer than two systems, or a counter is missing that cannot be done without.
    """
    model = model or shipped_for(profile)
    more = (kept_systems() if model is shipped() else {}) if added is None else added
    known = model.reference.systems
    asked = tuple(systems) or (*_default(known), *more)
    for system in asked:
        if system not in known and system not in more:
            raise UnknownName("system", system, (*known, *more))
    if len(set(asked)) < 2 or len(set(asked)) < len(asked):
        raise InvalidSetting("Name two systems at least, each once")
    row, missing = model.row_of(profile.counters)
    seconds = {system: math.log2(value) for system, value in profile.seconds.items() if system in known}
    ours = [system for system in asked if system in known]
    answer = model.vector(row, seconds, over=ours if len(ours) > 1 else ())
    times, sigma = _asked(model, row, answer, asked, more)
    vector = vector_of(times[None, :], target, asked)[0]
    warnings = [f"counters missing, the usual values taken: {', '.join(missing)}"] if missing else []
    abstains = answer.familiarity < UNFAMILIAR
    if abstains:
        warnings.append(
            f"unfamiliar: the nearest known run lies {answer.distance:.1f} deviations away. Measure it."
        )
    return Relative(
        profile.name, target, dict(zip(asked, vector.tolist(), strict=True)),
        tuple(asked[number] for number in order_of(times[None, :])[0].tolist()),
        dict(zip(asked, sigma.tolist(), strict=True)), answer.distance, answer.familiarity, abstains,
        tuple(seconds), tuple(warnings),
    )  # fmt: skip


def read_profiles(path: Path) -> list[Profile]:
    """The runs of a file: a table of counters (Parquet), or JSON.

    In JSON a run is `{"name": …, "counters": {…}, "seconds": {…}}`, of which only `counters` must be there; a
    list holds several.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it holds something else.
    """
    if path.suffix != ".json":
        return profiles_of(CounterTable.read(path))
    said = read_json(path)
    profiles = []
    for number, one in enumerate(said if isinstance(said, list) else [said]):
        if not isinstance(one, dict) or not isinstance(one.get("counters"), dict):
            raise MalformedInput('a profile is an object with "counters" in it', file=str(path))
        numbers = [*one["counters"].values(), *(one.get("seconds") or {}).values()]
        if not all(value is None or isinstance(value, int | float) for value in numbers):
            raise MalformedInput("counters and seconds must be numbers", file=str(path))
        profiles.append(
            Profile(str(one.get("name", f"{path.stem}-{number}")), one["counters"], one.get("seconds") or {})
        )
    return profiles


def profiles_of(table: CounterTable) -> list[Profile]:
    """The runs of a table of counters, with their times on each system."""
    wide = table.wide()
    found: dict[str, Profile] = {}
    for row, (run, system) in enumerate(wide.runs.select("run", "system").iter_rows()):
        profile = found.setdefault(run, Profile(run, {}))
        counters, seconds = dict(profile.counters), dict(profile.seconds)
        for name, value, there in zip(
            wide.counters, wide.values[row].tolist(), wide.mask[row].tolist(), strict=True
        ):
            if not there:
                continue
            if name == SECONDS:
                seconds[system] = value
            else:
                counters.setdefault(name, value)
        found[run] = replace(profile, counters=counters, seconds=seconds)
    return list(found.values())


def shipped() -> RelativeModel:
    """The model that answers where none is named, read once."""
    return relative_model(None)


def shipped_for(profile: Profile) -> RelativeModel:
    """The shipped model that knows most of a run's counters: those of kernels, or those of commands."""
    of = {one.about: one.name for one in reversed(weights.manifest().answering("relative-performance"))}
    models = [shipped(), *(relative_model(name) for name in of.values())]

    def known(model: RelativeModel) -> float:
        names = model.reference.counters
        return sum(profile.counters.get(name) is not None for name in names) / len(names)

    return max(models, key=known)  # the first of equal ones


@cache
def relative_model(model: str | Path | None) -> RelativeModel:
    """The model of a name or folder, by default the preferred one that is shipped; read once.

    Raises:
        UnknownName: there is no such model.
        InvalidSetting: it answers another question.
    """
    name = model or weights.manifest().answering("relative-performance")[0].name
    opened = open_predictor(name, "relative-performance")
    if not isinstance(opened, RelativeModel):
        raise InvalidSetting(f"{name} is a {type(opened).__name__}; a RelativeModel is needed")
    return opened


def _default(known: Sequence[str]) -> tuple[str, ...]:
    return FOUR_SYSTEMS if set(FOUR_SYSTEMS) <= set(known) else tuple(known)


def _asked(
    model: RelativeModel,
    row: Numbers,
    answer: VectorAnswer,
    asked: Sequence[str],
    more: Mapping[str, KnownSystem],
) -> tuple[Numbers, Numbers]:
    """Log times and sigmas of the systems asked for, the model's own and added ones."""
    reference = model.reference
    ours = [name for name in asked if name in reference.systems]
    # A single known system has no other to be relative to: its sigma is then the one among all.
    sigma_of = dict(zip(ours if len(ours) > 1 else reference.systems, answer.sigma.tolist(), strict=True))
    usual = float(answer.sigma.mean())
    run = Known(answer.vector[None, :], features_of("counters", reference.counters, row))
    background = Known(reference.log_times, features_of("counters", reference.counters, reference.values))
    times, sigma = [], []
    for name in asked:
        if name in reference.systems:
            times.append(float(answer.vector[reference.systems.index(name)]))
            sigma.append(sigma_of[name])
            continue
        measured, log_times = more[name].measured(model)
        found = estimate(measured, log_times, run, background=background)
        times.append(float(found.mean[0]))
        # What is not known of the systems that it is like is not known of it either.
        sigma.append(float(np.hypot(found.sigma[0], usual)))
    return np.array(times), np.array(sigma)
