"""Stochastic gradient boosting of vectors for tables of a hundred rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from apportion.errors import InvalidSetting
from apportion.learn.relative.vectors import Numbers, ProfiledRows
from apportion.settings import convert


@dataclass(frozen=True)
class BaggingSettings:
    """How trees are grown, and how many boosters are averaged."""

    trees: int = 100
    depth: int = 3
    learning_rate: float = 0.1
    rows: float = 0.7
    "The part of the rows that each tree sees."
    max_features: float = 0.3
    bags: int = 1
    "Boosters with another seed each, whose answers are averaged."

    def __post_init__(self) -> None:
        if min(self.trees, self.depth, self.bags) < 1:
            raise InvalidSetting("trees, depth and bags must be at least 1")


@dataclass(frozen=True, eq=False)
class Boosters:
    """Fitted boosters: for each output, `bags` of them."""

    outputs: tuple[tuple[Any, ...], ...]

    def predict(self, rows: Numbers) -> Numbers:
        """(N, S)."""
        said = [np.mean([one.predict(rows) for one in bag], axis=0) for bag in self.outputs]
        return np.stack(said, axis=1)


def bagged_boosting(
    settings: Mapping[str, Any],
    rows: Numbers,
    truth: Numbers,
    *,
    seed: int = 0,
    calibration: ProfiledRows | None = None,
) -> Boosters:
    """Boosters of every output."""
    chosen = convert(BaggingSettings, dict(settings), source="bagged-boosting")
    return Boosters(
        tuple(
            tuple(
                GradientBoostingRegressor(
                    n_estimators=chosen.trees, max_depth=chosen.depth, learning_rate=chosen.learning_rate,
                    subsample=chosen.rows, max_features=chosen.max_features, random_state=seed + 1000 * bag,
                ).fit(rows, column)
                for bag in range(chosen.bags)
            )
            for column in truth.T
        )
    )  # fmt: skip
