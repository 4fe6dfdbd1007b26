"""Which values of a function's parameters make it fastest, without measuring them all?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import apportion


def product(
    left: NDArray[np.float64], right: NDArray[np.float64], *, rows: int, columns: int
) -> NDArray[np.float64]:
    """A matrix product, a tile of the result at a time."""
    out = np.empty((left.shape[0], right.shape[1]))
    for top in range(0, out.shape[0], rows):
        for at in range(0, out.shape[1], columns):
            out[top : top + rows, at : at + columns] = left[top : top + rows] @ right[:, at : at + columns]
    return out


def main() -> None:
    random = np.random.default_rng(0)
    left, right = random.random((256, 256)), random.random((256, 256))
    sizes = (4, 8, 16, 32, 64, 128, 256)
    tuning = apportion.tune(
        product,
        {"rows": sizes, "columns": sizes},
        budget=16,
        arguments=(left, right),
        expected=left @ right,
        default={"rows": 16, "columns": 16},
    )
    print(f"{len(tuning.measured)} of {len(tuning.space.configurations)} configurations measured")
    print(f"the fastest is {dict(tuning.best)}: {tuning.speedup:.1f} times as fast as the default")


if __name__ == "__main__":
    main()
