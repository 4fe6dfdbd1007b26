"""Markdown about measured configurations: collections of our own, their ceilings, and what a few give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.advise.recorded_tuning import ridge_recorded, tune_recorded, tune_runs
from apportion.learn.metrics import Interval, over_seeds
from apportion.learn.ranking.measures import over_graphs
from apportion.learn.ranking.recorded_runs import GraphRuns, ceiling, collected
from apportion.learn.ranking.ridge import TuningPlan
from apportion.report.numbers import with_interval

_HEAD = """# Collections of our own: what was measured

Made by `python -m reproduction collect describe FOLDER …` of folders that
`python -m reproduction collect measure` wrote. Configurations are measured in rounds, each once in an order
drawn anew, and every repeat is kept. *Ceilings* are how well
the medians of every second repeat rank by those of the others: no model can be asked for more. The last
column is how much slower, by one half, the configuration is that the other half says is best.
"""
_DRAWS = 200
"Of random subsets, to say what chance finds."


@dataclass(frozen=True)
class Replay:
    """What tuning finds with a budget, over the graphs of a collection."""

    budget: int
    tuned: Interval
    "How much slower than the best the best that it measured is."
    drawn: Interval
    "The same of as many configurations drawn at random."
    tau_b: Interval
    "Of those that were not measured."


def collection_page(folders: Sequence[Path], budgets: Sequence[int], *, seeds: int = 1) -> str:
    """The page, a section for each folder.

    Raises:
        UnreadableFile: a folder holds no runs.
    """
    return "\n".join([_HEAD, *(_section(folder, budgets, seeds) for folder in folders)])


def recorded_table(path: Path, budgets: Sequence[int], aims: Mapping[int, float], seeds: int) -> str:
    """What tuning on a recorded file finds with each budget, beside a plain ridge regression."""
    head = (
        "measured", "tau-b of the rest", "worst seed", "pairs tied by the model", "tau-b, ties broken",
        "plain ridge, tau-b", "slower than the best (worst seed)", "aim, tau-b",
    )  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|--:" * len(head) + "|"]
    for budget in budgets:
        found = tune_recorded(path, TuningPlan(budget), range(seeds))
        plain = ridge_recorded(path, budget, range(seeds))
        slower = [one.slowdown for one in found]
        cells = (
            f"{budget:,}", _three(over_seeds([one.tau_b for one in found])),
            f"{min(one.tau_b for one in found):.3f}",
            f"{np.mean([one.tied_scores / one.pairs for one in found]):.1%}",
            _three(over_seeds([one.tau_b_untied for one in found])), _three(over_seeds(plain)),
            f"{np.mean(slower):.3%} ({max(slower):.3%})", f"{aims[budget]:.2f}" if budget in aims else "",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    said = f"{found[0].distinct:,} different configurations, {found[0].pairs:,} pairs not measured at most"
    return "\n".join([f"`{path.name}`: {said}, seeds 0 to {seeds - 1}.", "", *lines])


def replay(runs: Sequence[GraphRuns], budget: int, seeds: int) -> Replay:
    """Tune every graph on its recorded runtimes."""
    tuned, drawn, taus = [], [], []
    for graph in runs:
        found = tune_runs(graph, TuningPlan(budget, 0.3, 0.5), range(seeds))
        tuned.append(float(np.mean([one.slowdown for one in found])))
        taus.append(float(np.mean([one.tau_b for one in found])))
        drawn.append(_by_chance(graph.runtime, budget))
    return Replay(budget, over_graphs(tuned), over_graphs(drawn), over_graphs(taus))


def _section(folder: Path, budgets: Sequence[int], seeds: int) -> str:
    runs = collected(folder)
    counts = [graph.configurations for graph in runs]
    repeats = sum(int((graph.repeats > 0).sum()) for graph in runs)
    failed = Counter(_kind(reason) for graph in runs for reason in graph.failed_reasons)
    said = "; ".join(f"{count} {reason}" for reason, count in failed.most_common()) or "none"
    lines = [
        f"## {folder.name}", "",
        f"On {', '.join(sorted({graph.device for graph in runs}))}: {len(runs)} graphs of "
        f"{len({graph.family for graph in runs})} families, {sum(counts):,} configurations "
        f"({min(counts)} to {max(counts)} of a graph), {repeats:,} timed runs. Failed and kept with "
        f"their reason: {said}.",
        "", *_families(runs),
    ]  # fmt: skip
    usable = [graph for graph in runs if graph.configurations > max(budgets, default=0) + 1]
    if budgets and usable:
        lines += ["", *_replays(usable, budgets, seeds)]
    return "\n".join([*lines, ""])


def _families(runs: Sequence[GraphRuns]) -> Iterable[str]:
    yield (
        "| family | graphs | configurations | fastest, µs | slowest / fastest | default slower by | "
        "ceiling tau-b "
        "| ceiling OPA | best by one half, slower by |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    names = list(dict.fromkeys(graph.family for graph in runs))
    for name in names:
        yield _row(name, [graph for graph in runs if graph.family == name])
    if len(names) > 1:
        yield _row("**all**", runs)


def _row(name: str, runs: Sequence[GraphRuns]) -> str:
    limits = [ceiling(graph.repeats) for graph in runs]
    best = [float(graph.runtime.min()) for graph in runs]
    spread = [float(graph.runtime.max()) / low for graph, low in zip(runs, best, strict=True)]
    default = [
        float(graph.runtime[graph.default]) / low - 1
        for graph, low in zip(runs, best, strict=True)
        if graph.default >= 0
    ]
    cells = (
        name, len(runs), sum(graph.configurations for graph in runs),
        f"{min(best) / 1e3:.0f} … {max(best) / 1e3:.0f}", f"{np.median(spread):.1f}",
        f"{np.mean(default):.1%}" if default else "–",
        f"{np.mean([limit.tau_b for limit in limits]):.3f}",
        f"{np.mean([limit.opa for limit in limits]):.3f}",
        f"{np.mean([limit.slowdown for limit in limits]):.2%}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _replays(runs: Sequence[GraphRuns], budgets: Sequence[int], seeds: int) -> Iterable[str]:
    yield (
        f"Measure a few, rank the rest, on the recorded runtimes of {len(runs)} graphs ({seeds} seeds each):"
    )
    yield ""
    yield "| measured | best found, slower than the best | drawn at random | default | tau-b of the rest |"
    yield "|--:|--:|--:|--:|--:|"
    default = over_graphs([
        float(graph.runtime[graph.default]) / float(graph.runtime.min()) - 1
        for graph in runs
        if graph.default >= 0
    ])  # fmt: skip
    for budget in budgets:
        found = replay(runs, budget, seeds)
        yield (
            f"| {budget} | {_percent(found.tuned)} | {_percent(found.drawn)} | {_percent(default)} "
            f"| {_three(found.tau_b)} |"
        )


def _by_chance(runtime: NDArray[np.int64], budget: int) -> float:
    random = np.random.default_rng(0)
    lows = [runtime[random.permutation(len(runtime))[:budget]].min() for _ in range(_DRAWS)]
    return float(np.mean(lows)) / float(runtime.min()) - 1


def _three(interval: Interval) -> str:
    return with_interval(interval)


def _percent(interval: Interval) -> str:
    return with_interval(interval, ".2%")


def _kind(reason: str) -> str:
    """A reason without its numbers."""
    head = reason.partition(":")[0]
    return {"OutOfResources": "needed more shared memory or registers than there are"}.get(head, head)
