"""Which line of the source each instruction of LLVM IR comes from, as debug locations tell.

The compiler writes them with `CompileOptions(line_tables=True)`. An instruction that was made of several
lines, or moved out of a loop, may have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ATTACHED = re.compile(r",? !dbg !(\d+)")
_LOCATION = re.compile(
    r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?scope: !(\d+)(?:, inlinedAt: !(\d+))?"
)
_SCOPE = re.compile(
    r"^!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlock|LexicalBlockFile)\(.*?\bfile: !(\d+)"
)
_FILE = re.compile(r'^!(\d+) = !DIFile\(filename: "([^"]*)"')


@dataclass(frozen=True)
class SourceLines:
    """The debug locations of one module, for the lines of one source."""

    lines: Mapping[int, int]
    "Number of a location → line of the source, for those that lie in it."

    @classmethod
    def of(cls, ir: str, name: str) -> SourceLines:
        """The locations of IR in the source of this name; what was inlined counts where it stands."""
        files: dict[int, str] = {}
        scopes: dict[int, int] = {}
        places: dict[int, tuple[int, int, int | None]] = {}
        for line in ir.splitlines():
            if not line.startswith("!"):
                continue
            if place := _LOCATION.match(line):
                outer = int(place[4]) if place[4] else None
                places[int(place[1])] = int(place[2]), int(place[3]), outer
            elif scope := _SCOPE.match(line):
                scopes[int(scope[1])] = int(scope[2])
            elif file := _FILE.match(line):
                files[int(file[1])] = file[2]
        here = {number for number, path in files.items() if path == name}

        def line_of(number: int | None) -> int:
            for _ in range(len(places)):
                if number is None or number not in places:
                    return 0
                at, within, outer = places[number]
                if scopes.get(within) in here and at > 0:
                    return at
                number = outer  # a header's function: the line that calls it
            return 0

        return cls({number: at for number in places if (at := line_of(number))})

    def line_of(self, text: str) -> int:
        """The line that an instruction, as IR prints it, comes from; 0 where that is not known."""
        found = _ATTACHED.search(text)
        return self.lines.get(int(found[1]), 0) if found else 0


def without_locations(ir: str) -> str:
    """IR without debug locations and metadata, for people to read."""
    kept = [_ATTACHED.sub("", line) for line in ir.splitlines() if not line.startswith("!")]
    return "\n".join(kept).strip() + "\n"
