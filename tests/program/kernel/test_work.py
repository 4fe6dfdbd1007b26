"""How much a work-item does: loops counted as often as they turn, addresses by how neighbours touch them."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.program.compile import ir_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.instructions import read_module
from apportion.program.kernel.launch_values import Contents, contents_of
from apportion.program.kernel.trip_counts import GUESSED_TRIPS
from apportion.program.kernel.work import WORK, Work, work_of
from apportion.program.source import Source

pytest.importorskip("ziglang")
LINE = NDRange((1024,), (64,))


def _work(source: str, scalars: dict[int, int] | None = None, span: NDRange = LINE) -> Work:
    module = read_module(ir_of(Source(source, "opencl", "f.cl")))
    return work_of(module, "f", span, scalars or {})


def test_a_loop_counts_as_often_as_an_argument_says() -> None:
    source = (
        "kernel void f(global float *a, int n) { float s = a[get_global_id(0)];"
        " for (int k = 0; k < n; k++) s = sin(s); a[get_global_id(0)] = s; }"
    )
    few, many = _work(source, {1: 10}), _work(source, {1: 1000})
    assert few.counts["angles"] == pytest.approx(10, rel=0.15)
    assert many.counts["angles"] == pytest.approx(1000, rel=0.15)
    assert few.guessed == 0


def test_a_loop_that_data_ends_is_guessed_and_says_so() -> None:
    work = _work(
        "kernel void f(global float *a, global const int *g) { int i = get_global_id(0); float s = a[i];"
        " for (int k = 0; k < g[i]; k++) s = sin(s); a[i] = s; }"
    )
    assert work.counts["angles"] == pytest.approx(GUESSED_TRIPS, rel=0.3)
    assert work.guessed > 0.5


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("i == 0", 1 / 1024),
        ("get_local_id(0) == 0", 1 / 64),
        ("(i & 3) == 0", 1 / 4),
        ("i % 10 == 3", 1 / 10),
        ("i < n / 4", 1 / 4),
        ("i >= n / 4", 3 / 4),
        ("i != 5", 1),
    ],
)
def test_what_an_id_decides_is_done_by_as_many_work_items(condition: str, part: float) -> None:
    work = _work(
        "kernel void f(global float *a, int n) { int i = get_global_id(0); float s = a[i];"
        f" if ({condition}) for (int k = 0; k < n; k++) s = sin(s); a[i] = s; }}",
        {1: 1024},
    )
    assert work.counts["angles"] == pytest.approx(1024 * part, rel=0.2)


def test_ids_that_are_compared_several_at_once_do_not_decide_for_one_work_item() -> None:
    """clang gathers comparisons in a vector, and compares that as a number."""
    work = _work(
        "kernel void f(global const float *a, global float *out, int w, int h) {"
        " int i = get_global_id(0), j = get_global_id(1);"
        " if (i < 4 || j < 4 || i >= w - 4 || j >= h - 4) { out[j * w + i] = 0; return; }"
        " float s = a[j * w + i]; for (int k = 0; k < 100; k++) s = sin(s); out[j * w + i] = s; }",
        {2: 256, 3: 256},
        NDRange((256, 256), (16, 16)),
    )
    assert work.counts["angles"] > 20


def test_a_power_is_worth_several_exponentials() -> None:
    source = "kernel void f(global float *a) {{ int i = get_global_id(0); a[i] = {0}; }}"
    simple, power = (_work(source.format(said)) for said in ("exp(a[i])", "pow(a[i], a[i + 1])"))
    assert power.counts["powers"] > 3 * simple.counts["powers"] > 0


def test_halving_turns_as_often_as_the_logarithm() -> None:
    work = _work(
        "kernel void f(global float *a, local float *t) { int l = get_local_id(0); t[l] = a[get_global_id(0)];"
        " for (int d = get_local_size(0) / 2; d > 0; d /= 2) { barrier(CLK_LOCAL_MEM_FENCE);"
        " if (l < d) t[l] += t[l + d]; } if (l == 0) a[get_group_id(0)] = t[0]; }"
    )
    assert 4 <= work.counts["barriers"] <= 8


@pytest.mark.parametrize(
    ("index", "pattern"),
    [
        ("i", "coalesced bytes"),
        ("i * 64", "strided bytes"),
        ("n", "broadcast bytes"),
        ("b[i]", "scattered bytes"),
    ],
)
def test_bytes_go_by_how_neighbours_touch_them(index: str, pattern: str) -> None:
    work = _work(
        "kernel void f(global const double *a, global const int *b, global double *out, int n) {"
        f" int i = get_global_id(0); out[i] = a[{index}]; }}",
        {3: 5},
    )
    assert work.counts[pattern] >= 8
    assert work.counts["coalesced bytes stored"] == 8


def test_work_becomes_a_vector_of_known_length() -> None:
    work = _work("kernel void f(global int *a) { atomic_add(a, 1); }")
    assert work.counts["global atomics"] == 1
    assert work.vector().shape == (len(WORK) + 2,)


def test_a_loop_over_a_row_turns_as_often_as_the_array_of_rows_says() -> None:
    source = (
        "kernel void f(global const int *row, global const float *v, global float *out) {"
        " int i = get_global_id(0); float s = 0; for (int k = row[i]; k < row[i + 1]; k++) s += sin(v[k]);"
        " out[i] = s; }"
    )
    rows = np.cumsum(np.full(1025, 7), dtype=np.int32)
    module = read_module(ir_of(Source(source, "opencl", "f.cl")))
    work = work_of(module, "f", LINE, {}, {0: contents_of(rows)})
    assert work.counts["angles"] == pytest.approx(7, rel=0.1)
    assert work.guessed == 0
    assert _work(source).guessed > 0.5


def test_a_loop_up_to_an_element_turns_as_often_as_elements_are_large() -> None:
    source = (
        "kernel void f(global const uint *many, global float *out) { int i = get_global_id(0);"
        " float s = out[i]; for (uint k = 0; k < many[i]; k++) s = sin(s); out[i] = s; }"
    )
    module = read_module(ir_of(Source(source, "opencl", "f.cl")))
    values = np.random.default_rng(0).integers(0, 101, 5000).astype(np.uint32)
    work = work_of(module, "f", LINE, {}, {0: contents_of(values)})
    assert work.counts["angles"] == pytest.approx(50, rel=0.2)


@pytest.mark.parametrize(("values", "mean", "step"), [([5], 5, 0), ([0, 4, 2, 8], 3.5, 10 / 3)])
def test_contents_are_the_mean_and_how_far_elements_climb(
    values: list[int], mean: float, step: float
) -> None:
    assert contents_of(np.array(values)) == Contents(pytest.approx(mean), pytest.approx(step))


def test_what_flags_decide_is_done_as_often_as_they_are_set() -> None:
    source = (
        "kernel void f(global const uchar *wanted, global float *out) { int i = get_global_id(0);"
        " float s = out[i]; if (wanted[i]) for (int k = 0; k < 100; k++) s = sin(s); out[i] = s; }"
    )
    module = read_module(ir_of(Source(source, "opencl", "f.cl")))
    flags = (np.arange(2000) % 10 == 0).astype(np.uint8)
    work = work_of(module, "f", LINE, {}, {0: contents_of(flags)})
    assert work.counts["angles"] == pytest.approx(10, rel=0.1)


def test_an_id_that_is_stirred_often_is_looked_at_once() -> None:
    """Each line uses the one before it twice: without memory that would be two to the power of lines."""
    stirred = " ".join(f"x ^= x >> {3 + k % 7}; x *= {2 * k + 3}u;" for k in range(60))
    work = _work(
        f"kernel void f(global float *a) {{ uint x = get_global_id(0); {stirred}"
        " if ((x & 7) == 3) { for (int k = 0; k < 64; k++) a[x] = sin(a[x]); } }"
    )
    assert 0 < work.counts["angles"] <= 64


def test_a_loop_that_ids_end_is_followed_and_the_longest_work_item_is_known() -> None:
    work = _work(
        "kernel void f(global float *a) { uint n = get_global_id(0) + 1; float s = a[n - 1];"
        " while (n != 1) { n = n & 1 ? 3 * n + 1 : n / 2; s = sin(s); } a[get_global_id(0)] = s; }",
        span=NDRange((27,), (27,)),
    )

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(3 * n + 1 if n & 1 else n // 2)

    assert work.counts["angles"] == pytest.approx(sum(map(steps, range(1, 28))) / 27)
    assert work.longest["angles"] == 111  # of 27
    assert work.guessed == 0


def test_a_loop_that_only_looks_at_memory_is_waiting() -> None:
    source = (
        "kernel void f(global volatile int *flags, global float *a) {{ int g = get_group_id(0);"
        " if (get_local_id(0) == 0) {{ while ({}) {{}} atomic_xchg(&flags[g], 1); }} a[g] = 1; }}"
    )
    for look in ("atomic_add(&flags[g - 1], 0) == 0", "flags[g - 1] == 0"):
        work = _work(source.format(look))
        assert work.counts["waits"] * 64 == pytest.approx(1, rel=0.1), look
        assert work.guessed == 0
    # Here every turn changes something: others are waited for, but the loop works.
    work = _work(source.format("atomic_cmpxchg(&flags[g - 1], 0, 1) == 0"))
    assert work.counts.get("waits", 0.0) == 0
    assert work.guessed > 0


def test_divisions_of_long_integers_are_counted_apart() -> None:
    source = "kernel void f(global {0} *a, {0} n) {{ a[get_global_id(0)] = a[get_global_id(0)] % n; }}"
    assert _work(source.format("uint")).counts["divisions"] == 1
    assert _work(source.format("ulong")).counts["long divisions"] == 1
    assert _work(source.format("ulong")).counts.get("divisions", 0.0) == 0


def test_calls_of_small_functions_are_counted_whatever_they_do() -> None:
    work = _work(
        "kernel void f(global int *a, global float *b, int n) { int i = get_global_id(0);"
        " a[i] = clamp(a[i], 0, n); b[i] = floor(b[i]) + sin(b[i]); }"
    )
    assert work.counts["builtins"] == 2
    assert work.counts["angles"] == 1
