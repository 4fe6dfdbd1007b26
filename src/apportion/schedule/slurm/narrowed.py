"""Waiting jobs that the daemon keeps for one partition, and how they get their whole list back.

A job in one partition of its list ends sooner if the queue goes as predicted. That is the daemon's opinion,
so it lasts no longer than the daemon: a process of its own waits for the daemon's end, however that comes,
and then lets each such job start in every partition of its list again, the default one among them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from apportion.errors import JobError
from apportion.schedule.slurm.cluster import SlurmCommands
from apportion.schedule.slurm.conf_folder import FOLDER
from apportion.settings import replace_file

FILE = "narrowed.json"
PATIENCE = 60.0
"Seconds in which Slurm is asked again, where it gives no answer."
ENDING = 120.0
"Seconds that a daemon which ends waits for the lists to be given back."


def read_narrowed(folder: Path) -> dict[int, tuple[str, ...]]:
    """The whole list of each job that was narrowed; none where the file is missing or broken."""
    try:
        said = json.loads((folder / FILE).read_text())
        return {int(number): tuple(map(str, names)) for number, names in said.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def write_narrowed(folder: Path, lists: Mapping[int, tuple[str, ...]]) -> None:
    """Keep the lists, before the jobs are moved: whoever dies in between has not lost one."""
    if lists != read_narrowed(folder):
        replace_file(folder / FILE, json.dumps({str(number): list(names) for number, names in lists.items()}))


def widen(commands: SlurmCommands, folder: Path) -> list[int]:
    """Give waiting jobs their whole lists back; which those were.

    Raises:
        JobError: Slurm gives no answer.
    """
    lists = read_narrowed(folder)
    given = []
    if lists:
        for job in commands.jobs():
            whole = lists.get(job.number, ())
            if job.state != "PENDING" or len(job.partitions) != 1 or job.partitions[0] not in whole:
                continue
            try:
                commands.move(job.number, whole)
                given.append(job.number)
            except JobError:  # it has started meanwhile
                continue
    (folder / FILE).unlink(missing_ok=True)
    return given


@contextmanager
def widened_at_the_end(conf: Path) -> Iterator[None]:
    """Whatever ends this process, jobs get their lists back, and nobody is placed by its last word."""
    command = [sys.executable, "-m", "apportion.schedule.slurm.narrowed", str(conf.resolve())]
    watch = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    assert watch.stdin is not None
    try:
        yield
    finally:
        watch.stdin.close()
        watch.wait(ENDING)


def _after(conf: Path) -> None:
    """Wait until the other end of standard input is closed, then clean up."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the service that ends sends them to all of its processes
    sys.stdin.buffer.read()
    folder = conf / FOLDER
    (folder / "alive").unlink(missing_ok=True)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            widen(SlurmCommands(conf), folder)
            return
        except JobError:
            if time.monotonic() > until:
                return
            time.sleep(1.0)


if __name__ == "__main__":
    _after(Path(sys.argv[1]))
