"""Sources of strangers that are not run, and those that are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.errors import CompileError
from apportion.program.untrusted import check_runnable
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions

HONEST = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#ifndef N
#define N 16
#endif
#if defined(cl_khr_fp64) && __OPENCL_C_VERSION__ >= 120 && N > 4
#define NAME(a, b) a##_##b
#endif
#ifndef __K_H__
#define __K_H__
#endif
#define __FMA(a, b, c) ((a) * (b) + (c))
// asm("syscall") in a comment, and in a string: __clang__
kernel void NAME(f, g)(global float *a, float asm_cost) { a[0] = asm_cost; /* #if __clang_major__ */ }
"""


def test_a_kernel_that_asks_what_it_may_use_is_run() -> None:
    check_runnable(HONEST, "", "k.cl")


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ('kernel void f() { __asm__ volatile("syscall"); }', "inline assembly", 1),
        ('kernel void f() {\n  asm("nop"); }', "inline assembly", 2),
        ('kernel void f() {\n  __as\\\nm\n ("nop"); }', "inline assembly", 2),
        ("#if __clang_major__ != 18\n#endif", "code for some compilers only (__clang_major__)", 1),
        ("\n#ifdef __x86_64__\n#endif", "code for some compilers only (__x86_64__)", 2),
        ("# if 0\n%: elif defined(POCL_DEVICE)\n#endif", "code for some compilers only (POCL_DEVICE)", 2),
        ("#if __has_builtin(x)\n#endif", "code for some compilers only (__has_builtin)", 1),
        ('#define J(a, b) a##b\nkernel void f() { J(__as, m)("nop"); }', "macros that can spell", None),
        ('#define J(a, b, c) a%:%:b%:%:c\nint J(__, as, m__)("nop");', "macros that can spell", None),
        ('#define V volatile\nkernel void f() { __asm__ V("nop"); }', "inline assembly", 2),
        ('kernel void f() { __asm__ __volatile("nop"); }', "inline assembly", 1),
        ('#define M(a, b) a b\nkernel void f() {\n  M(__asm__, ("nop")); }', "inline assembly", 3),
        ('kernel void f() { // a\r __asm__("nop"); }', "inline assembly", 2),
        ('kernel void f() {\r\n __a\\\rsm__("nop"); }', "inline assembly", 2),
        ('kernel void f() { // a ??/\n __asm__("nop"); }', "inline assembly", 2),
        ('constant char *s = "??/" " __asm__("nop"); "";', "inline assembly", 1),
        (
            'constant char *s = R"(" )"; void f() { __asm__("nop"); } constant char *t = "";',
            "inline assembly",
            1,
        ),
        (
            "#define A __clang_major__\n#if A != 18\n#endif",
            "code for some compilers only (__clang_major__)",
            1,
        ),
        ("#define A __NOBODY__\n#define B A\n#if B\n#endif", "code for some compilers only (__NOBODY__)", 3),
        (
            "#if 0\n#define __clang_major__ 18\n#endif\n#if __clang_major__ != 18\n#endif",
            "code for some compilers only (__clang_major__)",
            2,
        ),
        (
            "kernel void f(global int *a) {\n  a[0] = sizeof(__VERSION__) == 42; }",
            "code for some compilers only (__VERSION__)",
            2,
        ),
    ],
)
def test_what_another_compiler_would_read_otherwise_is_refused(
    text: str, what: str, line: int | None
) -> None:
    with pytest.raises(CompileError) as caught:
        check_runnable(text, "", "k.cl")
    assert what in str(caught.value)
    assert "--trust-source" in str(caught.value)
    assert caught.value.line == line


def test_assembly_is_found_in_what_our_compiler_made_too() -> None:
    ir = '  %1 = call i64 asm sideeffect "syscall", "={ax}"(i64 1)'
    with pytest.raises(CompileError, match="inline assembly"):
        check_runnable("kernel void f() { SYSCALL }", ir, "k.cl")


@pytest.mark.xdist_group("opencl")
def test_a_source_is_run_when_somebody_trusts_it_and_else_not() -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    text = "#if __clang_major__ > 3\n#define TWO 2\n#endif\n"
    text += "kernel void f(global float *a) { a[get_global_id(0)] = TWO; }"
    drivers = DriverOptions(pocl_instances=1, threads=1, vendors=False)
    with pytest.raises(CompileError, match="which is not run for a stranger"):
        Together(text, "f", drivers=drivers)
    a = np.zeros(64, np.float32)
    with Together(text, "f", drivers=drivers, limits=Limits(seconds=20), trust_source=True) as kernel:
        kernel(a, global_size=64, local_size=16)
    assert a.tolist() == [2.0] * 64


@pytest.mark.xdist_group("opencl")
def test_a_byte_that_is_no_utf_8_is_no_obstacle(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    (tmp_path / "k.cl").write_bytes(
        b"// caf\xe9\nkernel void f(global float *a) { a[get_global_id(0)] = 1; }\n"
    )
    a = np.zeros(64, np.float32)
    with Together(
        tmp_path / "k.cl", drivers=DriverOptions(pocl_instances=1, threads=1, vendors=False)
    ) as kernel:
        kernel(a, global_size=64, local_size=16)
    assert a.sum() == 64
