"""OpenCL's built-in functions, as far as counted kernels call them: their names taken apart, their results."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InvalidSetting
from apportion.measure.counters.builtins import definitions_of
from apportion.measure.counters.kernels import profile_kernel
from apportion.measure.counters.mangling import Type, demangled
from apportion.program.kernel.bounds import NDRange
from apportion.program.source import Source


@pytest.mark.parametrize(
    ("symbol", "name", "types"),
    [
        ("_Z3expf", "exp", (Type("float"),)),
        ("_Z3dotDv3_fS_", "dot", (Type("float", 3), Type("float", 3))),
        ("_Z10atomic_addPU3AS1Vii", "atomic_add", (Type("int", space="__global"), Type("int"))),
        ("_Z6vload4mPU3AS3Kf", "vload4", (Type("ulong"), Type("float", space="__local", constant=True))),
        ("_Z9mem_fencej", "mem_fence", (Type("uint"),)),
        (
            "_Z25atomic_fetch_add_explicitPU3AS4VU7_Atomicii12memory_order",
            "atomic_fetch_add_explicit",
            (Type("int", space="__generic"), Type("int"), Type("int")),
        ),
    ],
)
def test_a_mangled_name_is_taken_apart(symbol, name, types):
    assert demangled(symbol) == (name, types)


def test_other_names_are_not():
    assert demangled("printf") is None
    assert demangled("_Z4wait9ocl_queue") is None


def test_images_and_samplers_are_addresses_that_know_what_they_are():
    name, kinds = demangled("_Z11read_imagef14ocl_image2d_ro11ocl_samplerDv2_i")
    assert name == "read_imagef"
    assert [(kind.value, kind.opaque) for kind in kinds] == [
        ("ulong", "image2d_ro"), ("ulong", "sampler"), ("int2", ""),
    ]  # fmt: skip


def test_a_function_that_is_not_known_is_named():
    with pytest.raises(InvalidSetting, match="calls work_group_reduce"):
        definitions_of(["_Z21work_group_reduce_addi"])


FUNCTIONS = """
__kernel void all_of_them(__global const float* x, __global const int* k, __global float* f, __global int* n) {
    size_t i = get_global_id(0);
    float a = x[i];
    int b = k[i];
    float4 v = vload4(0, x);
    int4 w = vload4(0, k);
    __global float* p = f + 24 * i;
    __global int* q = n + 16 * i;
    p[0] = native_exp(a); p[1] = rsqrt(a); p[2] = mad(a, 2.0f, 1.0f); p[3] = pow(a, 3.0f);
    p[4] = dot(v, v); p[5] = length(v); p[6] = distance(v, v + 1.0f); p[7] = clamp(a, 0.25f, 0.5f);
    p[8] = mix(a, 2.0f, 0.5f); p[9] = fma(a, a, a); p[10] = atan2(a, 2.0f); p[11] = hypot(a, 1.0f);
    vstore4(max(v, 0.5f), 3, p);
    p[16] = sqrt(v).z; p[17] = cross(v, (float4)(1, 0, 0, 0)).y; p[18] = fmod(a, 0.3f); p[19] = sign(-a);
    p[20] = convert_float4(w).w; p[21] = smoothstep(0.0f, 1.0f, a); p[22] = normalize(v).x; p[23] = exp10(a);
    q[0] = min(b, 3); q[1] = abs(-b); q[2] = mul24(b, 5); q[3] = rotate(b, 4); q[4] = popcount(b);
    q[5] = clz(b); q[6] = convert_int_rtn(-a); q[7] = convert_uchar_sat(300 + b); q[8] = mul_hi(b << 20, 1 << 20);
    q[9] = add_sat(2147483647, b); q[10] = any(w > 2); q[11] = all(w > 2); q[12] = isnan(a); q[13] = hadd(b, 4);
    q[14] = select(1, 2, b > 2); q[15] = atomic_max(q + 15, b);
}
"""


def test_built_in_functions_compute_what_opencl_says():
    pytest.importorskip("llvmlite")
    pytest.importorskip("ziglang")
    x = np.array([0.75, 0.5, 0.25, 0.125], np.float32)
    k = np.array([1, 2, 3, 4], np.int32)
    f, n = np.zeros(96, np.float32), np.zeros(64, np.int32)
    source = Source(FUNCTIONS, "opencl", "functions.cl")
    profile = profile_kernel(source, None, (x, k, f, n), NDRange((4,), (4,)))
    v = x.astype(np.float64)
    for i, (a, b) in enumerate(zip(v, k.tolist(), strict=True)):
        t = np.clip(a, 0, 1)
        expected = [
            np.exp(a), 1 / np.sqrt(a), 2 * a + 1, a**3, v @ v, np.sqrt(v @ v), 2.0, np.clip(a, 0.25, 0.5),
            a + (2 - a) * 0.5, a * a + a, np.arctan2(a, 2), np.hypot(a, 1), *np.maximum(v, 0.5),
            np.sqrt(v[2]), v[2] * 1 - 0, np.fmod(a, np.float32(0.3)), -1, 4, t * t * (3 - 2 * t), v[0] / np.sqrt(v @ v),
            10**a,
        ]  # fmt: skip
        np.testing.assert_allclose(profile.arrays["f"][24 * i : 24 * i + 24], expected, rtol=2e-5, atol=1e-6)
        integers = [
            min(b, 3), b, 5 * b, b << 4, b.bit_count(), 32 - b.bit_length(), -1, 255, (b << 40) >> 32, 2147483647, 1, 0,
            0, (b + 4) >> 1, 2 if b > 2 else 1, 0,
        ]  # fmt: skip
        assert profile.arrays["n"][16 * i : 16 * i + 16].tolist() == integers
