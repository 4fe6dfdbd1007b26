"""Handing out parts of a range to devices: planned ones, or chunks while there is work left."""

from __future__ import annotations

import threading

from apportion.runtime.plan import Chunks, Plan


class Supply:
    """Hands out parts of the range: each planned part once, or chunks while there is work left."""

    def __init__(self, plan: Plan) -> None:
        self._lock = threading.Lock()
        self._chunks = plan.chunks
        self._ready: dict[str, list[tuple[int, int]]] = {}
        for part in plan.parts:
            self._ready.setdefault(part.device, []).append((part.first, part.last))
        self._left, self._right = 0, plan.span.groups[plan.dimension] if plan.chunks else 0
        if plan.chunks is not None:
            # Each device's first chunk waits for it, however late its thread begins.
            whole = self._right
            for device, share in plan.chunks.shares.items():
                self._ready[device] = [self._cut(device, plan.chunks, plan.chunks.first * share * whole)]

    def take(self, device: str) -> tuple[int, int] | None:
        """The next work-groups for a device, or None when there are no more."""
        with self._lock:
            ready = self._ready.get(device)
            if ready:
                return ready.pop(0)
            if self._chunks is None or self._right <= self._left:
                return None
            share = self._chunks.shares[device]
            return self._cut(device, self._chunks, (self._right - self._left) * share / 2)

    def _cut(self, device: str, chunks: Chunks, wanted: float) -> tuple[int, int]:
        count = min(self._right - self._left, max(chunks.least_groups, round(wanted)))
        if device == next(iter(chunks.shares)):
            self._left += count
            return self._left - count, self._left
        self._right -= count
        return self._right, self._right + count
