"""DataflowStore: labelled graphs at rest, each graph once, its labels as bits, opened by mapping files.

`columns` says what files a store has. G graphs, N nodes, E edges, K instances.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.archives import FREE_BYTES, files_in
from apportion.data.columns import (
    COLUMNS,
    EDGE_COLUMNS,
    FILES,
    FORMAT,
    GRAPH_COLUMNS,
    INSTANCE_COLUMNS,
    NODE_COLUMNS,
    OFFSET_COLUMNS,
    REMEDY,
    SPLITS,
    Split,
    checksum,
    column_path,
    describe,
    mapped,
    write_names,
)  # fmt: skip
from apportion.errors import (
    AlreadyWritten,
    ApportionError,
    InvalidSetting,
    LimitExceeded,
    MalformedInput,
    UnknownName,
    UnreadableFile,
)
from apportion.jobs.holding import held
from apportion.program.vocabulary import Vocabulary
from apportion.settings import remove_folder, whole_file, whole_folder

__all__ = ["SPLITS", "DataflowStore", "LabelledRoot", "Split", "StoredGraph"]

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)
"How many bits of a byte are set."
_MOST_RATIO = 2_000
"Times that a store may be larger unpacked: columns of equal numbers shrink a lot, whole stores tenfold."
_XZ_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True, eq=False)
class StoredGraph:
    """A graph as a model sees it."""

    node_text_id: NDArray[np.int32]  # (N,) number in the vocabulary
    edges: NDArray[np.int32]  # (2, E): source, target
    edge_flow: NDArray[np.uint8]  # (E,) Flow
    edge_position: NDArray[np.int32]  # (E,)


@dataclass(frozen=True, eq=False)
class LabelledRoot:
    """One analysis of one graph from one root."""

    graph: int
    root: int
    steps: int
    active: int
    labels: NDArray[np.bool_]  # (N,)


class DataflowStore:
    """A store opened for reading; `columns` has every array whole, mapped and read-only."""

    def __init__(
        self, folder: Path, description: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]
    ) -> None:
        self.folder = folder
        self.description = description
        self.columns = columns
        self.tasks: tuple[str, ...] = tuple(description["tasks"])
        self.source_names: tuple[str, ...] = tuple(description["sources"])
        self.fingerprint: str = description["fingerprint"]

    @classmethod
    def open(cls, folder: Path | str) -> DataflowStore:
        """The store in a folder, in milliseconds: columns are mapped, and only their sizes are checked.

        Raises:
            UnreadableFile: there is no finished store.
            MalformedInput: a file of it is missing, cut short or of another kind; the message names it.
        """
        folder = Path(folder)
        path = folder / "store.json"
        if not path.is_file():
            raise UnreadableFile(
                f"There is no finished data-flow store in {folder}: store.json is missing. "
                f"Make one with: apportion dataset dataflow CORPUS --out {folder}"
            )
        try:
            description = json.loads(path.read_bytes())
            version = description["format"]
            sizes = {name: description["columns"][name] for name in COLUMNS}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            problem = f"This is no description of a store ({error}). {REMEDY}"
            raise MalformedInput(problem, file=str(path)) from error
        if version != FORMAT:
            raise MalformedInput(f"The store has format {version}, not {FORMAT}. {REMEDY}", file=str(path))
        return cls(folder, description, {name: mapped(folder, name, sizes[name]) for name in COLUMNS})

    def verify(self) -> None:
        """Read everything once and compare checksums.

        Raises:
            MalformedInput: a column has other contents than were written; the message names the file.
        """
        for name, entry in self.description["columns"].items():
            path = column_path(self.folder, name)
            if checksum(path) != entry["crc32"]:
                problem = f"Its contents have changed since it was written. {REMEDY}"
                raise MalformedInput(problem, file=str(path))

    @cached_property
    def vocabulary(self) -> list[str]:
        """The texts that node numbers stand for; the number `len(vocabulary)` is every other text."""
        return list(Vocabulary.read(self.folder / "vocabulary.csv").texts)

    @cached_property
    def names(self) -> list[str]:
        """The file that each graph came from."""
        return (self.folder / "names.txt").read_text("utf-8", "surrogateescape").splitlines()

    @cached_property
    def sources(self) -> NDArray[np.str_]:
        """(G,) the name of the corpus that each graph came from."""
        names: NDArray[np.str_] = np.array(self.source_names, np.str_)[self.columns["graph_source"]]
        return names

    @cached_property
    def graph_nodes(self) -> NDArray[np.int64]:
        """(G,) the number of nodes of each graph."""
        offsets = self.columns["node_offset"].astype(np.int64)
        return offsets[1:] - offsets[:-1]

    def __len__(self) -> int:
        """How many graphs there are."""
        return len(self.columns["graph_split"])

    def graphs(self, split: Split) -> NDArray[np.int64]:
        """The graphs on one side of the split."""
        return np.flatnonzero(self.columns["graph_split"] == _number("split", split, SPLITS))

    def graph(self, index: int) -> StoredGraph:
        """One graph, as a copy.

        Raises:
            MalformedInput: an edge leads out of the graph, so the column is corrupt.
        """
        columns = self.columns
        first, last = (int(i) for i in columns["node_offset"][index : index + 2])
        start, end = (int(i) for i in columns["edge_offset"][index : index + 2])
        edges = np.empty((2, end - start), np.int32)
        edges[0], edges[1] = columns["edge_source"][start:end], columns["edge_target"][start:end]
        if edges.size and edges.max() >= last - first:
            raise MalformedInput(
                f"Graph {index} has an edge to node {edges.max()} but only {last - first} nodes. {REMEDY}",
                file=str(column_path(self.folder, "edge_target")),
            )
        return StoredGraph(
            columns["node_text"][first:last].astype(np.int32),
            edges,
            columns["edge_flow"][start:end].astype(np.uint8),
            columns["edge_position"][start:end].astype(np.int32),
        )

    def instances(
        self,
        task: str,
        split: Split,
        *,
        max_steps: int | None = 30,
        max_nodes: int | None = 40_000,
        min_steps: int = 0,
        sources: Collection[str] = (),
    ) -> NDArray[np.int64]:
        """The instances of a task on one side of the split.

        Args:
            task: one of `tasks`.
            split: one of `SPLITS`.
            max_steps: leaves out analyses that took more steps; the paper's sets have 30, 60 or 200.
            max_nodes: leaves out larger graphs.
            min_steps: leaves out analyses that took fewer steps.
            sources: keeps only graphs of these corpora; all when there is none.
        """
        columns = self.columns
        keep = columns["instance_task"] == _number("task", task, self.tasks)
        graph_kept = columns["graph_split"] == _number("split", split, SPLITS)
        if max_nodes is not None:
            graph_kept &= self.graph_nodes <= max_nodes
        if sources:
            kept = [_number("source", source, self.source_names) for source in sources]
            graph_kept &= np.isin(columns["graph_source"], kept)
        keep &= graph_kept[columns["instance_graph"]]
        keep &= columns["instance_steps"] >= min_steps
        if max_steps is not None:
            keep &= columns["instance_steps"] <= max_steps
        return np.flatnonzero(keep)

    def instance(self, index: int) -> LabelledRoot:
        """One instance, its labels unpacked."""
        columns = self.columns
        graph = int(columns["instance_graph"][index])
        start, end = (int(i) for i in columns["label_offset"][index : index + 2])
        nodes = int(self.graph_nodes[graph])
        labels = np.unpackbits(columns["labels"][start:end], count=nodes, bitorder="little").astype(np.bool_)
        return LabelledRoot(
            graph, int(columns["instance_root"][index]), int(columns["instance_steps"][index]),
            int(columns["instance_active"][index]), labels,
        )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        """What there is, in numbers: for each task and split instances, steps and the share of positives."""
        columns = self.columns
        side = columns["graph_split"][columns["instance_graph"]]
        nodes = self.graph_nodes[columns["instance_graph"]]
        ones = np.concatenate([[0], np.cumsum(_BITS[columns["labels"]])])
        offsets = columns["label_offset"].astype(np.int64)
        positive = ones[offsets[1:]] - ones[offsets[:-1]]
        tasks: dict[str, dict[str, Any]] = {}
        for number, task in enumerate(self.tasks):
            for split in SPLITS:
                chosen = (columns["instance_task"] == number) & (side == SPLITS.index(split))
                steps = columns["instance_steps"][chosen]
                tasks.setdefault(task, {})[split] = {
                    "instances": int(chosen.sum()),
                    "within": {str(limit): int((steps <= limit).sum()) for limit in (30, 60, 200)},
                    "positive": float(positive[chosen].sum() / max(1, nodes[chosen].sum())),
                    "steps": [int(step) for step in np.percentile(steps, (50, 90, 100))]
                    if len(steps)
                    else [],
                }
        return {
            "fingerprint": self.fingerprint,
            "graphs": {split: len(self.graphs(split)) for split in SPLITS},
            "nodes": int(self.graph_nodes.sum()),
            "edges": len(columns["edge_flow"]),
            "texts": len(self.vocabulary),
            "sources": dict(zip(*_counted(self.sources), strict=True)),
            "counts": self.description["settings"].get("counts", {}),
            "tasks": tasks,
        }

    def subset(self, folder: Path, graphs: NDArray[np.int64], instances: NDArray[np.int64]) -> DataflowStore:
        """Write a store that has only these graphs, and of these instances those of its graphs."""
        columns = self.columns
        graphs = np.sort(graphs)
        renumbered = np.full(len(self), -1, np.int64)
        renumbered[graphs] = np.arange(len(graphs))
        instances = np.sort(instances)
        instances = instances[renumbered[columns["instance_graph"][instances]] >= 0]
        node_offset, node_text = _gathered(columns["node_offset"], graphs, columns, NODE_COLUMNS)
        edge_offset, edges = _gathered(columns["edge_offset"], graphs, columns, EDGE_COLUMNS)
        label_offset, labels = _gathered(columns["label_offset"], instances, columns, ("labels",))
        arrays = {
            **{name: columns[name][graphs] for name in GRAPH_COLUMNS},
            **{name: columns[name][instances] for name in INSTANCE_COLUMNS},
            **node_text, **edges, **labels,
            "node_offset": node_offset, "edge_offset": edge_offset, "label_offset": label_offset,
        }  # fmt: skip
        arrays["instance_graph"] = renumbered[arrays["instance_graph"]]
        with whole_folder(folder) as part:
            (part / "columns").mkdir()
            for name in COLUMNS:
                np.save(column_path(part, name), _smallest(arrays[name]))
            shutil.copy(self.folder / "vocabulary.csv", part)
            write_names(part, [self.names[int(graph)] for graph in graphs])
            settings = {**self.description["settings"], "subset_of": self.fingerprint}
            describe(part, self.tasks, self.source_names, settings)
        return DataflowStore.open(folder)

    def write_archive(
        self,
        path: Path,
        *,
        limit_bytes: int,
        max_nodes: int | None = None,
        train_steps: int = 30,
        test_steps: int = 200,
        tasks: Collection[str] = (),
        seed: int = 0,
    ) -> DataflowStore:
        """Write as many graphs as fit into one file of at most `limit_bytes`, to carry to another machine.

        Training and validation instances of more than `train_steps` steps stay behind, and test instances of
        more than `test_steps`, and those of other tasks than `tasks` if there is any. The subset is also left
        beside the archive as a folder, and returned.

        Raises:
            AlreadyWritten: another process writes it, or the subset's folder holds files of something else.
        """
        columns = self.columns
        test_side = columns["graph_split"][columns["instance_graph"]] == SPLITS.index("test")
        steps = columns["instance_steps"]
        wanted = [_number("task", task, self.tasks) for task in tasks or self.tasks]
        kept = (steps <= np.where(test_side, test_steps, train_steps)) & np.isin(
            columns["instance_task"], wanted
        )
        instances = np.flatnonzero(kept)
        limit = int(self.graph_nodes.max(initial=0)) if max_nodes is None else max_nodes
        order = np.random.default_rng(seed).permutation(np.flatnonzero(self.graph_nodes <= limit))
        cost = np.cumsum(self.graph_nodes[order])
        if not len(order):
            raise InvalidSetting(f"No graph of {self.folder} has at most {max_nodes} nodes")
        folder, budget = path.with_name(path.name + ".store"), int(cost[-1])
        if path.is_dir():
            raise AlreadyWritten(f"{path} is a folder: name a file for the archive")
        with held(path if path.suffix else path.with_suffix(".archive")):  # else it is taken for a folder
            while True:
                chosen = order[: max(1, int(np.searchsorted(cost, budget, "right")))]
                if folder.exists():
                    if not _may_be_replaced(folder):
                        raise AlreadyWritten(
                            f"{folder} is no store that an archive left, and the subset would go there"
                        )
                    remove_folder(folder)
                store = self.subset(folder, chosen, instances)
                size = store._pack(path)
                if size <= limit_bytes:
                    return store
                if len(chosen) == 1:
                    raise InvalidSetting(f"{limit_bytes:,} bytes cannot hold even one graph of {self.folder}")
                budget = int(budget * min(0.97, 0.985 * limit_bytes / size))

    @staticmethod
    def unpack(archive: Path, folder: Path) -> DataflowStore:
        """Lay out an archive that `write_archive` made, and open it.

        Raises:
            AlreadyWritten: the folder holds something; nothing is ever removed for a store.
            MalformedInput: the archive is cut short, damaged, or of another kind.
            LimitExceeded: it would be larger than any store that has been packed.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise AlreadyWritten(f"{folder} is not an empty folder. Unpack into one that is not there yet")
        with whole_folder(folder) as part:
            (part / "columns").mkdir()
            _lay_out(archive, part)
            DataflowStore.open(part).verify()
        return DataflowStore.open(folder)

    def _pack(self, path: Path) -> int:
        """Write the folder as a tar of files compressed one by one; the size in bytes."""
        with whole_file(path) as part, tarfile.open(part, "w") as written:
            for inner in FILES:
                data, name = (self.folder / inner).read_bytes(), Path(inner).stem
                itemsize = self.columns[name].dtype.itemsize if name in COLUMNS else 1
                content = lzma.compress(data, filters=_filters(name, len(data), itemsize))
                member = tarfile.TarInfo(f"{inner}.xz")
                member.size = len(content)
                written.addfile(member, BytesIO(content))
        return path.stat().st_size


def _lay_out(archive: Path, part: Path) -> None:
    """Write the files of a packed store, each as it is decompressed."""
    lacking = {f"{name}.xz" for name in FILES}
    left = max(FREE_BYTES, _MOST_RATIO * archive.stat().st_size) if archive.exists() else 0
    for name, data in files_in(archive):
        if name not in lacking:
            raise MalformedInput(f"It has {name!r}, which no store has", file=str(archive))
        lacking.remove(name)
        decompressor = lzma.LZMADecompressor(memlimit=_XZ_BYTES)
        try:
            with (part / name).with_suffix("").open("wb") as file:
                while not decompressor.eof:
                    block = decompressor.decompress(data, max_length=_BLOCK_BYTES)
                    data = b""
                    left -= file.write(block)
                    if left < 0:
                        raise LimitExceeded(
                            f"{archive} is more than {_MOST_RATIO:,} times larger when it is unpacked: "
                            "no store is"
                        )
                    if not block and decompressor.needs_input:
                        raise EOFError("the data end too early")
        except (lzma.LZMAError, EOFError) as error:
            raise MalformedInput(f"{name} is damaged: {error}", file=str(archive)) from error
    if lacking:
        problem = f"It was cut short: {min(lacking)} is not in it. Copy it again from where it came."
        raise MalformedInput(problem, file=str(archive))


def _gathered(
    offsets: NDArray[Any],
    chosen: NDArray[np.int64],
    columns: Mapping[str, NDArray[Any]],
    names: tuple[str, ...],
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """The chosen stretches of some columns, one after the other, and where each begins."""
    starts, ends = offsets[chosen].astype(np.int64), offsets[chosen + 1].astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(ends - starts)])
    index = np.arange(begins[-1]) + np.repeat(starts - begins[:-1], ends - starts)
    return begins, {name: columns[name][index] for name in names}


def _counted(names: NDArray[np.str_]) -> tuple[list[str], list[int]]:
    values, counts = np.unique(names, return_counts=True)
    return values.tolist(), counts.tolist()


def _smallest(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.min_scalar_type(int(array.max(initial=0))))


def _number(kind: str, name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise UnknownName(kind, name, names)
    return names.index(name)


def _filters(name: str, size: int, itemsize: int) -> list[dict[str, int]]:
    """How xz should see a file: neighbours in a column of node numbers or offsets differ by little."""
    dictionary = min(1 << 26, max(1 << 12, size))  # xz takes twelve times as much memory, used or not
    compressor = {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": dictionary}
    if name in {*OFFSET_COLUMNS, "edge_source", "edge_target", "instance_graph"}:
        return [{"id": lzma.FILTER_DELTA, "dist": itemsize}, compressor]
    return [compressor]


def _may_be_replaced(folder: Path) -> bool:
    """Whether a folder is empty, or holds a subset of an earlier archive."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return folder.is_dir()
    try:
        return "subset_of" in DataflowStore.open(folder).description["settings"]
    except ApportionError:
        return False
