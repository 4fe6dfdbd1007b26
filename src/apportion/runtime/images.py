"""Images and samplers, as a launch is given them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.runtime.base import LocalMemory, Value

DIMENSIONS = {
    "image1d": 1,
    "image1d_buffer": 1,
    "image1d_array": 2,
    "image2d": 2,
    "image2d_array": 3,
    "image3d": 3,
}
"How many sizes an image has: width, height, depth; the last one of an array is its layers."
_FORMAT = re.compile(r"(?P<order>r|rg|rgba|bgra)(?P<bits>8|16|32)(?P<kind>f|i|u|)")
_CHANNELS = {"r": 1, "rg": 2, "rgba": 4, "bgra": 4}
ADDRESSING = ("none", "clamp_to_edge", "clamp", "repeat", "mirrored_repeat")
FILTERS = ("nearest", "linear")


@dataclass(frozen=True)
class ImageForm:
    """What an image is, without its pixels."""

    kind: str
    format: str
    shape: tuple[int, ...]
    "Width, height, depth or layers."


@dataclass(frozen=True, eq=False)
class Image:
    """An image argument and its pixels."""

    pixels: NDArray[Any]
    "(depth or layers, height, width, channels), the first ones as the kind has them."
    kind: str = "image2d"
    "One of `DIMENSIONS`."
    format: str = "rgba8"
    """`r`, `rg`, `rgba` or `bgra`; 8, 16 or 32 bits; `f`, `i` and `u` for numbers as they are, nothing for
    bytes and shorts that kernels read as 0 to 1."""

    def __post_init__(self) -> None:
        kind, channels = Image.texel(self.format)
        pixels = self.pixels
        if pixels.ndim == DIMENSIONS.get(self.kind, 0) and channels == 1:
            object.__setattr__(self, "pixels", pixels[..., None])
        if self.pixels.dtype != kind or self.pixels.shape[-1] != channels:
            raise InvalidSetting(
                f"An image in {self.format} needs pixels of {channels} × {kind}, not "
                f"{self.pixels.shape[-1]} × {self.pixels.dtype}"
            )
        Image.check(self.kind, self.format, self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Width, height, depth or layers."""
        return tuple(reversed(self.pixels.shape[:-1]))

    @property
    def form(self) -> ImageForm:
        """The image without its pixels."""
        return ImageForm(self.kind, self.format, self.shape)

    @staticmethod
    def texel(format: str) -> tuple[np.dtype[Any], int]:
        """NumPy's type of a channel, and how many channels there are."""
        match = _FORMAT.fullmatch(format)
        if match is None or (match["bits"], match["kind"]) in (("32", ""), ("8", "f")):
            raise InvalidSetting(
                f"An image's format is written like rgba8, r32f, rgba16u or bgra8, not {format!r}"
            )
        kind = {"f": "float", "i": "int", "u": "uint", "": "uint"}[match["kind"]] + match["bits"]
        return np.dtype(kind), _CHANNELS[match["order"]]

    @staticmethod
    def check(kind: str, format: str, shape: tuple[int, ...]) -> None:
        """Raise an error where sizes do not fit a kind of image."""
        Image.texel(format)
        if kind not in DIMENSIONS:
            raise InvalidSetting(f"An image is one of {', '.join(DIMENSIONS)}, not {kind!r}")
        if len(shape) != DIMENSIONS[kind] or min(shape) < 1:
            raise InvalidSetting(f"{kind} has {DIMENSIONS[kind]} sizes above 0, not {shape}")

    @staticmethod
    def format_for(kind: np.dtype[Any], channels: int) -> str:
        """The format of pixels of this type."""
        order = {1: "r", 2: "rg", 4: "rgba"}.get(channels)
        if order is None:
            raise InvalidSetting(f"An image has 1, 2 or 4 channels, not {channels}")
        letter = {"f": "f", "i": "i", "u": "" if kind.itemsize < 4 else "u"}.get(kind.kind)
        if letter is None:
            raise InvalidSetting(f"An image cannot hold {kind}")
        return f"{order}{8 * kind.itemsize}{letter}"


@dataclass(frozen=True)
class Sampler:
    """How a kernel reads images."""

    addressing: str = "clamp_to_edge"
    "What lies outside: one of `ADDRESSING`."
    filter: str = "nearest"
    normalized: bool = False
    "Whether coordinates go from 0 to 1."

    def __post_init__(self) -> None:
        if self.addressing not in ADDRESSING or self.filter not in FILTERS:
            raise InvalidSetting(
                f"A sampler has one of {', '.join(ADDRESSING)} and one of {', '.join(FILTERS)}, not "
                f"{self.addressing!r} and {self.filter!r}"
            )

    @classmethod
    def read(cls, text: str) -> Sampler:
        """The sampler of `clamp,linear,normalized`; what is left out is as in `Sampler()`."""
        words = [word.strip() for word in text.split(",") if word.strip()]
        usual = cls()
        addressing, filtering = usual.addressing, usual.filter
        normalized = False
        for word in words:
            if word in ADDRESSING:
                addressing = word
            elif word in FILTERS:
                filtering = word
            elif word in ("normalized", "unnormalized"):
                normalized = word == "normalized"
            else:
                raise InvalidSetting(
                    f"A sampler is written like sampler:clamp,linear,normalized; there is no {word!r}"
                )
        return cls(addressing, filtering, normalized)

    def __str__(self) -> str:
        return f"sampler:{self.addressing},{self.filter}" + (",normalized" if self.normalized else "")


Argument = Value | LocalMemory | Image | Sampler
"What an argument of a kernel may be given."
