"""Programs as rows of numbers, by networks that learned data flow: the mean of their nodes' final states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from apportion import weights
from apportion.data.batch import FLOWS, Graph, pack
from apportion.learn.dataflow.programl import NodeNetwork, Programl
from apportion.program.graph import ProgramGraph
from apportion.program.vocabulary import Vocabulary

SHIPPED = weights.WEIGHTS


def embeddings(graphs: Sequence[ProgramGraph], *, analysis: str = "datadep") -> NDArray[np.float64]:
    """(N, 2 H): of each graph, the mean over its nodes of the states before and after all messages.

    The network asks from a root; the root of the program, from which all functions are called, is the one
    node that every graph has.
    """
    model = Programl.load(SHIPPED / f"dataflow-{analysis}")
    network = model.network
    assert isinstance(network, NodeNetwork)
    numbered = Vocabulary.numbered(model.vocabulary)
    rows = []
    for graph in graphs:
        followed = graph.edge_flow < FLOWS  # type edges are no part of what was learnt
        packed = pack(
            [
                Graph(
                    numbered.ids(graph), graph.edges[:, followed], graph.edge_flow[followed],
                    graph.edge_position[followed],
                )
            ]
        )  # fmt: skip
        inputs = model.inputs_of(packed.batch(np.zeros(1, np.int64), np.zeros(1, np.int64)), gradients=False)
        with torch.no_grad():
            initial = network.embedding(inputs.text, inputs.selected)
            final = network.messages(initial, inputs.edges, steps=network.steps)
            rows.append(torch.cat([initial.mean(0), final.mean(0)]).double().numpy())
    return np.stack(rows)
