"""A full disk and a kill cost what was under way, and nothing that was there; the whole runs by reproduction."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reproduction.faults.injected import KINDS, Case, injected
from reproduction.faults.kills import Kill, killed
from reproduction.faults.run import fault_page, kill_page
from reproduction.faults.starter import Forks, forks_in
from reproduction.faults.works import WORKS


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    if shutil.which("cc") is None:
        pytest.skip("the library that fails calls needs a C compiler")
    with forks_in(tmp_path_factory.mktemp("faults"), failing=True) as started:
        yield started


@pytest.mark.xdist_group("faults")
def test_a_failing_disk_is_told_in_one_line_and_harms_no_result(forks: Forks):
    """Some calls of two verbs; `python -m reproduction faults` fails each call of all of them."""
    found = [
        case
        for name, every in (("schedule simulate", 3), ("rank pack", 8))
        for case in injected(forks, WORKS[name], every=every)
    ]
    assert {case.kind for case in found} >= {"write", "rename"}
    assert len(found) >= 5
    assert [case for case in found if case.problems] == []


@pytest.mark.xdist_group("faults")
def test_calls_are_counted_and_failed_where_files_are_written(forks: Forks):
    place = forks.work / "counted"
    place.mkdir()
    words = WORKS["schedule simulate"].words
    undisturbed = forks.run(place, words, kinds=KINDS["write"])
    assert undisturbed["status"] == 0
    assert undisturbed["seen"] >= 3
    assert undisturbed["failed"] == 0
    disturbed = forks.run(place, words, kinds=KINDS["write"], at=1)
    assert disturbed["failed"] == 1
    assert disturbed["status"] == 1
    assert disturbed["stderr"].count("apportion: Cannot write") == 1


def test_a_verb_that_is_killed_goes_on_to_the_same_result(tmp_path: Path):
    with forks_in(tmp_path, failing=False) as forks:
        found = list(killed(forks, WORKS["rank pack"], times=6))
    assert sum(kill.what == "parent" for kill in found) >= 2
    assert [kill for kill in found if kill.problems] == []


def test_the_pages_count_what_was_survived_and_name_what_was_not():
    cases = [Case("graph", "write", 1, ()), Case("graph", "write", 2, ("it hangs",))]
    page = fault_page(cases, 1)
    assert "| `graph` | 2 / 1 | 0 / 0 | 0 / 0 |" in page
    assert "- graph, write 2: it hangs" in page
    assert "| `graph` | 1 / 1 | 0 / 0 | 0 / 0 |" in kill_page([Kill("graph", 0.5, "parent", ())], 0)
