"""What exact sources count of programs whose instructions are known, into a table.

python -m benchmarks.exactness --out docs/results/counters-exactness.md
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from apportion.errors import ApportionError
from apportion.measure.counters.collect import source_of, this_system
from apportion.measure.counters.command import Command
from apportion.measure.counters.mix import MIX_COUNTERS
from benchmarks.known_programs import known_programs

SOURCES = ("qemu", "step", "callgrind")
_LUA = "local s = 0.0 for i = 1, 3000000 do s = s + i * 0.5 end print(s)\n"
_HEAD = """# How exact counts are

Made by `python -m benchmarks.exactness` on {machine}. The first two programs are written byte by byte, so
that what is right is known without counting; tests hold it. `missing` is what a source says it does not know.
`qemu` and `callgrind` count a repeated string instruction once for each turn (22 more here), `step` once.
`callgrind` does not list the last block of a process (three instructions here).

Each ratio has one definition, whatever the source: a part of all executed instructions. `independent_ratio`
is the part of pairs of instructions, executed one after the other and not beginning with a jump, in which the
second reads no register that the first wrote.
"""


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = "\n".join(_page(Path(folder)))
    if wanted.out is None:
        print(text)
    else:
        wanted.out.write_text(text)


def _page(folder: Path) -> Iterator[str]:
    yield _HEAD.format(machine=this_system().description["processor"])
    for program in known_programs(folder):
        yield from _table(program.name, program.command, dict(program.expected))
    if shutil.which("luajit"):
        script = folder / "f.lua"
        script.write_text(_LUA)
        yield from _table(
            "luajit, 3,000,000 turns of `s = s + i * 0.5`", Command(("luajit", str(script))), None
        )


def _table(name: str, command: Command, expected: dict[str, float] | None) -> Iterator[str]:
    yield f"## {name[0].upper()}{name[1:]}\n"
    yield f"| | {' | '.join(MIX_COUNTERS)} |"
    yield "|---|" + "--:|" * len(MIX_COUNTERS)
    if expected is not None:
        yield f"| **known** | {' | '.join(_value(expected[counter]) for counter in MIX_COUNTERS)} |"
    for source in SOURCES:
        if source == "step" and expected is None:
            continue  # too many instructions to step through
        try:
            values = source_of(source).measure(command).values
        except ApportionError as error:
            yield f"| {source} | {error} |" + " |" * (len(MIX_COUNTERS) - 1)
            continue
        yield f"| {source} | {' | '.join(_value(values[counter]) for counter in MIX_COUNTERS)} |"
    yield ""


def _value(value: float | None) -> str:
    if value is None:
        return "missing"
    return f"{value:,.0f}" if value > 1 else f"{value:.5f}"


if __name__ == "__main__":
    main()
