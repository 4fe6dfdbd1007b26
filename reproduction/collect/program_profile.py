"""What programs of `torch_programs` consist of, by the rows of Table I: each run counted alone, by Callgrind.

    python -m reproduction.collect.program_profile FOLDER --seconds 3000

leaves FOLDER/table-i.jsonl, a line for each run; the same command goes on where it was. It needs valgrind
with its headers, a C compiler and torch for CPUs. A program makes its data and, where it is small, warms up
uncounted; then one execution is counted. `apportion counters collect -- COMMAND` counts a whole command in
the same way.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from apportion.errors import InvalidSetting
from apportion.jobs.journal import Journal
from apportion.measure.counters.callgrind import CallgrindProfile
from reproduction.worker import shared_by

TABLE_I_COUNTERS = "table-i"
_MARKS = """
#include <valgrind/callgrind.h>
void on(void) { CALLGRIND_START_INSTRUMENTATION; }
void begin(void) { CALLGRIND_ZERO_STATS; CALLGRIND_TOGGLE_COLLECT; }
void end(const char *name) { CALLGRIND_TOGGLE_COLLECT; CALLGRIND_DUMP_STATS_AT(name); }
"""
_SMALL = 8
"Steps whose runs are executed once more before they are counted, so that the simulated caches are warm."
_POOL = 1_000_003
"Numbers that all data are made of."
_TRIGGER = "desc: Trigger: Client Request: "


def profile(folder: Path, *, steps: int, seconds: float, worker: str) -> int:
    """Count every run of a worker that is not counted yet, small ones first; how many it counted."""
    valgrind, compiler = shutil.which("valgrind"), shutil.which("cc")
    if valgrind is None or compiler is None:
        raise InvalidSetting("valgrind and a C compiler are needed: apt install valgrind gcc")
    journal, counted = Journal(folder / f"{TABLE_I_COUNTERS}.jsonl", sync=False), 0
    with tempfile.TemporaryDirectory(prefix="apportion-") as temporary:
        marks = Path(temporary) / "marks.so"
        source = marks.with_suffix(".c")
        source.write_text(_MARKS)
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", marks, source], check=True)
        words = [
            valgrind, "-q", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no",
            "--dump-instr=yes", "--cache-sim=yes", "--branch-sim=yes",
            f"--callgrind-out-file={temporary}/out", sys.executable, "-m", __spec__.name, str(folder),
            "--marks", str(marks), "--steps", str(steps), "--worker", worker,
        ]  # fmt: skip
        end = time.monotonic() + seconds
        with subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}) as child:
            while child.poll() is None:
                if time.monotonic() > end:
                    child.terminate()
                time.sleep(1)
                counted += _read(Path(temporary), journal, running=True)
        return counted + _read(Path(temporary), journal, running=False)


def run_marked(folder: Path, marks: Path, *, steps: int, worker: str) -> None:
    """Inside valgrind: every run that is not counted yet, between marks."""
    import torch

    # Optimisers load torch's compiler when first used, which would take minutes here, and do not use it.
    compiler = ModuleType("torch._dynamo")
    compiler.disable = lambda function=None, *_, **__: function  # type: ignore[attr-defined]
    compiler.graph_break = lambda *_, **__: None  # type: ignore[attr-defined]
    sys.modules["torch._dynamo"] = torch._dynamo = compiler

    from reproduction.collect.program_times import run_name
    from reproduction.collect.torch_programs import every_run

    torch.set_num_threads(1)
    mark = ctypes.CDLL(str(marks))
    pool = torch.randn(_POOL)

    def draw(*shape: int) -> torch.Tensor:
        """Drawn beforehand: drawing would take most of the time here."""
        count = math.prod(shape)
        return pool.repeat(-(-count // _POOL))[:count].reshape(shape)

    number, workers = shared_by(worker)
    known = {entry["run"] for entry in Journal(folder / f"{TABLE_I_COUNTERS}.jsonl").entries()}
    mark.on()
    for place, (program, size) in enumerate(list(every_run(steps))):
        name = run_name(program, size)
        if place % workers == number - 1 and name not in known:
            torch.manual_seed(size)
            work = program.make(size, draw)
            if size <= program.sizes(steps)[min(_SMALL, steps - 1)]:
                work()
            mark.begin()
            work()
            mark.end(name.encode())


def _read(folder: Path, journal: Journal, *, running: bool) -> int:
    """Take in what was dumped, but for the newest while the program runs: it may not be whole."""
    dumps = sorted(folder.glob("out.*"), key=lambda path: int(path.suffix[1:]))
    read = 0
    for path in dumps[: -1 if running else None]:
        with path.open() as lines:
            name = _name(lines)
        if name:
            found = CallgrindProfile(sys.executable)
            with path.open() as lines:
                found.read(lines, str(path))
            values = {name: value for name, value in found.counters().items() if value is not None}
            journal.add({"run": name, "counters": values})
            read += 1
        path.unlink()
    return read


def _name(lines: Iterator[str]) -> str:
    for line in lines:
        if line.startswith(_TRIGGER):
            return line.removeprefix(_TRIGGER).strip()
        if line.startswith("positions:"):
            break
    return ""


def main() -> None:
    """Count, or inside valgrind run, as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--worker", default="1/1", help="I/N: one of N processes that share the runs")
    parser.add_argument("--marks", type=Path, default=None, help="what marks runs, inside valgrind")
    words = parser.parse_args()
    if words.marks is not None:
        run_marked(words.folder, words.marks, steps=words.steps, worker=words.worker)
        return
    print(
        profile(words.folder, steps=words.steps, seconds=words.seconds, worker=words.worker), "runs counted"
    )


if __name__ == "__main__":
    main()
