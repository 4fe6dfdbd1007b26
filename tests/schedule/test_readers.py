"""Readers of traces: what they make of each form, and a clear answer to everything that is wrong with one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from apportion.errors import ApportionError, InvalidSetting, MalformedInput, UnknownName
from apportion.schedule import TraceRequest, parse_systems, readers, simulate
from apportion.schedule.beliefs import of_file, of_table, with_errors

SPEEDS = """job_type,scale_factor,worker_type,placement,steps_per_s
net,1,v100,packed,10
net,1,k80,packed,0
net,2,v100,packed,18
net,2,v100,spread,1
slow,1,k80,packed,0
slow,1,v100,packed,0
"""
SWF = """; Version: 2
; MaxProcs: 16
1 0 5 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1
2 10 0 -1 4 -1 -1 4 200 -1 0 7 1 3 1 1 -1 -1
3 20 0 50 2 -1 -1 -1 -1 -1 1 8 1 -1 1 1 1 60
"""
SACCT = """JobID|JobName|User|Partition|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|Comment|AdminComment
1|solve|ann|fast|COMPLETED|2026-11-16T10:00:00|2026-11-16T10:00:10|2026-11-16T10:01:50|100|30|cpu=4,node=2|profile=laghos|
2|solve|ann|slow|COMPLETED|2026-11-16T10:00:05|2026-11-16T10:00:10|2026-11-16T10:03:30|200|30|cpu=4,node=2|profile=laghos|
3|other|bob|slow|TIMEOUT|2026-11-16T10:00:06|2026-11-16T10:00:10|2026-11-16T10:03:30|200|3|cpu=4,node=1||
4|other|bob|slow|COMPLETED|2026-11-16T10:00:07|2026-11-16T10:00:10|2026-11-16T10:00:40|30|3|cpu=4,node=1||
"""
SYSTEMS = parse_systems(["a=4", "b=8"])


def read(name, path=None, systems=SYSTEMS, **more):
    return readers.load(name)(TraceRequest(tuple(systems), path, **more))


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def gavel(folder, rows, systems=("v100=2", "k80=2")):
    trace = written(
        folder, "t.csv", "job_id,job_type,scale_factor,total_steps,priority_weight,arrival_s\n" + rows
    )
    speeds = written(folder, "speeds.csv", SPEEDS)
    return read("gavel", trace, parse_systems(list(systems)), throughputs=speeds)


def test_gavels_time_is_steps_over_speed_and_speed_0_means_that_it_cannot_run(tmp_path):
    trace = gavel(tmp_path, "0,net,1,100,1,0\n1,net,2,36,1,5\n")
    assert trace.seconds.tolist() == [[10.0, np.inf], [2.0, np.inf]]
    assert trace.eligible().tolist() == [[True, False], [True, False]]


@pytest.mark.parametrize(
    ("rows", "systems", "message"),
    [
        ("0,net,1,100,1,0\n", ("k80=2",), "Job 0 fits nowhere: none of the systems has a time for it, or its speed there is 0. Add a system that can run it, or leave the job out"),
        ("0,net,2,100,1,0\n", ("v100=1",), "Job 0 fits nowhere: it needs 2 slots at once, and v100 has 1. Give a system more slots, or leave the job out"),
        ("0,net,1,100,1,-5\n", ("v100=1",), "t.csv:2: arrival_s: a job arrives before time 0"),
        ("0,net,1,100,1,9\n1,net,1,100,1,5\n", ("v100=1",), "t.csv:3: arrival_s: time runs backwards: sort by arrival"),
        ("0,net,1,100,1,0\n0,net,1,100,1,5\n", ("v100=1",), "Two jobs are called 0. Give each job a name of its own"),
        ("0,net,1,ten,1,0\n", ("v100=1",), "t.csv:2: total_steps: 'ten' is no number"),
        ("0,net,1,0,1,0\n", ("v100=1",), "t.csv:2: total_steps: a job has one step at least"),
        ("0,nat,1,5,1,0\n", ("v100=1",), "t.csv:2: job_type: 'nat' is not in"),
        ("0,net,1,5,1,0\n", ("v10=1",), "No system in the table of speeds called 'v10'. Did you mean 'v100'?"),
        ("0,net,1,5,1,0\n", ("v100=-1",), "The system 'v100' needs one slot at least, not -1"),
        ("0,net,1,5,1,0\n", ("v100=1", "v100=2"), "The system 'v100' is given twice"),
        ("0,net,1,5,1,0\n", ("v100=x",), "A system is written NAME=SLOTS, such as v100=8, not 'v100=x'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_trace_is_said(tmp_path, rows, systems, message):
    with pytest.raises(ApportionError) as raised:
        gavel(tmp_path, rows, systems)
    assert message in str(raised.value)


def test_swf_takes_processors_asked_for_and_leaves_out_jobs_that_never_ran(tmp_path):
    trace = read("swf", written(tmp_path, "t.swf", SWF), ())
    assert trace.names == ("machine",)
    assert trace.slots.tolist() == [16]
    assert trace.width.tolist() == [4, 2]
    assert trace.limit.tolist() == [200, np.inf]
    assert trace.programs == ("executable 3", "user 8")
    assert trace.notes[0] == "1 jobs without run time or processors are left out"


def test_swf_draws_times_on_other_systems_by_program(tmp_path):
    lines = "".join(
        f"{job} {job} 0 100 1 -1 -1 1 -1 -1 1 7 1 {1 + job % 5} 1 1 -1 -1\n" for job in range(1, 41)
    )
    times = written(tmp_path, "times.csv", "class,seconds:a,seconds:b\nx,10,20\ny,10,5\nexecutable 1,1,100\n")
    trace = read("swf", written(tmp_path, "t.swf", lines), times=times)
    assert set(np.round(trace.seconds[:, 1] / trace.seconds[:, 0], 6)) <= {2.0, 0.5, 100.0}
    for code in range(len(trace.programs)):
        assert len(set(trace.seconds[trace.program == code, 1])) == 1
    known = trace.programs.index("executable 1")
    assert trace.seconds[trace.program == known, 1].tolist() == [10000.0] * 8


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0 5 100 4 -1 -1", "t.swf:1: a line of SWF has 18 numbers, not 7"),
        ("1 0 5 x 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1", "t.swf:1: 'x' is no number"),
        ("1 -3 5 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1", "job 1 was submitted at -3, before time 0"),
        ("1 0 -9 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1", "it starts before it was submitted or ends before it started"),
        ("1 9 0 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1\n2 3 0 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1", "time runs backwards at job 2"),
        ("1 0 0 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1\n1 3 0 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1", "two jobs have the number 1"),
        ("1 0 0 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 2 -1\n2 3 0 100 4 -1 -1 4 200 -1 1 7 1 3 1 1 1 -1", "jobs wait for each other in a circle: 1 → 2 → 1 (field 17)"),
        ("1 0 0 nan 4 -1 -1 4 200 -1 1 7 1 3 1 1 2 -1", "finite numbers only"),
        ("; nothing", "no line is a job"),
        ("1 0 0 -1 4 -1 -1 4 200 -1 1 7 1 3 1 1 -1 -1", "no job has a run time and processors"),
    ],
)  # fmt: skip
def test_a_wrong_line_of_swf_is_named(tmp_path, line, message):
    with pytest.raises(MalformedInput) as raised:
        read("swf", written(tmp_path, "t.swf", line + "\n"), parse_systems(["m=16"]))
    assert message in str(raised.value)


def test_accounting_gives_the_ratio_of_partitions_by_class(tmp_path):
    trace = read("sacct", written(tmp_path, "s.txt", SACCT), parse_systems(["fast=4", "slow=4"]))
    assert trace.programs == ("laghos", "other")
    assert trace.seconds.tolist() == [[100, 200], [100, 200], [np.inf, 30]]
    assert trace.width.tolist() == [2, 2, 1]
    assert trace.limit.tolist() == [1800, 1800, 180]
    assert trace.chosen.tolist() == [0, 1, 1]
    assert "1 jobs that did not complete" in trace.notes[0]


def test_accounting_without_systems_takes_the_partitions_and_their_busiest_moment(tmp_path):
    trace = read("sacct", written(tmp_path, "s.txt", SACCT), ())
    assert [(system.name, system.slots) for system in trace.systems] == [("fast", 2), ("slow", 3)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("JobID|", "Id|", "this is not what sacct prints: JobID missing"),
        ("2026-11-16T10:00:10|2026-11-16T10:01:50", "2026-11-15T10:00:10|2026-11-16T10:01:50", "job 1 starts before it was submitted"),
        ("2026-11-16T10:01:50", "2026-11-16T10:00:05", "job 1 ends before it starts"),
        ("\n2|solve", "\n1|solve", "two jobs have the number 1"),
        ("|100|30|", "|many|30|", "ElapsedRaw: 'many' is no number"),
        ("|profile=laghos|\n2", "|\n2", "12 fields where the header has 13"),
        ("2026-11-16T10:00:00", "yesterday", "'yesterday' is no time such as 2026-11-16T10:00:00"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_accounting_is_said(tmp_path, old, new, message):
    with pytest.raises(MalformedInput) as raised:
        read(
            "sacct",
            written(tmp_path, "s.txt", SACCT.replace(old, new, 1)),
            parse_systems(["fast=4", "slow=4"]),
        )
    assert message in str(raised.value)


def test_our_table_survives_being_written_and_read(tmp_path):
    trace = read("synthetic", jobs=50, load=0.5, largest_width=4)
    for name in ("t.csv", "t.parquet"):
        trace.write(tmp_path / name)
        again = read("table", tmp_path / name)
        assert np.array_equal(again.seconds, trace.seconds)
        assert np.array_equal(again.arrival, trace.arrival)
        assert np.array_equal(
            np.array(again.programs)[again.program], np.array(trace.programs)[trace.program]
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job,arrival_s,seconds:a\n1,0,5\n", "No system in the trace called 'b'"),
        ("job,seconds:a,seconds:b\n1,0,5\n", "a table of jobs has a column arrival_s"),
        ("job,arrival_s,seconds:a,seconds:b\n1,0,5,-5\n", "t.csv:2: a time must be positive"),
        ("job,arrival_s,seconds:a,seconds:b\n1,0,,\n", "Job 1 fits nowhere"),
        ("job,arrival_s,seconds:a,seconds:b\n1,5,1,1\n2,4,1,1\n", "time runs backwards"),
        (
            "job,arrival_s,seconds:a,seconds:b,system\n1,5,1,1,c\n",
            "the user chose 'c', which is none of the systems: a, b",
        ),
        ("job,arrival_s,seconds:a,seconds:b,system\n1,5,1,,b\n", "Job 1 was sent to b, where it cannot run"),
        ("job,arrival_s,seconds:a,seconds:b,width\n1,5,1,1,1.5\n", "width: 1.5 is no whole number"),
        ("", "is not a table"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, message):
    with pytest.raises(ApportionError) as raised:
        read("table", written(tmp_path, "t.csv", text))
    assert message in str(raised.value)


def test_synthetic_jobs_are_the_same_for_a_seed_and_offer_the_load_asked_for():
    one, same, other = (read("synthetic", jobs=20000, load=0.5, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.seconds, same.seconds)
    assert np.array_equal(one.arrival, same.arrival)
    assert not np.array_equal(one.arrival, other.arrival)
    offered = (one.width * one.fastest()).sum() / one.arrival[-1] / one.slots.sum()
    assert offered == pytest.approx(0.5, rel=0.05)
    assert (read("synthetic", jobs=9, load=0).arrival == 0).all()


def test_cycles_move_arrivals_into_the_day():
    trace = read("synthetic", jobs=20000, load=0.01, cycles=True)
    hour = trace.arrival % 86400 / 3600
    assert ((hour > 10) & (hour < 18)).mean() > 1.5 * ((hour < 4) | (hour > 22)).mean()
    assert (np.diff(trace.arrival) >= 0).all()


def test_measured_jobs_are_rows_of_the_table(tmp_path):
    times = written(tmp_path, "times.csv", "class,seconds:a,seconds:b\nx,10,20\ny,3,\n")
    trace = read("measured", times=times, jobs=100)
    assert {tuple(row) for row in trace.seconds.tolist()} == {(10.0, 20.0), (3.0, np.inf)}


def test_errors_of_predictions_are_of_a_class_on_a_system_not_of_a_job():
    trace = read("synthetic", jobs=500)
    beliefs = with_errors(trace, 0.5, seed=4)
    error = np.log2(beliefs.seconds / trace.seconds)
    for code in range(len(trace.programs)):
        assert np.ptp(error[trace.program == code], axis=0).max() < 1e-9
    assert 0.3 < error.std() < 0.7


def test_predictions_by_class_and_their_sigma_are_read_and_unsure_ones_abstain(tmp_path):
    trace = read("synthetic", jobs=30)
    rows = [{"class": name, "predicted:a": 10.0, "predicted:b": 20.0, "sigma:a": 0.5, "sigma:b": 3.0 if number == 0 else 0.5}
            for number, name in enumerate(trace.programs[:-1])]  # fmt: skip
    path = tmp_path / "p.parquet"
    pl.DataFrame(rows).write_parquet(path)
    beliefs = of_file(trace, path)
    unsure = (trace.program == 0) | (trace.program == len(trace.programs) - 1)
    assert np.array_equal(beliefs.abstains if beliefs.abstains is not None else np.zeros(30, bool), unsure)
    assert (beliefs.seconds[~unsure] == [10, 20]).all()


def test_relative_performance_becomes_seconds_by_an_anchor(tmp_path):
    times = written(tmp_path, "times.csv", "class,seconds:a,seconds:b\nx,10,20\n")
    trace = read("measured", times=times, jobs=3)
    lines = (
        '{"run": "x", "target": "centred", "vector": {"a": -1.0, "b": 1.0}, "sigma": {"a": 0.3, "b": 0.4}}\n'
    )
    path = written(tmp_path, "p.jsonl", lines)
    anchored = of_file(trace, path, anchor="a")
    assert anchored.seconds.tolist() == [[10, 40]] * 3
    assert anchored.sigma.tolist() == [[0, 0.4]] * 3
    loose = of_file(trace, path)
    assert not loose.anchored
    with pytest.raises(InvalidSetting, match="relative performance has no seconds"):
        list(simulate(trace, ["eft"], beliefs=loose))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class,predicted:a\nx,1\n", "that of b is missing"),
        ("name,predicted:a,predicted:b\nx,1,1\n", "predictions have a column job or class"),
        ("class,predicted:a,predicted:b\nx,0,1\n", "a predicted time must be positive"),
        ("class,predicted:a,predicted:b\nz,1,1\n", "no class of the trace is predicted"),
        ("class,predicted:a,predicted:b\nx,1,1\nx,1,1\n", "class 'x' is predicted twice"),
    ],
)
def test_what_is_wrong_with_predictions_is_said(tmp_path, text, message):
    times = written(tmp_path, "times.csv", "class,seconds:a,seconds:b\nx,10,20\n")
    with pytest.raises(MalformedInput) as raised:
        of_file(read("measured", times=times, jobs=3), written(tmp_path, "p.csv", text))
    assert message in str(raised.value)


def test_a_trace_without_predictions_says_so():
    with pytest.raises(InvalidSetting, match="The trace has no predictions"):
        of_table(read("synthetic", jobs=3))


def test_an_unknown_format_lists_those_there_are():
    with pytest.raises(UnknownName, match="trace format"):
        readers.load("pbs")
