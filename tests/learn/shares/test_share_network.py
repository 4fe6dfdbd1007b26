"""The thesis' networks answered by NumPy: the numbers that torch gives, in little time, from the command line too."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.advise.predictor import predict
from apportion.data.scaling import Standard
from apportion.errors import InvalidSetting
from apportion.learn.base import open_predictor
from apportion.learn.shares.kernel_model import ConformalScores, Familiarity
from apportion.learn.shares.kernel_query import KernelQuery
from apportion.learn.shares.share_network import ShareNetwork
from apportion.program.llvm import graph_of_ir
from apportion.program.source import Source
from apportion.weights import manifest

SHIPPED = [one.name for one in manifest().models if one.predictor == "share-network"]
KERNEL = """
declare i64 @_Z13get_global_idj(i32)
define void @scale(float* %x, i32 %n) {
entry:
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, float* %x, i64 %i
  %v = load float, float* %p
  %c = fcmp ogt float %v, 0.0
  br i1 %c, label %loop, label %done
loop:
  %k = phi i32 [ 0, %entry ], [ %k1, %loop ]
  %k1 = add i32 %k, 1
  %w = fmul float %v, 2.0
  store float %w, float* %p
  %e = icmp slt i32 %k1, %n
  br i1 %e, label %loop, label %done
done:
  ret void
}
"""


def test_the_papers_networks_are_shipped_and_small() -> None:
    assert {"gnn-load-balance", "gnn-load-balance-classes", "gnn-device-mapping"} <= set(SHIPPED)
    for name in SHIPPED:
        assert manifest().called(name).size < 5 << 20


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_network_answers_a_median_kernel_within_five_milliseconds(name: str) -> None:
    network = open_predictor(name, "shares")
    # 242 nodes is the median of CGO17: some dozen copies of the body do.
    body = KERNEL.split("entry:")[1]
    copies = "".join(f"define void @f{n}(float* %x, i32 %n) {{\nentry:{body}" for n in range(11))
    graph = graph_of_ir("declare i64 @_Z13get_global_idj(i32)\n" + copies)
    assert 200 < graph.nodes < 320
    query = KernelQuery(graph, 1 << 20, 64)
    network.answer([query])
    spent = []
    for _ in range(9):
        began = time.process_time()
        network.answer([query])
        spent.append(time.process_time() - began)
    assert min(spent) < 5e-3


def test_equal_functions_cost_what_one_does() -> None:
    network = open_predictor("gnn-load-balance", "shares")
    one = KernelQuery(graph_of_ir(KERNEL), 1 << 20, 64)
    (first,), (second,) = network.answer([one]), network.answer([one])
    assert vars(first) == vars(second)


ROWS: list[dict[str, Any]] = [
    {},
    {"pooling": "skips", "readout": "plain", "both_ways": True},
    {"layers": "none", "pooling": "mean", "readout": "plain"},
    {"layers": "convolution", "pooling": "mean", "readout": "plain"},
    {"layers": "attention", "pooling": "mean", "readout": "plain"},
    {"pooling": "mean", "readout": "plain"},
    {"pooling": "gated-sum", "readout": "plain"},
    {"pooling": "clusters"},
    {"pooling": "learned-clusters"},
    {"pooling": "top-k"},
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_row_of_the_ablation_says_in_numpy_what_it_says_in_torch(
    row: dict[str, Any], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from apportion.data.batch import Graph
    from apportion.learn.shares.colours import GraphSet
    from apportion.learn.shares.kernel_network import RowInputs
    from apportion.learn.shares.network_settings import KernelNetworkSettings, KernelRows
    from apportion.learn.shares.share_network_learner import network_arrays
    from apportion.learn.shares.stacks import Workshop, network_for
    from apportion.program.vocabulary import Vocabulary

    graphs = [graph_of_ir(KERNEL), graph_of_ir(KERNEL.replace("fmul", "fadd").replace("2.0", "3.0"))]
    texts = tuple(sorted({text for graph in graphs for text in graph.texts()} - {"fadd", "i32"}))
    vocabulary = Vocabulary.numbered(texts)
    read = [
        Graph(vocabulary.ids(g).astype(np.int32), g.edges, g.edge_flow, g.edge_position.astype(np.int32))
        for g in graphs
    ]
    settings = KernelNetworkSettings(hidden=8, steps=4, **row)
    inputs = np.log1p(np.array([[64, 4096], [256, 1 << 20], [1, 0]])).astype(np.float32)
    rows = KernelRows(GraphSet.of(read), np.array([0, 1, 1]), inputs, np.arange(3, dtype=np.float32))
    workshop = Workshop(rows.graphs, rows.graph, "cpu")
    network = network_for(workshop, rows, settings, [3, 4]).eval()
    network.norm.mean += 0.3
    network.norm.variance *= 2.0
    place, plans = workshop.plans(np.arange(3), settings, "colours", 2)
    given = RowInputs(
        torch.from_numpy(np.stack([place[rows.graph], place[rows.graph] + plans.graphs])),
        torch.from_numpy(np.stack([inputs, inputs])), torch.ones(2, 3, 1),
    )  # fmt: skip
    with torch.no_grad():
        wanted = network(plans, given)[0].numpy()
    order, arrays = network_arrays(network, np.unique(rows.graphs.text), len(texts))
    known = Familiarity(Standard(np.zeros(1), np.ones(1)), np.zeros((1, 1)), np.zeros(1))
    ShareNetwork(
        "mine", "regression", settings, tuple(texts[number] for number in order), arrays,
        ConformalScores(np.ones(2), np.ones(2)), known, {},
    ).save(tmp_path)  # fmt: skip
    ours = ShareNetwork.load(tmp_path)
    queries = [
        KernelQuery(graphs[number], size, group)
        for number, (group, size) in zip((0, 1, 1), ((64, 4096), (256, 1 << 20), (1, 0)), strict=True)
    ]
    np.testing.assert_allclose(ours.scores(queries), wanted, atol=1e-5)


def test_predict_asks_a_network_by_its_name() -> None:
    source = Source(KERNEL, "llvm", "scale.ll")
    found = predict(source, local_size=64, bytes=1 << 22, model="gnn-load-balance-classes")
    assert found.model == "gnn-load-balance-classes"
    assert found.share_class in (0, 25, 50, 75, 100)
    assert found.interval[0] <= found.cpu_share <= found.interval[1]
    mapped = predict(source, local_size=64, bytes=1 << 22, model="gnn-device-mapping", task="device-mapping")
    assert mapped.cpu_share in (0.0, 1.0)
    # Its errors are too many for nine in ten: either device may be the faster one.
    assert mapped.interval == (0.0, 1.0)
    assert mapped.chance in (0.7254, 0.7948)
    assert "for which gnn-device-mapping named the" in mapped.warnings[-1]
    assert f"{mapped.chance:.0%} were faster there, so an interval of 90% holds both" in mapped.warnings[-1]
    assert mapped.as_json()["chance"] == mapped.chance
    assert found.chance is None
    with pytest.raises(InvalidSetting, match="which NumPy alone evaluates"):
        predict(source, local_size=64, bytes=1 << 22, model="gnn-load-balance", engine="onnx")


def test_a_network_needs_the_graph_and_says_so() -> None:
    network = open_predictor("gnn-load-balance", "shares")
    with pytest.raises(InvalidSetting, match="reads program graphs"):
        network.answer([KernelQuery(None, 4096, 64, known_code=np.zeros(138))])
