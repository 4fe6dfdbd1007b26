"""The service: every answer is the command line's, jobs are done, cancelled, and survive a kill."""

from __future__ import annotations

import json
import time
from dataclasses import fields

import pytest
from pydantic import ValidationError

from apportion.cli import main
from apportion.measure.campaign import Point
from apportion.serve.failures import Refused, without_paths
from apportion.serve.history import History
from apportion.serve.jobs import JobBoard
from apportion.serve.pool import Pool
from tests.serve.conftest import HANGING, MATMUL, SAXPY, TOKEN, Answer, Service, as_described, opencl

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytestmark = pytest.mark.xdist_group("serve")

SQUARES = """__kernel void squares(__global float* x) {
    int i = get_global_id(0);
    float y = x[i];
    for (int k = 0; k < 50; k++) y = y * y + 0.25f;
    x[i] = y;
}"""
LAUNCH = {"local_size": 64, "bytes": 1 << 20}


def said(capsys, *words: str) -> list[dict]:
    """What a command prints as JSON."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert ended.value.code in (0, None)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def without(answer: dict, *names: str) -> dict:
    return {name: value for name, value in answer.items() if name not in names}


def test_a_prediction_is_that_of_the_command_line(service, tmp_path, capsys):
    file = tmp_path / "matmul.cl"
    file.write_text(MATMUL)
    words = ("predict", str(file), "--local-size", "64", "--bytes", str(1 << 20))
    (expected,) = said(capsys, *words, "--pair", "cgo17-nvidia")
    for _ in range(2):  # described anew, and known
        answer = service.ask("POST", "/api/predict", {"source": opencl(MATMUL, "matmul.cl"), **LAUNCH})
        assert answer.status == 200
        assert without(answer.json, "milliseconds", "warnings") == without(expected, "milliseconds")


def test_a_prediction_for_the_service_s_own_machine_tells_each_of_its_devices(service):
    assert len(service.ask("GET", "/api/devices").json) >= 2
    body = {"source": opencl(MATMUL, "matmul.cl"), **LAUNCH, "pair": "this-machine"}
    body |= {"local_size": [16, 4], "global_size": [64, 64]}
    answer = service.ask("POST", "/api/predict", body)
    assert answer.status == 200, answer.text
    assert len(answer.json["machine"]["devices"]) >= 2
    usual = service.ask("POST", "/api/predict", body | {"pair": None}).json
    assert without(usual, "milliseconds") == without(answer.json, "milliseconds")


def test_the_known_kernels_most_like_one_are_named(service):
    answer = service.ask("POST", "/api/predict", {"source": opencl(SAXPY, "saxpy.cl"), **LAUNCH}).json
    assert [set(near) for near in answer["nearest"]] == [{"kernel", "distance"}] * 3
    assert "Add" in answer["nearest"][0]["kernel"]


def test_a_prediction_by_times_is_that_of_the_command_line(service, tmp_path, capsys):
    file = tmp_path / "matmul.cl"
    file.write_text(MATMUL)
    more = {"global_size": 4096, "pair": "xeon-h200"}
    words = ("--local-size", "64", "--bytes", str(1 << 20), "--global-size", "4096", "--pair", "xeon-h200")
    (expected,) = said(capsys, "predict", str(file), *words)
    answer = service.ask("POST", "/api/predict", {"source": opencl(MATMUL, "matmul.cl"), **LAUNCH, **more})
    assert without(answer.json, "milliseconds", "warnings") == without(expected, "milliseconds")


def test_many_launches_are_answered_at_once_and_one_that_fails_costs_the_others_nothing(service):
    body = {
        "launches": [
            {"source": opencl(SAXPY), "local_size": 64, "bytes": size} for size in (1 << 10, 1 << 20, 1 << 30)
        ]
        + [{"source": opencl("__kernel void f( {"), **LAUNCH}]
    }
    answers = service.ask("POST", "/api/predict/batch", body).json
    alone = service.ask("POST", "/api/predict", body["launches"][1]).json
    assert without(answers[1], "milliseconds") == without(alone, "milliseconds")
    assert answers[3]["error"]["kind"] == "CompileError"


def test_an_explanation_is_that_of_the_command_line(service, tmp_path, capsys):
    file = tmp_path / "saxpy.cl"
    file.write_text(SAXPY)
    (expected,) = said(capsys, "explain", str(file), "--local-size", "64", "--bytes", str(1 << 20))
    answer = service.ask("POST", "/api/explain", {"source": opencl(SAXPY, str(file.name)), **LAUNCH}).json
    assert without(answer, "warnings", "kernel") == without(expected, "kernel")


@pytest.mark.parametrize(
    ("words", "address"),
    [(("devices",), "devices"), (("models", "list"), "models"), (("doctor",), "doctor")],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_here_is_told_as_by_the_command_line(service, capsys, words, address):
    expected = said(capsys, *words)
    answer = service.ask("GET", f"/api/{address}").json
    if address == "doctor":
        (expected,) = expected
        same = ("apportion", "packages", "compilers", "gpus", "missing", "healthy")
        cut = without_paths({name: expected[name] for name in same})
        assert {name: answer[name] for name in same} == cut
        assert set(answer) == set(expected)
        return
    if address == "devices":  # speeds of this machine are kept for both, or measured by whoever is first
        expected, answer = ([without(one, "calibration") for one in all] for all in (expected, answer))
    assert answer == expected


def test_a_run_says_what_the_command_line_says(service, tmp_path, capsys):
    file = tmp_path / "saxpy.cl"
    file.write_text(SAXPY)
    (expected,) = said(capsys, "run", str(file), "-n", "4096", "--repeat", "1")
    body = {"source": opencl(SAXPY, "saxpy.cl"), "global_size": 4096, "repeat": 1, "cuts": False}
    answer = service.job("/api/run", body)["answer"]
    assert set(answer) == {*expected, "devices", "launch", "work", "metered"}
    assert answer["energy"] is expected["energy"] is None
    assert answer["printed"] == ""
    assert answer["confinement"] is not None
    for name in ("kernel", "work_items", "verified", "merge", "conflicts"):
        assert answer[name] == expected[name]


def test_a_graph_and_its_analyses_are_those_of_the_command_line(service, tmp_path, capsys):
    file = tmp_path / "saxpy.cl"
    file.write_text(SAXPY)
    (expected,) = said(capsys, "graph", str(file))
    graph = service.ask("POST", "/api/graph", {"source": opencl(SAXPY, str(file))})
    assert graph.status == 422  # a path is no name
    graph = service.ask("POST", "/api/graph", {"source": opencl(SAXPY, "saxpy.cl")}).json
    assert graph["nodes"] == expected["nodes"]
    (expected,) = said(capsys, "analyze", str(file), "--analysis", "dominance")
    body = {"source": opencl(SAXPY, "saxpy.cl"), "analysis": "dominance"}
    assert service.ask("POST", "/api/analyze", body).json == expected


def test_an_inspection_is_that_of_the_command_line(service, tmp_path, capsys):
    file = tmp_path / "matmul.cl"
    file.write_text(MATMUL)
    (expected,) = said(capsys, "inspect", str(file), "-n", "256x256", "--arg", "n=256")
    body = {"source": opencl(MATMUL, "matmul.cl"), "global_size": [256, 256], "arguments": ["n=256"]}
    answer = service.ask("POST", "/api/inspect", body).json
    assert answer["lines"]
    assert answer["machines"]
    learned = [one for one in answer["machines"] if one["name"] != "this machine"]
    assert learned == [one for one in expected["machines"] if one["name"] != "this machine"]
    assert [line["line"] for line in answer["lines"]] == [line["line"] for line in expected["lines"]]


def test_a_broken_kernel_is_told_with_its_line(service):
    broken = "__kernel void f(__global int* x)\n{\n    x[0] = y;\n}\n"
    answer = service.ask("POST", "/api/inspect", {"source": opencl(broken)})
    assert answer.status == 422
    error = answer.json["error"]
    assert (error["kind"], error["line"], error["column"]) == ("CompileError", 3, 12)
    assert "undeclared identifier" in error["message"]


@pytest.mark.parametrize("address", ["graph", "predict"])
def test_half_a_letter_that_a_compiler_quotes_is_no_fault(service, address):
    # LLVM quotes some bytes of what it cannot read, and the last letter may be cut.
    texts = ["x" * more + "\u00fc" * 40 for more in range(2)]
    for text in (*texts, "e6L\u00e6\u00eb\u00a3\u00f0\U0009a798\u00f0\u00c2\u00f0\u00c2\u00f0\u00c2"):
        source = {"text": text, "name": "f.ll", "language": "llvm"}
        answer = service.ask(
            "POST", f"/api/{address}", {"source": source, **(LAUNCH if address == "predict" else {})}
        )
        assert answer.status == 422, answer.text
        assert "expected a top-level entity" in answer.json["error"]["message"]
        answer.text.encode()  # valid Unicode


def test_an_unknown_field_and_a_wrong_value_are_named(service):
    answer = service.ask("POST", "/api/predict", {"source": opencl(SAXPY), "local_size": 64, "byts": 1})
    assert answer.status == 422
    assert "byts" in answer.json["error"]["message"]
    answer = service.ask("POST", "/api/predict", {"source": opencl(SAXPY), "local_size": 0, "bytes": 1})
    assert "local_size must be 1 to 2^48" in answer.json["error"]["message"]


def test_the_doctor_answers_without_paths(service):
    findings = service.ask("GET", "/api/doctor").json
    assert findings["healthy"] is True
    assert findings["python"]["executable"].startswith("python")


def test_a_run_is_verified_and_holds_its_timeline_and_its_curve(service):
    body = {"source": opencl(SAXPY, "saxpy.cl"), "global_size": 1 << 16, "repeat": 2, "name": "first"}
    job = service.job("/api/run", body)
    assert job["state"] == "done", job["error"]
    answer = job["answer"]
    assert answer["kernel"] == "saxpy"
    assert answer["verified"] is True
    assert len(answer["repeats"]) == 2
    assert answer["timeline"]
    assert answer["curve"] or len(answer["devices"]) == 1
    assert job["name"] == "first"
    metered = answer["metered"]
    assert (metered["joules"] is None) == ("Energy cannot be read here" in metered["reason"])
    assert answer["energy"] is None


def test_a_run_checks_bounds_and_tells_what_the_kernel_printed(service):
    text = """__kernel void f(__global const int* index, __global int* x) {
        int i = get_global_id(0);
        if (i == 0) printf("hello\\n");
        x[index[i]] = i;
    }"""
    body = {"source": opencl(text), "global_size": 64, "repeat": 1, "cuts": False, "devices": ["cpu"]}
    inside = service.job("/api/run", {**body, "arguments": ["index=int32[64]=zeros", "x=int32[32]"]})
    assert inside["state"] == "done", inside["error"]
    assert inside["answer"]["printed"] == "hello\n"
    assert inside["answer"]["checked"]["groups"] >= 1
    outside = service.job("/api/run", {**body, "arguments": ["index=int32[64]=range", "x=int32[32]"]})
    assert outside["state"] == "failed"
    assert outside["error"]["kind"] == "OutOfBoundsWrite"
    assert "x[32]" in outside["error"]["message"]


def test_what_a_job_says_comes_as_events_from_any_of_them_on(service):
    body = {"source": opencl(SAXPY, "saxpy.cl"), "global_size": 1 << 12, "repeat": 1, "cuts": False}
    job = service.job("/api/run", body)
    stream = service.ask("GET", f"/api/jobs/{job['id']}/events").text
    numbers = [int(line[4:]) for line in stream.splitlines() if line.startswith("id: ")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert stream.rstrip().splitlines()[-2] == "event: end"
    rest = service.ask("GET", f"/api/jobs/{job['id']}/events", headers={"Last-Event-ID": "2"}).text
    assert "id: 2\n" not in rest
    assert "id: 3\n" in rest


def test_a_hanging_kernel_is_stopped_and_the_next_one_runs(service):
    body = {"source": opencl(HANGING), "global_size": 64, "seconds": 0.5, "repeat": 1, "cuts": False}
    job = service.job("/api/run", body)
    assert job["state"] == "failed"
    assert job["error"]["kind"] == "DeadlineExceeded"
    good = {"source": opencl(SAXPY), "global_size": 1024, "repeat": 1, "cuts": False}
    assert service.job("/api/run", good)["state"] == "done"


def test_a_job_is_cancelled_while_it_runs_and_while_it_waits(service):
    body = {"source": opencl(HANGING), "global_size": 64, "seconds": 60, "repeat": 1}
    first = service.ask("POST", "/api/run", body).json["id"]
    second = service.ask("POST", "/api/run", body).json["id"]
    until = time.monotonic() + 30
    while service.ask("GET", f"/api/jobs/{first}").json["state"] == "waiting" and time.monotonic() < until:
        time.sleep(0.05)
    assert service.ask("DELETE", f"/api/jobs/{first}").status == 422  # it runs
    for id in (second, first):
        assert service.ask("POST", f"/api/jobs/{id}/cancel").json["state"] == "cancelled"
    assert service.ask("POST", f"/api/jobs/{first}/cancel").status == 422
    good = {"source": opencl(SAXPY), "global_size": 1024, "repeat": 1, "cuts": False}
    assert service.job("/api/run", good)["state"] == "done"


def test_kernels_are_measured_point_by_point(service):
    body = {
        "sources": [opencl(SAXPY, "saxpy.cl")], "sizes": [4096], "local_sizes": [64], "seconds": 0.1,
        "devices": ["cpu"],
    }  # fmt: skip
    job = service.job("/api/measure", body)
    assert job["state"] == "done", job["error"]
    (point,) = job["answer"]["points"]
    assert (point["kernel"], point["device"], point["failure"]) == ("saxpy", "cpu", "")
    assert point["source"] == "saxpy.cl"
    assert set(point) == {each.name for each in fields(Point)} | {"work"}  # what `apportion measure` prints
    assert point["work"]["bytes"] >= 4 * 4096  # past the caches, which hold some of so small a launch


def test_a_model_is_trained_on_what_was_measured_and_is_among_the_models(service):
    sources = [opencl(SAXPY, "saxpy.cl"), opencl(MATMUL, "matmul.cl"), opencl(SQUARES, "squares.cl")]
    body = {"sources": sources, "sizes": [4096], "local_sizes": [64], "seconds": 0.05}
    measured = service.job("/api/measure", body)
    assert measured["state"] == "done", measured["error"]
    job = service.job("/api/train", {"jobs": [measured["id"]], "name": "of the tests"})
    assert job["state"] == "done", job["error"]
    answer = job["answer"]
    assert (answer["model"], answer["question"]) == ("of-the-tests", "shares")
    assert answer["test"]["applications"] == 3
    assert answer["test"]["always_50_mae"] >= 0
    stream = service.ask("GET", f"/api/jobs/{job['id']}/events").text
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert [event["at"] for event in events if "values" in event] == [1, 2, 3]
    models = {model["name"]: model for model in service.ask("GET", "/api/models").json}
    assert models["of-the-tests"]["predictor"] == "share-forest"
    assert models["cgo17-nvidia"]["default"] is True


def test_training_reads_no_files_of_the_service_s_machine(service):
    experiment = 'learner = "launch-times"\ndata = "/etc/passwd"\n'
    job = service.job("/api/train", {"experiment": experiment})
    assert job["state"] == "failed"
    assert "reads no files of its machine" in job["error"]["message"]
    name = {"name": "../x", "data": ""}
    assert service.ask("POST", "/api/train", {"experiment": "a = 1", "files": [name]}).status == 422
    assert service.ask("POST", "/api/train", {"jobs": ["0" * 16]}).status == 404
    assert service.ask("POST", "/api/train", {}).status == 422
    assert service.ask("POST", "/api/train", {"experiment": "a"}, token=None).status == 401


def test_a_job_is_renamed_and_forgotten(service):
    body = {"source": opencl(SAXPY), "global_size": 1024, "repeat": 1, "cuts": False}
    id = service.job("/api/run", body)["id"]
    assert service.ask("PATCH", f"/api/jobs/{id}", {"name": "mine"}).json["name"] == "mine"
    assert id in [job["id"] for job in service.ask("GET", "/api/jobs?limit=5").json]
    assert service.ask("DELETE", f"/api/jobs/{id}").status == 200
    assert service.ask("GET", f"/api/jobs/{id}").status == 404


def test_jobs_survive_a_kill_in_the_middle_of_one(tmp_path):
    first = Service(tmp_path).start()
    try:
        done = first.job(
            "/api/run", {"source": opencl(SAXPY), "global_size": 1024, "repeat": 1, "cuts": False}
        )
        hanging = {"source": opencl(HANGING), "global_size": 64, "seconds": 60, "repeat": 1}
        running = first.ask("POST", "/api/run", hanging).json["id"]
        waiting = {"source": opencl(SAXPY), "global_size": 2048, "repeat": 1, "cuts": False}
        later = first.ask("POST", "/api/run", waiting).json["id"]
        until = time.monotonic() + 30
        while (
            first.ask("GET", f"/api/jobs/{running}").json["state"] == "waiting" and time.monotonic() < until
        ):
            time.sleep(0.05)
        first.kill()
    finally:
        first.stop()
    second = Service(tmp_path).start()
    try:
        assert second.ask("GET", f"/api/jobs/{done['id']}").json["answer"] == done["answer"]
        assert second.ask("GET", f"/api/jobs/{running}").json["state"] == "interrupted"
        assert second.ended(later)["state"] == "done"
    finally:
        second.stop()


def test_running_code_can_be_switched_off(tmp_path):
    service = Service(tmp_path, ("--no-run",)).start()
    try:
        assert service.ask("GET", "/api/health").json["runs_code"] is False
        answer = service.ask("POST", "/api/run", {"source": opencl(SAXPY), "global_size": 1024})
        assert answer.status == 403
        assert "--no-run" in answer.json["error"]["message"]
        body = {"source": opencl(SAXPY), **LAUNCH}
        assert service.ask("POST", "/api/predict", body, token=None).status == 200
    finally:
        service.stop()


def test_every_address_is_described(service):
    described = service.ask("GET", "/api/openapi.json").json
    assert {"/api/predict", "/api/run", "/api/jobs/{id}/events"} <= set(described["paths"])
    assert TOKEN not in json.dumps(described)


def test_every_answer_and_every_error_has_a_type_in_the_description(service):
    described = service.ask("GET", "/api/openapi.json").json
    for path, all in described["paths"].items():
        for method, how in all.items():
            done = how["responses"].get("200") or how["responses"]["202"]
            if path.endswith("/events"):
                assert list(done["content"]) == ["text/event-stream"]
                continue
            assert set(done["content"]["application/json"]["schema"]) & {"$ref", "items"}, (method, path)
            error = how["responses"]["422"]["content"]["application/json"]["schema"]
            assert error["$ref"].endswith("/ErrorAnswer")
    fields = described["components"]["schemas"]["LaunchForm"]["properties"]
    assert fields["bytes"]["description"] == "Moved between host and device."


def test_an_answer_that_is_not_what_the_description_says_is_noticed():
    good = {"error": {"kind": "Refused", "message": "No"}}
    as_described("GET", "/api/jobs", Answer(404, {}, json.dumps(good)))
    for wrong in (
        {"error": {"kind": "Refused"}},
        {**good, "more": 1},
        {"error": {"kind": 1, "message": "No"}},
    ):
        with pytest.raises(ValidationError):
            as_described("GET", "/api/jobs", Answer(404, {}, json.dumps(wrong)))
    with pytest.raises(ValidationError):
        as_described("GET", "/api/policies", Answer(200, {}, json.dumps([1])))


def test_every_kernel_that_was_run_or_measured_is_told_with_its_work(service):
    body = {"source": opencl(MATMUL, "matmul.cl"), "global_size": [64, 64], "arguments": ["n=64"]}
    run = service.job("/api/run", {**body, "repeat": 1, "cuts": False, "name": "product"})
    body = {"sources": [opencl(MATMUL, "matmul.cl")], "sizes": [4096], "local_sizes": [64], "seconds": 0.05}
    measured = service.job("/api/measure", body)
    found = service.ask("GET", "/api/measured").json
    mine = [one for one in found if one["job"] == run["id"]]
    assert {one["device"]: one["seconds"] for one in mine} == pytest.approx(
        {device: each / 1000 for device, each in run["answer"]["alone"].items()}
    )
    assert {one["name"] for one in mine} == {"product"}
    assert mine[0]["operations"] == run["answer"]["work"]["operations"]
    points = [one for one in found if one["job"] == measured["id"]]
    assert {one["name"] for one in points} == {"matmul (64x64)"}
    assert len(points) == len(measured["answer"]["points"])
    assert service.ask("GET", "/api/measured", token=None).status == 401


def test_a_client_has_no_more_than_its_share_of_the_jobs_that_wait(tmp_path):
    history, pool = History(tmp_path / "h.sqlite"), Pool(1, folder=tmp_path, seconds=1.0, waiting=1)
    board = JobBoard(history, pool, waiting=3, waiting_of_client=2, seconds=1.0, kept=10)
    first = board.add("run", {}, "one", "10.0.0.1")
    board.add("run", {}, "two", "10.0.0.1")
    with pytest.raises(Refused, match="2 jobs of yours wait already"):
        board.add("run", {}, "three", "10.0.0.1")
    other = board.add("run", {}, "three", "10.0.0.2")
    with pytest.raises(Refused, match="Too many jobs wait"):
        board.add("run", {}, "four", "10.0.0.3")
    board.cancel(first.id)
    assert board.add("run", {}, "four", "10.0.0.1").state == "waiting"
    assert history.job(other.id).state == "waiting"
    history.close()


def test_schedules_are_those_of_the_command_line(service, capsys):
    words = (
        "schedule", "simulate", "--format", "synthetic", "--systems", "cpu=4", "gpu=2", "--policy", "eft", "fastest",
        "--jobs", "40", "--sigma", "0.5",
    )  # fmt: skip
    expected = said(capsys, *words)
    body = {"systems": ["cpu=4", "gpu=2"], "policies": ["eft", "fastest"], "jobs": 40, "sigma": 0.5}
    answers = service.ask("POST", "/api/schedule", body).json
    for answer, wanted in zip(answers, expected, strict=True):
        measured = ("policy_cpu_s", "simulator_cpu_s", "jobs_per_cpu_s")
        assert without(answer, "schedule", "queue", *measured) == without(wanted, *measured)
        assert len(answer["schedule"]) == 40
    assert "eft" in service.ask("GET", "/api/policies").json
    assert service.ask("POST", "/api/schedule", {"systems": ["/etc/passwd"]}).status == 422


def test_a_demonstration_fills_the_studio_once(tmp_path):
    service = Service(tmp_path, ("--demo",)).start()
    try:
        until = time.monotonic() + 60
        while len(jobs := service.ask("GET", "/api/jobs").json) < 7 and time.monotonic() < until:
            time.sleep(0.2)
        assert {job["verb"] for job in jobs} == {"run", "measure"}
        first = min(jobs, key=lambda job: job["created"])
        assert service.ended(first["id"])["answer"]["verified"] is True
        for job in jobs:
            service.ask("POST", f"/api/jobs/{job['id']}/cancel", {})
    finally:
        service.stop()
    again = Service(tmp_path, ("--demo",)).start()
    try:
        time.sleep(1.5)
        assert len(again.ask("GET", "/api/jobs").json) == len(jobs)
    finally:
        again.stop()


def test_a_table_of_configurations_is_tuned_as_by_the_command_line(service, tmp_path, capsys):
    rows = [
        f"{x},{y},{0.001 * (1 + abs(x - 4) + abs(y - 16) / 8)}" for x in (1, 2, 4, 8) for y in (8, 16, 32)
    ]
    text = "\n".join(["x,y,seconds", *rows]) + "\n"
    file = tmp_path / "table.csv"
    file.write_text(text)
    ((first, second),) = said(capsys, "tune", "--recorded", str(file), "--budget", "6", "--seeds", "2")
    answers = service.ask("POST", "/api/tune", {"table": text, "budget": 6, "seeds": 2})
    assert answers.json == [first, second]
    assert service.ask("POST", "/api/tune", {"table": "", "budget": 6}).status == 422


def test_what_perf_counted_becomes_a_profile(service, tmp_path, capsys):
    text = '{"counter-value" : "1000.0", "unit" : "", "event" : "instructions"}\n'
    file = tmp_path / "run.json"
    file.write_text(text)
    (expected,) = said(
        capsys, "counters", "import", str(file), "--out", str(tmp_path / "t.parquet"), "--program", "p"
    )
    answer = service.ask(
        "POST", "/api/counters/import", {"text": text, "name": "run.json", "program": "p"}
    ).json
    assert without(answer, "profiles") == without(expected, "out")
    assert 1000.0 in answer["profiles"][0]["counters"].values()
