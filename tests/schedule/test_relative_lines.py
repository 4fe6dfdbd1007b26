"""Files of what `apportion relative predict --json` prints, as schedulers read them."""

from __future__ import annotations

import pytest

from apportion.errors import MalformedInput, UnreadableFile
from apportion.schedule.relative_lines import RelativeLine, read_relative_lines
from apportion.schedule.slurm.estimates import read_class_predictions


def test_runs_come_in_the_order_of_the_file_and_one_that_abstains_has_no_numbers(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"run": "a", "vector": {"x": 1, "y": -1}}\n\n{"run": "b", "vector": null, "sigma": null}\n'
    )
    assert read_relative_lines(path) == [
        RelativeLine("a", {"x": 1.0, "y": -1.0}, {}),
        RelativeLine("b", {}, {}),
    ]
    assert list(read_class_predictions(path)) == ["a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "is not JSON, a line for each run"),
        ("[" * 200_000, "is not JSON, a line for each run"),
        ('{"vector": {}}', "a line is what `apportion relative predict --json` prints"),
        ('{"run": "a", "target": "slowest"}', "target centred"),
        ('{"run": "a", "vector": [1]}', "vector and sigma name systems with numbers"),
        ('{"run": "a", "sigma": {"x": "wide"}}', "vector and sigma name systems with numbers"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(tmp_path, line, message):
    path = tmp_path / "p.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(MalformedInput, match=message):
        read_relative_lines(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UnreadableFile, match=r"Cannot read .*p\.jsonl"):
        read_relative_lines(tmp_path / "p.jsonl")
