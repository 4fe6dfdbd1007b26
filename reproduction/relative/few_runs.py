"""New systems from few measured runs: each system in turn is held out, and three applications with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.learn.metrics import Interval, over_seeds
from apportion.learn.relative.mixture import Known, estimate, nearest
from apportion.learn.relative.performance import vector_of
from apportion.learn.relative.relative_features import NEEDED
from apportion.learn.relative.relative_table import RelativeTable
from apportion.learn.relative.vectors import ridge

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
SAMPLES = (5, 20, 50)
_UNSEEN = 3
_RIDGE = {"strength": 100.0}


@dataclass(frozen=True, eq=False)
class FewScore:
    """How well a method knows a new system from so many runs."""

    method: str
    samples: int
    r2: Interval
    "1 − squared error / that of knowing the system's mean speed from every run of the seen applications."
    error: float
    "The median error of a time, in percent."
    held: float = 0.0
    "The share of times within one sigma; 0 where a method gives none."


@dataclass(frozen=True, eq=False)
class _Case:
    measured: Rows
    asked: Rows
    seen: Rows
    "Every run of the seen applications, measured on the new system or not."
    sources: Numbers  # (N, S - 1)
    predicted: Numbers  # (N, S - 1): the sources, where they were not measured for the asked runs
    features: Numbers
    truth: Numbers  # (N,)


def few_samples(
    table: RelativeTable,
    *,
    draws: int = 20,
    seed: int = 100,
    samples: Sequence[int] = SAMPLES,
    report: Callable[[str], None],
) -> list[FewScore]:
    """Every method with every number of samples; the mean over draws with its 95 % interval."""
    if len(table.systems) < 3:
        raise InvalidSetting("To hold a system out, two others are needed")
    features = table.features("counters")
    scores = []
    for count in samples:
        found: dict[str, list[tuple[float, float, list[float], list[bool]]]] = {name: [] for name in _METHODS}
        for draw in range(draws):
            cases = list(_cases(table, features, count, [seed, draw]))
            for name, method in _METHODS.items():
                found[name].append(_scored(method, cases))
        for name, of_draws in found.items():
            errors = [error for _, _, each, _ in of_draws for error in each]
            held = [one for *_, each in of_draws for one in each]
            scores.append(
                FewScore(
                    name, count, over_seeds([1 - left / total for left, total, *_ in of_draws]),
                    100 * float(np.median(errors)), float(np.mean(held)) if held else 0.0,
                )
            )  # fmt: skip
        report(f"{table.name}: new systems from {count} runs, {draws} draws")
    return scores


def _cases(table: RelativeTable, features: Numbers, count: int, seed: list[int]) -> Iterator[_Case]:
    random = np.random.default_rng(seed)
    application = np.array(table.application)
    unseen = random.choice(np.unique(application), _UNSEEN, replace=False)
    asked = np.flatnonzero(np.isin(application, unseen))
    seen = np.flatnonzero(~np.isin(application, unseen))
    both = table.features("both" if set(NEEDED) <= set(table.counters) else "counters")
    model = ridge(_RIDGE, both[seen], vector_of(table.log_times[seen]))
    vectors = model.predict(both)
    for system in range(len(table.systems)):
        measured = random.permutation(seen)[:count]
        others = np.arange(len(table.systems)) != system
        sources = table.log_times[:, others]
        # Predicted from counters, times are known up to their scale; it is given, and cancels in ratios.
        predicted = vector_of(vectors[:, others]) + sources.mean(axis=1, keepdims=True)
        yield _Case(
            measured, asked, seen, sources, predicted, features, table.log_times[:, system]
        )  # fmt: skip


def _scored(
    method: Callable[[_Case], tuple[Numbers, Numbers | None]], cases: Sequence[_Case]
) -> tuple[float, float, list[float], list[bool]]:
    left = total = 0.0
    errors: list[float] = []
    held: list[bool] = []
    for case in cases:
        said, sigma = method(case)
        truth = case.truth[case.asked]
        ratio = case.truth - case.sources.mean(axis=1)
        left += float(((said - truth) ** 2).sum())
        total += float(((ratio[case.asked] - ratio[case.seen].mean()) ** 2).sum())
        errors += np.abs(2 ** (said - truth) - 1).tolist()
        if sigma is not None:
            held += (np.abs(said - truth) <= sigma).tolist()
    return left, total, errors, held


def _scale(case: _Case) -> tuple[Numbers, Numbers | None]:
    base = case.sources.mean(axis=1)
    return base[case.asked] + (case.truth - base)[case.measured].mean(), None


def _nearest(case: _Case) -> tuple[Numbers, Numbers | None]:
    return nearest(case.sources[case.measured], case.truth[case.measured], case.sources[case.asked]), None


def _nearest_ridge(case: _Case) -> tuple[Numbers, Numbers | None]:
    sources = case.sources
    return nearest(
        sources[case.measured], case.truth[case.measured], sources[case.asked], strength=20.0
    ), None


def _mixture(case: _Case, asked: Numbers) -> tuple[Numbers, Numbers | None]:
    def known(rows: Rows, log_times: Numbers) -> Known:
        return Known(log_times[rows], case.features[rows])

    found = estimate(
        known(case.measured, case.sources), case.truth[case.measured], known(case.asked, asked),
        background=known(case.seen, case.sources),
    )  # fmt: skip
    return found.mean, found.sigma


def _mixture_measured(case: _Case) -> tuple[Numbers, Numbers | None]:
    return _mixture(case, case.sources)


def _mixture_predicted(case: _Case) -> tuple[Numbers, Numbers | None]:
    return _mixture(case, case.predicted)


_METHODS: dict[str, Callable[[_Case], tuple[Numbers, Numbers | None]]] = {
    "scale only": _scale,
    "nearest system": _nearest,
    "nearest system + ridge": _nearest_ridge,
    "mixture of systems": _mixture_measured,
    "mixture of systems, known systems predicted from counters": _mixture_predicted,
}
