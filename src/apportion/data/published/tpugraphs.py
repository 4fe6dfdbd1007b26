"""TpuGraphs: graphs of tensor programs with the runtimes of many compiler configurations.

Two kinds of file, each for one graph, in folders that name the collection and the side of the split:

    npz/layout/{xla,nlp}/{default,random}/{train,valid,test}/NAME.npz    a layout for each of some nodes
    npz/tile/xla/{train,valid,test}/NAME.npz                             a tile size for the whole kernel

The raw protocol buffers that those were made from are read by `tuning_data`. Types are those of the published
files, not of their README. An edge [u, v] says that u consumes v. Runtimes are nanoseconds and stay integers:
as 32-bit floats a third of them would become equal. Test files have runtimes of zero.

N nodes, E edges, C configurations, M configurable nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.npz import Member, NpzFile
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.program.hlo.module import HloGraph, graph_of_hlo
from apportion.program.hlo.text import is_hlo_text, module_of_text
from apportion.settings import replace_file

NODE_FEATURES, LAYOUT_FEATURES, TILE_FEATURES, OPCODES = 140, 18, 24, 120
SIDES = ("train", "valid", "test")
COLLECTIONS = (
    "layout:xla:default",
    "layout:xla:random",
    "layout:nlp:default",
    "layout:nlp:random",
    "tile:xla",
)
"The five that the competition averages."

_GRAPH: dict[str, Member] = {
    "node_opcode": ("uint8", 1),
    "node_feat": ("float32", 2),
    "edge_index": ("int64", 2),
}
LAYOUT_MEMBERS: dict[str, Member] = _GRAPH | {
    "node_config_ids": ("int64", 1), "node_config_feat": ("float32", 3),
    "config_runtime": ("int64", 1),
}  # fmt: skip
TILE_MEMBERS: dict[str, Member] = _GRAPH | {
    "config_feat": ("float32", 2), "config_runtime": ("int64", 1), "config_runtime_normalizers": ("int64", 1),
}  # fmt: skip
SPLITS_MEMBER: dict[str, Member] = {"node_splits": ("int64", 2)}
"Layout files have it; the README does not list it among those of tile files."


@dataclass(frozen=True, eq=False)
class TensorGraph:
    """The graph of a tensor program."""

    node_opcode: NDArray[np.uint8]  # (N,): 1 to 120, 0 for one that the extractor did not know
    node_feat: NDArray[np.float32]  # (N, 140)
    edge_index: NDArray[np.int64]  # (E, 2): consumer, producer
    node_splits: NDArray[np.int64]  # (S,): where the segments begin, and N

    def __post_init__(self) -> None:
        nodes = len(self.node_opcode)
        if nodes == 0:
            raise InvalidSetting("the graph has no nodes")
        if self.node_feat.shape != (nodes, NODE_FEATURES):
            raise InvalidSetting(
                f"node_feat has shape {self.node_feat.shape}, not ({nodes}, {NODE_FEATURES})"
            )
        if self.edge_index.shape[1:] != (2,):
            raise InvalidSetting(f"edge_index has shape {self.edge_index.shape}, not (E, 2)")
        if int(self.node_opcode.max()) > OPCODES:
            node = int(self.node_opcode.argmax())
            problem = f"node {node} has the unknown opcode {self.node_opcode[node]}; there are 1 to {OPCODES}"
            raise InvalidSetting(problem)
        _within("edge_index", self.edge_index, nodes)
        _within("node_splits", self.node_splits, nodes + 1)
        check_finite("node_feat", self.node_feat)

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.node_opcode)


@dataclass(frozen=True, eq=False)
class LayoutFile:
    """A graph whose configurations give layouts to some of its nodes."""

    graph: TensorGraph
    node_config_ids: NDArray[np.int64]  # (M,)
    config_runtime: NDArray[np.int64]  # (C,) nanoseconds
    node_config_feat: NDArray[
        np.float32
    ]  # (C, M, 18): output, input, kernel; 6 dimensions each, padded with -1

    def __post_init__(self) -> None:
        wanted = (len(self.config_runtime), len(self.node_config_ids), LAYOUT_FEATURES)
        check_configurations(self.graph, self.node_config_ids, self.node_config_feat.shape, wanted)
        check_finite("node_config_feat", self.node_config_feat)
        check_runtimes(self.config_runtime)


@dataclass(frozen=True, eq=False)
class TileFile:
    """A kernel whose configurations are tile sizes."""

    graph: TensorGraph
    config_feat: NDArray[
        np.float32
    ]  # (C, 24): kernel, output, input bounds; 6 dimensions, sum and product each
    config_runtime: NDArray[np.int64]  # (C,) nanoseconds
    config_runtime_normalizers: NDArray[np.int64]  # (C,): the default configuration's, on the same machine

    def __post_init__(self) -> None:
        wanted = (len(self.config_runtime), TILE_FEATURES)
        if self.config_feat.shape != wanted:
            raise InvalidSetting(f"config_feat has shape {self.config_feat.shape}, not {wanted}")
        check_finite("config_feat", self.config_feat)
        if self.config_runtime_normalizers.shape != self.config_runtime.shape:
            raise InvalidSetting("config_runtime_normalizers and config_runtime are not of one length")
        check_runtimes(self.config_runtime)
        if self.config_runtime.any() and int(self.config_runtime_normalizers.min()) <= 0:
            raise InvalidSetting("config_runtime_normalizers must be positive where there are runtimes")

    @cached_property
    def relative_runtime(self) -> NDArray[np.float64]:
        """(C,): runtimes in terms of the default configuration's, which the tile score is made of."""
        if not self.config_runtime.any():
            raise InvalidSetting(
                "Its runtimes are all zero, as in the published test files: there is no truth"
            )
        relative: NDArray[np.float64] = self.config_runtime / self.config_runtime_normalizers
        return relative


@dataclass(frozen=True)
class PublishedFile:
    """Where a file stands in the dataset."""

    path: Path
    collection: str
    "One of `COLLECTIONS`."
    side: str
    "One of `SIDES`."

    def __post_init__(self) -> None:
        if self.collection not in COLLECTIONS:
            raise UnknownName("collection", self.collection, COLLECTIONS)
        if self.side not in SIDES:
            raise UnknownName("side of the split", self.side, SIDES)

    @property
    def name(self) -> str:
        """The graph's name: the file's, without its end."""
        return self.path.name.removesuffix(".npz")


def read_layout(path: Path) -> LayoutFile:
    """A layout file, whole. The largest need 2.6 GB: `NpzFile.rows` goes through one in chunks.

    Raises:
        UnreadableFile, MalformedInput: there is none, or it is not as published; the message says what.
    """
    with NpzFile(path, LAYOUT_MEMBERS, SPLITS_MEMBER) as file:
        try:
            return LayoutFile(
                read_graph(file), file.read("node_config_ids"), file.read("config_runtime"),
                file.read("node_config_feat"),
            )  # fmt: skip
        except InvalidSetting as error:
            raise file.broken(str(error)) from error


def read_tile(path: Path) -> TileFile:
    """A tile file.

    Raises:
        UnreadableFile, MalformedInput: there is none, or it is not as published; the message says what.
    """
    with NpzFile(path, TILE_MEMBERS, SPLITS_MEMBER) as file:
        names = ("config_feat", "config_runtime", "config_runtime_normalizers")
        try:
            return TileFile(read_graph(file), *(file.read(name) for name in names))
        except InvalidSetting as error:
            raise file.broken(str(error)) from error


def read_graph(file: NpzFile) -> TensorGraph:
    """The graph in an open file; one without node_splits is one segment."""
    opcode = file.read("node_opcode")
    splits = (
        file.read("node_splits").reshape(-1) if "node_splits" in file.shapes else np.array([0, len(opcode)])
    )
    return TensorGraph(opcode, file.read("node_feat"), file.read("edge_index"), splits)


def write(path: Path, file: LayoutFile | TileFile) -> None:
    """Write a file as published: the same arrays in the same types."""
    write_arrays(path, published_arrays(file))


def published_arrays(file: LayoutFile | TileFile) -> dict[str, NDArray[Any]]:
    """The arrays of a file by their published names."""
    graph = file.graph
    arrays: dict[str, NDArray[Any]] = {
        "node_opcode": graph.node_opcode, "node_feat": graph.node_feat, "edge_index": graph.edge_index,
        "node_splits": graph.node_splits[None], "config_runtime": file.config_runtime,
    }  # fmt: skip
    if isinstance(file, LayoutFile):
        arrays |= {"node_config_ids": file.node_config_ids, "node_config_feat": file.node_config_feat}
    else:
        arrays |= {"config_feat": file.config_feat}
        arrays |= {"config_runtime_normalizers": file.config_runtime_normalizers}
    return arrays


def graph_of_file(module: Path) -> HloGraph:
    """The graph of an HLO module in a file: serialized, or as text.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it is no module.
    """
    try:
        data = module.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {module}: {error.strerror}") from error
    if is_hlo_text(data):
        data = module_of_text(data.decode("utf-8", "replace"), name=str(module))
    return graph_of_hlo(data, name=str(module))


def write_graph(graph: HloGraph, out: Path) -> None:
    """Write a graph as the arrays that a layout file has for its graph."""
    arrays = {
        "node_opcode": graph.node_opcode, "node_feat": graph.node_feat, "edge_index": graph.edge_index,
        "node_splits": graph.node_splits[None], "node_config_ids": graph.configurable,
    }  # fmt: skip
    write_arrays(out, arrays)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as one compressed file, whole or not at all; its folder is made when missing.

    Raises:
        UnreadableFile: the file cannot be written.
    """
    buffer = BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    replace_file(path, buffer.getvalue())


def read(
    folder: Path, *, collection: str | None = None, side: str | None = None
) -> Iterator[tuple[PublishedFile, LayoutFile | TileFile]]:
    """Every file of a folder, whole, one after the other; those that cannot be read raise."""
    for entry in files(folder, collection=collection, side=side):
        yield entry, (read_tile if entry.collection == "tile:xla" else read_layout)(entry.path)


def files(folder: Path, *, collection: str | None = None, side: str | None = None) -> list[PublishedFile]:
    """The files below a folder, in order of their names, with what their folders say of them.

    Args:
        collection: said here for a folder that does not lie in the published layout.
        side: likewise.

    Raises:
        UnreadableFile: there are none.
        InvalidSetting: folders do not say the collection or side of a file, nor do the arguments.
    """
    paths = sorted(folder.rglob("*.npz"))
    if not paths:
        raise UnreadableFile(f"There is no .npz file in {folder}")
    return [_published(path, collection, side) for path in paths]


def read_evaluation(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Which configurations of validation graphs the publication evaluates: collection → graph → indices.

    Args:
        folder: has `xla_default.json`, `xla_random.json`, `nlp_default.json` or `nlp_random.json`.
    """
    found = {}
    for collection in COLLECTIONS[:4]:
        path = folder / f"{'_'.join(collection.split(':')[1:])}.json"
        if not path.is_file():
            continue
        try:
            found[collection] = {
                str(name): [int(index) for index in chosen]
                for name, chosen in json.loads(path.read_bytes()).items()
            }
        except (ValueError, TypeError, AttributeError) as error:
            raise MalformedInput(f"These are no evaluation indices ({error})", file=str(path)) from error
    if not found:
        raise UnreadableFile(f"There are no evaluation indices (xla_random.json …) in {folder}")
    return found


def check_configurations(
    graph: TensorGraph, ids: NDArray[np.int64], shape: Sequence[int], wanted: Sequence[int]
) -> None:
    """Raise unless the layouts have the shape that the other arrays ask for, on nodes that there are."""
    if tuple(shape) != tuple(wanted):
        raise InvalidSetting(f"node_config_feat has shape {tuple(shape)}, not {tuple(wanted)}")
    _within("node_config_ids", ids, graph.nodes)
    values, times = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        node = values[times.argmax()]
        raise InvalidSetting(f"node_config_ids has node {node} {times.max()} times, not once")


def check_finite(name: str, values: NDArray[np.float32], *, first_row: int = 0) -> None:
    """Raise where a value is NaN or infinite; `first_row` is what the first row's number is in the file."""
    wrong = ~np.isfinite(values)
    if wrong.any():
        place = [int(index) for index in np.argwhere(wrong)[0]]
        value = values[tuple(place)]
        place[0] += first_row
        raise InvalidSetting(f"{name}{place} is {value}, which is no number to learn from")


def check_runtimes(runtime: NDArray[np.int64]) -> None:
    """Raise unless runtimes are all positive, or all zero for a test file."""
    if len(runtime) == 0:
        raise InvalidSetting("there are no configurations")
    if int(runtime.min()) <= 0 and runtime.any():
        at = int(runtime.argmin())
        problem = f"configuration {at} has a runtime of {runtime[at]} ns beside others that were measured"
        raise InvalidSetting(problem)


def _within(name: str, values: NDArray[np.int64], limit: int) -> None:
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < limit:
        worst = int(values.min()) if int(values.min()) < 0 else int(values.max())
        raise InvalidSetting(f"{name} has {worst}, which is not below {limit}")


def _published(path: Path, collection: str | None, side: str | None) -> PublishedFile:
    parts = path.resolve().parent.parts
    kinds = [place for place, part in enumerate(parts) if part in ("layout", "tile")]
    words = parts[kinds[-1] :] if kinds else ()
    found = ":".join(words[:-1]) if words and words[-1] in SIDES else None
    if found in COLLECTIONS and collection in (None, found):
        return PublishedFile(path, found, side or words[-1])
    if collection is None or side is None:
        raise InvalidSetting(
            f"{path} does not lie in a folder like layout/xla/random/train or tile/xla/valid. "
            "Say its collection and side: --collection layout:xla:random --side valid"
        )
    return PublishedFile(path, collection, side)
