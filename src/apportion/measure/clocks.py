"""Clocks: how long a call takes, on the host or on a GPU, once its result is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Clock(Protocol):
    """What times calls."""

    def time(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds, and what the call returned."""
        ...


class HostClock:
    """The host's clock; a result that is still being computed, as JAX returns it, is waited for."""

    def time(self, call: Callable[[], Any]) -> tuple[float, Any]:
        start = time.perf_counter()
        result = call()
        _wait(result)
        return time.perf_counter() - start, result


class CudaClock:
    """Events in the GPU's queue, with its cache overwritten before each call."""

    _FLUSH_BYTES = 256 << 20

    def __init__(self) -> None:
        import torch  # only where there are tensors on a GPU

        self._torch = torch
        self._flush = torch.empty(self._FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def time(self, call: Callable[[], Any]) -> tuple[float, Any]:
        cuda = self._torch.cuda
        before, after = (cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()  # long enough for the host to queue what follows
        before.record()
        result = call()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / 1e3, result


class OwnClock:
    """A function that says itself how long it took: what it returns are seconds."""

    def time(self, call: Callable[[], Any]) -> tuple[float, Any]:
        return float(call()), None


def clock_for(function: Callable[..., Any], arguments: Iterable[Any]) -> Clock:
    """The clock for a function with these arguments: the GPU's if one of them is a tensor there.

    A function with a true attribute `returns_seconds` is believed.
    """
    if getattr(function, "returns_seconds", False):
        return OwnClock()
    for one in arguments:
        if type(one).__module__.partition(".")[0] == "torch" and getattr(one, "is_cuda", False):
            return CudaClock()
    return HostClock()


def _wait(result: Any) -> None:
    for one in result if isinstance(result, tuple | list) else (result,):
        if hasattr(one, "block_until_ready"):
            one.block_until_ready()
