"""Kill verbs at random moments, their parent or a process that they started, and look at what is left.

After a `kill -9` of the parent everything that it started must end too, and the same command must then come
to the result of a run that was never disturbed. A process that it started may be killed, too: the verb then
either comes to its result by itself, or says in one line that it did not and goes on the next time.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InvalidSetting
from reproduction.faults.injected import copied, differences
from reproduction.faults.works import Work, results

_START = (sys.executable, "-P", "-c", "from apportion.cli import main; main()")
_SECONDS = 600.0
_GONE_SECONDS = 20.0
"What processes have to follow the one that started them."


@dataclass(frozen=True)
class Kill:
    """One kill, and what was wrong with what came of it; empty when nothing was."""

    work: str
    after: float
    "Seconds from the start of the verb."
    what: str
    "`parent`, `child`, or `none` where the verb was quicker."
    problems: tuple[str, ...]


def killed(root: Path, work: Work, *, times: int, seed: int = 0) -> Iterator[Kill]:
    """Kill a verb so many times, each time in a copy of the same input."""
    draws = random.Random(f"{work.name} {seed}")
    folder, place = root / "input", root / "place"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    work.prepare(folder, lambda words: _whole(folder, words))
    copied(folder, place)
    started = time.monotonic()
    _whole(place, work.words)
    usual = time.monotonic() - started
    expected = results(place, work)
    for _ in range(times):
        copied(folder, place)
        kill, took = _one(place, work, expected, draws, usual)
        if kill.what == "none":  # it was quicker than at first
            usual = min(usual, took)
        yield kill


def _one(
    place: Path, work: Work, expected: dict[str, str], draws: random.Random, usual: float
) -> tuple[Kill, float]:
    wanted, wait = draws.choice(("parent", "parent", "child")), draws.random() * usual
    started = time.monotonic()
    with (place / ".said").open("wb") as said:
        verb = subprocess.Popen(
            [*_START, *work.words], cwd=place, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
        )  # fmt: skip
    with suppress(subprocess.TimeoutExpired):
        verb.wait(wait)
    took = time.monotonic() - started
    family = descendants(verb.pid)
    victim = draws.choice(family) if family and wanted == "child" else None
    what = "none" if verb.poll() is not None else "parent" if victim is None else "child"
    problems = []
    if what == "child":
        assert victim is not None
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        try:
            status = verb.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            verb.kill()
            status = verb.wait()
            problems.append("it hangs after a process that it started was killed")
        lines = (place / ".said").read_text(errors="replace").splitlines()
        if any(line.startswith("Traceback") for line in lines):
            problems.append(f"a traceback: {lines[-1][-200:]}")
        if status and not any(line.startswith("apportion: ") for line in lines):
            problems.append(f"exit status {status} without a word")
    else:
        verb.kill()
        verb.wait()
        problems += [f"process {left} outlives it" for left in _left(family)]
    done = results(place, work) == expected
    try:
        _whole(place, work.words if not _begun(place, work) else work.resumed())
    except InvalidSetting as error:
        if not done:  # else it may say that the result is there
            problems.append(str(error))
    if (left := results(place, work)) != expected:
        problems.append(f"the next run leaves other results: {differences(left, expected)}")
    problems += [f"{path.relative_to(place)} is left" for path in place.rglob("*.part")]
    return Kill(work.name, round(wait, 3), what, tuple(problems)), took


def descendants(process: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError, ValueError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def _left(family: Sequence[int]) -> list[int]:
    """Those that are still there after a while."""
    end = time.monotonic() + _GONE_SECONDS
    while (left := [one for one in family if _alive(one)]) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _begun(place: Path, work: Work) -> bool:
    return any((place / name).exists() for name in work.out)


def _whole(place: Path, words: Sequence[str]) -> None:
    done = subprocess.run(
        [*_START, *words], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=_SECONDS,
    )  # fmt: skip
    if done.returncode:
        raise InvalidSetting(f"{' '.join(words)} ends with {done.returncode}: {done.stderr.strip()[-300:]}")
