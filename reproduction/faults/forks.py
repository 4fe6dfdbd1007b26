"""Run verbs in forks of one process that has everything loaded, under `fail.c`: a case costs no start.

It reads cases as lines of JSON and answers each with a line: see `injected`, which starts it.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from apportion.cli import COMMANDS, app, main

STATE = struct.Struct("=5q")
_MODULES = ("graph", "dataset", "rank", "schedule", "measure", "export")


def serve() -> None:
    """Answer cases until the input ends."""
    for name in _MODULES:
        assert name in COMMANDS
        app[name]  # loads it
    with Path(os.environ["FAULT_STATE"]).open("r+b") as file:
        state = mmap.mmap(file.fileno(), STATE.size)
    for line in sys.stdin:
        print(json.dumps(_case(json.loads(line), state)), flush=True)


def _case(case: dict[str, Any], state: mmap.mmap) -> dict[str, Any]:
    """Fork, arm, run a verb, and say how it ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        state[:] = STATE.pack(case["kinds"], case["at"], 0, 0, case["rest"])
        child = os.fork()
        if not child:
            os.setsid()
            os.chdir(case["folder"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            left_with = 70
            try:
                main(case["words"])
                left_with = 0
            except SystemExit as left:
                left_with = left.code if isinstance(left.code, int) else 1 if left.code else 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(left_with)
        status = _waited(child, case["seconds"])
        _, _, seen, failed, _ = STATE.unpack(state[:])
        state[:] = STATE.pack(0, 0, 0, 0, 0)
        err.seek(0)
        return {
            "status": status,
            "seen": seen,
            "failed": failed,
            "stderr": err.read().decode(errors="replace"),
        }


def _waited(child: int, seconds: float) -> int | None:
    """The exit status of a process; None where it had to be ended."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.005)


if __name__ == "__main__":
    serve()
