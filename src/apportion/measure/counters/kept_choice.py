"""Which sources this machine gives: probed once and kept, until the machine or its tools change."""

from __future__ import annotations

import json
import os
import platform
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from apportion import __version__
from apportion.errors import UnreadableFile
from apportion.measure.counters import sources
from apportion.measure.counters.collect import Found, chosen, probe
from apportion.settings import cache_folder, replace_file

_TOOLS = ("valgrind", f"qemu-{platform.machine()}", "ncu", "nvidia-smi")
_SETTINGS = ("/proc/sys/kernel/perf_event_paranoid", "/proc/sys/kernel/yama/ptrace_scope")


def usual_sources() -> list[str]:
    """The sources that `collect` uses when none is named: as kept, else probed now."""
    try:
        kept = json.loads(_path().read_bytes())
        if kept["machine"] == _machine() and all(name in sources for name in kept["chosen"]):
            return [str(name) for name in kept["chosen"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing is kept, or it is damaged: probing makes it again
    return probe_and_keep()[1]


def probe_and_keep() -> tuple[list[Found], list[str]]:
    """Probe every source, and keep which ones work; what was found, and which are chosen."""
    found = probe()
    names = chosen(found)
    with suppress(OSError, UnreadableFile):  # without a cache it is probed each time
        replace_file(_path(), json.dumps({"machine": _machine(), "chosen": names}, indent=1).encode())
    return found, names


def _path() -> Path:
    return cache_folder("counters") / "sources.json"


def _machine() -> dict[str, str]:
    """What decides which sources work: the machine, the user, the tools and what the kernel allows."""
    found = {
        "version": __version__, "node": platform.node(), "kernel": platform.release(),
        "user": str(os.getuid()), "capstone": str(find_spec("capstone") is not None),
        "sources": ",".join(sources.names()),
    }  # fmt: skip
    for tool in _TOOLS:
        path = shutil.which(tool)
        found[tool] = "" if path is None else f"{path}:{Path(path).stat().st_mtime_ns}"
    for setting in _SETTINGS:
        with suppress(OSError):
            found[setting] = Path(setting).read_text().strip()
    with suppress(OSError):
        status = Path("/proc/self/status").read_text().splitlines()
        found |= {line.split(":")[0]: line for line in status if line.startswith(("CapEff", "Seccomp:"))}
    return found
