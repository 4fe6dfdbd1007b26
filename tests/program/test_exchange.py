from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import MalformedInput, UnreadableFile
from apportion.program.exchange import (
    from_json,
    from_networkx,
    json_text,
    load_json,
    load_npz,
    replace_file,
    save_json,
    save_npz,
    to_hetero,
    to_json,
    to_networkx,
)
from apportion.program.graph import ProgramGraph
from apportion.program.vocabulary import Vocabulary

TWICE = {
    "nodes": [
        [0, "[external]", 0, 0, None],
        [0, "add", 0, 0, "%b = add i32 %a, %a"],
        [0, "ret", 0, 0, "ret i32 %b"],
        [1, "i32", 0, 0, "i32 %b"],
        [1, "i32", 0, 1, "i32 %a"],
    ],
    "edges": [
        [0, 0, 1, 2],
        [1, 0, 1, 3],
        [1, 0, 3, 2],
        [1, 0, 4, 1],
        [1, 1, 4, 1],
        [2, 0, 0, 1],
        [2, 0, 2, 0],
    ],
    "functions": [["twice", {}]],
    "module": [["twice.c", {"llvm_target_triple": "spir64-unknown-unknown"}]],
}

# torch_geometric, when it is first imported, still calls what torch calls outdated.
imports_torch_geometric = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_json_is_the_reference_format(twice: ProgramGraph) -> None:
    assert to_json(twice) == TWICE
    assert json.loads(json_text(twice)) == TWICE
    assert "\n" not in json_text(twice)


def test_json_is_read_into_the_same_graph(twice: ProgramGraph) -> None:
    assert from_json(TWICE) == twice


def test_node_features_are_there_only_when_a_node_has_some() -> None:
    weighted = TWICE | {"node_features": {"1": {"llvm_profile_total_weight": 3}}}
    graph = from_json(weighted)
    assert graph.node_features == {1: {"llvm_profile_total_weight": 3}}
    assert to_json(graph) == weighted


def test_keys_that_are_not_known_are_passed_over(twice: ProgramGraph) -> None:
    assert from_json({"name": "000", **TWICE}) == twice


@given(data=st.data())
def test_any_graph_survives_json(data: st.DataObject, program_graphs: Any) -> None:
    graph = data.draw(program_graphs)
    text = json_text(graph)
    assert text.isascii()
    assert from_json(json.loads(text)) == graph


@given(data=st.data())
def test_any_graph_survives_files(
    data: st.DataObject, program_graphs: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = data.draw(program_graphs)
    folder = tmp_path_factory.getbasetemp()
    save_json(graph, folder / "graph.json")
    assert load_json(folder / "graph.json") == graph
    save_npz(graph, folder / "graph.npz")
    assert load_npz(folder / "graph.npz") == graph


@given(data=st.data())
def test_any_graph_survives_networkx(data: st.DataObject, program_graphs: Any) -> None:
    graph = data.draw(program_graphs)
    assert from_networkx(to_networkx(graph)) == graph


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (7, "A graph is a JSON object, not 7"),
        ([], "A graph is a JSON object, not a list"),
        ({"nodes": None}, "'nodes' must be a list, but it is null"),
        ({"functions": {}}, "'functions' must be a list, but it is an object"),
        ({"nodes": [[0, "add", 0, 0]]}, "nodes[0] must be a list of 5 values, not 4 values"),
        ({"nodes": [TWICE["nodes"][0], "add"]}, "nodes[1] must be a list of 5 values, not a string"),
        ({"nodes": [[4, "add", 0, 0, ""]]}, "nodes[0]: its type is 4, not a number from 0 to 3"),
        ({"nodes": [[True, "add", 0, 0, ""]]}, "nodes[0]: its type is True, not a number from 0 to 3"),
        ({"nodes": [[0, None, 0, 0, ""]]}, "nodes[0]: its text is null, not a string"),
        ({"nodes": [[0, "add", 0, 0, 5]]}, "nodes[0]: its full_text is 5, not a string"),
        ({"nodes": [[0, "add", 1, 0, ""]]}, "nodes[0]: its function is 1, not a number from 0 to 0"),
        ({"nodes": [[0, "add", 0, -1, ""]]}, "nodes[0]: its block is -1, not a number from 0 to 2147483647"),
        ({"nodes": [[0, "add", 0, 2**31, ""]]}, "nodes[0]: its block is 2147483648, not a number from 0"),
        ({"nodes": [[0, "add", 0, 0.5, ""]]}, "nodes[0]: its block is 0.5, not a number from 0"),
        ({"nodes": [[0, "\ud800", 0, 0, ""]], "edges": []}, "holds half a surrogate pair"),
        ({"edges": [[0, 0, 0, 1], [0, 0, 0, 5]]}, "edges[1]: its target is 5, not a number from 0 to 4"),
        ({"edges": [[9, 0, 0, 1]]}, "edges[0]: its flow is 9, not a number from 0 to 3"),
        ({"nodes": []}, "edges[0]: its source is 1, but there are no nodes"),
        ({"functions": [["f"]]}, "functions[0] must be [name, {features}]"),
        ({"module": ["m"]}, "module[0] must be [name, {features}]"),
        ({"node_features": []}, "'node_features' must be an object, not a list"),
        ({"node_features": {"5": {}}}, "node_features['5'] must be an object under a node's number"),
        ({"node_features": {"one": {}}}, "node_features['one'] must be an object under a node's number"),
    ],
)
def test_a_malformed_object_says_what_is_wrong(change: Any, message: str) -> None:
    data = TWICE | change if isinstance(change, dict) else change
    with pytest.raises(MalformedInput) as caught:
        from_json(data, name="g.json")
    assert str(caught.value).startswith("g.json: ")
    assert message in str(caught.value)


def test_the_first_wrong_row_is_named_among_many() -> None:
    nodes = [[0, "add", 0, 0, ""] for _ in range(40)]
    nodes[17] = [0, "add", 3, 0, ""]
    with pytest.raises(MalformedInput, match=r"nodes\[17\]: its function is 3"):
        from_json({"nodes": nodes, "edges": [], "functions": [], "module": []})


def test_a_missing_key_is_named() -> None:
    with pytest.raises(MalformedInput, match="'edges' must be a list, but it is missing"):
        from_json({"nodes": []})


def test_text_that_is_not_json_gives_its_line(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text('{"nodes": [],\n "edges": [}')
    with pytest.raises(MalformedInput, match=r"graph.json:2:12: Not JSON"):
        load_json(path)
    path.write_text("[" * 100_000)
    with pytest.raises(MalformedInput, match="Not JSON"):
        load_json(path)


@pytest.mark.parametrize("load", [load_json, load_npz])
def test_a_file_that_is_not_there_is_unreadable(load: Any, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="No such file"):
        load(tmp_path / "nothing")


def test_an_npz_file_never_holds_a_pickle(twice: ProgramGraph, tmp_path: Path) -> None:
    save_npz(twice, tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype.kind in "iu" for name in archive.files)
    np.savez(tmp_path / "evil.npz", version=np.array([{"pickled": True}], dtype=object))
    with pytest.raises(MalformedInput, match="Not an NPZ file of plain arrays"):
        load_npz(tmp_path / "evil.npz")


def test_a_damaged_npz_file_is_malformed_whatever_is_wrong_with_it(
    twice: ProgramGraph, tmp_path: Path
) -> None:
    path = tmp_path / "graph.npz"
    save_npz(twice, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(MalformedInput):
            load_npz(path)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(MalformedInput, match="Not an NPZ file"):
        load_npz(tmp_path / "one.npy")


def test_an_npz_file_of_something_else_says_so(twice: ProgramGraph, tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, x=np.zeros(3))
    with pytest.raises(MalformedInput, match=r"the arrays edge_flow, .* are missing"):
        load_npz(path)
    save_npz(twice, path)
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **(arrays | {"version": np.array(2)}))
    with pytest.raises(MalformedInput, match="Graph format 2, but this apportion reads format 1"):
        load_npz(path)
    np.savez(path, **(arrays | {"edges": arrays["edges"] + 100}))
    with pytest.raises(MalformedInput, match="edges must hold numbers from 0 to 4"):
        load_npz(path)
    np.savez(path, **(arrays | {"node_block": arrays["node_block"].astype(float)}))
    with pytest.raises(MalformedInput, match="node_block must hold int32, not float64"):
        load_npz(path)


def test_networkx_keeps_parallel_edges(twice: ProgramGraph) -> None:
    graph = to_networkx(twice)
    assert isinstance(graph, networkx.MultiDiGraph)
    assert graph.number_of_edges() == 7
    assert sorted(attributes["position"] for attributes in graph.get_edge_data(4, 1).values()) == [0, 1]


def test_every_node_and_edge_of_networkx_has_the_same_attributes(twice: ProgramGraph) -> None:
    graph = to_networkx(twice)
    attributes = {"type", "text", "function", "block", "full_text", "features"}
    assert all(set(found) == attributes for _, found in graph.nodes(data=True))
    assert all(set(found) == {"flow", "position"} for *_, found in graph.edges(data=True))


def test_a_subgraph_of_networkx_closes_its_gaps(twice: ProgramGraph) -> None:
    part = from_networkx(to_networkx(twice).subgraph([1, 2, 3]))
    assert part.texts() == ["add", "ret", "i32"]
    assert part.edges.tolist() == [[0, 0, 2], [1, 2, 1]]


def test_a_networkx_graph_from_elsewhere_is_refused() -> None:
    with pytest.raises(MalformedInput, match="has no attribute 'type'"):
        from_networkx(networkx.MultiDiGraph([(0, 1)]))


@imports_torch_geometric
def test_hetero_data_is_that_of_the_thesis(twice: ProgramGraph) -> None:
    vocabulary = Vocabulary(("i32", "add"), (2, 1), (0.6, 1.0))
    data = to_hetero(twice, vocabulary)
    assert data.node_types == ["nodes"]
    assert data["nodes"].x.tolist() == [2, 1, 2, 0, 0]
    assert data.edge_types == [("nodes", flow, "nodes") for flow in ("control", "data", "call")]
    assert data["nodes", "data", "nodes"].edge_index.tolist() == [[1, 3, 4, 4], [3, 2, 1, 1]]
    assert data["nodes", "data", "nodes"].edge_attr.tolist() == [0, 0, 0, 1]
    assert data["nodes", "control", "nodes"].edge_attr.tolist() == [0]
    assert data.validate()


@imports_torch_geometric
def test_hetero_data_has_every_flow_even_when_no_edge_has_it() -> None:
    graph = from_json({"nodes": [[0, "ret", 0, 0, ""]], "edges": [], "functions": [["f", {}]], "module": []})
    data = to_hetero(graph, Vocabulary((), (), ()))
    assert data["nodes", "call", "nodes"].edge_index.shape == (2, 0)
    assert ("nodes", "type", "nodes") not in data.edge_types


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    replace_file(tmp_path / "new" / "file", b"one")
    replace_file(tmp_path / "new" / "file", b"two")
    assert (tmp_path / "new" / "file").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    with pytest.raises(UnreadableFile, match="Cannot write"):
        replace_file(tmp_path / "new" / "file" / "below", b"three")


@pytest.mark.parametrize("name", ["corner", "cgo17_spir64_O3"])
def test_the_reference_graphs_survive_every_form(name: str, shared_data: Path, tmp_path: Path) -> None:
    with gzip.open(shared_data / "programl-oracle" / f"{name}.graphs.jsonl.gz") as lines:
        for number, line in enumerate(lines):
            data = json.loads(line)
            del data["name"]
            graph = from_json(data)
            assert to_json(graph) == data
            if number % 10 == 0:
                save_npz(graph, tmp_path / "graph.npz")
                assert load_npz(tmp_path / "graph.npz") == graph
                assert from_networkx(to_networkx(graph)) == graph
