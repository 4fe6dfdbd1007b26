"""`apportion demo`: the product at work on a kernel of its own, step by step.

A step is a function that takes what the steps before it made, adds its own, and returns what there is to say
about it; `STEPS` is the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from apportion.cli.graph import print_summary, save
from apportion.cli.show import note, print_json, print_table
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.graph import Flow, NodeType, ProgramGraph
from apportion.program.llvm import graph_of_ir
from apportion.program.source import Source

KERNEL = "jacobi.cl"


@dataclass
class Demo:
    """What the steps have made so far."""

    out: Path
    source: Source
    ir: str = ""
    graph: ProgramGraph | None = None


def compile_kernel(demo: Demo) -> Mapping[str, Any]:
    """Compile the kernel to LLVM IR with the compiler that pip installed"""
    demo.ir = ir_of(demo.source, CompileOptions())
    (demo.out / "kernel.ll").write_text(demo.ir)
    return {
        "kernel": ", ".join(kernels_of(demo.ir)),
        "source_lines": len(str(demo.source.text).splitlines()),
        "ir_lines": len(demo.ir.splitlines()),
        "file": demo.out / "kernel.ll",
    }


def build_graph(demo: Demo) -> Mapping[str, Any]:
    """Build its program graph"""
    demo.graph = graph_of_ir(demo.ir, name=demo.source.name)
    save(demo.graph, demo.out / "graph.json")
    nodes, edges = demo.graph.size
    return {
        "nodes": nodes,
        **{f"{kind.name.lower()}_nodes": int((demo.graph.node_type == kind).sum()) for kind in NodeType},
        "edges": edges,
        **{f"{flow.name.lower()}_edges": int((demo.graph.edge_flow == flow).sum()) for flow in Flow},
        "file": demo.out / "graph.json",
    }


def draw_graph(demo: Demo) -> Mapping[str, Any]:
    """Draw it"""
    assert demo.graph is not None
    for name in ("graph.svg", "graph.html"):
        save(demo.graph, demo.out / name, title=demo.source.name)
    return {"picture": demo.out / "graph.svg", "page": demo.out / "graph.html"}


STEPS: tuple[Callable[[Demo], Mapping[str, Any]], ...] = (compile_kernel, build_graph, draw_graph)


def demo(*, out: Path = Path("out/demo"), json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """See the product work on a bundled kernel.

    Args:
        out: The folder for what it makes.
        json: Print what each step found as one object.
    """
    out.mkdir(parents=True, exist_ok=True)
    text = (files("apportion.program") / "kernels" / KERNEL).read_text("utf-8")
    state = Demo(out, Source(text, "opencl", KERNEL))
    report = []
    for number, step in enumerate(STEPS, 1):
        if not json:
            note(f"{number}. {step.__doc__} …")
        start = time.perf_counter()
        found = step(state)
        report.append({"step": step.__name__, "seconds": round(time.perf_counter() - start, 4), **found})
    if json:
        print_json({"steps": report})
        return
    assert state.graph is not None
    print_summary(state.graph, f"The graph of {KERNEL}")
    print_table(
        ("step", "seconds", "found"),
        [(found["step"].replace("_", " "), f"{found['seconds']:.3f}", _words(found)) for found in report],
        right=("seconds",),
    )
    print(f"Open {out / 'graph.html'} in a browser to look at the graph.")


_SAID = ("kernel", "nodes", "edges", "file", "picture", "page")
"What a person wants of a step; the rest is in the summary above, and in --json."


def _words(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {found[key]}" for key in _SAID if key in found)
