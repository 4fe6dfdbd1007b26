"""C, C++, OpenCL C, CUDA and HIP → LLVM IR: in a child process with limits, no files but those given, cached.

The source is fed through standard input from an empty folder, so the IR depends on nothing but the source,
its name, the options, the compiler, and the contents of the include paths: the parts of the cache's key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from apportion.errors import (
    CompileError,
    DeadlineExceeded,
    InvalidSetting,
    LimitExceeded,
    UnknownName,
    WorkerCrashed,
)
from apportion.jobs import child
from apportion.program import cuda, frontends, host_code, includes, ircache
from apportion.program.buildfile import FLAGS, NOTHING, name_of
from apportion.program.source import Source
from apportion.program.toolchain import CLANG_LANGUAGES, Headers, Toolchain, toolchain_of

OPTIMIZATIONS = ("0", "1", "2", "3")
_DEFAULT_TARGETS = {
    "opencl": "spir64-unknown-unknown",
    "cuda": cuda.TARGET,
    "hip": cuda.TARGET,
}  # keeps address spaces apart, which x86_64 does not
_HOST_TARGET = "x86_64-linux-gnu"  # whatever the machine: the same source gives the same IR everywhere
_DEFAULT_OPENCL = "CL2.0"
_VERSION = "__OPENCL_VERSION__=300"
"What drivers define and the compiler does not: the version of the device, which is newer than the language."
_OLDER_OPENCL = "CL1.2"
"What drivers take where nobody says which: some code for it does not compile as 2.0."

_STANDARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:]*")
_TARGET = re.compile(r"[A-Za-z0-9_]+(-[A-Za-z0-9_.]+){0,4}")
_DEFINE = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?(=[^\0\r\n]*)?", re.ASCII)

_OPENCL_FORM = "version"
"Changes when IR of OpenCL C must be made again."
_INCLUDES = re.compile(r"^[^\S\n]*#[^\S\n]*include\b", re.MULTILINE)
_UNDEFINED = re.compile(r"-U[A-Za-z_]\w*", re.ASCII)

_VENDORS_FUNCTION = re.compile(r"'(?:amd|intel)_\w+'")

_DEFINITION = re.compile(
    r'^define\b[^@\n]*@(?:"(?P<quoted>[^"\n]*)"|(?P<plain>[\w.$-]+))[^\n]*', re.MULTILINE
)
_WITHOUT_BODY = re.compile(r"^declare [^\n]*@(?!_Z|llvm\.|__|printf\b)\w+\(", re.MULTILINE)
"A function that is called and that is none of OpenCL's own."
_KERNEL = re.compile(r"\b(?:spir_kernel|amdgpu_kernel|ptx_kernel)\b|!kernel_arg_addr_space\b")

_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n]*?):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<message>[^\n]*)", re.MULTILINE
)
_PLACELESS = re.compile(r"^(?:[\w.+-]+: )?(?:fatal )?error: (?P<message>[^\n]*)", re.MULTILINE)
_UNKNOWN_TYPE = re.compile(r"unknown type name '(\w+)'")
_UNDECLARED = re.compile(r"use of undeclared identifier '(\w+)'")
_NOT_OPENED = re.compile(r"(?:cannot open file '(?P<closed>[^']*)': |'(?P<absent>[^']*)' file not found)")


@dataclass(frozen=True)
class CompileOptions:
    """How a source becomes IR, and what the compiler may use on the way."""

    standard: str | None = None
    "The language's version: `CL1.2` to `CL3.0` (or `1.2` …) for OpenCL C, `c11`, `gnu++20` … for the rest."

    optimization: str = "2"
    "`-O0` to `-O3`. 2 is also what clang takes for OpenCL C when nothing is said."

    vectorize: bool = True
    "Whether the compiler may make operations on vectors of those on single values."

    defines: tuple[str, ...] = ()
    "Macros: `NAME` or `NAME=VALUE`."

    line_tables: bool = False
    "Whether instructions say which line of the source they come from; the code stays what it is without."

    include_paths: tuple[Path, ...] = ()
    "Folders of headers: with the compiler's own, all that a source can include."

    target: str | None = None
    "An LLVM triple; spir64-unknown-unknown for OpenCL C, x86_64-linux-gnu for C and C++."

    flags: tuple[str, ...] = ()
    "Options without a value, such as `-cl-fast-relaxed-math`: see `buildfile.FLAGS`; and `-U` with a macro."

    compiler: str | None = None
    'None for the best there is, `"ziglang"`, `"system"`, or the name or path of a clang.'

    seconds: float = 30.0
    memory_bytes: int = 2 << 30
    output_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("defines", "include_paths", "flags"):
            if isinstance(getattr(self, name), str | Path):
                raise InvalidSetting(f"{name} must be a list, not {getattr(self, name)!r}")
        object.__setattr__(self, "optimization", str(self.optimization))
        object.__setattr__(self, "defines", tuple(self.defines))
        if self.optimization not in OPTIMIZATIONS:
            raise InvalidSetting(f"optimization must be 0, 1, 2 or 3, not {self.optimization!r}")
        # A value that begins with '-' or holds a line end would be read as something else by the compiler.
        _check("standard", self.standard, _STANDARD, "CL2.0 or c++17")
        _check("target", self.target, _TARGET, "spir64-unknown-unknown")
        for define in self.defines:
            _check("a macro", define, _DEFINE, "NAME or NAME=VALUE")
        for flag in self.flags:
            if flag not in FLAGS and not _UNDEFINED.fullmatch(flag):
                raise InvalidSetting(f"flags may hold {', '.join(sorted(FLAGS))}, not {flag!r}")
        object.__setattr__(self, "flags", tuple(self.flags))
        for path in self.include_paths:
            if not Path(path).is_dir():
                raise InvalidSetting(f"The include path {path} is not a folder")
        # Absolute, because the compiler works in a folder of its own.
        object.__setattr__(self, "include_paths", tuple(Path(path).resolve() for path in self.include_paths))
        if self.compiler is not None and (not self.compiler or self.compiler.startswith("-")):
            raise InvalidSetting(f"compiler must be a name or a path, not {self.compiler!r}")
        limits_of(self)


def limits_of(options: CompileOptions) -> child.ChildLimits:
    """What the options allow a child process."""
    return child.ChildLimits(options.seconds, options.memory_bytes, options.output_bytes)


def _check(what: str, value: str | None, pattern: re.Pattern[str], example: str) -> None:
    if value is not None and not pattern.fullmatch(value):
        raise InvalidSetting(f"{what} must be written like {example}, not {value!r}")


_DEFAULT = CompileOptions()


def ir_of(source: Source, options: CompileOptions = _DEFAULT) -> str:
    """The LLVM IR of a source in any language there is a frontend for.

    Raises:
        CompileError: the source is wrong, or includes what it may not.
        MalformedIR: bitcode that LLVM refuses.
        MissingPackage: no compiler; the message names the extra to install.
        DeadlineExceeded, LimitExceeded, WorkerCrashed: the compiler came to no end, or to a bad one.
    """
    ir: str = frontends.load(source.language)(source, options)
    return ir


def effective(source: Source, options: CompileOptions) -> CompileOptions:
    """The options together with those that a source brings along; where both say something, options win."""
    build = source.build
    if build == NOTHING:
        return options
    macros = {name_of(define) for define in options.defines}
    return replace(
        options,
        standard=options.standard or build.standard,
        target=options.target or build.target,
        defines=(*(each for each in build.defines if name_of(each) not in macros), *options.defines),
        include_paths=tuple(dict.fromkeys((*options.include_paths, *build.include_paths))),
        flags=tuple(
            dict.fromkeys((*build.flags, *(f"-U{name}" for name in build.undefined), *options.flags))
        ),
    )


def driver_options(source: Source, options: CompileOptions) -> str:
    """The options of a source in the words that drivers of OpenCL take, but for macros: see `driver_text`."""
    options = effective(source, options)
    words = [flag for flag in options.flags if flag != "-w"]
    if options.standard is not None:
        words.append(f"-cl-std={'CL' if not options.standard.startswith('CL') else ''}{options.standard}")
    return " ".join(words)


def driver_text(source: Source, options: CompileOptions) -> str:
    """The text of a source as a driver gets it: with macros, and without includes, since drivers may read no
    files of ours.

    Headers stand in their places already (see `siblings`); those whose names are made by macros do not, and
    then the preprocessor puts all of them there.
    """
    text = str(source.text)
    options = effective(source, options)
    # Drivers take options apart at spaces, and some put macros that are options before headers of their own.
    if options.defines:
        macros = [define.partition("=") for define in options.defines]
        lines = "".join(f"#define {name} {value if equals else 1}\n" for name, equals, value in macros)
        text = f'{lines}#line 1 "{_escaped(source.name)}"\n{text}'
    if source.language != "opencl" or not options.include_paths or not _INCLUDES.search(text):
        return text
    return _asked(source, options, toolchain_of(options.compiler), _TEXT)


def llvm(source: Source, options: CompileOptions) -> str:
    """The frontend of LLVM IR: the text as it is."""
    return str(source.text)


def clang(source: Source, options: CompileOptions) -> str:
    """The frontend of C, C++, OpenCL C, CUDA and HIP."""
    includes.check_text(str(source.text), source.name)
    options = effective(source, options)
    toolchain = toolchain_of(options.compiler)
    key = _key(source, options, toolchain)
    kept = ircache.load(key) if key else None
    if kept is not None:
        return kept
    ir = _compiled(source, options, toolchain)
    if key is not None and key == _key(source, options, toolchain):  # unless a header changed meanwhile
        ircache.store(key, ir)
    return ir


def kernels_of(ir: str) -> list[str]:
    """The names of the OpenCL kernels that IR defines, in order."""
    # For clang 21 and later: the body of a kernel, called by the kernel proper.
    body = "__clang_ocl_kern_imp_"
    return [name for name, line in _definitions(ir) if _KERNEL.search(line) and not name.startswith(body)]


def known_function(ir: str, name: str) -> str:
    """`name`, when IR defines a kernel or another function called so.

    Raises:
        UnknownName: it does not; the message lists the kernels there are.
    """
    if all(name != defined for defined, _ in _definitions(ir)):
        raise UnknownName("kernel", name, kernels_of(ir))
    return name


def renamed(ir: str, name: str) -> str:
    """IR whose heading names the source instead of wherever the compiler read it."""
    return re.sub(r"\A; ModuleID = [^\n]*", lambda _: f"; ModuleID = '{_quoted(name)}'", ir)


def _definitions(ir: str) -> list[tuple[str, str]]:
    """Each function that IR defines: its name, and the line that begins it."""
    return [(found["quoted"] or found["plain"], found[0]) for found in _DEFINITION.finditer(ir)]


def _target_of(source: Source, options: CompileOptions) -> str:
    return options.target or _DEFAULT_TARGETS.get(source.language, _HOST_TARGET)


def _key(source: Source, options: CompileOptions, toolchain: Toolchain) -> str | None:
    """What the IR is kept under, or None when the include paths hold too much to watch for changes."""
    ours = (cuda.HEADERS,) if source.language in cuda.LANGUAGES else ()
    contents = includes.fingerprint((*options.include_paths, *ours))
    if contents is None:
        return None
    limits = {"seconds", "memory_bytes", "output_bytes"}  # they decide whether there is IR, not which
    form = cuda.FORM if ours else _OPENCL_FORM if source.language == "opencl" else ""
    chosen = [
        f"{part.name}={getattr(options, part.name)!r}" for part in fields(options) if part.name not in limits
    ]
    return ircache.key_of(
        [source.language, source.name, source.data, toolchain.identity, contents, form, *chosen]
    )


_IR, _TEXT = ("-S", "-emit-llvm"), ("-E", "-P")
_WITH_INLINE = (*_IR, "-fgnu89-inline")
_WITH_VENDORS = (
    *_IR, "-cl-no-stdinc",
    *("-Dcl_amd_media_ops", "-Dcl_amd_media_ops2", "-Dcl_intel_subgroups", "-Dcl_intel_subgroups_short"),
)  # fmt: skip
"""What the compiler is asked for. The last declares functions of AMD and Intel, which only the long form of
the header has; it is tried where one of them is lacking, since files ask for these names to choose between
two ways."""


def _compiled(source: Source, options: CompileOptions, toolchain: Toolchain) -> str:
    try:
        ir = _asked(source, options, toolchain, _IR)
    except CompileError as error:
        ir = _otherwise(source, options, toolchain, error)
    if source.language == "opencl" and _WITHOUT_BODY.search(ir):
        # C99 leaves the body of a function out that is `inline` alone and was not inlined.
        with suppress(CompileError):
            ir = _asked(source, options, toolchain, _WITH_INLINE)
    ir = renamed(ir, source.name)
    if source.language in cuda.LANGUAGES:
        ir = cuda.like_opencl(ir)
    heading = f'source_filename = "{_quoted(source.name)}"'
    return re.sub(r"^source_filename = [^\n]*", lambda _: heading, ir, count=1, flags=re.MULTILINE)


def _otherwise(source: Source, options: CompileOptions, toolchain: Toolchain, error: CompileError) -> str:
    """IR of a source that does not compile as it is; else the error that tells most about it."""
    if source.language == "opencl":
        older = [] if options.standard else [replace(options, standard=_OLDER_OPENCL)]
        ways: list[tuple[CompileOptions, tuple[str, ...]]] = [(each, _IR) for each in older]
        if _VENDORS_FUNCTION.search(error.diagnostics):
            ways += [(each, _WITH_VENDORS) for each in (options, *older)]
        for way, output in ways:
            try:
                return _asked(source, way, toolchain, output)
            except CompileError as left:
                error = left if output == _WITH_VENDORS and way is options else error
        raise error
    if source.language in cuda.LANGUAGES and isinstance(source.text, str):
        device = host_code.device_code(source.text, (cuda.HEADERS, *options.include_paths))
        if device != source.text:
            for instances in dict.fromkeys((host_code.instances(source.text), "")):
                try:
                    return _asked(replace(source, text=device + instances), options, toolchain, _IR)
                except CompileError as left:
                    error = left
    raise error


def _asked(source: Source, options: CompileOptions, toolchain: Toolchain, output: tuple[str, ...]) -> str:
    """What the compiler makes of a source."""
    headers = toolchain.headers(source.language, _target_of(source, options))
    allowed = [*headers.folders, *options.include_paths]
    # The compiler takes the name of the source from here, for messages and for __FILE__.
    line = f'#line 1 "{_escaped(source.name)}"\n'.encode("utf-8", "surrogateescape")
    try:
        done = child.run(
            _command(source, options, toolchain, headers, output),
            stdin=line + source.data + b"\n",
            limits=limits_of(options),
            programs=toolchain.programs,
            readable=allowed,
        )
    except DeadlineExceeded as error:
        raise DeadlineExceeded(
            f"Compiling {source.name} took longer than {options.seconds:g} seconds. "
            "Raise the compile option 'seconds' to wait longer."
        ) from error
    except LimitExceeded as error:
        raise LimitExceeded(
            f"Compiling {source.name}: {error}. "
            "Raise the compile options 'memory_bytes' or 'output_bytes' to allow it."
        ) from error
    except WorkerCrashed as error:
        raise WorkerCrashed(f"The compiler crashed on {source.name}: {error}") from error
    opened, said = includes.split_headers(done.stderr)
    escaped = includes.outside(opened, allowed)
    if escaped is not None:
        raise includes.refused(escaped, source.name)  # without what the compiler said: it may quote the file
    if done.returncode != 0:
        raise _error(said, source, headers.folders)
    return done.stdout.decode(errors="replace")


def _command(
    source: Source,
    options: CompileOptions,
    toolchain: Toolchain,
    headers: Headers,
    output: tuple[str, ...] = _IR,
) -> list[str]:
    if source.language in cuda.LANGUAGES:
        return [
            *toolchain.command,
            *cuda.arguments(
                source.language, options.standard, options.optimization, vectorize=options.vectorize
            ),
            *headers.arguments,
            *(["-debug-info-kind=line-tables-only", "-dwarf-version=5"] if options.line_tables else []),
            *(f"-D{define}" for define in options.defines),
            *(f"-I{path}" for path in options.include_paths),
            *(flag for flag in options.flags if flag.startswith("-U")),
            *("-H", "-emit-llvm", "-o", "-", "-"),
        ]
    opencl = source.language == "opencl"
    declared = opencl and output != _TEXT  # drivers declare their built-in functions themselves
    standard = options.standard or (_DEFAULT_OPENCL if opencl else None)
    if opencl and standard is not None and re.fullmatch(r"\d\.\d", standard):
        standard = f"CL{standard}"
    return [
        *toolchain.command,
        *("-x", CLANG_LANGUAGES[source.language]),
        *("-target", _target_of(source, options)),
        *([f"-{'cl-' if opencl else ''}std={standard}"] if standard else []),
        # The names of arguments go into the IR: text alone does not tell them where macros are in the way.
        *(["-Xclang", "-finclude-default-header", "-cl-kernel-arg-info"] if declared else []),
        *(["-cl-no-stdinc"] if opencl and not declared else []),
        f"-O{options.optimization}",
        *(["-gline-tables-only", "-fdebug-compilation-dir=."] if options.line_tables else []),
        *([] if options.vectorize else ["-fno-vectorize", "-fno-slp-vectorize"]),
        *options.flags,
        *([f"-D{_VERSION}"] if opencl else []),
        *(f"-D{define}" for define in options.defines),
        *(f"-I{path}" for path in options.include_paths),
        *headers.arguments,
        "-nogpulib",  # amdgcn looks for a ROCm installation otherwise
        "-H",  # list the headers that are opened; includes.outside looks at them
        "-fno-color-diagnostics",
        "-fno-crash-diagnostics",
        "-Wno-unused-command-line-argument",
        *(*output, "-o", "-", "-"),
    ]


def _error(said: str, source: Source, folders: Sequence[Path]) -> CompileError:
    """What the compiler said, with the place of its first error."""
    for folder in folders:  # where packages are installed is nobody's business
        said = said.replace(f"{folder}/", "<compiler>/")
    first = _DIAGNOSTIC.search(said)
    if first is None:
        placeless = _PLACELESS.search(said)
        message = placeless["message"] if placeless else "the compiler gave no reason"
        return CompileError(message, file=source.name, diagnostics=said)
    place = {"file": first["file"], "line": int(first["line"]), "column": int(first["column"])}
    message = first["message"]
    missing = _NOT_OPENED.search(message)
    if missing is not None:
        path = missing["closed"] or missing["absent"]
        if missing["closed"] or includes.escapes(path):
            # One answer whether the file exists or not, and nothing of what the compiler said.
            return CompileError(includes.refusal(f'"{path}"'), **place)  # type: ignore[arg-type]
        message += ". Give the folder that holds it as an include path (-I FOLDER)."
    elif (name := _unknown_name(message)) is not None:
        message += f". If {name[0]} is a macro of the project's build, give it: -D {name[0]}={name[1]}"
    return CompileError(message, diagnostics=said, **place)  # type: ignore[arg-type]


def _unknown_name(message: str) -> tuple[str, str] | None:
    """What the compiler does not know, and an example of what it may stand for; None for a function."""
    if match := _UNKNOWN_TYPE.search(message):
        return match[1], "float"
    if match := _UNDECLARED.search(message):
        return match[1], "VALUE"
    return None


def _escaped(name: str) -> str:
    """A name inside a C string."""
    return "".join(
        f"\\{character}" if character in '"\\' else character if character.isprintable() else "?"
        for character in name
    )


def _quoted(name: str) -> str:
    """A name inside an LLVM string: what is not plain ASCII is written as bytes in hexadecimal."""
    data = name.encode("utf-8", "surrogateescape")
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"\"\\'" else f"\\{byte:02X}" for byte in data
    )
