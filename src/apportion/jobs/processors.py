"""What this process has: the processors it is bound to and its container is given; the memory it took."""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import resource

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def processors(*, membership: Path = _MEMBERSHIP, groups: Path = _GROUPS) -> int:
    """The processors of this process: no more than it is bound to (`taskset`), nor than the time that its
    control groups are given, in whole processors; at least one."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = min(_quotas(membership, groups), default=math.inf)
    return max(1, min(bound, math.ceil(quota) if quota < math.inf else bound))


def memory_bytes() -> int | None:
    """The memory of this machine; None where the system does not say (Windows)."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


def peak_memory_bytes() -> int:
    """The most memory that this process has held so far; 0 on Windows, which does not say."""
    if sys.platform == "win32":
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def _quotas(membership: Path, groups: Path) -> list[float]:
    """Processors that each control group above this process is given, where they are limited."""
    found: list[float] = []
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            number, controllers, place = line.split(":", 2)
            root = groups if number == "0" and not controllers else groups / "cpu"
            if root != groups and "cpu" not in controllers.split(","):
                continue
            folder = root / place.lstrip("/")
            for each in (folder, *folder.parents):
                if not each.is_relative_to(root):
                    break
                found += _quota(each)
    return found


def _quota(folder: Path) -> list[float]:
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return [] if quota == "max" else [int(quota) / int(period)]
    with suppress(OSError, ValueError):
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
        return [int(quota) / int(period)] if int(quota) > 0 else []
    return []
