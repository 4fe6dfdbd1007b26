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


def test_what_ids_are_subtracted_from_bounds_them() -> None:
    assert "bound 0" in roles("global float *x, int n", "x[n - 1 - i] = 1;")["n"]
    body = "int row = h - 1 - (int)get_group_id(0); x[row * w + j] = 1;"
    assert "bound 0" in roles("global float *x, int h, int w", body)["h"]
    assert roles("global float *x, int off", "x[i - off] = 1;") == {"off": {"offset"}}


def test_what_limits_a_loop_is_followed_to_where_it_was_read() -> None:
    body = "float s = 0; for (int k = 0; k < count[i]; k++) s += y[list[i + k * pitch]]; x[i] = s;"
    found = roles(
        "global float *x, global const int *count, global const int *list, global float *y, int pitch", body
    )
    assert found["count"] == {"trips"}
    assert not {"list", "y"} & set(found)


def test_loops_inside_each_other_are_counted() -> None:
    inner = (
        "float s = 0; for (int k = 0; k < n; k++) for (int m = 0; m < {}; m++) s = sin(s + y[m]); y[i] = s;"
    )
    arguments = "global float *y, int n"
    assert "nest 2" in roles(arguments, inner.format("k + 2"))["n"]
    assert "nest 1" in roles(arguments, inner.format("16"))["n"]
    window = "for (int k = -n; k <= n; k++) for (int m = -n; m <= n; m++) s = sin(s + y[m + n]);"
    assert "nest 2" in roles(arguments, f"float s = 0; {window} y[i] = s;")["n"]
    after = "for (int k = 0; k < n; k++) s = sin(s + y[k]); for (int m = 0; m < w; m++) s = cos(s + y[m]);"
    found = roles("global float *y, int n, int w", f"float s = 0; {after} y[i] = s;")
    assert "nest 1" in found["n"]
    assert "nest 1" in found["w"]
