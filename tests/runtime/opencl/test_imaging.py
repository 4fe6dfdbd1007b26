"""Images and structures on real devices, alone and shared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting
from apportion.runtime.base import LocalMemory
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.images import Image, Sampler
from apportion.runtime.opencl.backend import OpenCLBackend

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
pytestmark = pytest.mark.xdist_group("opencl")

BLUR = """
kernel void blur(read_only image2d_t a, write_only image2d_t b, sampler_t s) {
  int2 p = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(b, p, 0.5f * (read_imagef(a, s, p) + read_imagef(a, s, p + (int2)(1, 0))));
}
"""
VOLUME = """
kernel void sum(read_only image3d_t a, read_only image1d_t w, read_only image2d_array_t l, global float *y) {
  const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
  int i = get_global_id(0);
  y[i] = read_imagef(a, s, (int4)(i, 1, 1, 0)).x + read_imagef(w, s, i).x + read_imagef(l, s, (int4)(i, 0, 2, 0)).x;
}
"""


@pytest.fixture(scope="module")
def backend() -> Iterator[OpenCLBackend]:
    # One of them copies as a GPU does.
    backend = OpenCLBackend(DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",)))
    yield backend
    backend.close()


@pytest.mark.parametrize("policy", ["cpu", "cpu2", 0.5, "dynamic"])
def test_images_are_read_and_written_by_one_device_or_several(
    backend: OpenCLBackend, policy: str | float
) -> None:
    pixels = np.random.default_rng(1).random((32, 64, 4)).astype(np.float32)
    result = np.zeros_like(pixels)
    with Together(BLUR, backend=backend, policy=policy) as blur:
        execution = blur(
            Image(pixels, "image2d", "rgba32f"), Image(result, "image2d", "rgba32f"), Sampler("clamp_to_edge"),
            global_size=(64, 32), local_size=(8, 8),
        )  # fmt: skip
    right = np.concatenate([pixels[:, 1:], pixels[:, -1:]], axis=1)
    np.testing.assert_allclose(result, 0.5 * (pixels + right), rtol=1e-6)
    if policy == 0.5:
        assert set(execution.split.values()) == {0.5}


@pytest.mark.parametrize("device", ["cpu", "cpu2"])
def test_volumes_rows_and_layers(backend: OpenCLBackend, device: str) -> None:
    random = np.random.default_rng(2)
    volume, row, layers = (
        random.random(shape).astype(np.float32) for shape in ((4, 4, 16), (16,), (3, 2, 16))
    )
    result = np.zeros(16, np.float32)
    with Together(VOLUME, backend=backend, policy=device) as kernel:
        kernel(
            Image(volume, "image3d", "r32f"), Image(row, "image1d", "r32f"), Image(layers, "image2d_array", "r32f"),
            result, global_size=16, local_size=4,
        )  # fmt: skip
    np.testing.assert_allclose(result, volume[1, 1] + row + layers[2, 0], rtol=1e-6)


def test_bytes_are_read_as_parts_of_one(backend: OpenCLBackend) -> None:
    text = """kernel void f(read_only image2d_t a, global float4 *y) {
      y[get_global_id(0)] = read_imagef(a, CLK_FILTER_NEAREST, (int2)(get_global_id(0), 0)); }"""
    pixels = np.array([[[0, 51, 102, 255]]], np.uint8)
    result = np.zeros(4, np.float32)
    with Together(text, backend=backend, policy="cpu") as kernel:
        kernel(Image(pixels), result, global_size=1)
    np.testing.assert_allclose(result, [0, 0.2, 0.4, 1], atol=1e-6)


def test_what_is_no_image_is_refused(backend: OpenCLBackend) -> None:
    with Together(BLUR, backend=backend) as blur:
        with pytest.raises(InvalidSetting, match="give it an Image of kind 'image2d', not ndarray"):
            blur(np.zeros(4, np.float32), np.zeros(4, np.float32), Sampler(), global_size=(2, 2))
        pixels = Image(np.zeros((2, 2, 4), np.uint8))
        with pytest.raises(InvalidSetting, match="is a sampler: give it a Sampler, not int"):
            blur(pixels, pixels, 3, global_size=(2, 2))
    with pytest.raises(InvalidSetting, match="needs pixels of 4 × uint8"):
        Image(np.zeros((2, 2, 3), np.uint8))


def test_structures_go_by_value_and_in_arrays(backend: OpenCLBackend) -> None:
    text = """typedef struct { double a; int n; } P;
    kernel void f(global float *x, P p, global const P *q, float3 v) {
      int i = get_global_id(0); x[i] = p.a * p.n + q[i].a + q[i].n + v.z; }"""
    kind = np.dtype([("a", np.float64), ("n", np.int32)], align=True)
    structures = np.zeros(64, kind)
    structures["a"], structures["n"] = np.arange(64) / 2, np.arange(64)
    one = np.array((1.5, 3), kind)
    result = np.zeros(64, np.float32)
    with Together(text, backend=backend, policy=0.5) as kernel:
        kernel(result, one, structures, np.array([1, 2, 3], np.float32), global_size=64, local_size=8)
    np.testing.assert_allclose(result, 4.5 + 1.5 * np.arange(64) + 3)


def test_work_groups_copy_in_the_background(backend: OpenCLBackend) -> None:
    text = """kernel void f(global float *x, global float *y, local float *t) {
      event_t e = async_work_group_copy(t, x + get_group_id(0) * 16, 16, 0); wait_group_events(1, &e);
      y[get_global_id(0)] = 2 * t[15 - get_local_id(0)]; }"""
    values, result = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    with Together(text, backend=backend, policy=0.5) as kernel:
        kernel(values, result, LocalMemory(64), global_size=64, local_size=16)
    np.testing.assert_array_equal(result, 2 * values.reshape(4, 16)[:, ::-1].reshape(-1))
