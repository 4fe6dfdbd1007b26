"""Many program graphs in one Parquet file: a row per graph, list columns, written and read in parts.

A Parquet file cannot be appended to. So graphs are first written to part files of bounded size, and the parts
are then copied, row group by row group, into the one file: memory holds one part, never all graphs.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from apportion.errors import InvalidGraph, MalformedInput, UnreadableFile
from apportion.program.exchange import graph_of_arrays, records_of
from apportion.program.graph import ProgramGraph, StringTable
from apportion.settings import replace_file, whole_file

VERSION = "1"
"Of the columns below; written into the file, and a file of another version is refused."

SCHEMA: dict[str, pl.DataType] = {
    "name": pl.String(),  # what the graph was made from, usually a path
    "digest": pl.String(),  # of source and options, null when nobody said
    "node_type": pl.List(pl.UInt8),
    "node_text": pl.List(pl.Int32),  # number of a string
    "node_full_text": pl.List(pl.Int32),  # number of a string, -1 where there is none
    "node_function": pl.List(pl.Int32),
    "node_block": pl.List(pl.Int32),
    "edge_flow": pl.List(pl.UInt8),
    "edge_position": pl.List(pl.Int32),
    "edge_source": pl.List(pl.Int32),
    "edge_target": pl.List(pl.Int32),
    "strings": pl.List(pl.Binary),  # bytes: a name in a program need not be UTF-8
    "records": pl.String(),  # functions, module and node_features as in the JSON format
    "checksum": pl.UInt32(),  # CRC-32 of all of the above but name and digest: Parquet's pages carry none
}

PART_BYTES = 32 << 20
"About what one part, and so one row group, holds of arrays."

_VERSION_KEY = "apportion.program_graphs"
_ARRAYS = tuple(column for column, kind in SCHEMA.items() if kind in (pl.List(pl.UInt8), pl.List(pl.Int32)))
_FOREIGN = (PolarsError, PanicException, OSError)


class GraphRow(NamedTuple):
    """One graph with its name, and the digest of what it was made from."""

    name: str
    graph: ProgramGraph
    digest: str | None = None


def write_graphs(path: Path, graphs: Iterable[tuple[str, ProgramGraph]]) -> int:
    """Write named graphs, taken one by one, as one file; the number of graphs.

    The file appears when all is done: an iterable that raises leaves what was there before.

    Raises:
        UnreadableFile: the file cannot be written.
    """
    folder = _scratch(path)
    try:
        parts = [
            write_part(folder / f"{number:06}.parquet", part) for number, part in enumerate(_parts(graphs))
        ]
        merge(parts, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _rows(path)


def write_part(path: Path, rows: Sequence[GraphRow]) -> Path:
    """Write these rows as a file of their own, whole or not at all."""
    columns: dict[str, list[Any]] = {column: [] for column in SCHEMA}
    for name, graph, digest in rows:
        source, target = graph.edges
        held = {"edge_source": source, "edge_target": target}
        columns["name"].append(name)
        columns["digest"].append(digest)
        for column in _ARRAYS:
            # As a series: of arrays that happen to be equally long Polars would make an Array column.
            columns[column].append(pl.Series(held[column] if column in held else getattr(graph, column)))
        blob, bounds = graph.strings.data.tobytes(), graph.strings.offsets.tolist()
        columns["strings"].append([blob[start:end] for start, end in pairwise(bounds)])
        columns["records"].append(records := records_of(graph))
        columns["checksum"].append(_checksum(graph, records))
    series = [pl.Series(column, columns[column], dtype=kind) for column, kind in SCHEMA.items()]
    buffer = BytesIO()
    pl.DataFrame(series).write_parquet(buffer, metadata={_VERSION_KEY: VERSION})
    replace_file(path, buffer.getvalue())
    return path


def merge(parts: Sequence[Path], path: Path, *, digests: Sequence[str] | None = None) -> None:
    """Make one file of part files, in their order; it appears when all is done, and may itself be a part.

    Args:
        parts: files that `write_part` or `merge` wrote.
        path: the file to make.
        digests: keep only the rows of these; None keeps all.

    Raises:
        UnreadableFile: a part cannot be read, or the file cannot be written.
    """
    if not parts:
        write_part(path, [])
        return
    size = sum(part.stat().st_size for part in parts)
    rows = _rows(*parts)
    within = _rows_within(PART_BYTES, rows, size)
    try:
        rows_in = pl.scan_parquet(list(parts), schema=SCHEMA)
        if digests is not None:
            rows_in = rows_in.filter(pl.col("digest").is_in(list(digests)))
        with whole_file(path) as part:
            rows_in.sink_parquet(part, row_group_size=within, metadata={_VERSION_KEY: VERSION})
    except _FOREIGN as error:
        raise UnreadableFile(f"Cannot write {path}: {error}") from error


def read_graphs(path: Path) -> Iterator[tuple[str, ProgramGraph]]:
    """The named graphs of a file, in order, a part at a time.

    Raises:
        UnreadableFile: the file is not there or is no Parquet.
        MalformedInput: it holds something else than graphs, another version, or a graph that is none.
    """
    for row in read_rows(path):
        yield row.name, row.graph


def read_rows(path: Path) -> Iterator[GraphRow]:
    """Like `read_graphs`, with digests."""
    check(path)
    rows = _rows(path)
    step = _rows_within(PART_BYTES, rows, path.stat().st_size)
    for start in range(0, rows, step):
        try:
            frame = pl.scan_parquet(path).slice(start, step).collect()
        except _FOREIGN as error:
            raise UnreadableFile(f"{path} is damaged: {error}") from error
        for number, record in enumerate(_records(frame), start):
            yield _row(record, path, number)


def digests(path: Path) -> dict[str, str | None]:
    """Name → digest of every row, read without the graphs."""
    check(path)
    frame = pl.read_parquet(path, columns=["name", "digest"])
    return dict(zip(frame["name"], frame["digest"], strict=True))


def check(path: Path) -> None:
    """See that a file holds program graphs of this version.

    Raises:
        UnreadableFile: the file is not there or is no Parquet.
        MalformedInput: it holds something else.
    """
    try:
        version = pl.read_parquet_metadata(path).get(_VERSION_KEY)
        found = pl.read_parquet_schema(path)
    except _FOREIGN as error:
        raise UnreadableFile(f"Cannot read {path} as Parquet: {error}") from error
    if version is None:
        raise MalformedInput("A Parquet file, but not one of program graphs", file=str(path))
    if version != VERSION:
        raise MalformedInput(
            f"Program graphs of version {version}, but this apportion reads version {VERSION}", file=str(path)
        )
    if found != SCHEMA:
        wrong = next(column for column in {**SCHEMA, **found} if found.get(column) != SCHEMA.get(column))
        raise MalformedInput(
            f"The column {wrong!r} is {found.get(wrong, 'missing')}, not {SCHEMA.get(wrong, 'there')}",
            file=str(path),
        )


def _parts(graphs: Iterable[tuple[str, ProgramGraph]]) -> Iterator[list[GraphRow]]:
    """The graphs in lists of about `PART_BYTES`."""
    part: list[GraphRow] = []
    held = 0
    for name, graph in graphs:
        part.append(GraphRow(name, graph))
        held += graph.nbytes + graph.strings.data.nbytes + graph.strings.offsets.nbytes
        if held >= PART_BYTES:
            yield part
            part, held = [], 0
    if part:
        yield part


def _row(record: dict[str, Any], path: Path, number: int) -> GraphRow:
    if any(record[column] is None for column in SCHEMA if column != "digest"):
        raise MalformedInput(f"Row {number} has a value missing", file=str(path))
    arrays = {column: np.array(record[column], copy=True) for column in _ARRAYS}
    try:
        arrays["edges"] = np.vstack([arrays.pop("edge_source"), arrays.pop("edge_target")])
        texts: list[bytes] = record["strings"].to_list()
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        strings = StringTable(np.frombuffer(b"".join(texts), np.uint8).copy(), offsets)
        graph = graph_of_arrays(arrays, strings, json.loads(record["records"]), name=str(path))
    except (InvalidGraph, ValueError, TypeError) as error:
        raise MalformedInput(
            f"Row {number} ({record['name']}) is no graph: {error}", file=str(path)
        ) from error
    if _checksum(graph, record["records"]) != record["checksum"]:
        raise MalformedInput(
            f"Row {number} ({record['name']}) is damaged: its checksum is wrong", file=str(path)
        )
    return GraphRow(record["name"], graph, record["digest"])


def _checksum(graph: ProgramGraph, records: str) -> int:
    arrays = (
        graph.node_type, graph.node_text, graph.node_full_text, graph.node_function, graph.node_block,
        graph.edge_flow, graph.edge_position, graph.edges, graph.strings.data, graph.strings.offsets,
    )  # fmt: skip
    value = zlib.crc32(records.encode("ascii", "backslashreplace"))
    for array in arrays:
        value = zlib.crc32(np.ascontiguousarray(array).data, value)
    return value


def _records(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for number in range(len(frame)):
        yield {column: frame[column][number] for column in SCHEMA}


def _rows(*paths: Path) -> int:
    return int(pl.scan_parquet(list(paths)).select(pl.len()).collect().item())


def _rows_within(size: int, rows: int, total: int) -> int:
    """How many rows of a file make about so many bytes of memory, if compression made a third of them."""
    return max(1, min(rows, size * rows // max(1, 3 * total)))


def _scratch(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise UnreadableFile(f"Cannot write {path}: {error.strerror or error}") from error
