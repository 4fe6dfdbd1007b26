"""Workloads: arguments in words, sizes with letters, files beside sources."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from apportion.errors import InvalidSetting, MalformedInput
from apportion.program.compile import ir_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source
from apportion.runtime.words import ArrayWord, evaluate, read_word
from apportion.runtime.workload import Case, Workload, beside, described, from_json, resolved

PLANE = NDRange((64, 32), (16, 4))


def test_arguments_are_read_from_words() -> None:
    assert read_word("float32[64]=random") == ArrayWord("float32", 64, "random")
    assert read_word("local:256") == 256
    value = read_word("int32:-5")
    assert isinstance(value, np.int32)
    assert value == -5
    assert read_word("float64:0.25") == np.float64(0.25)


@pytest.mark.parametrize(
    "text", ["float33[64]", "int32:x", "int8:300", "text:5", "float32[0]=zeros", "int32[4]=noise"]
)
def test_what_is_no_argument_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        read_word(text)


def test_sizes_are_sums_of_products_of_letters_and_numbers() -> None:
    assert evaluate("N", PLANE) == 2048
    assert evaluate("N0*N1+2", PLANE) == 2050
    assert evaluate("N/L", PLANE) == 32
    assert evaluate("3*L0 + L1", PLANE) == 52
    assert evaluate("N2", PLANE) == 1
    with pytest.raises(InvalidSetting, match="'M' in '2\\*M' is neither a number nor one of"):
        evaluate("2*M", PLANE)


def test_letters_become_numbers_over_a_range() -> None:
    arguments = {
        "a": "float32[N]=random",
        "i": "int32[N]=below:N0",
        "t": "local:4*L",
        "n": "int32:N1",
        "f": "float32:0.5",
    }
    assert resolved(arguments, PLANE) == Case(
        PLANE, ("float32[2048]=random", "int32[2048]=below:64", "local:256", "int32:32", "float32:0.5")
    )


def test_a_workload_survives_being_written_and_read() -> None:
    case = Case(PLANE, ("float32[2048]=random", "int32:32"))
    workload = Workload("f", "mine", "kernel void f() {}", "f", (case,))
    assert from_json(json.loads(json.dumps(workload.as_json()))) == workload
    assert case.nbytes == 8192
    with pytest.raises(MalformedInput, match="not a workload"):
        from_json({"name": "f"})


def test_a_source_is_described_by_the_file_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "f.cl"
    path.write_text("kernel void f(global float *a) {}")
    assert described(path) is None
    (tmp_path / "f.json").write_text(
        json.dumps(
            {"kernel": "f", "suite": "mine", "arguments": {"a": "float32[N]=zeros"}, "ranges": [[[64], [8]]]}
        )
    )
    found = described(path)
    assert found is not None
    assert found.cases == (Case(NDRange((64,), (8,)), ("float32[64]=zeros",)),)
    (tmp_path / "f.json").write_text("{}")
    with pytest.raises(MalformedInput, match="does not describe a kernel"):
        described(path)


def test_a_file_that_lacks_something_says_what(tmp_path: Path) -> None:
    (tmp_path / "f.cl").write_text("kernel void f(global float *a) {}")
    (tmp_path / "f.json").write_text(json.dumps({"kernel": "f", "arguments": {"a": "float32[N]"}}))
    with pytest.raises(MalformedInput, match=r"it has no 'ranges'\. Write it like"):
        described(tmp_path / "f.cl")


def test_what_is_said_beside_a_source_holds_for_every_launch_and_the_caller_wins(tmp_path: Path) -> None:
    (tmp_path / "f.cl").write_text("kernel void f(global float *a, int n, int m) { a[n] = m; }")
    (tmp_path / "f.json").write_text(
        json.dumps({"kernel": "f", "arguments": {"a": "float32[N]", "n": "int32:N0"}, "ranges": []})
    )
    source = Source.read(tmp_path / "f.cl")
    signature = signature_of(ir_of(source))
    assert beside(source, signature, ["n=3"]) == {"a": "float32[N]", "n": "3"}
    assert beside(Source(str(source.text), "opencl"), signature) == {}
