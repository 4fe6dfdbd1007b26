"""`python -m reproduction faults` and `python -m reproduction kills`: failing disks and killed processes."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.errors import UnknownName
from apportion.settings import replace_file
from reproduction.faults.injected import KINDS, Case, injected
from reproduction.faults.kills import Kill, killed
from reproduction.faults.starter import forks_in
from reproduction.faults.works import WORKS, Work

_FAULTS = """\
A library that is loaded before the verb and all that it starts fails one write and all later ones (a full
disk, the failing write half done), one sync, or one rename below the working folder; one run for each. A
case is *survived* when the verb said so in one line, or did without what failed and left its usual result;
an old result is whole; no `.part` lies about; and the same command then comes to the result of an
undisturbed run. Writes through mapped memory cannot fail this way. Cases are tried / survived.
"""
_KILLS = """\
Each verb runs in a fork of one process that has everything loaded, so that it is killed at its work. At a
moment drawn evenly over the time that it usually takes, `kill -9` ends the verb (*parent*), or a process that
it or one of its processes started (*child*: workers of a runner, device workers, compilers); *none* where the
verb was quicker. A kill is *survived* when nothing that was started outlives the parent by 20 s, and the same
command then comes to the result of an undisturbed run: the same files, tables with equal rows. Results of
`measure` are times: compared are the names of its files. Kills are tried / survived.
"""

Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]


def faults(
    *, work: Names = None, every: int = 1, seconds: float = float("inf"), out: Path | None = None
) -> int:
    """Fail the n-th write, sync or rename of each verb that writes, for every n, and look at what is left.

    Args:
        work: only these verbs, as "rank pack".
        every: not every n, but every so many.
        seconds: begin no case after so long; what is left of it is divided among the verbs that are left.
        out: the page to write; printed when not given.
    """
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as folder, forks_in(Path(folder), failing=True) as forks:
        for each, end in _ends(_works(work), seconds):
            for case in injected(forks, each, every=every):
                cases.append(case)
                _tell(f"{case.work}: {case.kind} {case.number}", case.problems)
                if time.monotonic() > end:
                    break
    _write(fault_page(cases, every), out)
    return 1 if any(case.problems for case in cases) else 0


def kills(
    *,
    work: Names = None,
    times: int = 200,
    seed: int = 0,
    seconds: float = float("inf"),
    out: Path | None = None,
) -> int:
    """Kill each verb that writes at random moments, the parent or a process that it started, and go on.

    Args:
        work: only these verbs, as "rank pack".
        times: kills for each verb.
        seed: draws the moments.
        seconds: kill nothing after so long; what is left of it is divided among the verbs that are left.
        out: the page to write; printed when not given.
    """
    found: list[Kill] = []
    with tempfile.TemporaryDirectory() as folder, forks_in(Path(folder), failing=False) as forks:
        for each, end in _ends(_works(work), seconds):
            for kill in killed(forks, each, times=times, seed=seed):
                found.append(kill)
                _tell(f"{kill.work}: {kill.what} after {kill.after} s", kill.problems)
                if time.monotonic() > end:
                    break
    _write(kill_page(found, seed), out)
    return 1 if any(kill.problems for kill in found) else 0


def fault_page(cases: Sequence[Case], every: int) -> str:
    """The table of what was tried, and what went wrong."""
    which = "every" if every == 1 else f"every {every}th"
    kinds = list(KINDS)
    tried = Counter((case.work, case.kind) for case in cases)
    held = Counter((case.work, case.kind) for case in cases if not case.problems)
    asked = "python -m reproduction faults" + ("" if every == 1 else f" --every {every}")
    lines = [
        f"# Failing disks\n\n`{asked}`, {datetime.now(UTC).date()}, {which} call of each kind.\n", _FAULTS,
        "| verb | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds),
    ]  # fmt: skip
    for name in dict.fromkeys(case.work for case in cases):
        lines.append(
            f"| `{name}` | " + " | ".join(f"{tried[name, k]} / {held[name, k]}" for k in kinds) + " |"
        )
    lines += ["", *_failed((f"{case.work}, {case.kind} {case.number}", case.problems) for case in cases)]
    return "\n".join(lines) + "\n"


def kill_page(found: Sequence[Kill], seed: int) -> str:
    """The table of what was killed, and what went wrong."""
    kinds = ("parent", "child", "none")
    tried = Counter((kill.work, kill.what) for kill in found)
    held = Counter((kill.work, kill.what) for kill in found if not kill.problems)
    asked = f"python -m reproduction kills --seed {seed}"
    lines = [
        f"# kill -9\n\n`{asked}`, {datetime.now(UTC).date()}.\n", _KILLS,
        "| verb | " + " | ".join(kinds) + " |", "|---|" + "---:|" * len(kinds),
    ]  # fmt: skip
    for name in dict.fromkeys(kill.work for kill in found):
        lines.append(
            f"| `{name}` | " + " | ".join(f"{tried[name, k]} / {held[name, k]}" for k in kinds) + " |"
        )
    lines += [
        "",
        *_failed((f"{kill.work}, {kill.what} after {kill.after} s", kill.problems) for kill in found),
    ]
    return "\n".join(lines) + "\n"


def _ends(works: Sequence[Work], seconds: float) -> Iterator[tuple[Work, float]]:
    """Each work with the moment at which it has had its part of the time."""
    last = time.monotonic() + seconds
    for place, work in enumerate(works):
        yield work, time.monotonic() + max(0.0, last - time.monotonic()) / (len(works) - place)


def _failed(rows: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    lines = [f"- {what}: {'; '.join(problems)}" for what, problems in rows if problems]
    return ["What was not survived:", "", *lines] if lines else ["All were survived."]


def _works(names: Sequence[str] | None) -> list[Work]:
    for name in names or ():
        if name not in WORKS:
            raise UnknownName("work", name, WORKS)
    return [WORKS[name] for name in names or WORKS]


def _tell(what: str, problems: tuple[str, ...]) -> None:
    print(f"{what}: {'; '.join(problems) or 'survived'}", file=sys.stderr, flush=True)


def _write(page: str, out: Path | None) -> None:
    if out is None:
        print(page, end="")
    else:
        replace_file(out, page)
