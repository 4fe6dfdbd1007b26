"""Where jobs of each class should go now: files of one line, one for each class, that `job_submit.lua`
reads."""

from __future__ import annotations

import heapq
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.schedule.slurm.cluster import SlurmJob, SlurmPartition
from apportion.schedule.slurm.estimates import Estimate, Estimates
from apportion.settings import replace_file

KEY = re.compile(r"[\w-]{1,200}", re.ASCII)
SURE = 2.054
"Deviations of the 0.98-quantile: a limit that is too short loses the whole run."
MOVE_GAIN = 0.9
"A waiting job is moved when its end comes before this part of the time to the end where it is."


@dataclass(frozen=True)
class Placement:
    """The partitions for a class, the best first."""

    key: str
    partitions: tuple[str, ...]
    minutes: int
    "The time limit for a job that has none; 0: leave that to Slurm."

    model: str = "history"

    def line(self) -> str:
        return f"{','.join(self.partitions)} {self.minutes} {self.model} end\n"


class FreeProcessors:
    """When processors of a partition become free, by what is believed of its jobs."""

    def __init__(self, idle: int) -> None:
        self._times = [(0.0, idle)] if idle > 0 else []

    def add(self, seconds: float, processors: int) -> None:
        heapq.heappush(self._times, (seconds, processors))

    def start(self, processors: int) -> float:
        """Seconds from now until so many are free; infinite: never."""
        left = processors
        for seconds, count in sorted(self._times):
            left -= count
            if left <= 0:
                return seconds
        return math.inf

    def take(self, processors: int, until: float) -> None:
        left = processors
        while left > 0 and self._times:
            seconds, count = heapq.heappop(self._times)
            if count > left:
                heapq.heappush(self._times, (seconds, count - left))
            left -= count
        self.add(until, processors)


@dataclass(frozen=True)
class QueuePlan:
    """What should change now."""

    placements: tuple[Placement, ...]
    moves: tuple[tuple[int, tuple[str, ...]], ...]
    "Number of a waiting job that we placed, and its new partition."

    waits: Mapping[str, float]
    "Seconds until one processor is free in each partition."


def plan(
    partitions: Sequence[SlurmPartition],
    jobs: Sequence[SlurmJob],
    estimates: Estimates,
    *,
    now: float | None = None,
    limits: bool = False,
) -> QueuePlan:
    """Decide again where waiting jobs of ours start soonest, then where each class would.

    Args:
        limits: hand in a time limit: the 0.98-quantile of the time in the slowest partition handed in.
    """
    now = time.time() if now is None else now
    usable = [one for one in partitions if one.up and one.processors > 0]
    names = [one.name for one in usable]
    free = {one.name: FreeProcessors(one.idle) for one in usable}
    known = {
        key: estimates.of(key, names)
        for key in {*estimates.classes(), *(job.key or job.name for job in jobs)}
    }
    for job in jobs:
        if job.state in ("RUNNING", "COMPLETING") and job.partitions[0] in free:
            free[job.partitions[0]].add(_left(job, known[job.key or job.name], now), job.processors)
    moves = []
    waiting = sorted(
        (job for job in jobs if job.state == "PENDING"), key=lambda job: (job.submitted, job.number)
    )
    for job in waiting:
        ends = _ends(job.processors, known[job.key or job.name], free)
        here = [name for name in job.partitions if name in free]
        if job.ours and ends:
            best = min(ends, key=lambda name: (ends[name], name))
            stays = min((ends[name] for name in here if name in ends), default=math.inf)
            if job.partitions != (best,) and _worth_moving(job, best, ends[best], stays):
                moves.append((job.number, (best,)))
                here = [best]
        if here:
            name = min(here, key=lambda name: (ends.get(name, math.inf), here.index(name)))
            start = free[name].start(job.processors)
            estimate = known[job.key or job.name].get(name)
            if math.isfinite(start):
                free[name].take(job.processors, start + (estimate.seconds if estimate else _limit(job)))
    default = next((one.name for one in usable if one.default), None)
    placed = [
        placement
        for key in estimates.classes()
        if KEY.fullmatch(key) and (placement := _placement(key, known[key], free, default, usable, limits))
    ]
    return QueuePlan(tuple(placed), tuple(moves), {name: free[name].start(1) for name in names})


def _worth_moving(job: SlurmJob, best: str, end: float, stays: float) -> bool:
    if len(job.partitions) > 1:
        return True  # narrowed from a list: it would start on a slow one as soon as that is free
    return best not in job.partitions and end < MOVE_GAIN * stays


def _placement(
    key: str,
    known: Mapping[str, Estimate],
    free: Mapping[str, FreeProcessors],
    default: str | None,
    partitions: Sequence[SlurmPartition],
    limits: bool,
) -> Placement | None:
    """The partition where the class ends first, then those no slower than the default one, which is always
    there: a job with that list starts no later than without us."""
    ends = _ends(1, known, free)
    if not ends or (default is not None and default not in known):
        return None
    best = min(ends, key=lambda name: (ends[name], name))
    slowest = known[default].seconds if default else math.inf
    list_of = [best] if known[best].seconds <= slowest else []
    list_of += sorted(
        (name for name in ends if name not in list_of and known[name].seconds <= slowest),
        key=lambda name: (known[name].seconds, name),
    )
    minutes = 0
    if limits:
        longest = max(known[name].seconds * 2 ** (SURE * known[name].sigma) for name in list_of)
        most = min(one.minutes for one in partitions if one.name in list_of)
        minutes = int(min(math.ceil(longest / 60) + 1, most)) if math.isfinite(longest) else 0
    sources = {known[name].source.partition(" ")[-1] or "predicted" for name in list_of}
    return Placement(key, tuple(list_of), minutes, "history" if sources <= {"run", "runs"} else "model")


def _ends(
    processors: int, known: Mapping[str, Estimate], free: Mapping[str, FreeProcessors]
) -> dict[str, float]:
    ends = {name: free[name].start(processors) + one.seconds for name, one in known.items() if name in free}
    return {name: end for name, end in ends.items() if math.isfinite(end)}


def _left(job: SlurmJob, known: Mapping[str, Estimate], now: float) -> float:
    """Seconds that a running job is believed to need; one that is overdue needs half of what it has had."""
    had = max(0.0, now - job.started)
    estimate = known.get(job.partitions[0])
    if estimate is None:
        return max(1.0, _limit(job) - had)
    return estimate.seconds - had if estimate.seconds > had else max(1.0, 0.5 * had)


def _limit(job: SlurmJob) -> float:
    return 60 * job.minutes if math.isfinite(job.minutes) else 86400.0


def write_placements(folder: Path, placements: Sequence[Placement], *, now: float | None = None) -> int:
    """Bring the files up to date, each whole or not at all, then say that we are alive; how many files
    changed."""
    place = folder / "placement.d"
    place.mkdir(parents=True, exist_ok=True)
    changed = 0
    wanted = {placement.key: placement.line() for placement in placements}
    for key, line in wanted.items():
        path = place / key
        if not (path.exists() and path.read_bytes() == line.encode()):
            replace_file(path, line.encode())
            changed += 1
    for path in place.iterdir():
        if path.name not in wanted:
            path.unlink()
            changed += 1
    replace_file(folder / "alive", f"{int(time.time() if now is None else now)}\n".encode())
    return changed


def read_placement(folder: Path, key: str) -> Placement | None:
    """The placement that a job of this class would be given; None where there is none that can be read."""
    path = folder / "placement.d" / key
    if not KEY.fullmatch(key) or not path.exists():
        return None
    found = re.fullmatch(r"(\S+) (\d+) (\S+) end\n", path.read_text(errors="replace"))
    return Placement(key, tuple(found[1].split(",")), int(found[2]), found[3]) if found else None
