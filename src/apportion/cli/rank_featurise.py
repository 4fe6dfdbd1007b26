"""`apportion rank featurise`: a tensor program as the arrays that TpuGraphs has for a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table
from apportion.data.published import tpugraphs
from apportion.program.hlo.jax import function_of, hlo_of, spec_of
from apportion.program.hlo.module import graph_of_hlo

_Json = Annotated[bool, Parameter(negative="")]


def featurise(
    program: str,
    *,
    out: Path,
    shapes: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    optimised: Annotated[bool, Parameter(negative="")] = False,
    json: _Json = False,
) -> None:
    """Turn a tensor program into the arrays that TpuGraphs has for a graph.

    Args:
        program: A file with an HloModuleProto, an HloProto or HLO text; or a JAX function, as
            module:function or file.py:function.
        out: The NPZ file: node_opcode, node_feat, edge_index, node_splits and node_config_ids.
        shapes: What the JAX function is called with: f32[128,256] bf16[256].
        optimised: The JAX function as XLA's compiler on this machine leaves it.
        json: Print what was found as JSON.
    """
    if ":" in program and not Path(program).exists():
        module = hlo_of(function_of(program), [spec_of(shape) for shape in shapes], optimised=optimised)
        graph = graph_of_hlo(module, name=program)
    else:
        graph = tpugraphs.graph_of_file(Path(program))
    tpugraphs.write_graph(graph, out)
    if graph.unknown_opcodes:
        note(f"Without a published number, so 0: {', '.join(graph.unknown_opcodes)}")
    found = {
        "module": graph.name, "nodes": len(graph.node_opcode), "edges": len(graph.edge_index),
        "segments": len(graph.node_splits) - 1, "configurable": len(graph.configurable),
    }  # fmt: skip
    if json:
        print_json({**found, "unknown_opcodes": graph.unknown_opcodes})
    else:
        print_table(tuple(found), [tuple(found.values())], right=tuple(found)[1:])
