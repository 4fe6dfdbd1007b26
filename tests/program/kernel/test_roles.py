"""What kernels use their integers for."""

from __future__ import annotations

import pytest

from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.source import Source

pytest.importorskip("ziglang")


def roles(arguments: str, body: str) -> dict[str, set[str]]:
    text = f"kernel void f({arguments}) {{ int i = get_global_id(0), j = get_global_id(1); {body} }}"
    (access,) = accesses_of(ir_of(Source(text, "opencl")), text).values()
    return {each.name: set(each.roles) for each in access.arguments if each.roles}


def test_a_bound_is_compared_with_an_id() -> None:
    assert roles("global float *x, int n", "if (i < n) x[i] = 1;") == {"n": {"bound 0"}}
    assert roles("global float *x, uint n", "for (uint k = i; k < n; k += get_global_size(0)) x[k] = 1;") == {
        "n": {"bound 0"}
    }


def test_the_length_of_a_row_is_multiplied_with_an_id() -> None:
    assert roles("global float *x, int w", "x[j * w + i] = 1;") == {"w": {"stride 1"}}


def test_a_loop_is_compared_with_its_counter() -> None:
    found = roles(
        "global float *x, int n", "float s = 0; for (int k = 0; k < n; k++) s += x[k * 3]; x[i] = s;"
    )
    assert "loop" in found["n"]
    assert "bound 0" not in found["n"]


def test_divisors_shifts_offsets_and_data_are_told_apart() -> None:
    body = "x[off + i % w] = seed * 2.0f + (i >> sh);"
    assert roles("global float *x, int w, int off, int seed, int sh", body) == {
        "w": {"divisor 0"}, "off": {"offset"}, "seed": {"data"}, "sh": {"shift"}
    }  # fmt: skip
