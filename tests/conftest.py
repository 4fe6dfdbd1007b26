"""What every test has: a cache of its own, third-party data where it is there, and steady Hypothesis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from apportion.data.counters import AIWC, CounterTable, Row, System

# No deadline: a busy machine is no bug. In CI the examples are always the same: a failure is the change's.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder of this test run, in place of the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APPORTION_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run side by side inherit a COLUMNS from their runner, which would fold the tables they read."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party data beside the checkout; it is never copied into it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"third-party data is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def timed_runs() -> CounterTable:
    """Made-up runs with AIWC's counters, timed four times on four systems: 6 applications, 2 kernels, 2 sizes.

    The CPUs' times follow the work, the GPUs' the work for each item after a launch; noise is a percent.
    """
    random = np.random.default_rng(7)
    rows: list[Row] = []
    for application in range(6):
        for kernel in range(2):
            steps = 2 ** random.uniform(4, 16)
            for size, items in (
                ("small", 2 ** random.uniform(6, 10)),
                ("large", 2 ** random.uniform(12, 18)),
            ):
                program = f"app{application}"
                identity = (f"{program}/k{kernel}/{size}", program, f"k{kernel}", size)
                work = steps * items
                counters = {name: float(random.uniform(1, 5)) for name in AIWC} | {
                    "total_instruction_count": work, "workitems": items, "total_memory_footprint": items * 8,
                }  # fmt: skip
                rows += [
                    Row(*identity, "", 0, name, value, "aiwc", "exact") for name, value in counters.items()
                ]
                seconds = {
                    "slow-cpu": work / 1e9, "quick-cpu": work / 4e9,
                    "old-gpu": 4e-4 + work / 2e10 + steps / 4e7, "new-gpu": 1e-4 + work / 1e11 + steps / 2e7,
                }  # fmt: skip
                for system, time in seconds.items():
                    for repeat in range(4):
                        noisy = time * (1 + 0.01 * random.standard_normal())
                        rows.append(Row(*identity, system, repeat, "seconds", noisy, "clock", "exact"))
    systems = [System(name, name[-3:]) for name in ("slow-cpu", "quick-cpu", "old-gpu", "new-gpu")]
    return CounterTable.of(rows, systems)
