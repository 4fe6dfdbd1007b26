"""Lanes of vectors that nobody sets."""

from __future__ import annotations

import pytest

from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.instructions import read_module
from apportion.program.kernel.undefined import stored_lanes, undefined_lanes
from apportion.program.source import Source

IR = """
define spir_kernel void @f(ptr addrspace(1) %out, <4 x float> %v, float %s, i1 %c) {
begin:
  %a = insertelement <4 x float> poison, float %s, i64 1
  br i1 %c, label %loop, label %end
loop:
  %p = phi <4 x float> [ <float 0.0, float undef, float 1.0, float undef>, %begin ], [ %q, %loop ]
  %q = fadd <4 x float> %p, %v
  %r = shufflevector <4 x float> %p, <4 x float> %a, <4 x i32> <i32 0, i32 5, i32 3, i32 poison>
  store <4 x float> %r, ptr addrspace(1) %out
  br i1 %c, label %loop, label %end
end:
  %m = phi <4 x float> [ %a, %begin ], [ %v, %loop ]
  store <4 x float> %m, ptr addrspace(1) %out
  store <4 x float> %a, ptr addrspace(1) %out
  ret void
}
"""


def test_a_lane_counts_if_no_path_sets_it() -> None:
    function = read_module(IR).functions["f"]
    known = undefined_lanes(function)
    assert {name: set(lanes) for name, lanes in known.items()} == {
        "%a": {0, 2, 3}, "%p": {1, 3}, "%q": {1, 3}, "%r": {2, 3}
    }  # fmt: skip
    stores = [stored_lanes(each, known) for each in function.instructions if each.opcode == "store"]
    assert stores == [(4, {2, 3}), (4, set()), (4, {0, 2, 3})]


@pytest.mark.parametrize(
    ("body", "undefined"),
    [
        ("float4 f; f.x = f.y = f.z = x[i].x; out[i] = f;", {3}),
        ("float4 f; f.x = f.y = f.z = x[i].x; f.w = 1; out[i] = f;", set()),
        ("float4 f; f.x = f.y = f.z = x[i].x; out[i] = f; out[i + 1] = x[i];", set()),
        ("out[i] = x[i];", set()),
    ],
)
def test_every_write_to_an_argument_must_leave_a_lane_open(body: str, undefined: set[int]) -> None:
    pytest.importorskip("ziglang")
    text = f"kernel void k(global float4 *x, global float4 *out) {{ int i = get_global_id(0); {body} }}"
    use = accesses_of(ir_of(Source(text, "opencl")), text)["k"].argument("out")
    assert use.undefined_lanes == undefined
