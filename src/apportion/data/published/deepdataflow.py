"""DeepDataFlow, as published: graphs and labels as protocol buffers, one file each, the split as links.

    graphs/NAME.ProgramGraph.pb                          a ProgramGraph
    labels/ANALYSIS/NAME.ProgramGraphFeaturesList.pb     a ProgramGraphFeaturesList, one entry per root
    train/ val/ test/                                    links to graphs, by name

The format is that of ProGraML's program_graph.proto, util.proto and features.proto.
`docs/howto/dataflow-dataset.md` says how a folder of it becomes a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.assembly import assemble
from apportion.data.columns import SPLITS
from apportion.data.shards import FileResult, LabelledGraph, held, read_keys, write_shards
from apportion.data.store import DataflowStore
from apportion.errors import ApportionError, InvalidGraph, MalformedInput, UnreadableFile
from apportion.program import wire
from apportion.program.analysis import AnalysisRun, analyses
from apportion.program.graph import NO_TEXT, Function, Module, ProgramGraph, StringTable
from apportion.program.vocabulary import Vocabulary
from apportion.settings import replace_file

GRAPH_END, LABELS_END = ".ProgramGraph.pb", ".ProgramGraphFeaturesList.pb"
FOLDERS = {"reachability": "reachability", "dominance": "domtree"} | {name: name for name in analyses[2:]}
"An analysis: what the publication calls its folder."


def read(folder: Path) -> Iterator[FileResult]:
    """Every graph of a folder with its labels; a file that cannot be read is a result with a reason.

    Raises:
        UnreadableFile: the folder has no graphs in this layout.
    """
    paths = sorted((folder / "graphs").glob(f"*{GRAPH_END}"))
    if not paths:
        raise UnreadableFile(f"{folder} has no graphs/*{GRAPH_END}, as the published dataset has")
    for path in paths:
        yield _file(folder, path, _key(path))


def store_of(folder: Path, out: Path, *, vocabulary: Vocabulary | None = None) -> DataflowStore:
    """The published dataset as a store, with the published split; resumes like any build."""
    with held(out) as work:
        known = {key for shard in work.glob("shard-*.npz") for key in read_keys(shard)}
        paths = [(path, _key(path)) for path in sorted((folder / "graphs").glob(f"*{GRAPH_END}"))]
        if not paths:
            raise UnreadableFile(f"{folder} has no graphs/*{GRAPH_END}, as the published dataset has")
        write_shards(work, (_file(folder, path, key) for path, key in paths if key not in known))
        shards = sorted(work.glob("shard-*.npz"))
        wanted = {key for _, key in paths}
        settings = {"published": str(folder)}
        assemble(shards, out, tasks=analyses, seed=0, settings=settings, wanted=wanted, vocabulary=vocabulary)
    return DataflowStore.open(out)


def read_graph(path: Path) -> ProgramGraph:
    """The graph in a ProgramGraph file.

    Raises:
        UnreadableFile: there is no such file.
        MalformedInput: it is cut short, no protocol buffer, or no graph.
    """
    data = _bytes(path)
    try:
        return _graph(data)
    except (MalformedInput, InvalidGraph, UnicodeDecodeError) as error:
        raise _broken(path, error) from error


def write_graph(path: Path, graph: ProgramGraph) -> None:
    """Write a graph as a ProgramGraph file."""
    texts, full_texts = graph.texts(), graph.full_texts()
    parts: list[wire.Field] = []
    for i in range(graph.nodes):
        full_text = full_texts[i]
        features: dict[str, list[Any]] = {} if full_text is None else {"full_text": [_raw_text(full_text)]}
        features |= {name: [value] for name, value in graph.node_features.get(i, {}).items()}
        node: list[wire.Field] = [
            (1, int(graph.node_type[i])), (2, _raw_text(texts[i])),
            (4, int(graph.node_function[i])), (7, int(graph.node_block[i])), (8, _features_bytes(features)),
        ]  # fmt: skip
        parts.append((1, wire.message(node)))
    for flow, position, source, target in zip(
        graph.edge_flow.tolist(), graph.edge_position.tolist(), *graph.edges.tolist(), strict=True
    ):
        parts.append((2, wire.message([(1, flow), (2, position), (3, source), (4, target)])))
    for function in graph.functions:
        named = _features_bytes({name: [value] for name, value in function.features.items()})
        parts.append((4, wire.message([(1, function.name.encode()), (3, named)])))
    for module in graph.modules:
        named = _features_bytes({name: [value] for name, value in module.features.items()})
        parts.append((5, wire.message([(1, module.name.encode()), (2, named)])))
    replace_file(path, wire.message(parts))


def read_labels(path: Path) -> list[AnalysisRun]:
    """The runs in a ProgramGraphFeaturesList file.

    Raises:
        UnreadableFile: there is no such file.
        MalformedInput: it is cut short, no protocol buffer, or an entry lacks a feature.
    """
    data = _bytes(path)
    try:
        fields = list(wire.fields(data))
        return [_run(value) for number, value in fields if number == 2 and isinstance(value, bytes)]
    except (MalformedInput, UnicodeDecodeError) as error:
        raise _broken(path, error) from error


def write_labels(path: Path, runs: Sequence[AnalysisRun]) -> None:
    """Write the runs of one analysis over one graph as a ProgramGraphFeaturesList file."""
    parts: list[wire.Field] = []
    for run in runs:
        root = np.zeros(len(run.labels), np.uint8)
        root[run.root] = 1
        lists = {"data_flow_root_node": root, "data_flow_value": run.labels}
        entries: list[wire.Field] = [
            (1, wire.message([(1, name.encode()), (2, wire.flag_bytes(values))]))
            for name, values in lists.items()
        ]
        counts = {"data_flow_step_count": [run.steps], "data_flow_active_node_count": [run.active]}
        parts.append((2, wire.message([(1, wire.message(entries)), (5, _features_bytes(counts))])))
    replace_file(path, wire.message(parts))


def _file(folder: Path, path: Path, key: str) -> FileResult:
    name = path.name.removesuffix(GRAPH_END)
    corpus = name.split(".", 1)[0]
    split = next((side for side in SPLITS if (folder / side / path.name).exists()), None)
    try:
        return FileResult(key, corpus, name, _labelled(folder, path, name), split=split)
    except ApportionError as error:
        return FileResult(key, corpus, name, reason=str(error), split=split)


def _key(path: Path) -> str:
    return hashlib.sha256(path.name.encode() + b"\0" + path.read_bytes()).hexdigest()


def _labelled(folder: Path, path: Path, name: str) -> LabelledGraph:
    graph = read_graph(path)
    used, node_text = np.unique(graph.node_text, return_inverse=True)
    rows: list[tuple[int, int, int, int]] = []
    labels = [np.zeros((0, (graph.nodes + 7) // 8), np.uint8)]
    problems = []
    for number, task in enumerate(analyses):
        places = [folder / "labels" / kind / f"{name}{LABELS_END}" for kind in (FOLDERS[task], task)]
        place = next((place for place in places if place.exists()), None)
        if place is None:
            problems.append((task, "there is no label file"))
            continue
        for run in read_labels(place):
            if len(run.labels) != graph.nodes:
                problem = f"it labels {len(run.labels)} nodes of a graph that has {graph.nodes}"
                raise MalformedInput(problem, file=str(place))
            rows.append((number, run.root, run.steps, run.active))
            labels.append(np.packbits(run.labels, bitorder="little")[None])
    task_number, root, steps, active = np.array(rows, np.int64).reshape(-1, 4).T
    return LabelledGraph(
        tuple(graph.strings[int(i)] for i in used), node_text.astype(np.int32),
        graph.edges, graph.edge_flow, graph.edge_position,
        task_number.astype(np.uint8), root.astype(np.int32), steps, active,
        np.concatenate(labels), tuple(problems),
    )  # fmt: skip


def _graph(data: bytes) -> ProgramGraph:
    nodes: list[tuple[int, bytes, int, int, Mapping[str, list[Any]]]] = []
    edges: list[tuple[int, int, int, int]] = []
    functions: list[Function] = []
    modules: list[Module] = []
    for number, value in wire.fields(data):
        if not isinstance(value, bytes):
            continue
        inner = dict(wire.fields(value))
        if number == 1:
            features = _features(inner.get(8, b""))
            nodes.append((_int(inner, 1), _raw(inner, 2), _int(inner, 4), _int(inner, 7), features))
        elif number == 2:
            edges.append((_int(inner, 1), _int(inner, 2), _int(inner, 3), _int(inner, 4)))
        elif number == 4:
            functions.append(Function(_text(_raw(inner, 1)), _single(_features(inner.get(3, b"")))))
        elif number == 5:
            modules.append(Module(_text(_raw(inner, 1)), _single(_features(inner.get(2, b"")))))
    strings: dict[str, int] = {}

    def index(raw: bytes) -> int:
        return strings.setdefault(_text(raw), len(strings))

    node_text = [index(node[1]) for node in nodes]
    full_text = [index(node[4]["full_text"][0]) if node[4].get("full_text") else NO_TEXT for node in nodes]
    flow, position, source, target = np.array(edges, np.int64).reshape(-1, 4).T
    others = (
        (i, {name: values for name, values in node[4].items() if name != "full_text"})
        for i, node in enumerate(nodes)
    )
    return ProgramGraph(
        node_type=_small([node[0] for node in nodes], "node type"),
        node_text=np.array(node_text, np.int32),
        node_full_text=np.array(full_text, np.int32),
        node_function=np.array([node[2] for node in nodes], np.int32),
        node_block=np.array([node[3] for node in nodes], np.int32),
        edge_flow=_small(flow, "edge flow"),
        edge_position=position.astype(np.int32),
        edges=np.stack([source, target]).astype(np.int32),
        strings=StringTable.of(list(strings)),
        functions=tuple(functions),
        modules=tuple(modules),
        node_features={i: _single(features) for i, features in others if features},
    )


def _run(data: bytes) -> AnalysisRun:
    lists: dict[str, NDArray[np.int64]] = {}
    counts: Mapping[str, list[Any]] = {}
    for number, value in wire.fields(data):
        if number == 1 and isinstance(value, bytes):
            for _, entry in wire.fields(value):
                inner = dict(wire.fields(entry)) if isinstance(entry, bytes) else {}
                lists[_text(_raw(inner, 1))] = _integers(_raw(inner, 2))
        elif number == 5:
            counts = _features(value)
    wanted = ("data_flow_root_node", "data_flow_value")
    counted = ("data_flow_step_count", "data_flow_active_node_count")
    for name in (*wanted, *counted):
        if name not in lists and not counts.get(name):
            raise MalformedInput(f"an entry has no feature {name}")
    root, labels = (lists[name] for name in wanted)
    if root.sum() != 1 or len(root) != len(labels):
        problem = f"an entry has {root.sum()} roots among {len(root)} nodes, and {len(labels)} labels"
        raise MalformedInput(problem)
    steps, active = (int(counts[name][0]) for name in counted)
    return AnalysisRun(int(root.argmax()), steps, active, labels.astype(np.bool_))


def _integers(data: bytes) -> NDArray[np.int64]:
    """One integer from each feature of a FeatureList."""
    quick = wire.flags(data)
    if quick is not None:
        return quick
    values = [_feature(entry) for _, entry in wire.fields(data) if isinstance(entry, bytes)]
    return np.array([value[0] if value else 0 for value in values], np.int64)


def _features(data: int | bytes) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for _, entry in wire.fields(data) if isinstance(data, bytes) else ():
        inner = dict(wire.fields(entry)) if isinstance(entry, bytes) else {}
        found[_text(_raw(inner, 1))] = _feature(_raw(inner, 2))
    return found


def _feature(data: bytes) -> list[Any]:
    """The values of a Feature: bytes (1), floats (2) or integers (3)."""
    values: list[Any] = []
    for kind, content in wire.fields(data):
        for _, value in wire.fields(content) if isinstance(content, bytes) else ():
            if isinstance(value, int):
                values.append(wire.signed(value))
            elif kind == 1:
                values.append(value)
            elif kind == 2:
                values += np.frombuffer(value, "<f4").tolist()
            else:
                values += wire.varints(value)
    return values


def _features_bytes(features: Mapping[str, Sequence[Any]]) -> bytes:
    entries: list[wire.Field] = []
    for name, values in features.items():
        if all(isinstance(value, int) for value in values):
            content = wire.message([(3, wire.message([(1, wire.packed(values))]))])
        elif all(isinstance(value, float) for value in values):
            content = wire.message([(2, wire.message([(1, np.array(values, "<f4").tobytes())]))])
        else:
            raw = [value if isinstance(value, bytes) else str(value).encode() for value in values]
            content = wire.message([(1, wire.message([(1, value) for value in raw]))])
        entries.append((1, wire.message([(1, name.encode()), (2, content)])))
    return wire.message(entries)


def _single(features: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Features of one value each, texts decoded."""
    plain = {}
    for name, values in features.items():
        texts = [_text(value) if isinstance(value, bytes) else value for value in values]
        plain[name] = texts[0] if len(texts) == 1 else texts
    return plain


def _small(values: Any, what: str) -> NDArray[np.uint8]:
    array = np.asarray(values, np.int64)
    if array.size and not 0 <= array.min() <= array.max() <= 255:
        raise InvalidGraph(f"{what} must lie between 0 and 255, not {array.max()}")
    return array.astype(np.uint8)


def _int(inner: Mapping[int, int | bytes], number: int) -> int:
    value = inner.get(number, 0)
    if isinstance(value, bytes):
        raise MalformedInput(f"field {number} should be a number")
    return wire.signed(value)


def _raw(inner: Mapping[int, int | bytes], number: int) -> bytes:
    value = inner.get(number, b"")
    if isinstance(value, int):
        raise MalformedInput(f"field {number} should be a text or a message")
    return value


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _raw_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error


def _broken(path: Path, error: Exception) -> MalformedInput:
    message = error.message if isinstance(error, MalformedInput) else str(error)
    return MalformedInput(f"Corrupt, or not of this kind: {message}. Unpack it again.", file=str(path))
