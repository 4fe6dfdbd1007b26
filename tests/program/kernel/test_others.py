"""A kernel without the others of its file."""

from __future__ import annotations

from apportion.program.kernel.others import without_other_kernels

TEXT = """\
// kernel void hidden(global int *x) { }
constant char *words = "kernel void said(int x) {";
float helper(float x) { return x; }
__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void first(global float *x) {
    if (x[0] > 0) { x[0] = helper(1); } // }
}
kernel void second(global half *x)
{
    x[0] = 1.0h;
}
kernel void third(global float *x) { x[0] = 3; }
kernel void fourth(global float *x) { third(x); }
"""


def test_others_leave_empty_lines_and_helpers_stay() -> None:
    alone = without_other_kernels(TEXT, "first")
    assert alone.count("\n") == TEXT.count("\n")
    assert "second" not in alone
    assert "fourth" not in alone
    assert [line for line in alone.splitlines() if line][:6] == TEXT.splitlines()[:6]


def test_a_kernel_that_another_one_calls_stays() -> None:
    assert "void third" in without_other_kernels(TEXT, "fourth")
    assert "void first" not in without_other_kernels(TEXT, "fourth")


def test_a_text_of_one_kernel_is_the_same() -> None:
    text = "kernel void f(global int *x) { x[0] = 1; }"
    assert without_other_kernels(text, "f") == text
