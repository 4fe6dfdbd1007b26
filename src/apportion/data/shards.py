"""Shards: labelled graphs on their way into a store, some hundred in a file that is whole or absent.

What was made of a corpus file (a labelled graph, or the reason why not) is in the same shard as the file's
key, and a shard gets its name only when it is complete: so a build that dies at any moment has the result of
each file once or not at all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.npz import DAMAGE
from apportion.errors import MalformedInput
from apportion.jobs import holding
from apportion.program.graph import StringTable
from apportion.settings import whole_file


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """One graph with the labels of all its instances, before there is a vocabulary."""

    texts: tuple[str, ...]
    "The distinct texts of its nodes."
    node_text: NDArray[np.int32]  # (N,) index into `texts`
    edges: NDArray[np.int32]  # (2, E): source, target
    edge_flow: NDArray[np.uint8]  # (E,)
    edge_position: NDArray[np.int32]  # (E,)
    task: NDArray[np.uint8]  # (K,) which analysis, by its place in the settings
    root: NDArray[np.int32]  # (K,)
    steps: NDArray[np.int64]  # (K,)
    active: NDArray[np.int64]  # (K,)
    labels: NDArray[np.uint8]  # (K, ⌈N / 8⌉): node v is bit v % 8 of byte v // 8
    problems: tuple[tuple[str, str], ...] = ()
    "Tasks that gave this graph fewer instances than asked, and why."

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.node_text)


@dataclass(frozen=True)
class FileResult:
    """What became of one file: a labelled graph, or the reason why there is none."""

    key: str
    corpus: str
    name: str
    graph: LabelledGraph | None = None
    reason: str | None = None
    again: bool = False
    "Whether the next build should try once more: the reason lies with the machine or with us, not the file."
    split: str | None = None
    "The side of the split that it must be on, when somebody else has decided."


SHARD_FILES, SHARD_SECONDS = 256, 20.0
"A shard is written after so many files or so long, whichever is first: an interruption costs no more."
_ROWS = ("node_text", "edge_flow", "edge_position", "task", "root", "steps", "active")


def write_shard(path: Path, results: Sequence[FileResult]) -> None:
    """Write a shard; it is there under its name when this returns, also after a power cut."""
    graphs = [result.graph for result in results if result.graph is not None]
    files: list[dict[str, Any]] = []
    for result in results:
        entry: dict[str, Any] = {"key": result.key, "corpus": result.corpus, "name": result.name}
        if result.split is not None:
            entry["split"] = result.split
        if result.graph is None:
            entry |= {"reason": result.reason, "again": result.again}
        else:
            graph = result.graph
            entry["sizes"] = [graph.nodes, graph.edges.shape[1], len(graph.root), len(graph.texts)]
            entry["problems"] = graph.problems
        files.append(entry)
    strings = StringTable.of([text for graph in graphs for text in graph.texts])
    arrays: dict[str, NDArray[Any]] = {
        "files": np.frombuffer(json.dumps(files).encode(), np.uint8),
        "string_data": strings.data,
        "string_offsets": strings.offsets,
        "edges": _joined([graph.edges for graph in graphs], np.zeros((2, 0), np.int32), axis=1),
        "labels": _joined([graph.labels.reshape(-1) for graph in graphs], np.zeros(0, np.uint8)),
    }
    for row in _ROWS:
        arrays[row] = _joined([getattr(graph, row) for graph in graphs], np.zeros(0, np.int64))
    content = BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    with whole_file(path) as part, part.open("wb") as file:
        file.write(content.getbuffer())
        file.flush()
        os.fsync(file.fileno())


def write_shards(work: Path, results: Iterable[FileResult]) -> None:
    """Write results into new shards as they come; if a later one fails, those that came before are kept."""
    numbers = [int(shard.stem.rpartition("-")[2]) for shard in work.glob("shard-*.npz")]
    number = max(numbers, default=-1) + 1
    pending: list[FileResult] = []
    written = time.monotonic()
    try:
        for result in results:
            pending.append(result)
            if len(pending) >= SHARD_FILES or time.monotonic() - written > SHARD_SECONDS:
                write_shard(work / f"shard-{number:06d}.npz", pending)
                pending, number, written = [], number + 1, time.monotonic()
    finally:
        if pending:
            write_shard(work / f"shard-{number:06d}.npz", pending)


@contextmanager
def held(out: Path) -> Iterator[Path]:
    """The folder for shards of a store, made and held: two builds in one would write each other's shards.

    Raises:
        UnreadableFile, AlreadyWritten: it cannot be written, or another build holds it.
    """
    work = out / "work"
    with holding.held(out, ("store.json", "work")):
        work.mkdir(exist_ok=True)
        yield work


def read_keys(path: Path) -> list[str]:
    """The keys of the files that a shard settles."""
    return [entry["key"] for entry in _files(path, _load(path, ("files",))) if not entry.get("again")]


def read_files(path: Path) -> list[tuple[str, str, str]]:
    """Key, corpus and name of each file in a shard."""
    return [(entry["key"], entry["corpus"], entry["name"]) for entry in _files(path, _load(path, ("files",)))]


def read_shard(path: Path) -> Iterator[FileResult]:
    """The results in a shard, in the order they were written.

    Raises:
        MalformedInput: the shard is corrupt or cut short.
    """
    arrays = _load(path, None)
    entries = _files(path, arrays)
    strings = StringTable(arrays["string_data"], arrays["string_offsets"])
    node = edge = instance = string = byte = 0
    for entry in entries:
        common: dict[str, Any] = {name: entry.get(name) for name in ("key", "corpus", "name", "split")}
        if "sizes" not in entry:
            yield FileResult(**common, reason=entry["reason"], again=entry.get("again", False))
            continue
        nodes, edges, instances, texts = entry["sizes"]
        width = (nodes + 7) // 8
        here = slice(instance, instance + instances)
        graph = LabelledGraph(
            texts=tuple(strings[string : string + texts]),
            node_text=arrays["node_text"][node : node + nodes].astype(np.int32),
            edges=arrays["edges"][:, edge : edge + edges],
            edge_flow=arrays["edge_flow"][edge : edge + edges].astype(np.uint8),
            edge_position=arrays["edge_position"][edge : edge + edges].astype(np.int32),
            task=arrays["task"][here].astype(np.uint8),
            root=arrays["root"][here].astype(np.int32),
            steps=arrays["steps"][here],
            active=arrays["active"][here],
            labels=arrays["labels"][byte : byte + instances * width].reshape(instances, width),
            problems=tuple((task, reason) for task, reason in entry["problems"]),
        )
        yield FileResult(**common, graph=graph)
        node, edge, instance = node + nodes, edge + edges, instance + instances
        string, byte = string + texts, byte + instances * width


def _joined(arrays: Sequence[NDArray[Any]], empty: NDArray[Any], axis: int = 0) -> NDArray[Any]:
    return np.concatenate(arrays, axis=axis) if arrays else empty


def _load(path: Path, names: tuple[str, ...] | None) -> dict[str, NDArray[Any]]:
    try:
        # Opened here, because NumPy leaves a file open that turns out to be no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in names or archive.files}
    except (*DAMAGE, KeyError) as error:
        raise _corrupt(path, error) from error


def _files(path: Path, arrays: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    try:
        entries: list[dict[str, Any]] = json.loads(arrays["files"].tobytes())
    except (ValueError, KeyError, RecursionError) as error:
        raise _corrupt(path, error) from error
    return entries


def _corrupt(path: Path, error: Exception) -> MalformedInput:
    return MalformedInput(
        f"This shard of a data-flow build is corrupt or cut short ({error}). "
        "Delete it and run the same command again: only its files are made anew.",
        file=str(path),
    )
