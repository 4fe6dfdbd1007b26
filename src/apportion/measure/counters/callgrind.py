"""Callgrind as a source: instructions and their mix, exact; caches and branch prediction, simulated."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from apportion.errors import InvalidSetting, MalformedInput
from apportion.measure.counters.command import Command, execute
from apportion.measure.counters.counter_source import CounterSource, Reading, reading_of_mix
from apportion.measure.counters.elf import ObjectFile
from apportion.measure.counters.mix import MixCounter

_COST = re.compile(r"^([+*-]?(?:0x[0-9a-f]+|\d*)) ")
_NAMELESS = "???"
"What callgrind calls code of which it does not know the file."
_LAST_BLOCK = 64
"Instructions at most that callgrind leaves out of a process's list: the block in which it ends."
_SIMULATED = ("l1_miss_hit_ratio", "ll_miss_hit_ratio", "branch_miss_ratio")
_OPTIONS = ("--dump-instr=yes", "--cache-sim=yes", "--branch-sim=yes", "--trace-children=yes")


class CallgrindSource(CounterSource):
    """The command inside valgrind's simulator: some fifty times slower."""

    name = "callgrind"
    counts: ClassVar[Mapping[str, str]] = {
        "instructions": "exact", "int_ratio": "exact", "fp_ratio": "exact", "mem_ratio": "exact",
        "control_ratio": "exact", "independent_ratio": "exact", **dict.fromkeys(_SIMULATED, "simulated"),
    }  # fmt: skip
    slow = True
    slowdown = 50.0

    def measure(self, command: Command) -> Reading:
        valgrind = shutil.which("valgrind")
        if valgrind is None:
            raise InvalidSetting(
                "valgrind is not installed: apt install valgrind, conda install -c conda-forge valgrind, or "
                "module load valgrind"
            )
        with tempfile.TemporaryDirectory(prefix="apportion-") as folder:
            out = f"--callgrind-out-file={folder}/%p.out"
            words = [valgrind, "--tool=callgrind", *_OPTIONS, out, *command.words]
            ended = execute(command, words=words)
            profile = CallgrindProfile(command.program)
            for path in sorted(Path(folder).glob("*.out*")):
                with path.open(errors="replace") as lines:
                    profile.read(lines, str(path))
        values = profile.counters()
        return reading_of_mix(values, profile.unknown_share, ended.seconds)


@dataclass
class CallgrindProfile:
    """What files of callgrind say: the cost of each instruction, and the sums."""

    program: str = ""
    "The command's own file, whose code may be named `???` when it has no symbols."
    executed: dict[str, Counter[int]] = field(default_factory=dict)
    "Object file → address in it → how often the instruction there was executed."
    totals: Counter[str] = field(default_factory=Counter)
    "Event → its sum."
    files: int = 0
    unknown_share: float = 0.0
    "The part of the instructions that lies in no file."

    def read(self, lines: Iterable[str], name: str) -> None:
        """Add a file.

        Raises:
            MalformedInput: it is no file of callgrind with costs of instructions.
        """
        self.files += 1
        numbered = enumerate(lines, start=1)
        objects: dict[str, str] = {}
        current: Counter[int] = Counter()
        events: list[str] = []
        address = 0
        for number, line in numbered:
            if match := _COST.match(line):
                address = _moved(address, match[1], name, number)
                cost = line.split()[2:3]
                if cost:
                    current[address] += int(cost[0])
            elif line.startswith("ob="):
                path = _named(line[3:].strip(), objects)
                current = self.executed.setdefault(path, Counter())
            elif line.startswith("cob="):
                _named(line[4:].strip(), objects)
            elif line.startswith("calls="):
                skipped = next(numbered, (number, ""))  # what the callee cost is not the caller's
                if match := _COST.match(skipped[1]):
                    address = _moved(address, match[1], name, number)
            elif line.startswith("positions:") and line.split()[1] != "instr":
                raise MalformedInput("it has no costs of instructions", file=name, line=number)
            elif line.startswith("events:"):
                events = line.split()[1:]
            elif line.startswith(("summary:", "totals:")) and events:
                # A trailing 0 is not written. A file has both lines, and they say the same.
                self.totals.update(dict(zip(events, map(int, line.split()[1:]), strict=False)))
                events = []
        if not self.totals:
            raise MalformedInput("it is not a file of callgrind, or was cut short", file=name)

    def counters(self) -> dict[str, float | None]:
        """`CallgrindSource.counts`."""
        mix = MixCounter()
        for path, executed in self.executed.items():
            code_of = _fixed_code(self.program) if path == _NAMELESS else ObjectFile.read(path)
            for code, before, times, after in _instructions(code_of, executed, mix):
                mix.add(code, before, times, after=after)
        listed = sum(executed.total() for executed in self.executed.values())
        if self.totals["Ir"] - listed > _LAST_BLOCK * self.files:
            mix.unknown += self.totals["Ir"] - listed
        found, self.unknown_share = mix.counters(), mix.unknown_share
        found["instructions"] = float(self.totals["Ir"])
        sums = self.totals
        accesses = sums["Dr"] + sums["Dw"]
        first, last = sums["D1mr"] + sums["D1mw"], sums["DLmr"] + sums["DLmw"]
        branches, wrong = sums["Bc"] + sums["Bi"], sums["Bcm"] + sums["Bim"]
        return {
            **found,
            "l1_miss_hit_ratio": first / (accesses - first) if accesses > first else None,
            "ll_miss_hit_ratio": last / (first - last) if first > last else None,
            "branch_miss_ratio": wrong / branches if branches else None,
        }


def _fixed_code(program: str) -> ObjectFile | None:
    """The program's file, where it is loaded at the addresses that it names itself."""
    found = ObjectFile.read(program)
    return found if found is not None and found.fixed else None


def _instructions(
    code: ObjectFile | None, executed: Counter[int], mix: MixCounter
) -> Iterator[tuple[bytes, bytes | None, int, int]]:
    """Instructions of an object file, each with the one that stands before it where that leads to it.

    The last number says how often it followed that one: whatever is no control flow always leads on, and
    jumps may lead here besides.
    """
    before: bytes | None = None
    led_here = 0
    end = -1
    for address in sorted(executed):
        found = code.at(address, 16) if code is not None else b""
        decoded = mix.decode(found)
        if decoded is None:
            before, end = None, -1
            yield found, None, executed[address], 0
            continue
        here = found[: decoded.length]
        times = executed[address]
        yield here, before if address == end else None, times, min(times, led_here)
        end, led_here = address + decoded.length, times
        before = here if decoded.kind != "control" else None


def _moved(address: int, word: str, name: str, number: int) -> int:
    """Addresses are written in full, or as what they differ by from the one before."""
    try:
        if word == "*":
            return address
        if word.startswith(("+", "-")):
            return address + int(word, 0)
        return int(word, 0)
    except ValueError:
        raise MalformedInput(f"{word!r} is no address", file=name, line=number) from None


def _named(text: str, known: dict[str, str]) -> str:
    """`(6) /usr/bin/xz` the first time, `(6)` from then on."""
    match = re.match(r"\((\d+)\)\s*(.*)", text)
    if match is None:
        return text
    if match[2]:
        known[match[1]] = match[2]
    return known.get(match[1], _NAMELESS)
