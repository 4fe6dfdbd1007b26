"""`apportion jobs`: what a running studio works on, and what came of it."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Any

from cyclopts import App, Parameter

from apportion.cli.show import note, print_json, print_table, shortened
from apportion.client import Client

jobs = App(name="jobs", help="List, follow and cancel the jobs of a running studio, and get their results.")
_Json = Annotated[bool, Parameter(negative="")]


@jobs.default
@jobs.command(name="list")
def list_jobs(
    *, state: str | None = None, limit: int = 100, server: str | None = None, json: _Json = False
) -> None:
    """List the latest jobs, newest first: runs, measuring and training.

    Args:
        state: List only jobs in this state: waiting, running, done, failed, cancelled or interrupted.
        limit: How many jobs to list at most, up to 500.
        server: The address that `apportion serve` printed. By default APPORTION_SERVER, else
            http://127.0.0.1:8765. The token stands behind it as `#token=`, or in APPORTION_TOKEN.
        json: Print one line of JSON for each job.
    """
    found = Client(server).jobs(state=state, limit=limit)
    if json:
        for job in found:
            print_json(job)
        return
    rows = [
        (job["id"], job["verb"], job["state"], _when(job["created"]), _seconds(job), job["name"])
        for job in found
    ]
    print_table(("id", "verb", "state", "created", "seconds", "name"), rows, right=("seconds",))


@jobs.command
def show(id: str, *, server: str | None = None, json: _Json = False) -> None:
    """Show one job: its state, its times, and why it failed.

    Args:
        id: The id of the job, as the list shows it.
        server: The address of the studio, as for the list of jobs.
        json: Print everything as JSON, with what was asked and what was answered.
    """
    job = Client(server).job(id)
    if json:
        print_json(job)
        return
    rows = [("id", job["id"]), ("verb", job["verb"]), ("name", job["name"]), ("state", job["state"])]
    rows += [(name, _when(job[name])) for name in ("created", "started", "ended") if job[name] is not None]
    if job["error"] is not None:
        rows.append(("error", job["error"]["message"]))
    print_table(("", "job"), rows)


@jobs.command
def follow(id: str, *, server: str | None = None, json: _Json = False) -> None:
    """Print the progress of a job until it ends; the exit status is 1 if it did not end well.

    Args:
        id: The id of the job.
        server: The address of the studio, as for the list of jobs.
        json: Print each event as one line of JSON, and last the job without its request and answer.
    """
    client = Client(server)
    for event in client.events(id):
        if json:
            print_json(event)
        else:
            note(_in_words(event))
    job = client.job(id)
    if json:
        print_json({name: value for name, value in job.items() if name not in ("request", "answer")})
    else:
        said = "" if job["error"] is None else f": {job['error']['message']}"
        print(f"{job['name']}: {job['state']}{said}")
    if job["state"] != "done":
        sys.exit(1)


@jobs.command
def cancel(id: str, *, server: str | None = None, json: _Json = False) -> None:
    """Cancel a job that waits or runs.

    Args:
        id: The id of the job.
        server: The address of the studio, as for the list of jobs.
        json: Print the job as one line of JSON.
    """
    job = Client(server).cancel(id)
    if json:
        print_json(job)
    else:
        print(f"{job['name']}: {job['state']}")


@jobs.command
def result(id: str, *, server: str | None = None, json: _Json = False) -> None:
    """Print the answer of a job that is done: what the verb itself would have printed.

    Args:
        id: The id of the job.
        server: The address of the studio, as for the list of jobs.
        json: Print it as one line of JSON.
    """
    answer = Client(server).result(id)
    if json:
        print_json(answer)
        return
    print_table(("", "answer"), [(name, shortened(value)) for name, value in answer.items()])


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def _seconds(job: dict[str, Any]) -> str:
    """How long a job ran, if it has ended."""
    return "" if None in (job["started"], job["ended"]) else f"{job['ended'] - job['started']:.1f}"


def _in_words(event: dict[str, Any]) -> str:
    """What a job says, in one line."""
    if "done" in event and "total" in event:
        return f"{event['stage']}: {event['done']} of {event['total']}"
    part = f", {event['part']:.0%}" if "part" in event else ""
    return f"{event['stage']}{part}"
