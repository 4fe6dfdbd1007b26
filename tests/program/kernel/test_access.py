"""What the analysis concludes from real compiler output, kernel by kernel."""

from __future__ import annotations

import pytest

from apportion.errors import UnknownName
from apportion.program.compile import ir_of
from apportion.program.kernel.access import KernelAccess, accesses_of
from apportion.program.kernel.bounds import NDRange, bytes_touched
from apportion.program.source import Source

pytest.importorskip("ziglang")

SOURCE = """
kernel void saxpy(global const float *x, global float *y, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
kernel void rows(global float *out, int width) {
    int row = get_global_id(0);
    for (int k = 0; k < width; k++) out[row * width + k] = k;
}
kernel void backwards(global int *out, int n) { out[n - 1 - get_global_id(0)] = 1; }
kernel void scatter(global const int *to, global int *out) { out[to[get_global_id(0)]] = 1; }
kernel void single(global int *out) { if (get_global_id(0) == 5) out[0] = 1; }
kernel void groups(global int *out) { if (get_local_id(0) == 0) out[get_group_id(0)] = get_num_groups(0); }
kernel void count(global const uint *data, global uint *bins) { atomic_inc(&bins[data[get_global_id(0)]]); }
kernel void queue(global const uint *data, global uint *out, global uint *next) {
    if (data[get_global_id(0)] & 1) out[atomic_inc(next)] = data[get_global_id(0)];
}
kernel void lock(global int *flag, global int *out) {
    while (atomic_cmpxchg(flag, 0, 1)) {}
    out[get_global_id(0)] = 1;
}
kernel void mixed(global int *a) { atomic_add(a, 1); atomic_max(a, 5); }
kernel void peek(global int *a, global int *b) { atomic_add(a, 1); b[get_global_id(0)] = *a; }
void __attribute__((noinline)) fill(global int *where, int value) { where[get_global_id(0)] = value; }
kernel void helper(global int *out) { fill(out, 3); }
kernel void either(global int *a, global int *b, int which) {
    global int *chosen = which ? a : b;
    chosen[get_global_id(0)] = 1;
}
typedef struct { float mass; float place[3]; } Body;
kernel void bodies(global Body *all) { all[get_global_id(0)].place[1] = 0.0f; }
kernel void chosen(global const int *in, global int *out) {
    if (in[get_global_id(0)] > 3) out[get_global_id(0)] = 1;
}
kernel void summed(global const int *ends, global const int *in, global int *out) {
    int sum = 0;
    for (int k = ends[get_global_id(0)]; k < ends[get_global_id(0) + 1]; k++) sum += in[k];
    out[get_global_id(0)] = sum;
}
kernel void stage(global const int *in, global int *out, local int *kept) {
    kept[get_local_id(0)] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = kept[get_local_size(0) - 1 - get_local_id(0)];
}
"""


@pytest.fixture(scope="module")
def found() -> dict[str, KernelAccess]:
    return accesses_of(ir_of(Source(SOURCE, "opencl", "access.cl")), SOURCE)


@pytest.mark.parametrize(
    ("kernel", "merges"),
    [
        ("saxpy", {"x": "none", "y": "slice", "a": "none", "n": "none"}),
        ("rows", {"out": "slice", "width": "none"}),
        ("scatter", {"to": "none", "out": "diff"}),
        ("single", {"out": "diff"}),
        ("groups", {"out": "slice"}),
        ("count", {"data": "none", "bins": "sum"}),
        ("queue", {"data": "none", "out": "refuse", "next": "refuse"}),
        ("lock", {"flag": "refuse", "out": "slice"}),
        ("mixed", {"a": "refuse"}),
        ("peek", {"a": "refuse", "b": "slice"}),
        ("helper", {"out": "slice"}),
        ("either", {"a": "diff", "b": "diff", "which": "none"}),
        ("bodies", {"all": "slice"}),
        ("stage", {"in": "none", "out": "slice", "kept": "none"}),
    ],
)
def test_the_merge_of_each_argument(
    kernel: str, merges: dict[str, str], found: dict[str, KernelAccess]
) -> None:
    assert {a.name: a.merge for a in found[kernel].arguments} == merges


@pytest.mark.parametrize(
    ("kernel", "argument", "reason"),
    [
        ("queue", "next", "the result of atomic inc is used"),
        ("queue", "out", "the place it is written at comes from an atomic operation"),
        ("lock", "flag", "atomic cmpxchg orders work-groups"),
        ("mixed", "a", "atomics of different kinds (max, sum)"),
        ("peek", "a", "updated by atomics and also read"),
        ("scatter", "out", "depend on data"),
        ("single", "out", "do not depend on which work-item"),
        ("saxpy", "y", "follow the work-item ids"),
    ],
)
def test_every_conclusion_gives_its_reason(
    kernel: str, argument: str, reason: str, found: dict[str, KernelAccess]
) -> None:
    assert reason in found[kernel].argument(argument).reason


def test_group_ids_and_counts_need_virtual_indices(found: dict[str, KernelAccess]) -> None:
    assert found["groups"].virtual_indices
    assert not found["saxpy"].virtual_indices


def test_what_indexes_memory_is_known(found: dict[str, KernelAccess]) -> None:
    assert found["scatter"].argument("to").is_index
    assert not found["saxpy"].argument("x").is_index


@pytest.mark.parametrize(
    ("kernel", "argument", "settled"),
    [("saxpy", "y", True), ("rows", "out", True), ("scatter", "out", False), ("chosen", "out", False),
     ("summed", "out", True)],
)  # fmt: skip
def test_whether_data_decides_what_is_written(
    kernel: str, argument: str, settled: bool, found: dict[str, KernelAccess]
) -> None:
    assert found[kernel].argument(argument).settled == settled


def test_a_barrier_is_seen(found: dict[str, KernelAccess]) -> None:
    assert found["stage"].has_barrier
    assert not found["saxpy"].has_barrier


@pytest.mark.parametrize(
    ("kernel", "argument", "scalars", "touched"),
    [
        ("saxpy", "y", {3: 1000}, (4 * 128, 4 * 256)),
        ("rows", "out", {1: 10}, (4 * 1280, 4 * 2560)),
        ("backwards", "out", {1: 1024}, (4 * (1024 - 256), 4 * (1024 - 128))),
        ("groups", "out", {}, (4 * 2, 4 * 4)),
        ("bodies", "all", {}, (16 * 128 + 8, 16 * 255 + 12)),
        ("helper", "out", {}, (4 * 128, 4 * 256)),
    ],
)
def test_the_bytes_that_groups_two_and_three_write(
    kernel: str,
    argument: str,
    scalars: dict[int, int],
    touched: tuple[int, int],
    found: dict[str, KernelAccess],
) -> None:
    access = found[kernel]
    reach = access.argument(argument).write_reach
    span = NDRange((1024,), (64,))
    assert bytes_touched(access.program, reach, span, 0, (2, 4), scalars, 1 << 20) == touched


def test_bounds_stop_at_the_end_of_the_array(found: dict[str, KernelAccess]) -> None:
    access = found["saxpy"]
    reach = access.argument("y").write_reach
    assert bytes_touched(access.program, reach, NDRange((1024,), (64,)), 0, (14, 16), {3: 1000}, 4000) == (
        3584,
        4000,
    )


def test_bounds_that_depend_on_data_are_not_known(found: dict[str, KernelAccess]) -> None:
    access = found["scatter"]
    reach = access.argument("out").write_reach
    assert bytes_touched(access.program, reach, NDRange((1024,), (64,)), 0, (0, 2), {}, 4096) is None


def test_obstacles_name_the_argument(found: dict[str, KernelAccess]) -> None:
    assert [obstacle.split(":")[0] for obstacle in found["queue"].obstacles] == ["out", "next"]
    assert found["saxpy"].obstacles == []


def test_an_unknown_argument_names_those_there_are(found: dict[str, KernelAccess]) -> None:
    with pytest.raises(UnknownName, match="There are: a, n, x, y"):
        found["saxpy"].argument("z")


def test_long_and_shared_arithmetic_is_followed_in_no_time() -> None:
    steps = "".join(f"  %{i + 2} = xor i64 %{i + 1}, %{i + 1}\n" for i in range(1, 3000))
    ir = (
        "define spir_kernel void @f(ptr addrspace(1) %0) !kernel_arg_addr_space !0 {\n"
        "  %2 = call i64 @_Z13get_global_idj(i32 0)\n"
        f"{steps}"
        "  %3001 = getelementptr i32, ptr addrspace(1) %0, i64 %3000\n"
        "  store i32 1, ptr addrspace(1) %3001\n  ret void\n}\n!0 = !{i32 1}\n"
    )
    (argument,) = accesses_of(ir)["f"].arguments
    assert (argument.merge, argument.write_reach) == ("diff", None)


def test_a_pointer_that_two_loops_hand_on_may_be_either() -> None:
    ir = """
define spir_kernel void @f(ptr addrspace(1) %a, ptr addrspace(1) %b, i32 %n) !kernel_arg_addr_space !0 {
  br label %head

head:
  %p = phi ptr addrspace(1) [ %a, %entry ], [ %q, %head ]
  %q = phi ptr addrspace(1) [ %b, %entry ], [ %p, %head ]
  %k = phi i32 [ 0, %entry ], [ %next, %head ]
  store i32 1, ptr addrspace(1) %q
  store i32 2, ptr addrspace(1) %p
  %next = add i32 %k, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %head, label %done

done:
  ret void
}
!0 = !{i32 1, i32 1, i32 0}
"""
    first, second, _ = accesses_of(ir)["f"].arguments
    assert (first.writes, second.writes) == (True, True)
    assert (first.merge, second.merge) == ("diff", "diff")
