"""The messages that users meet, word for word."""

from __future__ import annotations

import inspect
import re

import pytest

from apportion import errors
from apportion.errors import (
    ApportionError,
    CompileError,
    DeadlineExceeded,
    InvalidGraph,
    InvalidSetting,
    ItemFailed,
    JobError,
    LimitExceeded,
    MalformedInput,
    MalformedIR,
    MissingPackage,
    UnknownName,
    UnreadableFile,
    WorkerCrashed,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ApportionError) and kind.__module__ == errors.__name__
]


def test_an_unknown_name_suggests_a_near_one_and_lists_all():
    error = UnknownName("device", "opncl", ["recorded", "opencl"])
    assert str(error) == "No device called 'opncl'. Did you mean 'opencl'? There are: opencl, recorded."


def test_an_unknown_name_far_from_all_is_given_the_list_alone():
    assert str(UnknownName("device", "zzz", ["opencl"])) == "No device called 'zzz'. There are: opencl."


def test_an_unknown_name_in_an_empty_table_says_so():
    assert str(UnknownName("kernel", "main", [])) == "No kernel called 'main'. There are none."


def test_a_missing_package_names_the_command_that_installs_it():
    error = MissingPackage("pyopencl", "opencl", "The device 'opencl'")
    assert str(error) == (
        "The device 'opencl' needs the package 'pyopencl'. Install it with: pip install 'apportion[opencl]'"
    )


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"file": "a.ll", "line": 3, "column": 7}, "a.ll:3:7: expected a type"),
        ({"file": "a.ll", "line": 3}, "a.ll:3: expected a type"),
        ({"file": "a.ll"}, "a.ll: expected a type"),
        ({}, "<input>: expected a type"),
    ],
)
def test_malformed_input_begins_with_its_place(place, message):
    assert str(MalformedIR("expected a type", **place)) == message


def test_a_compile_error_keeps_all_that_the_compiler_said():
    error = CompileError(
        "use of undeclared identifier 'x'", file="k.cl", line=1, diagnostics="k.cl:1:5: error: …"
    )
    assert str(error) == "k.cl:1: use of undeclared identifier 'x'"
    assert error.diagnostics == "k.cl:1:5: error: …"


def test_a_failed_item_reads_like_the_end_of_a_traceback():
    assert str(ItemFailed("KeyError", "'speed'")) == "KeyError: 'speed'"
    assert str(ItemFailed("AssertionError", "")) == "AssertionError"


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (InvalidSetting, ValueError),
        (UnknownName, LookupError),
        (MissingPackage, ImportError),
        (UnreadableFile, OSError),
        (MalformedInput, ValueError),
        (InvalidGraph, ValueError),
        (JobError, RuntimeError),
        (DeadlineExceeded, TimeoutError),
        (LimitExceeded, JobError),
        (WorkerCrashed, JobError),
        (ItemFailed, JobError),
    ],
)
def test_each_error_is_also_what_a_caller_would_expect(ours, builtin):
    assert issubclass(ours, builtin)
    assert issubclass(ours, ApportionError)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_error_has_its_line_in_the_drawn_tree_and_a_docstring(kind):
    assert any(kind.__name__ in line.split() for line in (errors.__doc__ or "").splitlines())
    assert kind.__doc__


def test_the_drawn_tree_has_no_error_that_is_gone():
    drawn = re.findall(r"── (\w+)", errors.__doc__ or "")
    assert sorted(drawn) == sorted(kind.__name__ for kind in CLASSES if kind is not ApportionError)
