"""What a result was made on, in words for a results page."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor() -> str:
    """The processor's name as Linux gives it, or the kind of machine."""
    return _field(Path("/proc/cpuinfo"), "model name") or platform.machine()


def hardware(device: str) -> str:
    """What torch computes on when it is told `cpu` or `cuda`."""
    if device == "cuda":
        for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
            if name := _field(information, "Model"):
                return name
        return "a CUDA device"
    return f"{processor()}, {os.cpu_count()} cores"


def _field(path: Path, name: str) -> str:
    """What stands after `name:` in a file of such lines; empty when there is no such file or line."""
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return ""
