"""The files of a data-flow store: what each column means, how it is written, and what is checked on reading.

A store is a folder:

    store.json        tasks, sources, settings, and the size and checksum of every column; written last
    vocabulary.csv    the texts that node numbers stand for; the last number is every other text
    names.txt         the file that each graph came from, one per line
    columns/*.npy     flat arrays. Graph g has the nodes node_offset[g]:node_offset[g + 1] and the edges
                      edge_offset[g]:edge_offset[g + 1], whose ends are counted within the graph. Instance k
                      has the bytes label_offset[k]:label_offset[k + 1] of `labels`: node v is bit v % 8 of
                      byte v // 8
    failures.jsonl    the files that are not in it, and why

Numbers have the smallest type that holds them all. G graphs, N nodes, E edges, K instances.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from apportion.data.npz import DAMAGE
from apportion.errors import MalformedInput
from apportion.settings import replace_file

FORMAT = 1
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")

GRAPH_COLUMNS = ("graph_split", "graph_source")
NODE_COLUMNS = ("node_text",)
EDGE_COLUMNS = ("edge_source", "edge_target", "edge_flow", "edge_position")
INSTANCE_COLUMNS = ("instance_graph", "instance_task", "instance_root", "instance_steps", "instance_active")
OFFSET_COLUMNS = ("node_offset", "edge_offset", "label_offset")
COLUMNS = (*GRAPH_COLUMNS, *NODE_COLUMNS, *EDGE_COLUMNS, *INSTANCE_COLUMNS, *OFFSET_COLUMNS, "labels")
FILES = ("store.json", "vocabulary.csv", "names.txt", *(f"columns/{name}.npy" for name in COLUMNS))
"Every file that a store needs to be read."

REMEDY = "Build the store again into an empty folder, or copy it again from where it came."


def describe(
    folder: Path, tasks: tuple[str, ...], sources: tuple[str, ...], settings: Mapping[str, Any]
) -> None:
    """Write store.json over the columns that lie in a folder: the act that makes it a store."""
    columns = {}
    for name in COLUMNS:
        path = column_path(folder, name)
        array = np.load(path, mmap_mode="r")
        columns[name] = {
            "dtype": array.dtype.str, "length": len(array),
            "bytes": path.stat().st_size, "crc32": checksum(path),
        }  # fmt: skip
    contents = hashlib.sha256(json.dumps(columns, sort_keys=True).encode())
    contents.update((folder / "vocabulary.csv").read_bytes())
    description = {
        "format": FORMAT, "fingerprint": contents.hexdigest()[:16], "tasks": tasks, "sources": sources,
        "settings": dict(settings), "columns": columns,
    }  # fmt: skip
    replace_file(folder / "store.json", json.dumps(description, indent=1).encode())


def write_names(folder: Path, names: list[str]) -> None:
    """Write the names of the graphs; a line break in a file's name becomes a blank."""
    text = "".join(" ".join(name.splitlines()) + "\n" for name in names)
    (folder / "names.txt").write_text(text, "utf-8", "surrogateescape")


def create_column(folder: Path, name: str, largest: int, length: int) -> NDArray[Any]:
    """A new column, mapped for writing, of the smallest type that holds `largest`."""
    dtype = np.min_scalar_type(largest)
    return npy.open_memmap(column_path(folder, name), mode="w+", dtype=dtype, shape=(length,))


def column_path(folder: Path, name: str) -> Path:
    """Where a store keeps a column."""
    return folder / "columns" / f"{name}.npy"


def mapped(folder: Path, name: str, entry: Mapping[str, Any]) -> NDArray[Any]:
    """A column, mapped for reading, if its size and type are those that store.json says.

    Raises:
        MalformedInput: they are not; the message names the file and what to do.
    """
    path = column_path(folder, name)
    try:
        size = path.stat().st_size
        if size != entry["bytes"]:
            problem = f"It has {size:,} bytes instead of {entry['bytes']:,}: it was cut short or replaced"
            raise MalformedInput(f"{problem}. {REMEDY}", file=str(path))
        array: NDArray[Any] = np.load(path, mmap_mode="r")
    except OSError as error:
        raise MalformedInput(f"Cannot read it: {error.strerror}. {REMEDY}", file=str(path)) from error
    except DAMAGE as error:
        if isinstance(error, MalformedInput):
            raise
        raise MalformedInput(f"This is no column of a store ({error}). {REMEDY}", file=str(path)) from error
    if array.dtype.str != entry["dtype"] or array.shape != (entry["length"],):
        raise MalformedInput(
            f"It holds {array.shape} numbers of type {array.dtype.str}, not ({entry['length']},) of "
            f"{entry['dtype']}. {REMEDY}",
            file=str(path),
        )
    return array


def checksum(path: Path) -> int:
    """The CRC-32 of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value
