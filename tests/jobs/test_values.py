"""What travels between processes, and what of it is restored."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
from apportion.jobs import values
from apportion.jobs.base import Outcome
from apportion.jobs.local import LocalRunner
from apportion.jobs.values import packed, restored


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
    found = restored(packed([error]))[0]
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


@dataclass(frozen=True)
class _Point:
    x: float
    near: tuple[str, ...] = ()


class _Kind(Enum):
    CPU = "cpu"


class _Pair(NamedTuple):
    first: int
    second: str


class _Calls:
    """What a worker that is no longer ours would send: a call instead of a value."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, b"bytes"], (1, "b"): {3, 4}, "c": frozenset({5})},
        [Counter("aab"), defaultdict(list, a=[1]), range(3), 1 + 2j, bytearray(b"x"), Fraction(1, 3)],
        [datetime(2026, 11, 16, tzinfo=UTC), Path("a/b")],
        [_Point(1.5, ("a",)), _Kind.CPU, _Pair(1, "x"), Outcome(3, value=_Point(2.0))],
    ],
    ids=["plain", "library", "dates and paths", "classes that hold values"],
)
def test_values_are_restored_as_they_were(value: object) -> None:
    assert restored(packed(value)) == value


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3).T, np.array(["a", "bc"]), np.float32(1.5)])
def test_arrays_are_restored_as_they_were(array: Any) -> None:
    found = restored(packed(array))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_what_would_be_called_is_not_restored(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for call in (
        _Calls(os.system, f"touch {mark}"),
        _Calls(subprocess.Popen, ["touch", str(mark)]),
        _Calls(eval, f"open({str(mark)!r}, 'w')"),
        _Calls(open, str(mark), "w"),
        _Calls(getattr, mark, "touch"),
        _Calls(Path.touch, mark),
        _Calls(np.load, str(mark)),
    ):
        with pytest.raises(JobError, match=r"A worker sent a .*\. What comes back from one are plain values"):
            restored(pickle.dumps([call]))
    assert not mark.exists()


def test_an_error_of_ours_is_one() -> None:
    with pytest.raises(JobError, match="for an error of ours"):
        restored(pickle.dumps(_Calls(values._same_error, _Point, (), {})))


def test_a_module_that_nobody_asked_for_is_not_imported() -> None:
    with pytest.raises(JobError, match=r"A worker sent a antigravity\.geohash"):
        restored(b"cantigravity\ngeohash\n.")


def test_only_dataclasses_of_some_modules_are_restored_where_that_is_asked_for() -> None:
    ours = (__name__,)
    assert restored(packed({"a": [_Point(1.0), 2]}), only=ours) == {"a": [_Point(1.0), 2]}
    for value in (_Pair(1, "x"), _Kind.CPU, np.zeros(2), Path("a"), InvalidSetting("x"), Outcome(0)):
        with pytest.raises(JobError, match=r"A worker sent a "):
            restored(packed(value), only=ours)


def test_a_module_is_not_imported_to_find_out_that_it_is_not_wanted() -> None:
    name = "json.tool"
    assert "json" in sys.modules
    sys.modules.pop(name, None)
    with pytest.raises(JobError, match=name):
        restored(b"cjson.tool\nmain\n.", only=(__name__,))
    assert name not in sys.modules


def _answers_with_a_call(mark: str) -> object:
    return _Calls(os.system, f"touch {mark}")


def test_a_worker_that_sends_a_call_costs_its_item_only(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (outcome,) = LocalRunner(workers=1).map(_answers_with_a_call, [str(mark)])
    assert isinstance(outcome.error, JobError)
    assert "posix.system" in str(outcome.error)
    assert not mark.exists()
