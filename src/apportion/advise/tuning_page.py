"""A tuning as one HTML page that needs nothing else: the best, how it was found, what the model predicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

import numpy as np

from apportion.advise.tuning import SECONDS, TriedConfiguration, Tuning, by_time
from apportion.report import html
from apportion.report.charts import curves
from apportion.report.numbers import in_time
from apportion.report.tabular import html_table

_SHOWN = 20
"Rows of the table."


def page(tuning: Tuning) -> str:
    """The page."""
    best = tuning.fastest
    words = ", ".join(f"{name} = {value}" for name, value in tuning.in_words(best.configuration).items())
    gained = "" if tuning.gain is None else f", {tuning.gain.in_words()}"
    size = len(tuning.predicted) or tuning.space.size
    of = "" if math.isinf(size) else f" of {size:,.0f}"
    failed = sum(bool(one.failure) for one in tuning.measured)
    sure = (
        ""
        if np.isnan(tuning.tau_b)
        else f" On measurements it had not seen its tau-b was {tuning.tau_b:.2f}."
    )
    names = list(tuning.space.values)
    return html.page(
        f"Tuning {tuning.name}",
        [
            html.heading(words),
            html.paragraph(
                f"{tuning.name}: {_words_of(tuning)(best.median)}{gained}. "
                f"{len(tuning.measured)}{of} configurations measured, {failed} failed."
            ),
            html.heading("How it was found"),
            _search(tuning),
            _scatter(tuning),
            html.paragraph(f"The model predicts every configuration from those measured.{sure}"),
            html.heading("The fastest"),
            html_table(
                [*names, *_columns(tuning)],
                [_row(one, names, tuning) for one in list(by_time(tuning))[:_SHOWN]],
                align="r",
            ),
        ],
    )


def _search(tuning: Tuning) -> str:
    """Each measurement in turn, and the best so far."""
    good = [(place, one.median) for place, one in enumerate(tuning.measured) if not np.isnan(one.median)]
    lowest = accumulate((value for _, value in good), min)
    return curves(
        {"best so far": [(place, value) for (place, _), value in zip(good, lowest, strict=True)]},
        dots={"measured": good},
        across="measurement",
        up="time" if tuning.objective == SECONDS else tuning.objective,
        from_zero=False,
        up_words=_words_of(tuning),
    )


def _scatter(tuning: Tuning) -> str:
    """What was measured against what the model predicts for it; nothing where a space is too large."""
    if not len(tuning.predicted):
        return ""
    places = {repr(sorted(one.items())): place for place, one in enumerate(tuning.space.configurations)}
    pairs = [
        (float(tuning.predicted[places[repr(sorted(one.configuration.items()))]]), one.median)
        for one in tuning.measured
        if not one.failure
    ]
    values = [value for pair in pairs for value in pair if value > 0 or tuning.objective != SECONDS]
    low, high = min(values), max(values)
    drawn = curves(
        {"as predicted": [(low, low), (high, high)]},
        dots={"configurations": [(max(predicted, low), measured) for predicted, measured in pairs]},
        across="predicted",
        up="measured",
        from_zero=False,
        across_words=_words_of(tuning),
        up_words=_words_of(tuning),
    )
    return html.heading("Measured and predicted") + drawn


def _columns(tuning: Tuning) -> tuple[str, ...]:
    return ("median", "least … most") if tuning.objective == SECONDS else (tuning.objective,)


def _row(one: TriedConfiguration, names: list[str], tuning: Tuning) -> list[object]:
    cells = [one.configuration[name] for name in names]
    value = one.failure or _words_of(tuning)(one.median)
    if tuning.objective != SECONDS:
        return [*cells, value]
    between = f"{in_time(min(one.seconds))} … {in_time(max(one.seconds))}" if one.seconds else ""
    return [*cells, value, "" if one.failure else between]


def _words_of(tuning: Tuning) -> Callable[[float], str]:
    """How values of the objective are written: times with their unit, other numbers in four digits."""
    return in_time if tuning.objective == SECONDS else "{:.4g}".format
