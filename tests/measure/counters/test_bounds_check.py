"""Launches under bounds checks: what strays is told with its line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from apportion.errors import InvalidSetting, OutOfBoundsRead, OutOfBoundsWrite
from apportion.measure.counters.bounds_check import Checked, check_launch
from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source
from apportion.runtime.arguments import arguments_for

pytest.importorskip("ziglang")
pytest.importorskip("llvmlite")

TEXT = """
kernel void shift(global const float *x, global float *y) {
  int i = get_global_id(0);
  y[i] = x[i + 1];
}
kernel void tile(global const float *x, global float *y) {
  local float t[64];
  local float u[64];
  int l = get_local_id(0);
  t[l] = x[get_global_id(0)]; u[l] = 1;
  barrier(CLK_LOCAL_MEM_FENCE);
  y[get_global_id(0)] = t[l + 1] + u[l];
}
typedef struct { float v[64]; } B;
kernel void whole(global const B *x, global B *y) {
  y[get_global_id(0)] = x[get_global_id(0)];
}
constant int table[4] = {1, 2, 3, 4};
kernel void look(global int *y) {
  y[get_global_id(0)] = table[get_global_id(0)];
}
kernel void given(global float *y, local float *t) {
  t[get_local_id(0)] = 1;
  y[get_global_id(0)] = t[get_local_id(0)];
}
kernel void inside(global const float *x, global float *y, int n) {
  int i = get_global_id(0);
  if (i < n - 1) y[i] = x[i + 1];
}
kernel void seen(read_only image2d_t a, write_only image2d_t b, sampler_t s) {
  int i = get_global_id(0);
  float4 v = read_imagef(a, s, (int2)(i, -1));
  write_imagef(b, (int2)(i, 0), v);
}
kernel void plain(read_only image2d_t a, global float *y) {
  int i = get_global_id(0);
  y[i] = read_imagef(a, (int2)(i, 1)).x + get_image_width(a);
}
kernel void fetched(global const float *x, global float *y, int step, int n) {
  local float t[64];
  event_t e = async_work_group_strided_copy(t, x + step * 64 * get_group_id(0), 64, step, 0);
  wait_group_events(1, &e);
  t[get_local_id(0)] *= 2;
  barrier(CLK_LOCAL_MEM_FENCE);
  e = async_work_group_copy(y + 64 * get_group_id(0), t, n, 0);
  wait_group_events(1, &e);
}
kernel void reduced(global int *y) { y[get_global_id(0)] = work_group_reduce_add(1); }
"""


def check(kernel: str, given: Sequence[str], *, whole: bool = True, items: int = 256) -> Checked:
    source = Source(TEXT, "opencl", "k.cl")
    ir = ir_of(source)
    signature = signature_of(ir, kernel)
    arguments = arguments_for(signature, accesses_of(ir)[kernel], NDRange((items,), (64,)), given)
    return check_launch(source, kernel, arguments, whole=whole)


@pytest.mark.parametrize(
    ("kernel", "given", "error", "said"),
    [
        ("shift", ("x=float32[N]", "y=float32[N]"), OutOfBoundsRead,
         "k.cl:4: shift: work-item 255 reads 4 bytes at byte 1024 of 'x', which has 1024: x[256] of 256 elements"),
        ("shift", ("x=float32[N+1]", "y=float32[128]"), OutOfBoundsWrite, "k.cl:4: shift: work-item 128 writes"),
        ("tile", (), OutOfBoundsRead,
         "k.cl:12: tile: work-item 63 reads 4 bytes at byte 256 of 'tile.t', which has 256"),
        ("whole", ("x=float32[64]",), OutOfBoundsRead, "k.cl:16: whole: work-item 1 reads"),
        ("look", (), OutOfBoundsRead, "k.cl:20: look: work-item 4 reads 4 bytes at byte 16 of 'table'"),
        ("seen", ("b=image2d:rgba8[255,1]",), OutOfBoundsWrite,
         "k.cl:33: seen: work-item 255 writes 4 bytes at byte 1020 of 'b', which has 1020"),
        ("plain", ("a=image2d:r32f[256,1]",), OutOfBoundsRead, "k.cl:37: plain: work-item 0 reads 4 bytes at byte 1024 of 'a'"),
        ("fetched", ("x=float32[511]", "y=float32[N]", "step=2", "n=65"), OutOfBoundsRead,
         "k.cl:45: fetched: work-item 0 reads 4 bytes at byte 256 of 'fetched.t', which has 256"),
        ("fetched", ("x=float32[448]", "y=float32[N]", "step=2", "n=64"), OutOfBoundsRead,
         "k.cl:41: fetched: work-item 192 reads 4 bytes at byte 1792 of 'x'"),
        ("given", ("t=local:128",), OutOfBoundsWrite, "k.cl:23: given: work-item 32 writes 4 bytes at byte 128 of 't'"),
    ],
)  # fmt: skip
def test_an_access_outside_is_told_with_its_line(
    kernel: str, given: Sequence[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        check(kernel, given)
    assert said in str(caught.value)


def test_copies_of_structures_are_checked_to_their_last_byte() -> None:
    with pytest.raises(OutOfBoundsWrite, match=r"k.cl:16: whole: work-item 3 writes"):
        check("whole", ("y=float32[250]",), items=64)


def test_what_stays_inside_passes_and_says_what_was_looked_at() -> None:
    arguments = ("x=float32[N]", "y=float32[N]", "n=N")
    assert str(check("inside", arguments)) == (
        "Bounds checked in every work-group: no access outside of arrays, local memory and constants"
    )
    some = check("inside", arguments, whole=False, items=64 * 100)
    assert (some.groups, some.of) == (16, 100)


def test_copies_of_a_work_group_are_checked_and_do_what_they_say() -> None:
    assert check("fetched", ("x=float32[511]", "y=float32[N]", "step=2", "n=64")).groups == 4


def test_what_cannot_be_checked_is_an_error_only_where_it_was_asked_for() -> None:
    with pytest.raises(InvalidSetting, match="work_group_reduce"):
        check("reduced", ())
    assert "work_group_reduce" in str(check("reduced", (), whole=False))


def test_reads_by_a_sampler_stay_inside_wherever_they_go() -> None:
    given = ("a=image2d:rgba8[256,2]", "b=image2d:rgba8[256,2]", "s=sampler:clamp")
    assert check("seen", given).groups == 4
    with pytest.raises(
        OutOfBoundsRead, match=r"k.cl:32: seen: work-item 0 reads 4 bytes at byte 2048 of 'a'"
    ):
        check("seen", (*given[:2], "s=sampler:none"))
