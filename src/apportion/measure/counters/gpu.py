"""Counters of NVIDIA's GPUs: transfers over PCIe by NVML, launches by Nsight Compute."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from apportion.errors import InvalidSetting, JobError
from apportion.measure.counters.command import Command, Watcher, execute
from apportion.measure.counters.counter_source import CounterSource, MissingCounter, Reading, WatchingSource
from apportion.measure.counters.imports.ncu import launches_of

_SENT, _RECEIVED = 0, 1  # nvmlPcieUtilCounter_t, as the GPU sees it
_NVML = "libnvidia-ml.so.1"


class NvmlWatcher(Watcher):
    """Asks every GPU for its traffic over PCIe, again and again."""

    def __init__(self) -> None:
        self.problem = ""
        self._library: ctypes.CDLL | None = None
        self._devices: list[ctypes.c_void_p] = []
        self._seen: dict[int, list[float]] = {_SENT: [], _RECEIVED: []}

    def attach(self, process: int) -> None:
        try:
            library = ctypes.CDLL(_NVML)
        except OSError:
            self.problem = f"{_NVML} is not here: there is no driver of NVIDIA's"
            return
        if library.nvmlInit_v2() != 0:
            self.problem = "NVML cannot be started: the driver is not running, or not for this container"
            return
        self._library = library
        count = ctypes.c_uint()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for number in range(count.value):
            device = ctypes.c_void_p()
            if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device)) == 0:
                self._devices.append(device)
        if not self._devices:
            self.problem = "NVML finds no GPU"

    def look(self, process: int) -> None:
        if self._library is None:
            return
        for direction, seen in self._seen.items():
            total = 0.0
            for device in self._devices:
                value = ctypes.c_uint()
                if self._library.nvmlDeviceGetPcieThroughput(device, direction, ctypes.byref(value)) == 0:
                    total += value.value * 1024.0  # it says KB/s, over 20 ms
            seen.append(total)

    def read(self, process: int) -> dict[str, float | None]:
        def mean(values: list[float]) -> float | None:
            return sum(values) / len(values) if values else None

        return {
            "gpu_to_cpu_bandwidth": mean(self._seen[_SENT]),
            "cpu_to_gpu_bandwidth": mean(self._seen[_RECEIVED]),
        }

    def close(self) -> None:
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library = None


class NvmlSource(WatchingSource):
    """Bytes per second between host and GPUs, mean over the run; of everybody who uses the GPUs."""

    name = "nvml"
    counts: ClassVar[Mapping[str, str]] = {
        "gpu_to_cpu_bandwidth": "sampled",
        "cpu_to_gpu_bandwidth": "sampled",
    }

    def watcher(self) -> Watcher:
        return NvmlWatcher()

    def reading(self, watcher: Watcher, counted: Mapping[str, float | None], seconds: float) -> Reading:
        reason = watcher.problem if isinstance(watcher, NvmlWatcher) else ""
        problem = MissingCounter(
            reason or "the command ended before the first sample",
            "run where there is a GPU of NVIDIA's; in a container with --gpus all"
            if reason
            else "count a longer run",
        )
        missing = [name for name in self.counts if counted.get(name) is None]
        values = {name: counted.get(name) for name in self.counts}
        return Reading(values, seconds, dict.fromkeys(missing, problem))


class NsightComputeSource(CounterSource):
    """Blocks and streams of the launches of CUDA kernels, by `ncu`."""

    name = "ncu"
    counts: ClassVar[Mapping[str, str]] = {"warp_blocks": "exact", "threads": "exact"}
    slow = True

    def measure(self, command: Command) -> Reading:
        ncu = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
        if ncu is None:
            raise InvalidSetting("ncu is not installed: it comes with NVIDIA's CUDA toolkit (Nsight Compute)")
        with tempfile.TemporaryDirectory(prefix="apportion-") as folder:
            log = Path(folder) / "ncu.csv"
            options = ["--csv", "--page", "raw", "--metrics", "launch__grid_size,launch__block_size",
                       "--log-file", str(log), "--target-processes", "all"]  # fmt: skip
            ended = execute(command, words=[ncu, *options, *command.words])
            text = ""
            with suppress(OSError):
                text = log.read_text(errors="replace")
        if "ERR_NVGPUCTRPERM" in text:
            raise JobError(
                "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root, give CAP_SYS_ADMIN, or "
                "load the driver with NVreg_RestrictProfilingToAdminUsers=0"
            )
        launches = launches_of(text.splitlines(), os.fspath(log)) if "Kernel Name" in text else []
        if not launches:
            problem = MissingCounter(
                "the command launches no CUDA kernel", "OpenCL kernels: apportion counters kernel"
            )
            return Reading(dict.fromkeys(self.counts), ended.seconds, dict.fromkeys(self.counts, problem))
        blocks = sum(launch.metrics.get("launch__grid_size", 0.0) for launch in launches)
        streams = len({launch.stream for launch in launches})
        return Reading({"warp_blocks": blocks, "threads": float(streams)}, ended.seconds)
