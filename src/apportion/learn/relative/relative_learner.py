"""RelativeLearner: models of relative performance, from a table of counters and times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.data.counter_table import AIWC, CounterTable
from apportion.errors import UnknownName
from apportion.learn.learner import TableLearner
from apportion.learn.relative.performance import measures_of
from apportion.learn.relative.relative_model import UNFAMILIAR
from apportion.learn.relative.relative_shipping import model_of, trust_of
from apportion.learn.relative.relative_table import RelativeTable, table_of


@dataclass(frozen=True)
class RelativeSettings:
    """A table of runs, and whose time is usually known."""

    data: Path
    "Counters of kernels as AIWC counts them, and times on two systems at least (Parquet)."
    profiled: str = ""
    "The system whose time is known most often; by default the table's first."
    model: Literal["ridge", "forest", "network"] = "ridge"
    "What answers from counters alone; with a known time ridge regressions do. Networks need torch."
    seed: int = 0


class RelativeLearner(TableLearner[RelativeSettings, RelativeTable]):
    """Chooses and fits ridge regressions; every application in turn is held out to score them."""

    question: ClassVar[str] = "relative-performance"
    settings_type: ClassVar[type[Any]] = RelativeSettings

    def data(self, say: Callable[[str], None]) -> tuple[RelativeTable, str]:
        table = table_of(CounterTable.read(self.settings.data), name=self.settings.data.stem, counters=AIWC)
        return table, table.digest

    def fit(self, data: RelativeTable, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
        profiled = self.settings.profiled or data.systems[0]
        if profiled not in data.systems:
            raise UnknownName("system", profiled, data.systems)
        model = model_of(data, systems=data.systems, profiled=profiled)
        if self.settings.model != "ridge":
            from apportion.learn.relative.fitting_relative import fitted_of  # scikit-learn or torch

            model = fitted_of(model, self.settings.model, seed=self.settings.seed)
        trust = None
        if self.settings.model == "ridge":
            trust = trust_of(model, systems=data.systems, profiled=profiled, unfamiliar=UNFAMILIAR)
        model.save(folder)
        truth = data.log_times
        always = np.tile(truth.mean(axis=0), (len(truth), 1))
        return {
            "test": {
                "held_out": "each application in turn",
                **measures_of(truth, model.held_out(None)),
                "always_fastest_on_average": measures_of(truth, always),
                "one_time_known": measures_of(truth, model.held_out(data.systems.index(profiled))),
                "trust": None if trust is None else asdict(trust),
                "runs": len(data.runs), "left_out": data.left_out,
                "applications": len(set(data.application)), "systems": list(data.systems),
            }
        }  # fmt: skip
