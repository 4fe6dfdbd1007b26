"""A kernel without the others of its file: a driver that lacks what one needs refuses all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_TOKEN = re.compile(r"\b(?:__)?kernel\b|[;{}]")
_ATTRIBUTE = re.compile(r"\b__attribute__\s{0,9}\(\([^;{}]{0,200}?\)\)")
_NAME = re.compile(r"\bvoid\s{1,99}(\w{1,200})\s{0,99}\(")
_LONGEST_HEADING = 1 << 14


def without_other_kernels(text: str, kernel: str) -> str:
    """OpenCL C in which kernels that are not asked for, and that nothing else names, are left empty lines.

    It goes by words alone: where macros or conditions make up a kernel, what comes of it may not compile.
    """
    plain = _HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    words = Counter(re.findall(r"\w+", plain))
    parts: list[str] = []
    end = 0
    for name, first, last in _kernels(plain):
        own = re.findall(r"\w+", plain[first:last]).count(name)
        if name != kernel and words[name] == own:
            parts += [text[end:first], "\n" * text.count("\n", first, last)]
            end = last
    return "".join([*parts, text[end:]])


def _kernels(plain: str) -> Iterator[tuple[str, int, int]]:
    """Each kernel's name, and where it begins and ends."""
    start: int | None = None
    name, depth = "", 0
    for token in _TOKEN.finditer(plain):
        word = token[0]
        if word == "{":
            if depth == 0 and start is not None:
                name = _name_of(plain[start : min(token.start(), start + _LONGEST_HEADING)])
            depth += 1
        elif word == "}":
            depth = max(0, depth - 1)
            if depth == 0:
                if start is not None and name:
                    yield name, start, token.end()
                start = None
        elif depth == 0:
            start = None if word == ";" else token.start() if start is None else start


def _name_of(heading: str) -> str:
    found = _NAME.search(_ATTRIBUTE.sub(" ", heading))
    return found[1] if found else ""
