"""Collecting: rows with sources and times, on real programs; and what is kept when a command fails."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys

import pytest

from apportion.data.counter_table import TABLE_I, CounterTable
from apportion.errors import InvalidSetting, JobError, UnknownName
from apportion.measure.counters import collect as collecting
from apportion.measure.counters.collect import Found, chosen, collect, probe, this_system
from apportion.measure.counters.command import Command
from apportion.measure.counters.counter_source import MissingCounter, Reading

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="commands are counted on Linux")


def test_each_repeat_under_each_source_gives_rows_and_a_time():
    rows = [
        row
        for part in collect(Command(("true",)), ["proc", "trace"], repeats=2, system="here")
        for row in part
    ]
    table = CounterTable.of(rows, [this_system("here")])
    assert {row.repeat for row in rows} == {0, 1}
    assert {row.source for row in rows} == {"clock", "proc", "trace"}
    wide = table.wide()
    assert wide.column("seconds")[1].all()
    assert "collection_seconds" in wide.counters
    with pytest.raises(InvalidSetting, match=r"threads comes from several sources \(proc, trace\)"):
        wide.column("threads")


@pytest.mark.skipif(shutil.which("xz") is None, reason="xz is not installed")
def test_xz_is_counted_without_the_processors_counters(tmp_path):
    data = tmp_path / "data"
    data.write_bytes(bytes(range(256)) * 4_000)
    command = Command(("xz", "-1", "-T1", "-k", "-c", str(data)))
    rows = {
        (row.counter, row.source): row.value
        for part in collect(command, ["proc", "software", "trace"])
        for row in part
    }
    assert rows["io_bytes_read", "proc"] >= 1_024_000
    assert rows["io_bytes_written", "proc"] > 100
    assert rows["page_faults", "proc"] > 100
    assert rows["fds_opened", "trace"] >= 2
    assert rows["threads", "trace"] == 1
    # The kernel's event, where it may be used, counts the same faults.
    if rows["page_faults", "software"] is not None:
        assert rows["page_faults", "software"] == pytest.approx(rows["page_faults", "proc"], rel=0.1)


def test_sqlite_is_counted(tmp_path):
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('create table t (x)'); "
        "c.executemany('insert into t values (?)', [(i,) for i in range(20000)]); c.commit()"
    )
    command = Command((sys.executable, "-c", program, str(tmp_path / "data.db")))
    (rows,) = collect(command, ["proc"], program="sqlite", size="20000")
    values = {row.counter: row.value for row in rows}
    assert values["io_bytes_written"] > 200_000
    assert {row.run for row in rows} == {"sqlite 20000"}


def _namespaces() -> list[str]:
    """What runs a command as a container does: users, processes, mounts and names of its own, no privileges."""
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--ipc", "--uts"]
    if shutil.which(inside[0]) is None:
        pytest.skip("unshare is not installed")
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces cannot be made here")
    return inside


def test_a_program_is_counted_in_a_container_of_namespaces(tmp_path):
    inside = _namespaces()
    data = tmp_path / "data"
    data.write_bytes(bytes(range(256)) * 4_000)
    copy = "import sys; data = open(sys.argv[1], 'rb').read(); open(sys.argv[2], 'wb').write(data[::-1])"
    command = [sys.executable, "-c", copy, str(data), str(tmp_path / "reversed")]
    collecting = [
        sys.executable, "-c", "from apportion.cli import main; main()", "counters", "collect",
        "--source", "proc", "--source", "trace", "--json", "--", *command,
    ]  # fmt: skip
    said = subprocess.run([*inside, *collecting], capture_output=True, text=True, check=True, timeout=120)
    rows = [json.loads(line) for line in said.stdout.splitlines()]
    values = {(row["counter"], row["source"]): row["value"] for row in rows}
    assert values["io_bytes_read", "proc"] >= 1_024_000
    assert values["io_bytes_written", "proc"] >= 1_024_000
    assert values["fds_opened", "trace"] >= 2
    # What a container may not do is said with a reason, and stops nothing.
    asked = [*collecting[:3], "counters", "probe", "--json"]
    probed = subprocess.run([*inside, *asked], capture_output=True, text=True, check=True, timeout=300)
    assert "proc" in probed.stdout


def test_a_command_that_fails_later_leaves_what_was_finished(tmp_path):
    flag = tmp_path / "flag"
    text = f"if [ -e {flag} ]; then echo done before >&2; exit 4; fi; : > {flag}"
    executions = collect(Command(("sh", "-c", text)), ["proc"], repeats=3)
    assert {row.repeat for row in next(executions)} == {0}
    with pytest.raises(JobError, match="exit status 4, not 0; it said: done before"):
        next(executions)


def test_what_cannot_be_asked_for_is_refused():
    with pytest.raises(InvalidSetting, match="repeat must be at least 1"):
        next(collect(Command(("true",)), ["proc"], repeats=0))
    with pytest.raises(UnknownName, match=r"No counter source called 'prf'. Did you mean 'perf'"):
        next(collect(Command(("true",)), ["prf"]))


def test_the_quickest_exact_source_is_chosen_for_the_mix():
    def found(source, value, problem=None):
        return Found("# Instructions", "int_ratio", source, "exact", value, problem)

    broken = MissingCounter("no", "yes")
    all_of_them = [found(name, 0.5) for name in ("proc", "static", "step-sampled", "callgrind", "qemu")]
    assert chosen(all_of_them) == ["proc", "qemu"]
    assert chosen([found("proc", 1.0), found("callgrind", 0.5), found("qemu", None, broken)]) == [
        "proc",
        "callgrind",
    ]
    assert chosen([found("proc", 1.0), found("static", 0.5)]) == ["proc", "static"]


def test_a_slow_source_is_chosen_where_nothing_else_counts_caches_and_branches():
    def found(source, counter):
        return Found("row", counter, source, "exact", 0.5, None)

    mix = [found(name, "int_ratio") for name in ("qemu", "callgrind", "step", "static")]
    assert chosen([found("proc", "threads"), *mix, found("callgrind", "branch_miss_ratio")]) == [
        "proc",
        "callgrind",
    ]
    # Where the processor counts them itself, the quicker one will do.
    own = [found("perf", "branch_miss_ratio"), found("callgrind", "branch_miss_ratio")]
    assert chosen([*mix, *own]) == ["perf", "qemu"]
    assert chosen([*mix, *own, found("ncu", "warp_blocks")]) == ["perf", "ncu", "qemu"]
    # Stepping is for whoever asks for it.
    assert chosen([found("step", "instructions"), found("static", "int_ratio")]) == ["static"]


def test_probing_counts_something_or_says_why_not():
    found = {(one.counter, one.source): one for one in probe(["proc", "perf", "tracepoints", "nvml", "ncu"])}
    assert found["page_faults", "proc"].works
    for one in found.values():
        assert one.works or (one.problem is not None and one.problem.reason and one.problem.remedy)
    assert {one.row for one in found.values()} <= set(TABLE_I)


def test_a_counter_that_stands_still_does_not_work():
    source = collecting.source_of("software")
    reading = collecting._plausible(source, Reading({"page_faults": 0.0}, 1.0))
    assert reading.values["page_faults"] is None
    assert reading.problems["page_faults"].reason == "it counts nothing"
