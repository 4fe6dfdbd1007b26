"""The rows of the ablation as arrays: graphs, inputs, labels and origins, in one file that travels."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.batch import Graph
from apportion.data.folds import Origins
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.learn.shares.colours import GraphSet
from apportion.learn.shares.kernel_table import KernelTable
from apportion.program.llvm import graph_of_ir
from apportion.program.vocabulary import Vocabulary
from reproduction.ablation.launches import launches_of


@dataclass(frozen=True, eq=False)
class PairRows:
    """What was measured of every row with one pair of devices. Letters for shapes: R rows."""

    inputs: NDArray[np.float32]  # (R, 2): logarithms of work-group size and bytes moved
    shares: NDArray[np.float64]  # (R,) the CPU's, in percent
    to_gpu: NDArray[np.float64]  # (R,) 1 where the GPU is faster
    launch: NDArray[np.float32]  # (R, len(LAUNCH)): see `reproduction.ablation.launches`


@dataclass(frozen=True, eq=False)
class AblationData:
    """Rows of all pairs of devices, which share graphs and origins."""

    graphs: GraphSet
    graph: NDArray[np.int64]  # (R,)
    origins: Origins
    pairs: Mapping[str, PairRows]
    rows_published: int

    @property
    def digest(self) -> str:
        """SHA-256 over graphs, inputs and labels: what results rest on."""
        sum_ = hashlib.sha256()
        for name in _GRAPH_FIELDS:
            sum_.update(np.ascontiguousarray(getattr(self.graphs, name), np.int64).tobytes())
        sum_.update(np.ascontiguousarray(self.graph, np.int64).tobytes())
        for pair in sorted(self.pairs):
            rows = self.pairs[pair]
            for values in (rows.inputs, rows.shares, rows.to_gpu):
                sum_.update(np.ascontiguousarray(values, np.float64).tobytes())
        return sum_.hexdigest()

    @property
    def launch_digest(self) -> str:
        """The same over what is known of the launches."""
        sum_ = hashlib.sha256()
        for pair in sorted(self.pairs):
            sum_.update(np.ascontiguousarray(self.pairs[pair].launch, np.float32).tobytes())
        return sum_.hexdigest()


_GRAPH_FIELDS = ("text", "start", "edge_start", "source", "target", "flow", "position")
_CODES = ("source", "graph")
_NAMES = ("application", "suite")


def data_of(tables: Mapping[str, KernelTable], vocabulary: Vocabulary) -> AblationData:
    """The rows of some tables, which must name the same kernels in the same order."""
    first = next(iter(tables.values()))
    names = [example.name for example in first.examples]
    if any([example.name for example in table.examples] != names for table in tables.values()):
        raise InvalidSetting("The tables of the pairs of devices must hold the same rows in the same order")
    numbers: dict[bytes, int] = {}
    by_ir: dict[str, int] = {}
    graphs: list[Graph] = []
    for example in first.examples:
        if example.ir in by_ir:
            continue
        built = graph_of_ir(example.ir, name=example.name)
        text = vocabulary.ids(built)
        key = b"|".join(
            np.ascontiguousarray(values).tobytes()
            for values in (text, built.edges, built.edge_flow, built.edge_position)
        )
        by_ir[example.ir] = numbers.setdefault(key, len(numbers))
        if by_ir[example.ir] == len(graphs):
            graphs.append(
                Graph(
                    text.astype(np.int32), built.edges, built.edge_flow, built.edge_position.astype(np.int32)
                )
            )
    return AblationData(
        GraphSet.of(graphs),
        np.array([by_ir[example.ir] for example in first.examples]),
        first.origins,
        {pair: _pair(table) for pair, table in tables.items()},
        first.rows_published,
    )


def _pair(table: KernelTable) -> PairRows:
    sizes = [[example.work_group, example.bytes_moved] for example in table.examples]
    inputs = np.log1p(np.array(sizes, np.float64)).astype(np.float32)
    return PairRows(inputs, table.shares, table.to_gpu, launches_of(table.examples))


def pack(data: AblationData, path: Path) -> None:
    """Write everything that training needs, and no source text, to one compressed file."""
    arrays: dict[str, NDArray[Any]] = {
        f"graphs/{name}": _small(getattr(data.graphs, name)) for name in _GRAPH_FIELDS
    }
    for name in _CODES:
        values = getattr(data.origins, name)
        arrays[f"origins/{name}"] = _small(np.unique(np.array(values, object), return_inverse=True)[1])
    arrays |= {f"origins/{name}": np.array(getattr(data.origins, name)) for name in _NAMES}
    for pair, rows in data.pairs.items():
        arrays |= {f"{pair}/{name}": values for name, values in vars(rows).items()}
    arrays |= {"graph": _small(data.graph), "rows_published": np.array([data.rows_published])}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def unpack(path: Path) -> AblationData:
    """What `pack` wrote.

    Raises:
        UnreadableFile, MalformedInput: there is none, or it lacks something.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    except (ValueError, zipfile.BadZipFile) as error:
        raise MalformedInput(
            f"is no archive of arrays, or was cut short ({error})", file=str(path)
        ) from error
    try:
        graphs = GraphSet(**{name: arrays[f"graphs/{name}"].astype(np.int64) for name in _GRAPH_FIELDS})
        origins = {name: tuple(arrays[f"origins/{name}"].tolist()) for name in (*_CODES, *_NAMES)}
        pairs = {
            name.partition("/")[0]: PairRows(
                *(arrays[f"{name.partition('/')[0]}/{field}"] for field in PairRows.__dataclass_fields__)
            )
            for name in arrays
            if name.endswith("/shares")
        }
        graph, published = arrays["graph"].astype(np.int64), int(arrays["rows_published"][0])
    except KeyError as error:
        raise MalformedInput(f"lacks the array {error}", file=str(path)) from error
    return AblationData(graphs, graph, Origins(**origins), pairs, published)


def _small(values: NDArray[np.int64]) -> NDArray[Any]:
    return values.astype(np.int32)
