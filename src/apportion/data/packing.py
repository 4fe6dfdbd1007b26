"""Packing published files into a configuration store: one pass over each, in chunks of rows.

A file that is packed is not packed again, so an interrupted run goes on where it was. Memory holds one chunk
of rows and the tables of options, however large the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.configurations import (
    END,
    ConfigurationStore,
    ConfiguredGraph,
    describe,
    graph_path,
    is_store,
    open_graph,
)
from apportion.data.npz import NpzFile
from apportion.data.published.tpugraphs import (
    LAYOUT_FEATURES,
    LAYOUT_MEMBERS,
    SPLITS_MEMBER,
    LayoutFile,
    PublishedFile,
    TileFile,
    check_configurations,
    check_finite,
    check_runtimes,
    read_graph,
    read_tile,
)
from apportion.data.tensors import RawArray, map_tensors, write_tensors
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.jobs.holding import held
from apportion.settings import scratch_file, sweep

CHUNK_BYTES = 32 << 20
"How much of a file is in memory at once, as floats."
Evaluation = Mapping[str, Mapping[str, Sequence[int]]]


def pack(
    files: Iterable[PublishedFile],
    out: Path,
    *,
    deduplicate: bool = False,
    evaluation: Evaluation | None = None,
) -> ConfigurationStore:
    """Add files to a store; one that is not there is made.

    Graphs that the store holds already stay in it. A file with the collection, side and name of a graph
    that is there takes its place.

    Args:
        deduplicate: keep configurations that give every node the same options once, with the mean runtime.
        evaluation: collection → graph → the configurations that are evaluated.

    Raises:
        UnreadableFile, MalformedInput: a file is not as published, or the store's description is damaged;
            what was packed before it stays packed.
    """
    with held(out, ("store.json", "layout-*", "tile-*")):
        kept = {_key(entry): entry for entry in ConfigurationStore.open(out).entries} if is_store(out) else {}
        for file in files:
            path = graph_path(out, file.collection, file.side, file.name)
            chosen = (evaluation or {}).get(file.collection, {}).get(file.name)
            stamp = {
                "source": _identity(file.path),
                "deduplicated": str(deduplicate),
                "evaluation": _digest(chosen),
            }
            sweep(path.parent)
            if not _packed(path, stamp):
                path.parent.mkdir(parents=True, exist_ok=True)
                if file.collection == "tile:xla":
                    _pack_tile(file, path, stamp, deduplicate)
                else:
                    with scratch_file(path.with_name(f"{path.name}.codes")) as raw:
                        _pack_layout(file, path, stamp, deduplicate, chosen, raw)
            stored = open_graph(out, file.collection, file.side, file.name)
            entry: dict[str, Any] = {"name": file.name, "collection": file.collection, "side": file.side}
            entry |= {"nodes": stored.graph.nodes, "configurations": stored.configurations}
            entry |= {"configurable": stored.codes.shape[1], "bytes": path.stat().st_size, **stamp}
            kept[_key(entry)] = entry
        return describe(out, list(kept.values()))


def unpack(stored: ConfiguredGraph) -> LayoutFile | TileFile:
    """The file that a graph was packed from, equal in every array.

    Raises:
        InvalidSetting: duplicates were taken out, so that it cannot be had back.
    """
    if "config_group" in stored.arrays:
        raise InvalidSetting(f"{stored.name} was packed without its duplicates: the file cannot be had back")
    features = stored.features(stored.codes)
    if "config_runtime_normalizers" in stored.arrays:
        return TileFile(
            stored.graph, features[:, 0], stored.runtime, stored.arrays["config_runtime_normalizers"]
        )
    return LayoutFile(stored.graph, stored.arrays["node_config_ids"], stored.runtime, features)


class OptionTable:
    """The options of each node in order of their first appearance; equal means equal in every bit."""

    def __init__(self, nodes: int) -> None:
        self._numbers: list[dict[bytes, int]] = [{} for _ in range(nodes)]
        # Of the options known of a node: their hashes in ascending order, and their numbers in the same.
        self._hashes = [np.zeros(0, np.uint64) for _ in range(nodes)]
        self._order = [np.zeros(0, np.uint16) for _ in range(nodes)]

    def codes(self, features: NDArray[np.float32]) -> NDArray[np.uint16]:
        """(B, M) the codes of features (B, M, F) with an even F; options not seen before are added.

        Raises:
            InvalidSetting: a node has more than 65,536 options, or two with the same hash.
        """
        words = np.ascontiguousarray(features).view(np.uint64)
        hashes = _hashes(words)
        codes = np.empty(hashes.T.shape, np.uint16)
        for node, column in enumerate(hashes.T):
            place = self._places(node, column)
            if place is None:
                self._add(node, column, words[:, node])
                place = self._places(node, column)
                assert place is not None
            codes[node] = self._order[node][place]
        rows = codes.T
        arrays = self.arrays(features.shape[2])
        known = arrays["options"].view(np.uint64)[arrays["option_offset"][:-1] + rows]
        if not np.array_equal(known, words):
            raise InvalidSetting("two options of a node have the same hash: this file cannot be packed")
        return rows

    @property
    def largest(self) -> int:
        """The largest number of options of a node."""
        return max((len(known) for known in self._numbers), default=0)

    def arrays(self, width: int) -> dict[str, NDArray[Any]]:
        """The table (K, F), and where each node's part of it begins (M + 1,)."""
        counts = [len(known) for known in self._numbers]
        rows = b"".join(option for known in self._numbers for option in known)
        return {
            "options": np.frombuffer(rows, np.float32).reshape(-1, width),
            "option_offset": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        }

    def _places(self, node: int, column: NDArray[np.uint64]) -> NDArray[np.intp] | None:
        """Where each hash stands among the node's; None when one is not there."""
        known = self._hashes[node]
        if not len(known):
            return None
        place = np.minimum(np.searchsorted(known, column), len(known) - 1)
        return place if np.array_equal(known[place], column) else None

    def _add(self, node: int, column: NDArray[np.uint64], words: NDArray[np.uint64]) -> None:
        numbers = self._numbers[node]
        hashes, first = np.unique(column, return_index=True)
        for row in np.sort(first).tolist():
            numbers.setdefault(words[row].tobytes(), len(numbers))
        if len(numbers) > 1 << 16:
            raise InvalidSetting(f"configurable node {node} has more than 65,536 different options")
        found = np.array([numbers[words[row].tobytes()] for row in first.tolist()], np.uint16)
        every, kept = np.unique(np.concatenate([self._hashes[node], hashes]), return_index=True)
        self._hashes[node] = every
        self._order[node] = np.concatenate([self._order[node], found])[kept]


def _pack_layout(
    file: PublishedFile, path: Path, stamp: dict[str, str], deduplicate: bool, chosen: Sequence[int] | None,
    raw: Path,
) -> None:  # fmt: skip
    """Args: raw: where codes may be written meanwhile."""
    with NpzFile(file.path, LAYOUT_MEMBERS, SPLITS_MEMBER) as opened:
        try:
            graph, runtime, ids = (
                read_graph(opened),
                opened.read("config_runtime"),
                opened.read("node_config_ids"),
            )
            wanted = (len(runtime), len(ids), LAYOUT_FEATURES)
            check_configurations(graph, ids, opened.shapes["node_config_feat"], wanted)
            check_runtimes(runtime)
            table = OptionTable(len(ids))
            chunk = max(1, CHUNK_BYTES // max(1, 4 * len(ids) * LAYOUT_FEATURES))
            dtype = _write_codes(opened.rows("node_config_feat", chunk), table, raw)
        except InvalidSetting as error:
            raise opened.broken(str(error)) from error
    arrays: dict[str, NDArray[Any] | RawArray] = {
        "node_opcode": graph.node_opcode, "node_feat": graph.node_feat, "edge_index": graph.edge_index,
        "node_splits": graph.node_splits, "node_config_ids": ids, "config_runtime": runtime,
        "codes": RawArray(raw, dtype, (len(runtime), len(ids))), **table.arrays(LAYOUT_FEATURES),
    }  # fmt: skip
    if chosen is not None:
        arrays["evaluation"] = np.array(chosen, np.int64)
        if len(chosen) and not 0 <= min(chosen) <= max(chosen) < len(runtime):
            problem = f"its evaluation indices reach {max(chosen)}, but it has {len(runtime)} configurations"
            raise MalformedInput(problem, file=str(file.path))
    if deduplicate:
        codes = np.fromfile(raw, dtype).reshape(len(runtime), len(ids))
        arrays |= _without_duplicates(codes, runtime, arrays.get("evaluation"))
    write_tensors(path, arrays, stamp)


def _pack_tile(file: PublishedFile, path: Path, stamp: dict[str, str], deduplicate: bool) -> None:
    tile = read_tile(file.path)
    table = OptionTable(1)
    codes = table.codes(tile.config_feat[:, None])
    codes = codes if table.largest > 256 else codes.astype(np.uint8)
    graph = tile.graph
    arrays: dict[str, NDArray[Any] | RawArray] = {
        "node_opcode": graph.node_opcode, "node_feat": graph.node_feat, "edge_index": graph.edge_index,
        "node_splits": graph.node_splits, "config_runtime": tile.config_runtime,
        "config_runtime_normalizers": tile.config_runtime_normalizers,
        "codes": codes, **table.arrays(tile.config_feat.shape[1]),
    }  # fmt: skip
    if deduplicate:
        single = _without_duplicates(codes, tile.config_runtime, None)
        arrays |= single
        first = np.unique(single["config_group"], return_index=True)[1]
        arrays["config_runtime_normalizers"] = tile.config_runtime_normalizers[first]
    write_tensors(path, arrays, stamp)


def _write_codes(chunks: Iterator[NDArray[np.float32]], table: OptionTable, raw: Path) -> np.dtype[Any]:
    """Write codes in one byte each, or in two from where a node has more than 256 options; the type."""
    dtype: np.dtype[Any] = np.dtype(np.uint8)
    with raw.open("w+b") as file:
        rows = 0
        for features in chunks:
            check_finite("node_config_feat", features, first_row=rows)
            rows += len(features)
            codes = table.codes(features)
            if table.largest > 256 and dtype.itemsize == 1:
                dtype = np.dtype("<u2")
                _widen(file.name)
                file.seek(0, os.SEEK_END)
            file.write(codes.astype(dtype).tobytes())
            file.flush()
    return dtype


def _widen(name: str) -> None:
    """Rewrite a file of bytes as 16-bit numbers, from its end so that nothing is overwritten unread."""
    count = os.path.getsize(name)
    with open(name, "r+b") as file:
        step = 1 << 20
        for first in range((count - 1) // step * step if count else -1, -1, -step):
            file.seek(first)
            values = np.frombuffer(file.read(min(step, count - first)), np.uint8)
            file.seek(2 * first)
            file.write(values.astype("<u2").tobytes())


def _without_duplicates(
    codes: NDArray[Any], runtime: NDArray[np.int64], evaluation: NDArray[Any] | RawArray | None
) -> dict[str, NDArray[Any]]:
    """Equal configurations once, in order of their first appearance, with the mean of their runtimes."""
    items = np.ascontiguousarray(codes).view(f"V{codes.dtype.itemsize * codes.shape[1]}").reshape(-1)
    _, first, member = np.unique(items, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    group = rank[member.reshape(-1)]
    arrays = {
        "codes": codes[np.sort(first)],
        "config_runtime": np.bincount(group, runtime.astype(np.float64)) / np.bincount(group),
        "config_group": group.astype(np.int32),
    }
    if isinstance(evaluation, np.ndarray):
        arrays["evaluation"] = np.unique(group[evaluation]).astype(np.int64)
    return arrays


def _hashes(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """(B, M) a number for each (B, M, W) words, the same for the same."""
    mixed = np.zeros(words.shape[:2], np.uint64)
    for place in range(words.shape[2]):
        mixed ^= words[:, :, place]
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["collection"], entry["side"], entry["name"]


def _packed(path: Path, stamp: Mapping[str, str]) -> bool:
    if not path.name.endswith(END) or not path.exists():
        return False
    try:
        return map_tensors(path)[1] == dict(stamp)
    except (MalformedInput, UnreadableFile):
        return False


def _identity(path: Path) -> str:
    """What tells a file from one that took its place: its size and time, not its gigabytes."""
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    return f"{path.name}:{status.st_size}:{status.st_mtime_ns}"


def _digest(chosen: Sequence[int] | None) -> str:
    return "" if chosen is None else hashlib.sha256(repr(list(chosen)).encode()).hexdigest()[:16]
