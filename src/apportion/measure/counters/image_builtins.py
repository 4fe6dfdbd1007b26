"""Images for kernels that are counted: what is handed to the kernel, and OpenCL C that reads and writes it.

An image is a header with the address of its pixels, its sizes and its format; a sampler is the number that
clang makes of one. Reads follow the sampler; where the language leaves a place outside of an image undefined
(no sampler, `CLK_ADDRESS_NONE`, every write), the access goes outside of the pixels, as a check must find.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from apportion.measure.counters.mangling import Type
from apportion.runtime.images import ADDRESSING, Image, Sampler

SAMPLER = "__translate_sampler_initializer"
"What a sampler that the source writes is made by."
_NAME = re.compile(r"(?:read_image|write_image)(?:f|i|ui)|get_image_(?:width|height|depth|dim|array_size)")
_KINDS = {"": 0, "f": 1, "i": 2, "u": 3}
_ORDERS = {"r": 0, "rg": 0, "rgba": 0, "bgra": 1}


def is_image_function(name: str) -> bool:
    """Whether a built-in function is one on images."""
    return _NAME.fullmatch(name) is not None


def header_of(image: Image, address: int) -> NDArray[np.uint8]:
    """What the kernel is handed for an image: `struct image` of `PROLOGUE`.

    Args:
        address: of its pixels.
    """
    sizes = (*image.shape, 1, 1)[:3]
    match = re.fullmatch(r"(r|rg|rgba|bgra)(\d+)(f|i|u|)", image.format)
    assert match is not None  # an `Image` has checked it
    array = {"image1d_array": 1, "image2d_array": 2}.get(image.kind, 3)
    numbers = [
        *sizes, len(image.shape), array, image.pixels.shape[-1], int(match[2]) // 8, _KINDS[match[3]],
        _ORDERS[match[1]], image.pixels.nbytes,
    ]  # fmt: skip
    head = np.zeros(8 + 4 * len(numbers), np.uint8)
    head[:8] = np.array([address], np.uint64).view(np.uint8)
    head[8:] = np.array(numbers, np.int32).view(np.uint8)
    return head


def number_of(sampler: Sampler) -> int:
    """The number that clang makes of a sampler."""
    return (
        2 * ADDRESSING.index(sampler.addressing)
        | int(sampler.normalized)
        | (0x20 if sampler.filter == "linear" else 0x10)
    )


def written(name: str, kinds: tuple[Type, ...]) -> tuple[str, str]:
    """The type of the result and the body of an image function, whose images and samplers are `ulong`."""
    if name.startswith("get_image_"):
        return _query(name.removeprefix("get_image_"), kinds[0])
    letter = name.removeprefix("read_image").removeprefix("write_image")
    kind = {"f": "float4", "i": "int4", "ui": "uint4"}[letter]
    if name.startswith("write"):
        return "void", f"image_write_{letter}(a, {_coordinate('b', kinds[1], 'int')}, c);"
    sampled = len(kinds) == 3
    place, sampler = ("c", "b") if sampled else ("b", "0")
    taken = kinds[-1]
    if taken.scalar == "float":
        return kind, f"return image_sample_{letter}(a, {sampler}, {_coordinate(place, taken, 'float')});"
    return kind, f"return image_read_{letter}(a, {sampler}, {_coordinate(place, taken, 'int')});"


def _query(what: str, image: Type) -> tuple[str, str]:
    head = "__global struct image *h = (__global struct image *)a;"
    match what:
        case "dim" if "3d" in image.opaque:
            return "int4", f"{head} return (int4)(h->size[0], h->size[1], h->size[2], 0);"
        case "dim":
            return "int2", f"{head} return (int2)(h->size[0], h->size[1]);"
        case "array_size":
            return "ulong", f"{head} return h->size[h->layer];"
    return "int", f"{head} return h->size[{('width', 'height', 'depth').index(what)}];"


def _coordinate(letter: str, kind: Type, scalar: str) -> str:
    parts = [f"{letter}.s{lane}" for lane in range(min(3, kind.lanes))] if kind.lanes > 1 else [letter]
    return f"({scalar}4)({', '.join([*parts, *['0'] * (4 - len(parts))])})"


PROLOGUE = """
struct image { ulong data; int size[3], sizes, layer, channels, bytes, kind, swapped, nbytes; };
int image_floor(float x) { int i = (int)x; return x < i ? i - 1 : i; }
// Where a number of a texel is; behind the pixels for what is outside of them.
ulong image_place(__global struct image *h, int4 c) {
    if (c.x < 0 || c.y < 0 || c.z < 0 || c.x >= h->size[0] || c.y >= h->size[1] || c.z >= h->size[2])
        return h->data + h->nbytes;
    return h->data + (((ulong)c.z * h->size[1] + c.y) * h->size[0] + c.x) * h->channels * h->bytes;
}
long image_whole(__global struct image *h, ulong p, int n) {
    p += n * h->bytes;
    bool sign = h->kind == 2;
    switch (h->bytes) {
    case 1: return sign ? *(__global char *)p : *(__global uchar *)p;
    case 2: return sign ? *(__global short *)p : *(__global ushort *)p;
    }
    return sign ? *(__global int *)p : *(__global uint *)p;
}
float image_half(uint bits) {
    uint sign = bits >> 15 << 31, exponent = bits >> 10 & 31, part = bits & 1023;
    if (exponent == 31) return as_float(sign | 0x7f800000u | part << 13);
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * part * 5.9604644775390625e-8f;
    return as_float(sign | (exponent + 112) << 23 | part << 13);
}
float image_number(__global struct image *h, ulong p, int n) {
    if (h->kind == 1) {
        if (h->bytes == 4) return *(__global float *)(p + 4 * n);
        return image_half(*(__global ushort *)(p + 2 * n));
    }
    float most = h->bytes == 1 ? 255 : 65535;
    return h->kind == 0 ? image_whole(h, p, n) / most : image_whole(h, p, n);
}
bool image_inside(__global struct image *h, int4 c) {
    return c.x >= 0 && c.y >= 0 && c.z >= 0 && c.x < h->size[0] && c.y < h->size[1] && c.z < h->size[2];
}
float4 image_at_f(__global struct image *h, int4 c, bool border) {
    float4 r = (float4)(0, 0, 0, h->channels == 4 ? 0 : 1);
    if (border && !image_inside(h, c)) return r;
    ulong p = image_place(h, c);
    touch_load(p, h->channels * h->bytes);
    r.x = image_number(h, p, 0);
    if (h->channels > 1) r.y = image_number(h, p, 1);
    if (h->channels > 2) { r.z = image_number(h, p, 2); r.w = image_number(h, p, 3); }
    return h->swapped ? r.zyxw : r;
}
int4 image_at_i(__global struct image *h, int4 c, bool border) {
    int4 r = (int4)(0, 0, 0, h->channels == 4 ? 0 : 1);
    if (border && !image_inside(h, c)) return r;
    ulong p = image_place(h, c);
    touch_load(p, h->channels * h->bytes);
    r.x = image_whole(h, p, 0);
    if (h->channels > 1) r.y = image_whole(h, p, 1);
    if (h->channels > 2) { r.z = image_whole(h, p, 2); r.w = image_whole(h, p, 3); }
    return h->swapped ? r.zyxw : r;
}
int image_wrapped(int mode, int i, int size) {
    if (mode == 1) return i < 0 ? 0 : i >= size ? size - 1 : i;
    if (mode == 3) return (i % size + size) % size;
    if (mode == 4) {
        int j = (i % (2 * size) + 2 * size) % (2 * size);
        return j < size ? j : 2 * size - 1 - j;
    }
    return i;
}
int4 image_addressed(__global struct image *h, ulong sampler, int4 c) {
    int mode = sampler >> 1 & 7, at[3] = {c.x, c.y, c.z};
    for (int d = 0; d < h->sizes; d++)
        at[d] = image_wrapped(d == h->layer ? 1 : mode, at[d], h->size[d]);
    return (int4)(at[0], at[1], at[2], 0);
}
#define IMAGE_READ(letter, kind, at) \\
kind image_read_##letter(ulong a, ulong sampler, int4 c) { \\
    __global struct image *h = (__global struct image *)a; \\
    return at(h, image_addressed(h, sampler, c), (sampler >> 1 & 7) == 2); \\
}
IMAGE_READ(f, float4, image_at_f)
IMAGE_READ(i, int4, image_at_i)
uint4 image_read_ui(ulong a, ulong sampler, int4 c) { return as_uint4(image_read_i(a, sampler, c)); }
void image_scaled(__global struct image *h, ulong sampler, float4 c, float at[3]) {
    at[0] = c.x; at[1] = c.y; at[2] = c.z;
    if (sampler & 1) for (int d = 0; d < h->sizes; d++) if (d != h->layer) at[d] *= h->size[d];
    if (h->layer < 3) at[h->layer] += 0.5f;
}
int4 image_nearest(__global struct image *h, ulong sampler, float4 c) {
    float at[3];
    image_scaled(h, sampler, c, at);
    return (int4)(image_floor(at[0]), image_floor(at[1]), image_floor(at[2]), 0);
}
float4 image_sample_f(ulong a, ulong sampler, float4 c) {
    __global struct image *h = (__global struct image *)a;
    if (!(sampler & 0x20)) return image_read_f(a, sampler, image_nearest(h, sampler, c));
    float at[3], part[3], zero[3] = {0, 0, 0};
    int first[3];
    image_scaled(h, sampler, c, at);
    for (int d = 0; d < 3; d++) {
        bool smooth = d < h->sizes && d != h->layer;
        first[d] = image_floor(smooth ? at[d] - 0.5f : at[d]);
        part[d] = smooth ? at[d] - 0.5f - first[d] : 0;
    }
    float4 sum = (float4)(0);
    for (int corner = 0; corner < 8; corner++) {
        float weight = 1;
        int place[3];
        for (int d = 0; d < 3; d++) {
            int next = corner >> d & 1;
            weight *= next ? part[d] : 1 - part[d];
            place[d] = first[d] + next;
        }
        if (weight != 0) sum += weight * image_read_f(a, sampler, (int4)(place[0], place[1], place[2], 0));
    }
    return sum;
}
int4 image_sample_i(ulong a, ulong sampler, float4 c) {
    return image_read_i(a, sampler, image_nearest((__global struct image *)a, sampler, c));
}
uint4 image_sample_ui(ulong a, ulong sampler, float4 c) { return as_uint4(image_sample_i(a, sampler, c)); }
uint image_to_half(float x) {
    uint bits = as_uint(x), sign = bits >> 16 & 0x8000;
    int exponent = (int)(bits >> 23 & 255) - 112;
    uint part = bits & 0x7fffff;
    if (x != x) return sign | 0x7e00;
    if (exponent >= 31) return sign | 0x7c00;
    if (exponent <= 0) {
        if (exponent < -10) return sign;
        part = (part | 0x800000) >> (1 - exponent);
        exponent = 0;
    }
    uint rest = part & 0x1fff, small = (uint)exponent << 10 | part >> 13;
    if (rest > 0x1000 || (rest == 0x1000 && (small & 1))) small++;
    return sign | small;
}
void image_store(__global struct image *h, ulong p, int n, long value) {
    p += n * h->bytes;
    switch (h->bytes) {
    case 1: *(__global uchar *)p = value; return;
    case 2: *(__global ushort *)p = value; return;
    }
    *(__global uint *)p = value;
}
void image_write_f(ulong a, int4 c, float4 v) {
    __global struct image *h = (__global struct image *)a;
    ulong p = image_place(h, c);
    touch_store(p, h->channels * h->bytes);
    float4 each = h->swapped ? v.zyxw : v;
    float all[4] = {each.x, each.y, each.z, each.w};
    for (int n = 0; n < h->channels; n++) {
        if (h->kind == 1 && h->bytes == 4) *(__global float *)(p + 4 * n) = all[n];
        else if (h->kind == 1) image_store(h, p, n, image_to_half(all[n]));
        else {
            float most = h->bytes == 1 ? 255 : 65535, scaled = all[n] * most;
            image_store(h, p, n, scaled <= 0 ? 0 : scaled >= most ? (long)most : image_floor(scaled + 0.5f));
        }
    }
}
void image_write_i(ulong a, int4 c, int4 v) {
    __global struct image *h = (__global struct image *)a;
    ulong p = image_place(h, c);
    touch_store(p, h->channels * h->bytes);
    int4 each = h->swapped ? v.zyxw : v;
    int all[4] = {each.x, each.y, each.z, each.w};
    long low = h->bytes == 1 ? -128 : h->bytes == 2 ? -32768 : -2147483648L;
    for (int n = 0; n < h->channels; n++)
        image_store(h, p, n, all[n] < low ? low : all[n] > -low - 1 ? -low - 1 : all[n]);
}
void image_write_ui(ulong a, int4 c, uint4 v) {
    __global struct image *h = (__global struct image *)a;
    ulong p = image_place(h, c);
    touch_store(p, h->channels * h->bytes);
    uint4 each = h->swapped ? v.zyxw : v;
    uint all[4] = {each.x, each.y, each.z, each.w};
    ulong most = h->bytes == 1 ? 255 : h->bytes == 2 ? 65535 : 4294967295UL;
    for (int n = 0; n < h->channels; n++) image_store(h, p, n, all[n] > most ? most : all[n]);
}
"""
"What image functions are written with; it follows the prologue of `builtins`."
