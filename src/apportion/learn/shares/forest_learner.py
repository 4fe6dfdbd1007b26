"""Learners of forests that tell a kernel's share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from apportion.learn.learner import TableLearner
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.share_data import DEFAULT_DATA, ShareData
from apportion.learn.shares.shipping import ship
from apportion.learn.shares.trees import PooledSettings

DEFAULT_POOL = PooledSettings()


@dataclass(frozen=True)
class PooledForestSettings:
    """Pooled forests, which also recall the nearest known launches."""

    data: ShareData = DEFAULT_DATA
    task: Literal["load-balance", "device-mapping"] = "load-balance"
    "Both are learned at once; the scores of this one come first."
    hyperparameters: PooledSettings = DEFAULT_POOL
    seed: int = 1


class PooledForestLearner(TableLearner[PooledForestSettings, KernelTable]):
    """Fits the forests to all rows; every application in turn is held out to calibrate and to score."""

    question: ClassVar[str] = "shares"
    settings_type: ClassVar[type[Any]] = PooledForestSettings

    def data(self, say: Callable[[str], None]) -> tuple[KernelTable, str]:
        table = self.settings.data.read(say)
        return table, table.digest

    def fit(self, data: KernelTable, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
        settings = self.settings
        model, coverage = ship(
            data, settings=settings.hyperparameters, seed=settings.seed,
            vectorized=settings.data.vectorized, report=say,
        )  # fmt: skip
        model.save(folder)
        return {
            "task": settings.task,
            "test": {
                "held_out": model.about["held_out"],
                "mae": model.about["held_out_mae"],
                "always_50_mae": round(float(np.abs(data.shares - 50).mean()), 3),
                "device_accuracy": model.about["held_out_device"],
                "always_gpu_accuracy": round(float(data.to_gpu.mean()), 4),
                "rows": len(data.shares),
                "coverage": [asdict(level) for level in coverage],
            },
        }
