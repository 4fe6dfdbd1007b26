"""`python -m reproduction ranker-starts`: what a search gains by starting from a ranker's order.

Recorded runtimes stand in for measurements. The ranker had not learned from the kernel that is searched, and
a search that starts without it, or one at random alone, stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from apportion.cli.show import note, print_table
from apportion.data.configurations import ConfiguredGraph
from apportion.learn.ranking.rank_predictor import trust_of
from apportion.learn.tuning.search import KnownTable, Search, SearchPlan
from apportion.measure.space import Configuration, Space
from apportion.settings import replace_file
from reproduction.ship.rankers import SHIPPED, ShippedRanker, fitted, kernel_of

RESULTS = Path("docs/results/rankers.md")
BUDGETS = (4, 8, 16)
WAYS = ("by chance", "search", "search from the order", "order alone")
Table = dict[tuple[str, int], list[float]]
"How it was searched, and how many were measured → the best found over the best there is, for each graph."


def ranker_starts(
    *only: str,
    collections: Path = Path("experiments/collections"),
    samples: Path = Path("../shared/data/tpugraphs"),
    shapes: int = 1,
    seeds: int = 2,
    out: Annotated[Path | None, Parameter(name="--out")] = None,
) -> None:
    """Search recorded kernels with and without a ranker's order to start from; some minutes of one core.

    Args:
        only: names of the rankers; by default all of our collections.
        collections: the folder of our collections.
        samples: the folder of the published samples of TpuGraphs.
        shapes: how many shapes of each kernel are searched.
        seeds: how often, each time with other draws.
        out: a Markdown file for the table.
    """
    lines = []
    for one in SHIPPED:
        if (only and one.name not in only) or one.about.startswith("TPU"):
            continue
        graphs = one.read(collections, samples)
        found = started(one, graphs, shapes, seeds)
        for way in WAYS:
            lines.append((one.name, way, *(in_words(found[way, budget]) for budget in BUDGETS)))
            note(" ".join(lines[-1]))
    columns = ("ranker", "way", *(f"{budget} measured" for budget in BUDGETS))
    print_table(columns, lines)
    if out is not None:
        replace_file(out, table_text(columns, lines))


def started(one: ShippedRanker, graphs: Sequence[ConfiguredGraph], shapes: int, seeds: int) -> Table:
    """The best found over the best there is, of each kernel that was held out."""
    kernels = [kernel_of(graph) for graph in graphs]
    whole = len(set(kernels)) > 1
    groups = np.array(kernels if whole else [graph.name for graph in graphs])
    found: Table = {(way, budget): [] for way in WAYS for budget in BUDGETS}
    for group in sorted(set(groups.tolist())):
        others = [graph for graph, own in zip(graphs, groups, strict=True) if own != group]
        ranker, trust = fitted(one, others), None
        chosen = [graph for graph, own in zip(graphs, groups, strict=True) if own == group][:shapes]
        for graph in chosen:
            trust = trust_of(ranker, others, []).familiarity(graph)
            note(f"{graph.name}: familiarity {trust:.2f}")
            scores = np.asarray(ranker.scores(graph), np.float64)
            for way, budgets in _searched(graph, scores, seeds).items():
                for budget, value in budgets.items():
                    found[way, budget].append(value)
    return found


def _searched(graph: ConfiguredGraph, scores: NDArray[np.float64], seeds: int) -> dict[str, dict[int, float]]:
    space, place = space_of_graph(graph)
    runtime = graph.runtime.astype(np.float64)
    best = float(runtime.min())
    known = KnownTable(space.drawn, np.exp(scores - scores.mean()).tolist())
    order = np.argsort(scores, kind="stable")
    found: dict[str, dict[int, float]] = {way: {} for way in WAYS}
    for budget in BUDGETS:
        plan = SearchPlan(first=min(SearchPlan.first, budget // 2))
        each: dict[str, list[float]] = {way: [] for way in WAYS}
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            drawn = [runtime[random.permutation(len(runtime))[:budget]].min() for _ in range(20)]
            each["by chance"].append(float(np.mean(drawn)))
            each["order alone"].append(float(runtime[order[:budget]].min()))
            for way, tables in (("search", []), ("search from the order", [known])):
                search = Search(space, seed=seed, known=tables, settings=plan)
                for _ in range(budget):
                    (asked,) = search.ask()
                    search.tell(asked, runtime[place[_key(asked)]])
                each[way].append(min(value for _, value in search.told))
        for way in WAYS:
            found[way][budget] = float(np.mean(each[way])) / best
    return found


def space_of_graph(graph: ConfiguredGraph) -> tuple[Space, Mapping[tuple[int, ...], int]]:
    """The recorded configurations as a space, and where each stands."""
    features = graph.features(np.asarray(graph.codes)).reshape(graph.configurations, -1)
    varied = np.flatnonzero(np.ptp(features, axis=0))
    rows = [tuple(int(value) for value in row) for row in features[:, varied]]
    place = {row: number for number, row in enumerate(rows)}
    names = [f"p{column}" for column in varied]
    drawn: tuple[Configuration, ...] = tuple(dict(zip(names, row, strict=True)) for row in place)
    values = {name: sorted({one[name] for one in drawn}) for name in names}
    return Space(values, drawn=drawn), place


def _key(one: Configuration) -> tuple[int, ...]:
    return tuple(one.values())


def in_words(values: Sequence[float]) -> str:
    """Geometric mean of how much slower, and the middle 95 % of resampled kernels."""
    logs = np.log(values)
    random = np.random.default_rng(0)
    means = [float(np.mean(random.choice(logs, len(logs)))) for _ in range(2_000)]
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return f"{np.exp(logs.mean()):.3f} ({low:.3f} to {high:.3f})"


def table_text(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = [columns, ["---"] * len(columns), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
