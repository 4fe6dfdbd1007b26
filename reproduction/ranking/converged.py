"""`python -m reproduction ranking-curves`: the paper's rankers trained until they stop learning, and how.

Tiles of the public samples of TpuGraphs and of our own collection on a CPU, with kernels held out: each
network with three seeds, its accuracy while it trains (Figures 3 and 4 of the paper), and boosted trees on
the same features beside it.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from apportion.cli.show import note
from apportion.data.configurations import ConfiguredGraph
from apportion.jobs.journal import Results
from apportion.learn import rankers
from apportion.learn.model import Optimisation
from apportion.learn.ranking.measures import over_graphs_and_seeds
from apportion.learn.ranking.rankings import RankedGraph, ranked
from apportion.report.charts import curves as drawing_of
from apportion.report.numbers import with_interval
from apportion.settings import load, replace_file
from reproduction.ranking.collection import fingerprint
from reproduction.ranking.kept import Silence
from reproduction.ship.rankers import kernel_of, published_tiles, tiles_of

PARTS: Mapping[str, Callable[[Path, Path], list[ConfiguredGraph]]] = {
    "public tiles": published_tiles,
    "cpu-tiles": tiles_of("cpu-tiles"),
}
"Collections of tiles by name."
MEASURES = {
    "opa": "OPA", "tau_b": "tau-b", "slowdown@1": "first choice slower by",
    "slowdown@5": "best of the first five",
}  # fmt: skip


@dataclass(frozen=True)
class ConvergedRow:
    """A ranker of the comparison."""

    name: str
    model: str = "network"
    hyperparameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ConvergedRankers:
    """What is trained, and for how long."""

    rows: tuple[ConvergedRow, ...]
    optimisation: Optimisation
    parts: tuple[str, ...] = tuple(PARTS)
    folds: int = 3
    "Each kernel is tested in one."
    seeds: int = 3
    validates: int = 5
    "Of so many graphs that are not tested one validates."


class Followed(Silence):
    """Keeps what a fit says of its validations."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []

    def validated(self, step: int, scores: Mapping[str, float], *, best: bool) -> None:
        self.points.append((step, round(float(scores["opa"]), 4)))


def ranking_curves(
    *,
    settings: Path = Path("experiments/ranking-curves.toml"),
    collections: Path = Path("experiments/collections"),
    samples: Path = Path("../shared/data/tpugraphs"),
    results: Path = Path("runs/reproduce/ranking-curves.jsonl"),
    stored: Path = Path("experiments/ranking-curves.jsonl.xz"),
    out: Path = Path("docs/results/ranking-curves.md"),
    fits: int = 0,
) -> None:
    """Train what is not finished, a quarter of an hour of one core, and write the page.

    Args:
        settings: the experiment's TOML file; what its runs taught stands beside it, as .md.
        collections: the folder of our collections.
        samples: the folder of the published samples of TpuGraphs.
        results: where finished fits are kept while it runs.
        stored: the same, compressed, as the repository keeps it.
        out: the page; its figures stand beside it.
        fits: end without a page after so many fits; 0 for all.
    """
    if stored.exists() and not results.exists():
        replace_file(results, lzma.decompress(stored.read_bytes()))
    plan, kept = load(ConvergedRankers, settings), Results(results)
    sections, left = [], fits
    for part in plan.parts:
        graphs = PARTS[part](collections, samples)
        found: dict[str, list[list[dict[str, Any]]]] = {}
        for row in plan.rows:
            for seed in range(plan.seeds):
                for fold in range(plan.folds):
                    made_from = [asdict(row), asdict(plan.optimisation), plan.folds, plan.validates,
                                 fingerprint(graphs), seed, fold]  # fmt: skip
                    began = results.stat().st_size if results.exists() else 0
                    entry = kept.get(made_from, lambda: _fit(plan, row, graphs, seed, fold))  # noqa: B023
                    found.setdefault(row.name, []).append([entry])
                    if fits and results.stat().st_size > began:
                        left -= 1
                        note(f"{part}, {row.name}, seed {seed}, fold {fold}")
                        if not left:
                            return
        sections.append(_section(plan, part, graphs, found, out))
    remarks = settings.with_suffix(".md")
    taught = remarks.read_text() if remarks.exists() else ""
    replace_file(out, "\n".join([_head(plan, settings), taught, *sections]))
    if not stored.exists() or lzma.decompress(stored.read_bytes()) != results.read_bytes():
        replace_file(stored, lzma.compress(results.read_bytes()))
    note(f"The page is {out}")


def parts_of(graphs: Sequence[ConfiguredGraph], folds: int) -> list[int]:
    """The fold in which each graph is tested: shapes of one kernel are tested together."""
    kernels = sorted({kernel_of(graph) for graph in graphs})
    place = dict(zip(kernels, np.random.default_rng(0).permutation(len(kernels)) % folds, strict=True))
    return [int(place[kernel_of(graph)]) for graph in graphs]


def _fit(
    plan: ConvergedRankers, row: ConvergedRow, graphs: Sequence[ConfiguredGraph], seed: int, fold: int
) -> dict[str, Any]:
    part = parts_of(graphs, plan.folds)
    tested = [graph for graph, own in zip(graphs, part, strict=True) if own == fold]
    others = [graph for graph, own in zip(graphs, part, strict=True) if own != fold]
    validation = others[:: plan.validates]
    training = [graph for place, graph in enumerate(others) if place % plan.validates]
    ranker = rankers.load(row.model).create(
        row.hyperparameters, optimisation=plan.optimisation, seed=seed, device="cpu"
    )
    followed = Followed()
    ranker.fit(training if ranker.chooses else others, validation, followed)
    return {
        "graphs": [asdict(ranked(graph, np.asarray(ranker.scores(graph)))) for graph in tested],
        "curve": followed.points if row.model == "network" else [],
    }


def _section(
    plan: ConvergedRankers, part: str, graphs: Sequence[ConfiguredGraph],
    found: Mapping[str, list[list[dict[str, Any]]]], out: Path,
) -> str:  # fmt: skip
    kernels = len({kernel_of(graph) for graph in graphs})
    lines = [
        f"## {part}", "",
        f"{len(graphs)} graphs of {kernels} kernels, {sum(graph.configurations for graph in graphs):,} "
        f"configurations; {plan.folds} folds of kernels, {plan.seeds} seeds.", "",
        f"| ranker | {' | '.join(MEASURES.values())} | steps |", "|---|" + "---:|" * (len(MEASURES) + 1),
    ]  # fmt: skip
    drawn_from: dict[str, list[list[tuple[int, float]]]] = {}
    for row in plan.rows:
        fits = [one[0] for one in found[row.name]]
        seeds = [fits[first : first + plan.folds] for first in range(0, len(fits), plan.folds)]
        tested = [[RankedGraph(**graph) for fold in seed for graph in fold["graphs"]] for seed in seeds]
        cells = [
            with_interval(over_graphs_and_seeds([[g.measures[name] for g in seed] for seed in tested]))
            for name in MEASURES
        ]
        curves = [fit["curve"] for fit in fits if fit["curve"]]
        steps = f"{min(c[-1][0] for c in curves)} to {max(c[-1][0] for c in curves)}" if curves else ""
        lines.append(f"| {row.name} | {' | '.join(cells)} | {steps} |")
        if curves:
            drawn_from[row.name] = curves
    random = np.random.default_rng(0)
    chance = [[ranked(graph, random.random(graph.configurations)) for graph in graphs] for _ in range(20)]
    cells = [
        with_interval(over_graphs_and_seeds([[g.measures[name] for g in seed] for seed in chance]))
        for name in MEASURES
    ]
    lines.append(f"| by chance | {' | '.join(cells)} | |")
    at = sorted({step for curves in drawn_from.values() for curve in curves for step, _ in curve})
    drawing = {row: _mean(curves, at) for row, curves in drawn_from.items()}
    name = f"ranking-curves-{part.replace(' ', '-')}.svg"
    replace_file(
        out.with_name(name), drawing_of(drawing, across="steps", up="OPA on validation", from_zero=False)
    )
    shown = [step for place, step in enumerate(at) if place in _spread(len(at), 6)]
    lines += [
        "", f"![Accuracy on validation graphs while the networks train]({name})", "",
        "OPA on validation graphs after so many steps, the mean of all fits; one that has ended counts with"
        " its last:", "",
        f"| network | {' | '.join(f'{step:,.0f}' for step in shown)} |", "|---|" + "---:|" * len(shown),
    ]  # fmt: skip
    for network, points in drawing.items():
        said = dict(points)
        lines.append(f"| {network} | {' | '.join(f'{said[step]:.3f}' for step in shown)} |")
    return "\n".join([*lines, ""])


def _mean(curves: Sequence[Sequence[tuple[int, float]]], at: Sequence[int]) -> list[tuple[float, float]]:
    """The mean of several curves at some steps; one that has ended goes on with its last value."""
    points = []
    for step in at:
        said = [[value for place, value in curve if place <= step] or [curve[0][1]] for curve in curves]
        points.append((float(step), float(np.mean([values[-1] for values in said]))))
    return points


def _spread(count: int, most: int) -> set[int]:
    return set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist())


def _head(plan: ConvergedRankers, settings: Path) -> str:
    fit = plan.optimisation
    return f"""# Rankers trained until they stop learning, and how they learn

Made by `python -m reproduction ranking-curves` on one core, with the settings of `{settings}`:
up to {fit.max_steps:,} steps at a rate of {fit.learning_rate:g} that falls to nothing, validated every
{fit.validate_every}; a fit ends when {fit.patience} validations in a row bring nothing better, and the best
validated weights are tested. Kernels that are tested were not learned from, nor validated with. Trees see the
same published features. In brackets: the middle 95 % over graphs and seeds. The fits are in
`experiments/ranking-curves.jsonl.xz`, and the page is made of them without training.
"""
