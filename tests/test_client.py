"""The client and `--server`: the same answers and the same errors as on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from apportion import Client
from apportion.cli import main
from apportion.data.published import tpugraphs
from apportion.errors import (
    CompileError,
    DeadlineExceeded,
    InvalidSetting,
    JobError,
    UnreadableFile,
)
from apportion.program.source import Source
from tests.cli.test_rank import layout
from tests.serve.conftest import HANGING, SAXPY, TOKEN, Service
from tests.serve.conftest import service as service

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytestmark = pytest.mark.xdist_group("serve")


@pytest.fixture
def client(service: Service) -> Client:
    return Client(f"{service.base}/#token={TOKEN}", seconds=180)  # this machine may be busy


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.cl"
    path.write_text(SAXPY)
    return path


def printed(capsys, *words: str) -> list[dict]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code in (0, None), capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_client_predicts_and_runs(client, saxpy):
    assert 0 <= client.predict(saxpy, local_size=64, bytes=1 << 20)["cpu_share"] <= 1
    assert client.inspect(saxpy, global_size=1 << 16)["kernel"] == "saxpy"
    assert client.run(saxpy, global_size=4096, repeat=1, cuts=False)["verified"] is True
    assert client.jobs()[0]["state"] == "done"


def test_errors_are_those_of_a_local_call(client, service):
    with pytest.raises(CompileError, match=r"f\.cl:1:"):
        client.predict(Source("__kernel void f( {", "opencl", "f.cl"), local_size=64, bytes=1)
    with pytest.raises(DeadlineExceeded, match="Does the kernel end"):
        client.run(Source(HANGING, "opencl", "h.cl"), global_size=64, seconds=0.5, repeat=1, cuts=False)
    with pytest.raises(JobError, match="token"):
        Client(service.base, token="wrong").jobs()
    with pytest.raises(UnreadableFile, match="No service answers at 127"):
        Client("http://127.0.0.1:9").jobs()
    with pytest.raises(InvalidSetting, match="written like http://"):
        Client("ftp://x")


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "--local-size", "64", "--bytes", "1048576", "--pair", "cgo17-nvidia"),
        ("explain", "--local-size", "64", "--bytes", "1048576"),
        ("graph",),
        ("analyze", "--analysis", "reachability"),
    ],
    ids=lambda words: words[0],
)
def test_a_verb_answers_the_same_by_a_server(capsys, monkeypatch, service, saxpy, words):
    monkeypatch.chdir(saxpy.parent)
    name, *options = words
    (here,) = printed(capsys, name, "saxpy.cl", *options, "--json")
    (there,) = printed(capsys, name, "saxpy.cl", *options, "--json", "--server", service.base)
    for answer in (here, there):
        answer.pop("milliseconds", None)
        answer.pop("warnings", None)
    assert there == here


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "--local-size", "64", "--bytes", "1048576", "--pair", "cgo17-nvidia"),
        ("explain", "--local-size", "64", "--bytes", "1048576"),
        ("graph",),
        ("analyze", "--analysis", "reachability"),
    ],
    ids=lambda words: words[0],
)
def test_a_server_compiles_as_the_project_says(capsys, monkeypatch, service, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "types.h").write_text("typedef T value;\n")
    (tmp_path / "apportion.toml").write_text('[build]\noptions = "-cl-fast-relaxed-math -D WIDE"\n')
    (tmp_path / "f.cl").write_text(
        """#include "types.h"
        #ifdef WIDE
        kernel void f(global value *x, int n) { x[get_global_id(0)] += FACTOR; }
        #endif
        """
    )
    name, *options = words
    options += ["-D", "T=float", "--build-options", "-DFACTOR=3", "--json"]
    (here,) = printed(capsys, name, "f.cl", *options)
    (there,) = printed(capsys, name, "f.cl", *options, "--server", service.base)
    for answer in (here, there):
        answer.pop("milliseconds", None)
        answer.pop("warnings", None)
    assert there == here


def test_a_service_reads_no_folders_for_a_build(client):
    source = Source("kernel void f(global float *x) { *x = 1; }", "opencl", "f.cl")
    form = {"source": {"text": source.text, "build_options": "-I /etc"}, "local_size": 64, "bytes": 64}
    with pytest.raises(InvalidSetting, match="reads no files"):
        client.ask("POST", "/api/predict", form)


def of_both(capsys, service, *words: str) -> tuple[list[dict], list[dict]]:
    """What a command prints here, and by a server; without what was measured meanwhile."""
    found = []
    for more in ((), ("--server", f"{service.base}/#token={TOKEN}")):
        said = printed(capsys, *words, "--json", *more)
        rows = said[0] if isinstance(said[0], list) else said
        other = ("policy_cpu_s", "simulator_cpu_s", "jobs_per_cpu_s")
        found.append([{k: v for k, v in row.items() if k not in other} for row in rows])
    return found[0], found[1]


def test_schedules_of_a_trace_are_the_same_by_a_server(capsys, service, tmp_path):
    trace = tmp_path / "jobs.csv"
    rows = [f"{job},{10 * job},{60 + job},{90 - job}" for job in range(20)]
    trace.write_text("\n".join(["job,arrival_s,seconds:a,seconds:b", *rows]) + "\n")
    words = ("schedule", "simulate", "--trace", str(trace), "--systems", "a=2", "b=1", "--policy", "eft")
    here, there = of_both(capsys, service, *words)
    assert there == here
    assert here[0]["completed"] == 20
    assert there[0]["repeat"]["trace"] == str(trace)


def test_a_run_for_least_energy_tells_the_same_joules_by_a_server(capsys, service, saxpy):
    words = ("run", str(saxpy), "-n", "4096", "--repeat", "1", "--devices", "cpu,cpu2", "--objective", "energy",
             "--watts", "cpu=5000", "--watts", "cpu2=5:1")  # fmt: skip
    (here,), (there,) = of_both(capsys, service, *words)
    assert set(there) - {"devices", "launch", "work", "metered"} == set(here)
    for said in (here["energy"], there["energy"]):
        assert said["watts"] == {"idle": 1.0, "cpu": 5000.0, "cpu2": 5.0}
        assert said["origin"] == {"cpu": "given", "cpu2": "given"}
        assert said["joules"] < said["alone"]["cpu"]
    assert there["energy"].keys() == here["energy"].keys()
    assert there["split"] == here["split"]
    with pytest.raises(SystemExit):
        main([*words, "--split", "even", "--server", f"{service.base}/#token={TOKEN}"])
    assert "chooses the split itself" in capsys.readouterr().err


def test_recorded_tables_are_tuned_and_ranked_the_same_by_a_server(capsys, service, tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"{x},{y},{1 + abs(x - 4) + abs(y - 16) / 8}" for x in (1, 2, 4, 8) for y in (8, 16, 32)]
    table.write_text("\n".join(["x,y,seconds", *rows]) + "\n")
    here, there = of_both(capsys, service, "tune", "--recorded", str(table), "--budget", "6", "--seeds", "2")
    assert there == here
    layouts = tmp_path / "npz/layout/xla/random/valid/g.npz"
    layouts.parent.mkdir(parents=True)
    tpugraphs.write(layouts, layout(60))
    words = ("tune", "--recorded", str(layouts), "--budget", "12")
    here, there = of_both(capsys, service, *words)
    assert there == here
    printed(capsys, "rank", "pack", str(tmp_path / "npz"), "--out", str(tmp_path / "store"), "--json")
    words = ("rank", "score", str(tmp_path / "store"), "--baseline", "ridge", "--measured", "20")
    here, there = of_both(capsys, service, *words)
    assert there == here


def test_a_profile_is_ordered_the_same_by_a_server(capsys, service, client, tmp_path):
    profiles = tmp_path / "profiles.json"
    profiles.write_text(json.dumps(client.ask("GET", "/api/examples/profiles")))
    here, there = of_both(capsys, service, "relative", "predict", str(profiles))
    assert there == here
    assert len(there) == 3


def test_what_perf_counted_becomes_profiles_by_a_server(capsys, service, tmp_path):
    run = tmp_path / "run.json"
    run.write_text('{"counter-value" : "1000.0", "unit" : "", "event" : "instructions"}\n')
    out, address = tmp_path / "profiles.json", f"{service.base}/#token={TOKEN}"
    words = ("counters", "import", str(run), "--program", "p", "--json", "--server", address, "--out")
    (answer,) = printed(capsys, *words, str(out))
    assert answer["rows"] == 1
    assert 1000.0 in json.loads(out.read_text())[0]["counters"].values()
    with pytest.raises(SystemExit):
        main([*words, str(tmp_path / "t.parquet")])
    assert "--out t.json" in capsys.readouterr().err


def test_a_server_measures_into_a_table_and_trains_on_it(capsys, service, saxpy, tmp_path):
    address = f"{service.base}/#token={TOKEN}"
    (saxpy.parent / "sources").mkdir()
    for name, change in (("one", "1.0f"), ("two", "2.0f * y[i]"), ("three", "y[i] * y[i]")):
        text = "__kernel void f(__global float* y) { int i = get_global_id(0); y[i] += " + change + "; }"
        (saxpy.parent / "sources" / f"{name}.cl").write_text(text)
    words = ("--sizes", "4096", "--local-sizes", "64", "--seconds", "0.05", "--json", "--server", address)
    points = printed(capsys, "measure", str(tmp_path / "sources"), "--out", str(tmp_path / "m"), *words)
    table = pl.read_parquet(tmp_path / "m/measurements.parquet")
    assert len(points) == len(table)
    assert set(table["kernel"]) == {"f"}
    first, second = sorted(set(table["device"]))
    experiment = tmp_path / "mine.toml"
    experiment.write_text(
        'learner = "share-forest"\n[data]\npair = "mine"\nmeasurements = "m"\nsources = "sources"\n'
        f'cpu = "{first}"\ngpu = "{second}"\n'
    )
    (answer,) = printed(capsys, "train", str(experiment), "--json", "--server", address)
    assert answer["mine"]["test"]["rows"] == 3
    assert answer["mine"]["model"].startswith("mine")


def test_jobs_are_listed_followed_cancelled_and_answered_by_the_command_line(capsys, client, service, saxpy):
    address = ("--server", f"{service.base}/#token={TOKEN}")
    form = {"source": {"text": SAXPY, "name": "saxpy.cl"}, "global_size": 4096, "repeat": 1, "cuts": False}
    id = client.ask("POST", "/api/run", {**form, "name": "followed"})["id"]
    *events, last = printed(capsys, "jobs", "follow", id, "--json", *address)
    assert events[0]["stage"] == "compiling"
    assert (last["id"], last["state"]) == (id, "done")
    (job,) = printed(capsys, "jobs", "show", id, "--json", *address)
    assert job == client.job(id)
    (answer,) = printed(capsys, "jobs", "result", id, "--json", *address)
    assert answer == job["answer"]
    assert answer["verified"] is True
    listed = printed(capsys, "jobs", "list", "--state", "done", "--json", *address)
    assert {"id": id, "name": "followed"}.items() <= listed[0].items()
    assert {one["state"] for one in listed} == {"done"}
    (latest,) = printed(capsys, "jobs", "--limit", "1", "--json", *address)
    assert latest["id"] == id
    hanging = {**form, "source": {"text": HANGING, "name": "h.cl"}, "global_size": 64, "seconds": 60}
    hung = client.ask("POST", "/api/run", hanging)["id"]
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "result", hung, *address])
    assert ended.value.code == 1
    assert re.search(rf"The job {hung} is (waiting|running)", capsys.readouterr().err)
    (cancelled,) = printed(capsys, "jobs", "cancel", hung, "--json", *address)
    assert cancelled["id"] == hung
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "follow", hung, *address])
    assert ended.value.code == 1
    assert "h.cl: cancelled" in capsys.readouterr().out


def test_jobs_are_told_in_words_and_asked_of_the_server_that_the_environment_names(
    capsys, client, monkeypatch, service, saxpy
):
    monkeypatch.setenv("APPORTION_SERVER", service.base)
    monkeypatch.setenv("APPORTION_TOKEN", TOKEN)
    client.run(saxpy, global_size=4096, repeat=1, cuts=False, name="in words")
    id = client.jobs(limit=1)[0]["id"]
    for words, said in (
        (("list", "--limit", "1"), "in words"),
        (("show", id), "done"),
        (("result", id), "saxpy"),
        (("follow", id), "in words: done"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["jobs", *words])
        out = capsys.readouterr().out
        assert ended.value.code in (0, None)
        assert said in out
    for words, said in (
        (("show", "0" * 16), "No job called"),
        (("show", "../devices"), "There is nothing at this address"),
        (("list", "--state", "resting"), "No state of jobs called 'resting'"),
        (("list", "--server", "http://127.0.0.1:9"), "No service answers at 127.0.0.1:9"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["jobs", *words])
        assert ended.value.code == 1
        assert said in capsys.readouterr().err


def test_a_table_is_printed_where_no_json_is_asked_for(capsys, service, saxpy):
    with pytest.raises(SystemExit):
        main(["devices", "--server", service.base])
    assert "answer" in capsys.readouterr().out


def test_what_a_server_cannot_do_is_told(capsys, service, saxpy):
    for words, message in (
        (["suite", "--server", service.base], "No command for --server called 'suite'"),
        (["tune", "--server", service.base], "give a table that was --recorded"),
        (
            ["predict", str(saxpy), "--batch", "x.csv", "--server", service.base],
            "--batch works on this machine",
        ),
        (["predict", str(saxpy), "--server"], "--server needs the address"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 1
        assert message in capsys.readouterr().err
