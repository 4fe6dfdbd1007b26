"""OpenCL C that lacks its helper functions, compiled all the same: what is missing is declared, not defined.

Published collections of kernels often hold the kernel alone, its helpers cut away (57 of the 247 sources of
CGO17). A function that is called but not there is declared as one that takes anything; its result type is
searched for. The bodies stay missing, so a graph of such IR is truncated: whoever uses it has to say so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from apportion.errors import CompileError
from apportion.program.companions import completed_in_part
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.source import Source

KERNEL = "kernel_main"
"What a kernel is called whose own name collides with that of a helper."
ATTEMPTS = 60
"Compilations after which the search for result types is given up."

_BUILTINS = ("pow", "fabs", "floor", "ceil", "sqrt", "exp", "log", "fmax", "fmin")
_PRELUDE = "#pragma OPENCL EXTENSION __cl_clang_variadic_functions : enable\n" + "".join(
    f"#define __clc_{name} {name}\n" for name in _BUILTINS
)
_RESULTS = (
    "float",
    "double",
    "int",
    "uint",
    "float2",
    "float4",
    "double2",
    "uint4",
    "int4",
    "ulong",
    "float8",
)
_HEADING = re.compile(r"(?:__)?kernel\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?void\s+(\w+)\s*\(", re.DOTALL)
_UNDECLARED = re.compile(r"(?:undeclared identifier|implicit declaration of function) '(\w+)'")


_LACKED_HEADER = re.compile(r"'([^']+)' file not found")
_LACKED_TYPE = re.compile(r"unknown type name '(\w+)'")
_TYPE_NAMES = (("u_?char|byte|pixel", "uchar"), ("size|idx|index|uint|mask|word", "uint"), ("int", "int"),
               ("vec4|float4|real4", "float4"), ("vec2|float2|complex|cplx", "float2"))  # fmt: skip
_SAMPLER = "(CLK_NORMALIZED_COORDS_FALSE|CLK_ADDRESS_CLAMP_TO_EDGE|CLK_FILTER_NEAREST)"
_TYPE, _VALUE = "float", "16"
"What a missing type and a missing number are taken for, where their names say nothing."


@dataclass(frozen=True)
class Recovered:
    """IR of a source that does not compile as it is, and what was added to it."""

    ir: str
    declared: tuple[str, ...]
    "Functions whose bodies are missing, with the result types that were found: `float A`."
    kernel: str
    "The kernel's name in the IR, where it had to be renamed; empty where not."

    @property
    def words(self) -> str:
        """One sentence for people."""
        if not self.declared:
            return "the source does not compile as it is; names of an OpenCL library were replaced"
        return (
            f"the source does not compile as it is: {', '.join(self.declared)} had to be declared, their "
            "bodies are missing, and the answer is that of the truncated kernel"
        )


def recover(source: Source, options: CompileOptions, reason: CompileError) -> Recovered:
    """Compile a source that was refused for `reason`, with declarations for what it lacks.

    Raises:
        CompileError: the first reason, where declarations do not help.
    """
    text = str(source.text)
    heading = _HEADING.search(text)
    renamed = ""
    if heading is not None and len(_HEADING.findall(text)) == 1:
        text = text[: heading.start(1)] + KERNEL + text[heading.end(1) :]
        renamed = KERNEL
    declared: dict[str, tuple[str, ...]] = {}
    attempts = 0
    error = reason
    while attempts < ATTEMPTS:
        best = error
        for results in _choices(list(declared.values())):
            attempts += 1
            lines = [f"{result} {name}" for name, result in zip(declared, results, strict=True)]
            try:
                added = "".join(f"__attribute__((overloadable)) {line}(...);\n" for line in lines)
                ir = ir_of(Source(_PRELUDE + added + text, "opencl", source.name), options)
                return Recovered(ir, tuple(lines), renamed)
            except CompileError as found:
                if best is error or _errors(found) < _errors(best):
                    best = found
            if attempts >= ATTEMPTS or _missing(best, declared):
                break
        error = best
        new = _missing(error, declared)
        if not new:
            break
        for name in new:
            if not re.search(rf"\b{name}\s*\(", text):
                raise reason  # a value, not a function: nothing says what it is
            alone = re.search(rf"[;{{}}]\s*{name}\s*\(", text) is not None
            declared[name] = ("void", *_RESULTS) if alone else _RESULTS
    raise reason


def guessed(source: Source, path: Path | None = None) -> tuple[Source, tuple[str, ...]]:
    """A source that compiles, with values for what it lacks, and what was guessed in words: none if nothing
    was lacking.

    Macros get numbers and types by their names, headers are left out, functions are declared without bodies.

    Args:
        path: where the source lies, if it does: what files beside it define is not guessed.

    Raises:
        CompileError: the first reason, where guesses do not help.
    """
    guesses: dict[str, str] = {}
    first: CompileError | None = None
    for _ in range(ATTEMPTS):
        try:
            ir_of(source)
            return source, tuple(guesses.values())
        except CompileError as error:
            if first is None and path is not None:
                whole, source = source, completed_in_part(source, path)
                if source is not whole:
                    first = error
                    guesses |= {each: f"{Path(each).name} before it" for each in source.companions}
                    continue
            first = first or error
            said = error.diagnostics or str(error)
        found = _guesses(said, str(source.text))
        new = {name: guess for name, guess in found.items() if name not in guesses}
        if not new:
            break
        guesses |= {name: words for name, (words, _) in new.items()}
        for _, change in new.values():
            source = change(source)
    assert first is not None
    raise first


def _guesses(said: str, text: str) -> dict[str, tuple[str, Callable[[Source], Source]]]:
    """What the compiler lacks → what is taken for it, in words and as a change of the source."""
    found: dict[str, tuple[str, Callable[[Source], Source]]] = {}
    for header in _LACKED_HEADER.findall(said):
        found[header] = (f"without {header}", partial(_without_header, header=header))
    for name in _LACKED_TYPE.findall(said):
        kind = next((kind for words, kind in _TYPE_NAMES if re.search(words, name, re.IGNORECASE)), _TYPE)
        found[name] = (f"-D {name}={kind}", partial(_with_macro, macro=f"{name}={kind}"))
    for name in _UNDECLARED.findall(said):
        if "sampler" in name.lower():
            found[name] = (f"-D {name}={_SAMPLER}", partial(_with_macro, macro=f"{name}={_SAMPLER}"))
        elif re.search(rf"\b{name}\s*\(", text):
            line = f"__attribute__((overloadable)) float {name}(...);"
            found[name] = (f"{name}() without its body", partial(_with_line, line=line))
        else:
            found[name] = (f"-D {name}={_VALUE}", partial(_with_macro, macro=f"{name}={_VALUE}"))
    return found


def _with_macro(source: Source, *, macro: str) -> Source:
    return replace(source, build=replace(source.build, defines=(*source.build.defines, macro)))


def _without_header(source: Source, *, header: str) -> Source:
    directive = rf'^[^\S\n]*#[^\S\n]*include[^\S\n]*["<]{re.escape(header)}[">][^\n]*$'
    return replace(source, text=re.sub(directive, "", str(source.text), flags=re.MULTILINE))


def _with_line(source: Source, *, line: str) -> Source:
    pragma = _PRELUDE.splitlines()[0]
    start = f"{pragma}\n" if pragma not in str(source.text) else ""
    return replace(source, text=f"{start}{line}\n#line 1\n{source.text!s}")


def _choices(options: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Every choice of result types; first those in which all functions that can have the same one."""
    common = [tuple(kind if kind in each else each[0] for each in options) for kind in _RESULTS]
    yield from dict.fromkeys(common) if options else [()]
    yield from (choice for choice in itertools.product(*options) if choice not in common)


def _missing(error: CompileError, declared: dict[str, tuple[str, ...]]) -> list[str]:
    names = _UNDECLARED.findall(error.diagnostics or str(error))
    return [name for name in dict.fromkeys(names) if name not in declared]


def _errors(error: CompileError) -> int:
    return error.diagnostics.count(" error: ")
