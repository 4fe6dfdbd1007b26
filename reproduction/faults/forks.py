"""Run verbs in forks of one process that has everything loaded, under `fail.c` or not: a case costs no start.

It reads requests as lines of JSON and answers each with a line: see `starter`, which starts it. A request is
`start` (run a verb), `wait` (for one that was started), or a case: run a verb to its end, with calls failing.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from apportion.cli import COMMANDS, app, main

STATE = struct.Struct("=5q")
_VERBS = (
    "graph",
    "dataset",
    "rank",
    "schedule",
    "measure",
    "export",
    "train",
    "analyze",
    "generate",
    "tune",
    "run",
)
_MODULES = (
    "torch",
    "apportion.learn.dataflow.analysis_learner",
    "apportion.learn.dataflow.network",
    "apportion.data.store",
)
"What verbs load later on."


def serve() -> None:
    """Answer requests until the input ends."""
    for name in _VERBS:
        assert name in COMMANDS
        app[name]  # loads it
    for name in _MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    with Path(os.environ["FAULT_STATE"]).open("r+b") as file:
        state = mmap.mmap(file.fileno(), STATE.size)
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any]
        if "start" in asked:
            with open(asked["said"], "wb") as said, open(os.devnull, "wb") as nowhere:
                answer = {
                    "process": _started(asked["start"], asked["folder"], nowhere.fileno(), said.fileno())
                }
        elif "wait" in asked:
            answer = {"status": _waited(asked["wait"], asked["seconds"])}
        else:
            answer = _case(asked, state)
        print(json.dumps(answer), flush=True)


def _case(case: dict[str, Any], state: mmap.mmap) -> dict[str, Any]:
    """Fork, arm, run a verb, and say how it ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        state[:] = STATE.pack(case["kinds"], case["at"], 0, 0, case["rest"])
        child = _started(case["words"], case["folder"], out.fileno(), err.fileno())
        status = _waited(child, case["seconds"])
        if status is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        _, _, seen, failed, _ = STATE.unpack(state[:])
        state[:] = STATE.pack(0, 0, 0, 0, 0)
        err.seek(0)
        return {
            "status": status,
            "seen": seen,
            "failed": failed,
            "stderr": err.read().decode(errors="replace"),
        }


def _started(words: list[str], folder: str, out: int, err: int) -> int:
    """The process that runs a verb, in a session of its own."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    left_with = 70
    try:
        main(words)
        left_with = 0
    except SystemExit as left:
        left_with = left.code if isinstance(left.code, int) else 1 if left.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(left_with)


def _waited(child: int, seconds: float) -> int | None:
    """The exit status of a process; None where it has not ended."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


if __name__ == "__main__":
    serve()
