"""ShareForest: one forest that tells a kernel's share and knows no program by its sizes.

It sees counts of the kernel's code and the sizes of the launch, but no number that stands in the code (bounds
of loops, extents of arrays), since those name a program more than they describe it. Sizes are told to the
trees on a grid of half octaves, and between two points of the grid the answer is interpolated: a size that
changes by a thousandth moves the share by less than a third of a point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.artifact import Artifact, read_artifact, write_artifact
from apportion.data.records import CLASSES
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting, MalformedInput
from apportion.learn.base import check_confidence
from apportion.learn.forest import Forest
from apportion.learn.shares.kernel_model import FLOOR, ConformalScores, Familiarity, widening
from apportion.learn.shares.kernel_query import AttributedPredictor, KernelQuery, KnownKernel, ShareAnswer
from apportion.learn.shares.nearest_launches import EXTENTS
from apportion.learn.shares.pooled import Votes
from apportion.program.kernel.features import FEATURES, INPUTS, RANGE_INPUTS, inputs_of

KEPT = 8192
"Rows whose votes are kept; one takes 0.3 kB and as much for its key."
STEP = 0.5
"Octaves between two points of the grid of sizes."
CODE = tuple(name for name in FEATURES if name not in EXTENTS)
"Features of the code that are looked at: all but the numbers that stand in it."
CODE_AT = np.array([FEATURES.index(name) for name in CODE])
"Where they stand in `FEATURES`."
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Corners:
    """Rows at the points of the grid around each launch, and how much each of them counts."""

    rows: Numbers  # (K, N, F)
    weight: Numbers  # (K, N), the sum over K is 1


def columns_for(ranged: bool) -> tuple[str, ...]:
    """What the columns of rows are called; with the range of the launch if it is known."""
    return (*CODE, *INPUTS[:3], *(RANGE_INPUTS if ranged else ()))


def corners(code: Numbers, bytes: Numbers, group: Numbers, items: Numbers | None = None) -> Corners:
    """The rows of launches with features (N, len(FEATURES)) and sizes (N,)."""
    kept, group = code[:, CODE_AT], np.log2(1 + group)
    smooth = [np.log2(1 + bytes)] + ([] if items is None else [np.log2(1 + items)])
    below = [np.floor(size / STEP) * STEP for size in smooth]
    part = [(size - low) / STEP for size, low in zip(smooth, below, strict=True)]
    rows, weight = [], []
    for upper in product((0, 1), repeat=len(smooth)):
        size, *rest = [low + STEP * up for low, up in zip(below, upper, strict=True)]
        ranged = [column for one in rest for column in (one, one - group, size - one)]
        rows.append(np.column_stack([kept, size, group, size - group, *ranged]))
        weight.append(
            np.prod([each if up else 1 - each for each, up in zip(part, upper, strict=True)], axis=0)
        )
    return Corners(np.stack(rows), np.stack(weight))


@dataclass(frozen=True, eq=False)
class ShareForest(AttributedPredictor):
    """Everything that prediction needs."""

    kind: ClassVar[str] = "share-forest"
    "Its entry of `apportion.learn.predictors`."

    name: str
    forest: Forest
    calibration: ConformalScores
    known: Familiarity
    "Of the features `CODE`."
    ranged: bool
    "Whether it knows the range of a launch."
    about: Mapping[str, Any]
    "The experiment that made it."

    @property
    def vectorized(self) -> bool:
        return bool(self.about.get("vectorized", True))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """What the trees look at."""
        return columns_for(self.ranged)

    def answer(self, queries: Sequence[KernelQuery], *, confidence: float = 0.9) -> list[ShareAnswer]:
        quantile = self.calibration.quantile(check_confidence(confidence))
        if not queries:
            return []
        votes, code = self.votes(queries), np.stack([query.code for query in queries])
        share = np.clip(votes.mean(), 0, 100)
        near = self._familiarity(code[:, CODE_AT])
        half = quantile * (votes.spread() + FLOOR) * widening(near)
        return [
            ShareAnswer(
                middle / 100, max(0.0, middle - off) / 100, min(100.0, middle + off) / 100, confidence,
                familiar, int(voted),
            )
            for middle, off, familiar, voted in zip(
                share.tolist(), half.tolist(), near.tolist(), votes.nearest(CLASSES).tolist(), strict=True
            )
        ]  # fmt: skip

    def inputs_for(self, query: KernelQuery) -> Numbers:
        self._check_ranges([query.work_items])
        return inputs_of(query.bytes, query.group_items, query.work_items if self.ranged else None)

    def votes(self, queries: Sequence[KernelQuery]) -> Votes:
        """What each tree says of each launch, between the points of the grid."""
        return votes_of(self._each, self._corners(queries))

    def nearest(self, code: Numbers) -> tuple[KnownKernel, ...]:
        key = code.tobytes()
        if (kept := self._nearest.get(key)) is None:
            if len(self._nearest) >= KEPT:
                self._nearest.clear()
            kept = self._nearest[key] = self.known.nearest(code[CODE_AT])
        return kept

    def _each(self, rows: Numbers) -> Numbers:
        """What `Forest.each` says. Launches of one kernel share the points of the grid: what the trees said
        there is kept."""
        return _remembered(self._said, rows, self.forest.each)

    def _familiarity(self, code: Numbers) -> Numbers:
        return _remembered(self._familiar, code, self.known.of_each)

    @cached_property
    def _said(self) -> dict[bytes, Numbers]:
        return {}

    @cached_property
    def _familiar(self) -> dict[bytes, Numbers]:
        return {}

    @cached_property
    def _nearest(self) -> dict[bytes, tuple[KnownKernel, ...]]:
        return {}

    def attributed(self, query: KernelQuery) -> tuple[float, dict[str, float]]:
        around = self._corners([query])
        kept = votes_of(self.forest.each, around).kept()[0]
        base, added = 0.0, np.zeros(len(self.columns))
        for row, weight in zip(around.rows[:, 0], around.weight[:, 0].tolist(), strict=True):
            if weight:
                before, parts = self.forest.attributed(row)
                base += weight * float(kept @ before)
                added += weight * (kept @ parts)
        return base, dict(zip(self.columns, added.tolist(), strict=True))

    def _corners(self, queries: Sequence[KernelQuery]) -> Corners:
        items = [query.work_items for query in queries]
        self._check_ranges(items)
        return corners(
            np.stack([query.code for query in queries]),
            np.array([query.bytes for query in queries], np.float64),
            np.array([query.group_items for query in queries], np.float64),
            np.array(items, np.float64) if self.ranged else None,
        )

    def _check_ranges(self, items: Sequence[int | None]) -> None:
        if self.ranged and None in items:
            raise InvalidSetting(
                f"The models of {self.name} know the range of a launch: give its global size (--global-size)"
            )

    def save(self, folder: Path) -> Path:
        """Write the model to `folder`, which comes back."""
        scaling = self.known.scaling
        arrays: dict[str, NDArray[Any]] = {
            **packed(self.forest),
            "score": self.calibration.score, "weight": self.calibration.weight,
            "mean": scaling.mean, "deviation": scaling.deviation,
            "kernels": self.known.kernels, "distance": self.known.distance,
        }  # fmt: skip
        artifact = Artifact(
            "load-balance", self.kind,
            {"columns": list(self.columns), "ranged": self.ranged, "kernels": list(self.known.names)},
            experiment=dict(self.about), predictor=self.kind, name=self.name,
        )  # fmt: skip
        write_artifact(folder, artifact, arrays)
        return folder

    @classmethod
    def load(cls, folder: Path) -> Self:
        artifact, kept = read_artifact(folder)
        try:
            ranged = bool(artifact.hyperparameters["ranged"])
            if tuple(artifact.hyperparameters["columns"]) != columns_for(ranged):
                raise MalformedInput(
                    "knows other features than this version counts. Train the model again.", file=str(folder)
                )
            return cls(
                artifact.name or folder.name, unpacked(kept), ConformalScores(kept["score"], kept["weight"]),
                Familiarity(
                    Standard(kept["mean"], kept["deviation"]), kept["kernels"], kept["distance"],
                    tuple(map(str, artifact.hyperparameters.get("kernels", ()))),
                ),
                ranged, artifact.experiment,
            )  # fmt: skip
        except KeyError as error:
            raise MalformedInput(f"is no forest of shares ({error} is missing)", file=str(folder)) from error


def _remembered(kept: dict[bytes, Numbers], rows: Numbers, function: Callable[[Numbers], Numbers]) -> Numbers:
    """What a function says of each row (N, F), which is asked about new rows alone; `kept` is added to."""
    keys = [row.tobytes() for row in rows]
    new = {key: place for place, key in enumerate(keys) if key not in kept}
    said = {} if not new else dict(zip(new, function(rows[list(new.values())]), strict=True))
    found = np.stack([said[key] if key in said else kept[key] for key in keys])
    if len(kept) + len(said) > KEPT:
        kept.clear()
    kept.update(said)
    return found


def votes_of(each: Callable[[Numbers], Numbers], around: Corners) -> Votes:
    """What each tree says of each launch, between the points of the grid; all trees are heard alike.

    Args:
        each: what the trees say of rows, as `Forest.each`.
    """
    said = sum(
        weight[:, None] * each(rows)
        for rows, weight in zip(around.rows, around.weight, strict=True)
        if weight.any()
    )
    value = np.asarray(said, np.float64)
    return Votes(value, np.full_like(value, 1 / value.shape[1]))


def packed(forest: Forest) -> dict[str, NDArray[Any]]:
    """A forest in nine bytes a node: a left child follows its parent, and right ones are counted from it."""
    at = np.arange(len(forest.feature))
    leaf = forest.left == at
    if not (forest.left[~leaf] == at[~leaf] + 1).all() or forest.feature.max(initial=0) > 255:
        raise InvalidSetting("Only forests of up to 256 features whose left children follow can be packed")
    step = np.where(leaf, 0, forest.right - at)
    if step.max(initial=0) > 65_535:
        raise InvalidSetting("A tree of more than 65,535 nodes cannot be packed")
    return {
        "feature": forest.feature.astype(np.uint8), "threshold": forest.threshold.astype(np.float32),
        "step": step.astype(np.uint16), "value": forest.value.astype(np.float16), "root": forest.root,
        "depth": np.array([forest.depth]),
    }  # fmt: skip


def unpacked(arrays: Mapping[str, NDArray[Any]]) -> Forest:
    """The forest that `packed` gave; its values have eleven bits."""
    at = np.arange(len(arrays["feature"]))
    step = arrays["step"].astype(np.int64)
    return Forest(
        arrays["feature"].astype(np.int16), arrays["threshold"],
        np.where(step > 0, at + 1, at).astype(np.int32), (at + step).astype(np.int32),
        arrays["value"].astype(np.float32), arrays["root"], int(arrays["depth"][0]),
    )  # fmt: skip
