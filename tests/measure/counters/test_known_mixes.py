"""Counts of programs whose instructions are known one by one: made here byte by byte, without symbols.

Both programs run the same loop of three additions of floating-point numbers, a decrement and a jump; one has
it in its file, the other writes it into fresh memory first, as a compiler does that works at run time.
"""

from __future__ import annotations

import platform
import shutil
import stat
import struct
from pathlib import Path

import pytest

from apportion.errors import JobError
from apportion.measure.counters import collect as collecting
from apportion.measure.counters import kept_choice
from apportion.measure.counters.callgrind import CallgrindSource
from apportion.measure.counters.collect import collect, source_of
from apportion.measure.counters.command import Command
from apportion.measure.counters.emulated import QemuSource
from apportion.measure.counters.mix import MOST_UNKNOWN, MixCounter
from apportion.measure.counters.source import Reading

pytest.importorskip("capstone")
pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs are of x86-64"),
    pytest.mark.skipif(platform.system() != "Linux", reason="the programs are for Linux"),
]

TURNS = 20_000
ADD, DECREMENT = bytes.fromhex("f20f58c1"), bytes.fromhex("ffc9")
LOOP = b"\xb9" + struct.pack("<I", TURNS) + 3 * ADD + DECREMENT + b"\x75" + struct.pack("b", -16)
EXIT = bytes.fromhex("31ff b83c000000 0f05")
BASE, HEADERS = 0x400000, 64 + 56
OF_LOOP = 1 + 5 * TURNS


def program(path: Path, code: bytes) -> Path:
    """An executable file with no symbols, no library and no other code than this."""
    entry, size = BASE + HEADERS, HEADERS + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    path.write_bytes(header + struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 4096) + code)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def in_file(folder: Path) -> Command:
    """4 + 5 × TURNS instructions."""
    return Command((str(program(folder / "loop", LOOP + EXIT)),))


def in_fresh_memory(folder: Path) -> Command:
    """The same loop, copied to where nothing was before: 17 + 5 × TURNS instructions, one of them repeated."""
    map_memory = bytes.fromhex(
        "b809000000 31ff be00100000 ba07000000 41ba22000000 49c7c0ffffffff 4531c9 0f05"
    )
    copied = LOOP + b"\xc3"
    length = len(map_memory) + 3 + 7 + 5 + 2 + 2 + len(EXIT)
    copy = bytes.fromhex("4889c7 48c7c6") + struct.pack("<I", BASE + HEADERS + length)
    copy += b"\xb9" + struct.pack("<I", len(copied)) + bytes.fromhex("f3a4 ffd0")
    return Command((str(program(folder / "made", map_memory + copy + EXIT + copied)),))


def needs(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


@pytest.mark.parametrize("name", ["callgrind", "qemu", "step"])
def test_every_exact_source_counts_a_program_without_symbols_as_by_hand(tmp_path, name):
    if name != "step":
        needs({"callgrind": "valgrind", "qemu": "qemu-x86_64"}[name])
    found = source_of(name).measure(in_file(tmp_path)).values
    total = OF_LOOP + 3
    assert found["instructions"] == total
    rel = 1e-4 if name == "callgrind" else 1e-12  # it does not list the block in which a process ends
    assert found["fp_ratio"] == pytest.approx(3 * TURNS / total, rel=rel)
    assert found["int_ratio"] == pytest.approx((TURNS + 1) / total, rel=rel)
    assert found["control_ratio"] == pytest.approx((TURNS + 1) / total, rel=rel)
    assert found["mem_ratio"] == 0
    # In each turn four pairs do not begin with a jump; the two of addition after addition depend.
    assert found["independent_ratio"] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("name", ["qemu", "step"])
def test_code_made_at_run_time_is_counted_by_sources_that_see_memory(tmp_path, name):
    if name == "qemu":
        needs("qemu-x86_64")
    reading = source_of(name).measure(in_fresh_memory(tmp_path))
    assert reading.values["fp_ratio"] == pytest.approx(3 / 5, rel=2e-3)
    assert reading.values["control_ratio"] == pytest.approx(1 / 5, rel=2e-3)
    assert reading.exactness == {}


def test_of_code_made_at_run_time_callgrind_says_that_it_does_not_know_the_mix(tmp_path):
    needs("valgrind")
    reading = CallgrindSource().measure(in_fresh_memory(tmp_path))
    assert reading.values["instructions"] >= OF_LOOP
    assert reading.values["fp_ratio"] is None
    assert reading.values["independent_ratio"] is None
    assert reading.problems["fp_ratio"].reason.startswith("100.0% of the executed instructions")
    assert "--source qemu" in reading.problems["fp_ratio"].remedy


def test_ratios_are_estimated_where_little_is_unknown_and_missing_where_much_is():
    mix = MixCounter()
    mix.add(ADD, None, 1_000)
    assert mix.unknown_share == 0
    mix.unknown = 5
    assert mix.unknown_share < MOST_UNKNOWN
    assert mix.counters()["fp_ratio"] == 1
    mix.unknown = 500
    assert mix.counters() == dict.fromkeys(mix.counters()) | {"instructions": 1_500.0}


def test_a_jump_to_an_instruction_is_no_pair_with_the_one_before_it():
    mix = MixCounter()
    mix.add(ADD, DECREMENT, 100, after=10)
    assert mix.counters()["independent_ratio"] == 1
    mix.add(ADD, ADD, 100, after=30)
    assert mix.counters()["independent_ratio"] == 10 / 40


def test_a_program_that_ends_by_time_is_warned_of(monkeypatch):
    class Slow(QemuSource):
        def measure(self, command: Command) -> Reading:
            return Reading(dict.fromkeys(self.counts, 1.0), 0.52)

    monkeypatch.setattr(collecting, "source_of", lambda name: Slow())
    said: list[str] = []
    for _ in collect(Command(("sleep", "0.5")), ["qemu"], say=said.append):
        pass
    assert any("it seems to end by time, not by work" in words for words in said)


def test_a_command_that_refuses_to_run_twice_is_told_why(tmp_path):
    command = Command(("mkdir", str(tmp_path / "new")))
    with pytest.raises(JobError, match=r"(?s)File exists.*It ended well when it ran before.*often -f"):
        list(collect(command, ["proc"], repeats=2))
    with pytest.raises(JobError) as failed:
        list(collect(Command(("false",)), ["proc"]))
    assert "ended well" not in str(failed.value)


def test_sources_are_probed_once_and_again_when_the_machine_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path))
    probes = []

    def probed() -> list[collecting.Found]:
        probes.append(1)
        return collecting.probe(["proc"])

    monkeypatch.setattr(kept_choice, "probe", probed)
    first = kept_choice.usual_sources()
    assert kept_choice.usual_sources() == first
    assert len(probes) == 1
    monkeypatch.setattr(kept_choice, "__version__", "another")
    assert kept_choice.usual_sources() == first
    assert len(probes) == 2
    (tmp_path / "counters" / "sources.json").write_text("{")
    assert kept_choice.usual_sources() == first
    assert len(probes) == 3
