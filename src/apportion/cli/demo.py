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

import numpy as np
from cyclopts import Parameter

from apportion.advise.learned_analyses import run_learned
from apportion.advise.learned_policy import share
from apportion.advise.predictor import DEFAULT_PAIR, predict
from apportion.advise.program_ranking import ProgramRanking, TiledKernel, rank_configurations
from apportion.advise.relative_answers import predict as relative_performance
from apportion.advise.relative_answers import relative_model
from apportion.cli.graph import print_summary, save
from apportion.cli.show import note, print_json, print_table
from apportion.coexecution.compare import compare
from apportion.coexecution.page import page
from apportion.errors import VerificationFailed
from apportion.jobs.holding import held
from apportion.learn.relative.profile import Profile
from apportion.measure.space import Space
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.graph import Flow, NodeType, ProgramGraph
from apportion.program.llvm import graph_of_ir
from apportion.program.source import Source
from apportion.runtime.base import Limits, LocalMemory
from apportion.settings import replace_file

KERNEL = "jacobi.cl"
SIDE, GROUP = 512, (16, 4)
"Points of the grid in each direction, and the shape of a work-group."
_PRODUCT = """HloModule product
ENTRY main {
  a = f16[1024,512] parameter(0)
  b = f16[512,2048] parameter(1)
  ROOT c = f32[1024,2048] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
_TILES = Space(
    {
        "BLOCK_M": (32, 64, 128), "BLOCK_N": (32, 64, 128), "BLOCK_K": (32, 64), "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
)  # fmt: skip


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
    replace_file(demo.out / "kernel.ll", demo.ir)
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


def predict_share(demo: Demo) -> Mapping[str, Any]:
    """Predict how a CPU and a GPU should share it"""
    arrays = 2 * 4 * SIDE * SIDE
    found = predict(demo.source, local_size=GROUP[0] * GROUP[1], bytes=arrays, pair=DEFAULT_PAIR)
    return {
        "cpu_share": f"{found.cpu_share:.2f}",
        "interval": f"{found.interval[0]:.2f} to {found.interval[1]:.2f}",
        "familiarity": f"{found.familiarity:.2f}",
        "model": found.model,
    }


def ask_the_papers_models(demo: Demo) -> Mapping[str, Any]:
    """Ask a trained model of each paper: load balancing, data flow, relative performance, tensor programs"""
    assert demo.graph is not None
    balance = predict(
        demo.source, local_size=GROUP[0] * GROUP[1], bytes=2 * 4 * SIDE * SIDE, model="gnn-load-balance"
    )
    # The first instruction stands for whatever calls the kernel; the next one is the kernel's own.
    first = int(np.flatnonzero(demo.graph.node_type == NodeType.INSTRUCTION)[1])
    (flow,) = run_learned(demo.graph, "reachability", np.array([first]))
    network = relative_model("relative-aiwc-network")
    known = network.reference
    counted = dict(zip(known.counters, known.values[0].tolist(), strict=True))
    order = relative_performance(Profile(known.runs[0], counted), model=network, added={}).order
    replace_file(demo.out / "product.hlo", _PRODUCT)
    product = TiledKernel.of(str(demo.out / "product.hlo"))
    ranking = rank_configurations(product, _TILES)
    said = rank_configurations(product, _TILES, model="rank-h200-triton-network")
    return {
        "gnn_load_balance": f"the CPU takes {balance.cpu_share:.2f} of {KERNEL}",
        "dataflow_reachability": f"{int(flow.labels.sum())} nodes are reached from node {first}",
        "relative_aiwc_network": f"{known.runs[0]} is fastest on {order[0]}, slowest on {order[-1]}",
        "rank_h200_triton": f"a product is fastest with {_first(ranking)}",
        "rank_h200_triton_network": f"the paper's network says with {_first(said)}",
    }


def _first(ranking: ProgramRanking) -> str:
    return ", ".join(f"{name} {value}" for name, value in ranking.configurations[0].configuration.items())


def run_together(demo: Demo) -> Mapping[str, Any]:
    """Run it on two devices at once, verify it, and compare it with every cut"""
    grid = np.random.default_rng(0).random((SIDE, SIDE), np.float32)
    following, change = grid.copy(), np.zeros((SIDE // GROUP[1], SIDE // GROUP[0]), np.float32)
    with share(demo.source, KERNEL.removesuffix(".cl"), limits=Limits(seconds=30)) as kernel:
        bound = kernel.bind(
            grid, following, change, LocalMemory(4 * GROUP[0] * GROUP[1]), SIDE, SIDE,
            global_size=(SIDE, SIDE), local_size=GROUP,
        )  # fmt: skip
        several = len(kernel.devices) > 1
        comparison = compare(bound, kernel.policy, repeats=3, cuts=several)
        # The policy may find that one device alone is quicker; what is shared is shown all the same.
        bound.binding.restore()
        shared = bound.run(0.5 if several else kernel.policy)
        bound.binding.give_back()
        replace_file(demo.out / "report.html", page(comparison, kernel.devices))
        names = ", ".join(f"{info.id} ({info.platform})" for info in kernel.devices)
    execution = comparison.execution
    mean = 0.25 * (grid[1:-1, :-2] + grid[1:-1, 2:] + grid[:-2, 1:-1] + grid[2:, 1:-1])
    if not np.allclose(following[1:-1, 1:-1], mean, rtol=1e-5):
        raise VerificationFailed("The demo's kernel does not compute what NumPy does")
    return {
        "devices": names,
        "split": _split(execution.split),
        "milliseconds": f"{execution.seconds * 1e3:.2f}",
        "shared": f"{_split(shared.split)} in {shared.seconds * 1e3:.2f}",
        "alone": ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in execution.alone.items()),
        "verified": "yes, both, against one device alone and NumPy"
        if execution.verified and shared.verified
        else "no",
        "reason": execution.reason,
        "report": demo.out / "report.html",
    }


def _split(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{device} {share:.0%}" for device, share in shares.items())


STEPS: tuple[Callable[[Demo], Mapping[str, Any]], ...] = (
    compile_kernel, build_graph, draw_graph, predict_share, ask_the_papers_models, run_together,
)  # fmt: skip


def demo(*, out: Path = Path("out/demo"), json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """See the product work on a bundled kernel.

    Args:
        out: The folder for what it makes.
        json: Print what each step found as one object.
    """
    text = (files("apportion.program") / "kernels" / KERNEL).read_text("utf-8")
    state = Demo(out, Source(text, "opencl", KERNEL))
    report = []
    with held(out, ("kernel.ll",)):
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
    print(f"Open {out / 'graph.html'} in a browser to look at the graph, {out / 'report.html'} for the run.")
    print("The studio shows all of it on one page, for your own kernels too: apportion serve --demo --open")


_SAID = (
    "kernel", "nodes", "edges", "cpu_share", "interval", "devices", "split", "milliseconds", "shared",
    "alone", "verified", "gnn_load_balance", "dataflow_reachability", "relative_aiwc_network",
    "rank_h200_triton", "rank_h200_triton_network", "file", "picture", "page", "report",
)  # fmt: skip
"What a person wants of a step; the rest is in the summary above, and in --json."


def _words(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {found[key]}" for key in _SAID if key in found)
