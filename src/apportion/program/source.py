"""Source: the text of a program, the language it is written in, and the name it goes by.

Files come from anywhere: with a byte order mark, with Windows line ends, in an encoding nobody remembers.
What is read here is what every other part of the package sees.
"""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.program import cuda, frontends, siblings
from apportion.program.buildfile import NOTHING, BuildOptions, beside, parsed, words_of
from apportion.program.toolchain import CLANG_LANGUAGES

LANGUAGES = ("llvm", "bitcode", "spirv", "c", "c++", "opencl", "cuda", "hip")

SUFFIXES = {
    ".ll": "llvm",
    ".bc": "bitcode",
    ".spv": "spirv",
    ".c": "c",
    ".cc": "c++",
    ".cpp": "c++",
    ".cxx": "c++",
    ".cl": "opencl",
    ".ocl": "opencl",
    ".opencl": "opencl",
    ".clcpp": "opencl",
    ".cu": "cuda",
    ".hip": "hip",
}
"The language that the end of a file's name stands for."

LARGEST_BYTES = 1 << 28
"Larger files are refused: nobody writes a source of 256 MiB, and reading one by accident fills the memory."

_BITCODE_MAGIC = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")  # bitcode; the wrapper 0x0B17C0DE, low byte first
_OPENCL_KERNEL = re.compile(rb"^[^\S\n]*+__kernel\b", re.MULTILINE)
"Code for both languages, in files that are named after CUDA, takes this word for a macro."
_WRAPPER = re.compile(
    r"""^[^\S\n]*+(?:R"\w{0,16}\(|\)\w{0,16}"(?:[^\S\n]*+(?:;|R"\w{0,16}\())?)[^\S\n]*+$""", re.MULTILINE
)
"The lines that make kernels a string of C++, which host code includes: OpenCL C has no such strings."
_SPIRV_MAGIC = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")  # in either order of bytes
_BINARY = ("bitcode", "spirv")
_CPP_FOR_OPENCL = "CLC++"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Source:
    """A program as it was written.

    Text that is not UTF-8 keeps its bytes as lone surrogates (`surrogateescape`), so that `data` gives them
    back unchanged.
    """

    text: str | bytes
    "Bytes for bitcode and SPIR-V, otherwise text with `\\n` line ends."

    language: str
    "One of `LANGUAGES`, or a frontend that another package adds."

    name: str = "<input>"
    "What messages and the IR's `source_filename` call it: usually its path."

    build: BuildOptions = NOTHING
    "How its project, or its user, says that it is compiled."

    companions: tuple[str, ...] = ()
    "Files beside it that stand before it in the text, since they define what it lacked: see `companions`."

    def __post_init__(self) -> None:
        if not self.language or not isinstance(self.language, str):
            raise InvalidSetting(
                f"A source's language must be a name such as 'opencl', not {self.language!r}"
            )
        if (self.language in _BINARY) != isinstance(self.text, bytes):
            kind = type(self.text).__name__
            raise InvalidSetting(
                f"A source in {self.language!r} cannot be {kind}: bitcode and SPIR-V are bytes, the rest str"
            )
        # A module with nothing in it is LLVM IR, and its graph is the root alone; a kernel file is a mistake.
        if self.language != "llvm" and not self.text.strip():
            raise MalformedInput("the file is empty", file=self.name)
        if self.language == "bitcode" and not is_bitcode(self.data):
            raise MalformedInput("this is not LLVM bitcode: it does not begin with 'BC'", file=self.name)
        if self.language == "spirv" and not self.data.startswith(_SPIRV_MAGIC):
            raise MalformedInput(
                "this is no SPIR-V: it does not begin with the number 0x07230203", file=self.name
            )
        if isinstance(self.text, str) and "\0" in self.text:
            raise MalformedInput("a source cannot hold the character NUL", file=self.name)
        try:
            self.data, self.name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:  # half a character, as JSON allows
            raise MalformedInput(
                f"not text that can be written: {error.reason}", file=ascii(self.name)
            ) from None

    @classmethod
    def read(
        cls, path: Path | str, language: str | None = None, *, build: BuildOptions | str = NOTHING
    ) -> Source:
        """The source in a file, with the headers of its own folder in their places.

        Before OpenCL C that lacks them stand the files beside it that define its functions, types and macros.

        Args:
            path: the file; its name ends in one of `SUFFIXES` unless the language is given.
            language: overrides what the name says.
            build: how it is compiled, or the words for it: `-D N=4 -I include -cl-std=CL1.2`; what a build
                file beside it says is added.

        Raises:
            InvalidSetting: a build option that is not known.
            UnreadableFile: it is not there, not a plain file, too large, binary, or of unknown language.
            MalformedInput: it is empty.
            UnknownName: there is no frontend for the language.
        """
        path = Path(path)
        if language is not None and language not in LANGUAGES and language not in frontends:
            raise UnknownName("language", language, frontends)
        data = _contents(path)
        if language == "opencl" and not _OPENCL_KERNEL.search(data):  # what runs kernels asks for OpenCL C
            cuda.refuse_to_run(SUFFIXES.get(path.suffix.lower(), ""), str(path))
        build = (parsed(words_of(build)) if isinstance(build, str) else build).over(beside(path))
        chosen = language or build.language or _language_of(path, data)
        if path.suffix.lower() == ".clcpp" and build.standard is None:
            build = replace(build, standard=_CPP_FOR_OPENCL)
        if chosen in _BINARY:
            return cls(data, chosen, str(path))
        text = _decoded(path, data, chosen)
        if chosen in CLANG_LANGUAGES:
            # A host's headers are many, and full of conditions: the compiler finds those by itself.
            others = build.include_paths if chosen in ("opencl", "cuda", "hip") else ()
            if chosen == "opencl":
                others = (*others, *_headers_of_pyopencl())
            text = siblings.inlined(text, str(path), path.parent, others)
            for header in reversed(build.headers):
                text = siblings.with_header(text, str(path), header)
        if chosen != "opencl":
            return cls(text, chosen, str(path), replace(build, headers=()))
        from apportion.program.companions import completed  # compiles, which needs a source

        return completed(cls(_WRAPPER.sub("", text), chosen, str(path), replace(build, headers=())), path)

    @cached_property
    def data(self) -> bytes:
        """The bytes of the text."""
        return self.text if isinstance(self.text, bytes) else self.text.encode("utf-8", "surrogateescape")

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the contents; language and name have no part in it."""
        return hashlib.sha256(self.data).hexdigest()


@cache
def _headers_of_pyopencl() -> tuple[Path, ...]:
    """The folder that pyopencl gives to the compiler of every program: complex numbers, random numbers."""
    try:
        found = find_spec("pyopencl")  # without importing it, which looks for drivers
    except (ImportError, ValueError):
        return ()
    folders = () if found is None or found.origin is None else (Path(found.origin).parent / "cl",)
    return tuple(folder for folder in folders if folder.is_dir())


def is_bitcode(data: bytes) -> bool:
    """Whether these bytes begin as LLVM bitcode does, wrapped or not."""
    return data.startswith(_BITCODE_MAGIC)


def _contents(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableFile(f"{path} is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile(f"{path} is not a plain file")  # a pipe would keep us waiting for ever
        if status.st_size > LARGEST_BYTES:
            raise UnreadableFile(
                f"{path} has {status.st_size:,} bytes; sources of more than {LARGEST_BYTES:,} are not read"
            )
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)  # the file may have grown since it was looked at
    except OSError as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"Cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the path
        raise UnreadableFile(f"Cannot read {str(path)!r}: {error}") from error
    if len(data) > LARGEST_BYTES:
        raise UnreadableFile(f"{path} grows while it is read")
    return data


def _language_of(path: Path, data: bytes) -> str:
    if is_bitcode(data):  # `clang -emit-llvm -c -o x.ll` is a common slip
        return "bitcode"
    if data.startswith(_SPIRV_MAGIC):
        return "spirv"
    language = SUFFIXES.get(path.suffix.lower())
    if language in cuda.LANGUAGES and _OPENCL_KERNEL.search(data) and b"__global__" not in data:
        return "opencl"
    if language is None:
        raise UnreadableFile(
            f"Cannot tell the language of {path} from its name. "
            f"Name it with one of {', '.join(SUFFIXES)}, or say the language: {', '.join(LANGUAGES)}."
        )
    return language


def _decoded(path: Path, data: bytes, language: str) -> str:
    if is_bitcode(data):
        raise UnreadableFile(
            f"{path} holds LLVM bitcode, not {language}. Leave the language out, or say 'bitcode'."
        )
    if data.startswith(_UTF16_MARKS):
        raise UnreadableFile(f"{path} is written in UTF-16. Save it as UTF-8.")
    if b"\0" in data:
        raise UnreadableFile(f"{path} is a binary file, not {language} source")
    data = data.removeprefix(_UTF8_MARK).replace(b"\r\n", b"\n")
    if language == "llvm":
        # LLVM reads names byte by byte. Latin-1 keeps different bytes different, and unlike lone surrogates
        # its characters can be printed and stored in a graph.
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data.decode("latin-1")
    return data.decode("utf-8", "surrogateescape")
