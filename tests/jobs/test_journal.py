"""Journals outlive kills, cut lines and each other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import AlreadyWritten, MalformedInput, UnreadableFile
from apportion.jobs.journal import Journal, Results, digest_of


def test_entries_come_back_in_their_order(tmp_path: Path):
    journal = Journal(tmp_path / "deep" / "journal.jsonl")
    assert journal.entries() == []
    journal.add({"a": 1})
    journal.add({"a": 2}, {"a": "drei"})
    assert Journal(journal.path).entries() == [{"a": 1}, {"a": 2}, {"a": "drei"}]
    journal.keep(0)
    assert journal.entries() == []


@given(cut=st.integers(0, 40))
def test_a_last_line_that_was_cut_off_is_forgotten_and_the_next_one_is_whole(tmp_path_factory, cut: int):
    journal = Journal(tmp_path_factory.mktemp("cut") / "journal.jsonl")
    journal.add({"name": "first", "n": 1}, {"name": "second", "n": 2})
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[: len(whole) - cut])
    left = journal.entries()
    assert left == [{"name": "first", "n": 1}, {"name": "second", "n": 2}][: len(left)]
    assert len(left) == whole[: len(whole) - cut].count(b"\n")
    journal.add({"name": "third"})
    assert journal.entries() == [*left, {"name": "third"}]


def test_zeros_after_a_power_failure_are_forgotten(tmp_path: Path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add({"a": 1})
    with journal.path.open("ab") as file:
        file.write(b"\0" * 100)
    assert journal.entries() == [{"a": 1}]
    journal.add({"a": 2})
    assert journal.entries() == [{"a": 1}, {"a": 2}]


def test_a_wrong_line_in_the_middle_is_named(tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(MalformedInput, match=r"journal\.jsonl:2: not a line of a journal"):
        Journal(path).entries()
    path.write_text("[1]\n")
    with pytest.raises(MalformedInput, match="not an entry"):
        Journal(path).entries()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableFile, match="Cannot write"):
        Journal(tmp_path / "file" / "journal.jsonl").add({"a": 1})


ADDING = """
import sys
from pathlib import Path
from apportion.jobs.journal import Journal
journal = Journal(Path(sys.argv[1]), sync=False)
for number in range(int(sys.argv[3])):
    journal.add({"who": sys.argv[2], "n": number, "long": "x" * 5000})
    print(number, flush=True)
"""


def test_several_processes_that_add_at_once_keep_every_line_whole(tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", ADDING, path, who, "100"], stdout=subprocess.DEVNULL)
        for who in "abc"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    entries = Journal(path).entries()
    for who in "abc":
        assert [entry["n"] for entry in entries if entry["who"] == who] == list(range(100))


def test_what_was_added_before_a_kill_is_there(tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    writer = subprocess.Popen(
        [sys.executable, "-c", ADDING, path, "a", "100000"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    seen = [int(writer.stdout.readline()) for _ in range(20)]
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    entries = Journal(path).entries()
    assert [entry["n"] for entry in entries][:20] == seen
    Journal(path).add({"who": "b"})
    assert Journal(path).entries()[-1] == {"who": "b"}


def test_a_journal_that_is_held_is_refused_to_others_and_free_again_afterwards(tmp_path: Path):
    mine, other = Journal(tmp_path / "journal.jsonl"), Journal(tmp_path / "journal.jsonl")
    with mine.alone():
        mine.add({"a": 1})
        with pytest.raises(AlreadyWritten, match="is being written by process"), other.alone():
            pass
    with other.alone():
        other.add({"a": 2})
    assert mine.entries() == [{"a": 1}, {"a": 2}]


def test_the_first_entries_can_be_kept_and_others_added(tmp_path: Path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add({"n": 0}, {"n": 1}, {"n": 2})
    journal.keep(2)
    journal.add({"n": 3})
    assert [entry["n"] for entry in journal.entries()] == [0, 1, 3]
    journal.keep(5)
    assert len(journal.entries()) == 3


def test_a_result_is_made_once(tmp_path: Path):
    made = []

    def make() -> dict[str, object]:
        made.append(1)
        return {"answers": (1.5, 2.5)}

    path = tmp_path / "results.jsonl"
    first = Results(path).get({"seed": 1, "row": "x"}, make)
    again = Results(path).get({"row": "x", "seed": 1}, make)
    assert first == again == {"key": digest_of({"seed": 1, "row": "x"}), "answers": [1.5, 2.5]}
    Results(path).get({"row": "x", "seed": 2}, make)
    assert len(made) == 2


def test_the_hash_has_as_many_digits_as_asked_for():
    assert digest_of({"a": 1}, digits=20).startswith(digest_of({"a": 1}))
    assert len(digest_of([1, 2], digits=24)) == 24


def test_in_a_turn_a_journal_sees_what_others_added_since_its_last(tmp_path: Path):
    mine, theirs = Journal(tmp_path / "shared.jsonl"), Journal(tmp_path / "shared.jsonl")
    with mine.turn() as new:
        assert new == []
        mine.add({"a": 1})
    theirs.add({"b": 2}, {"b": 3})
    with mine.turn() as new:
        assert new == [{"b": 2}, {"b": 3}]
        mine.add({"a": 4})
    with mine.turn() as new:
        assert new == []
    with theirs.turn() as new:
        assert new == [{"a": 1}, {"b": 2}, {"b": 3}, {"a": 4}]
    with (tmp_path / "shared.jsonl").open("a") as file:
        file.write('{"a": 5, ')
    with mine.turn() as new:
        assert new == []
    theirs.add({"b": 6})
    with mine.turn() as new:
        assert new == [{"b": 6}]
    with (tmp_path / "shared.jsonl").open("a") as file:
        file.write("no JSON\n")
    with pytest.raises(MalformedInput, match=r"shared\.jsonl:6: not a line"), mine.turn():
        pass


def test_what_is_added_in_a_turn_has_nothing_of_others_before_it(tmp_path: Path):
    """Four processes count in one file, each by what it reads there."""
    program = """
import sys
from pathlib import Path
from apportion.jobs.journal import Journal
journal, highest = Journal(Path(sys.argv[1]), sync=False), 0
for _ in range(50):
    with journal.turn() as new:
        highest = max([highest, *(entry["number"] for entry in new)]) + 1
        journal.add({"number": highest})
"""
    path = tmp_path / "numbers.jsonl"
    counting = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(4)]
    assert [process.wait() for process in counting] == [0] * 4
    assert [entry["number"] for entry in Journal(path).entries()] == list(range(1, 201))
