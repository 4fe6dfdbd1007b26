"""Outcomes, and what travels between processes."""

from __future__ import annotations

import pickle

import pytest

from apportion.errors import (
    CompileError,
    DeadlineExceeded,
    InvalidSetting,
    ItemFailed,
    JobError,
    MissingPackage,
    UnknownName,
    UnreadableFile,
)
from apportion.jobs.base import Outcome, outcome_of, packed


class _SlowLaunch(DeadlineExceeded):
    """An error of two builtins, at one remove."""


@pytest.mark.parametrize(
    "error",
    [
        InvalidSetting("workers must be at least 1, not 0"),
        UnknownName("device", "opncl", ["opencl"]),
        MissingPackage("torch", "torch", "The model 'programl'"),
        UnreadableFile("Cannot read a.toml: No such file or directory"),
        CompileError("no", file="k.cl", line=1, column=2, diagnostics="all of it"),
        ItemFailed("KeyError", "'speed'", "Traceback …"),
        DeadlineExceeded("It took longer than the 1 s it was given"),
        _SlowLaunch("It is slow"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_crosses_to_another_process_unchanged(error):
    error.add_note("said in a worker")
    restored = pickle.loads(packed([error]))[0]
    assert type(restored) is type(error)
    assert str(restored) == str(error)
    assert vars(restored) == vars(error)


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
