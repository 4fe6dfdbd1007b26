"""Programs to start from: what the page offers to somebody who has none at hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "starters"
_STARTERS: tuple[tuple[str, str, str, tuple[int, ...], tuple[str, ...]], ...] = (
    ("saxpy.cl", "Vector addition", "opencl", (1 << 22,), ()),
    ("matmul.cl", "Matrix product, plain", "opencl", (512, 512), ("n=512",)),
    ("matmul-tiled.cl", "Matrix product, tiled", "opencl", (512, 512), ("n=512",)),
    ("transpose.cl", "Transposition", "opencl", (2048, 2048), ("n=2048",)),
    ("stencil.cl", "Heat flow", "opencl", (2048, 1024), ("width=2048",)),
    ("nbody.cl", "All pairs of bodies", "opencl", (8192,), ("n=8192",)),
    (
        "mandelbrot.cl", "Mandelbrot set", "opencl", (1024, 1024),
        ("width=1024", "height=1024", "most=256"),
    ),
    ("histogram.cl", "Histogram", "opencl", (1 << 20,), ()),
    ("dot.c", "Dot product in C", "c", (), ()),
    ("gcd.ll", "Greatest common divisor in LLVM IR", "llvm", (), ()),
)  # fmt: skip
"File, title, language, work-items, and integers that are passed by value."


@cache
def starters() -> list[dict[str, Any]]:
    """Each program with its text and how it is launched."""
    return [
        {
            "name": name, "title": title, "language": language, "global_size": list(size),
            "arguments": list(arguments), "text": (_FOLDER / name).read_text(encoding="utf-8"),
        }
        for name, title, language, size, arguments in _STARTERS
    ]  # fmt: skip
