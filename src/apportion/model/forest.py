"""Forest: regression trees as arrays, evaluated with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees end to end; a leaf is its own child, so that every row may take as many steps as it likes."""

    feature: NDArray[np.int16]  # (nodes,) what is compared; 0 at a leaf
    threshold: NDArray[np.float64]  # (nodes,) not more goes left, more goes right
    left: NDArray[np.int32]  # (nodes,)
    right: NDArray[np.int32]  # (nodes,)
    value: NDArray[np.float32]  # (nodes,) the answer of a leaf
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
        seen = rows.astype(np.float32)
        place = np.broadcast_to(self.root, (len(rows), len(self.root)))
        across = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            goes_left = seen[across, self.feature[place]] <= self.threshold[place]
            place = np.where(goes_left, self.left[place], self.right[place])
        answers: NDArray[np.float64] = self.value[place].astype(np.float64)
        return answers

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
