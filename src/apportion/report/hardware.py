"""What a result was made on, in words for a results page."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
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
        return _said_by("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "a CUDA device"
    return f"{processor()}, {os.cpu_count()} cores"


def _said_by(command: str, *arguments: str) -> str:
    """The first line that a command prints; empty when there is no such command, or it fails."""
    found = shutil.which(command)
    if found is None:
        return ""
    try:
        said = subprocess.run([found, *arguments], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.partition("\n")[0].strip()


def _field(path: Path, name: str) -> str:
    """What stands after `name:` in a file of such lines; empty when there is no such file or line."""
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return ""
