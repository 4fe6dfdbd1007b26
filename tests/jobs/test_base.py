"""Outcomes of jobs."""

from __future__ import annotations

import pytest

from apportion.errors import InvalidSetting, JobError, UnreadableFile
from apportion.jobs.base import Outcome, outcome_of


def test_an_outcome_has_a_value_or_an_error():
    with pytest.raises(InvalidSetting, match="a value or an error, not both"):
        Outcome(0, value=1, error=JobError("no"))
    with pytest.raises(InvalidSetting, match="counts from 0, so it cannot be -1"):
        Outcome(-1)
    with pytest.raises(InvalidSetting, match=r"seconds cannot be negative, but is -0\.5"):
        Outcome(0, seconds=-0.5)


def test_unwrapping_gives_the_value_or_raises_the_error():
    assert Outcome(0, value=3).unwrap() == 3
    with pytest.raises(JobError, match="no"):
        Outcome(0, error=JobError("no")).unwrap()


def test_an_error_of_ours_keeps_its_class_and_carries_the_traceback_as_a_note():
    def function(item):
        raise UnreadableFile(f"Cannot read {item}")

    outcome = outcome_of(function, "a.ll", 4)
    assert isinstance(outcome.error, UnreadableFile)
    assert str(outcome.error) == "Cannot read a.ll"
    assert "in function" in outcome.error.__notes__[0]
    assert outcome.item_index == 4
