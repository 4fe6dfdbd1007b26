"""Sources of counters, on small real programs of this machine and on literal files."""

from __future__ import annotations

import errno
import platform
import shutil
import sys

import pytest

from apportion.data.counter_table import EXACTNESS, TABLE_I
from apportion.errors import (
    DeadlineExceeded,
    InvalidSetting,
    JobError,
    LimitExceeded,
    MalformedInput,
    WorkerCrashed,
)
from apportion.measure.counters import sources
from apportion.measure.counters.callgrind import CallgrindProfile
from apportion.measure.counters.collect import source_of
from apportion.measure.counters.command import Command, execute
from apportion.measure.counters.elf import ObjectFile
from apportion.measure.counters.emulated import mix_of_blocks
from apportion.measure.counters.perfevents import explained
from apportion.measure.counters.traced import SampledStepSource, StepSource, TraceSource

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="commands are counted on Linux")


def shell(text, **options):
    return Command(("sh", "-c", text), **options)


def test_a_command_that_ends_well_has_a_time():
    assert 0.05 < execute(shell("sleep 0.05")).seconds < 10


def test_a_command_that_fails_says_how():
    with pytest.raises(JobError, match=r"sh ended with exit status 3, not 0; it said: no such luck"):
        execute(shell("echo no such luck >&2; exit 3"))
    assert execute(shell("exit 3", exit_status=3)).seconds > 0


def test_a_command_that_is_killed_or_hangs_says_so():
    with pytest.raises(WorkerCrashed, match=r"sh was ended by a signal \(Killed\)"):
        execute(shell("kill -9 $$"))
    with pytest.raises(DeadlineExceeded, match=r"took longer than 0.2 seconds"):
        execute(shell("sleep 60 & sleep 60", seconds=0.2))


def test_a_command_that_is_none_is_refused_before_anything_runs():
    with pytest.raises(InvalidSetting, match="There is no command"):
        Command(())
    with pytest.raises(InvalidSetting, match="There is no program 'no-such-program'"):
        Command(("no-such-program",))


def test_proc_tells_what_was_read_and_written(tmp_path):
    data = tmp_path / "data"
    data.write_bytes(b"x" * 123_456)
    nothing = source_of("proc").measure(shell(":")).values
    reading = source_of("proc").measure(Command(("cat", str(data))))
    assert reading.values["io_bytes_written"] == 123_456
    assert 123_456 <= reading.values["io_bytes_read"] < 123_456 + 20_000
    assert nothing["io_bytes_written"] == 0
    assert reading.values["page_faults"] > 10
    assert reading.values["page_levels"] in (4, 5, 3)
    assert reading.values["threads"] == 1


def test_a_trace_counts_opened_files_and_started_threads(tmp_path):
    files = [tmp_path / f"{number}" for number in range(5)]
    for file in files:
        file.touch()
    one = TraceSource().measure(Command(("cat", str(files[0])))).values["fds_opened"]
    assert TraceSource().measure(Command(("cat", *map(str, files)))).values["fds_opened"] == one + 4
    vain = Command(("cat", str(files[0]), "/no/such/file"), exit_status=1)
    assert TraceSource().measure(vain).values["fds_opened"] == one
    program = "import threading; t = [threading.Thread(target=int) for _ in range(3)]; [x.start() for x in t]"
    found = TraceSource().measure(Command((sys.executable, "-I", "-S", "-c", program)))
    assert found.values["threads"] == 4


def test_a_traced_command_that_fails_fails():
    with pytest.raises(JobError, match="exit status 7"):
        TraceSource().measure(shell("exit 7"))


def test_every_instruction_can_be_stepped_through(monkeypatch):
    pytest.importorskip("capstone")
    monkeypatch.setitem(StepSource.settings, "most_steps", 5_000)
    with pytest.raises(LimitExceeded, match="too many to step through"):
        StepSource().measure(Command(("true",)))


def test_bursts_tell_the_mix():
    pytest.importorskip("capstone")
    reading = SampledStepSource().measure(shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"))
    assert 0.05 < reading.values["control_ratio"] < 0.4
    assert 0.1 < reading.values["int_ratio"] < 0.8
    assert "instructions" not in reading.values


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_callgrind_counts_instructions_and_simulates_caches():
    pytest.importorskip("capstone")
    found = source_of("callgrind").measure(Command(("true",))).values
    assert found["instructions"] > 50_000
    assert 0.1 < found["int_ratio"] < 0.9
    assert 0 < found["branch_miss_ratio"] < 0.5
    assert 0 < found["l1_miss_hit_ratio"] < 0.5
    assert set(found) == set(source_of("callgrind").counts)


CALLGRIND = """# callgrind format
version: 1
creator: callgrind-3.19.0
positions: instr line
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim
summary: 40 10 6 0 3 1 0 1 0 8 2 0 0

ob=(1) /no/such/program
fl=(1) ???
fn=(1) main
0x1000 0 10 1
+3 0 10 0 1
* 0 5
cob=(2) /no/such/library
cfn=(2) work
calls=1 0x2000 0
+2 0 999 99
+1 0 5

ob=(2)
fn=(2)
0x2000 0 10
"""


def test_a_file_of_callgrind_is_added_up():
    profile = CallgrindProfile()
    profile.read(CALLGRIND.splitlines(keepends=True), "cg.out")
    assert profile.executed["/no/such/program"] == {0x1000: 10, 0x1003: 15, 0x1006: 5}
    assert profile.executed["/no/such/library"] == {0x2000: 10}
    found = profile.counters()
    assert found["instructions"] == 40
    assert found["l1_miss_hit_ratio"] == pytest.approx(4 / 12)
    assert found["ll_miss_hit_ratio"] == pytest.approx(1 / 3)
    assert found["branch_miss_ratio"] == pytest.approx(2 / 8)


def test_a_file_of_callgrind_without_instructions_is_refused():
    with pytest.raises(MalformedInput, match=r"cg.out:1: it has no costs of instructions"):
        CallgrindProfile().read(["positions: line\n"], "cg.out")
    with pytest.raises(MalformedInput, match="cut short"):
        CallgrindProfile().read(CALLGRIND.splitlines(keepends=True)[:4], "cg.out")


def test_blocks_that_qemu_executed_become_a_mix():
    pytest.importorskip("capstone")
    if platform.machine() != "x86_64":
        pytest.skip("the blocks are of x86-64")
    found = mix_of_blocks(["10 8b0301d8\n", "30 74fe\n", "end\n"]).counters()
    assert found["instructions"] == 50
    assert found["control_ratio"] == 30 / 50


def test_an_object_file_is_read_by_its_own_addresses():
    program = ObjectFile.read(sys.executable)
    assert program is not None
    address, place, _, _ = program.segments[0]
    assert program.at(address, 4) == program.data[place : place + 4]
    assert program.at(1 << 60, 4) == b""
    assert sum(map(len, program.code())) > 100
    assert ObjectFile.read(__file__) is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EACCES, "perf_event_paranoid"), (errno.EPERM, "PERFMON"), (errno.ENOENT, "callgrind"),
        (errno.ENOSYS, "perf_event_open"),
    ],
)  # fmt: skip
def test_a_kernel_that_refuses_to_count_is_explained(code, words):
    reason, remedy = explained(OSError(code, "refused"))
    assert words in reason + remedy


def test_every_source_says_what_it_counts_and_how_exactly():
    known = {counter for counters in TABLE_I.values() for counter in counters}
    for name in sources:
        source = source_of(name)
        assert source.name == name
        assert set(source.counts) <= known
        assert set(source.counts.values()) <= set(EXACTNESS)
