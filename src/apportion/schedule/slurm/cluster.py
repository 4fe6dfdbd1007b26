"""What Slurm says about itself: partitions, jobs, and what finished jobs took."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.errors import JobError, UnreadableFile
from apportion.jobs.journal import Journal
from apportion.schedule.readers.sacct import FORMAT, PROFILE, FinishedJob, finished_jobs

MARK = "apportion:"
"What the comment of the administrator begins with on jobs that were placed by us."
UNSET = 4294967294


@dataclass(frozen=True)
class SlurmPartition:
    """A partition and its processors."""

    name: str
    processors: int
    idle: int
    minutes: float
    "The longest job that it takes; infinite: any."

    up: bool
    default: bool


@dataclass(frozen=True)
class SlurmJob:
    """A job as the controller knows it."""

    number: int
    name: str
    key: str
    "Of its profile; empty: none."

    user: str
    partitions: tuple[str, ...]
    state: str
    processors: int
    submitted: float
    started: float
    ended: float
    minutes: float
    mark: str
    nodes: int

    @property
    def ours(self) -> bool:
        return self.mark.startswith(MARK)


@dataclass(frozen=True)
class SlurmCommands:
    """The commands of one cluster."""

    conf: Path
    "The folder of slurm.conf."

    seconds: float = 60.0
    "How long a command may take."

    def run(self, *command: str) -> str:
        """What a command prints.

        Raises:
            JobError: it is not there, failed, or took too long.
        """
        environment = {"SLURM_CONF": str(self.conf.resolve() / "slurm.conf"), **os.environ}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False,
                                  timeout=self.seconds)  # fmt: skip
        except FileNotFoundError:
            raise JobError(
                f"There is no command {command[0]} here. Run this where Slurm is installed"
            ) from None
        except subprocess.TimeoutExpired:
            raise JobError(f"{command[0]} gave no answer within {self.seconds:g} s") from None
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise JobError(
                f"{' '.join(command[:3])}: {said[-1] if said else f'exit status {done.returncode}'}"
            )
        return done.stdout

    def partitions(self) -> list[SlurmPartition]:
        """All partitions, in the order of slurm.conf."""
        found = {}
        for line in self.run("sinfo", "-h", "-o", "%P|%a|%l|%C").splitlines():
            name, up, limit, processors = line.strip().split("|")
            _, idle, _, total = (int(_thousands(part)) for part in processors.split("/"))
            found[name.rstrip("*")] = SlurmPartition(
                name.rstrip("*"), total, idle, _minutes(limit), up == "up", name.endswith("*")
            )
        return list(found.values())

    def jobs(self) -> list[SlurmJob]:
        """Jobs that wait, run, or ended so lately that the controller still knows them."""
        said = json.loads(self.run("squeue", "--json", "--states=all"))
        return [_job(row) for row in said["jobs"]]

    def accounting(self, since: float) -> list[FinishedJob]:
        """Jobs that ended since, by sacct; none where Slurm keeps no accounts."""
        start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
        try:
            text = self.run("sacct", "-X", "-P", "-a", "-S", start, "-o", ",".join(FORMAT))
        except JobError:
            return []
        return finished_jobs(text, "sacct")

    def move(self, number: int, partitions: tuple[str, ...]) -> None:
        """Give a waiting job other partitions."""
        self.run("scontrol", "update", f"JobId={number}", f"Partition={','.join(partitions)}")


def ended_jobs(jobs: list[SlurmJob]) -> list[FinishedJob]:
    """Those that have ended, as accounting would have them."""
    return [
        FinishedJob(
            str(job.number), job.key or job.name, job.user, job.partitions[0], job.submitted, job.started,
            job.ended - job.started, job.nodes, job.minutes * 60, job.state == "COMPLETED", job.ours,
        )
        for job in jobs
        if job.state not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED")
        and job.ended >= job.started > 0
    ]  # fmt: skip


def append_history(path: Path, jobs: list[FinishedJob], known: set[str]) -> None:
    """Add jobs that are not known yet.

    Raises:
        UnreadableFile: the file cannot be written.
    """
    new = {job.job: {**vars(job), "limit": min(job.limit, 1e12)} for job in jobs if job.job not in known}
    known.update(new)
    if new:
        Journal(path).add(*new.values())


def read_history(path: Path) -> list[FinishedJob]:
    """The jobs of earlier days. A line that is no job is passed over."""
    if not path.exists():
        return []
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    found = []
    for line in text.splitlines():
        try:
            found.append(FinishedJob(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def _job(row: Mapping[str, Any]) -> SlurmJob:
    states = row.get("job_state", "")
    profile = PROFILE.search(str(row.get("comment") or ""))
    processors = _number(row.get("cpus"))
    limit = _number(row.get("time_limit"))
    return SlurmJob(
        int(row["job_id"]), str(row.get("name", "")), profile[1] if profile else "",
        str(row.get("user_name", "")),
        tuple(str(row.get("partition", "")).split(",")),
        states[0] if isinstance(states, list) else str(states),
        max(1, int(processors)), _number(row.get("submit_time")), _number(row.get("start_time")),
        _number(row.get("end_time")), limit if 0 < limit < UNSET else float("inf"),
        str(row.get("admin_comment") or ""), max(1, int(_number(row.get("node_count")))),
    )  # fmt: skip


def _number(value: Any) -> float:
    """A number as it is written in Slurm 22, or with its flags in 23 and later."""
    if isinstance(value, Mapping):
        return float(value.get("number", 0)) if value.get("set", True) and not value.get("infinite") else 0.0
    return float(value) if isinstance(value, int | float) else 0.0


def _thousands(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)([KMG]?)\+?", text)
    if found is None:
        raise JobError(f"sinfo says {text!r} where a number of processors was expected")
    return float(found[1]) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[found[2]]


def _minutes(text: str) -> float:
    """Minutes of a limit such as 1-02:03:04, 30:00 or infinite."""
    if text in ("infinite", "n/a"):
        return float("inf")
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    while len(parts) < 3:
        parts.insert(0, 0)
    return int(days or 0) * 1440 + parts[0] * 60 + parts[1] + parts[2] / 60
