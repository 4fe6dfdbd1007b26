"""IR of our own kernels in one file of JSON, for a machine that has no compiler.

    python -m reproduction.packed_ir ir.json                          # write it, where there is a compiler
    python -m reproduction.packed_ir ir.json energy --out FOLDER      # a reproduction, without one

Sources are found by their hash, whatever they are compiled with: this is for kernels that are always compiled
alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from apportion.program import frontends
from apportion.program.compile import ir_of
from apportion.program.source import Source
from apportion.suite import PROBLEMS
from apportion.suite.programs import PROGRAMS
from reproduction.__main__ import main as reproduce


def pack(path: Path, more: Iterable[Source] = ()) -> None:
    """Write the IR of the suite's problems and programs, and of more sources."""
    problems = [each.source() for each in PROBLEMS.values()]
    programs = [each.source() for each in PROGRAMS.values()]
    found = {source.digest: ir_of(source) for source in (*problems, *programs, *more)}
    path.write_text(json.dumps(found))


def unpack(path: Path) -> None:
    """Have OpenCL C compiled by looking it up in what `pack` wrote."""
    use(json.loads(path.read_text()))


def use(known: Mapping[str, str]) -> None:
    """Have OpenCL C compiled by looking up the hash of its source."""

    def packed(source: Source, options: object) -> str:
        return known[source.digest]

    sys.modules["packed_ir"] = ModuleType("packed_ir")
    sys.modules["packed_ir"].__dict__["packed"] = packed
    frontends._entries["opencl"] = "packed_ir:packed"


def main() -> None:
    path, *words = sys.argv[1:]
    if not words:
        pack(Path(path))
        return
    unpack(Path(path))
    reproduce(words)


if __name__ == "__main__":
    main()
