"""What a launch does, against counts made by hand; and what becomes of launches that go wrong."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.counter_table import AIWC, CounterTable
from apportion.errors import DeadlineExceeded, InvalidSetting, LaunchFailed, LimitExceeded, OutOfBoundsWrite
from apportion.measure.counters.kernels import CountLimits, profile_kernel
from apportion.program.kernel.bounds import NDRange
from apportion.program.source import Source
from apportion.runtime.base import LocalMemory
from apportion.suite import PROBLEMS

pytest.importorskip("llvmlite")
pytest.importorskip("ziglang")

COPY = "__kernel void copy(__global const float* x, __global float* y) { size_t i = get_global_id(0); y[i] = x[i]; }"
SOME = "__kernel void some(__global int* y, int n) { int i = get_global_id(0); if (i < n) y[i] = 7; }"
REVERSE = """
__kernel void reverse(__global const int* x, __global int* y, __local int* t) {
    int i = get_local_id(0);
    t[i] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    y[get_global_id(0)] = t[get_local_size(0) - 1 - i];
}
"""


def counted(text, arguments, size, local, **options):
    span = NDRange((size,), (local,))
    return profile_kernel(Source(text, "opencl", "test.cl"), None, arguments, span, **options)


def test_a_copy_is_counted_as_by_hand():
    x = np.arange(64, dtype=np.float32)
    profile = counted(COPY, (x, np.zeros(64, np.float32)), 64, 16)
    # call get_global_id, getelementptr, load, getelementptr, store, ret; twice for the two pointers
    assert profile.opcodes == {"getelementptr": 128, "call": 64, "load": 64, "store": 64, "ret": 64}
    counters = profile.counters
    assert counters["total_instruction_count"] == 384
    assert counters["workitems"] == 64
    assert counters["granularity"] == 1 / 384
    assert counters["barriers_per_instruction"] == 1 / 384  # AIWC adds one to the barriers
    assert counters["opcode"] == 5  # 128 + 64 + 64 + 64 is less than nine tenths of 384
    assert (counters["min_instructions_to_barrier"], counters["max_instructions_to_barrier"]) == (6, 6)
    # 128 words, each touched once: 7 bits, and one less for each halving beyond the width of a word.
    assert counters["total_memory_footprint"] == 128
    assert counters["ninety_percent_memory_footprint"] == 116
    assert counters["global_memory_address_entropy"] == pytest.approx(7)
    assert counters["local_memory_address_entropy_2"] == pytest.approx(7)
    assert counters["local_memory_address_entropy_3"] == pytest.approx(6)
    assert counters["local_memory_address_entropy_10"] == pytest.approx(1)  # two arrays far from each other
    assert counters["total_unique_branch_instructions"] == 0
    assert counters["branch_entropy_average_linear"] == 0
    assert counters["mem_ratio"] == pytest.approx(1 / 3)
    assert counters["load_ratio"] == 0.5
    np.testing.assert_array_equal(profile.arrays["y"], x)
    assert tuple(counters)[: len(AIWC)] == AIWC


def test_branches_are_told_apart_by_their_last_sixteen_outcomes():
    profile = counted(SOME, (np.zeros(32, np.int32), 16), 32, 32)
    # 16 times the one way, then 16 times the other: 17 windows, with 16, 15, … 0 ones or zeros.
    shares = np.arange(17) / 16
    yokota = -sum(p * np.log2(p) for p in shares if p)
    assert profile.counters["total_unique_branch_instructions"] == 1
    assert profile.counters["ninety_percent_branch_instructions"] == 1
    assert profile.counters["branch_entropy_yokota"] == pytest.approx(yokota)
    assert profile.counters["branch_entropy_average_linear"] == pytest.approx(
        np.mean(2 * np.minimum(shares, 1 - shares))
    )
    assert profile.arrays["y"].tolist() == [7] * 16 + [0] * 16


def test_work_items_wait_for_each_other_at_a_barrier():
    x = np.arange(32, dtype=np.int32)
    profile = counted(REVERSE, (x, np.zeros(32, np.int32), LocalMemory(64)), 32, 16)
    assert profile.arrays["y"].tolist() == [*range(15, -1, -1), *range(31, 15, -1)]
    counters = profile.counters
    assert counters["total_barriers_hit"] == 32
    assert profile.opcodes["call"] % 32 == 0
    per_item = counters["total_instruction_count"] / 32
    # A work-item has two stretches, and the barrier, which is counted in neither, is one instruction.
    assert counters["min_instructions_to_barrier"] + counters["max_instructions_to_barrier"] + 1 == per_item
    assert counters["barriers_per_instruction"] == pytest.approx(33 / (32 * per_item))
    assert counters["local_access_ratio"] == 0.5
    assert counters["total_memory_footprint"] == 64 + 16  # groups use the same local memory again


def test_a_work_group_copies_once_and_waits_for_its_copy():
    text = """
    kernel void k(global const float *x, global float *y) {
      local float t[8];
      event_t e = async_work_group_strided_copy(t, x + 16 * get_group_id(0), 8, 2, 0);
      wait_group_events(1, &e);
      t[get_local_id(0)] += 1;
      barrier(CLK_LOCAL_MEM_FENCE);
      y[get_global_id(0)] = t[7 - get_local_id(0)] - 1;
    }
    """
    x = np.arange(32, dtype=np.float32)
    profile = counted(text, (x, np.zeros(16, np.float32)), 16, 8)
    assert profile.arrays["y"].tolist() == [14, 12, 10, 8, 6, 4, 2, 0, 30, 28, 26, 24, 22, 20, 18, 16]
    assert profile.counters["total_barriers_hit"] == 2 * 16  # one of them waits for the copy


def test_vectors_count_by_their_lanes():
    text = "__kernel void add(__global float4* x) { x[get_global_id(0)] += (float4)(1.0f); }"
    profile = counted(text, (np.zeros(32, np.float32),), 8, 8)
    # call, getelementptr, load (4 lanes), fadd (4 lanes), store, ret
    assert profile.counters["operand_sum"] == 8 * (1 + 1 + 4 + 4 + 1 + 1)
    assert profile.counters["max_simd_width"] == 4
    assert profile.counters["mean_simd_width"] == 2
    assert profile.counters["stddev_simd_width"] == pytest.approx(np.sqrt(2))
    assert profile.counters["instructions_per_operand"] == 0.5
    assert profile.counters["fp_ratio"] == pytest.approx(1 / 6)
    assert profile.arrays["x"].tolist() == [1.0] * 32


def test_atomics_read_and_write_and_private_arrays_are_memory_too():
    text = """
    __kernel void tally(__global int* sum, __global const int* pick) {
        int table[64];
        for (int k = 0; k < 64; ++k) table[k] = k * k + (int)get_global_id(0);
        atomic_add(sum, table[pick[get_global_id(0)]]);
    }
    """
    profile = counted(text, (np.zeros(1, np.int32), np.full(4, 63, np.int32)), 4, 4)
    assert profile.arrays["sum"].tolist() == [4 * 63 * 63 + 0 + 1 + 2 + 3]
    assert profile.counters["private_access_ratio"] > 0.8
    assert profile.counters["total_memory_footprint"] > 1 + 4


def test_some_work_groups_are_extrapolated_and_what_needs_all_of_them_is_missing():
    arrays = (np.zeros(64, np.float32), np.zeros(64, np.float32))
    profile = counted(COPY, arrays, 64, 8, groups=2)
    assert profile.sampled
    assert profile.counters["total_instruction_count"] == 384
    assert profile.counters["workitems"] == 64
    assert profile.counters["total_memory_footprint"] is None
    assert profile.counters["global_memory_address_entropy"] is None
    table = CounterTable.of(profile.rows("r", "copy", "64/8"))
    assert set(table.frame["exactness"]) == {"sampled"}
    assert table.frame["value"].null_count() == 13


def test_counters_do_not_depend_on_where_arrays_happen_to_lie():
    arrays = (np.zeros(64, np.float32), np.zeros(64, np.float32))
    first = counted(COPY, arrays, 64, 16)
    second = counted(COPY, tuple(np.concatenate([a, a])[3:67] for a in arrays), 64, 16)
    assert dict(first.counters) == dict(second.counters)


@pytest.mark.parametrize(
    "name", ["bezier", "padding", "canny", "black_scholes", "block_scan", "sparse_matvec"]
)
def test_problems_of_the_suite_are_computed_right_while_they_are_counted(name):
    problem = PROBLEMS[name]
    instance = problem.instance(256)
    arrays = instance.fresh()
    for stage in instance.stages:
        span = NDRange(stage.global_size, stage.local_size)
        profile = profile_kernel(problem.source(), stage.kernel, instance.values(stage, arrays), span)
        named = [argument for argument in stage.arguments if isinstance(argument, str)]
        arrays |= dict(zip(named, profile.arrays.values(), strict=True))
        assert profile.counters["workitems"] == span.work_items
    assert problem.verify(instance.expected, arrays) is None


def test_memory_that_a_kernel_was_not_given_is_named():
    with pytest.raises(LaunchFailed, match="work-item 8 reads 4 bytes at byte 32 of 'x', which has 32"):
        counted(COPY, (np.zeros(8, np.float32), np.zeros(64, np.float32)), 64, 16)
    with pytest.raises(OutOfBoundsWrite, match="work-item 4 writes 4 bytes at byte 16 of 'y', which has 16"):
        counted(SOME, (np.zeros(4, np.int32), 8), 8, 8)


def test_a_kernel_without_an_end_is_stopped():
    text = "__kernel void spin(__global volatile int* x) { while (x[0] == 0) {} }"
    with pytest.raises(LimitExceeded, match="executed more than 100,000 instructions"):
        counted(text, (np.zeros(1, np.int32),), 1, 1, limits=CountLimits(instructions=100_000))
    job = (Source(text, "opencl", "spin.cl"), None, (np.zeros(1, np.int32),), NDRange((1,), (1,)))
    with pytest.raises(DeadlineExceeded):
        profile_kernel(*job, limits=CountLimits(seconds=0.5, instructions=1 << 60))


def test_counting_happens_in_another_process_and_leaves_arrays_alone():
    y = np.zeros(32, np.int32)
    profile = profile_kernel(Source(SOME, "opencl", "some.cl"), None, (y, 32), NDRange((32,), (8,)))
    assert profile.arrays["y"].tolist() == [7] * 32
    assert not y.any()


def test_what_cannot_be_counted_says_so():
    text = "float helper(float); __kernel void calls(__global float* x) { x[0] = helper(x[0]); }"
    with pytest.raises(InvalidSetting, match=r"calls helper.* which (?:nothing defines|cannot be counted)"):
        counted(text, (np.zeros(1, np.float32),), 1, 1)
    with pytest.raises(InvalidSetting, match="takes 2 arguments, not 1"):
        counted(COPY, (np.zeros(8, np.float32),), 8, 8)
    with pytest.raises(InvalidSetting, match="'t' is int\\* in local memory, not ndarray"):
        counted(REVERSE, (np.zeros(8, np.int32),) * 3, 8, 8)
