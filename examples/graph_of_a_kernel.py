"""From an OpenCL kernel to its program graph: numbers for a model, a picture for people, a file for later."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from apportion.program import graph_of
from apportion.program.drawing.draw import html
from apportion.program.exchange import load_npz, save_npz
from apportion.program.graph import Flow, NodeType
from apportion.program.source import Source
from apportion.program.vocabulary import Vocabulary

SAXPY = """
kernel void saxpy(const float a, global const float *x, global float *y, const int n)
{
    const int i = get_global_id(0);
    if (i < n)
        y[i] += a * x[i];
}
"""


def main(out: Path) -> None:
    graph = graph_of(Source(SAXPY, "opencl", "saxpy.cl"))
    nodes, edges = graph.size
    print(f"{nodes} nodes and {edges} edges, in the function {graph.functions[0].name}")

    loads = [node for node, text in enumerate(graph.texts()) if text == "load"]
    for node in loads:
        print(f"  node {node}: {graph.full_text(node)}")

    # Everything is an array: how many operands does the average instruction have?
    instructions = np.flatnonzero(graph.node_type == NodeType.INSTRUCTION)
    operands = np.isin(graph.edges_of(Flow.DATA)[1], instructions).sum()
    print(f"  {operands / len(instructions):.2f} operands per instruction")

    # A model wants numbers for texts. Here the vocabulary comes from the graph itself.
    vocabulary = Vocabulary.of([graph])
    print(f"  the first numbers are {vocabulary.ids(graph)[:6].tolist()}, of {len(vocabulary)} texts")

    out.mkdir(parents=True, exist_ok=True)
    (out / "saxpy.html").write_text(html(graph, title="saxpy.cl", highlight=dict.fromkeys(loads, "#ffb3b3")))
    save_npz(graph, out / "saxpy.npz")
    assert load_npz(out / "saxpy.npz") == graph
    print(f"  written to {out}: open saxpy.html in a browser, the loads are red")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/example"))
