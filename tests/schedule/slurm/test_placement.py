"""Placements worked out from literal queues, and files that are whole wherever the writer is killed."""

from __future__ import annotations

import ast
import math
import re
import signal
import subprocess
import sys

import pytest

from apportion.errors import InvalidSetting, UnreadableFile
from apportion.schedule.readers.sacct import FinishedJob
from apportion.schedule.slurm.cluster import MARK, SlurmJob, SlurmPartition, append_history, read_history
from apportion.schedule.slurm.conf_folder import install, plan_of_install, plan_of_undo
from apportion.schedule.slurm.estimates import ClassPrediction, estimates_of, read_class_predictions
from apportion.schedule.slurm.narrowed import read_narrowed, write_narrowed
from apportion.schedule.slurm.placement import Placement, plan, read_placement, write_placements

QUARTZ = SlurmPartition("quartz", 2, 2, 60, up=True, default=True)
LASSEN = SlurmPartition("lassen", 2, 2, 60, up=True, default=False)


def job(number, partitions, state="PENDING", key="laghos", mark=MARK, started=0.0, processors=1):
    return SlurmJob(number, "job", key, "ann", partitions, state, processors, 0.0, started, 0.0, 60, mark, 1)


def run(partition, seconds, *, completed=True, number="1"):
    return FinishedJob(number, "laghos", "ann", partition, 0.0, 0.0, seconds, 1, math.inf, completed)


def predicted(**seconds):
    return estimates_of([], {"laghos": ClassPrediction(seconds)})


def test_the_partition_where_the_class_ends_first_comes_first_and_the_default_is_there():
    found = plan([QUARTZ, LASSEN], [], predicted(quartz=30, lassen=10))
    assert found.placements == (Placement("laghos", ("lassen", "quartz"), 0, "model"),)


def test_a_partition_slower_than_the_default_is_not_handed_in():
    found = plan([QUARTZ, LASSEN], [], predicted(quartz=10, lassen=30))
    assert found.placements[0].partitions == ("quartz",)


def test_without_a_time_for_the_default_partition_nothing_is_said():
    assert plan([QUARTZ, LASSEN], [], predicted(lassen=30)).placements == ()


def test_a_partition_that_is_down_is_not_handed_in():
    down = SlurmPartition("lassen", 2, 2, 60, up=False, default=False)
    assert plan([QUARTZ, down], [], predicted(quartz=30, lassen=10)).placements[0].partitions == ("quartz",)


def test_waiting_jobs_of_ours_are_spread_by_their_ends_and_others_are_left_alone():
    busy = [SlurmPartition("quartz", 1, 0, 60, True, True), SlurmPartition("lassen", 1, 0, 60, True, False)]
    running = [job(1, ("quartz",), "RUNNING", started=100), job(2, ("lassen",), "RUNNING", started=100)]
    waiting = [job(number, ("lassen", "quartz")) for number in (3, 4, 5)]
    found = plan(
        busy, [*running, *waiting, job(6, ("quartz",), mark="")], predicted(quartz=30, lassen=10), now=100
    )
    # lassen is free after 10 s: ends at 20, 30, 40 there; quartz is free after 30 and takes 30.
    assert found.moves == ((3, ("lassen",)), (4, ("lassen",)), (5, ("lassen",)))
    spread = plan(busy, [*running, *waiting], predicted(quartz=12, lassen=10), now=100)
    assert spread.moves == ((3, ("lassen",)), (4, ("quartz",)), (5, ("lassen",)))


def test_measured_times_come_before_predicted_ones_and_failed_runs_teach_nothing():
    said = {"laghos": ClassPrediction({"quartz": 1.0, "lassen": 50.0})}
    history = [run("quartz", 100.0), run("quartz", 400.0, number="2"), run("lassen", 5.0, completed=False)]
    known = estimates_of(history, said).of("laghos", ["quartz", "lassen"])
    assert known["quartz"].seconds == pytest.approx(200)
    assert known["quartz"].source == "2 runs"
    assert (known["lassen"].seconds, known["lassen"].source) == (50, "predicted")


def test_relative_performance_needs_a_run_to_become_seconds_and_an_unsure_prediction_is_not_used(tmp_path):
    lines = '{"run": "laghos", "vector": {"quartz": 1, "lassen": -1, "ruby": 0}, "sigma": {"ruby": 2.5}}\n'
    (tmp_path / "p.jsonl").write_text(lines)
    said = read_class_predictions(tmp_path / "p.jsonl")
    assert estimates_of([], said).of("laghos", ["quartz", "lassen"]) == {}
    known = estimates_of([run("quartz", 8.0)], said).of("laghos", ["quartz", "lassen", "ruby"])
    assert set(known) == {"quartz", "lassen"}
    assert known["lassen"].seconds == pytest.approx(2)
    assert known["lassen"].source == "relative to quartz"


def test_a_limit_is_the_98th_percentile_of_the_slowest_and_never_above_a_partitions():
    history = [run("quartz", 600.0, number=str(number)) for number in range(3)]
    minutes = plan([QUARTZ], [], estimates_of(history, {}), limits=True).placements[0].minutes
    assert 11 <= minutes <= 13
    short = SlurmPartition("quartz", 2, 2, 8, up=True, default=True)
    assert plan([short], [], estimates_of(history, {}), limits=True).placements[0].minutes == 8


def test_a_placement_survives_being_written_and_read_and_old_ones_go(tmp_path):
    one, other = Placement("laghos", ("lassen", "quartz"), 7), Placement("amg", ("quartz",), 0, "model")
    assert write_placements(tmp_path, [one, other]) == 2
    assert read_placement(tmp_path, "laghos") == one
    assert write_placements(tmp_path, [one, other]) == 0
    assert write_placements(tmp_path, [one]) == 1
    assert read_placement(tmp_path, "amg") is None
    assert read_placement(tmp_path, "../alive") is None


def test_history_keeps_each_job_once_and_passes_over_a_line_cut_off(tmp_path):
    path, known = tmp_path / "history.jsonl", set()
    append_history(path, [run("quartz", 5.0), run("quartz", 5.0)], known)
    with path.open("a") as file:
        file.write('{"job": "2", "prog')
    assert [one.job for one in read_history(path)] == ["1"]
    append_history(path, [run("quartz", 7.0, number="3")], known)
    assert [(one.job, one.seconds) for one in read_history(path)] == [("1", 5.0), ("3", 7.0)]


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from apportion.schedule.slurm.narrowed import read_narrowed, write_narrowed
from apportion.schedule.slurm.placement import Placement, write_placements

folder = Path(sys.argv[1])


def write_on(begun):
    number = 0
    while True:
        number += 1
        partitions = ("lassen", "quartz") if number % 2 else ("quartz",)
        write_placements(folder, [Placement(f"class{one}", partitions, number % 60) for one in range(5)])
        if number == 1:
            os.write(begun, b"1")


drawing = random.Random(0)
for point in range(200):
    heard, begun = os.pipe()
    since = time.monotonic()
    writer = os.fork()
    if writer == 0:
        write_on(begun)
    os.read(heard, 1)
    time.sleep(drawing.uniform(0, 2) * (time.monotonic() - since))
    os.kill(writer, signal.SIGKILL)
    _, status = os.waitpid(writer, 0)
    os.close(heard), os.close(begun)
    there = {path.name: path.read_bytes().decode() for path in (folder / "placement.d").glob("class*")}
    print([os.WTERMSIG(status), there, (folder / "alive").read_text()], flush=True)
"""


def test_killing_the_writer_at_any_of_200_points_leaves_tables_that_slurm_can_read(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    points = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert len(points) == 200
    # Beside the classes' files there may be one that was being written; job_submit.lua asks for none such.
    between = 0
    for killed_by, there, alive in points:
        assert killed_by == signal.SIGKILL
        assert {f"class{one}" for one in range(5)} <= set(there)
        for one in range(5):
            assert re.fullmatch(r"(lassen,)?quartz \d+ \w+ end\n", there[f"class{one}"])
        between += len({there[f"class{one}"] for one in range(5)}) > 1
        assert alive.strip().isdigit()
    assert between > 20  # so many had renewed some of the files and not the others
    # Who comes after takes away what the killed ones left half-written.
    write_placements(tmp_path, [Placement("class0", ("quartz",), 1)])
    assert [path.name for path in (tmp_path / "placement.d").iterdir()] == ["class0"]


def test_installing_needs_slurm_conf_and_undo_refuses_a_script_that_somebody_changed(tmp_path):
    with pytest.raises(UnreadableFile, match=r"There is no slurm\.conf in"):
        plan_of_install(tmp_path)
    (tmp_path / "slurm.conf").write_text("ClusterName=x\n")
    with pytest.raises(InvalidSetting, match="Nothing of apportion is installed in"):
        plan_of_undo(tmp_path)
    install(tmp_path, plan_of_install(tmp_path))
    assert plan_of_install(tmp_path) == []
    script = tmp_path / "job_submit.lua"
    script.write_text(script.read_text() + "-- ours\n")
    with pytest.raises(InvalidSetting, match="was changed since it was installed"):
        plan_of_undo(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"1": 2}', '{"one": ["quartz"]}', "null", "\xff"])
def test_lists_of_narrowed_jobs_survive_being_written_and_a_broken_file_is_none(tmp_path, text):
    assert read_narrowed(tmp_path) == {}
    write_narrowed(tmp_path, {7: ("lassen", "quartz"), 9: ("ruby", "quartz")})
    assert read_narrowed(tmp_path) == {7: ("lassen", "quartz"), 9: ("ruby", "quartz")}
    write_narrowed(tmp_path, {})
    assert read_narrowed(tmp_path) == {}
    (tmp_path / "narrowed.json").write_text(text, encoding="latin-1")
    assert read_narrowed(tmp_path) == {}
