"""The competition's answer file."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.learn.ranking.submission import PUBLISHED_ROWS, Asked, check_submission, write_submission

LAYOUT, TILE = Asked("layout:xla:random", "abc", 4), Asked("tile:xla", "def", 7)
ASKED = {"layout:xla:random:abc": LAYOUT, "tile:xla:def": TILE}


def test_a_layout_is_answered_whole_and_a_tile_by_five(tmp_path):
    path = tmp_path / "answers.csv"
    rows = [(LAYOUT, np.array([3.0, 1, 2, 0])), (TILE, np.array([6, 5, 4, 3, 2, 1, 0]))]
    assert write_submission(path, rows) == 2
    assert path.read_text() == "ID,TopConfigs\nlayout:xla:random:abc,3;1;2;0\ntile:xla:def,6;5;4;3;2\n"
    assert check_submission(path, ASKED) == {"layout:xla:random": 1, "tile:xla": 1}


def test_scores_must_fit(tmp_path):
    with pytest.raises(InvalidSetting, match="layout:xla:random:abc needs 4 scores"):
        write_submission(tmp_path / "a.csv", [(LAYOUT, np.zeros(3))])
    with pytest.raises(InvalidSetting, match="given twice"):
        write_submission(tmp_path / "a.csv", [(LAYOUT, np.zeros(4)), (LAYOUT, np.zeros(4))])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,configs\n", r":1: The first line must be ID,TopConfigs"),
        ("ID,TopConfigs\nlayout:abc,1\n", r":2: 'layout:abc,1' is no row like"),
        ("ID,TopConfigs\ntile:xla:def,1;x\n", r":2: tile:xla:def: the configurations must be numbers"),
        ("ID,TopConfigs\ntile:xla:def,1;2;3;4;4\n", r":2: tile:xla:def: a configuration comes twice"),
        ("ID,TopConfigs\ntile:xla:def,1;2;3;4;7\n", "needs 5 of the configurations 0 to 6, not 5 up to 7"),
        ("ID,TopConfigs\nlayout:xla:random:abc,0;1;2\n", "needs 4 of the configurations 0 to 3, not 3"),
        ("ID,TopConfigs\ntile:xla:other,1\n", "is not among the graphs that are asked for"),
        (
            "ID,TopConfigs\ntile:xla:def,0;1;2;3;4\ntile:xla:def,0;1;2;3;4\n",
            ":3: tile:xla:def has a row already",
        ),
        ("ID,TopConfigs\ntile:xla:def,0;1;2;3;4\n", "1 graphs have no row, layout:xla:random:abc first"),
    ],
)
def test_a_broken_rule_is_named_with_its_line(tmp_path, text, problem):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(MalformedInput, match=problem):
        check_submission(tmp_path / "a.csv", ASKED)


def test_without_graphs_the_number_of_rows_is_that_of_the_test_set(tmp_path):
    assert sum(PUBLISHED_ROWS.values()) == 894
    rows = [f"{name}:{i},1;0" for name, count in PUBLISHED_ROWS.items() for i in range(count)]
    (tmp_path / "a.csv").write_text("\n".join(["ID,TopConfigs", *rows]) + "\n")
    assert check_submission(tmp_path / "a.csv") == PUBLISHED_ROWS
    (tmp_path / "a.csv").write_text("\n".join(["ID,TopConfigs", *rows[1:]]) + "\n")
    with pytest.raises(MalformedInput, match="this file has 843 of tile:xla"):
        check_submission(tmp_path / "a.csv")
    with pytest.raises(UnreadableFile):
        check_submission(tmp_path / "none.csv")
