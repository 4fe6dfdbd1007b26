"""The process whose forks run verbs: see `forks`, which is what it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apportion.errors import InvalidSetting
from reproduction.faults.forks import STATE

SECONDS = 600.0
"Of a verb that is not disturbed, or goes on by itself."


class Forks:
    """The process whose forks run verbs; see `forks`."""

    def __init__(self, root: Path, *, failing: bool) -> None:
        state = root / "state"
        state.write_bytes(STATE.pack(0, 0, 0, 0, 0))
        self.work = root / "work"
        self.work.mkdir()
        environment = os.environ | {
            "FAULT_STATE": str(state), "FAULT_ROOT": str(self.work), "APPORTION_CACHE": str(root / "cache"),
        }  # fmt: skip
        if failing:
            environment["LD_PRELOAD"] = str(_library(root))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reproduction.faults.forks"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(
        self, folder: Path, words: Sequence[str], *, kinds: int = 0, at: int = 0, rest: bool = False
    ) -> dict[str, Any]:
        """Run a verb with its `at`-th call of some kinds failing, or with every call from there on."""
        case = {"folder": str(folder), "words": list(words), "kinds": kinds, "at": at, "rest": int(rest),
                "seconds": SECONDS}  # fmt: skip
        return self._asked(case)

    def start(self, folder: Path, words: Sequence[str], said: Path) -> int:
        """The process that runs a verb, in a session of its own; what it says on stderr goes into a file."""
        return int(self._asked({"start": list(words), "folder": str(folder), "said": str(said)})["process"])

    def wait(self, process: int, seconds: float) -> int | None:
        """The exit status of a process that was started; None where it has not ended by then."""
        status: int | None = self._asked({"wait": process, "seconds": seconds})["status"]
        return status

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def forks_in(root: Path, *, failing: bool) -> Iterator[Forks]:
    """Forks that work in a folder, and end with the block.

    Args:
        failing: writes, syncs and renames can be made to fail.
    """
    forks = Forks(root, failing=failing)
    try:
        yield forks
    finally:
        forks.close()


def _library(root: Path) -> Path:
    """`fail.c` as a library."""
    library, source = root / "fail.so", Path(__file__).with_name("fail.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise InvalidSetting("A C compiler is needed: install gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
