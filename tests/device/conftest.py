"""One worker with three independent PoCL devices, the third of which copies arrays as a discrete device does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apportion.device.base import Limits
from apportion.device.platforms import DriverOptions
from apportion.device.worker import Worker


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    pytest.importorskip("pyopencl")
    options = DriverOptions(pocl_instances=3, threads=1, vendors=False, copying=("cpu3",))
    with Worker(options, Limits(seconds=20)) as started:
        yield started
