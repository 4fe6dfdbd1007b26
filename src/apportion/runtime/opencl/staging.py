"""Copies between host memory and a device through pinned memory, in chunks that overlap.

A driver copies pageable memory through a small pinned buffer with one thread: 7 to 13 GB/s were seen on a
machine whose GPU takes 54 GB/s from pinned memory. Arrays lie in memory that two processes share, which the
driver does not pin; so several threads copy each chunk to pinned memory while the one before is on its way.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from apportion.jobs.processors import processors

Bytes = NDArray[np.uint8]
WORTH_IT = 8 << 20
"Bytes from which on threads and chunks save more than they cost; at 4 MiB the driver's own way is faster."
_ONE_THREAD = 1 << 20
_CHUNK = 16 << 20
_SLOTS = 2


class Staging:
    """Pinned memory of one device, allocated when it is first needed."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue) -> None:
        self._context, self._queue = context, queue
        self._slots: list[Bytes] = []
        self._held: list[cl.Buffer] = []
        self._sent: list[Any] = [None] * _SLOTS
        self._next = 0
        self._threads = max(1, min(8, processors() // 2))
        self._pool: ThreadPoolExecutor | None = None

    def upload(self, target: cl.Buffer, offset: int, values: Bytes) -> None:
        """Copy `values` to a device's buffer; they have all left the host's memory when this returns.

        The last chunks may still be on their way from pinned memory: the next array fills slots after them.
        """
        for start in range(0, len(values), _CHUNK):
            slot, chunk = self._next, values[start : start + _CHUNK]
            self._next = (slot + 1) % _SLOTS
            if (sent := self._sent[slot]) is not None:
                sent.wait()
            pinned = self._slot(slot)[: len(chunk)]
            self._copy(pinned, chunk)
            self._sent[slot] = cl.enqueue_copy(
                self._queue, target, pinned, dst_offset=offset + start, is_blocking=False
            )
            self._queue.flush()

    def download(self, values: Bytes, source: cl.Buffer, offset: int) -> None:
        """Copy from a device's buffer to `values`."""
        coming: list[tuple[Any, Bytes, Bytes]] = []
        for number, start in enumerate(range(0, len(values), _CHUNK)):
            chunk = values[start : start + _CHUNK]
            if len(coming) == _SLOTS:
                self._arrive(*coming.pop(0))
            pinned = self._slot(number % _SLOTS)[: len(chunk)]
            event = cl.enqueue_copy(self._queue, pinned, source, src_offset=offset + start, is_blocking=False)
            self._queue.flush()
            coming.append((event, chunk, pinned))
        for each in coming:
            self._arrive(*each)

    def _arrive(self, event: Any, chunk: Bytes, pinned: Bytes) -> None:
        event.wait()
        self._copy(chunk, pinned)

    def _slot(self, number: int) -> Bytes:
        while len(self._slots) <= number:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
            buffer = cl.Buffer(self._context, flags, _CHUNK)
            both = cl.map_flags.READ | cl.map_flags.WRITE
            mapped, _ = cl.enqueue_map_buffer(self._queue, buffer, both, 0, (_CHUNK,), np.uint8)
            self._held.append(buffer)
            self._slots.append(mapped)
        return self._slots[number]

    def _copy(self, target: Bytes, source: Bytes) -> None:
        """Copy with several threads: one alone is slower than the bus."""
        if self._threads == 1 or len(target) < _ONE_THREAD:
            np.copyto(target, source)
            return
        self._pool = self._pool or ThreadPoolExecutor(self._threads - 1, thread_name_prefix="staging")
        step = -(-len(target) // self._threads)
        first, *rest = (slice(start, start + step) for start in range(0, len(target), step))
        others = [self._pool.submit(np.copyto, target[part], source[part]) for part in rest]
        np.copyto(target[first], source[first])  # which lets the others begin, and needs no waking up
        for other in others:
            other.result()
