"""Images and samplers of a driver."""

from __future__ import annotations

import pyopencl as cl

from apportion.errors import LaunchFailed
from apportion.runtime.images import ImageForm, Sampler

_ORDERS = {"r": "R", "rg": "RG", "rgba": "RGBA", "bgra": "BGRA"}
_KINDS = {
    "8": "UNORM_INT8", "16": "UNORM_INT16", "8u": "UNSIGNED_INT8", "16u": "UNSIGNED_INT16",
    "32u": "UNSIGNED_INT32", "8i": "SIGNED_INT8", "16i": "SIGNED_INT16", "32i": "SIGNED_INT32",
    "16f": "HALF_FLOAT", "32f": "FLOAT",
}  # fmt: skip
_ADDRESSING = {
    "none": "NONE", "clamp_to_edge": "CLAMP_TO_EDGE", "clamp": "CLAMP", "repeat": "REPEAT",
    "mirrored_repeat": "MIRRORED_REPEAT",
}  # fmt: skip


def image_for(context: cl.Context, form: ImageForm, buffer: cl.Buffer) -> cl.Image:
    """An image of this form; one over a buffer shares its memory.

    Raises:
        LaunchFailed: the driver has no such images.
    """
    order = form.format.rstrip("0123456789fiu")
    channels = cl.ImageFormat(
        getattr(cl.channel_order, _ORDERS[order]),
        getattr(cl.channel_type, _KINDS[form.format.removeprefix(order)]),
    )
    flags = cl.mem_flags.READ_WRITE
    try:
        if form.kind == "image1d_buffer":
            return cl.Image(context, flags, channels, shape=form.shape, buffer=buffer)
        return cl.Image(context, flags, channels, shape=form.shape, is_array=form.kind.endswith("_array"))
    except cl.Error as error:
        raise LaunchFailed(f"The driver has no {form.kind} in {form.format}: {error}") from error


def pixels_in(
    queue: cl.CommandQueue, image: cl.Image, buffer: cl.Buffer, offset: int, form: ImageForm
) -> None:
    """Copy the pixels that lie in a buffer, from a place in it on, to an image."""
    # `enqueue_copy` knows images of two and three dimensions only.
    cl._cl._enqueue_copy_buffer_to_image(queue, buffer, image, offset, (0, 0, 0), _whole(form))


def pixels_out(
    queue: cl.CommandQueue, buffer: cl.Buffer, image: cl.Image, offset: int, form: ImageForm
) -> None:
    """Copy the pixels of an image to a buffer, from a place in it on."""
    cl._cl._enqueue_copy_image_to_buffer(queue, image, buffer, (0, 0, 0), _whole(form), offset)


def _whole(form: ImageForm) -> tuple[int, int, int]:
    sizes = (*form.shape, 1, 1)
    return sizes[0], sizes[1], sizes[2]


def sampler_for(context: cl.Context, sampler: Sampler) -> cl.Sampler:
    """How images are read."""
    return cl.Sampler(
        context,
        sampler.normalized,
        getattr(cl.addressing_mode, _ADDRESSING[sampler.addressing]),
        getattr(cl.filter_mode, sampler.filter.upper()),
    )
