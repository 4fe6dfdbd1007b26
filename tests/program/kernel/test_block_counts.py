"""Blocks that ids and scalar arguments decide about run as often as plain Python says."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion import _native
from apportion.program.compile import ir_of
from apportion.program.kernel.block_counts import Simulated, sample, simulated
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.instructions import IRFunction, read_module
from apportion.program.source import Source
from apportion.suite import problem_of

LINE = NDRange((1024,), (64,))
ONE = NDRange((1,), (1,))
SIGN = "define spir_kernel void @f(i32 %n, float %x, i8 %s) {\n"


def _compiled(source: str | Source, kernel: str = "f") -> IRFunction:
    pytest.importorskip("ziglang")
    source = Source(source, "opencl", "f.cl") if isinstance(source, str) else source
    return read_module(ir_of(source)).functions[kernel]


def _written(body: str) -> IRFunction:
    return read_module(f"{SIGN}{body}\n}}\n").functions["f"]


def _times(function: IRFunction, counts: Mapping[str, float], part: str) -> float:
    """How often instructions with this in their text were executed."""
    return sum(counts[one.block] for one in function.instructions if part in one.text)


def _ran(found: Simulated | None) -> Simulated:
    assert found is not None
    return found


def _agrees(
    function: IRFunction,
    span: NDRange,
    scalars: Mapping[int, int],
    part: str,
    expected: Callable[..., int],
) -> None:
    """Check mean and longest against what a function of the global ids says, for the items that were sampled."""
    found = _ran(simulated(function, span, scalars))
    counts = [expected(*_ids(span, item)) for item in sample(span)]
    assert found.whole
    assert found.items == len(counts)
    assert _times(function, found.mean, part) == pytest.approx(_mean(span, counts), rel=1e-12)
    assert _times(function, found.longest, part) == max(counts)


def _mean(span: NDRange, counts: list[int]) -> float:
    """What the items of a sample say of all: 36 stand for the whole range but its ends, 12 for themselves."""
    if len(counts) == span.work_items:
        return sum(counts) / len(counts)
    assert len(counts) == 48
    between = sum(counts[:36]) / 36 * (span.work_items - 12)
    return (between + sum(counts[36:])) / span.work_items


def _ids(span: NDRange, item: int) -> tuple[int, ...]:
    ids = []
    for size, offset in zip(span.global_size, span.offset, strict=True):
        item, place = divmod(item, size)
        ids.append(place + offset)
    return tuple(ids)


def test_the_sample_has_both_ends_and_what_lies_between_once_each() -> None:
    span = NDRange((4096, 16), (64, 1))
    items = sample(span)
    assert len(items) == len(set(items)) == 48
    assert set(range(8)) | set(range(65532, 65536)) <= set(items)
    assert {item * 12 // 65536 for item in items} == set(range(12))
    assert sorted(sample(NDRange((40,), (8,)))) == list(range(40))
    assert len(set(sample(NDRange((49,), (7,))))) == 48


# Kernels as clang compiles them


def test_a_triangular_loop_turns_as_often_as_the_id_says() -> None:
    function = _compiled(
        "kernel void f(global float *a) { int i = get_global_id(0); float s = a[i];"
        " for (int k = 0; k < i; k++) s = sin(s); a[i] = s; }"
    )
    _agrees(function, LINE, {}, "@_Z3sinf", lambda i: i)
    _agrees(function, NDRange((64,), (8,), (100,)), {}, "@_Z3sinf", lambda i: i)


def test_collatz_of_an_id_takes_its_steps() -> None:
    def steps(i: int) -> int:
        n, count = i + 1, 0
        while n > 1:
            n, count = (3 * n + 1 if n & 1 else n // 2), count + 1
        return count

    function = _compiled(
        "kernel void f(global float *a) { int i = get_global_id(0); float s = a[i];"
        " for (ulong n = i + 1; n > 1; s = sin(s)) n = n & 1 ? 3 * n + 1 : n / 2; a[i] = s; }"
    )
    _agrees(function, LINE, {}, "@_Z3sinf", steps)


def _cycle(start: int, rows: int, columns: int) -> tuple[int, bool]:
    """How many places lead from a place to one that is no greater, and whether that is where it began."""
    last, place, turns = rows * columns - 1, start, 0
    if start == 0 or start >= last:
        return 0, False
    while True:
        place, turns = place * columns % last, turns + 1
        if place <= start:
            return turns, place == start


def test_a_transposition_in_place_follows_its_cycles() -> None:
    function = _compiled(problem_of("transposition").source(), "transposition")
    span = NDRange((1536,), (64,))
    scalars = {1: 64, 2: 24}
    found = _ran(simulated(function, span, scalars))
    cycles = [_cycle(item, 64, 24) for item in sample(span)]
    looked = [turns for turns, _ in cycles]
    moved = [turns if whole else 0 for turns, whole in cycles]
    assert sum(moved) < sum(looked)
    assert found.whole
    assert _times(function, found.mean, "store float") == pytest.approx(_mean(span, moved))
    assert _times(function, found.longest, "store float") == max(moved)
    # Once for each place that is looked at, and again for each that is moved.
    divisions = _mean(span, looked) + _mean(span, moved)
    assert _times(function, found.mean, "urem i64") == pytest.approx(divisions)


def test_mandelbrot_takes_as_many_steps_as_the_kernel_says() -> None:
    width, height, most = 96, 64, 50

    def halves(n: int, by: int) -> int:
        return int(math.copysign(abs(n) // by, n))

    def steps(x: int, y: int) -> int:
        ca, cb = halves(x * 12288, width) - 8192, halves(y * 8192, height) - 4096
        a = b = n = 0
        while n < most and a * a // 4096 + b * b // 4096 < 16384:
            a, b = a * a // 4096 - b * b // 4096 + ca, halves(2 * a * b, 4096) + cb
            n += 1
            if abs(a) > 16384 or abs(b) > 16384:
                break
        return n

    function = _compiled(problem_of("mandelbrot").source(), "mandelbrot")
    span, scalars = NDRange((width, height), (8, 8)), {1: width, 2: height, 3: most}
    # The addition of one is in the loop, executed once a step, before what may leave it.
    counter = next(
        one.result for one in function.instructions if one.text.endswith(", 1") and "add" in one.text
    )
    _agrees(function, span, scalars, f"{counter} = add", steps)


def test_floats_are_rounded_to_their_type_at_each_step() -> None:
    def steps(i: int) -> int:
        x, count = np.float32(i) * np.float32(0.01), 0
        while x < np.float32(100):
            x, count = x * np.float32(1.07) + np.float32(0.1), count + 1
        return count

    function = _compiled(
        "#pragma OPENCL FP_CONTRACT OFF\n"
        "kernel void f(global float *a) { int i = get_global_id(0); float s = a[i];"
        " for (float x = i * 0.01f; x < 100.0f; x = x * 1.07f + 0.1f) s = sin(s); a[i] = s; }"
    )
    _agrees(function, LINE, {}, "@_Z3sinf", steps)


def test_signed_and_unsigned_comparisons_differ() -> None:
    source = (
        "kernel void f(global float *a, {0} n) {{ float s = a[0];"
        " for ({0} k = n - 3; k < n + 3; k += 2) s = sin(s); a[0] = s; }}"
    )
    expected = {"int": {0: 3, -1: 3, 10: 3}, "uint": {0: 0, -1: 0, 10: 3}}
    for kind, counts in expected.items():
        function = _compiled(source.format(kind))
        for n, turns in counts.items():
            found = _ran(simulated(function, ONE, {1: n}))
            assert _times(function, found.mean, "@_Z3sinf") == turns, (kind, n)


def test_narrow_integers_wrap() -> None:
    function = _compiled(
        "kernel void f(global float *a, uchar n) { float s = a[0];"
        " for (uchar k = n; k != 3; k += 5) s = sin(s); a[0] = s; }"
    )
    turns = next(k for k in range(256) if (200 + 5 * k) % 256 == 3)
    for passed, expected in ((200, turns), (3 + 256, 0)):  # what is passed loses what the type cannot hold
        found = _ran(simulated(function, ONE, {1: passed}))
        assert _times(function, found.mean, "@_Z3sinf") == expected
    assert turns > 50


def test_a_branch_on_what_memory_holds_is_not_known() -> None:
    source = (
        "kernel void f(global float *a, global const int *g, int n) {{ int i = get_global_id(0);"
        " float s = a[i]; for (int k = 0; k < {0}; k++) s = sin(s); a[i] = s; }}"
    )
    assert simulated(_compiled(source.format("g[i]")), LINE, {2: 5}) is None
    function = _compiled(source.format("n"))
    assert simulated(function, LINE, {}) is None
    assert _times(function, _ran(simulated(function, LINE, {2: 5})).mean, "@_Z3sinf") == 5


def test_an_endless_loop_is_cut_short_and_others_get_their_turn() -> None:
    function = _compiled(
        "kernel void f(volatile global int *a) { int i = get_global_id(0), n = i;"
        " if (i == 77 || i == 3) while (1) a[i] = n++; a[i] = 5; }"
    )
    began = time.perf_counter()
    found = _ran(simulated(function, NDRange((40,), (8,)), {}))
    assert time.perf_counter() - began < 0.5
    assert not found.whole
    assert found.items == 39
    assert _times(function, found.mean, "i32 5,") == 39 / 40
    assert max(found.longest.values()) > 100_000
    forever = _compiled("kernel void f(volatile global int *a) { int n = 0; while (1) a[0] = n++; }")
    found = _ran(simulated(forever, LINE, {}, budget=10_000))
    assert (found.items, found.whole) == (0, False)
    assert 100 < max(found.mean.values()) < 10_000


# Functions written by hand


def _is_true(lines: str, scalars: Mapping[int, int] | None = None) -> bool | None:
    """What `%c` is after some lines of IR."""
    found = simulated(
        _written(f"  {lines}\n  br i1 %c, label %yes, label %no\nyes:\n  ret void\nno:\n  ret void"),
        ONE, scalars or {},
    )  # fmt: skip
    assert found is None or found.mean["%yes"] + found.mean["%no"] == found.mean["%entry"] == 1
    return None if found is None else found.mean["%yes"] == 1


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("%c = icmp eq i32 %n, undef", None),
        ("%c = fcmp olt float %x, 1.0", None),
        ("%c = select i1 true, i1 false, i1 undef", False),
        ("%c = select i1 undef, i1 true, i1 true", None),
        ("%a = udiv i32 %n, 0\n %c = icmp eq i32 %a, %a", None),
        ("%a = sdiv i32 -2147483648, -1\n %c = icmp eq i32 %a, %a", None),
        ("%a = srem i8 -128, -1\n %c = icmp eq i8 %a, %a", None),
        ("%a = shl i32 %n, 32\n %c = icmp eq i32 %a, %a", None),
        ("%a = fptosi double 4.0e9 to i32\n %c = icmp eq i32 %a, %a", None),
        ("%a = fptoui double 4.0e9 to i32\n %c = icmp eq i32 %a, -294967296", True),
        ("%a = fptosi float -2.75 to i8\n %c = icmp eq i8 %a, -2", True),
        ("%a = sitofp i8 -1 to float\n %c = fcmp fast oeq float %a, -1.0", True),
        ("%a = uitofp nneg i8 -1 to double\n %c = fcmp oeq double %a, 2.55e2", True),
        ("%a = sext i8 %s to i64\n %c = icmp slt i64 %a, -1", True),
        ("%a = zext i8 %s to i64\n %c = icmp eq i64 %a, 200", True),
        ("%a = trunc nuw i32 %n to i3\n %c = icmp samesign uge i3 %a, -1", True),
        ("%a = freeze i32 %n\n %c = icmp eq i32 %a, 7", True),
        ("%a = bitcast float 1.0 to i32\n %c = icmp eq i32 %a, 1065353216", True),
        ("%a = fadd float 0x3FB99999A0000000, 0x3FC99999A0000000\n %c = fcmp oeq float %a, 0x3FD3333340000000", True),
        ("%a = fadd double 0x3FB99999A0000000, 0.0\n %c = fcmp oeq double %a, 0x3FB99999A0000000", True),
        ("%a = fdiv double 0.0, 0.0\n %c = fcmp uno double %a, 0.0", True),
        ("%a = fdiv double 0.0, 0.0\n %c = fcmp une double %a, %a", True),
        ("%a = fdiv double 0.0, 0.0\n %c = fcmp one double %a, %a", False),
        ("%a = fneg contract float 1.0, !dbg !5\n %c = fcmp ule float %a, -1.0", True),
        ("%a = fpext float 0x3FB99999A0000000 to double\n %c = fcmp ogt double %a, 0x3FB999999999999A", True),
        ("%a = fptrunc double 0x3FB999999999999A to float\n %c = fcmp oeq float %a, 0x3FB99999A0000000", True),
        ("%a = frem double 7.5, 2.0\n %c = fcmp oeq double %a, 1.5", True),
        # 1/3 in a float times 3, less 1: nothing is left when the product is rounded first.
        ("%a = call float @llvm.fmuladd.f32(float 0x3FD5555560000000, float 3.0, float -1.0)\n %c = fcmp ogt float %a, 0.0", True),
        ("%a = call i32 @llvm.smax.i32(i32 %n, i32 -9)\n %c = icmp eq i32 %a, 7", True),
        ("%a = call i8 @llvm.umin.i8(i8 %s, i8 100)\n %c = icmp eq i8 %a, 100", True),
        ("%a = call i8 @_Z3mincc(i8 %s, i8 100)\n %c = icmp eq i8 %a, -56", True),
        ("%a = call i8 @_Z3minhh(i8 %s, i8 100)\n %c = icmp eq i8 %a, 100", True),
        ("%a = call i8 @_Z3absc(i8 %s)\n %c = icmp eq i8 %a, 56", True),
        ("%a = call i8 @llvm.abs.i8(i8 %s, i1 false)\n %c = icmp eq i8 %a, 56", True),
        ("%a = call i32 @_Z5clampiii(i32 %n, i32 -5, i32 5)\n %c = icmp eq i32 %a, 5", True),
        ("%a = call float @_Z4fabsf(float -2.0)\n %c = fcmp oeq float %a, 2.0", True),
        ("%a = call i32 @llvm.fshl.i32(i32 %n, i32 %n, i32 31)\n %c = icmp eq i32 %a, -2147483645", True),
        ("%a = call i32 @llvm.ctlz.i32(i32 %n, i1 true)\n %c = icmp eq i32 %a, 29", True),
        ("%a = call i32 @llvm.cttz.i32(i32 0, i1 false)\n %c = icmp eq i32 %a, 32", True),
        ("%a = call i32 @llvm.ctpop.i32(i32 %n)\n %c = icmp eq i32 %a, 3", True),
        ("%a = call i32 @llvm.usub.sat.i32(i32 3, i32 %n)\n %c = icmp eq i32 %a, 0", True),
        ("%a = call i8 @llvm.uadd.sat.i8(i8 %s, i8 %s)\n %c = icmp eq i8 %a, -1", True),
        ("%a = call i32 @mine(i32 %n)\n %c = icmp eq i32 %a, %a", None),
        ("%a = call float @_Z4sqrtf(float 4.0)\n %c = fcmp oeq float %a, 2.0", None),
        ("%v = insertelement <2 x i32> poison, i32 %n, i64 0\n %a = extractelement <2 x i32> %v, i64 0\n %c = icmp eq i32 %a, 7", None),
        ("%a = call i64 @_Z13get_global_idj(i32 %n)\n %c = icmp eq i64 %a, 0", None),
        ("%a = call i64 @_Z14get_local_sizej(i32 7)\n %c = icmp eq i64 %a, 1", True),
        ("%a = zext i128 5 to i129\n %c = icmp eq i129 %a, 5", None),
        ("%c = icmp eq ptr null, null", None),
    ],
)  # fmt: skip
def test_an_instruction_means_what_llvm_says(lines: str, expected: bool | None) -> None:
    assert _is_true(lines, {0: 7, 1: 1, 2: 200}) is expected


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def _arithmetic(opcode: str, width: int, a: int, b: int) -> int | None:
    """What an operation on two integers gives; None where it gives nothing."""
    x, y = _signed(a, width), _signed(b, width)
    if (opcode in ("udiv", "urem", "sdiv", "srem") and b == 0) or ("sh" in opcode and b >= width):
        return None
    if opcode in ("sdiv", "srem") and y == -1 and a == 1 << (width - 1):
        return None
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if opcode in ("sdiv", "srem") else 0
    operations: dict[str, Callable[[], int]] = {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "udiv": lambda: a // b,
        "urem": lambda: a % b, "sdiv": lambda: quotient, "srem": lambda: x - quotient * y, "shl": lambda: a << b,
        "lshr": lambda: a >> b, "ashr": lambda: x >> b, "and": lambda: a & b, "or": lambda: a | b,
        "xor": lambda: a ^ b, "icmp eq": lambda: a == b, "icmp ne": lambda: a != b, "icmp ugt": lambda: a > b,
        "icmp uge": lambda: a >= b, "icmp ult": lambda: a < b, "icmp ule": lambda: a <= b,
        "icmp sgt": lambda: x > y, "icmp sge": lambda: x >= y, "icmp slt": lambda: x < y, "icmp sle": lambda: x <= y,
    }  # fmt: skip
    return operations[opcode]() & ((1 << width) - 1)


OPCODES = (
    "add", "sub", "mul", "udiv", "urem", "sdiv", "srem", "shl", "lshr", "ashr", "and", "or", "xor", "icmp eq",
    "icmp ne", "icmp ugt", "icmp uge", "icmp ult", "icmp ule", "icmp sgt", "icmp sge", "icmp slt", "icmp sle",
)  # fmt: skip


@given(st.data())
def test_integers_of_any_width_behave_as_python_s_do_when_cut_to_it(data: st.DataObject) -> None:
    opcode = data.draw(st.sampled_from(OPCODES))
    width = data.draw(st.sampled_from((1, 3, 8, 16, 31, 32, 33, 63, 64)))
    # Often near the ends of the type, where what wraps does; short enough for shifts as often.
    numbers = st.integers(0, (1 << width) - 1) | st.integers(-2, 2) | st.just(1 << (width - 1))
    a, b = data.draw(numbers) % (1 << width), data.draw(numbers | st.integers(0, width)) % (1 << width)
    result = _arithmetic(opcode, width, a, b)
    kind = "i1" if opcode.startswith("icmp") else f"i{width}"
    lines = f"%a = {opcode} i{width} {_signed(a, width)}, {b}\n  %c = icmp eq {kind} %a, {result or 0}"
    assert _is_true(lines) is (None if result is None else True)


@given(st.floats(width=32), st.floats(width=32), st.sampled_from(("olt", "uge", "one", "ueq", "ord")))
def test_floats_are_compared_as_they_are(a: float, b: float, predicate: str) -> None:
    unordered = math.isnan(a) or math.isnan(b)
    expected = {
        "olt": a < b, "uge": unordered or a >= b, "one": not unordered and a != b, "ueq": unordered or a == b,
        "ord": not unordered,
    }[predicate]  # fmt: skip
    printed = [f"0x{struct.unpack('<Q', struct.pack('<d', one))[0]:016X}" for one in (a, b)]
    assert _is_true(f"%c = fcmp {predicate} float {printed[0]}, {printed[1]}") is expected


def test_all_ids_and_sizes_are_those_of_the_range() -> None:
    """A loop turns by all of them; clang would gather them in a vector, which is not followed."""
    asked = (
        "_Z12get_local_idj(i32 0)", "_Z13get_global_idj(i32 1)", "_Z12get_group_idj(i32 1)",
        "_Z14get_num_groupsj(i32 0)", "_Z14get_local_sizej(i32 1)", "_Z15get_global_sizej(i32 1)",
        "_Z17get_global_offsetj(i32 0)", "_Z12get_work_dimv()", "_Z12get_local_idj(i32 2)",
        "_Z15get_global_sizej(i32 2)", "_Z20get_global_linear_idv()", "_Z19get_local_linear_idv()",
    )  # fmt: skip
    sums = "".join(
        f"  %q{k} = call spir_func i64 @{one}\n  %d{k} = mul i64 {f'%n{k - 1}' if k else 0}, 2\n  %n{k} = add i64 %d{k}, %q{k}\n"
        for k, one in enumerate(asked)
    )
    function = _written(
        f"{sums}  br label %loop\nloop:\n  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]\n  %k1 = add i64 %k, 8\n"
        f"  %c = icmp uge i64 %k1, %n{len(asked) - 1}\n  br i1 %c, label %out, label %loop\nout:\n  ret void"
    )

    def turns(x: int, y: int) -> int:
        linear = (y - 8) * 48 + x - 16
        local = (y - 8) % 4 * 8 + (x - 16) % 8
        total = 0
        for one in ((x - 16) % 8, y, (y - 8) // 4, 6, 4, 20, 16, 2, 0, 1, linear, local):
            total = 2 * total + one
        return -(-total // 8)

    _agrees(function, NDRange((48, 20), (8, 4), (16, 8)), {}, "%k1 = add", turns)


def test_phis_change_all_at_once() -> None:
    """Three values go round in a ring and two change places: one after the other, some would be lost."""
    function = _written(
        "  br label %loop\n"
        "loop:\n"
        "  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]\n"
        "  %a = phi i32 [ 1, %entry ], [ %b, %loop ]\n"
        "  %b = phi i32 [ 2, %entry ], [ %c, %loop ]\n"
        "  %c = phi i32 [ 3, %entry ], [ %a, %loop ]\n"
        "  %d = phi i32 [ 10, %entry ], [ %e, %loop ]\n"
        "  %e = phi i32 [ 20, %entry ], [ %d, %loop ]\n"
        "  %old = phi i32 [ 0, %entry ], [ %a, %loop ]\n"
        "  %k1 = add i32 %k, 1\n"
        "  %ring = mul i32 %a, 100\n"
        "  %sum = add i32 %ring, %d\n"
        "  %both = add i32 %sum, %old\n"
        "  %done = icmp eq i32 %both, 312\n"  # %a is 3 with %d 10, and %a was 2
        "  br i1 %done, label %out, label %loop\n"
        "out:\n"
        "  ret void"
    )
    turns, (a, b, c), (d, e), old = 1, (1, 2, 3), (10, 20), 0
    while 100 * a + d + old != 312:
        turns, (a, b, c), (d, e), old = turns + 1, (b, c, a), (e, d), a
    found = _ran(simulated(function, ONE, {}))
    assert found.whole
    assert found.mean == {"%entry": 1, "%loop": turns, "%out": 1}


def test_a_switch_goes_where_its_value_says() -> None:
    function = _written(
        "  switch i8 %s, label %other [\n    i8 -56, label %twice\n    i8 3, label %once\n    i8 4, label %once\n  ]\n"
        "once:\n  br label %out\n"
        "twice:\n  br label %out\n"
        "other:\n  br label %out\n"
        "out:\n  %k = phi i1 [ false, %once ], [ true, %twice ], [ undef, %other ]\n"
        "  br i1 %k, label %yes, label %no\n"
        "yes:\n  ret void\n"
        "no:\n  ret void"
    )
    assert _ran(simulated(function, ONE, {2: 200})).mean["%yes"] == 1
    for value in (3, 4):
        mean = _ran(simulated(function, ONE, {2: value})).mean
        assert (mean["%once"], mean["%twice"], mean["%no"], mean["%yes"]) == (1, 0, 1, 0)
    assert simulated(function, ONE, {2: 5}) is None


def test_a_first_block_without_a_label_has_a_number_of_its_own() -> None:
    function = read_module(
        "define spir_kernel void @f(i32 %0) {\n"
        "  br label %2\n"
        "2:\n"
        "  %3 = phi i32 [ 3, %1 ], [ %4, %2 ]\n"
        "  %4 = add i32 %3, -1\n"
        "  %5 = icmp eq i32 %4, 0\n"
        "  br i1 %5, label %6, label %2\n"
        "6:\n"
        "  ret void\n}\n"
    ).functions["f"]
    assert _ran(simulated(function, ONE, {})).mean["%2"] == 3


def test_what_must_not_be_reached_is_not_known() -> None:
    assert simulated(_written("  unreachable"), ONE, {}) is None
    assert simulated(_written("  br label %nowhere"), ONE, {}) is None


def test_the_longest_work_item_is_the_one_that_executes_most_instructions() -> None:
    """Also those that control does not need: here a short loop of many against a long one of few."""
    many = "".join(f"  %m{k} = add i32 %n, {k}\n" for k in range(50))
    function = _written(
        "  %i = call i64 @_Z13get_global_idj(i32 0)\n  %which = icmp eq i64 %i, 0\n"
        "  br i1 %which, label %few, label %many\n"
        "few:\n  %j = phi i32 [ 0, %entry ], [ %j1, %few ]\n  %j1 = add i32 %j, 1\n  %cj = icmp eq i32 %j1, 20\n"
        "  br i1 %cj, label %out, label %few\n"
        f"many:\n  %k = phi i32 [ 0, %entry ], [ %k1, %many ]\n{many}  %k1 = add i32 %k, 1\n"
        "  %ck = icmp eq i32 %k1, 5\n  br i1 %ck, label %out, label %many\n"
        "out:\n  ret void"
    )
    found = _ran(simulated(function, NDRange((2,), (1,)), {}))
    assert found.longest == {"%entry": 1, "%few": 0, "%many": 5, "%out": 1}
    assert found.mean == {"%entry": 1, "%few": 10, "%many": 2.5, "%out": 1}


def test_a_function_that_takes_another_s_place_in_memory_is_translated_anew() -> None:
    for turns in range(1, 200):
        function = _written(
            "  br label %loop\nloop:\n  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]\n  %k1 = add i32 %k, 1\n"
            f"  %c = icmp eq i32 %k1, {turns}\n  br i1 %c, label %out, label %loop\nout:\n  ret void"
        )
        for _ in range(2):
            assert _ran(simulated(function, ONE, {})).mean["%loop"] == turns
        del function


# Programs that no translation makes

OPERATION = {name: number for number, name in enumerate(_native.CONTROL_OPERATIONS)}


def _run(**changed: Any) -> Any:
    """A program of one block that adds 2 to 3, asks whether that is 5, and ends; with something changed."""
    code = [
        (OPERATION["enter"], 0, 0, 0, 0, 0),
        (OPERATION["add"], 32, 3, 1, 2, 0),
        (OPERATION["icmp eq"], 32, 5, 3, 4, 0),
        (OPERATION["branch"], 0, 0, 5, 4, 5),
        (OPERATION["finish"], 0, 0, 0, 0, 0),
        (OPERATION["jump"], 0, 5, 0, 0, 0),
    ]
    for place, one in changed.pop("instructions", {}).items():
        code[place] = one
    given = {
        "code": np.array(code[: changed.pop("length", 6)], np.int32).reshape(-1), "queries": np.zeros(0, np.int32),
        "values": np.array([0, 2, 3, 0, 5, 0], np.uint64), "known": np.array([0, 1, 1, 0, 1, 0], np.uint8),
        "weights": np.array([4], np.int64), "dimensions": 1, "global_size": (4, 1, 1), "local_size": (2, 1, 1),
        "offset": (0, 0, 0), "items": np.arange(4, dtype=np.uint64), "budget": 1000, "item_budget": 100,
    } | changed  # fmt: skip
    return _native.simulate_control(**given)


def test_a_program_that_is_whole_runs() -> None:
    assert _run() == ([4], [1], 4, 4)
    wrong = np.array([0, 2, 3, 0, 6, 0], np.uint64)  # so that it jumps round and round, entering nothing
    assert _run(values=wrong) == ([4], [1], 4, 0)
    assert _run(values=wrong, budget=150) == ([2], [1], 2, 0)


def test_a_divisor_that_is_nought_only_in_its_type_does_no_harm() -> None:
    division = {1: (OPERATION["sdiv"], 32, 3, 1, 2, 0)}
    assert _run(instructions=division, values=np.array([0, 2, 1 << 32, 0, 5, 0], np.uint64)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"instructions": {0: (OPERATION["enter"], 0, 1, 0, 0, 0)}},
        {"instructions": {0: (OPERATION["enter"], 0, -1, 0, 0, 0)}},
        {"instructions": {1: (len(OPERATION), 32, 3, 1, 2, 0)}},
        {"instructions": {1: (-1, 32, 3, 1, 2, 0)}},
        {"instructions": {1: (OPERATION["add"], 32, 6, 1, 2, 0)}},
        {"instructions": {1: (OPERATION["add"], 32, 3, 1, 6, 0)}},
        {"instructions": {1: (OPERATION["add"], 32, 3, -1, 2, 0)}},
        {"instructions": {1: (OPERATION["select"], 32, 3, 1, 2, 6)}},
        {"instructions": {1: (OPERATION["add"], 0, 3, 1, 2, 0)}},
        {"instructions": {1: (OPERATION["add"], 65, 3, 1, 2, 0)}},
        {"instructions": {1: (OPERATION["fadd"], 16, 3, 1, 2, 0)}},
        {"instructions": {1: (OPERATION["fcmp"], 32, 3, 1, 2, 16)}},
        {"instructions": {1: (OPERATION["sext"], 32, 3, 1, 0, 0)}},
        {"instructions": {1: (OPERATION["sext"], 16, 3, 1, 0, 32)}},
        {"instructions": {1: (OPERATION["fptosi"], 32, 3, 1, 0, 8)}},
        {"instructions": {3: (OPERATION["branch"], 0, 0, 5, 6, 5)}},
        {"instructions": {3: (OPERATION["branch"], 0, 0, 5, 4, -1)}},
        {"instructions": {3: (OPERATION["branch"], 0, 0, 6, 4, 5)}},
        {"instructions": {5: (OPERATION["jump"], 0, 6, 0, 0, 0)}},
        {"length": 3},
        {"length": 0},
        {"code": np.zeros(7, np.int32)},
        {"known": np.ones(5, np.uint8)},
        {"queries": np.array([6, 0, 0, 64], np.int32)},
        {"queries": np.array([0, len(_native.CONTROL_QUERIES), 0, 64], np.int32)},
        {"queries": np.array([0, 0, -1, 64], np.int32)},
        {"queries": np.array([0, 0, 0, 65], np.int32)},
        {"queries": np.array([0, 0, 0], np.int32)},
        {"dimensions": 4},
        {"local_size": (0, 1, 1)},
        {"local_size": (3, 1, 1)},
        {"global_size": (4, 0, 1)},
    ],
)
def test_a_program_that_could_do_harm_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"control"):
        _run(**changed)
