"""The scheduling pages: made from what is stored, and measured again where the data is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from apportion.errors import UnreadableFile
from reproduction.scheduling.run import STORED, scheduling
from reproduction.scheduling.study import mean_and_half_width, measured_jobs, parity

DATA = Path(__file__).parents[4] / "shared" / "data" / "gavel"
PAGES = Path(__file__).parents[3] / "docs" / "results"


def test_the_pages_are_those_that_are_made_from_what_is_stored(tmp_path):
    scheduling(out=tmp_path)
    for page in tmp_path.iterdir():
        assert page.read_text() == (PAGES / page.name).read_text(), page.name


def test_what_is_not_stored_is_said(tmp_path):
    with pytest.raises(UnreadableFile, match="Make it with --measure"):
        scheduling(stored=tmp_path / "none.gz", out=tmp_path)
    with pytest.raises(UnreadableFile, match="reference data is not in"):
        scheduling(measure=True, data=tmp_path, out=tmp_path)


@pytest.mark.skipif(not (DATA / "given.json").exists(), reason=f"Gavel's data is not at {DATA}")
def test_parity_measured_again_is_what_is_stored():
    stored = json.loads(gzip.decompress(STORED.read_bytes()))["parity"]
    now = parity(DATA, lambda said: None)
    assert now["plain"] == stored["plain"]
    assert now["optima_worst"] < 1e-6
    exact = [(row["makespan_s"], row["avg_jct_s"]) for row in now["rounds"] if row["exact"]]
    assert exact == [(row["makespan_s"], row["avg_jct_s"]) for row in stored["rounds"] if row["exact"]]


def test_measured_jobs_are_predicted_with_errors_and_careful_is_better_than_eft():
    found = measured_jobs(1500, 2, lambda said: None)
    assert found["systems"][0] == found["anchor"]
    assert found["sigma"][0] == 0
    assert all(value > 0.3 for value in found["sigma"][1:])
    policies = found["found"]["all at once"]
    careful, eft = (sum(row[0] for row in policies[name]) for name in ("careful", "eft"))
    assert careful < eft


def test_an_interval_is_students():
    mean, half = mean_and_half_width([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / 3**0.5, abs=1e-3))
