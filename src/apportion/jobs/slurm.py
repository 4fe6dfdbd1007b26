"""Items over a Slurm cluster: batches as job arrays, each outcome a file, so that an interrupted map goes on.

The folder must be one that every node sees. Each task of an array takes its items one after another through a
`LocalRunner` of one process, so that deadlines, memory limits, crashes and what may come back are as on one
machine.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from apportion.errors import InvalidSetting, JobError, WorkerCrashed
from apportion.jobs.base import Outcome, Runner
from apportion.jobs.local import ItemSupply, LocalRunner, loaded_in_worker, packed_function
from apportion.jobs.values import packed, restored
from apportion.settings import replace_file

T = TypeVar("T")
R = TypeVar("R")

_KEY = "APPORTION_SLURM_KEY"
_FUNCTION, _ITEM, _DONE = "function", ".item", ".outcome"
_SETTLE_SECONDS = 5.0
"After an array has left the queue: its last files may come late over a network."


@dataclass(frozen=True)
class SlurmRunner(Runner):
    """Runs items as job arrays. Every node needs the same Python and the same packages."""

    partition: str | None = None
    workers: int | None = None
    "Tasks of an array, each with one process; None: 8."

    deadline_seconds: float | None = None
    memory_bytes: int | None = None
    "For each item, as for `LocalRunner`."

    folder: Path | None = None
    "Where items and outcomes lie. What is done there is not run again; None: a folder that is deleted."

    batch: int = 32
    "Items of an array; up to two arrays are under way."

    retries: int = 1
    "How often an item is handed in again whose task ended without its outcome."

    poll_seconds: float = 0.5
    options: tuple[str, ...] = field(default=())
    "More options of sbatch, such as `--account=physics`."

    def __post_init__(self) -> None:
        LocalRunner(self.workers, self.deadline_seconds, self.memory_bytes)  # the same checks
        if self.batch < 1 or self.retries < 0 or not self.poll_seconds > 0:
            raise InvalidSetting("batch is 1 or more, retries 0 or more, and poll_seconds positive")

    @classmethod
    def at(
        cls, place: str, *, workers: int | None = None, deadline_seconds: float | None = None
    ) -> SlurmRunner:
        return cls(place or None, workers, deadline_seconds)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[Outcome[R]]:
        return self._outcomes(packed_function(function), items)

    def _outcomes(self, program: bytes, items: Iterable[Any]) -> Iterator[Outcome[Any]]:
        top = self.folder or Path(tempfile.mkdtemp(prefix="apportion-slurm-", dir=Path.cwd()))
        home = top / hashlib.sha256(program).hexdigest()[:16]
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        # A task loads what it finds there only if this map has written it: the key goes through Slurm.
        key = secrets.token_hex(32)
        replace_file(home / _FUNCTION, _signed(program, key))
        supply, arrays = ItemSupply(items), list[_SlurmArray]()
        seen: dict[str, int] = {}
        again: list[_SlurmItem] = []
        try:
            while True:
                while len(arrays) < 2 and (taken := again or self._batch(supply, seen, home, key)):
                    again = []
                    fresh = []
                    for one in taken:
                        if isinstance(one, Outcome):
                            yield one
                        elif one.outcome.exists():
                            yield one.read()
                        else:
                            fresh.append(one)
                    if fresh:
                        arrays.append(self._submit(home, fresh, key))
                if not arrays:
                    break
                for array in list(arrays):
                    yield from array.finished()
                    if array.ended():
                        yield from array.finished()
                        arrays.remove(array)
                        for one in array.items:
                            if one.tries < self.retries:
                                again.append(_SlurmItem(one.item_index, one.outcome, one.tries + 1))
                            else:
                                times = f"{one.tries + 1} times"
                                lost = f"Its Slurm job {array.job} ended without an outcome, {times}"
                                yield Outcome(one.item_index, error=WorkerCrashed(lost))
                if arrays and not any(array.news for array in arrays):
                    time.sleep(self.poll_seconds)
            if supply.error is not None:
                raise supply.error
        finally:
            for array in arrays:
                array.cancel()
            if self.folder is None:
                shutil.rmtree(top, ignore_errors=True)

    def _batch(self, supply: ItemSupply, seen: dict[str, int], home: Path, key: str) -> list[Any]:
        """The next items, written to their files."""
        taken: list[Any] = []
        while len(taken) < self.batch and (item := supply.next()) is not None:
            if isinstance(item, Outcome):
                taken.append(item)
                continue
            item_index, data = item
            # Named by its content: the same item, even of an interrupted map, finds its outcome.
            digest = hashlib.sha256(data).hexdigest()[:24]
            count = seen[digest] = seen.get(digest, -1) + 1
            outcome = home / f"{digest}-{count}{_DONE}"
            replace_file(outcome.with_suffix(_ITEM), _signed(data, key))
            taken.append(_SlurmItem(item_index, outcome))
        return taken

    def _submit(self, home: Path, items: list[_SlurmItem], key: str) -> _SlurmArray:
        tasks = min(self.workers or 8, len(items))
        plan = home / f"array-{items[0].outcome.stem}-{items[0].tries}"
        limits = (self.deadline_seconds, self.memory_bytes)
        replace_file(plan, packed(([item.outcome.name for item in items], tasks, limits)))
        paths = os.pathsep.join(path for path in sys.path if path)
        script = (
            f"#!/bin/sh\nPYTHONPATH={shlex.quote(paths)} exec {shlex.quote(sys.executable)} -c "
            f"'from apportion.jobs.slurm import work; work()' {shlex.quote(str(plan))}\n"
        )
        partition = [f"--partition={self.partition}"] if self.partition else []
        command = ["sbatch", "--parsable", f"--array=0-{tasks - 1}", "--job-name=apportion",
                   "--output=/dev/null", *partition, *self.options]  # fmt: skip
        job = _said(command, script, {_KEY: key}).split(";")[0].strip()
        return _SlurmArray(job, items)


@dataclass(frozen=True)
class _SlurmItem:
    item_index: int
    outcome: Path
    tries: int = 0

    def read(self) -> Outcome[Any]:
        found: Outcome[Any] = restored(self.outcome.read_bytes())
        return Outcome(self.item_index, value=found.value, error=found.error, seconds=found.seconds)


class _SlurmArray:
    """A job array under way, and its items that have no outcome yet."""

    def __init__(self, job: str, items: list[_SlurmItem]) -> None:
        self.job, self.items = job, list(items)
        self.news = False
        self._gone_since: float | None = None

    def finished(self) -> Iterator[Outcome[Any]]:
        there = [item for item in self.items if item.outcome.exists()]
        self.news = bool(there)
        for item in there:
            self.items.remove(item)
            yield item.read()

    def ended(self) -> bool:
        """Whether nothing more will come: every item has its outcome, or the array has left the queue."""
        if not self.items:
            return True
        with suppress(JobError):  # a controller that is restarted gives no answer for a while
            if _said(["squeue", "--noheader", "--states=all", "--job", self.job, "--format=%T"], "").strip():
                states = _said(["squeue", "--noheader", "--job", self.job, "--format=%T"], "").split()
                if states:
                    self._gone_since = None
                    return False
            self._gone_since = self._gone_since or time.monotonic()
            return time.monotonic() - self._gone_since > _SETTLE_SECONDS
        return False

    def cancel(self) -> None:
        with suppress(JobError):
            _said(["scancel", self.job], "")


def work() -> None:
    """A task of an array: its items one after another, each outcome to its file."""
    plan = Path(sys.argv[1])
    key = os.environ[_KEY]
    names, tasks, (deadline_seconds, memory_bytes) = restored(plan.read_bytes())
    home = plan.parent
    mine = names[int(os.environ["SLURM_ARRAY_TASK_ID"]) :: tasks]
    left = [home / name for name in mine if not (home / name).exists()]
    function = loaded_in_worker(_checked((home / _FUNCTION).read_bytes(), key))
    items = (loaded_in_worker(_checked(path.with_suffix(_ITEM).read_bytes(), key)) for path in left)
    for outcome in LocalRunner(1, deadline_seconds, memory_bytes).map(function, items):
        replace_file(left[outcome.item_index], packed(outcome))


def _signed(data: bytes, key: str) -> bytes:
    return hmac.digest(bytes.fromhex(key), data, "sha256") + data


def _checked(signed: bytes, key: str) -> bytes:
    if not hmac.compare_digest(signed[:32], hmac.digest(bytes.fromhex(key), signed[32:], "sha256")):
        raise JobError("A file of the folder was not written by the map that handed in this job")
    return signed[32:]


def _said(command: list[str], given: str, more: Mapping[str, str] | None = None) -> str:
    environment = {**os.environ, **(more or {})}
    try:
        done = subprocess.run(
            command, input=given, env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise JobError(f"There is no command {command[0]} here. Run this where Slurm is installed") from None
    if done.returncode != 0:
        raise JobError(f"{command[0]}: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
    return done.stdout
