"""Programs: source → LLVM IR → graph.

`frontends` says how each language becomes LLVM IR; everything after that sees only IR.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from apportion.registry import Registry

if TYPE_CHECKING:
    from apportion.program.compile import CompileOptions
    from apportion.program.graph import ProgramGraph
    from apportion.program.llvm import GraphOptions
    from apportion.program.source import Source

frontends = Registry(
    "frontend",
    {
        "llvm": "apportion.program.compile:llvm",
        "bitcode": "apportion.program.bitcode:text_of",
        "c": "apportion.program.compile:clang",
        "c++": "apportion.program.compile:clang",
        "opencl": "apportion.program.compile:clang",
        "cuda": "apportion.program.compile:clang",
        "hip": "apportion.program.compile:clang",
        "spirv": "apportion.program.spirv:text_of",
    },
    extras={
        "bitcode": "bitcode",
        "spirv": "spirv",
        "c": "compile",
        "c++": "compile",
        "opencl": "compile",
        "cuda": "compile",
        "hip": "compile",
    },
)
"A language: the function that turns its sources into LLVM IR, `(Source, CompileOptions) -> str`."


def graph_of(
    source: Source | Path | str,
    *,
    language: str | None = None,
    compile: CompileOptions | None = None,
    graph: GraphOptions | None = None,
) -> ProgramGraph:
    """The graph of a program.

    Args:
        source: a `Source`, or the path of a file.
        language: overrides what the file's name says.
        compile: how source becomes IR.
        graph: how IR becomes a graph.

    Raises:
        UnreadableFile, MalformedInput: the file, or what is in it, is wrong.
        UnknownName: the language, or the kernel asked for, does not exist.
        MissingPackage: the language needs a package that is not installed.
        JobError: the compiler came to no end, or to a bad one.
    """
    # Imported here so that listing frontends loads neither NumPy nor the parser.
    from apportion.program.compile import CompileOptions, ir_of, known_function
    from apportion.program.llvm import GraphOptions, graph_of_ir
    from apportion.program.source import Source

    if not isinstance(source, Source):
        source = Source.read(source, language)
    ir = ir_of(source, compile or CompileOptions())
    wanted = graph or GraphOptions()
    if source.language in ("opencl", "cuda", "hip") and wanted.function is not None:
        known_function(ir, wanted.function)
    return graph_of_ir(ir, name=source.name, options=wanted)
