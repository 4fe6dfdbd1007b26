"""Placements in a real Slurm, started by the test: three partitions of different speed."""

from __future__ import annotations

import json
import re
import signal
import statistics
import subprocess
import sys
import time

import pytest

from apportion.cli import main
from apportion.errors import JobError
from apportion.schedule.slurm.narrowed import read_narrowed
from tests.slurm_cluster import SlurmCluster, unpacked_slurm

pytestmark = pytest.mark.xdist_group("slurm")

PARTITIONS = {"quartz": 4, "ruby": 4, "lassen": 4}
SECONDS = {"laghos": (1.8, 1.2, 0.6), "amg": (0.6, 1.2, 1.8)}
"Of a job of each class in each partition; the first partition is Slurm's default."
JOB = """#!/bin/bash
case "$SLURM_JOB_PARTITION-$1" in
quartz-laghos|lassen-amg) sleep 1.8;; ruby-*) sleep 1.2;; *) sleep 0.6;;
esac
"""


@pytest.fixture(scope="module")
def packages():
    try:
        return unpacked_slurm()
    except JobError as error:
        pytest.skip(str(error))


@pytest.fixture
def cluster(packages, tmp_path):
    with SlurmCluster(tmp_path / "slurm", PARTITIONS, limits={"lassen": 10}) as there:
        (tmp_path / "job.sh").write_text(JOB)
        rows = [f"{name},{','.join(map(str, times))}" for name, times in SECONDS.items()]
        header = ",".join(f"predicted:{name}" for name in PARTITIONS)
        (tmp_path / "predictions.csv").write_text(f"class,{header}\n" + "\n".join(rows) + "\n")
        yield there


@pytest.fixture
def command(cluster, tmp_path, monkeypatch, capsys):
    """`apportion schedule slurm …` against the cluster; what it prints."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)

    def run(*words):
        with pytest.raises(SystemExit) as left:
            main(["schedule", "slurm", *words, "--conf", str(cluster.configuration)])
        assert left.value.code == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def installed(cluster, command, tmp_path):
    """The cluster with placements, looked at once."""
    command("install")
    command("daemon", "--once", "--predictions", str(tmp_path / "predictions.csv"))
    return cluster


def submit(cluster, folder, key, *words):
    out = cluster.run(
        "sbatch", f"--comment=profile={key}", "-o", "/dev/null", *words, str(folder / "job.sh"), key
    )
    return int(re.search(r"job (\d+)", out)[1])


def shown(cluster, job):
    text = cluster.run("scontrol", "show", "job", str(job))
    return dict(re.findall(r"(\w+)=(\S*)", text))


def test_a_job_goes_where_its_class_ends_first_and_the_user_is_never_overruled(installed, tmp_path, command):
    placed = shown(installed, submit(installed, tmp_path, "laghos"))
    assert placed["Partition"].split(",")[0] == "lassen"
    assert placed["AdminComment"] == "apportion:laghos:model"
    assert shown(installed, submit(installed, tmp_path, "laghos", "-p", "ruby"))["Partition"] == "ruby"
    assert shown(installed, submit(installed, tmp_path, "nobody-knows"))["Partition"] == "quartz"
    assert "AdminComment" not in shown(installed, submit(installed, tmp_path, "laghos", "-w", "quartz1"))
    # lassen takes no job of 20 minutes: it is left out of the list.
    assert "lassen" not in shown(installed, submit(installed, tmp_path, "laghos", "-t", "20"))["Partition"]
    installed.wait_until_idle()
    said = json.loads(command("explain", "1", "--json"))
    assert said["placed_by"] == "apportion"
    command("daemon", "--once", "--dry-run")
    said = json.loads(command("explain", "2", "--json"))
    assert said["placed_by"] == "the user, or Slurm's default"


def test_finished_jobs_come_back_as_data_and_move_the_next_ones(cluster, tmp_path, command):
    command("install")
    # Slurm keeps whole seconds: none is 0, and the partitions differ by two.
    script = '#!/bin/bash\ncase "$SLURM_JOB_PARTITION" in quartz) sleep 5.5;; ruby) sleep 3.5;; *) sleep 1.5;; esac\n'
    (tmp_path / "job.sh").write_text(script)
    for name in PARTITIONS:
        submit(cluster, tmp_path, "laghos", "-p", name)
    cluster.wait_until_idle()
    found = json.loads(command("daemon", "--once", "--json"))
    (placement,) = [one for one in found["placements"] if one["class"] == "laghos"]
    assert placement == {
        "class": "laghos",
        "partitions": ["lassen", "ruby", "quartz"],
        "minutes": 0,
        "from": "history",
    }
    job = submit(cluster, tmp_path, "laghos")
    assert shown(cluster, job)["Partition"].split(",")[0] == "lassen"
    said = json.loads(command("explain", str(job), "--json"))
    assert said["times"]["lassen"]["from"] == "1 run"
    assert said["times"]["lassen"]["seconds"] == pytest.approx(1.0, abs=1.1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda ours: (ours / "placement.d" / "laghos").write_bytes(b"\xff\x00lassen 0 model en"),
        lambda ours: (ours / "placement.d" / "laghos").write_text("nowhere,elsewhere 0 model end\n"),
        lambda ours: (ours / "placement.d" / "laghos").unlink(),
        lambda ours: (ours / "alive").write_text("12"),
        lambda ours: (ours / "alive").write_text("soon"),
        lambda ours: (ours / "alive").unlink(),
    ],
)
def test_a_missing_old_or_broken_table_changes_nothing(shared, damage):
    cluster, folder, renew = shared
    renew()
    assert shown(cluster, submit(cluster, folder, "laghos"))["Partition"].split(",")[0] == "lassen"
    damage(cluster.configuration / "apportion")
    job = shown(cluster, submit(cluster, folder, "laghos"))
    assert (job["Partition"], job.get("AdminComment")) == ("quartz", None)


@pytest.fixture(scope="module")
def shared(packages, tmp_path_factory):
    """One cluster for the tests that damage only its tables."""
    folder = tmp_path_factory.mktemp("shared")
    with SlurmCluster(folder / "slurm", PARTITIONS) as there:
        (folder / "job.sh").write_text("#!/bin/bash\nexit 0\n")
        (folder / "predictions.csv").write_text(
            "class,predicted:quartz,predicted:ruby,predicted:lassen\nlaghos,3,2,1\n"
        )
        words = [sys.executable, "-c", "from apportion.cli import main; main()", "schedule", "slurm"]
        conf = ["--conf", str(there.configuration)]
        there.run(*words, "install", *conf)

        def renew():
            there.run(*words, "daemon", "--once", "--predictions", str(folder / "predictions.csv"), *conf)

        yield there, folder, renew


def test_a_submission_pays_less_than_10_milliseconds_for_it(shared):
    cluster, _, renew = shared
    renew()

    def milliseconds(*words):
        began = time.perf_counter()
        subprocess.run(["sbatch", "-o", "/dev/null", *words, "--wrap", "true"], env=cluster.environment, check=True,
                       capture_output=True)  # fmt: skip
        return 1000 * (time.perf_counter() - began)

    pairs = [(milliseconds("--comment=profile=laghos"), milliseconds("-p", "quartz")) for _ in range(25)]
    assert statistics.median(placed - plain for placed, plain in pairs) < 10


def test_two_hundred_submissions_at_once_lose_no_job(shared):
    cluster, _, renew = shared
    renew()
    started = [
        subprocess.Popen(["sbatch", "--comment=profile=laghos", "-o", "/dev/null", "--wrap", "true"],
                         env=cluster.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(200)
    ]  # fmt: skip
    jobs = {int(re.search(r"job (\d+)", one.communicate(timeout=60)[0])[1]) for one in started}
    assert len(jobs) == 200
    assert all(one.returncode == 0 for one in started)
    states = json.loads(cluster.run("squeue", "--json", "--states=all"))["jobs"]
    assert {state["job_id"] for state in states} >= jobs
    cluster.run("scancel", *map(str, jobs))


def test_sixty_jobs_end_sooner_with_placements_even_when_the_controller_is_restarted(
    cluster, tmp_path, command
):
    keys = ["laghos", "amg", "laghos"] * 20

    def makespan(during=lambda: None):
        first = min([submit(cluster, tmp_path, key) for key in keys])
        during()
        cluster.wait_until_idle(180)
        jobs = [job for job in json.loads(cluster.run("squeue", "--json", "--states=all"))["jobs"]
                if job["job_id"] >= first]  # fmt: skip
        assert len(jobs) == 60
        assert {job["job_state"] for job in jobs} == {"COMPLETED"}
        completion = statistics.mean(job["end_time"] - job["submit_time"] for job in jobs)
        return max(job["end_time"] for job in jobs) - min(job["submit_time"] for job in jobs), completion

    def restart():
        cluster.stop_controller()
        cluster.start_controller()

    plain, plain_mean = makespan()
    command("install")
    words = [sys.executable, "-c", "from apportion.cli import main; main()", "schedule", "slurm", "daemon"]
    words += ["--conf", str(cluster.configuration), "--interval", "1"]
    running = subprocess.Popen([*words, "--predictions", str(tmp_path / "predictions.csv")], env=cluster.environment,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        alive = cluster.configuration / "apportion" / "alive"
        until = time.monotonic() + 20
        while not alive.exists() and time.monotonic() < until:
            time.sleep(0.1)
        placed, placed_mean = makespan(restart)
    finally:
        running.send_signal(signal.SIGTERM)
        notes = running.communicate(timeout=20)[1]
    print(
        f"60 jobs: makespan {plain} s and {placed} s, mean completion {plain_mean:.1f} s and {placed_mean:.1f} s"
    )
    assert "Traceback" not in notes
    assert not alive.exists()  # nobody is placed by it from now on
    assert placed < 0.7 * plain
    assert placed_mean < 0.7 * plain_mean


def test_when_the_daemon_is_killed_waiting_jobs_may_start_in_all_of_their_partitions_again(
    cluster, tmp_path, command
):
    command("install")
    (tmp_path / "job.sh").write_text("#!/bin/bash\nsleep 2\n")
    words = [sys.executable, "-c", "from apportion.cli import main; main()", "schedule", "slurm", "daemon"]
    words += ["--conf", str(cluster.configuration), "--interval", "0.5"]
    running = subprocess.Popen([*words, "--predictions", str(tmp_path / "predictions.csv")], env=cluster.environment,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    ours = cluster.configuration / "apportion"
    states = ("squeue", "--json", "--states=all")

    def waiting(seconds, found):
        until = time.monotonic() + seconds
        while not found() and time.monotonic() < until:
            time.sleep(0.05)
        assert found()

    try:
        waiting(30, (ours / "alive").exists)
        # More than all partitions take at once: the rest waits, each for the partition where it would end first.
        jobs = [submit(cluster, tmp_path, "laghos", "--hold") for number in range(24)]
        cluster.run("scontrol", "release", ",".join(map(str, jobs)))
        waiting(30, lambda: read_narrowed(ours))
    finally:
        running.kill()
        running.wait(20)
    waiting(30, lambda: not (ours / "narrowed.json").exists() and not (ours / "alive").exists())
    found = {job["job_id"]: job for job in json.loads(cluster.run(*states))["jobs"]}
    assert set(found) >= set(jobs)
    left = [found[job]["partition"].split(",") for job in jobs if found[job]["job_state"] == "PENDING"]
    assert all("quartz" in names for names in left)
    cluster.wait_until_idle(120)
    found = {job["job_id"]: job for job in json.loads(cluster.run(*states))["jobs"]}
    assert {found[job]["job_state"] for job in jobs} == {"COMPLETED"}


def test_installing_keeps_an_earlier_script_which_decides_first_and_undo_restores_it(
    cluster, tmp_path, command
):
    script = cluster.configuration / "job_submit.lua"
    earlier = """function slurm_job_submit(job_desc, part_list, uid)
  if job_desc.comment == "profile=forbidden" then return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
    script.write_text(earlier)
    before = sorted(path.name for path in cluster.configuration.rglob("*"))
    assert "would" in command("install", "--dry-run")
    assert sorted(path.name for path in cluster.configuration.rglob("*")) == before
    command("install")
    command("install")
    command("daemon", "--once", "--predictions", str(tmp_path / "predictions.csv"))
    assert shown(cluster, submit(cluster, tmp_path, "laghos"))["Partition"].split(",")[0] == "lassen"
    with pytest.raises(JobError):
        submit(cluster, tmp_path, "forbidden")
    command("undo", "--dry-run")
    command("undo")
    assert script.read_text() == earlier
    assert sorted(path.name for path in cluster.configuration.rglob("*")) == before
