"""Mangled names of OpenCL's built-in functions, taken apart: `_Z3dotDv3_fS_` is `dot(float3, float3)`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

SCALARS = {
    "b": "bool", "c": "char", "a": "char", "h": "uchar", "s": "short", "t": "ushort", "i": "int", "j": "uint",
    "l": "long", "m": "ulong", "x": "long", "y": "ulong", "f": "float", "d": "double", "v": "void",
}  # fmt: skip
_SPACES = {
    "AS0": "__private", "AS1": "__global", "AS2": "__constant", "AS3": "__local", "AS4": "__generic",
    "CLglobal": "__global", "CLlocal": "__local", "CLconstant": "__constant", "CLprivate": "__private",
    "CLgeneric": "__generic",
}  # fmt: skip


@dataclass(frozen=True)
class Type:
    """The type of an argument."""

    scalar: str
    "As OpenCL C names it; `int` for an enumeration."
    lanes: int = 1
    space: str | None = None
    "Where it points to (`__global` …), or None when it is no pointer."
    constant: bool = False
    opaque: str = ""
    "`image2d_ro`, `sampler`, `event`: what it is where the language says no more; an address for those."

    @property
    def value(self) -> str:
        """What it is, or what it points to: `float4`."""
        return f"{self.scalar}{self.lanes}" if self.lanes > 1 else self.scalar

    def __str__(self) -> str:
        if self.space is None:
            return self.value
        return f"{'const ' if self.constant else ''}volatile {self.space} {self.value}*"


def demangled(symbol: str) -> tuple[str, tuple[Type, ...]] | None:
    """The name of a function and the types of its arguments, or None where it is no name of this kind."""
    match = re.match(r"_Z(\d+)", symbol)
    if match is None:
        return None
    end = match.end() + int(match[1])
    name = symbol[match.end() : end]
    reader = _TypeReader(symbol, end)
    found: list[Type] = []
    try:
        while reader.place < len(symbol):
            found.append(reader.type())
    except (KeyError, IndexError, AttributeError):
        return None
    return name, tuple(kind for kind in found if kind.value != "void" or kind.space)


class _TypeReader:
    """Types one after the other; those made of others can be named again by number (`S_`, `S0_`)."""

    def __init__(self, text: str, place: int) -> None:
        self.text, self.place = text, place
        self.seen: list[Type] = []

    def type(self) -> Type:
        text = self.text
        if match := re.compile(r"S(\d*)_").match(text, self.place):
            self.place = match.end()
            return self.seen[int(match[1]) + 1 if match[1] else 0]
        if match := re.compile(r"Dv(\d+)_").match(text, self.place):
            self.place = match.end()
            return self._seen(replace(self.type(), lanes=int(match[1])))
        if text[self.place] == "P":
            self.place += 1
            space, constant = "__private", False
            qualified = False
            while match := re.compile(r"U(\d+)|[VK]").match(text, self.place):
                self.place = match.end()
                qualified = True
                constant |= match[0] == "K"
                if match[1]:
                    word = text[self.place : self.place + int(match[1])]
                    self.place += int(match[1])
                    if word != "_Atomic":
                        space = _SPACES[word]
            kind = self.type()
            if qualified:
                self._seen(kind)
            return self._seen(replace(kind, space=space, constant=constant))
        if match := re.compile(r"(\d+)").match(text, self.place):  # an enumeration, or an opaque type
            word = text[match.end() : match.end() + int(match[1])]
            self.place = match.end() + int(match[1])
            if word.startswith(("ocl_image", "ocl_sampler", "ocl_event")):
                return self._seen(Type("ulong", opaque=word.removeprefix("ocl_")))
            if not word.startswith("memory_"):
                raise KeyError(word)
            return self._seen(Type("int"))
        scalar = SCALARS[text[self.place]]
        self.place += 1
        return Type(scalar)

    def _seen(self, kind: Type) -> Type:
        self.seen.append(kind)
        return kind
