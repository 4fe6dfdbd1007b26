"""IR whose constructs are repeated: bounded in time and memory, and an error of ours where it is too much."""

from __future__ import annotations

import contextlib
import resource
import time

import pytest

from apportion.errors import MalformedIR
from apportion.program.llvm import graph_of_ir


def read(text: str) -> float:
    """Seconds of one processor; what is refused is refused by an error of ours."""
    started = time.process_time()
    with contextlib.suppress(MalformedIR):
        graph_of_ir(text)
    return time.process_time() - started


@pytest.mark.parametrize(
    ("start", "repeated", "end"),
    [
        ("@g = global i8", "*", " null\n"),  # H6
        ("@g = external global i8", " ()", "\n"),
        ("@g = external global i8", " addrspace(1)*", "\n"),
        ("@g = external global ", "[1 x ", "i8\n"),
        ("@g = external global ", "<{ ", "i8\n"),
        ("define void @f(", "i32, ", "i32) { ret void }\n"),
        ("@g = global i32 ", "0", "\n"),
        ("@g = constant i8* ", "getelementptr (", "\n"),
        ("", "declare void @f()\n", ""),
        ("", "; a comment\n", ""),
        ("!0 = !{", "!1, ", "!1}\n!1 = !{}\n"),
        ('@"', "a", '" = global i32 0\n'),
    ],
)
def test_a_repeated_construct_takes_linear_time(start: str, repeated: str, end: str) -> None:
    # The least of two: other programs on the machine only add to a time.
    few, many = (min(read(start + repeated * count + end) for _ in range(2)) for count in (10_000, 100_000))
    assert many < 30 * few + 0.3


def test_sixty_thousand_stars_are_refused_and_cost_nothing() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MalformedIR, match="a type has too many levels of pointers and functions"):
        graph_of_ir("@g = global i8" + "*" * 60_000 + " null\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert graph_of_ir("@g = global i8" + "*" * 150 + " null\n") is not None


def test_every_return_to_every_call_is_refused_where_that_is_too_much() -> None:
    exits = "".join(f"b{n}:\n  ret void\n" for n in range(9000))
    cases = "".join(f"    i32 {n}, label %b{n}\n" for n in range(1, 9000))
    text = f"define void @f(i32 %n) {{\n  switch i32 %n, label %b0 [\n{cases}  ]\n{exits}}}\n"
    text += "define void @g() {\n" + "  call void @f(i32 0)\n" * 9000 + "  ret void\n}\n"
    with pytest.raises(MalformedIR, match="functions with many returns are called too often"):
        graph_of_ir(text)
