"""Collecting: a command run again and again under several sources, each value with its source and exactness.

Sources that only watch share one execution, the one whose time is `seconds`; each other source has executions
of its own, whose times stand beside as `collection_seconds`: what counting costs is counted as well.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apportion.data.counter_table import SECONDS, TABLE_I, Row, System
from apportion.errors import (
    ApportionError,
    DeadlineExceeded,
    InvalidSetting,
    JobError,
    MissingPackage,
    WorkerCrashed,
)
from apportion.measure.counters import sources as known_sources
from apportion.measure.counters.command import Command, execute
from apportion.measure.counters.counter_source import (
    CounterSource,
    MissingCounter,
    Reading,
    WatchingSource,
    watched,
)

CLOCK = "clock"
COLLECTION_SECONDS = "collection_seconds"
_LOOP = "i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done; : < /dev/null"
_MIX_SOURCES = ("qemu", "callgrind", "step-sampled")
_LONG_ENOUGH, _MUST_SLOW = 0.3, 1.5
"Seconds from which on a slow source makes itself felt, and how many times longer at least it then takes."
_NEVER = ("static", "step")
"""Only used when asked for: static counts say nothing that a count of executed instructions does not say
better, and stepping through every instruction takes minutes for what takes a second."""


def _unsaid(words: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Found:
    """One counter from one source, as probing found it."""

    row: str
    "Of Table I."
    counter: str
    source: str
    exactness: str
    value: float | None
    "What the probe counted; None where the source cannot."
    problem: MissingCounter | None = None

    @property
    def works(self) -> bool:
        """Whether something was counted. A count may be zero, but of no probe all of them."""
        return self.value is not None


def source_of(name: str) -> CounterSource:
    """The source of that name.

    Raises:
        UnknownName: there is none.
    """
    source: CounterSource = known_sources.load(name)()
    return source


def probe(names: Sequence[str] | None = None) -> list[Found]:
    """What this machine gives of Table I, and from which source: by counting, never by asking for a list.

    Args:
        names: sources to try; None for all.
    """
    readings = {name: _probed(source_of(name)) for name in (known_sources if names is None else names)}
    found = []
    for row, counters in TABLE_I.items():
        for counter in counters:
            for name, reading in readings.items():
                source = source_of(name)
                if counter in source.counts:
                    exactness = source.counts[counter]
                    value, problem = reading.values.get(counter), reading.problems.get(counter)
                    found.append(Found(row, counter, name, exactness, value, problem))
    return found


def chosen(found: Sequence[Found]) -> list[str]:
    """Sources that together give all that can be had: light ones, and the quickest slow ones for the rest.

    Where something can be had from one slow source alone that counts the mix of instructions as well
    (callgrind, for caches and branches), that source counts the mix: a quicker one would be run in vain.
    """
    gives: dict[str, set[str]] = {name: set() for name in known_sources}
    for one in found:
        if one.works:
            gives[one.source].add(one.counter)
    working = [name for name in known_sources if gives[name]]
    taken = [name for name in working if not source_of(name).slow and name not in _NEVER]
    covered = set().union(*(gives[name] for name in taken))
    mix = [name for name in _MIX_SOURCES if gives.get(name)]
    quickest = gives[mix[0]] if mix else set()
    for name in working:
        if name not in (*mix, *_NEVER) and gives[name] - covered - quickest:
            taken.append(name)
            covered |= gives[name]
    rest = set().union(*(gives[name] for name in mix)) - covered - quickest
    best = next((name for name in mix if rest and rest <= gives[name]), mix[0] if mix else None)
    return taken + ([best] if best else ["static"])


def collect(
    command: Command,
    names: Sequence[str],
    *,
    repeats: int = 1,
    system: str = "",
    program: str = "",
    size: str = "",
    say: Callable[[str], None] = _unsaid,
) -> Iterator[list[Row]]:
    """Run a command under sources, `repeats` times; the rows of each execution as soon as it is done.

    Args:
        names: sources; those that cannot be used here give nulls where their reason lies in the machine.
        system: what to call this machine; its host name where not given.
        program: what to call the command; the name of its executable where not given.
        size: its input, in words; its arguments where not given.
        say: is told what runs and how long that may take, and what makes counts doubtful.

    Raises:
        InvalidSetting, MissingPackage: a source cannot be used at all; nothing was run yet in vain.
        JobError: the command failed, hung or was killed. What was yielded before stays good.
    """
    if repeats < 1:
        raise InvalidSetting(f"repeat must be at least 1, not {repeats}")
    used = [source_of(name) for name in names]
    watching = [source for source in used if isinstance(source, WatchingSource)]
    others = [source for source in used if not isinstance(source, WatchingSource)]
    program, size = program or command.name, size or " ".join(command.words[1:])
    identity = (f"{program} {size}".strip(), program, "", size, system or platform.node() or "here")
    ran = False
    for repeat in range(repeats):
        rows: list[Row] = []
        with _explained(ran):
            readings = watched(command, watching)
        ran = ran or bool(readings)
        seconds = readings[0].seconds if readings else execute(command).seconds
        rows.append(Row(*identity, repeat, SECONDS, seconds, CLOCK, "exact"))
        for watcher, reading in zip(watching, readings, strict=True):
            rows += _rows(identity, repeat, watcher, reading)
        yield rows
        for source in others:
            if source.slow:
                say(f"Running it under {source.name}, which may take {source.slowdown * seconds:.1f} s.")
            with _explained(ran):
                reading = source.measure(command)
            ran = True
            for word in _doubts(source, reading, seconds):
                say(word)
            cost = Row(*identity, repeat, COLLECTION_SECONDS, reading.seconds, source.name, "exact")
            yield [*_rows(identity, repeat, source, reading), cost]


@contextmanager
def _explained(ran_before: bool) -> Iterator[None]:
    """What a failure may come from where the same command ended well before."""
    try:
        yield
    except (DeadlineExceeded, WorkerCrashed):
        raise
    except JobError as error:
        if not ran_before:
            raise
        raise JobError(
            f"{error}\nIt ended well when it ran before, and is run once for each source and repeat: if it "
            "refuses to write over files that it wrote, give it the option to do so (often -f)"
        ) from error


def _doubts(source: CounterSource, reading: Reading, native: float) -> Iterator[str]:
    """Why counts may not mean what they seem to."""
    for problem in set(reading.problems.values()):
        yield f"{source.name}: {problem.reason}: {problem.remedy}."
    ends_by_time = native > _LONG_ENOUGH and reading.seconds < _MUST_SLOW * native
    if source.slowdown > 4 and ends_by_time:
        yield (
            f"Under {source.name} it took {reading.seconds:.2f} s, alone {native:.2f} s: it seems to end by "
            "time, not by work. Counts are of the work that it did while it was slowed down; give it a fixed "
            "amount of work instead."
        )


def this_system(name: str = "") -> System:
    """A description of this machine."""
    model = platform.processor()
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu"):
            model = value.strip()
            break
    description: dict[str, str | float] = {
        "processor": model, "architecture": platform.machine(), "kernel": platform.release(),
        "cores": float(len(os.sched_getaffinity(0))),
    }  # fmt: skip
    return System(name or platform.node() or "here", "cpu", description=description)


def _rows(
    identity: tuple[str, str, str, str, str], repeat: int, source: CounterSource, reading: Reading
) -> list[Row]:
    return [
        Row(
            *identity, repeat, counter, reading.values.get(counter), source.name,
            reading.exactness.get(counter, exactness),
        )
        for counter, exactness in source.counts.items()
    ]  # fmt: skip


def _probed(source: CounterSource) -> Reading:
    """What a source counts of something small; its own words where it cannot."""
    try:
        reading = source.measure(_something_small(source))
    except (ApportionError, OSError) as error:
        reason, _, remedy = str(error).partition(": ")
        if isinstance(error, MissingPackage):
            reason, remedy = f"{error.package} is not installed", f"pip install 'apportion[{error.extra}]'"
        problem = MissingCounter(reason, remedy)
        return Reading(dict.fromkeys(source.counts), 0.0, dict.fromkeys(source.counts, problem))
    return _plausible(source, reading)


def _something_small(source: CounterSource) -> Command:
    """What to count in order to see whether a source counts."""
    if source.name == "step":
        return Command(("true",), seconds=120.0)
    turns = 30_000 if source.name == "step-sampled" else 1_000  # bursts are 20 ms apart
    return Command(("sh", "-c", _LOOP.format(turns=turns)), seconds=120.0)


def _plausible(source: CounterSource, reading: Reading) -> Reading:
    """The reading, unless it counted nothing at all: a counter that stands still does not work."""
    never_zero = ("instructions", "page_faults", "int_ratio", "control_ratio", "threads", "page_levels")
    values = {
        name: None if name in never_zero and not value else value for name, value in reading.values.items()
    }
    stuck = {
        name: MissingCounter("it counts nothing", "use another source")
        for name, value in values.items()
        if value is None and name not in reading.problems
    }
    return Reading(values, reading.seconds, {**stuck, **reading.problems})


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
