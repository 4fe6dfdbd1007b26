import os
from pathlib import Path

import numpy as np
import pytest

from apportion.data.columns import SPLITS
from apportion.data.published import datasets, deepdataflow
from apportion.errors import MalformedInput, UnreadableFile
from apportion.program import wire
from apportion.program.analysis import analyses, eligible_roots, run
from apportion.program.graph import ProgramGraph
from apportion.program.llvm import graph_of_ir

PROGRAM = """define i32 @sum(i32* %p, i32 %n) {
entry:
  %positive = icmp sgt i32 %n, 0
  br i1 %positive, label %loop, label %done, !prof !0
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %total = phi i32 [ 0, %entry ], [ %more, %loop ]
  %place = getelementptr i32, i32* %p, i32 %i
  %value = load i32, i32* %place
  %twice = shl i32 %n, 1
  %again2 = shl i32 %n, 1
  %more = add i32 %total, %value
  %next = add i32 %i, 1
  %again = icmp slt i32 %next, %n
  br i1 %again, label %loop, label %done
done:
  %result = phi i32 [ 0, %entry ], [ %more, %loop ]
  ret i32 %result
}

!0 = !{!"branch_weights", i32 7, i32 300}
"""


def published(folder: Path, programs: dict[str, tuple[str, ProgramGraph]]) -> Path:
    """A folder in the published layout: name → side of the split and graph."""
    for name in ("graphs", *SPLITS, *(f"labels/{kind}" for kind in deepdataflow.FOLDERS.values())):
        (folder / name).mkdir(parents=True)
    for name, (side, graph) in programs.items():
        file = f"{name}{deepdataflow.GRAPH_END}"
        deepdataflow.write_graph(folder / "graphs" / file, graph)
        os.symlink(f"../graphs/{file}", folder / side / file)
        for task, kind in deepdataflow.FOLDERS.items():
            roots = eligible_roots(graph, task, "reference")[:3]
            runs = run(graph, task, roots, "reference")
            deepdataflow.write_labels(folder / "labels" / kind / f"{name}{deepdataflow.LABELS_END}", runs)
    return folder


def chain(length: int) -> ProgramGraph:
    lines = [f"  %v{i} = add i32 %v{i - 1}, {i}" for i in range(1, length + 1)]
    return graph_of_ir("\n".join(["define i32 @f(i32 %v0) {", *lines, f"  ret i32 %v{length}", "}"]))


def test_a_graph_survives_being_written_and_read(tmp_path):
    graph = graph_of_ir(PROGRAM)
    assert graph.node_features
    deepdataflow.write_graph(tmp_path / "x.pb", graph)
    assert deepdataflow.read_graph(tmp_path / "x.pb") == graph


@pytest.mark.parametrize("task", analyses)
def test_labels_survive_being_written_and_read(tmp_path, task):
    graph = graph_of_ir(PROGRAM)
    runs = run(graph, task, eligible_roots(graph, task, "reference"), "reference")
    deepdataflow.write_labels(tmp_path / "x.pb", runs)
    read = deepdataflow.read_labels(tmp_path / "x.pb")
    assert [(r.root, r.steps, r.active, r.labels.tolist()) for r in read] == [
        (r.root, r.steps, r.active, r.labels.tolist()) for r in runs
    ]
    assert len(read) > 0


def test_a_graph_written_by_hand_is_read_as_the_format_says(tmp_path):
    # An instruction `br`, a variable `i32` of function 1 and block 2, and a data edge at position 3.
    data = (
        b"\x0a\x04\x12\x02br"
        b"\x0a\x0b\x08\x01\x12\x03i32\x20\x01\x38\x02"
        b"\x12\x06\x08\x01\x10\x03\x18\x01"
        b"\x22\x03\x0a\x01f\x22\x03\x0a\x01g"
        b"\x2a\x03\x0a\x01m"
    )
    (tmp_path / "x.pb").write_bytes(data)
    graph = deepdataflow.read_graph(tmp_path / "x.pb")
    assert graph.texts() == ["br", "i32"]
    assert graph.full_texts() == [None, None]
    assert graph.node_type.tolist() == [0, 1]
    assert (graph.node_function.tolist(), graph.node_block.tolist()) == ([0, 1], [0, 2])
    assert graph.edges.tolist() == [[1], [0]]
    assert (graph.edge_flow.tolist(), graph.edge_position.tolist()) == ([1], [3])
    assert [function.name for function in graph.functions] == ["f", "g"]


def test_the_official_runtime_reads_what_is_written(tmp_path):
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool")
    message_factory = pytest.importorskip("google.protobuf.message_factory")
    file = descriptor_pb2.FileDescriptorProto(name="graph.proto", package="p", syntax="proto3")
    messages = {
        "Node": [("type", 1, 5, None), ("text", 2, 9, None), ("function", 4, 5, None), ("block", 7, 5, None)],
        "Edge": [(name, i, 5, None) for i, name in enumerate(("flow", "position", "source", "target"), 1)],
        "Graph": [("node", 1, 11, ".p.Node"), ("edge", 2, 11, ".p.Edge")],
    }
    for name, content in messages.items():
        added = file.message_type.add(name=name)
        for field, number, kind, type_name in content:
            label = 3 if kind == 11 else 1  # repeated, optional
            added.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    official = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Graph"))()
    graph = graph_of_ir(PROGRAM)
    deepdataflow.write_graph(tmp_path / "x.pb", graph)
    official.ParseFromString((tmp_path / "x.pb").read_bytes())
    assert [node.text for node in official.node] == graph.texts()
    assert [node.type for node in official.node] == graph.node_type.tolist()
    assert [node.block for node in official.node] == graph.node_block.tolist()
    assert [edge.source for edge in official.edge] == graph.edges[0].tolist()
    assert [edge.target for edge in official.edge] == graph.edges[1].tolist()
    assert [edge.position for edge in official.edge] == graph.edge_position.tolist()


def test_integers_are_read_packed_or_not_and_negative():
    packed = wire.message([(3, wire.message([(1, wire.packed([300]))]))])
    plain = wire.message([(3, b"\x08\xac\x02")])
    assert deepdataflow._feature(packed) == deepdataflow._feature(plain) == [300]
    negative = wire.message([(3, wire.message([(1, wire.packed([-5, 7]))]))])
    assert deepdataflow._feature(negative) == [-5, 7]


def test_flags_are_read_the_same_way_quickly_and_one_by_one():
    values = np.array([0, 1, 1, 0])
    quick = wire.flag_bytes(values)
    slow = b"".join(b"\x0a\x04\x1a\x02\x08" + bytes([value]) for value in values)
    assert wire.flags(quick) is not None
    assert wire.flags(slow) is None
    assert deepdataflow._integers(quick).tolist() == deepdataflow._integers(slow).tolist() == [0, 1, 1, 0]


def test_a_published_folder_becomes_a_store_with_its_split(tmp_path):
    programs = {f"poj104.{i}.c": (SPLITS[i % 3], chain(i + 3)) for i in range(9)}
    programs["opencl.k1.cl"] = ("test", graph_of_ir(PROGRAM))
    store = deepdataflow.store_of(published(tmp_path / "ddf", programs), tmp_path / "store")
    assert len(store) == 10
    side = dict(zip(store.names, store.columns["graph_split"].tolist(), strict=True))
    assert side == {
        f"{name.split('.')[0]}/{name}": SPLITS.index(split) for name, (split, _) in programs.items()
    }
    assert store.source_names == ("opencl", "poj104")
    for index in store.instances("dominance", "test", max_steps=None).tolist():
        instance = store.instance(index)
        name = store.names[instance.graph].partition("/")[2]
        (expected,) = run(programs[name][1], "dominance", instance.root, "reference")
        assert instance.labels.tolist() == expected.labels.tolist()
        assert (instance.steps, instance.active) == (expected.steps, expected.active)


def test_a_published_folder_is_read_file_by_file_and_failures_have_reasons(tmp_path):
    folder = published(tmp_path / "ddf", {f"a.{i}.c": ("train", chain(i + 3)) for i in range(3)})
    graph = folder / "graphs" / f"a.1.c{deepdataflow.GRAPH_END}"
    graph.write_bytes(graph.read_bytes()[:-3])
    (folder / "labels" / "domtree" / f"a.2.c{deepdataflow.LABELS_END}").unlink()
    whole, cut, unlabelled = datasets.load("deepdataflow")(folder)
    assert whole.graph is not None
    assert whole.split == "train"
    assert cut.graph is None
    assert "a.1.c.ProgramGraph.pb: Corrupt, or not of this kind: the message ends before" in cut.reason
    assert unlabelled.graph.problems == (("dominance", "there is no label file"),)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_a_label_file_that_was_cut_short_is_named(tmp_path, size):
    graph = graph_of_ir(PROGRAM)
    path = tmp_path / "x.pb"
    deepdataflow.write_labels(path, run(graph, "liveness", eligible_roots(graph, "liveness")[:1]))
    path.write_bytes(path.read_bytes()[:-size])
    with pytest.raises(MalformedInput, match=r"x\.pb: Corrupt"):
        deepdataflow.read_labels(path)


def test_labels_for_another_graph_are_refused(tmp_path):
    folder = published(tmp_path / "ddf", {"a.1.c": ("train", chain(4))})
    graph = chain(5)
    runs = run(graph, "datadep", eligible_roots(graph, "datadep")[:1])
    deepdataflow.write_labels(folder / "labels" / "datadep" / f"a.1.c{deepdataflow.LABELS_END}", runs)
    (result,) = deepdataflow.read(folder)
    assert result.reason.endswith(f"it labels {graph.nodes} nodes of a graph that has {chain(4).nodes}")


def test_an_entry_without_a_root_is_refused(tmp_path):
    graph = chain(3)
    (found,) = run(graph, "datadep", eligible_roots(graph, "datadep")[:1])
    path = tmp_path / "x.pb"
    deepdataflow.write_labels(path, [found])
    path.write_bytes(path.read_bytes().replace(b"data_flow_root_node", b"data_flow_ROOT_node"))
    with pytest.raises(MalformedInput, match="an entry has no feature data_flow_root_node"):
        deepdataflow.read_labels(path)


def test_a_folder_of_another_layout_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match=r"has no graphs/\*\.ProgramGraph\.pb"):
        list(deepdataflow.read(tmp_path))
    with pytest.raises(UnreadableFile, match="Cannot read"):
        deepdataflow.read_graph(tmp_path / "x.pb")
