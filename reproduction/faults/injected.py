"""Fail the n-th write, sync or rename of a verb, for every n, and look at what is left.

After each failure the verb must have said so in one line (or have done without what failed), an old result
must be whole, nothing half-written may lie about, and the same command must then come to its usual result.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.errors import InvalidSetting
from reproduction.faults.starter import Forks
from reproduction.faults.works import Work, results

KINDS = {"write": 1, "sync": 2, "rename": 4}


@dataclass(frozen=True)
class Case:
    """One failure, and what was wrong with how the verb took it; empty when nothing was."""

    work: str
    kind: str
    number: int
    problems: tuple[str, ...]


def injected(
    forks: Forks, work: Work, *, every: int = 1, kinds: Sequence[str] = tuple(KINDS)
) -> Iterator[Case]:
    """Each n-th failure of a work (or each `every`-th), with what was wrong."""
    folder = forks.work / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def verb(words: Sequence[str]) -> None:
        said = forks.run(folder, words)
        if said["status"] != 0:
            raise InvalidSetting(f"{' '.join(words)} does not even work undisturbed: {said['stderr']}")

    work.prepare(folder, verb)
    place = forks.work / "place"
    copied(folder, place)
    old = results(place, work)
    counts = {kind: forks.run(place, work.words, kinds=KINDS[kind])["seen"] for kind in kinds[:1]}
    expected = results(place, work)
    for kind in kinds:
        if kind not in counts:
            copied(folder, place)
            counts[kind] = forks.run(place, work.words, kinds=KINDS[kind])["seen"]
        for number in range(1, counts[kind] + 1, every):
            copied(folder, place)
            said = forks.run(place, work.words, kinds=KINDS[kind], at=number, rest=kind == "write")
            problems = [*_problems(said, place, work, old, expected)]
            again = forks.run(place, work.resumed())
            if again["status"] != 0:
                problems.append(f"the next run ends with {again['status']}: {again['stderr'].strip()[-300:]}")
            elif results(place, work) != expected:
                problems.append(
                    f"the next run leaves other results: {differences(results(place, work), expected)}"
                )
            yield Case(work.name, kind, number, tuple(problems))


def _problems(
    said: dict[str, Any], place: Path, work: Work, old: dict[str, str], expected: dict[str, str]
) -> Iterator[str]:
    lines = [line for line in said["stderr"].splitlines() if line.strip()]
    if said["status"] is None:
        yield "it hangs"
    elif said["status"] == 0:
        if said["failed"] and results(place, work) != expected:
            yield f"exit status 0 with other results: {differences(results(place, work), expected)}"
    elif said["status"] != 1 or not lines or not lines[-1].startswith("apportion: "):
        yield f"exit status {said['status']}: {' | '.join(lines)[-300:]}"
    if "Traceback" in said["stderr"]:
        yield f"a traceback: {lines[-1][-300:]}"
    for name, digest in old.items():
        now = results(place, work).get(name)
        if now not in (digest, expected.get(name)):
            yield f"the old {name} is {'damaged' if now else 'gone'}"
    for path in place.rglob("*.part"):
        yield f"{path.relative_to(place)} is left"


def differences(found: dict[str, str], expected: dict[str, str]) -> str:
    """The names of what two runs left differently."""
    names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    return ", ".join(names[:5])


def copied(folder: Path, place: Path) -> None:
    """Make a place like a folder."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place, symlinks=True)
