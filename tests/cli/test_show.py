"""Tables, JSON, notes and progress: each on its own stream."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from apportion.cli.show import note, print_json, print_table, progress, rounded, size_in_words


@dataclass(frozen=True)
class Row:
    name: Path
    counts: np.ndarray


def test_json_is_one_line_on_stdout_with_plain_values(capsys):
    print_json({"row": Row(Path("a.ll"), np.array([1, 2])), "share": np.float32(0.5)})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"row": {"name": "a.ll", "counts": [1, 2]}, "share": 0.5}
    assert captured.out.count("\n") == 1
    assert captured.err == ""


def test_a_number_that_json_does_not_have_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json(float("nan"))


def test_a_value_without_a_json_form_is_named():
    with pytest.raises(TypeError, match="set has no JSON form"):
        print_json({1})


def test_brackets_in_a_cell_are_no_markup_and_long_cells_wrap_within_100_columns(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(["what", "how"], [["x" * 150, "pip install 'apportion[opencl]'"]], title="Missing")
    out = capsys.readouterr().out
    assert out.count("x") == 150
    assert max(map(len, out.splitlines())) == 100
    assert "'apportion[opencl]'" in out
    assert out.startswith("Missing")


def test_a_table_is_as_wide_as_columns_says(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_table(["what"], [["x" * 150]])
    assert "x" * 150 in capsys.readouterr().out


def test_titles_of_columns_break_between_words_only(capsys):
    print_table(["copies, GB/s", "compiler", "what"], [["1", "2", "word " * 60]])
    out = capsys.readouterr().out
    assert "compiler" in out
    assert "GB/s" in out


def test_numbers_are_aligned_to_the_right(capsys):
    print_table(["nodes"], [[7], [1234]], right=["nodes"])
    assert "│     7 │" in capsys.readouterr().out


def test_a_note_goes_to_stderr(capsys):
    note("3 files could not be read")
    assert capsys.readouterr() == ("", "3 files could not be read\n")


def test_progress_gives_the_same_items_and_says_nothing_to_a_pipe(capsys):
    assert list(progress(iter([1, 2, 3]), label="graphs", total=3)) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


def test_progress_takes_items_as_they_are_asked_for_and_closes_what_it_takes_from():
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(True)

    shown = progress(items(), label="graphs")
    assert next(shown) == 0
    shown.close()
    assert closed == [True]


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes_are_said_in_words(count, words):
    assert size_in_words(count) == words


def test_measured_numbers_have_six_digits_wherever_they_stand() -> None:
    said = {
        "ms": 0.08406499910051934,
        "all": [1.0, (2 / 3,)],
        "n": 123456789,
        "name": "k",
        "ok": True,
        "no": None,
    }
    assert rounded(said) == {
        "ms": 0.084065, "all": [1.0, [0.666667]], "n": 123456789, "name": "k", "ok": True, "no": None,
    }  # fmt: skip
