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
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InvalidSetting
from reproduction.faults.injected import copied, differences
from reproduction.faults.starter import SECONDS, Forks
from reproduction.faults.works import Work, results

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


def killed(forks: Forks, work: Work, *, times: int, seed: int = 0) -> Iterator[Kill]:
    """Kill a verb so many times, each time in a copy of the same input."""
    draws = random.Random(f"{work.name} {seed}")
    folder, place = forks.work / "input", forks.work / "place"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    work.prepare(folder, lambda words: _whole(forks, folder, words))
    for _ in range(2):  # the first time caches are filled
        copied(folder, place)
        started = time.monotonic()
        _whole(forks, place, work.words)
        usual = time.monotonic() - started
    expected = results(place, work)
    for _ in range(times):
        copied(folder, place)
        kill, took = _one(forks, place, work, expected, draws, usual)
        if kill.what == "none":  # it was quicker than at first
            usual = min(usual, took)
        yield kill


def _one(
    forks: Forks, place: Path, work: Work, expected: dict[str, str], draws: random.Random, usual: float
) -> tuple[Kill, float]:
    wanted, wait = draws.choice(("parent", "parent", "child")), draws.random() * usual
    started = time.monotonic()
    said = place / ".said"
    verb = forks.start(place, work.words, said)
    status = forks.wait(verb, wait)
    took = time.monotonic() - started
    family = descendants(verb)
    victim = draws.choice(family) if family and wanted == "child" else None
    what = "none" if status is not None else "parent" if victim is None else "child"
    problems = []
    if what == "child":
        assert victim is not None
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        status = forks.wait(verb, SECONDS)
        if status is None:
            problems.append("it hangs after a process that it started was killed")
            _end(forks, verb)
        lines = said.read_text(errors="replace").splitlines()
        if any(line.startswith("Traceback") for line in lines):
            problems.append(f"a traceback: {lines[-1][-200:]}")
        if status and not any(line.startswith("apportion: ") for line in lines):
            problems.append(f"exit status {status} without a word")
    elif what == "parent":
        _end(forks, verb)
        problems += [f"process {left} outlives it" for left in _left(family)]
    done = results(place, work) == expected
    try:
        _whole(forks, place, work.words if not _begun(place, work) else work.resumed())
    except InvalidSetting as error:
        if not done:  # else it may say that the result is there
            problems.append(str(error))
    if (left := results(place, work)) != expected:
        problems.append(f"the next run leaves other results: {differences(left, expected)}")
    problems += [f"{path.relative_to(place)} is left" for path in place.rglob("*.part")]
    return Kill(work.name, round(wait, 3), what, tuple(problems)), took


def _end(forks: Forks, verb: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(verb, signal.SIGKILL)
    forks.wait(verb, _GONE_SECONDS)


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


def _whole(forks: Forks, place: Path, words: Sequence[str]) -> None:
    done = forks.run(place, words)
    if done["status"]:
        raise InvalidSetting(f"{' '.join(words)} ends with {done['status']}: {done['stderr'].strip()[-300:]}")
    if done["status"] is None:
        raise InvalidSetting(f"{' '.join(words)} does not end")
