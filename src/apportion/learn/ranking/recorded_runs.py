"""GraphRuns: every run of every configuration of one graph, and the file that holds them.

A folder of a collection:

    runs/NAME.npz               what was measured: parameters, every repeat, failures with their reasons
    tile/xla/train/NAME.npz     the same as TpuGraphs publishes it, with the graph's features; those of our
    layout/xla/random/train/…   arrays that TpuGraphs does not know stand beside the published ones

C configurations that ran and gave the right result, F that did not, R repeats, P parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.npz import Member, NpzFile
from apportion.data.published.tpugraphs import (
    TILE_FEATURES,
    LayoutFile,
    TensorGraph,
    TileFile,
    published_arrays,
    write_arrays,
)
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.learn.ranking.measures import agreement, slowdown
from apportion.measure.space import Configuration
from apportion.program.hlo.module import HloGraph

_BOUNDS = TILE_FEATURES // 3 - 2
"Dimensions of each of the three bounds; their sum and product follow."
_MEMBERS: dict[str, Member] = {
    "parameters": ("int64", 2), "repeats": ("int64", 2), "tile_features": ("float32", 2),
    "failed_parameters": ("int64", 2), "default": ("int64", 1),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class GraphRuns:
    """What was measured of one graph."""

    name: str
    "FAMILY.SHAPE."
    device: str
    parameter_names: tuple[str, ...]
    parameters: NDArray[np.int64]  # (C, P)
    repeats: NDArray[np.int64]  # (C, R) nanoseconds, in the order in which they were measured; 0 was not run
    tile_features: NDArray[np.float32]  # (C, 24), or (C, 0) for layouts
    default: int
    "The heuristic's configuration among the C; -1 when it failed."
    failed_parameters: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))  # (F, P)
    failed_reasons: tuple[str, ...] = ()
    compiled: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    "Name → (C,): what the compiler said of each configuration, known before anything is run."
    operands: tuple[str, ...] = ()
    "The shapes of the function's arguments, as HLO writes them."

    def __post_init__(self) -> None:
        count = len(self.parameters)
        if self.repeats.ndim != 2 or len(self.repeats) != count or len(self.tile_features) != count:
            raise InvalidSetting(
                f"{self.name}: there are not repeats and features for all {count} configurations"
            )
        if count and not (self.repeats > 0).any(axis=1).all():
            at = int((self.repeats > 0).any(axis=1).argmin())
            raise InvalidSetting(f"{self.name}: configuration {at} was never measured")
        if not -1 <= self.default < max(count, 1):
            raise InvalidSetting(f"{self.name}: the default is configuration {self.default} of {count}")
        if len(self.failed_parameters) != len(self.failed_reasons):
            raise InvalidSetting(f"{self.name}: each failed configuration needs its reason")

    @property
    def family(self) -> str:
        """What stands before the shape in the name."""
        return self.name.partition(".")[0]

    @property
    def configurations(self) -> int:
        """C."""
        return len(self.parameters)

    @property
    def runtime(self) -> NDArray[np.int64]:
        """(C,) the median of each configuration's repeats, in nanoseconds."""
        return medians(self.repeats)

    @property
    def normalizers(self) -> NDArray[np.int64]:
        """(C,) the default configuration's runtime; the median one's when the default failed."""
        runtime = self.runtime
        value = runtime[self.default] if self.default >= 0 else np.sort(runtime)[len(runtime) // 2]
        return np.full(len(runtime), value, np.int64)

    def write(self, path: Path) -> None:
        """Write everything, whole or not at all."""
        arrays: dict[str, Any] = {
            "parameters": self.parameters, "repeats": np.ascontiguousarray(self.repeats),
            "tile_features": self.tile_features,
            "default": np.array([self.default]), "failed_parameters": self.failed_parameters,
            "failed_reasons": np.array(self.failed_reasons, np.str_), "device": np.array([self.device]),
            "parameter_names": np.array(self.parameter_names), "operands": np.array(self.operands, np.str_),
            **{f"compiled_{name}": values for name, values in self.compiled.items()},
        }  # fmt: skip
        write_arrays(path, arrays)

    @classmethod
    def read(cls, path: Path) -> Self:
        """What a file of `runs/` holds.

        Raises:
            UnreadableFile, MalformedInput: there is none, or it is damaged.
        """
        with NpzFile(path, _MEMBERS) as file:
            arrays = {name: file.read(name) for name in _MEMBERS}
            with np.load(path, allow_pickle=False) as archive:
                words = {
                    name: tuple(str(word) for word in archive[name])
                    for name in ("failed_reasons", "device", "parameter_names", "operands")
                }
                compiled = {
                    name.removeprefix("compiled_"): archive[name]
                    for name in archive.files
                    if name.startswith("compiled_")
                }
            try:
                return cls(
                    path.name.removesuffix(".npz"), words["device"][0], words["parameter_names"],
                    arrays["parameters"], arrays["repeats"], arrays["tile_features"],
                    int(arrays["default"][0]), arrays["failed_parameters"], words["failed_reasons"], compiled,
                    words["operands"],
                )  # fmt: skip
            except InvalidSetting as error:
                raise file.broken(str(error)) from error

    def write_tile(self, path: Path, graph: HloGraph) -> None:
        """Write it as TpuGraphs publishes tiles, our own arrays beside."""
        self._publish(path, TileFile(_tensor(graph), self.tile_features, self.runtime, self.normalizers))

    def write_layout(
        self, path: Path, graph: HloGraph, nodes: NDArray[np.int64], features: NDArray[np.float32]
    ) -> None:
        """Write it as TpuGraphs publishes layouts, our own arrays beside.

        Args:
            path: the file.
            graph: of the program.
            nodes: (M,) which of its nodes have layouts.
            features: (C, M, 18) what they are.
        """
        self._publish(path, LayoutFile(_tensor(graph), nodes, self.runtime, features))

    def _publish(self, path: Path, published: TileFile | LayoutFile) -> None:
        own = {
            "config_repeats": np.ascontiguousarray(self.repeats), "config_parameters": self.parameters,
            "parameter_names": np.array(self.parameter_names), "default": np.array([self.default]),
            **{f"compiled_{name}": values for name, values in self.compiled.items()},
        }  # fmt: skip
        write_arrays(path, {**published_arrays(published), **own})


def _tensor(graph: HloGraph) -> TensorGraph:
    return TensorGraph(graph.node_opcode, graph.node_feat, graph.edge_index, graph.node_splits)


@dataclass(frozen=True)
class Ceiling:
    """How well one half of the repeats ranks by the other: no model can be asked for more."""

    tau_b: float
    opa: float
    slowdown: float
    "Of the configuration that is best by one half, by the other half's runtimes."


def ceiling(repeats: NDArray[np.int64]) -> Ceiling:
    """Of a graph's repeats (C, R): every second one against the others.

    Raises:
        InvalidSetting: a configuration has fewer than two repeats.
    """
    if (
        repeats.shape[1] < 2
        or not ((repeats[:, ::2] > 0).any(axis=1) & (repeats[:, 1::2] > 0).any(axis=1)).all()
    ):
        raise InvalidSetting("A ceiling needs two repeats of every configuration")
    halves = medians(repeats[:, ::2]), medians(repeats[:, 1::2])
    pairs = agreement(*halves)
    lost = (slowdown(halves[0], halves[1], 1) + slowdown(halves[1], halves[0], 1)) / 2
    return Ceiling(pairs.tau_b, pairs.opa, lost)


def medians(repeats: NDArray[np.int64]) -> NDArray[np.int64]:
    """(C,) of the repeats that were run."""
    rows = np.where(repeats > 0, repeats.astype(np.float64), np.nan)
    middle: NDArray[np.int64] = np.maximum(np.nanmedian(rows, axis=1), 1).round().astype(np.int64)
    return middle


def read_runs(folder: Path) -> Iterator[GraphRuns]:
    """Every graph that a folder holds, in order of their names."""
    for path in sorted((folder / "runs").glob("*.npz")):
        yield GraphRuns.read(path)


def collected(folder: Path) -> list[GraphRuns]:
    """Every graph that a folder holds.

    Raises:
        UnreadableFile: it holds none.
    """
    runs = list(read_runs(folder))
    if not runs:
        raise UnreadableFile(
            f"There are no runs in {folder}: `python -m reproduction collect measure` makes some"
        )
    return runs


def tile_features(
    one: Configuration, launch: Sequence[str], output: Sequence[str], reduced: Sequence[str]
) -> NDArray[np.float32]:
    """(24,) a configuration in the three bounds of TpuGraphs: kernel, output, input.

    The kernel's stand for how it is launched, the output's for the tile of the result, the input's for the
    tile of what is reduced. A parameter that the kernel has not is 1, so that a column means the same in all.
    """
    row = np.zeros(TILE_FEATURES, np.float32)
    for place, names in enumerate((launch, output, reduced)):
        values = [int(one.get(name, 1)) for name in names]
        first = place * (_BOUNDS + 2)
        row[first : first + len(values)] = values
        if values:
            row[first + _BOUNDS], row[first + _BOUNDS + 1] = sum(values), np.prod(values)
    return row


LAUNCH = ("num_warps", "num_stages", "GROUP", "SPLIT")
"What the bounds of the kernel stand for, in this order."
