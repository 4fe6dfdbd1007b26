"""Rankers compared on a collection of our own: trained on some graphs, tested on unseen shapes or kernels.

Graphs are called KERNEL.SHAPE. Under `shapes` every kernel is learned from with other shapes than it is
tested with; under `kernels` the kernels that are tested were not learned from at all. Every fold's result is
kept in a file of JSON Lines, so that an interrupted comparison goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.configurations import ConfiguredGraph
from apportion.data.folds import Fold
from apportion.data.npz import Member, NpzFile
from apportion.data.packing import OptionTable
from apportion.data.published.tpugraphs import SPLITS_MEMBER, TILE_MEMBERS, read_tile
from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.learn import rankers
from apportion.learn.metrics import Interval
from apportion.learn.model import Optimisation
from apportion.learn.ranking.measures import over_graphs_and_seeds
from apportion.learn.ranking.rankings import RankedGraph, ranked
from reproduction.ranking.kept import KeptRankings, Silence

Protocol = Literal["shapes", "kernels"]
PROTOCOLS: tuple[Protocol, ...] = ("shapes", "kernels")
MEASURES = ("tile_score", "slowdown@1", "opa", "tau_b", "speedup")
"`speedup` is of the configuration ranked first over the heuristic's default."
DEFAULT, CHANCE, HALF = "heuristic default", "random", "other half of the repeats"
"Rows that no ranker is trained for."
_DRAWS = 20
_OWN: dict[str, Member] = {
    "config_repeats": ("int64", 2), "default": ("int64", 1), "config_parameters": ("int64", 2),
    **{f"compiled_{name}": ("int64", 1) for name in ("registers", "spills", "shared_bytes", "programs")},
}  # fmt: skip
"Arrays that `python -m reproduction collect measure` writes beside the published ones."


@dataclass(frozen=True)
class Entry:
    """One row of the table: a ranker, or several whose scores are averaged."""

    name: str
    model: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    optimisation: Optimisation = field(default_factory=Optimisation)
    device: str = "cpu"
    "Where a network is trained: cpu or cuda."

    def __post_init__(self) -> None:
        if self.model not in rankers:
            raise UnknownName("ranker", self.model, rankers.names())


@dataclass(frozen=True)
class CollectionComparison:
    """What is compared, and how."""

    rows: tuple[Entry, ...]
    folds: int = 5
    "Of unseen shapes."
    kernel_folds: int = 6
    "Of unseen kernels: each kernel is tested in one of them."
    seeds: int = 1
    "How often, each time with other folds and other draws."

    def __post_init__(self) -> None:
        for name in ("folds", "kernel_folds"):
            if getattr(self, name) < 2:
                raise InvalidSetting(f"{name} must be at least 2, not {getattr(self, name)}")
        names = [row.name for row in self.rows]
        if self.seeds < 1 or len(set(names)) < len(names):
            raise InvalidSetting("seeds must be at least 1, and each row needs a name of its own")


@dataclass(frozen=True)
class CollectionScore:
    """A row's measures under one protocol."""

    row: str
    protocol: str
    graphs: int
    seeds: int
    pairs: int
    measures: dict[str, Interval]


def read_collection(folder: Path) -> list[ConfiguredGraph]:
    """The tile graphs below a folder, with every repeat and what the compiler said where files have them.

    Raises:
        UnreadableFile, MalformedInput: there are none, or one is not as published.
    """
    paths = sorted(path for path in folder.rglob("*.npz") if path.parent.parent.parts[-2:] == ("tile", "xla"))
    if not paths:
        raise UnreadableFile(f"There is no collection of tiles in {folder}: no tile/xla/SIDE/NAME.npz")
    return [_read(path) for path in paths]


def _read(path: Path) -> ConfiguredGraph:
    tile = read_tile(path)
    table = OptionTable(1)
    arrays: dict[str, NDArray[Any]] = {
        "node_opcode": tile.graph.node_opcode, "node_feat": tile.graph.node_feat,
        "edge_index": tile.graph.edge_index, "node_splits": tile.graph.node_splits,
        "config_runtime": tile.config_runtime, "config_runtime_normalizers": tile.config_runtime_normalizers,
        "codes": table.codes(tile.config_feat[:, None]), **table.arrays(tile.config_feat.shape[1]),
    }  # fmt: skip
    with NpzFile(path, TILE_MEMBERS, {**SPLITS_MEMBER, **_OWN}) as file:
        arrays |= {name: file.read(name) for name in _OWN if name in file.shapes}
    return ConfiguredGraph(path.name.removesuffix(".npz"), "tile:xla", path.parent.name, arrays)


def folds_of(names: Sequence[str], protocol: Protocol, count: int, *, seed: int = 0) -> list[Fold]:
    """Folds over graphs called KERNEL.SHAPE; each graph is tested once, a tenth of the others validates.

    Raises:
        InvalidSetting: there are fewer kernels, or fewer graphs, than folds; or a kernel has one shape only.
    """
    kernels = [name.split(".")[0] for name in names]
    random = np.random.default_rng(seed)
    part = np.empty(len(names), np.int64)
    different = sorted(set(kernels))
    if protocol == "kernels":
        if len(different) < count:
            raise InvalidSetting(f"{len(different)} kernels do not make {count} folds")
        place = dict(zip(different, random.permutation(len(different)) % count, strict=True))
        part[:] = [place[kernel] for kernel in kernels]
    else:
        for number, kernel in enumerate(different):
            own = np.flatnonzero(np.array(kernels) == kernel)
            if len(own) < 2:
                raise InvalidSetting(f"{kernel} has one shape: nothing is left to learn of it without that")
            part[own] = (random.permutation(len(own)) + number) % count
    made = []
    for fold in range(count):
        test, rest = np.flatnonzero(part == fold), np.flatnonzero(part != fold)
        chosen = np.random.default_rng([seed, fold]).permutation(len(rest))[: max(1, len(rest) // 10)]
        validation = np.sort(rest[chosen])
        made.append(Fold(f"{fold + 1} of {count}", np.setdiff1d(rest, validation), validation, test))
    return made


def usable(comparison: CollectionComparison, graphs: Sequence[ConfiguredGraph]) -> CollectionComparison:
    """What of a comparison a collection allows.

    Rows that learn from what the compiler said are left out where graphs do not say it, and there are no more
    folds of unseen kernels than kernels.
    """
    said = all("compiled_registers" in graph.arrays for graph in graphs)
    rows = tuple(row for row in comparison.rows if said or not _needs_compiler(row))
    kernels = len({graph.name.split(".")[0] for graph in graphs})
    return replace(comparison, rows=rows, kernel_folds=min(comparison.kernel_folds, max(2, kernels)))


def _needs_compiler(row: Entry) -> bool:
    said = json.dumps(row.hyperparameters)  # of its members, too
    return '"compiled"' in said or '"relative"' in said


def fingerprint(graphs: Sequence[ConfiguredGraph]) -> str:
    """Of all runtimes: two collections with the same one are the same."""
    return hashlib.sha256(b"".join(graph.runtime.tobytes() for graph in graphs)).hexdigest()[:16]


def compare(
    comparison: CollectionComparison,
    graphs: Sequence[ConfiguredGraph],
    results: Path,
    *,
    report: Callable[[str], None],
) -> list[CollectionScore]:
    """Every row under both protocols; folds that `results` has already are not run again."""
    kept = KeptRankings(results)
    tested: dict[tuple[str, str], list[dict[str, RankedGraph]]] = {}
    for unit in ranking_units(comparison, graphs):
        seeds = tested.setdefault((unit.protocol, unit.row.name), [{} for _ in range(comparison.seeds)])
        found = kept.get(unit.made_from, partial(unit.make, graphs, report))
        seeds[unit.seed] |= {one.name: one for one in found}
    scores = []
    for protocol in PROTOCOLS:
        for row in comparison.rows:
            seeds = tested[protocol, row.name]
            scores.append(
                _score(row.name, protocol, [[one[graph.name] for graph in graphs] for one in seeds])
            )
        scores += without_training(graphs, protocol)
    return scores


@dataclass(frozen=True)
class RankingUnit:
    """A row that learns from one fold: what is made at once, and kept."""

    row: Entry
    protocol: Protocol
    seed: int
    fold: Fold
    data: str
    "The fingerprint of the graphs."

    @property
    def made_from(self) -> list[Any]:
        """Everything that the result depends on."""
        return [
            _learned(self.row), self.protocol, self.seed, self.fold.name, self.fold.test.tolist(), self.data
        ]  # fmt: skip

    def make(self, graphs: Sequence[ConfiguredGraph], report: Callable[[str], None]) -> list[RankedGraph]:
        """The graphs that are tested, ranked."""
        report(f"{self.row.name}, unseen {self.protocol}, seed {self.seed}, fold {self.fold.name}")
        return _tested(self.row, graphs, self.fold, self.seed)


def ranking_units(comparison: CollectionComparison, graphs: Sequence[ConfiguredGraph]) -> list[RankingUnit]:
    """All units of a comparison: one protocol after the other."""
    data, names = fingerprint(graphs), [graph.name for graph in graphs]
    return [
        RankingUnit(row, protocol, seed, fold, data)
        for protocol in PROTOCOLS
        for row in comparison.rows
        for seed in range(comparison.seeds)
        for fold in folds_of(
            names, protocol, comparison.folds if protocol == "shapes" else comparison.kernel_folds, seed=seed
        )
    ]


def without_training(graphs: Sequence[ConfiguredGraph], protocol: str) -> Iterator[CollectionScore]:
    """The rows that need no ranker: random order, the heuristic's default, and the repeats' other half."""
    random = np.random.default_rng(0)
    draws = [
        [measured(graph, random.random(graph.configurations)) for graph in graphs] for _ in range(_DRAWS)
    ]
    yield _score(CHANCE, protocol, draws)
    yield _score(DEFAULT, protocol, [[_default(graph) for graph in graphs]])
    if all("config_repeats" in graph.arrays for graph in graphs):
        yield _score(HALF, protocol, [[_half(graph) for graph in graphs]])


def measured(graph: ConfiguredGraph, scores: NDArray[Any]) -> RankedGraph:
    """How well scores rank a graph, with the speed of their first over the default's."""
    found = ranked(graph, scores)
    first = float(graph.truth[int(np.argmin(scores))])
    return RankedGraph(**{**vars(found), "measures": {**found.measures, "speedup": 1 / first}})


def _learned(row: Entry) -> dict[str, Any]:
    """What decides a row's answers; where it was trained does not."""
    return {name: value for name, value in asdict(row).items() if name != "device"}


def _tested(row: Entry, graphs: Sequence[ConfiguredGraph], fold: Fold, seed: int) -> list[RankedGraph]:
    ranker = rankers.load(row.model).create(
        row.hyperparameters, optimisation=row.optimisation, seed=seed, device=row.device
    )
    learned = fold.train if ranker.chooses else fold.learnable
    ranker.fit([graphs[i] for i in learned], [graphs[i] for i in fold.validation], Silence())
    return [measured(graphs[i], ranker.scores(graphs[i])) for i in fold.test]


def _default(graph: ConfiguredGraph) -> RankedGraph:
    """The default alone: it chooses one configuration, and orders nothing."""
    best = float(graph.truth.min())
    lost = 1 / best - 1
    measures = {"tile_score": 1 - lost, "slowdown@1": lost, "opa": 0.5, "tau_b": 0.0, "speedup": 1.0}
    return RankedGraph(graph.name, graph.collection, graph.configurations, 0, 0, measures)


def _half(graph: ConfiguredGraph) -> RankedGraph:
    """The medians of one half of the repeats, as scores, against those of the other."""
    repeats = graph.arrays["config_repeats"]
    halves = [_medians(repeats[:, start::2]) for start in (0, 1)]
    default = float(graph.arrays["config_runtime_normalizers"][0])
    arrays = {**graph.arrays, "config_runtime": halves[0]}
    arrays["config_runtime_normalizers"] = np.full(len(halves[0]), default)
    return measured(ConfiguredGraph(graph.name, graph.collection, graph.side, arrays), halves[1])


def _medians(repeats: NDArray[np.int64]) -> NDArray[np.float64]:
    """(C,) of the repeats that were run: 0 stands for one that was not."""
    rows = np.where(repeats > 0, repeats.astype(np.float64), np.nan)
    middle: NDArray[np.float64] = np.nanmedian(rows, axis=1)
    return middle


def _score(row: str, protocol: str, tested: Sequence[Sequence[RankedGraph]]) -> CollectionScore:
    measures = {
        name: over_graphs_and_seeds([[graph.measures[name] for graph in seed] for seed in tested])
        for name in MEASURES
    }
    pairs = sum(graph.pairs for graph in tested[0])
    return CollectionScore(row, protocol, len(tested[0]), len(tested), pairs, measures)
