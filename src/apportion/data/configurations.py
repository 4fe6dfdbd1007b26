"""A memory-mapped store of graphs and their configurations.

A store is a folder:

    COLLECTION/SIDE/NAME.safetensors    one graph: its arrays and, for each configuration and configurable
                                        node, the number of the layout that the node has
    store.json                          every graph with its size; written last

A node has few different layouts however many configurations there are (nine at most in the published
samples), so a table of them and one byte per configuration and node hold the same as eighteen floats: 1/72 of
the bytes, and not a bit is lost. Where some node has more than 256 layouts the numbers have two bytes.

N nodes, C configurations, M configurable nodes, K different options of all nodes together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.published.tpugraphs import COLLECTIONS, SIDES, TensorGraph
from apportion.data.tensors import map_tensors
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.settings import replace_file

FORMAT = 1
END = ".safetensors"


@dataclass(frozen=True, eq=False)
class ConfiguredGraph:
    """One graph with its configurations; arrays are mapped, so nothing is read before it is used."""

    name: str
    collection: str
    side: str
    arrays: dict[str, NDArray[Any]]

    @cached_property
    def graph(self) -> TensorGraph:
        """The graph itself."""
        names = ("node_opcode", "node_feat", "edge_index", "node_splits")
        return TensorGraph(*(self.arrays[name] for name in names))

    @property
    def configurations(self) -> int:
        """C; without duplicates if they were taken out."""
        return len(self.arrays["config_runtime"])

    @property
    def runtime(self) -> NDArray[Any]:
        """(C,) nanoseconds: whole ones as measured, or the means of duplicates; zeros in a test graph."""
        return self.arrays["config_runtime"]

    @cached_property
    def labelled(self) -> bool:
        """Whether runtimes are known: they are not in the published test graphs."""
        return bool(self.runtime.any())

    @property
    def truth(self) -> NDArray[np.float64]:
        """(C,) what a ranking is compared with: runtimes, for tiles in terms of the default's.

        Raises:
            InvalidSetting: the runtimes are not known.
        """
        if not self.labelled:
            raise InvalidSetting(
                f"{self.name}: its runtimes are all zero, as in a test file: there is no truth"
            )
        runtime = self.runtime.astype(np.float64)  # exact: nanoseconds of 100 days are below 2⁵³
        if "config_runtime_normalizers" in self.arrays:
            runtime /= self.arrays["config_runtime_normalizers"]
        return runtime

    @property
    def evaluation(self) -> NDArray[np.int64]:
        """Which configurations the publication evaluates; all where it does not say."""
        chosen: NDArray[np.int64] = self.arrays.get("evaluation", np.arange(self.configurations))
        return chosen

    @property
    def codes(self) -> NDArray[Any]:
        """(C, M) the number of each configurable node's option; (C, 1) for tiles."""
        return self.arrays["codes"]

    @property
    def option_counts(self) -> NDArray[np.int64]:
        """(M,) how many options each node has."""
        offsets = self.arrays["option_offset"]
        counts: NDArray[np.int64] = offsets[1:] - offsets[:-1]
        return counts

    def features(self, codes: NDArray[Any]) -> NDArray[np.float32]:
        """(…, M, 18) the layouts that codes stand for, exactly as they were; (…, 1, 24) for tiles."""
        offsets = self.arrays["option_offset"][:-1]
        features: NDArray[np.float32] = self.arrays["options"][offsets + codes]
        return features

    def sample(self, random: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Different configurations at random: indices (B,) and codes (B, M); all where there are fewer."""
        count = min(count, self.configurations)
        # Sorted, so that a map of a large file is gone through in one direction.
        chosen = np.sort(random.choice(self.configurations, count, replace=False, shuffle=False))
        return chosen, self.codes.take(chosen, axis=0)  # twice as fast as an index

    def in_order_of_files(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Scores (C,) as scores of the file's own configurations, duplicates included."""
        member = self.arrays.get("config_group")
        return scores if member is None else scores[member]


@dataclass(frozen=True, eq=False)
class ConfigurationStore:
    """All graphs of a store, each opened when it is asked for."""

    folder: Path
    entries: tuple[dict[str, Any], ...]
    fingerprint: str

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The store in a folder.

        Raises:
            UnreadableFile: there is none, or packing was not finished.
            MalformedInput: its description is damaged.
        """
        path = folder / "store.json"
        if not is_store(folder):
            raise UnreadableFile(
                f"There is no finished store in {folder}: store.json is missing. "
                f"Make one with: apportion rank pack NPZ_DIR --out {folder}"
            )
        try:
            description = json.loads(path.read_bytes())
            if description["format"] != FORMAT:
                raise ValueError(f"it has format {description['format']}, not {FORMAT}")
            return cls(folder, tuple(description["graphs"]), description["fingerprint"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MalformedInput(f"This is no description of a store ({error})", file=str(path)) from error

    def __len__(self) -> int:
        return len(self.entries)

    def graph(self, index: int) -> ConfiguredGraph:
        """One graph, opened now."""
        entry = self.entries[index]
        return open_graph(self.folder, entry["collection"], entry["side"], entry["name"])

    def graphs(self, *, collection: str | None = None, side: str | None = None) -> Iterator[ConfiguredGraph]:
        """The graphs of a collection, of a side of the split, or all."""
        for wanted, known, kind in (
            (collection, COLLECTIONS, "collection"),
            (side, SIDES, "side of the split"),
        ):
            if wanted is not None and wanted not in known:
                raise UnknownName(kind, wanted, known)
        for index, entry in enumerate(self.entries):
            if collection in (None, entry["collection"]) and side in (None, entry["side"]):
                yield self.graph(index)


def graph_path(folder: Path, collection: str, side: str, name: str) -> Path:
    """Where a store keeps a graph."""
    return folder / collection.replace(":", "-") / side / f"{name}{END}"


def open_graph(folder: Path, collection: str, side: str, name: str) -> ConfiguredGraph:
    """A graph of a store, finished or not."""
    arrays, _ = map_tensors(graph_path(folder, collection, side, name))
    return ConfiguredGraph(name, collection, side, arrays)


def is_store(folder: Path) -> bool:
    """Whether a folder holds a finished store."""
    return (folder / "store.json").is_file()


def describe(folder: Path, entries: list[dict[str, Any]]) -> ConfigurationStore:
    """Write store.json: the act that makes a folder of graphs a store."""
    fingerprint = hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:16]
    described = {"format": FORMAT, "fingerprint": fingerprint, "graphs": entries}
    replace_file(folder / "store.json", json.dumps(described, indent=1).encode())
    return ConfigurationStore.open(folder)
