"""Jobs: work that outlasts a request. They wait their turn, tell how far they are, and can be cancelled."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from apportion.errors import ApportionError, InvalidSetting
from apportion.serve.failures import Refused, failure_of
from apportion.serve.history import ENDED, History, Job
from apportion.serve.pool import Pool

_MOST_EVENTS = 2000
"Events that one job may leave; a job that says more is still done, in silence."
_HEARTBEAT_SECONDS = 10.0


class JobBoard:
    """The jobs of a service: one at a time, because kernels that are timed must have the devices alone."""

    def __init__(
        self, history: History, pool: Pool, *, waiting: int, waiting_of_client: int, seconds: float, kept: int
    ) -> None:
        self._history, self._pool = history, pool
        self._most_waiting, self._most_of_client = waiting, waiting_of_client
        self._seconds, self._kept = seconds, kept
        self._clients: dict[str, str] = {}  # of the jobs that wait
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._loop: asyncio.Task[None] | None = None

    def start(self, *, runs_code: bool) -> None:
        """Go on where an earlier service ended: what waited waits again, what ran was interrupted."""
        for job in self._history.recover():
            if runs_code:
                self._clients[job.id] = ""
                self._queue.put_nowait(job.id)
            else:
                self._history.end(job.id, "cancelled")
        self._loop = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Stop working; the job that runs stays in the history as interrupted."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, *self._running.values(), return_exceptions=True)

    def add(self, verb: str, form: Mapping[str, Any], name: str, client: str = "") -> Job:
        """A new job, which waits for its turn.

        Raises:
            Refused: too many wait, in all or of this client.
        """
        if len(self._clients) >= self._most_waiting:
            raise Refused(429, "Too many jobs wait for the devices. Ask again later", retry_after=10)
        if list(self._clients.values()).count(client) >= self._most_of_client:
            raise Refused(
                429, f"{self._most_of_client} jobs of yours wait already. Ask again later", retry_after=10
            )
        job = Job(secrets.token_hex(8), verb, name, form, "waiting", time.time())
        self._history.add(job)
        self._clients[job.id] = client
        self._queue.put_nowait(job.id)
        return job

    def cancel(self, id: str) -> Job:
        """End a job that waits or runs.

        Raises:
            UnknownName: there is none.
            InvalidSetting: it has ended.
        """
        job = self._history.job(id)
        if job.state in ENDED:
            raise InvalidSetting(f"The job {id} is {job.state} already")
        task = self._running.get(id)
        if task is not None:
            task.cancel()
        self._clients.pop(id, None)
        self._history.end(id, "cancelled")
        self._wake(id)
        return self._history.job(id)

    async def events(self, id: str, *, after: int = 0) -> AsyncIterator[tuple[int, Any] | None]:
        """What a job says, from an event on, until it ends; None from time to time where it says nothing."""
        self._history.job(id)
        while True:
            changed = self._changed.setdefault(id, asyncio.Event())
            changed.clear()
            ended = self._history.job(id).state in ENDED
            for number, body in (found := self._history.events(id, after=after)):
                after = number
                yield number, body
            if found:
                continue
            if ended:
                self._changed.pop(id, None)
                return
            try:
                await asyncio.wait_for(changed.wait(), _HEARTBEAT_SECONDS)
            except TimeoutError:
                yield None

    async def _work(self) -> None:
        while True:
            id = await self._queue.get()
            self._clients.pop(id, None)
            if self._history.job(id).state != "waiting":  # cancelled before its turn
                continue
            task = asyncio.create_task(self._do(self._history.job(id)))
            self._running[id] = task
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.done():  # the service ends, not the job alone
                    task.cancel()
                    raise
            finally:
                self._running.pop(id, None)

    async def _do(self, job: Job) -> None:
        self._history.begin(job.id)
        self._wake(job.id)
        said = 0

        def report(event: Any) -> None:
            nonlocal said
            said += 1
            if said <= _MOST_EVENTS:
                self._history.note(job.id, event)
                self._wake(job.id)

        try:
            question = self._with_measured(job.request) if job.verb == "train" else job.request
            answer = await self._pool.ask(job.verb, question, report=report, seconds=self._seconds)
            self._history.end(job.id, "done", answer=answer)
        except ApportionError as error:
            self._history.end(job.id, "failed", error=failure_of(error)[1])
        finally:
            self._history.shrink(self._kept)
            self._wake(job.id)

    def _with_measured(self, form: Mapping[str, Any]) -> dict[str, Any]:
        """What training is asked: the form, and sources and points of the measuring jobs that it names."""
        measured = [self._history.job(id) for id in form["jobs"]]
        jobs = [{"request": {"sources": job.request["sources"]}, "answer": job.answer} for job in measured]
        return {"form": form, "measured": jobs}

    def _wake(self, id: str) -> None:
        if (changed := self._changed.get(id)) is not None:
            changed.set()
