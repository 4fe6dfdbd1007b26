"""`python -m reproduction rankers`: a ranker for each collection, with what it scores on kernels held out.

Trees are the pairwise ones of experiments/ranking-collection.toml, on features that need no compiler; the
network is the paper's second, with the settings of experiments/converged-networks.toml. Graphs are called
KERNEL.SHAPE: each kernel was held out with all of its shapes (for the network, some kernels at once), and
where a collection has one kernel only, each shape.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from apportion import __version__
from apportion.cli.show import note, print_table
from apportion.data.artifact import read_description
from apportion.data.configurations import ConfigurationStore, ConfiguredGraph
from apportion.data.packing import pack
from apportion.data.published.tpugraphs import files
from apportion.errors import UnknownName
from apportion.learn import rankers as kinds
from apportion.learn.base import list_again, model_folder
from apportion.learn.model import Optimisation
from apportion.learn.ranking.rank_predictor import RankTrust, places, trust_of
from apportion.learn.ranking.ranker import Ranker
from apportion.learn.ranking.rankings import RankedGraph, ranked
from apportion.learn.ranking.recorded_runs import GraphRuns, collected
from apportion.learn.ranking.unmeasured import laid_out, layout_features, tiled
from apportion.program.hlo.jax import hlo_of, spec_of
from apportion.program.hlo.layouts import Constrained, Orders, configurable_nodes
from apportion.program.hlo.module import graph_of_hlo
from reproduction.collect.jax_functions import functions
from reproduction.collect.layouts import programs
from reproduction.ranking.kept import Silence

MEASURES = ("opa", "tau_b", "slowdown@1", "slowdown@5")
BOOSTED = {"trees": 150, "depth": 6, "features": "launch-relative"}
NETWORK = {
    "network": {"configurations": "tile", "convolution": "sage", "norm": "graph", "attention": "nodes"},
    "averaging": 0.99,
}  # fmt: skip
NETWORK_FIT = Optimisation(
    learning_rate=3e-3, schedule="cosine", max_steps=4000, validate_every=250, patience=6, clip_norm=1.0
)
_DRAWS = 20
_VALIDATES = 10
"Every so many graphs one validates a network instead of teaching it."


@dataclass(frozen=True)
class ShippedRanker:
    """A ranker of one collection."""

    name: str
    about: str
    "What its configurations are, tile or layout, and where they were measured."
    read: Callable[[Path, Path], list[ConfiguredGraph]]
    "The folder of our collections, that of the published samples → the graphs."
    hyperparameters: dict[str, Any]
    model: str = "xgboost"
    optimisation: Optimisation = field(default_factory=Optimisation)
    folds: int = 0
    "In so many parts kernels are held out; 0 for each by itself."
    beside: str = ""
    "A shipped ranker of the same graphs, whose score is said, too."


@dataclass(frozen=True)
class HeldOut:
    """What a ranker scores on kernels that it did not learn from, and by chance."""

    measures: dict[str, float]
    chance: dict[str, float]
    folds: str
    errors: NDArray[np.float64]
    "Quantiles of errors of places."


def rankers(
    *only: str,
    collections: Path = Path("experiments/collections"),
    samples: Path = Path("../shared/data/tpugraphs"),
    out: Path = Path("runs/models"),
    ship: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train a ranker for each collection, and write them as models; eight minutes of one core.

    Args:
        only: names of the rankers; by default all.
        collections: the folder of our collections.
        samples: the folder of the published samples of TpuGraphs.
        out: the folder in which each model gets a folder.
        ship: list them in the folder's manifest, too.
    """
    known = {one.name: one for one in SHIPPED}
    for name in only:
        if name not in known:
            raise UnknownName("ranker", name, known)
    rows = []
    for one in SHIPPED:
        if not only or one.name in only:
            rows.append((one.name, _made(one, one.read(collections, samples), out)))
    print_table(("ranker", "score"), rows)
    if ship:
        list_again(out, {"ranking": SHIPPED[0].name})


def _made(one: ShippedRanker, graphs: Sequence[ConfiguredGraph], out: Path) -> str:
    note(f"{one.name}: {len(graphs)} graphs")
    found = held_out(one, graphs)
    ranker = fitted(one, graphs)
    trust = replace(trust_of(ranker, graphs, []), place_errors=tuple(np.round(found.errors, 4).tolist()))
    trust = _without_repeats(trust)
    simple = f"by chance: {_in_words(found.chance)}"
    if one.beside:
        trees = read_description(_shipped(out, one.beside)).experiment["held_out"]
        simple = f"boosted trees: {_in_words(trees)}; {simple}"
    score = (
        f"OPA {found.measures['opa']:.2f}, first choice {found.measures['slowdown@1']:.0%} slower than the "
        f"best, {found.folds} held out ({simple})"
    )
    described = {
        "experiment": f"python -m reproduction rankers {one.name}", "about": one.about, "score": score,
        "data": fingerprint(graphs), "graphs": len(graphs),
        "configurations": sum(graph.configurations for graph in graphs),
        "settings": {**one.hyperparameters, "collections": [collection_of(one)]},
        "held_out": {"folds": found.folds, **found.measures, "chance": found.chance},
        "trust": asdict(trust), "version": __version__,
    }  # fmt: skip
    ranker.save(out / one.name, experiment=described)
    return score


def _in_words(measures: Mapping[str, Any]) -> str:
    return f"{measures['opa']:.2f}, {measures['slowdown@1']:.0%}"


def _shipped(out: Path, name: str) -> Path:
    """A ranker's folder: the one made now, or else the one that ships."""
    return out / name if (out / name).exists() else model_folder(name)


def collection_of(one: ShippedRanker) -> str:
    """The published collection whose graphs look like these."""
    return "layout:xla:random" if one.about.startswith("layout") else "tile:xla"


def held_out(one: ShippedRanker, graphs: Sequence[ConfiguredGraph]) -> HeldOut:
    """Each kernel ranked by what was learned from the others."""
    kernels = [kernel_of(graph) for graph in graphs]
    whole = len(set(kernels)) > 1
    groups = np.array(kernels if whole else [graph.name for graph in graphs])
    if one.folds:
        different = sorted(set(groups.tolist()))
        place = np.random.default_rng(0).permutation(len(different)) % one.folds
        part = dict(zip(different, map(str, place.tolist()), strict=True))
        groups = np.array([part[group] for group in groups.tolist()])
    tested: list[RankedGraph] = []
    errors = []
    for group in sorted(set(groups.tolist())):
        ranker = fitted(one, [graph for graph, own in zip(graphs, groups, strict=True) if own != group])
        for graph in (graph for graph, own in zip(graphs, groups, strict=True) if own == group):
            scores = np.asarray(ranker.scores(graph), np.float64)
            tested.append(ranked(graph, scores))
            error = np.abs(places(scores) - places(graph.truth.astype(float)))
            errors.append(np.quantile(error, np.linspace(0, 1, 100)))
    random = np.random.default_rng(0)
    by_chance = [
        ranked(graph, random.random(graph.configurations))
        for graph in sorted(graphs, key=kernel_of)
        for _ in range(_DRAWS)
    ]
    return HeldOut(
        _means(tested), _means(by_chance), "kernel" if whole else "shape",
        np.quantile(np.concatenate(errors), np.linspace(0, 1, 100)),
    )  # fmt: skip


def kernel_of(graph: ConfiguredGraph) -> str:
    """What stands before the shape in a graph's name."""
    return graph.name.partition(".")[0]


def fingerprint(graphs: Sequence[ConfiguredGraph]) -> str:
    """Of all runtimes."""
    return hashlib.sha256(b"".join(graph.runtime.tobytes() for graph in graphs)).hexdigest()[:16]


def tiles_of(collection: str) -> Callable[[Path, Path], list[ConfiguredGraph]]:
    """Reads the tiles of one of our collections."""

    def read(collections: Path, samples: Path) -> list[ConfiguredGraph]:
        known = functions()
        return [
            _measured(
                runs,
                tiled(
                    runs.name,
                    graph_of_hlo(hlo_of(known[runs.family], [spec_of(text) for text in runs.operands])),
                    runs.tile_features,
                ),
            )
            for runs in collected(collections / collection)
        ]

    return read


def layouts_of(collection: str) -> Callable[[Path, Path], list[ConfiguredGraph]]:
    """Reads the layouts of one of our collections; the programs are traced again."""

    def read(collections: Path, samples: Path) -> list[ConfiguredGraph]:
        known = programs()
        found = []
        for runs in collected(collections / collection):
            function, specs = known[runs.name]
            program = Constrained(function, specs)
            module = hlo_of(program.with_layouts(None), specs)
            features = np.stack([layout_features(_orders(row, program.ranks)) for row in runs.parameters])
            nodes = np.array(configurable_nodes(module), np.int64)
            found.append(_measured(runs, laid_out(runs.name, graph_of_hlo(module), nodes, features)))
        return found

    return read


def published_tiles(collections: Path, samples: Path) -> list[ConfiguredGraph]:
    """The kernels whose tiles TpuGraphs publishes as samples."""
    store = Path("runs/rankers-tpu-tiles")
    pack(files(samples / "tile", collection="tile:xla", side="valid"), store)
    # Each is a kernel of its own: fusion.181 is no shape of a kernel called fusion.
    return [
        replace(graph, name=graph.name.replace(".", "-"))
        for graph in ConfigurationStore.open(store).graphs()
        if np.ptp(graph.truth)
    ]


def _orders(codes: NDArray[np.int64], ranks: Sequence[tuple[int, int, int]]) -> list[Orders]:
    """What the numbers of orders stand for: three for each node; a rank of 0 has none."""
    every = []
    for node, triple in enumerate(ranks):
        first, second, third = (
            list(permutations(range(rank)))[codes[3 * node + place]] if rank else None
            for place, rank in enumerate(triple)
        )
        every.append((first, second, third))
    return every


def _measured(runs: GraphRuns, graph: ConfiguredGraph) -> ConfiguredGraph:
    return replace(
        graph,
        arrays={
            **graph.arrays,
            "config_runtime": runs.runtime,
            "config_runtime_normalizers": runs.normalizers,
        },
    )


def fitted(one: ShippedRanker, graphs: Sequence[ConfiguredGraph]) -> Ranker:
    """The ranker, learned from these."""
    ranker: Ranker = kinds.load(one.model).create(one.hyperparameters, optimisation=one.optimisation, seed=0)
    if ranker.chooses:
        rest = [graph for place, graph in enumerate(graphs) if place % _VALIDATES]
        ranker.fit(rest, graphs[::_VALIDATES], Silence())
    else:
        ranker.fit(graphs, graphs[:1], Silence())  # boosted trees are not chosen by validation
    return ranker


def _without_repeats(trust: RankTrust) -> RankTrust:
    """Shapes of one kernel have the same mix of operations: one of them says it."""
    known = {tuple(sorted(mix.items())): mix for mix in trust.known}
    return replace(trust, known=tuple(known.values()))


def _means(tested: Sequence[RankedGraph]) -> dict[str, float]:
    return {
        name: round(float(np.mean([one.measures[name] for one in tested])), 4)
        for name in MEASURES
        if name in tested[0].measures
    }


SHIPPED = (
    ShippedRanker("rank-h200-triton", "tile, Triton on an H200", tiles_of("h200-triton"), BOOSTED),
    ShippedRanker(
        "rank-h200-triton-network",
        "tile, Triton on an H200",
        tiles_of("h200-triton"),
        NETWORK,
        "network",
        NETWORK_FIT,
        folds=6,
        beside="rank-h200-triton",
    ),
    ShippedRanker("rank-h200-xla-gemm", "tile, XLA products on an H200", tiles_of("h200-xla-gemm"), BOOSTED),
    ShippedRanker("rank-cpu-tiles", "tile, blocked C on an EPYC", tiles_of("cpu-tiles"), BOOSTED),
    ShippedRanker("rank-tpu-tiles", "TPU tile, XLA (public samples of TpuGraphs)", published_tiles, BOOSTED),
    ShippedRanker(
        "rank-cpu-layouts",
        "layout, XLA on an EPYC",
        layouts_of("cpu-layouts"),
        {**BOOSTED, "features": "published"},
    ),
)
