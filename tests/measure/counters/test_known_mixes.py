"""Counts of programs whose instructions are known one by one, those of run-time code among them."""

from __future__ import annotations

import platform
import shutil

import pytest

from apportion.errors import JobError
from apportion.measure.counters import collect as collecting
from apportion.measure.counters import kept_choice
from apportion.measure.counters.callgrind import CallgrindSource
from apportion.measure.counters.collect import collect, source_of
from apportion.measure.counters.command import Command
from apportion.measure.counters.counter_source import Reading
from apportion.measure.counters.emulated import QemuSource
from apportion.measure.counters.mix import MOST_UNKNOWN, MixCounter
from benchmarks.known_programs import ADD, DECREMENT, known_programs

pytest.importorskip("capstone")
pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs are of x86-64"),
    pytest.mark.skipif(platform.system() != "Linux", reason="the programs are for Linux"),
]


def needs(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


@pytest.mark.parametrize("name", ["callgrind", "qemu", "step"])
def test_every_exact_source_counts_a_program_without_symbols_as_by_hand(tmp_path, name):
    if name != "step":
        needs({"callgrind": "valgrind", "qemu": "qemu-x86_64"}[name])
    program = known_programs(tmp_path)[0]
    found = source_of(name).measure(program.command).values
    assert found["instructions"] == program.expected["instructions"]
    rel = 1e-4 if name == "callgrind" else 1e-12  # it does not list the block in which a process ends
    for counter in ("fp_ratio", "int_ratio", "control_ratio", "mem_ratio"):
        assert found[counter] == pytest.approx(program.expected[counter], rel=rel)
    # In each turn four pairs do not begin with a jump; the two of addition after addition depend.
    assert found["independent_ratio"] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("name", ["qemu", "step"])
def test_code_made_at_run_time_is_counted_by_sources_that_see_memory(tmp_path, name):
    if name == "qemu":
        needs("qemu-x86_64")
    program = known_programs(tmp_path)[1]
    reading = source_of(name).measure(program.command)
    for counter in ("instructions", "fp_ratio", "int_ratio", "control_ratio"):
        assert reading.values[counter] == pytest.approx(program.expected[counter], rel=5e-4)
    assert reading.exactness == {}


def test_of_code_made_at_run_time_callgrind_says_that_it_does_not_know_the_mix(tmp_path):
    needs("valgrind")
    program = known_programs(tmp_path)[1]
    reading = CallgrindSource().measure(program.command)
    assert reading.values["instructions"] == pytest.approx(program.expected["instructions"], rel=5e-4)
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
