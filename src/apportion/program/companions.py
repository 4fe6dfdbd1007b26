"""Files beside a source of OpenCL C that define what it lacks: host programs often put the texts of several
files together, and no file says so.

Where a source does not compile and files of its own folder, or below it, define names that it lacks, those
files are put before it. What comes of it must compile; otherwise the source stays as it is. Nothing outside
the folder is read, as with headers (see `siblings`).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from apportion.errors import ApportionError, CompileError
from apportion.program import includes, siblings
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.source import Source

SUFFIXES = (".cl", ".ocl", ".opencl", ".clh", ".h", ".hpp", ".inc")
MOST_FILES, MOST_BYTES, LARGEST_BYTES = 600, 8 << 20, 1 << 20
"What is looked at: in a folder with more, the first files by their names; and of one file."
ATTEMPTS = 12
"Compilations after which the search is given up."
SECONDS = 20.0
"For one of them."

_MACRO = re.compile(r"^[^\S\n]*+#[^\S\n]*+define[^\S\n]++(\w++)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[^\S\n]*+#(?:[^\n\\]|\\\n?)*+", re.MULTILINE)
_NAMED = re.compile(r"\b(?:struct|union|enum)\s++(\w++)\s*+\{")
_TYPE = re.compile(r"\b(\w++)\s*+(?:\[[^\]]{0,200}+\]\s*+)*+$")
_TYPEDEF = re.compile(r"\btypedef\b")
_FUNCTION = re.compile(r"\b(\w++)\s*+\([^(){};]*+\)\s*+\{")
_VALUE = re.compile(r"\b(\w++)\s*+(?:\[[^\]]{0,200}+\]\s*+)*+=")
_WORD = re.compile(r"\b[A-Za-z_]\w*+")
_KERNEL = re.compile(r"\b(?:__)?kernel\b")
_LACKED = re.compile(
    r"(?:unknown type name|undeclared identifier|implicit declaration of function|undeclared function)"
    r" '(\w+)'"
)
_AT = re.compile(r"^[^\n]*?:\d+:\d+: (?:fatal )?error: [^\n]*\n(?P<code>[^\n]*)", re.MULTILINE)
_TWICE = re.compile(r"error: (?:redefinition of|typedef redefinition|conflicting types for)")


@dataclass(frozen=True)
class _Companion:
    path: Path
    defines: frozenset[str]
    kernels: int


def completed(source: Source, path: Path) -> Source:
    """A source with the files of its folder before it that define what it lacks; itself, where it lacks
    nothing or does not compile with them.

    Args:
        path: where the source lies.
    """
    return next((found for found, errors in _with_companions(source, path) if errors is None), source)


def completed_in_part(source: Source, path: Path) -> Source:
    """The same, for whoever goes on with guesses: with the files that define some of what it lacks."""
    *_, (found, _) = _with_companions(source, path)
    return found


def _with_companions(source: Source, path: Path) -> Iterator[tuple[Source, str | None]]:
    """The source, then with one file more before it each time, and what the compiler says of it."""
    lacked = _words(source) - _defined(str(source.text))
    others = list(_companions(path))
    if not any(each.defines & lacked for each in others):
        yield source, ""
        return
    refused = set[Path]()
    errors = _errors(source)
    yield source, errors
    for _ in range(ATTEMPTS):
        if not errors:
            return
        chosen = _best(errors, source, [each for each in others if each.path not in refused])
        if chosen is None:
            return
        refused.add(chosen.path)
        text = siblings.with_header(str(source.text), source.name, chosen.path)
        tried = replace(source, text=text, companions=(str(chosen.path), *source.companions))
        left = _errors(tried)
        if left is None or _helps(errors, left):
            source, errors = tried, left
            yield source, errors


def _best(errors: str, source: Source, others: list[_Companion]) -> _Companion | None:
    """The file that defines most of what errors say is lacking; without kernels of its own, if there is one.

    It must define something of that alone: of several versions of the same, nothing says which is meant.
    """
    lacked = Counter(_LACKED.findall(errors))
    beside = {word for code in _AT.findall(errors) for word in _WORD.findall(code)}
    unknown = beside - _defined(str(source.text)) - set(lacked)

    def worth(each: _Companion) -> tuple[int, bool, int, bool, int]:
        said = sum(count for name, count in lacked.items() if name in each.defines)
        return (
            said,
            each.kernels == 0,
            len(unknown & each.defines),
            each.path.suffix == ".h",
            -len(each.defines),
        )

    definers = Counter(name for each in others for name in each.defines)
    alone = {name for name in unknown | set(lacked) if definers[name] == 1}
    useful = [each for each in others if each.defines & alone]
    return max(useful, key=worth, default=None)


def _helps(before: str, after: str) -> bool:
    """Whether errors are other ones than before, of which none says that something is there twice."""
    now, then = set(_LACKED.findall(after)), set(_LACKED.findall(before))
    return not _TWICE.search(after) and (
        not then <= now or after.count(" error: ") < before.count(" error: ")
    )


def _errors(source: Source) -> str | None:
    """What the compiler says of a source that it refuses; None for one that gives kernels."""
    try:
        return None if kernels_of(ir_of(source, CompileOptions(seconds=SECONDS))) else ""
    except CompileError as error:
        return error.diagnostics or str(error)
    except ApportionError:
        return ""


def _words(source: Source) -> set[str]:
    return set(_WORD.findall(includes.blanked(str(source.text))))


def _companions(path: Path) -> Iterator[_Companion]:
    folder = path.parent.resolve()
    left = MOST_BYTES
    for place in _files(folder):
        try:
            size = place.stat().st_size
            if place == path.resolve() or size > min(left, LARGEST_BYTES):
                continue
            text = place.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        left -= size
        yield _Companion(place, frozenset(_defined(text)), len(_KERNEL.findall(includes.blanked(text))))


def _files(folder: Path) -> Iterator[Path]:
    """Files of OpenCL C and headers, those of the folder itself first; none that a link leads elsewhere."""
    count = 0
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            place = Path(here, name)
            if (
                place.suffix not in SUFFIXES
                or not place.resolve().is_relative_to(folder)
                or not place.is_file()
            ):
                continue
            count += 1
            if count > MOST_FILES:
                return
            yield place.resolve()


def _defined(text: str) -> set[str]:
    """Macros, types, functions and tables that a text defines."""
    plain = includes.blanked(text)
    code = _outermost(_DIRECTIVE.sub(lambda match: includes.spaces_for(match[0]), plain))
    found = set(_MACRO.findall(plain))
    for pattern in (_NAMED, _FUNCTION, _VALUE):
        found.update(pattern.findall(code))
    for statement in code.split(";"):
        if _TYPEDEF.search(statement) and (name := _TYPE.search(statement)):
            found.add(name[1])
    return found


def _outermost(code: str) -> str:
    """The code without what stands between braces."""
    parts: list[str] = []
    depth = begin = 0
    for match in re.finditer(r"[{}]", code):
        if match[0] == "{":
            if depth == 0:
                parts.append(code[begin : match.end()])
            depth += 1
        elif depth:
            depth -= 1
            begin = match.start()
    return "".join([*parts, code[begin:] if depth == 0 else ""])
