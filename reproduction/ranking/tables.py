"""Tables 3 to 5 of *TPU runtime prediction using GNNs* made again.

The data are the public samples, or the whole dataset.

Each cell of the tables is a network trained on some graphs and measured on others, once for each seed. What
is finished is kept in a file of JSON Lines, so that an interrupted run goes on cell by cell.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from apportion.data.configurations import ConfigurationStore, ConfiguredGraph
from apportion.data.packing import pack
from apportion.data.published.tpugraphs import COLLECTIONS, PublishedFile, files
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.learn import rankers
from apportion.learn.metrics import Interval
from apportion.learn.model import Optimisation
from apportion.learn.ranking.measures import over_graphs_and_seeds
from apportion.learn.ranking.ranker import Ranker, evenly, only
from apportion.learn.ranking.rankings import RankedGraph, rank_graphs
from reproduction.ranking.kept import KeptRankings, Silence

Fold = tuple[Sequence[ConfiguredGraph], Sequence[ConfiguredGraph]]
"Graphs to learn from, and graphs to measure on."
Make = Callable[[int, int], Ranker]
"An untrained ranker, of the number of graphs to learn from and the seed."
LAYOUT_SAMPLES = ("layout-xla-alexnet.npz", "layout-main-10904.npz")


@dataclass(frozen=True, eq=False)
class Part:
    """A row of Table 4: a collection, or what stands for one."""

    name: str
    folds: tuple[Fold, ...]

    @property
    def kind(self) -> str:
        """layout or tile."""
        return "tile" if self.folds[0][0][0].collection == "tile:xla" else "layout"


@dataclass(frozen=True)
class Variant:
    """A row of Table 3: a network, by its settings."""

    name: str
    network: dict[str, Any] = field(default_factory=dict)
    learner: dict[str, Any] = field(default_factory=dict)
    learning_rate: float = 1e-3


@dataclass(frozen=True)
class Reproduction:
    """Which cells there are."""

    variants: tuple[Variant, ...]
    batches: tuple[int, ...] = (10, 50, 100)
    "Lists of configurations, each of one graph, in a step."
    epochs: tuple[int, ...] = (1, 6)
    lists: int = 100
    "In an epoch; at least as many as there are graphs."
    sampled: int = 20
    "Configurations in a list."
    evaluated: int = 1_000
    "At most so many configurations of a graph are measured on, evenly spread."
    seeds: int = 3
    baselines: tuple[str, ...] = ("random", "xgboost")
    device: str = "cpu"
    "Where networks are trained: cpu or cuda."

    def __post_init__(self) -> None:
        if not self.variants or not self.batches or not self.epochs:
            raise InvalidSetting("variants, batches and epochs must each name at least one")
        if min(*self.batches, *self.epochs, self.lists, self.sampled - 1, self.evaluated, self.seeds) < 1:
            raise InvalidSetting("batches, epochs, lists, evaluated and seeds must be at least 1, sampled 2")


@dataclass(frozen=True)
class Cell:
    """What was measured of a network, or of a baseline, whose batch and epochs are 0."""

    variant: str
    batch: int
    epochs: int
    part: str
    seeds: tuple[tuple[RankedGraph, ...], ...]

    def mean(self, measure: str) -> Interval:
        """Over graphs and seeds."""
        return over_graphs_and_seeds([[graph.measures[measure] for graph in seed] for seed in self.seeds])

    @property
    def pairs(self) -> int:
        """Of one seed."""
        return sum(graph.pairs for graph in self.seeds[0])


def parts_of_samples(folder: Path, work: Path, *, evaluated: int) -> list[Part]:
    """The public samples as three collections: configurations that were not seen, graphs, and tile kernels.

    Raises:
        UnreadableFile: a sample is not there.
    """
    paths = [folder / name for name in LAYOUT_SAMPLES]
    for path in (*paths, folder / "tile"):
        if not path.exists():
            raise UnreadableFile(f"There is no {path}: name the folder of the public samples with --data")
    layouts = [PublishedFile(path, COLLECTIONS[1], "train") for path in paths]
    graphs = list(pack(layouts, work / "layouts", deduplicate=True).graphs())
    tiles = list(pack(files(folder / "tile", collection="tile:xla", side="train"), work / "tiles").graphs())
    tiles = [tile for tile in tiles if len(np.unique(tile.truth)) > 1]
    halves = [
        [only(graph, np.arange(start, graph.configurations, 2)) for start in (0, 1)] for graph in graphs
    ]
    few = [evenly(graph, evaluated) for graph in graphs]
    thirds = [
        ([tile for place, tile in enumerate(tiles) if place % 3 != third], tiles[third::3])
        for third in range(3)
    ]
    return [
        Part(
            "XLA, unseen configurations",
            tuple(([first], [evenly(second, evaluated)]) for first, second in halves),
        ),
        Part("XLA, unseen graph", (([graphs[0]], [few[1]]), ([graphs[1]], [few[0]]))),
        Part("XLA tiles, unseen kernels", tuple(thirds)),
    ]


def parts_of_store(store: ConfigurationStore, *, evaluated: int) -> list[Part]:
    """The collections of a store that have graphs to learn from and to validate with."""
    parts = []
    for collection in COLLECTIONS:
        training = list(store.graphs(collection=collection, side="train"))
        validation = [
            evenly(graph, evaluated)
            for graph in store.graphs(collection=collection, side="valid")
            if graph.labelled
        ]
        if training and validation:
            parts.append(Part(collection, ((training, validation),)))
    if not parts:
        raise InvalidSetting(f"{store.folder} has no collection with graphs of the sides train and valid")
    return parts


@dataclass(frozen=True, eq=False)
class CellSeed:
    """One seed of a cell: what is made at once, and kept."""

    variant: str
    batch: int
    epochs: int
    part: Part
    seed: int
    settings: Mapping[str, Any]
    create: Make

    @property
    def made_from(self) -> list[Any]:
        """Everything that the result depends on."""
        return [self.settings, self.batch, self.epochs, self.part.name, _described(self.part), self.seed]

    def make(self, report: Callable[[str], None]) -> list[RankedGraph]:
        """The part's graphs, ranked."""
        report(
            f"{self.variant}, batch {self.batch}, {self.epochs} epochs, {self.part.name}, seed {self.seed}"
        )
        return _ranked(self.part, lambda graphs: self.create(graphs, self.seed))


def cell_seeds(plan: Reproduction, parts: Sequence[Part]) -> list[CellSeed]:
    """Every seed of every cell, cell by cell."""
    found = []
    for part in parts:
        cells: list[tuple[str, int, int, Mapping[str, Any], Make]] = [
            (name, 0, 0, {"baseline": name}, _baseline(name)) for name in plan.baselines
        ]
        for variant, batch, epochs in itertools.product(plan.variants, plan.batches, plan.epochs):
            settings: dict[str, Any] = {**asdict(variant), "lists": plan.lists, "sampled": plan.sampled}
            make = _network(plan, variant, part.kind, batch, epochs)
            cells.append((variant.name, batch, epochs, settings, make))
        for name, batch, epochs, made_with, make in cells:
            found += [
                CellSeed(name, batch, epochs, part, seed, made_with, make) for seed in range(plan.seeds)
            ]
    return found


def run(
    plan: Reproduction, parts: Sequence[Part], results: Path, *, report: Callable[[str], None]
) -> list[Cell]:
    """Every cell; what `results` has already is not run again."""
    kept = KeptRankings(results)
    cells: dict[tuple[str, int, int, str], list[tuple[RankedGraph, ...]]] = {}
    for one in cell_seeds(plan, parts):
        found = kept.get(one.made_from, partial(one.make, report))
        cells.setdefault((one.variant, one.batch, one.epochs, one.part.name), []).append(tuple(found))
    return [Cell(*cell, tuple(seeds)) for cell, seeds in cells.items()]


def average(cells: Sequence[Cell], variant: str, batch: int, epochs: int, measure: str) -> Interval:
    """The mean over parts of the means over graphs, with an interval over graphs and seeds."""
    chosen = [c for c in cells if (c.variant, c.batch, c.epochs) == (variant, batch, epochs)]
    means = [cell.mean(_measure(cell, measure)) for cell in chosen]
    value = float(np.mean([mean.value for mean in means]))
    # Parts are drawn independently, so that the variances of their means add.
    half = float(np.sqrt(np.sum([((mean.high - mean.low) / 2) ** 2 for mean in means]))) / len(means)
    return Interval(value, value - half, value + half)


def _measure(cell: Cell, measure: str) -> str:
    """`official` is tau-b for layouts and the tile score for tiles."""
    if measure != "official":
        return measure
    return "tile_score" if "tile_score" in cell.seeds[0][0].measures else "tau_b"


def _baseline(name: str) -> Make:
    return lambda _, seed: rankers.load(name).create({}, optimisation=Optimisation(), seed=seed)


def _network(plan: Reproduction, variant: Variant, kind: str, batch: int, epochs: int) -> Make:
    def make(graphs: int, seed: int) -> Ranker:
        steps = max(1, epochs * max(plan.lists, graphs) // batch)
        settings = {
            "network": {**variant.network, "configurations": kind}, "sampled": plan.sampled,
            "graphs": batch, "validated": 200, **variant.learner,
        }  # fmt: skip
        optimisation = Optimisation(
            learning_rate=variant.learning_rate, max_steps=steps,
            validate_every=max(1, steps // epochs), clip_norm=1.0,
        )  # fmt: skip
        made: Ranker = rankers.load("network").create(
            settings, optimisation=optimisation, seed=seed, device=plan.device
        )
        return made

    return make


def _ranked(part: Part, make: Callable[[int], Ranker]) -> list[RankedGraph]:
    """Each fold's graphs, ranked by a ranker that learned from the others.

    Every fifth graph to learn from chooses the weights instead; fewer than five do both.
    """
    ranked = []
    for graphs, tested in part.folds:
        ranker = make(len(graphs))
        few = len(graphs) < 5
        training = [graph for place, graph in enumerate(graphs) if few or place % 5]
        ranker.fit(training, graphs if few else graphs[::5], Silence())
        ranked += rank_graphs(tested, ranker.scores)
    return ranked


def _described(part: Part) -> Any:
    return [[[(graph.name, graph.configurations) for graph in side] for side in fold] for fold in part.folds]
