"""Kernels without their helper functions, compiled all the same."""

from __future__ import annotations

import pytest

from apportion.errors import CompileError
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.kernel.recover import KERNEL, Recovered, guessed, recover
from apportion.program.source import Source

pytest.importorskip("ziglang")
OPTIONS = CompileOptions(target="x86_64-unknown-unknown")
# The helper `A` was cut away, and the kernel was renamed to the same name.
CUT = """
__kernel void A(__global float* a, __global const float2* b) {
  int c = get_global_id(0);
  B(a);
  a[c] = C(a[c], 2) + 1.0f;
}
"""


def recovered(text: str) -> Recovered:
    source = Source(text, "opencl", "cut.cl")
    with pytest.raises(CompileError) as refused:
        ir_of(source, OPTIONS)
    return recover(source, OPTIONS, refused.value)


def test_missing_functions_are_declared_and_named() -> None:
    found = recovered(CUT)
    assert [line.split()[1] for line in found.declared] == ["B", "C"]
    assert kernels_of(found.ir) == [KERNEL]
    assert "had to be declared, their bodies are missing" in found.words


def test_a_result_type_is_searched_for() -> None:
    found = recovered("__kernel void A(__global float4* a) { a[0] = B(a[0]).xyzw; }")
    assert found.declared == ("float4 B",)


def test_names_of_another_library_are_replaced() -> None:
    found = recovered("__kernel void A(__global float* a) { a[0] = __clc_pow(a[0], 2.0f); }")
    assert found.declared == ()
    assert "names of an OpenCL library were replaced" in found.words


def test_what_no_declaration_mends_keeps_its_first_reason() -> None:
    with pytest.raises(CompileError, match="undeclared identifier 'width'"):
        recovered("__kernel void A(__global float* a) { a[0] = width; }")
    with pytest.raises(CompileError, match="expected"):
        recovered("__kernel void A(__global float* a) { a[0] = ; }")


def test_what_is_missing_is_guessed_and_said() -> None:
    text = (
        '#include "config.h"\nkernel void f(global REAL *x, uint_t n) {\n'
        "  local REAL t[BLOCK];\n  t[get_local_id(0)] = scale(x[0]);\n  x[get_global_id(0)] = t[n];\n}\n"
    )
    found, guesses = guessed(Source(text, "opencl", "k.cl"))
    assert set(guesses) == {
        "without config.h", "-D REAL=float", "-D uint_t=uint", "-D BLOCK=16", "scale() without its body"
    }  # fmt: skip
    assert "@f(" in ir_of(found)


def test_a_missing_sampler_is_taken_for_one() -> None:
    text = (
        "kernel void f(read_only image2d_t a, global float4 *x) {\n"
        "  x[0] = read_imagef(a, my_sampler, (int2)(0, 0));\n}\n"
    )
    found, guesses = guessed(Source(text, "opencl", "k.cl"))
    assert [guess.partition("=")[0] for guess in guesses] == ["-D my_sampler"]
    assert "@f(" in ir_of(found)


def test_nothing_is_guessed_where_nothing_lacks() -> None:
    source = Source("kernel void f(global int *x) { *x = 1; }\n", "opencl")
    assert guessed(source) == (source, ())


def test_a_missing_macro_is_named_with_what_to_add() -> None:
    with pytest.raises(CompileError, match="give it: -D BLOCK=VALUE"):
        ir_of(Source("kernel void f(global int *x) { *x = BLOCK; }\n", "opencl"))
    with pytest.raises(CompileError, match="give it: -D REAL=float"):
        ir_of(Source("kernel void f(global REAL *x) { *x = 1; }\n", "opencl"))
