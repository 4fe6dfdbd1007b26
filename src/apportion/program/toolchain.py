"""Compilers that turn C, C++ and OpenCL C into LLVM IR, and where their own headers lie.

The first choice is the clang inside the `ziglang` wheel: pip brings it, with headers for OpenCL C, libc and
libc++, so that the same source gives the same IR on every machine. See decision 0001.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from apportion.errors import InvalidSetting, MissingPackage, UnknownName, UnreadableFile
from apportion.jobs import child
from apportion.program import cuda

CLANG_LANGUAGES = {"c": "c", "c++": "c++", "opencl": "cl", "cuda": "cuda", "hip": "hip"}
"Our name of a language: clang's `-x`."

OLDEST_CLANG, NEWEST_CLANG = 12, 20
"Before 12 OpenCL's built-in functions need a slow header; after 20 each kernel comes out twice."

_LIBRARY_FOLDERS = tuple(Path(path) for path in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache"))
"What a dynamically linked program needs in order to start."

_ZIG_CLANG = 18  # the clang of ziglang 0.13.0
_LIBCXX_PARTS = ("libcxx", "libcxxabi", "libunwind")
_LIBCXX_SETTINGS = (  # what `zig c++ -v` passes; without them libc++'s headers refuse to be read
    "_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS",
    "_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS",
    "_LIBCPP_HAS_NO_VENDOR_AVAILABILITY_ANNOTATIONS",
    "_LIBCPP_PSTL_CPU_BACKEND_SERIAL",
    "_LIBCPP_ABI_VERSION=1",
    "_LIBCPP_ABI_NAMESPACE=__1",
    "_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
)
_GLIBC_MINOR = "28"  # zig's default: the oldest glibc that its headers are meant for


@dataclass(frozen=True)
class Headers:
    """A compiler's own headers for one language and target."""

    arguments: tuple[str, ...]
    "What makes the compiler find them."

    folders: tuple[Path, ...]
    "Where they lie."


@dataclass(frozen=True)
class Toolchain:
    """A clang, and what it may read."""

    command: tuple[str, ...]
    "How a command line for it begins."

    version: int
    "Clang's own."

    identity: str
    "Changes whenever the compiler does; part of the cache's key."

    programs: tuple[Path, ...]
    "What it must be allowed to read and execute in order to start."

    headers: Callable[[str, str], Headers]
    "Its headers, by language and target."


def toolchain_of(compiler: str | None) -> Toolchain:
    """The compiler of that name.

    Args:
        compiler: None for the wheel, else a clang of this machine; `"ziglang"` or `"system"` for one of them
            and no other; otherwise a program's name or path.

    Raises:
        MissingPackage: there is none; the message names the extra.
        UnknownName: there is no such program.
        InvalidSetting: the program is not clang, or too old.
    """
    if compiler == "ziglang":
        return _ziglang() or _missing()
    if compiler == "system":
        found = _system_clang()
        if found is None:
            raise UnknownName("compiler", "system", ["ziglang"] if _ziglang() else [])
        return found
    if compiler is None:
        return _ziglang() or _system_clang() or _missing()
    path = shutil.which(compiler)
    if path is None:
        raise UnknownName("compiler", compiler, ["ziglang", "system", *_system_names()])
    return _clang_at(Path(path).absolute())


def _missing() -> Toolchain:
    raise MissingPackage("ziglang", "compile", "Compiling C, C++ or OpenCL C without a clang on this machine")


def _ziglang() -> Toolchain | None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent.resolve()
    return Toolchain(
        command=(str(folder / "zig"), "clang"),  # an undocumented sub-command: the version is pinned
        version=_ZIG_CLANG,
        identity=f"ziglang {_version_of(spec.origin)}",
        programs=(),  # it is linked statically
        headers=partial(_zig_headers, folder),
    )


@cache
def _version_of(place: str) -> str:
    """The wheel's version: reading it takes longer than finding IR that was made before."""
    return importlib.metadata.version("ziglang")


def _zig_headers(folder: Path, language: str, target: str) -> Headers:
    library = folder / "lib"
    folders = [library / "include"]
    if language in cuda.LANGUAGES:
        return Headers(("-isystem", str(folders[0])), (library, cuda.HEADERS))
    settings: list[str] = []
    if language != "opencl" and "linux" in target:  # elsewhere the wheel has no C library that would do
        folders += _libc_folders(library / "libc" / "include", target)
        settings.append("_LIBCPP_HAS_MUSL_LIBC" if "musl" in target else f"__GLIBC_MINOR__={_GLIBC_MINOR}")
        if language == "c++":
            folders = [*(library / part / "include" for part in _LIBCXX_PARTS), *folders]
            settings += _LIBCXX_SETTINGS
    arguments = (
        "-nostdinc",
        *(["-nostdinc++"] if language == "c++" else []),
        *(f"-isystem{each}" for each in folders),
        *(f"-D{setting}" for setting in settings),
    )
    return Headers(arguments, (library,))


def _libc_folders(include: Path, target: str) -> list[Path]:
    """In the order of `zig cc -v`: this processor and C library, any processor, any C library."""
    processor, library = target.split("-")[0], target.rsplit("-", 1)[-1]
    library = library if library.startswith(("gnu", "musl")) else "gnu"
    family = (
        "x86"
        if processor in ("x86_64", "i386", "i686")
        else re.sub(r"(64|32)?(le|el|eb|_be)?$", "", processor)
    )
    names = (
        f"{processor}-linux-{library}",
        "generic-musl" if library.startswith("musl") else "generic-glibc",
        f"{processor}-linux-any",
        f"{family}-linux-any",
        "any-linux-any",
    )
    return [include / name for name in dict.fromkeys(names) if (include / name).is_dir()]


def _system_names() -> list[str]:
    numbered = [f"clang-{version}" for version in range(NEWEST_CLANG, OLDEST_CLANG - 1, -1)]
    return [name for name in ["clang", *numbered] if shutil.which(name)]


def _system_clang() -> Toolchain | None:
    """The newest that gives one function a kernel, else any that is new enough."""
    found = []
    for name in _system_names():
        try:
            found.append(_clang_at(Path(shutil.which(name) or name).absolute()))
        except (InvalidSetting, UnreadableFile):
            continue
    found.sort(key=lambda clang: (clang.version <= NEWEST_CLANG, clang.version), reverse=True)
    return found[0] if found else None


@cache
def _clang_at(path: Path) -> Toolchain:
    said = child.run(
        [str(path), "--version"], programs=_programs_of(path), limits=child.ChildLimits(seconds=10)
    )
    text = said.stdout.decode(errors="replace")
    number = re.search(r"clang version (\d+)\.", text)
    if number is None:
        raise InvalidSetting(
            f"{path} is not clang: it says {text.splitlines()[:1]} when asked for its version"
        )
    if int(number[1]) < OLDEST_CLANG:
        raise InvalidSetting(f"{path} is clang {number[1]}; {OLDEST_CLANG} or newer is needed")
    status = path.stat()
    return Toolchain(
        command=(str(path),),
        version=int(number[1]),
        identity=f"{path} {status.st_size} {status.st_mtime_ns} {' '.join(text.split())}",
        programs=_programs_of(path),
        headers=partial(_system_headers, path),
    )


@cache
def _system_headers(path: Path, language: str, target: str) -> Headers:
    """The folders that clang itself says it searches."""
    if language in cuda.LANGUAGES:  # only its own: a toolkit's headers want the toolkit
        own = child.run(
            [str(path), "-print-resource-dir"],
            programs=_programs_of(path),
            limits=child.ChildLimits(seconds=10),
        )
        folder = Path(own.stdout.decode(errors="surrogateescape").strip()).resolve() / "include"
        return Headers(("-isystem", str(folder)), (folder, cuda.HEADERS))
    said = child.run(
        [str(path), "-x", CLANG_LANGUAGES[language], "-target", target, "-E", "-v", "-"],
        programs=_programs_of(path),
        limits=child.ChildLimits(seconds=10),
    )
    text = said.stderr.decode(errors="surrogateescape")
    block = re.search(r"#include <\.\.\.> search starts here:\n(.*?)End of search list", text, re.DOTALL)
    folders = [Path(line.strip()).resolve() for line in (block[1] if block else "").splitlines()]
    return Headers((), tuple(folder for folder in folders if folder != folder.parent))


def _programs_of(path: Path) -> tuple[Path, ...]:
    """A compiler's installation (the folder above its `bin`), and the libraries of the machine."""
    real = path.resolve()
    above = real.parent.parent if real.parent.name == "bin" else real.parent
    return (path, above, *_LIBRARY_FOLDERS)
