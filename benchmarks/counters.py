"""What counting a program costs, source by source, and what it finds: xz, sqlite3, and the suite on PoCL.

The cost is the CPU time of the command and of whoever counts it, beside the command's alone in the same
round: a busy machine measures the same. The median over rounds is told, with the least and the most.

    python -m benchmarks counters
    python -m benchmarks.counters --rounds 5 --out docs/results/counters.md

What `apportion counters probe --json` says elsewhere, in a container say, is told too: --elsewhere NAME=FILE.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apportion
from apportion.data.counter_table import TABLE_I
from apportion.errors import ApportionError, DeadlineExceeded
from apportion.measure.counters.collect import chosen, probe, source_of, this_system
from apportion.measure.counters.command import Command, execute

LIGHT = ("proc", "software", "tracepoints", "trace")
SLOW = ("qemu", "step-sampled", "callgrind")
LONGEST = 300.0
"Seconds that one execution may take."
SQL = """
create table readings(station integer, day integer, value real);
with recursive n(i) as (select 0 union all select i + 1 from n where i < 150000)
insert into readings select i % 97, i / 97, (i * 7919 % 10007) / 100.0 from n;
create index by_station on readings(station);
select station, count(*), avg(value), max(value) from readings group by station order by 3 limit 5;
"""


@dataclass
class Found:
    """What one source made of one program."""

    costs: list[float] = field(default_factory=list)
    values: dict[str, float | None] = field(default_factory=dict)
    failure: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", default="xz,sqlite3,suite")
    parser.add_argument("--elsewhere", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--out", type=Path, help="write a page of Markdown")
    asked = parser.parse_args()
    probed = probe()
    working = {one.source for one in probed if one.works}
    page = ["# What counting costs", "", *_reading(asked.rounds)]
    with tempfile.TemporaryDirectory(prefix="apportion-") as folder:
        for name, command, slow in programs(Path(folder), asked.programs.split(",")):
            sources = [source for source in (*LIGHT, *slow) if source in working]
            print(f"{name}: {' '.join(command.words)[:100]}", flush=True)
            native, found = measured(command, sources, asked.rounds)
            page += _section(name, command, native, found)
            for source, one in found.items():
                print(f"  {source:13} {_ratio(one.costs, native)}", flush=True)
    here = [{**vars(one), "problem": one.problem and vars(one.problem), "works": one.works} for one in probed]
    page += _probed("this machine", {"counters": here, "chosen": chosen(probed)})
    for word in asked.elsewhere:
        name, _, path = word.partition("=")
        page += _probed(name, json.loads(Path(path).read_text()))
    if asked.out:
        asked.out.write_text("\n".join([*page, *_made(asked.rounds), ""]))
        print(f"The page is {asked.out}")


def programs(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, Command, Sequence[str]]]:
    """Name, command, and the slow sources it can be counted by, of the programs that are here."""
    data = folder / "data"
    text = b"".join(path.read_bytes() for path in sorted(Path(apportion.__file__).parent.rglob("*.py")))
    data.write_bytes((text * 3)[:1_300_000])
    script = folder / "script.sql"
    script.write_text(SQL)
    if "xz" in names and shutil.which("xz"):
        yield "xz", Command(("xz", "-6", "-T1", "-k", "-c", str(data)), seconds=LONGEST), SLOW
    if "sqlite3" in names and shutil.which("sqlite3"):
        yield "sqlite3", Command(("sqlite3", ":memory:"), script, seconds=LONGEST), SLOW
    if "suite" in names:
        start = "from apportion.cli import main; main()"
        words = (sys.executable, "-c", start, "suite", "run", "triad", "--small", "--devices", "cpu")
        # Python, the compiler of PoCL and its threads: minutes where every instruction is looked at.
        yield "suite", Command(words, seconds=LONGEST), ("step-sampled",)


def measured(command: Command, sources: Sequence[str], rounds: int) -> tuple[list[float], dict[str, Found]]:
    """CPU seconds of the command alone, and what each source counted, round by round."""
    execute(command)  # what is read comes from memory from now on
    native: list[float] = []
    found = {source: Found() for source in sources}
    for number in range(rounds):
        before = _busy()
        execute(command)
        native.append(_busy() - before)
        for name, one in found.items():
            source = source_of(name)
            if one.failure or (number and source.slow and one.costs and one.costs[0] > 20 * native[0]):
                continue  # exact and very slow: once will do
            try:
                before = _busy()
                one.values = dict(source.measure(command).values)
                one.costs.append(_busy() - before)
            except DeadlineExceeded:
                one.failure = f"not done in {LONGEST:.0f} s"
            except ApportionError as error:
                one.failure = str(error)
    return native, found


def _busy() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def _ratio(costs: Sequence[float], native: Sequence[float]) -> str:
    if not costs:
        return "–"
    ratios = [cost / alone for cost, alone in zip(costs, native, strict=False)]
    middle = statistics.median(ratios)
    return f"{middle:.2f}" if len(ratios) == 1 else f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _section(name: str, command: Command, native: Sequence[float], found: dict[str, Found]) -> list[str]:
    words = "apportion suite run triad --small --devices cpu" if name == "suite" else " ".join(
        Path(word).name if word.startswith("/") else word for word in command.words
    )  # fmt: skip
    lines = [
        f"## {name}", "", f"`{words}`: {statistics.median(native):.3f} s of CPU alone.", "",
        "| source | CPU time, times the command's own | runs |", "|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| {source} | {one.failure or _ratio(one.costs, native)} | {len(one.costs)} |"
        for source, one in found.items()
    ]
    sources = [source for source, one in found.items() if one.values]
    lines += ["", f"| Table I | counter | {' | '.join(sources)} |", "|---|---|" + "---|" * len(sources)]
    for row, counters in TABLE_I.items():
        for counter in counters:
            cells = [
                "" if counter not in source_of(source).counts else _value(found[source].values.get(counter))
                for source in sources
            ]
            if any(cells):
                lines.append(f"| {row} | {counter} | {' | '.join(cells)} |")
            else:
                lines.append(f"| {row} | {counter} |{' |' * len(sources)}")
    return [*lines, ""]


def _value(value: float | None) -> str:
    if value is None:
        return "missing"
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def _reading(rounds: int) -> list[str]:
    return [
        "`apportion counters collect` runs a command under every source that works on the machine. What that",
        "costs, in CPU time of the command and of whoever counts it, relative to the command alone in the",
        f"same round; the median of {rounds} rounds with the least and the most (a source that costs over",
        "20 times was run once). An empty cell: the source does not count this. A command that is collected",
        "with light sources and one slow one costs the sum of their times. `tracepoints` counts attempts to",
        "open files, `trace` those that succeeded. Slow sources have a fixed part, starting and",
        "disassembling: the shorter a command, the worse the ratio.",
        "",
    ]


def _probed(title: str, said: Mapping[str, Any]) -> list[str]:
    """What `apportion counters probe --json` said somewhere."""
    works = {one["counter"] for one in said["counters"] if one["works"]}
    rows = [row for row, counters in TABLE_I.items() if works & set(counters)]
    without = [row for row in TABLE_I if row not in rows]
    problems = {
        (one["source"], one["problem"]["reason"], one["problem"]["remedy"])
        for one in said["counters"]
        if one["problem"]
    }
    return [
        f"## What it gives: {title}", "",
        f"{len(rows)} of the {len(TABLE_I)} rows of Table I; not: {', '.join(without) or 'none'}.",
        f"`apportion counters collect` chooses {', '.join(said['chosen'])}. Sources that do not work:", "",
        "| source | why not | what to do |", "|---|---|---|",
        *(f"| {source} | {reason} | {remedy} |" for source, reason, remedy in sorted(problems)), "",
    ]  # fmt: skip


def _made(rounds: int) -> list[str]:
    about = this_system().description
    return [
        "## How it was made", "",
        f"- Command: `python -m benchmarks.counters --rounds {rounds} --out docs/results/counters.md`; in a"
        " container, `apportion counters probe --json`, handed over with `--elsewhere`",
        f"- Machine: {about['processor']}, {about['cores']:.0f} cores, Linux {about['kernel']}; Python "
        f"{platform.python_version()}, apportion {apportion.__version__}, {datetime.now(UTC):%Y-%m-%d}",
        f"- Load average when it ended: {Path('/proc/loadavg').read_text().split()[0]}; "
        f"{time.process_time():.0f} s of CPU for the measuring itself",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
