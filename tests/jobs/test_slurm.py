"""Items over a real Slurm, started by the tests."""

from __future__ import annotations

import threading
import time

import pytest

from apportion.errors import JobError, WorkerCrashed
from apportion.jobs import runner_of
from apportion.jobs.slurm import SlurmRunner
from apportion.testing.runner_checks import RunnerChecks, by_index, double
from tests.slurm_cluster import SlurmCluster, unpacked_slurm

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    try:
        unpacked_slurm()
    except JobError as error:
        pytest.skip(str(error))
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), {"main": 4}) as there:
        yield there


@pytest.fixture
def cluster(started, monkeypatch, tmp_path):
    for name, value in started.environment.items():
        if name not in ("LD_LIBRARY_PATH", "PATH") or value:
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return started


class TestSlurmRunner(RunnerChecks):
    @pytest.fixture(autouse=True)
    def _on_the_cluster(self, cluster):
        pass

    def runner(self):
        return SlurmRunner(workers=2, poll_seconds=0.1)


def test_an_interrupted_map_goes_on_with_what_was_done(cluster, tmp_path):
    runner = SlurmRunner(workers=1, folder=tmp_path / "kept", batch=2, poll_seconds=0.1)
    outcomes = runner.map(double, range(6))
    first = next(outcomes)
    outcomes.close()
    done = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.outcome")}
    assert first.succeeded
    assert done
    again = by_index(runner.map(double, range(6)))
    assert {index: outcome.unwrap() for index, outcome in again.items()} == {
        index: 2 * index for index in range(6)
    }
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.outcome")}
    assert {name: after[name] for name in done} == done
    jobs = cluster.run("squeue", "--noheader")
    began = time.monotonic()
    assert len(list(runner.map(double, range(6)))) == 6
    assert time.monotonic() - began < 1
    assert cluster.run("squeue", "--noheader") == jobs


def test_a_task_that_is_cancelled_is_handed_in_again_and_then_given_up(cluster, tmp_path):
    runner = SlurmRunner(workers=1, retries=0, poll_seconds=0.1)
    outcomes = runner.map(time.sleep, [30.0])
    cancelled = []
    earlier = set(cluster.run("squeue", "--noheader", "--states=all", "--format=%A").split())

    def cancel():
        while not cancelled:
            running = cluster.run("squeue", "--noheader", "--states=R", "--format=%A").split()
            cancelled.extend(set(running) - earlier)
            time.sleep(0.1)
        cluster.run("scancel", *cancelled)

    helper = threading.Thread(target=cancel)
    helper.start()
    (outcome,) = outcomes
    helper.join()
    assert isinstance(outcome.error, WorkerCrashed)
    assert "ended without an outcome, 1 times" in str(outcome.error)


def test_the_runner_is_written_slurm_and_its_partition():
    assert runner_of("slurm:gpu", workers=4) == SlurmRunner("gpu", workers=4)


def test_without_slurm_its_absence_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JobError, match="There is no command sbatch here"):
        list(SlurmRunner().map(double, [1]))
