"""Trees and lines on rows of features: extra trees, random forest, boosting, one tree, linear, pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from apportion.data.records import CLASSES
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn.forest import Forest
from apportion.learn.shares.nearest_launches import Memory
from apportion.learn.shares.pooled import MEMBERS, Pooled, code_in, made, parts_of, sizes_in
from apportion.program.kernel.features import FEATURES, INPUTS
from apportion.settings import convert

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class RowSettings:
    """How a learner is grown; what a kind has no use for is left at its default."""

    kind: Literal["extra-trees", "random-forest", "boosting", "decision-tree", "linear"]
    trees: int = 100
    max_features: float = 1.0
    "The part of the features that each split looks at."
    leaf: int = 1
    "The fewest rows in a leaf."
    depth: int = 0
    "The deepest a tree may be; 0 for any."
    learning_rate: float = 0.1

    def __post_init__(self) -> None:
        if self.trees < 1 or self.leaf < 1 or self.depth < 0:
            raise InvalidSetting("trees and leaf must be at least 1, and depth must not be negative")
        if not 0 < self.max_features <= 1:
            raise InvalidSetting(f"max_features must lie above 0 and not above 1, not {self.max_features}")


class RowModel:
    """A fitted learner."""

    def __init__(self, settings: RowSettings, scaling: Standard | None, fitted: Any) -> None:
        self.settings, self.scaling, self.fitted = settings, scaling, fitted

    @classmethod
    def fit(
        cls,
        settings: RowSettings,
        rows: Rows,
        truth: Rows,
        *,
        seed: int = 0,
        weights: Rows | None = None,
    ) -> RowModel:
        """Learn numbers (N,), or in trees (N, T), from rows of features (N, F); `weights` (N,) says how much
        each row counts."""
        scaling = Standard.fit(rows) if settings.kind == "linear" else None
        learner = _learner(settings, seed)
        # Boosting shares each small step among threads, which on a busy machine wait for each other.
        with threadpool_limits(limits=1):
            counted = {} if weights is None else {"sample_weight": weights}
            learner.fit(rows if scaling is None else scaling.apply(rows), truth, **counted)
        return cls(settings, scaling, learner)

    def predict(self, rows: Rows) -> Rows:
        """(N,), or (N, T)."""
        scaled = rows if self.scaling is None else self.scaling.apply(rows)
        with threadpool_limits(limits=1):
            return np.asarray(self.fitted.predict(scaled), np.float64)

    def forest(self, check: Rows) -> Forest:
        """The trees as arrays, found to say the same of the rows `check` as scikit-learn does.

        Where several numbers were learned, the arrays tell the first.

        Raises:
            InvalidSetting: this kind of learner is not a forest, or the arrays say something else.
        """
        if self.settings.kind not in ("extra-trees", "random-forest"):
            raise InvalidSetting(f"A learner of the kind {self.settings.kind!r} does not become a forest")
        forest = _exported([tree.tree_ for tree in self.fitted.estimators_])
        wanted = self.predict(check).reshape(len(check), -1)[:, 0]
        difference = float(np.abs(forest.predict(check) - wanted).max())
        scale = float(np.abs(wanted).max()) or 1.0
        if difference > 1e-6 * scale:
            raise InvalidSetting(f"The exported forest differs from scikit-learn's by {difference}")
        return forest


def _fitter(kind: str) -> Callable[..., RowModel]:
    def fit(settings: Mapping[str, Any], rows: Rows, truth: Rows, *, seed: int = 0) -> RowModel:
        chosen = convert(RowSettings, {"kind": kind, **settings}, source=kind)
        return RowModel.fit(chosen, rows, truth, seed=seed)

    return fit


@dataclass(frozen=True)
class PooledSettings:
    """How the forests of a pool are grown."""

    trees: int = 40
    "Of the forests on all code and on the nearest launches; the other two have three quarters of that."
    max_features: float = 0.3
    "The part of the features that a split on code looks at; on a summary twice that part, on inputs all."
    others: float = 0.7
    "How much the shares beside other GPUs, where they are known, count in choosing a split."
    device: float = 0.4
    "How much it counts which device is faster, which is learned beside the share."

    def __post_init__(self) -> None:
        if self.trees < 2:
            raise InvalidSetting(f"trees must be at least 2, not {self.trees}")
        if not 0 < self.max_features <= 0.5:
            raise InvalidSetting(f"max_features must lie above 0 and not above 0.5, not {self.max_features}")


class PooledModel:
    """A fitted pool of forests, which can be asked in several ways."""

    def __init__(self, pool: Pooled) -> None:
        self.pool = pool

    def predict(
        self, rows: Rows, *, answer: str = "all", heard: float = 1.0, trusted: float = 2.0, vote: bool = False
    ) -> Rows:
        """(N,): the middle of the trees, or the class that most of them vote for.

        Args:
            rows: (N, F).
            answer: who answers: all forests, or one of them.
            heard: the weight of the trees on inputs, where those are used.
            trusted: the weight of the trees on the nearest launches.
            vote: answer with one of `CLASSES`.
        """
        votes = replace(self.pool, heard=heard, trusted=trusted).votes(rows, answer=answer)
        return votes.nearest(CLASSES) if vote else votes.mean()


def grown(
    settings: PooledSettings, columns: Sequence[str], rows: Rows, truth: Rows, *, seed: int = 0
) -> Pooled:
    """A pool fitted to rows (N, F) whose columns have these names, and to shares (N,), or (N, T) where those
    beside other GPUs are known too: the first is what the pool tells."""
    truth = truth.reshape(len(rows), -1)
    faster = np.where(truth[:, :1] < 50, 100.0, 0.0)
    aims = np.hstack([truth[:, :1], settings.others * truth[:, 1:], settings.device * faster])
    code = code_in(columns)
    memory = Memory.of(code, rows[:, : len(code)], sizes_in(rows, columns), truth[:, 0])
    lessons = memory.lessons()
    times = len(lessons) // len(rows)
    repeated = np.tile(rows, (times, 1))
    wide = np.hstack([repeated, made(repeated, columns, memory, nearest=lessons)])
    seen = parts_of(wide, columns)
    looked_at = {"code": settings.max_features, "inputs": 1.0}
    forests = {}
    for name in MEMBERS:
        trees = settings.trees if name in ("code", "recalled") else max(1, settings.trees * 3 // 4)
        learner = RowSettings("extra-trees", trees, looked_at.get(name, 2 * settings.max_features))
        # The nearest launches differ between the repetitions of a row; what the other members see does not.
        count = len(wide) if name == "recalled" else len(rows)
        fitted = RowModel.fit(learner, seen[name][:count], np.tile(aims, (times, 1))[:count], seed=seed)
        forests[name] = fitted.forest(seen[name][:8])
    return Pooled(tuple(columns), forests, memory)


def pooled(settings: Mapping[str, Any], rows: Rows, truth: Rows, *, seed: int = 0) -> PooledModel:
    """A pool on rows of `FEATURES` and `INPUTS`."""
    columns = (*FEATURES, *INPUTS)
    if rows.shape[1] != len(columns):
        raise InvalidSetting(
            f"Pooled forests learn from rows of {len(columns)} features, not {rows.shape[1]}"
        )
    chosen = convert(PooledSettings, dict(settings), source="pooled")
    return PooledModel(grown(chosen, columns, rows, truth, seed=seed))


extra_trees = _fitter("extra-trees")
random_forest = _fitter("random-forest")
boosting = _fitter("boosting")
decision_tree = _fitter("decision-tree")
linear = _fitter("linear")


def _learner(settings: RowSettings, seed: int) -> Any:
    depth = settings.depth or None
    if settings.kind in ("extra-trees", "random-forest"):
        grower = ExtraTreesRegressor if settings.kind == "extra-trees" else RandomForestRegressor
        return grower(
            settings.trees, max_features=settings.max_features, min_samples_leaf=settings.leaf,
            max_depth=depth, random_state=seed,
        )  # fmt: skip
    if settings.kind == "boosting":
        return HistGradientBoostingRegressor(
            max_iter=settings.trees, learning_rate=settings.learning_rate, min_samples_leaf=settings.leaf,
            max_depth=depth, max_features=settings.max_features, early_stopping=False, random_state=seed,
        )  # fmt: skip
    if settings.kind == "decision-tree":
        return DecisionTreeRegressor(min_samples_leaf=settings.leaf, max_depth=depth, random_state=seed)
    return Ridge(alpha=1e-3)


def _exported(trees: list[Any]) -> Forest:
    sizes = [tree.node_count for tree in trees]
    root = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    feature, threshold, left, right, value = [], [], [], [], []
    for first, tree in zip(root.tolist(), trees, strict=True):
        itself = np.arange(tree.node_count)
        leaf = tree.children_left < 0
        feature.append(np.where(leaf, 0, tree.feature))
        threshold.append(_not_above(np.where(leaf, 0.0, tree.threshold)))
        left.append(np.where(leaf, itself, tree.children_left) + first)
        right.append(np.where(leaf, itself, tree.children_right) + first)
        value.append(tree.value[:, 0, 0])
    return Forest(
        np.concatenate(feature).astype(np.int16),
        np.concatenate(threshold),
        np.concatenate(left).astype(np.int32),
        np.concatenate(right).astype(np.int32),
        np.concatenate(value).astype(np.float32),
        root,
        max(tree.max_depth for tree in trees),
    )


def _not_above(numbers: Rows) -> NDArray[np.float32]:
    """The largest 32-bit numbers that are not above these: 32-bit features compare with both alike."""
    rounded = numbers.astype(np.float32)
    return np.where(rounded > numbers, np.nextafter(rounded, np.float32(-np.inf)), rounded)
