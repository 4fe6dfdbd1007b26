"""Jobs and what they said, in one SQLite file that survives the end of the service at any moment."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.errors import InvalidSetting, UnknownName, UnreadableFile

STATES = ("waiting", "running", "done", "failed", "cancelled", "interrupted")
ENDED = STATES[2:]
_TABLES = """
CREATE TABLE IF NOT EXISTS job (
    id TEXT PRIMARY KEY, verb TEXT NOT NULL, name TEXT NOT NULL, request TEXT NOT NULL, state TEXT NOT NULL,
    created REAL NOT NULL, started REAL, ended REAL, answer TEXT, error TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS job_created ON job (created);
CREATE TABLE IF NOT EXISTS event (
    job TEXT NOT NULL REFERENCES job (id) ON DELETE CASCADE, number INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
"""
_RUNS = """
SELECT id, name, json_extract(answer, '$.alone'), json_extract(answer, '$.work') FROM job
WHERE verb = 'run' AND state = 'done' AND json_extract(answer, '$.work.bytes') > 0 ORDER BY created DESC
"""
_POINTS = """
SELECT job.id, json_extract(value, '$.kernel'), json_extract(value, '$.global_size'),
    json_extract(value, '$.device'), json_extract(value, '$.seconds'), json_extract(value, '$.work')
FROM job, json_each(job.answer, '$.points')
WHERE job.verb = 'measure' AND job.state = 'done' AND json_extract(value, '$.seconds') > 0
    AND json_extract(value, '$.work.bytes') > 0 ORDER BY job.created DESC
"""


@dataclass(frozen=True)
class Job:
    """Work that takes longer than a client waits."""

    id: str
    verb: str
    name: str
    request: Mapping[str, Any]
    state: str
    created: float
    started: float | None = None
    ended: float | None = None
    answer: Any = None
    error: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise InvalidSetting(f"A job's state is one of {', '.join(STATES)}, not {self.state!r}")

    def summary(self) -> dict[str, Any]:
        """What a list of jobs shows: all but the request and the answer."""
        return {
            "id": self.id, "verb": self.verb, "name": self.name, "state": self.state, "created": self.created,
            "started": self.started, "ended": self.ended, "error": self.error,
        }  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Everything."""
        return self.summary() | {"request": self.request, "answer": self.answer}


class History:
    """The file. One process writes it; what a call has written is there when it returns."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # NORMAL loses nothing when the process dies; only the machine's own end may cost the last jobs.
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
                self._database.execute(f"PRAGMA {pragma}")
            self._database.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            raise UnreadableFile(f"Cannot keep jobs in {path}: {error}") from error
        path.chmod(0o600)

    def close(self) -> None:
        """Let go of the file; twice does nothing."""
        self._database.close()

    def add(self, job: Job) -> None:
        """Keep a new job."""
        self._database.execute(
            "INSERT INTO job (id, verb, name, request, state, created) VALUES (?, ?, ?, ?, ?, ?)",
            (job.id, job.verb, job.name, json.dumps(job.request), job.state, job.created),
        )

    def job(self, id: str) -> Job:
        """A job by its id.

        Raises:
            UnknownName: there is none.
        """
        row = self._database.execute(f"SELECT {_COLUMNS} FROM job WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise UnknownName("job", id[:64], [])
        return _job(row)

    def jobs(
        self, *, limit: int = 100, before: float | None = None, states: tuple[str, ...] = ()
    ) -> list[Job]:
        """The latest jobs, newest first."""
        where = ["1"] if before is None else ["created < ?"]
        values: list[Any] = [] if before is None else [before]
        if states:
            where.append(f"state IN ({', '.join('?' * len(states))})")
            values += states
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM job WHERE {' AND '.join(where)} ORDER BY created DESC, id LIMIT ?",
            (*values, limit),
        )
        return [_job(row) for row in rows]

    def measured(self) -> list[dict[str, Any]]:
        """Every kernel of the jobs that are done, on each device alone: what it did, and how long it took."""
        found = []
        for id, name, alone, work in self._database.execute(_RUNS):
            for device, milliseconds in json.loads(alone).items():
                one = {"job": id, "name": name, "device": device, "seconds": milliseconds / 1000}
                found.append(one | json.loads(work))
        for id, kernel, size, device, seconds, work in self._database.execute(_POINTS):
            one = {"job": id, "name": f"{kernel} ({size})", "device": device, "seconds": seconds}
            found.append(one | json.loads(work))
        return found

    def begin(self, id: str) -> None:
        """A job has been started."""
        self._database.execute(
            "UPDATE job SET state = 'running', started = ? WHERE id = ?", (time.time(), id)
        )

    def end(self, id: str, state: str, *, answer: Any = None, error: Mapping[str, Any] | None = None) -> None:
        """A job has come to an end."""
        self._database.execute(
            "UPDATE job SET state = ?, ended = ?, answer = ?, error = ? WHERE id = ?",
            (
                state, time.time(), None if answer is None else json.dumps(answer),
                None if error is None else json.dumps(error), id,
            ),
        )  # fmt: skip

    def rename(self, id: str, name: str) -> None:
        """Give a job a name of the user's."""
        self._database.execute("UPDATE job SET name = ? WHERE id = ?", (name, self.job(id).id))

    def remove(self, id: str) -> None:
        """Forget a job that has ended.

        Raises:
            UnknownName: there is none.
            InvalidSetting: it has not ended.
        """
        job = self.job(id)
        if job.state not in ENDED:
            raise InvalidSetting(f"The job {id} is {job.state}. Cancel it before you delete it")
        self._database.execute("DELETE FROM job WHERE id = ?", (id,))

    def note(self, id: str, event: Any) -> int:
        """Keep what a job said of its progress; its number, from 1."""
        (number,) = self._database.execute(
            "INSERT INTO event (job, number, body) VALUES "
            "(?, (SELECT coalesce(max(number), 0) + 1 FROM event WHERE job = ?), ?) RETURNING number",
            (id, id, json.dumps(event)),
        ).fetchone()
        return int(number)

    def events(self, id: str, *, after: int = 0, limit: int = 500) -> list[tuple[int, Any]]:
        """What a job said after an event: number and body."""
        rows = self._database.execute(
            "SELECT number, body FROM event WHERE job = ? AND number > ? ORDER BY number LIMIT ?",
            (id, after, limit),
        )
        return [(number, json.loads(body)) for number, body in rows]

    def recover(self) -> list[Job]:
        """Call those jobs interrupted that ran when the service ended; the jobs that wait, oldest first."""
        self._database.execute(
            "UPDATE job SET state = 'interrupted', ended = ? WHERE state = 'running'", (time.time(),)
        )
        return self.jobs(limit=1 << 30, states=("waiting",))[::-1]

    def shrink(self, most: int) -> None:
        """Forget the oldest jobs that have ended, beyond this many."""
        self._database.execute(
            "DELETE FROM job WHERE id IN (SELECT id FROM job WHERE state NOT IN ('waiting', 'running') "
            "ORDER BY created DESC LIMIT -1 OFFSET ?)",
            (most,),
        )


_COLUMNS = "id, verb, name, request, state, created, started, ended, answer, error"


def _job(row: tuple[Any, ...]) -> Job:
    id, verb, name, request, state, created, started, ended, answer, error = row
    return Job(
        id, verb, name, json.loads(request), state, created, started, ended,
        None if answer is None else json.loads(answer), None if error is None else json.loads(error),
    )  # fmt: skip
