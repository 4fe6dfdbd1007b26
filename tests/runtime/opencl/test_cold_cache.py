"""First runs at the same time, with nothing in the cache: none finds what another has half made."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.worker import Worker
from apportion.runtime.plan import ArrayPlace, Build, Plan
from apportion.runtime.split import Part

pytest.importorskip("pyopencl")
pytestmark = pytest.mark.xdist_group("opencl")

SOURCE = "kernel void double_all(global int *x) { x[get_global_id(0)] *= 2; }"
COUNT = 256


def first_run(_: int) -> list[int]:
    """What a kernel leaves that two instances of PoCL share, in a worker process of its own."""
    with Worker(
        DriverOptions(pocl_instances=2, threads=1, vendors=False), Limits(seconds=120, build_seconds=120)
    ) as worker:
        region, out = worker.shared(np.arange(COUNT, dtype=np.int32))
        place = ArrayPlace("x", region.number, region.nbytes, "<i4", "diff")
        parts = (Part("cpu", 0, 8), Part("cpu2", 8, 16))
        worker.run(Plan(Build(SOURCE, "double_all"), NDRange((COUNT,), (16,)), 0, (place,), parts))
        return out.tolist()


def test_eight_first_runs_at_once_all_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "cold"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(first_run, range(8)))
    assert found == [(2 * np.arange(COUNT)).tolist()] * 8
    assert list((tmp_path / "cold" / "drivers").rglob("*.so*"))  # the cache was there for them to race in
