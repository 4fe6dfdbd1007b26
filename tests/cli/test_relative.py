"""`apportion relative`, `apportion systems` and `python -m reproduction relative-performance`, as a user types them."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from apportion.advise.relative_answers import shipped
from apportion.cli import main
from apportion.data.counter_table import CounterTable, Row
from reproduction.__main__ import main as reproduce

ROWS = """
systems = ["slow-cpu", "quick-cpu", "old-gpu", "new-gpu"]
profiled = "new-gpu"
second = "slow-cpu"
repetitions = 1
whole = "timed"
[[rows]]
name = "always the fastest on average"
learner = "constant"
[[rows]]
name = "ridge"
learner = "ridge"
features = "shape"
candidate = "counters"
[[rows]]
name = "timed"
learner = "ridge"
features = "shape"
timed = true
candidate = "timed"
[[rows]]
name = "two"
learner = "ridge"
features = "shape"
timed = true
twice = true
candidate = "twice"
[[rows]]
name = "… stronger"
learner = "ridge"
features = "shape"
timed = true
settings = { strength = 1e4 }
"""


def run(*words, command=main) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as left:
        command(list(map(str, words)))
    return left.value.code


@pytest.fixture(autouse=True)
def systems_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("APPORTION_SYSTEMS", str(tmp_path / "systems"))


@pytest.fixture
def profile(tmp_path):
    """A run that the shipped model knows, as a file."""
    reference = shipped().reference
    counters = dict(zip(reference.counters, reference.values[30].tolist(), strict=True))
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"name": "my run", "counters": counters}))
    return path


def samples_file(tmp_path, count: int):
    reference = shipped().reference
    times = 2 ** reference.log_times[:count, reference.systems.index("titanx")]
    path = tmp_path / "samples.csv"
    lines = [f"{run},{time / 2}" for run, time in zip(reference.runs, times, strict=False)]
    path.write_text("\n".join(["run,seconds", *lines]))
    return path


def test_predict_prints_an_order_with_its_uncertainty(profile, capsys) -> None:
    assert run("relative", "predict", profile) == 0
    seen = capsys.readouterr()
    for words in ("my run", "gtx1080", "sigma"):
        assert words in seen.out
    assert "familiarity" in seen.err
    assert (
        run("relative", "predict", profile, "--json", "--target", "slowest", "--seconds", "gtx1080=0.001")
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert max(said["vector"].values()) == 1
    assert said["measured"] == ["gtx1080"]
    assert sorted(said["order"]) == sorted(said["vector"])
    assert set(said["sigma"]) == set(said["vector"])


def test_predict_draws_the_run_among_those_known(profile, tmp_path, capsys) -> None:
    plot = tmp_path / "run.html"
    assert run("relative", "predict", profile, "--plot", plot, "--json") == 0
    text = plot.read_text()
    assert text.count("<svg") == 2
    assert "my run: time in parts of the slowest" in text
    assert "Among 100 known runs" in text


def test_predict_abstains_when_a_run_is_far_from_all_known(profile, capsys) -> None:
    said = json.loads(profile.read_text())
    said["counters"] = {name: value * 1e7 for name, value in said["counters"].items()}
    profile.write_text(json.dumps(said))
    assert run("relative", "predict", profile, "--json") == 0
    seen = capsys.readouterr()
    assert json.loads(seen.out)["abstains"] is True
    assert json.loads(seen.out)["order"] is None
    assert "unfamiliar" in seen.err


def test_a_model_of_ones_own_runs_is_learned_and_used(tmp_path, capsys, timed_runs, profile) -> None:
    timed_runs.write(tmp_path / "own.parquet")
    out = tmp_path / "model"
    assert (
        run("relative", "train", tmp_path / "own.parquet", "--out", out, "--profiled", "new-gpu", "--json")
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert (said["runs"], said["applications"], said["left_out"]) == (24, 6, 0)
    assert 0.4 < said["within_sigma"] <= 1
    values = timed_runs.about(programs=["app1"], systems=[""]).wide()
    counters = dict(zip(values.counters, values.values[0].tolist(), strict=True))
    profile.write_text(json.dumps({"counters": counters}))
    assert run("systems", "add", "mine", "--samples", samples_file(tmp_path, 6)) == 0
    capsys.readouterr()
    assert run("relative", "predict", profile, "--model", out, "--json", "--plot", tmp_path / "own.html") == 0
    assert sorted(json.loads(capsys.readouterr().out)["order"]) == sorted(said["systems"])
    assert run("relative", "train", tmp_path / "own.parquet", "--out", out, "--profiled", "tpu") == 1
    assert "No system called 'tpu'" in capsys.readouterr().err


def test_a_time_that_is_none_is_said_so(profile, capsys) -> None:
    assert run("relative", "predict", profile, "--seconds", "gtx1080") == 1
    assert "A known time is written SYSTEM=SECONDS, not 'gtx1080'" in capsys.readouterr().err
    assert run("relative", "predict", profile, "--systems", "gtx1080", "abacus") == 1
    assert "No system called 'abacus'" in capsys.readouterr().err


def test_a_system_is_added_used_shown_and_removed(profile, tmp_path, capsys) -> None:
    assert run("systems", "add", "mine", "--samples", samples_file(tmp_path, 12), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["samples"] == 12
    assert max(said["likeness"], key=said["likeness"].get) == "titanx"
    assert run("relative", "predict", profile, "--json") == 0
    assert "mine" in json.loads(capsys.readouterr().out)["order"]
    assert run("systems", "list", "--json") == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(listed) == 16
    assert {"system": "mine", "origin": "added", "runs": 12} in listed
    assert run("systems", "show", "mine") == 0
    assert "titanx" in capsys.readouterr().out
    assert run("systems", "show", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 100
    assert run("systems", "remove", "mine") == 0
    assert run("systems", "show", "mine") == 1
    assert "No added system called 'mine'" in capsys.readouterr().err


def test_too_few_samples_are_refused_and_nothing_is_kept(tmp_path, capsys) -> None:
    assert run("systems", "add", "mine", "--samples", samples_file(tmp_path, 4)) == 1
    assert "4 measured runs are too few" in capsys.readouterr().err
    assert run("systems", "list", "--json") == 0
    assert '"added"' not in capsys.readouterr().out


def test_reproduce_needs_the_published_data_and_says_how_to_get_it(tmp_path, capsys) -> None:
    assert run("relative-performance", "--data", tmp_path, command=reproduce) == 1
    assert "aiwc_tidy.parquet: missing" in capsys.readouterr().err


def test_another_export_of_the_published_data_will_do(tmp_path, capsys, shared_data) -> None:
    import polars as pl

    from reproduction.relative.run import _aiwc

    for name in ("aiwc_tidy.parquet", "aiwc_runs.parquet"):
        pl.read_parquet(shared_data / "aiwc" / name).write_parquet(tmp_path / name, compression="gzip")
    (tmp_path / "aiwc_devices.csv").write_bytes((shared_data / "aiwc" / "aiwc_devices.csv").read_bytes())
    no_graphs = tmp_path / "none.csv"
    assert _aiwc(tmp_path, no_graphs).digest == _aiwc(shared_data / "aiwc", no_graphs).digest
    assert "aiwc_tidy.parquet: wrong checksum; the page tells the fingerprint" in capsys.readouterr().err


def test_reproduce_makes_the_page_of_both_sets(tmp_path, capsys, timed_runs, monkeypatch) -> None:
    pytest.importorskip("sklearn")
    from apportion.data.counter_table import AIWC
    from apportion.learn.relative.relative_table import table_of
    from reproduction.relative import run as command
    from reproduction.relative.comparison import scores

    made_up = table_of(timed_runs, name="aiwc", counters=AIWC)
    monkeypatch.setattr(
        command, "_aiwc", lambda data, graphs: made_up
    )  # the published data is not ours to ship
    (tmp_path / "rows.toml").write_text(ROWS)
    timed_runs.write(tmp_path / "own.parquet")
    out = tmp_path / "page.md"
    words = ("relative-performance", "--settings", tmp_path / "rows.toml", "--results",
             tmp_path / "results.jsonl", "--out", out, "--measured", tmp_path / "own.parquet", "--json")  # fmt: skip
    monkeypatch.setattr(command, "few_samples", lambda table, report: [])
    monkeypatch.setattr(command, "page", partial(command.page, samples=5))  # intervals cost the most
    monkeypatch.setattr(command, "scores", lambda answers, table, samples: scores(answers, table, samples=5))
    assert run(*words, "--profiled", "old-gpu", command=reproduce) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(line["set"], line["split"]) for line in said} == {
        (short, split) for short in ("aiwc", "own") for split in ("random", "kernel", "application")
    }
    assert "… stronger" in {line["row"] for line in said if line["set"] == "aiwc"}
    assert "… stronger" not in {line["row"] for line in said if line["set"] == "own"}
    text = out.read_text()
    assert "## Runs of our own" in text
    assert "the run was timed on new-gpu, `two`: on slow-cpu as well" in text
    assert "the run was timed on old-gpu, `two`: on quick-cpu as well" in text  # one of another kind
    assert (tmp_path / "page" / "own-figure-5.svg").exists()
    assert "No network was trained" not in text
    assert run(*words, "--profiled", "old-gpu", "--no-networks", command=reproduce) == 0
    assert out.read_text().count("No network was trained on them.") == 1
    assert "--profiled old-gpu --no-networks`" in out.read_text()
    capsys.readouterr()
    assert run(*words, "--profiled", "tpu", command=reproduce) == 1
    assert "No system called 'tpu'" in capsys.readouterr().err


def test_a_system_with_a_known_time_must_be_one_that_there_is(tmp_path, capsys) -> None:
    reference = shipped().reference
    counters = dict(zip(reference.counters, reference.values[0].tolist(), strict=True))
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"name": "r", "counters": counters}))
    assert run("relative", "predict", path, "--seconds", "nosuch=0.002") == 1
    assert "No system called 'nosuch'" in capsys.readouterr().err
    assert run("relative", "predict", path, "--seconds", f"{reference.systems[0]}=0.002") == 0


def test_a_model_is_trained_from_the_counters_of_table_one(tmp_path, capsys) -> None:
    random = np.random.default_rng(0)
    rows = []
    for number in range(40):
        name, program = f"run{number}", f"app{number % 8}"
        work, memory = 10 ** random.uniform(6, 9), random.uniform(0.05, 0.9)
        about = (name, program, "", "")
        for source in ("callgrind", "perf")[: 1 + (number < 10)]:
            rows.append(Row(*about, "a", 0, "instructions", work, source, "exact"))
        rows.append(Row(*about, "a", 0, "mem_ratio", memory, "callgrind", "exact"))
        for system, speed, weight in (("a", 1e9, 1.0), ("b", 3e9, 8.0), ("c", 1e9, 3.0)):
            rows.append(
                Row(*about, system, 0, "seconds", work / speed * (1 + weight * memory), "clock", "exact")
            )
    CounterTable.of(rows).write(tmp_path / "table.parquet")
    assert run("relative", "train", tmp_path / "table.parquet", "--out", tmp_path / "model", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["counters"] == 2
    assert said["features"] == "counters"
    assert 1 <= said["regret"] < said["regret_of_the_usual_fastest"]
    assert run("relative", "predict", tmp_path / "table.parquet", "--model", tmp_path / "model") == 0
    # What a command was counted by says nothing to the models that know OpenCL kernels.
    assert run("relative", "predict", tmp_path / "table.parquet", "--model", "relative-aiwc") == 1
    assert "this model knows those of OpenCL kernels" in capsys.readouterr().err
    CounterTable.of([row for row in rows if row.counter == "seconds"]).write(tmp_path / "times.parquet")
    assert run("relative", "train", tmp_path / "times.parquet", "--out", tmp_path / "model") == 1
    assert "neither AIWC's counters" in capsys.readouterr().err
