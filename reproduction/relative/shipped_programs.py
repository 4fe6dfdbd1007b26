"""The shipped models of commands, over the six systems on which our own programs were timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from apportion.learn.base import list_again
from apportion.learn.relative.fitting_relative import fitted_of
from apportion.learn.relative.performance import measures_of
from apportion.learn.relative.relative_fitted import KINDS
from apportion.learn.relative.relative_model import RelativeModel
from apportion.learn.relative.relative_shipping import model_of
from apportion.learn.relative.relative_table import RelativeTable

NAME, ABOUT = "relative-programs", "commands, six systems"
MADE_BY = "python -m reproduction relative-programs --ship"


def ship_models(table: RelativeTable, folder: Path, *, profiled: str) -> Iterator[str]:
    """Make the ridge regressions, the forest and the network; what loses least time on families left out is
    the default."""
    plain = replace(model_of(table, systems=table.systems, profiled=profiled), name=NAME)
    plain = replace(plain, about={**(plain.about or {}), "experiment": MADE_BY, "about": ABOUT})
    usual = _measures(plain, always=True)
    lost = {}
    for model in (plain, *(fitted_of(plain, kind) for kind in KINDS)):
        reached = _measures(model)
        lost[model.name] = reached["regret"]
        score = (
            f"fastest system named {reached['top1']:.2f}, time lost {reached['regret']:.2f}x, family held "
            f"out (always the fastest on average: {usual['top1']:.2f}, {usual['regret']:.2f}x)"
        )
        replace(model, about={**(model.about or {}), "score": score}).save(folder / model.name)
        yield f"{model.name}: {score}; R² {reached['r2']:.2f}, exact order {reached['order']:.2f}"
    best = min(lost, key=lambda name: lost[name])
    list_again(folder, {f"relative-performance/{ABOUT}": best})
    yield f"{best} answers where no model is named"


def _measures(model: RelativeModel, *, always: bool = False) -> dict[str, float]:
    truth = model.reference.log_times
    if not always:
        return measures_of(truth, model.held_out(None))
    family, usual = np.array(model.reference.application), np.empty_like(truth)
    for name in np.unique(family):
        usual[family == name] = truth[family != name].mean(axis=0)
    return measures_of(truth, usual)
