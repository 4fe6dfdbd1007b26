"""Work on a GPU that is done again and again on the same tensors: recorded once, then replayed.

A step over 20,000 nodes launches some five hundred kernels, which takes the host longer than the GPU takes
to run them. A CUDA graph launches them all at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch


class GraphRecorder:
    """Calls functions; from the second time on that it is given the same key, by replaying a recording.

    What is recorded must always be the same work on the same tensors. The first call is an ordinary one, so
    that kernels are compiled before they are recorded. All recordings share one pool of memory: what a call
    returns is good until the next call.
    """

    def __init__(self) -> None:
        self._met: set[Hashable] = set()
        self._recordings: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any]] = {}
        self._pool: Any = None
        self._works = True

    def __call__(self, key: Hashable, function: Callable[[], Any]) -> Any:
        """What `function` returns; `key` stands for the tensors it works on."""
        if key in self._recordings:
            recording, result = self._recordings[key]
            recording.replay()
            return result
        if key not in self._met or not self._works:
            self._met.add(key)
            return function()
        try:
            recording, result = self._recorded(function)
        except RuntimeError as error:
            # Some driver or library call that cannot be recorded: slower, but no reason to give up.
            self._works = False
            warnings.warn(f"CUDA graphs cannot be used here ({error})", RuntimeWarning, stacklevel=2)
            return function()
        self._recordings[key] = recording, result
        recording.replay()
        return result

    def forget(self, key: Hashable) -> None:
        """Let go of a recording, and of what only it holds."""
        self._met.discard(key)
        self._recordings.pop(key, None)

    def _recorded(self, function: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        recording = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # thread_local: threads that prepare batches meanwhile may allocate and copy as they like.
        with torch.cuda.graph(recording, pool=self._pool, capture_error_mode="thread_local"):
            result = function()
        return recording, result
