"""Images of kernels that are counted read and write what they do on a device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.measure.counters.kernels import profile_kernel
from apportion.program.kernel.bounds import NDRange
from apportion.program.source import Source
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.images import Image, Sampler
from apportion.runtime.opencl.backend import OpenCLBackend

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
pytest.importorskip("llvmlite")
pytestmark = pytest.mark.xdist_group("opencl")

TEXT = """
kernel void seen(read_only image2d_t a, sampler_t s, global float4 *y) {
  int2 p = (int2)(get_global_id(0), get_global_id(1));
  y[p.y * 16 + p.x] = read_imagef(a, s, (float2)(p.x * 1.3f - 2, p.y * 0.7f - 1));
}
kernel void copied(read_only image2d_t a, write_only image2d_t b) {
  int2 p = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(b, p, read_imagef(a, p));
}
kernel void whole(read_only image3d_t a, read_only image2d_array_t l, global int4 *y) {
  const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
  int i = get_global_id(0);
  y[i] = read_imagei(a, s, (int4)(i - 1, 1, 1, 0)) + read_imagei(l, s, (float4)(i, 0, 1.6f, 0)) +
         (int4)(get_image_dim(a).xyz, (int)get_image_array_size(l));
}
"""
SPAN = NDRange((16, 12), (4, 4))


@pytest.fixture(scope="module")
def backend() -> Iterator[OpenCLBackend]:
    with OpenCLBackend(DriverOptions(pocl_instances=1, threads=1, vendors=False)) as backend:
        yield backend


@pytest.mark.parametrize(
    ("form", "kind"), [("rgba8", "u1"), ("bgra8", "u1"), ("rgba16f", "f2"), ("rgba32f", "f4")]
)
@pytest.mark.parametrize("filtered", ["nearest", "linear"])
def test_what_a_sampler_reads_is_what_a_device_reads(
    backend: OpenCLBackend, form: str, kind: str, filtered: str
) -> None:
    pixels = np.random.default_rng(3).integers(0, 200, (12, 16, 4)).astype(kind)
    for addressing in ("clamp", "clamp_to_edge"):
        image, sampler, there = (
            Image(pixels, "image2d", form),
            Sampler(addressing, filtered),
            np.zeros((192, 4), "f4"),
        )
        here = profile_kernel(
            Source(TEXT, "opencl"), "seen", (image, sampler, np.zeros_like(there)), SPAN
        ).arrays["y"]
        with Together(TEXT, "seen", backend=backend, policy="cpu") as seen:
            seen(image, sampler, there, global_size=SPAN.global_size, local_size=SPAN.local_size)
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-4)
        assert np.count_nonzero(there) > 100


@pytest.mark.parametrize(
    ("form", "kind"), [("r8", "u1"), ("rgba8", "u1"), ("rg16", "u2"), ("rgba16f", "f2"), ("r32f", "f4")]
)
def test_what_is_written_is_what_was_read(form: str, kind: str) -> None:
    channels = {"r": 1, "rg": 2, "rgba": 4}[form.rstrip("0123456789f")]
    pixels = np.random.default_rng(4).integers(0, 256, (12, 16, channels)).astype(kind)
    image, empty = Image(pixels, "image2d", form), Image(np.zeros_like(pixels), "image2d", form)
    left = profile_kernel(Source(TEXT, "opencl"), "copied", (image, empty), SPAN)
    np.testing.assert_array_equal(left.arrays["b"], pixels)
    assert left.counters["load_ratio"] == 0.5


def test_volumes_and_layers_are_found_by_their_places() -> None:
    volume = np.arange(3 * 4 * 8 * 4, dtype=np.int32).reshape(3, 4, 8, 4)
    layers = -np.arange(2 * 2 * 8 * 4, dtype=np.int32).reshape(2, 2, 8, 4)
    given = (
        Image(volume, "image3d", "rgba32i"),
        Image(layers, "image2d_array", "rgba32i"),
        np.zeros((8, 4), np.int32),
    )
    found = profile_kernel(Source(TEXT, "opencl"), "whole", given, NDRange((8,), (8,))).arrays["y"]
    before = np.concatenate([np.zeros((1, 4), int), volume[1, 1, :7]])  # outside of it there is a border
    np.testing.assert_array_equal(found, before + layers[1, 0] + [8, 4, 3, 2])
