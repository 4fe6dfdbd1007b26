"""Copies by several threads are copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyopencl")

from apportion.runtime.opencl.staging import Staging


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("nbytes", [1, (1 << 20) + 13, 3 << 20])
def test_threads_copy_every_byte_and_no_other(threads: int, nbytes: int) -> None:
    no_device: Any = None  # nothing leaves the host's memory
    staging = Staging(no_device, no_device)
    staging._threads = threads
    values = np.random.default_rng(0).integers(1, 255, nbytes).astype(np.uint8)
    whole = np.zeros(nbytes + 2, np.uint8)
    staging._copy(whole[1:-1], values)
    assert np.array_equal(whole[1:-1], values)
    assert whole[0] == whole[-1] == 0
