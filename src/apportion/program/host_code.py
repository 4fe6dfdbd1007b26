"""CUDA and HIP files whose host code does not compile here: device code alone, on the lines where it stands.

Host code may need headers of any library. Kernels seldom do, so functions that only the host calls, includes
that are not there and variables of the host's types are blanked out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from apportion.program import includes

_DEVICE = ("__global__", "__device__", "__constant__", "__shared__", "__managed__")
_DIRECTIVE = re.compile(r"^[^\S\n]*#(?:[^\n\\]|\\\n?)*", re.MULTILINE)
_INCLUDE = re.compile(r'^[^\S\n]*#[^\S\n]*include[^\S\n]*[<"]([^>"\n]+)[>"][^\n]*$', re.MULTILINE)
_MACRO = re.compile(
    rf"^[^\S\n]*#[^\S\n]*define[^\S\n]+(\w+)[^\S\n][^\n]*(?:{'|'.join(_DEVICE)})", re.MULTILINE
)
_CONTAINER = re.compile(r"(?:\binline\s+)?\bnamespace\b[\w\s:]*$|\bextern\s*$")
_TYPE = re.compile(r"\b(?:struct|class|union|enum)\b[^()=]*$")
_OF_HOST = re.compile(r"\bstd\b|\bFILE\b|\bthrust\b|\b[io]?f?stream\b")
_LAUNCH = re.compile(r"\b(\w+(?:::\w+)*\s*<[^;{}()]*?>)\s*<<<")
_TEMPLATE = re.compile(r"\btemplate\s*<([^<>]*)>")


def device_code(text: str, folders: tuple[Path, ...]) -> str:
    """The source without what belongs to the host; on every line stands what stood there, or less.

    Args:
        folders: where headers are found; includes of others are left out.
    """
    plain = includes.blanked(text)
    code = _DIRECTIVE.sub(lambda match: includes.spaces_for(match[0]), plain)
    words = (*_DEVICE, *_MACRO.findall(plain))
    device = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b")
    parts = list(text)
    for begin, end in _host_parts(_first_branches(plain, code), device):
        for place in range(begin, end):
            if code[place] == plain[place] and text[place] != "\n":  # directives stay: they come in pairs
                parts[place] = " "
    for match in _INCLUDE.finditer(text):
        if plain[match.start() : match.end()].strip() and not any((f / match[1]).is_file() for f in folders):
            parts[match.start() : match.end()] = includes.spaces_for(match[0])
    return "".join(parts)


def instances(text: str) -> str:
    """A line that names every instance of a kernel that host code launches with its template's arguments, so
    that the compiler makes it; empty where there is none."""
    code = includes.blanked(text)
    dependent = {word for match in _TEMPLATE.finditer(code) for word in re.findall(r"\w+", match[1])}
    dependent -= {"class", "typename", "int", "unsigned", "bool", "float", "double", "char", "size_t"}
    found = dict.fromkeys(" ".join(launch.split()) for launch in _LAUNCH.findall(code))
    wanted = [each for each in found if not dependent & set(re.findall(r"\w+", each.partition("<")[2]))]
    names = "".join(f" auto *k{number} = &{each};" for number, each in enumerate(wanted))
    return f"\nstatic void apportion_instances() {{{names} }}\n" if wanted else ""


def _host_parts(code: str, device: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Where functions and variables of the host begin and end, outside of types and of other functions."""
    depth = 0  # of containers, such as namespaces
    begin = place = 0
    while place < len(code):
        character = code[place]
        if character == ";":
            if _OF_HOST.search(head := code[begin:place]) and not device.search(head):
                yield begin, place + 1
            begin = place + 1
        elif character == "}" and depth:
            depth, begin = depth - 1, place + 1
        elif character == "{":
            head = code[begin:place]
            if _CONTAINER.search(head):
                depth, begin = depth + 1, place + 1
            else:
                end = _closing(code, place)
                if not device.search(head) and not _TYPE.search(head) and _is_function(head):
                    yield begin, end
                    begin = end
                elif not _TYPE.search(head):
                    begin = end  # what follows a type up to its semicolon belongs to it
                place = end - 1
        place += 1


def _first_branches(plain: str, code: str) -> str:
    """The code with spaces in place of what stands between `#else` or `#elif` and `#endif`."""
    lines, kept = code.split("\n"), []
    others: list[bool] = []  # for each condition around a line: whether its first branch is over
    for directive, line in zip(plain.split("\n"), lines, strict=True):
        word = re.match(r"\s*#\s*(if|el|endif)", directive)
        if word and word[1] == "if":
            others.append(False)
        elif word and others:
            others[-1:] = [True] if word[1] == "el" else []
        kept.append(includes.spaces_for(line) if any(others) else line)
    return "\n".join(kept)


def _is_function(head: str) -> bool:
    return "(" in head and "=" not in head.partition("(")[0]


def _closing(code: str, opening: int) -> int:
    """Past the brace that closes the one here, or the end of the text."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(code)
