"""Trees that choose among classes, on rows of features: what stands beside networks that do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from apportion.errors import UnknownName
from apportion.learn.shares.trees import RowSettings
from apportion.settings import convert

KINDS = ("decision-tree", "extra-trees")


def classes_by_trees(
    kind: str,
    settings: Mapping[str, Any],
    rows: NDArray[np.float64],
    truth: NDArray[np.int64],
    asked: NDArray[np.float64],
    *,
    seed: int,
) -> NDArray[np.int64]:
    """The class of each row that is asked about, by trees grown on rows whose class is known."""
    if kind not in KINDS:
        raise UnknownName("classifier", kind, KINDS)
    chosen = convert(RowSettings, {"kind": kind, **settings}, source=kind)
    depth = chosen.depth or None
    if kind == "decision-tree":
        grown: Any = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=chosen.leaf, random_state=seed)
    else:
        grown = ExtraTreesClassifier(
            chosen.trees, max_features=chosen.max_features, min_samples_leaf=chosen.leaf, max_depth=depth,
            random_state=seed,
        )  # fmt: skip
    with threadpool_limits(limits=1):
        return np.asarray(grown.fit(rows, truth).predict(asked), np.int64)
