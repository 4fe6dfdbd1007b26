"""The scheduling pages: made from what is stored, and measured again where the data is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from apportion.errors import UnknownName, UnreadableFile
from reproduction.scheduling.drawn import like_gavel
from reproduction.scheduling.measured import measured_jobs, predicted_runs
from reproduction.scheduling.run import STORED, scheduling
from reproduction.scheduling.speeds import rounds_beside_plain_rules
from reproduction.scheduling.study import mean_and_half_width, parity, read_gavel, study

DATA = Path(__file__).parents[4] / "shared" / "data" / "gavel"
PAGES = Path(__file__).parents[3] / "docs" / "results"


def test_the_pages_are_those_that_are_made_from_what_is_stored(tmp_path):
    scheduling(out=tmp_path)
    for page in tmp_path.iterdir():
        assert page.read_text() == (PAGES / page.name).read_text(), page.name


def test_what_is_not_stored_is_said(tmp_path):
    with pytest.raises(UnreadableFile, match="Make it with: python -m reproduction scheduling --measure"):
        scheduling(stored=tmp_path / "none.gz", out=tmp_path)
    with pytest.raises(UnreadableFile, match="reference data is not in"):
        scheduling(measure=True, data=tmp_path, out=tmp_path)


def test_a_part_alone_is_measured_and_the_others_stay(tmp_path):
    words = {"programs": tmp_path / "none", "jobs": 10, "seeds": 2, "say": lambda said: None}
    found = study(tmp_path, **words, only=["queue_s"], before={"seeds": 20, "parity": {"plain": 3}})
    assert found["queue_s"] > 0
    assert (found["seeds"], found["parity"]) == (20, {"plain": 3})
    with pytest.raises(UnknownName, match=r"No part of the study called 'parityy'\. Did you mean 'parity'"):
        study(tmp_path, **words, only=["parityy"], before={})


@pytest.mark.skipif(not (DATA / "given.json").exists(), reason=f"Gavel's data is not at {DATA}")
def test_parity_measured_again_is_what_is_stored():
    stored = json.loads(gzip.decompress(STORED.read_bytes()))["parity"]
    now = parity(DATA, lambda said: None)
    assert now["plain"] == stored["plain"]
    assert now["optima_worst"] < 1e-6
    exact = [(row["makespan_s"], row["avg_jct_s"]) for row in now["rounds"] if row["exact"]]
    assert exact == [(row["makespan_s"], row["avg_jct_s"]) for row in stored["rounds"] if row["exact"]]


@pytest.mark.skipif(not (DATA / "given.json").exists(), reason=f"Gavel's data is not at {DATA}")
def test_rounds_are_timed_beside_the_same_rules_in_plain_python():
    entries = [
        (entry, read_gavel(DATA, entry))
        for entry in json.loads((DATA / "given.json").read_text())["round_based"]
        if entry["trace"] == "artifact_evaluation.csv"
    ]
    rows = rounds_beside_plain_rules(iter(entries), lambda said: None)
    assert {row["policy"] for row in rows} == {"fifo_fixed", "fifo_perf", "isolated"}
    assert all(0 < row["ours_s"] < 60 and row["plain_s"] > 0 and row["slices"] > 100 for row in rows)


@pytest.mark.skipif(not (DATA / "given.json").exists(), reason=f"Gavel's data is not at {DATA}")
def test_drawn_traces_have_gavels_types_and_are_none_of_gavels():
    trace = like_gavel(DATA / "throughputs.csv", 301, 100, (8, 16, 24), wide=True)
    assert trace.names == ("v100", "p100", "k80")
    assert set(trace.width.tolist()) == {1, 2, 4, 8}
    given = json.loads((DATA / "given.json").read_text())["non_preemptive"]
    for entry in given:
        steps = read_gavel(DATA, entry).steps
        assert len(steps) != 100 or (steps != trace.steps).any()


def test_measured_jobs_are_predicted_with_errors_and_careful_is_better_than_eft():
    runs = next(predicted_runs(Path("no table of programs")))
    # What is believed of an application's errors comes from the others.
    application = runs.application[0]
    others = [row for row, name in enumerate(runs.application) if name != application]
    error = ((runs.predicted - runs.log_times)[others] ** 2).mean(axis=0) ** 0.5
    assert runs.sigma()[0] == pytest.approx(error)
    found = measured_jobs(runs, 1500, 2, lambda said: None)
    assert found["systems"][0] == found["anchor"]
    assert found["sigma"][0] == 0
    assert all(value > 0.3 for value in found["sigma"][1:])
    policies = found["found"]["all at once"]
    careful, eft = (sum(row[0] for row in policies[name]) for name in ("careful", "eft"))
    assert careful < eft


def test_an_interval_is_students():
    mean, half = mean_and_half_width([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / 3**0.5, abs=1e-3))
