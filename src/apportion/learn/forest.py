"""Forest: regression trees as arrays, evaluated with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting

_LET_GO = 6
"Steps between two looks at which trees have come to their leaf."


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees end to end; a leaf is its own child, so that every row may take as many steps as it likes."""

    feature: NDArray[np.int16]  # (nodes,) what is compared; 0 at a leaf
    threshold: NDArray[np.float32]  # (nodes,) not more goes left, more goes right
    left: NDArray[np.int32]  # (nodes,)
    right: NDArray[np.int32]  # (nodes,)
    value: NDArray[np.float32]  # (nodes,) the answer of a leaf; above, the mean of the rows that came by
    root: NDArray[np.int32]  # (trees,)
    depth: int
    "Steps after which every row has come to a leaf."

    def __post_init__(self) -> None:
        nodes = len(self.feature)
        for name in ("threshold", "left", "right", "value"):
            if getattr(self, name).shape != (nodes,):
                raise InvalidSetting(
                    f"A forest of {nodes} nodes cannot have {name} of {getattr(self, name).shape}"
                )
        for name in ("left", "right", "root"):
            numbers = getattr(self, name)
            if len(numbers) == 0 or numbers.min() < 0 or numbers.max() >= nodes:
                raise InvalidSetting(f"A forest's {name} must name its nodes, 0 to {nodes - 1}")

    def each(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, trees): what each tree says of each row."""
        # The trees were grown on 32-bit features; to compare others would send equal rows other ways.
        seen = rows.astype(np.float32).ravel()
        count, width = rows.shape
        place = np.tile(self.root, count)
        first = np.repeat(np.arange(count) * width, len(self.root))
        moving = np.arange(len(place))
        for step in range(self.depth):
            at = place[moving]
            goes_left = seen[first[moving] + self.feature[at]] <= self.threshold[at]
            after = np.where(goes_left, self.left[at], self.right[at])
            place[moving] = after
            # Half of the trees are at their leaf long before the deepest one; now and then they are let go.
            if step % _LET_GO == _LET_GO - 1:
                moving = moving[self.left[after] != after]
        return self.value[place].astype(np.float64).reshape(count, len(self.root))

    def attributed(self, row: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each tree says of a row (F,) before it looks, (trees,), and what features add, (trees, F).

        A step from a node to its child adds the difference of their means to the feature that is compared
        there; all steps together lead from the root's mean to the leaf's answer.
        """
        seen = row.astype(np.float32)
        place = self.root.copy()
        trees = np.arange(len(place))
        added = np.zeros((len(place), len(row)))
        for _ in range(self.depth):
            feature = self.feature[place]
            child = np.where(seen[feature] <= self.threshold[place], self.left[place], self.right[place])
            added[trees, feature] += self.value[child].astype(np.float64) - self.value[place]
            place = child
        return self.value[self.root].astype(np.float64), added

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N,): the mean of the trees."""
        mean: NDArray[np.float64] = self.each(rows).mean(axis=1)
        return mean

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to a file."""
        names = ("feature", "threshold", "left", "right", "value", "root")
        return {**{name: getattr(self, name) for name in names}, "depth": np.array([self.depth])}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The forest that `arrays` gave."""
        names = ("feature", "threshold", "left", "right", "value", "root")
        kept: dict[str, Any] = {name: arrays[name] for name in names}
        return cls(**kept, depth=int(arrays["depth"][0]))
