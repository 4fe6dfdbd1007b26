"""Program graphs in other people's forms: JSON, NPZ, NetworkX and PyTorch Geometric.

JSON is the format of the reference implementation:

    {"nodes": [[type, text, function, block, full_text], …], "edges": [[flow, position, source, target], …],
     "functions": [[name, {features}], …], "module": [[name, {features}]], "node_features": {"17": {…}}}

`full_text` is null where a node has none, and `node_features` is there only when a node has any. Node
numbers are positions in `nodes`, and every form keeps them. JSON, NPZ and NetworkX give back the same graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidGraph, MalformedInput, MissingPackage, UnreadableFile
from apportion.program.graph import NO_TEXT, Flow, Function, Module, NodeType, ProgramGraph, StringTable
from apportion.program.vocabulary import Vocabulary
from apportion.settings import replace_file

if TYPE_CHECKING:
    from networkx import MultiDiGraph
    from torch_geometric.data import HeteroData

NPZ_VERSION = 1
"Written into every NPZ file; a file of another version is refused."

_ARRAYS = (
    "node_type", "node_text", "node_full_text", "node_function", "node_block",
    "edge_flow", "edge_position", "edges",
)  # fmt: skip
_LARGEST = int(np.iinfo(np.int32).max)


def to_json(graph: ProgramGraph) -> dict[str, Any]:
    """The graph as an object of the reference format, ready for `json.dumps`."""
    nodes = zip(
        graph.node_type.tolist(), graph.texts(), graph.node_function.tolist(), graph.node_block.tolist(),
        graph.full_texts(), strict=True,
    )  # fmt: skip
    edges = np.vstack([graph.edge_flow, graph.edge_position, graph.edges]).T.tolist()
    return {"nodes": [list(node) for node in nodes], "edges": edges} | _records(graph)


def json_text(graph: ProgramGraph) -> str:
    """The graph as one line of JSON, in ASCII; bytes that are not UTF-8 appear as `\\udc80` to `\\udcff`."""
    return json.dumps(to_json(graph))


def from_json(data: object, *, name: str = "<input>") -> ProgramGraph:
    """The graph that an object of the reference format describes; keys it does not know are passed over.

    Args:
        data: what `json.loads` gave.
        name: where it came from, for messages.

    Raises:
        MalformedInput: something is missing or wrong; the message names it, as in `nodes[17]`.
    """
    if not isinstance(data, Mapping):
        raise MalformedInput(f"A graph is a JSON object, not {_kind(data)}", file=name)
    for key in ("nodes", "edges", "functions", "module"):
        if not isinstance(data.get(key), list):
            found = _kind(data[key]) if key in data else "missing"
            raise MalformedInput(f"{key!r} must be a list, but it is {found}", file=name)
    functions = [Function(*record) for record in _named(data["functions"], "functions", name)]
    modules = [Module(*record) for record in _named(data["module"], "module", name)]

    kinds, texts, function_numbers, blocks, full_texts = _columns(data["nodes"], "nodes", 5, name)
    flows, positions, sources, targets = _columns(data["edges"], "edges", 4, name)
    _strings(texts, {str}, "nodes", "text", name)
    _strings(full_texts, {str, type(None)}, "nodes", "full_text", name)
    count = len(kinds)
    distinct = [text for text in dict.fromkeys(chain(texts, full_texts)) if text is not None]
    table = {text: number for number, text in enumerate(distinct)} | {None: NO_TEXT}
    return ProgramGraph(
        node_type=_integers(kinds, "nodes", "type", len(NodeType), name).astype(np.uint8),
        node_text=np.fromiter(map(table.__getitem__, texts), np.int32, count),
        node_full_text=np.fromiter(map(table.__getitem__, full_texts), np.int32, count),
        node_function=_integers(function_numbers, "nodes", "function", max(len(functions), 1), name),
        node_block=_integers(blocks, "nodes", "block", None, name),
        edge_flow=_integers(flows, "edges", "flow", len(Flow), name).astype(np.uint8),
        edge_position=_integers(positions, "edges", "position", None, name),
        edges=np.vstack(
            [
                _integers(sources, "edges", "source", count, name),
                _integers(targets, "edges", "target", count, name),
            ]
        ),
        strings=_table(distinct, name),
        functions=tuple(functions),
        modules=tuple(modules),
        node_features=_node_features(data.get("node_features", {}), count, name),
    )


def save_json(graph: ProgramGraph, path: Path) -> None:
    """Write the graph in the reference format."""
    replace_file(path, (json_text(graph) + "\n").encode("ascii"))


def load_json(path: Path) -> ProgramGraph:
    """The graph in a file of the reference format.

    Raises:
        UnreadableFile: the file is not there.
        MalformedInput: it is not JSON (with line and column), or not a graph.
    """
    try:
        data = json.loads(_contents(path))
    except json.JSONDecodeError as error:
        raise MalformedInput(
            f"Not JSON: {error.msg}", file=str(path), line=error.lineno, column=error.colno
        ) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise MalformedInput(f"Not JSON: {error}", file=str(path)) from error
    return from_json(data, name=str(path))


def save_npz(graph: ProgramGraph, path: Path) -> None:
    """Write the graph as compressed NumPy arrays; the rest is JSON in bytes. Nothing is pickled."""
    buffer = BytesIO()
    np.savez_compressed(
        buffer,
        version=np.array(NPZ_VERSION),
        strings_data=graph.strings.data,
        strings_offsets=graph.strings.offsets,
        records=np.frombuffer(json.dumps(_records(graph)).encode("ascii"), np.uint8),
        **{array: getattr(graph, array) for array in _ARRAYS},
    )
    replace_file(path, buffer.getvalue())


def load_npz(path: Path) -> ProgramGraph:
    """The graph in a file that `save_npz` wrote.

    Raises:
        UnreadableFile: the file is not there.
        MalformedInput: it is not an NPZ file, lacks an array, or its arrays are not a graph.
    """
    contents = BytesIO(_contents(path))
    try:
        with np.load(contents, allow_pickle=False) as archive:
            held = {array: archive[array] for array in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds over damaged files
        raise MalformedInput(f"Not an NPZ file of plain arrays: {error}", file=str(path)) from error
    wanted = {"version", "strings_data", "strings_offsets", "records", *_ARRAYS}
    if missing := sorted(wanted - set(held)):
        raise MalformedInput(f"No program graph: the arrays {', '.join(missing)} are missing", file=str(path))
    if held["version"].shape or held["version"] != NPZ_VERSION:
        raise MalformedInput(
            f"Graph format {held['version']}, but this apportion reads format {NPZ_VERSION}", file=str(path)
        )
    try:
        records = json.loads(held["records"].tobytes())
        return graph_of_arrays(
            {array: held[array] for array in _ARRAYS},
            StringTable(held["strings_data"], held["strings_offsets"]),
            records,
            name=str(path),
        )
    except (InvalidGraph, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise MalformedInput(f"No program graph: {error}", file=str(path)) from error


def graph_of_arrays(
    arrays: Mapping[str, NDArray[Any]], strings: StringTable, records: object, *, name: str
) -> ProgramGraph:
    """The graph of its arrays and of the object that holds the rest: functions, module, node_features."""
    if not isinstance(records, dict):
        raise MalformedInput(f"The records are {_kind(records)}, not an object", file=name)
    return ProgramGraph(
        **arrays,
        strings=strings,
        functions=tuple(Function(*record) for record in _named(records.get("functions"), "functions", name)),
        modules=tuple(Module(*record) for record in _named(records.get("module"), "module", name)),
        node_features=_node_features(records.get("node_features", {}), len(arrays["node_type"]), name),
    )


def records_of(graph: ProgramGraph) -> str:
    """What a graph holds beside its arrays and strings, as JSON: the third argument of `graph_of_arrays`."""
    return json.dumps(_records(graph))


def to_networkx(graph: ProgramGraph) -> MultiDiGraph:
    """The graph as a NetworkX `MultiDiGraph`, parallel edges kept.

    Every node has the attributes type, text, function, block, full_text and features; every edge has flow and
    position, and its number as key. `graph.graph` holds functions and module as in JSON.
    """
    try:
        from networkx import MultiDiGraph
    except ImportError as error:
        raise MissingPackage("networkx", "networkx", "A NetworkX graph") from error
    data = to_json(graph)
    result = MultiDiGraph(functions=data["functions"], module=data["module"])
    result.add_nodes_from(
        (
            number,
            {
                "type": kind, "text": text, "function": function, "block": block, "full_text": full_text,
                "features": dict(graph.node_features.get(number, {})),
            },
        )
        for number, (kind, text, function, block, full_text) in enumerate(data["nodes"])
    )  # fmt: skip
    result.add_edges_from(
        (source, target, number, {"flow": flow, "position": position})
        for number, (flow, position, source, target) in enumerate(data["edges"])
    )
    return result


def from_networkx(graph: MultiDiGraph) -> ProgramGraph:
    """The program graph of a NetworkX graph with the attributes that `to_networkx` gives.

    Nodes are numbered in ascending order of their labels where these are integers (so a subgraph closes its
    gaps), else in the graph's own order. Edges stand in the order of their keys where these number them.

    Raises:
        MalformedInput: an attribute is missing or impossible.
    """
    labels = list(graph)
    if all(type(label) is int for label in labels):
        labels.sort()
    numbers = {label: number for number, label in enumerate(labels)}
    links = list(graph.edges(keys=True, data=True))
    if all(type(key) is int for _, _, key, _ in links) and len({key for _, _, key, _ in links}) == len(links):
        links.sort(key=lambda link: link[2])
    name = "NetworkX graph"
    try:
        nodes = [
            [attributes[key] for key in ("type", "text", "function", "block", "full_text")]
            for attributes in (graph.nodes[label] for label in labels)
        ]
        edges = [
            [attributes["flow"], attributes["position"], numbers[source], numbers[target]]
            for source, target, _, attributes in links
        ]
    except KeyError as error:
        raise MalformedInput(f"A node or an edge has no attribute {error}", file=name) from error
    features = {
        str(numbers[label]): found for label in labels if (found := graph.nodes[label].get("features"))
    }
    data = {
        "nodes": nodes,
        "edges": edges,
        "functions": graph.graph.get("functions"),
        "module": graph.graph.get("module"),
        "node_features": features,
    }
    return from_json(data, name=name)


def to_hetero(graph: ProgramGraph, vocabulary: Vocabulary) -> HeteroData:
    """The graph for PyTorch Geometric, as in the thesis' Figure 4.2: one node type and one relation per flow.

    `data["nodes"].x` holds vocabulary numbers; `data["nodes", "control", "nodes"]`, likewise data and call
    (type only in graphs with type nodes), holds `edge_index` and `edge_attr`, the positions. What a task adds
    (`y`, `selector_ids`, `wgsizes`, `transfer_bytes`) is the task's to set.
    """
    try:
        import torch
        from torch_geometric.data import HeteroData
    except ImportError as error:
        raise MissingPackage("torch_geometric", "pyg", "A HeteroData graph") from error
    data = HeteroData()
    data["nodes"].x = torch.from_numpy(vocabulary.ids(graph).astype(np.int64))
    for flow in Flow:
        chosen = graph.edge_flow == flow
        if flow is Flow.TYPE and not chosen.any():
            continue
        relation = data["nodes", flow.name.lower(), "nodes"]
        relation.edge_index = torch.from_numpy(graph.edges[:, chosen].astype(np.int64))
        relation.edge_attr = torch.from_numpy(graph.edge_position[chosen].astype(np.int64))
    return data


def _records(graph: ProgramGraph) -> dict[str, Any]:
    """What is neither a node nor an edge."""
    records: dict[str, Any] = {
        "functions": [[function.name, dict(function.features)] for function in graph.functions],
        "module": [[module.name, dict(module.features)] for module in graph.modules],
    }
    if graph.node_features:
        records["node_features"] = {
            str(node): dict(features) for node, features in sorted(graph.node_features.items())
        }
    return records


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror or error}") from error


# The checks below look at whole columns at C speed, and go looking for the row only when one is wrong.


def _columns(rows: list[Any], place: str, width: int, name: str) -> Sequence[Sequence[Any]]:
    if not {type(row) for row in rows} <= {list, tuple} or not {len(row) for row in rows} <= {width}:
        bad = next(i for i, row in enumerate(rows) if not isinstance(row, list | tuple) or len(row) != width)
        found = f"{len(rows[bad])} values" if isinstance(rows[bad], list | tuple) else _kind(rows[bad])
        raise MalformedInput(f"{place}[{bad}] must be a list of {width} values, not {found}", file=name)
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _integers(column: Sequence[Any], place: str, field: str, end: int | None, name: str) -> NDArray[np.int32]:
    largest = _LARGEST if end is None else end - 1
    bad = None
    if not set(map(type, column)) <= {int}:
        bad = next(i for i, value in enumerate(column) if type(value) is not int)
    elif column and not 0 <= min(column) <= max(column) <= largest:
        bad = next(i for i, value in enumerate(column) if not 0 <= value <= largest)
    if bad is not None:
        wanted = f"not a number from 0 to {largest}" if end != 0 else "but there are no nodes"
        raise MalformedInput(f"{place}[{bad}]: its {field} is {column[bad]!r}, {wanted}", file=name)
    return np.array(column, np.int32)


def _strings(column: Sequence[Any], kinds: set[type], place: str, field: str, name: str) -> None:
    if not set(map(type, column)) <= kinds:
        bad = next(i for i, value in enumerate(column) if type(value) not in kinds)
        raise MalformedInput(f"{place}[{bad}]: its {field} is {_kind(column[bad])}, not a string", file=name)


def _table(texts: list[str], name: str) -> StringTable:
    try:
        return StringTable.of(texts)
    except UnicodeEncodeError as error:
        raise MalformedInput(f"The text {error.object!r} holds half a surrogate pair", file=name) from error


def _named(rows: object, place: str, name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    if not isinstance(rows, list):
        raise MalformedInput(f"{place!r} must be a list, but it is {_kind(rows)}", file=name)
    for number, row in enumerate(rows):
        match row:
            case [str(title), dict(features)]:
                yield title, features
            case _:
                raise MalformedInput(f"{place}[{number}] must be [name, {{features}}]", file=name)


def _node_features(data: object, count: int, name: str) -> dict[int, dict[str, Any]]:
    if not isinstance(data, dict):
        raise MalformedInput(f"'node_features' must be an object, not {_kind(data)}", file=name)
    for key, features in data.items():
        known = isinstance(key, str) and key.isascii() and key.isdecimal() and int(key) < count
        if not known or not isinstance(features, dict):
            raise MalformedInput(f"node_features[{key!r}] must be an object under a node's number", file=name)
    return {int(node): features for node, features in data.items()}


def _kind(value: object) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), f"{value!r}")
