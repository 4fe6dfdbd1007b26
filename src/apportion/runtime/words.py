"""The language that arguments are written in, the same on the command line, in JSON and in tables.

`float32[4096]=random` is an array, `int32:17` a value, `local:1024` memory of each work-group,
`image2d:rgba8[1024,768]` an image, `sampler:clamp,linear` how images are read, `data.npy` and `data.npz:x`
what a file holds.
Sizes may be sums and products of numbers and letters: `N` for all work-items, `N0` to `N2` for those of a
dimension, `L` and `L0` to `L2` for a work-group's. A number alone takes the type that the kernel says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.program.kernel.bounds import MOST_ITEMS, NDRange
from apportion.program.kernel.launch_values import Contents, contents_of
from apportion.program.kernel.signature import KernelArgument
from apportion.runtime.base import LocalMemory, Value
from apportion.runtime.images import Image, ImageForm, Sampler

FILLS = ("zeros", "ones", "random", "range", "below", "file")
"""What arrays hold: 0, 1, random numbers (floating point from 0 to 1, integers from 0 to 255), 0 1 2 …,
random integers below a number (`below:64`), or the contents of a `.npy` file."""
TYPES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip
_ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "uint": "uint32",
            "long": "int64", "ulong": "uint64", "char": "int8", "uchar": "uint8", "short": "int16",
            "ushort": "uint16"}  # fmt: skip

_STRUCTURE = r"struct\{[^}]*\}\d+"
_ARRAY = re.compile(rf"(?P<type>{_STRUCTURE}|[a-z]+\d*)\[(?P<shape>[^\]]+)\](?:=(?P<fill>.+))?")
_VALUE = re.compile(r"(?P<type>[a-z]+\d*):(?P<value>.+)")
_IMAGE = re.compile(
    r"(?P<kind>image[123]d(?:_array|_buffer)?):(?P<format>\w+)\[(?P<shape>[^\]]+)\](?:=(?P<fill>.+))?"
)
_ARCHIVE = re.compile(r"(.+\.npz)(?::(\w+))?")
_FACTORS = re.compile(r"([*/])")
_DAMAGE = (
    OSError, ValueError, EOFError, ArithmeticError, SyntaxError, TokenError, RecursionError, BadZipFile,
    KeyError,
)  # fmt: skip
"What reading a .npy or .npz file raises; Python's own parser reads its header."
_MOST_FIELDS = 1 << 16
"Of one type in a row, in a structure."
_DIGITS = re.compile(r"[0-9]+")
_MOST_DIGITS = 30
"That are read of a size: more are too many in any case."
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")


@lru_cache(maxsize=1024)
def dtype_of(text: str) -> np.dtype[Any]:
    """NumPy's type of an array's element: `float32`, or `struct{float64@0,int32@8}16` for a structure.

    Raises:
        UnknownName: no type is called so.
    """
    if match := re.fullmatch(r"struct\{(.*)\}(\d+)", text):
        pairs = [pair for part in match[1].split(",") if part for pair in _run(part)]
        return np.dtype(
            {
                "names": [f"f{number}" for number in range(len(pairs))],
                "formats": [dtype_of(kind) for kind, _ in pairs],
                "offsets": [offset for _, offset in pairs],
                "itemsize": int(match[2]),
            }
        )
    kind = _ALIASES.get(text, text)
    if kind not in TYPES:
        raise UnknownName("type", kind, TYPES)
    return np.dtype(kind)


def _run(text: str) -> list[tuple[str, int]]:
    """The values of `float32@8*3`: three of them, one after the other from byte 8 on."""
    kind, _, rest = text.partition("@")
    offset, _, count = rest.partition("*")
    if int(count or 1) > _MOST_FIELDS:
        raise InvalidSetting(f"A structure has at most {_MOST_FIELDS:,} values, not {count:.30}")
    width = dtype_of(kind).itemsize
    return [(kind, int(offset) + width * number) for number in range(int(count or 1))]


def _runs(fields: tuple[tuple[str, int], ...]) -> str:
    """Fields in words, those of one type that follow each other as one."""
    runs: list[tuple[str, int, int]] = []
    for kind, offset in fields:
        if runs and runs[-1][0] == kind and runs[-1][1] + runs[-1][2] * dtype_of(kind).itemsize == offset:
            runs[-1] = (kind, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((kind, offset, 1))
    return ",".join(f"{kind}@{offset}" + (f"*{count}" if count > 1 else "") for kind, offset, count in runs)


def type_word(argument: KernelArgument) -> str | None:
    """How the elements of an argument are written; None for those whose size is not known."""
    if argument.scalar_type is not None:
        return argument.scalar_type
    if not argument.element_bytes:
        return None
    return f"struct{{{_runs(argument.fields)}}}{argument.element_bytes}"


@dataclass(frozen=True)
class ArrayWord:
    """An array argument: its type, its length and what it holds."""

    dtype: str
    count: int
    fill: str
    shape: tuple[int, ...] = ()
    "Where it has several dimensions."

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidSetting(f"An array needs a length above 0, not {self.count}")
        if self.fill.partition(":")[0] not in FILLS:
            raise UnknownName("filling", self.fill, FILLS)

    @property
    def kind(self) -> np.dtype[Any]:
        """NumPy's type of an element."""
        return dtype_of(self.dtype)

    @property
    def cell(self) -> np.dtype[Any]:
        """What it is compared and merged by: numbers, or the bytes of a structure."""
        kinds = {kind for kind, *_ in (self.kind.fields or {}).values()} if self.kind.fields else {self.kind}
        (one,) = kinds if len(kinds) == 1 else (np.dtype(np.uint8),)
        whole = self.kind.fields is None or one.itemsize * len(self.kind.fields) == self.kind.itemsize
        return one if whole else np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.count * self.kind.itemsize

    @property
    def bound(self) -> int:
        """What random integers that it holds are below."""
        fill, _, rest = self.fill.partition(":")
        most = int(np.iinfo(self.kind).max) if self.kind.kind in "iu" else 256
        return min(int(rest) if fill == "below" else 256, most)

    def contents(self) -> Contents | None:
        """What it holds, if it holds integers; None also where a file cannot be read."""
        if self.kind.kind not in "iu":
            return None
        fill, _, rest = self.fill.partition(":")
        match fill:
            case "zeros" | "ones":
                return Contents(float(fill == "ones"), 0.0)
            case "range":
                return Contents(self.count / 2, 1.0)
            case "file":
                try:
                    if _ARCHIVE.fullmatch(rest):
                        return contents_of(array_in(Path(rest)))
                    return contents_of(np.load(rest, mmap_mode="r", allow_pickle=False))
                except (*_DAMAGE, UnreadableFile):
                    return None
        return Contents(
            self.bound / 2, self.bound / 6
        )  # of two random numbers the second is so much above the first

    def values(self, random: np.random.Generator) -> NDArray[Any]:
        """The array."""
        fill, _, rest = self.fill.partition(":")
        if fill == "file":
            return array_in(Path(rest))
        shape = self.shape or (self.count,)
        if self.kind.fields is None:
            return _filled(fill, self.kind, self.count, self.bound, random).reshape(shape)
        made = np.zeros(self.count, self.kind)
        for name, (kind, *_) in self.kind.fields.items():
            made[name] = _filled(fill, kind, self.count, min(self.bound, 128), random)
        return made.reshape(shape)

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape)) if self.shape else str(self.count)
        return f"{self.dtype}[{shape}]={self.fill}"


def _filled(
    fill: str, kind: np.dtype[Any], count: int, bound: int, random: np.random.Generator
) -> NDArray[Any]:
    match fill:
        case "zeros":
            return np.zeros(count, kind)
        case "ones":
            return np.ones(count, kind)
        case "range":
            return np.arange(count).astype(kind)
    if kind.kind == "f":
        return random.random(count).astype(kind)
    return random.integers(0, max(bound, 1), count).astype(kind)


@dataclass(frozen=True)
class ImageWord:
    """An image argument."""

    kind: str
    "`image2d` and the like."
    format: str
    "`rgba8`, `r32f` …: see `Image`."
    shape: tuple[int, ...]
    "Width, height, depth or layers."
    fill: str = "random"

    def __post_init__(self) -> None:
        if self.fill.partition(":")[0] not in FILLS:
            raise UnknownName("filling", self.fill, FILLS)
        Image.check(self.kind, self.format, self.shape)

    @property
    def nbytes(self) -> int:
        """Its size."""
        kind, channels = Image.texel(self.format)
        return math.prod(self.shape) * channels * kind.itemsize

    @property
    def form(self) -> ImageForm:
        """The image without its pixels."""
        return ImageForm(self.kind, self.format, self.shape)

    @property
    def pixels(self) -> ArrayWord:
        """The numbers that it holds, as an array."""
        kind, channels = Image.texel(self.format)
        return ArrayWord(str(kind), math.prod(self.shape) * channels, self.fill)

    def values(self, random: np.random.Generator) -> Image:
        """The image."""
        kind, channels = Image.texel(self.format)
        fill, _, rest = self.fill.partition(":")
        if fill == "file":
            pixels = _picture(Path(rest), channels) if rest.endswith(_PICTURES) else array_in(Path(rest))
            return Image(np.ascontiguousarray(pixels, kind), self.kind, self.format)
        made = _filled(fill, kind, math.prod(self.shape) * channels, 256, random)
        return Image(made.reshape(*reversed(self.shape), channels), self.kind, self.format)

    def __str__(self) -> str:
        return f"{self.kind}:{self.format}[{','.join(map(str, self.shape))}]={self.fill}"


Word = ArrayWord | ImageWord | Sampler | np.generic | bytes | int
"An array, an image, how images are read, a value, a structure or vector, or the bytes of local memory."


def read_word(text: str) -> Word:
    """One argument, written without letters.

    Raises:
        InvalidSetting: it is none.
    """
    try:
        if text.startswith("local:"):
            return int(text.removeprefix("local:"))
        if text.startswith("bytes:"):
            return bytes.fromhex(text.removeprefix("bytes:"))
        if text.startswith("sampler:"):
            return Sampler.read(text.removeprefix("sampler:"))
        if match := _IMAGE.fullmatch(text):
            sizes = tuple(int(part) for part in match["shape"].split(","))
            return ImageWord(match["kind"], match["format"], sizes, match["fill"] or "random")
        if match := _ARRAY.fullmatch(text):
            shape = tuple(int(part) for part in match["shape"].split(","))
            kind = _ALIASES.get(match["type"], match["type"])
            dtype_of(kind)
            return ArrayWord(
                kind, math.prod(shape), match["fill"] or "random", shape if len(shape) > 1 else ()
            )
        if match := _VALUE.fullmatch(text):
            return _number(match["value"], dtype_of(match["type"]))
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidSetting):
            raise
        raise InvalidSetting(f"The argument {text!r:.60} is no number that fits: {error}") from None
    except UnknownName as error:
        raise InvalidSetting(f"The argument {text!r} cannot be read: {error}") from None
    raise InvalidSetting(f"An argument is written float32[64]=random, int32:5 or local:256, not {text!r}")


def _number(text: str, kind: np.dtype[Any]) -> np.generic:
    number = float(text) if kind.kind == "f" else int(text, 0)
    if kind.kind in "iu" and not np.iinfo(kind).min <= number <= np.iinfo(kind).max:
        raise InvalidSetting(
            f"{text} does not fit {kind}, which holds {np.iinfo(kind).min} to {np.iinfo(kind).max}"
        )
    return kind.type(number)  # type: ignore[no-any-return]


def evaluate(text: str, span: NDRange) -> int:
    """A size written with letters: sums of products, `N0*N1+2`."""
    known = {"N": span.work_items, "L": math.prod(span.local_size)}
    for dimension in range(3):
        there = dimension < span.dimensions
        known[f"N{dimension}"] = span.global_size[dimension] if there else 1
        known[f"L{dimension}"] = span.local_size[dimension] if there else 1
    total = 0
    for term in text.split("+"):
        value = 1
        operation = "*"
        for part in _FACTORS.split(term.strip()):
            part = part.strip()
            if part in ("*", "/"):
                operation = part
            elif part in known or _DIGITS.fullmatch(part):
                number = known[part] if part in known else int(part[:_MOST_DIGITS])
                value = value * number if operation == "*" else value // max(number, 1)
            else:
                raise InvalidSetting(
                    f"{part!r} in {text!r} is neither a number nor one of {', '.join(known)}"
                )
            if value > MOST_ITEMS:
                raise InvalidSetting(f"The size {text:.60} is more than {MOST_ITEMS:,}")
        total += value
    return total


def resolved_word(text: str, span: NDRange) -> str:
    """An argument without its letters."""
    if match := (_IMAGE.fullmatch(text) or _ARRAY.fullmatch(text)):
        begin = text[: match.start("shape")]
        shape = ",".join(str(_size(part, span)) for part in match["shape"].split(","))
        fill = match["fill"]
        if fill and fill.startswith("below:"):
            fill = f"below:{evaluate(fill.removeprefix('below:'), span)}"
        return f"{begin}{shape}]" + (f"={fill}" if fill else "")
    if text.startswith("local:"):
        return f"local:{evaluate(text.removeprefix('local:'), span)}"
    match = _VALUE.fullmatch(text)
    if match is None or match["type"] not in (*TYPES, *_ALIASES) or match["type"].startswith("float"):
        return text
    letters = re.fullmatch(r"[NL0-9*/+\s]*[NL*/+][NL0-9*/+\s]*", match["value"])
    return f"{match['type']}:{evaluate(match['value'], span)}" if letters else text


def _size(text: str, span: NDRange) -> int:
    size = evaluate(text, span)
    if size < 1:
        raise InvalidSetting(f"A size must be at least 1, not {text.strip()}")
    return size


def word_for(argument: KernelArgument, text: str, span: NDRange, fill: str = "random") -> str:
    """What somebody says of an argument, as a table keeps it: without letters, with its type.

    Args:
        text: `float32[N]`, `data.npy`, `N0`, `3.5`, `1,2,3` for a vector or a structure …
        fill: what an array holds of which that is not said.

    Raises:
        InvalidSetting: it cannot be read, or is nothing that the argument can be.
        UnreadableFile: a file that cannot be read.
    """
    try:
        return _word_for(argument, text.strip(), span, fill)
    except InvalidSetting as error:
        raise InvalidSetting(f"{argument.name}={text:.60}: {error}") from None


def _word_for(argument: KernelArgument, text: str, span: NDRange, fill: str) -> str:
    path, _, _ = text.partition("=")
    if path.endswith((".npy", *_PICTURES)) and "[" not in text:
        return _file_word(argument, Path(text))
    if (archive := _ARCHIVE.fullmatch(text)) and "[" not in text:
        return _file_word(argument, Path(f"{archive[1]}:{archive[2] or _chosen(archive[1], argument.name)}"))
    if match := _VALUE.fullmatch(text):
        if argument.scalar_type is not None and match["type"] in (*TYPES, *_ALIASES):
            given = dtype_of(match["type"])
            if given.itemsize != dtype_of(argument.scalar_type).itemsize or argument.is_pointer:
                raise InvalidSetting(f"the argument is {argument.type}, not {given}")
            text = match["value"]
        elif match["type"] in ("local", "sampler", "bytes") or _IMAGE.fullmatch(text):
            return _checked(argument, resolved_word(text, span), fill)
    if _ARRAY.fullmatch(text) or _IMAGE.fullmatch(text) or argument.is_pointer or argument.is_sampler:
        return _checked(argument, resolved_word(text, span), fill)
    return _by_value(argument, text, span)


def _checked(argument: KernelArgument, text: str, fill: str) -> str:
    """The word, if it is of the kind that the argument is."""
    word = read_word(text)
    if isinstance(word, ArrayWord) and "=" not in text:
        word = read_word(f"{text}={fill}")
    wanted = (
        ImageWord if argument.is_image
        else Sampler if argument.is_sampler
        else int if argument.space == "local"
        else ArrayWord if argument.is_pointer
        else bytes
    )  # fmt: skip
    if not isinstance(word, wanted):
        examples = {ImageWord: "image2d:rgba8[1024,768]", Sampler: "sampler:clamp,nearest", int: "local:1024",
                    ArrayWord: "float32[1024]", bytes: "bytes:00ff"}  # fmt: skip
        raise InvalidSetting(f"the argument is {argument.type}; write it like {examples[wanted]}")
    return f"local:{word!s}" if wanted is int else text if wanted is bytes else str(word)


def _by_value(argument: KernelArgument, text: str, span: NDRange) -> str:
    """A number, or several for a vector or a structure."""
    parts = [part.strip() for part in text.split(",")]
    if argument.scalar_type is not None:
        kind = dtype_of(argument.scalar_type)
        numbers = [_number(_plain(part, span, kind), kind) for part in parts]
        if argument.components == 1 and len(numbers) == 1:
            return f"{argument.scalar_type}:{numbers[0]!s}"
        lanes = 3 if re.search(r"3$", argument.type) else argument.components
        if len(numbers) not in (1, lanes, argument.components):
            raise InvalidSetting(f"{argument.type} has {lanes} numbers, not {len(numbers)}")
        whole = np.zeros(argument.components, kind)
        whole[: max(lanes, len(numbers))] = numbers[0] if len(numbers) == 1 else numbers
        return f"bytes:{whole.tobytes().hex()}"
    structure = np.zeros(1, dtype_of(type_word(argument) or "uint8"))
    if len(parts) != len(argument.fields):
        kinds = ", ".join(kind for kind, _ in argument.fields)
        raise InvalidSetting(f"{argument.type} has {len(argument.fields)} values ({kinds}), not {len(parts)}")
    for number, ((name, _), part) in enumerate(zip(argument.fields, parts, strict=True)):
        structure[f"f{number}"] = _number(_plain(part, span, np.dtype(name)), np.dtype(name))
    return f"bytes:{structure.tobytes().hex()}"


def _plain(text: str, span: NDRange, kind: np.dtype[Any]) -> str:
    try:
        int(text, 0) if kind.kind in "iu" else float(text)
    except ValueError:
        if re.fullmatch(r"[NL0-9*/+\s]+", text) and re.search("[NL]", text):
            return str(evaluate(text, span))
        raise InvalidSetting(
            "not a number, a size in letters (N, N0, L), a .npy file, a type with a size (float32[1024]) or "
            "local:BYTES"
        ) from None
    return text


def _file_word(argument: KernelArgument, path: Path) -> str:
    if argument.is_image:
        kind = argument.bare_type.removesuffix("_t")
        if path.suffix in _PICTURES:
            pixels = _picture(path, 4)
            return f"{kind}:rgba8[{pixels.shape[1]},{pixels.shape[0]}]=file:{path}"
        pixels = array_in(path)
        channels = pixels.shape[-1] if pixels.ndim > 2 else 1
        sizes = pixels.shape[:-1] if pixels.ndim > 2 else pixels.shape
        shape = ",".join(map(str, reversed(sizes)))
        return f"{kind}:{Image.format_for(pixels.dtype, channels)}[{shape}]=file:{path}"
    values = array_in(path)
    word = type_word(argument) or str(values.dtype)
    if argument.scalar_type is not None and values.dtype != dtype_of(word):
        word = str(values.dtype)
    return f"{word}[{','.join(map(str, values.shape))}]=file:{path}"


def _chosen(archive: str, name: str) -> str:
    """The array of a `.npz` file that an argument takes: the one of its name, else the only one."""
    try:
        with open(archive, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            there = list(arrays)
    except _DAMAGE as error:
        raise UnreadableFile(f"Cannot read the arrays of {archive}: {error!s:.200}") from error
    if name not in there and len(there) != 1:
        raise UnknownName(f"array in {archive}", name, there)
    return name if name in there else there[0]


def array_in(path: Path) -> NDArray[Any]:
    """The array in a `.npy` file, or in a `.npz` file the one whose name stands behind it: `data.npz:x`.

    Raises:
        UnreadableFile: it holds none.
    """
    try:
        if archive := _ARCHIVE.fullmatch(str(path)):
            with open(archive[1], "rb") as file, np.load(file, allow_pickle=False) as arrays:
                return np.array(arrays[archive[2]], order="C")
        # Mapped first: a header that promises more than the file holds is noticed before memory is asked for.
        with np.errstate(over="raise"):
            values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return np.array(values, order="C")
    except _DAMAGE as error:
        raise UnreadableFile(f"Cannot read the array {path}: {error!s:.200}") from error


def _picture(path: Path, channels: int) -> NDArray[Any]:
    """(height, width, channels): the bytes of a picture."""
    try:
        from PIL import Image as Pictures  # only pictures need it
    except ImportError as error:
        raise InvalidSetting(f"Reading {path} needs the package pillow: pip install pillow") from error
    try:
        with Pictures.open(path) as picture:
            mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels, "RGBA")
            found = np.asarray(picture.convert(mode))
    except OSError as error:
        raise UnreadableFile(f"Cannot read the picture {path}: {error}") from error
    return found.reshape(*found.shape[:2], channels)


def value_of(word: Word, random: np.random.Generator) -> Value | LocalMemory | Image | Sampler:
    """What a kernel is given for a word."""
    if isinstance(word, ArrayWord | ImageWord):
        return word.values(random)
    if isinstance(word, int) and not isinstance(word, np.generic):
        return LocalMemory(word)
    return word


def named(texts: Mapping[str, str] | list[str] | tuple[str, ...], names: list[str]) -> dict[str, str]:
    """Arguments by name, from a mapping or from `name=value` texts.

    Raises:
        InvalidSetting: a text that names nothing, or an argument said twice.
        UnknownName: an argument that the kernel does not have.
    """
    found: dict[str, str] = {}
    pairs = texts.items() if isinstance(texts, Mapping) else [_pair(text) for text in texts]
    for name, value in pairs:
        if name in found:
            raise InvalidSetting(f"The argument {name!r} is given twice")
        if name not in names:
            raise UnknownName("argument", name, names)
        found[name] = value
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise InvalidSetting(f"Write an argument as name=value, for example x=float32[1024], not {text!r}")
    return name, value
