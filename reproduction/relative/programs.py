"""`python -m reproduction relative-programs`: relative performance of our own programs on six systems."""

from __future__ import annotations

import lzma
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from apportion.cli.show import note, print_json
from apportion.data.counter_table import SECONDS, TABLE_I, CounterTable
from apportion.jobs.journal import Results
from apportion.learn import vector_models
from apportion.learn.metrics import Interval
from apportion.learn.relative.performance import MEASURES, log_times_of, measures_of, vector_of
from apportion.learn.relative.relative_table import RelativeTable, table_of
from apportion.settings import load, replace_file
from reproduction.relative.comparison import (
    CEILINGS,
    PROTOCOLS,
    Answers,
    Comparison,
    run,
    scores,
    share,
    splits,
)
from reproduction.relative.few_runs import FewScore, few_samples
from reproduction.relative.page import COLUMNS, Goals, Set, sections
from reproduction.relative.shipped_programs import ship_models
from reproduction.worker import shared_by

Rows = NDArray[np.int64]
RUNS, FAMILIES = (150, 300, 600, 800), (3, 6, 9, 12)
CURVES: dict[str, tuple[str, dict[str, Any]]] = {
    "ridge": ("ridge", {"strength": 30.0}),
    "extra trees": ("extra-trees", {"trees": 60, "leaf": 2}),
}
"Learners whose curves are drawn."
_DRAWS, _PARTS, _FEW_DRAWS = 2, 5, 10
FEW = (5, 20, 50)
"Runs that are measured on a new system."
FOUR = ("xeon-4", "xeon-16", "h200-100", "h200-10")
"Two CPUs and two GPUs, as many systems as the paper has."
LAST_LEVEL = "ll_miss_hit_ratio"
"Not learned from: its cache is as large as the counting machine's, and a short command never fills it."
PROGRAM_GOALS = Goals(
    {("random", "r2"): 0.81, ("random", "order"): 0.91, ("application", "r2"): 0.5,
     ("application", "top1"): 0.85, ("application", "regret"): 1.08},
    {5: 0.45, 20: 0.60, 50: 0.70},
)  # fmt: skip


@dataclass(frozen=True)
class CurvePoint:
    """What a learner reaches that saw so much."""

    learner: str
    what: str
    "runs or families"
    count: int
    measures: dict[str, float]


def relative_programs(
    *,
    table: Path = Path("experiments/programs.parquet"),
    settings: Path = Path("experiments/relative-programs.toml"),
    results: Path = Path("runs/reproduce/relative-programs.jsonl"),
    stored: Path = Path("experiments/relative-programs.jsonl.xz"),
    out: Path = Path("docs/results/relative-programs.md"),
    ship: Path | None = None,
    worker: str = "",
    pack_to: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Compare predictors on our programs, from Table I's counters and from operators.

    What is finished is not run again.

    Args:
        table: what `python -m reproduction collect programs` wrote.
        settings: the experiment's TOML file; what its runs taught stands beside it, as .md.
        results: where finished folds are kept while it runs.
        stored: the same, compressed, as the repository keeps it; written at the end.
        out: where the page goes.
        ship: the folder of the package's models, to make those for these systems anew.
        worker: I/N: fit this part of the folds alone, one of N processes that share them; no page is made.
        pack_to: write runs and settings to this file, for a machine without Polars, and stop.
        json: print one line of JSON per predictor and split.
    """
    for path, kept in ((results, stored), (_beside(results), _beside(stored))):
        if kept.exists() and not path.exists():
            replace_file(path, lzma.decompress(kept.read_bytes()))
    source = CounterTable.read(table)
    comparison = load(Comparison, settings)
    tables = {
        short: (title, table_of(source, name=table.stem, counters=counters, systems=comparison.systems))
        for short, title, counters in feature_sets(source)
    }
    if pack_to is not None:
        pack_to.write_bytes(pickle.dumps((comparison, [runs for _, runs in tables.values()])))
        return
    if worker:
        fit_share(comparison, [runs for _, runs in tables.values()], results, shared_by(worker))
        return
    sets, extra = {}, []
    for short, (title, runs) in tables.items():
        note(f"{title}: {len(runs.runs)} runs, {runs.left_out} incomplete")
        answers = run(comparison, runs, results, report=note)
        beside = Beside(runs, comparison.seed, results)
        few = [score for count in FEW for score in beside.few(count)]
        sets[short] = Set(title, comparison, runs, answers, {}, few=few, goals=PROGRAM_GOALS)
        extra.append((title, runs, answers, [beside.point(*one) for one in beside.points]))
    remarks = settings.with_suffix(".md")
    taught = remarks.read_text().splitlines() if remarks.exists() else []
    lines = ["# Relative performance of our own programs", "", *_head(source, comparison), "", *taught]
    for one, (_, runs, answers, points) in zip(sets.values(), extra, strict=True):
        lines += ["", *sections(one), "", *_four(runs, answers), "", *_curves(points)]
    replace_file(out, "\n".join([*lines, ""]))
    for path, kept in ((results, stored), (_beside(results), _beside(stored))):
        if not kept.exists() or lzma.decompress(kept.read_bytes()) != path.read_bytes():
            replace_file(kept, lzma.compress(path.read_bytes()))
    note(f"The page is {out}")
    if ship is not None:
        runs = sets["table-i"].everything
        for said in ship_models(runs, ship, profiled=comparison.profiled):
            note(said)
    if json:
        for short, one in sets.items():
            for answers_of in one.answers:
                found = scores(answers_of, one.table, samples=40)
                print_json({"set": short, "row": answers_of.row, "split": answers_of.protocol,
                            **{name: interval.value for name, interval in found.items()}})  # fmt: skip


def feature_sets(source: CounterTable) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """A short name, a title and the counters of each set that the table has."""
    there = set(source.frame["counter"].unique().to_list()) - {SECONDS, LAST_LEVEL}
    table_i = tuple(name for group in TABLE_I.values() for name in group if name in there)
    if table_i:
        yield "table-i", "Counters of Table I, of one core", table_i
    operators = tuple(sorted(there - set(table_i)))
    if operators:
        yield "operators", "Counts of operators instead", operators


def fit_share(
    comparison: Comparison, tables: Sequence[RelativeTable], results: Path, worker: tuple[int, int]
) -> None:
    """One worker's part of everything that the page needs."""
    mine, workers = worker
    for runs in tables:
        share(comparison, runs, results, worker=worker)
        beside = Beside(runs, comparison.seed, results)
        for place, one in enumerate(beside.points):
            if place % workers == mine - 1:
                beside.point(*one)
        for place, count in enumerate(FEW):
            if (place + len(beside.points)) % workers == mine - 1:
                beside.few(count)


class Beside:
    """What stands beside the comparison: learning curves, and new systems from few runs; each is kept."""

    def __init__(self, table: RelativeTable, seed: int, results: Path) -> None:
        self.table, self.seed = table, seed
        self._kept = Results(_beside(results))
        self.points = [
            (name, what, count)
            for name in CURVES
            for what, counts in (("runs", RUNS), ("families", FAMILIES))
            for count in counts
            if not any(one >= self.learned_from(what) for one in counts if one < count)
        ]

    def learned_from(self, what: str) -> int:
        """The runs, or families, that a fold has to learn from, at most."""
        every = len(self.table.runs) if what == "runs" else len(set(self.table.application))
        return every - every // _PARTS

    def point(self, name: str, what: str, count: int) -> CurvePoint:
        """What a learner reaches that saw so many runs, or families, of the same folds."""
        family = np.array(self.table.application)

        def fewer(train: Rows, random: Callable[[Any], Any]) -> Rows:
            if what == "runs":
                return np.asarray(random(train)[:count], np.int64)
            return train[np.isin(family[train], random(np.unique(family[train]))[:count])]

        def make() -> dict[str, Any]:
            protocol = "random" if what == "runs" else "application"
            return {"measures": _learned(self.table, name, protocol, self.seed, fewer)}

        made_from = ["curve", self.table.digest, self.seed, name, CURVES[name], what, count]
        found = self._kept.get(made_from, make)["measures"]
        return CurvePoint(name, what, min(count, self.learned_from(what)), found)

    def few(self, count: int) -> list[FewScore]:
        """Each system in turn known from so many runs."""

        def make() -> dict[str, Any]:
            found = few_samples(self.table, draws=_FEW_DRAWS, samples=(count,), report=note)
            return {"scores": [asdict(score) for score in found]}

        kept = self._kept.get(["few", self.table.digest, count, _FEW_DRAWS], make)
        return [FewScore(**{**score, "r2": Interval(**score["r2"])}) for score in kept["scores"]]


def _learned(
    table: RelativeTable, name: str, protocol: str, seed: int, fewer: Callable[..., Rows]
) -> dict[str, float]:
    """The measures of a learner that saw a part of each fold's training runs, the mean over draws."""
    learner, settings = CURVES[name]
    rows, truth, found = table.features("counters"), vector_of(table.log_times), []
    for draw in range(_DRAWS):
        random = np.random.default_rng([seed, draw])
        said = np.zeros_like(truth)
        for train, test in splits(protocol, table, seed, parts=_PARTS):
            few = fewer(train, random.permutation)
            model = vector_models.load(learner)(settings, rows[few], truth[few], seed=draw)
            said[test] = log_times_of(model.predict(rows[test]))
        found.append(measures_of(table.log_times, said))
    return {measure: float(np.mean([one[measure] for one in found])) for measure in MEASURES}


def _beside(path: Path) -> Path:
    """Where what stands beside the comparison is kept: x.jsonl → x-beside.jsonl."""
    name, _, ending = path.name.partition(".")
    return path.with_name(f"{name}-beside.{ending}")


def _head(source: CounterTable, comparison: Comparison) -> list[str]:
    systems = "; ".join(
        f"{name}: {_said(source, name)}" for name in comparison.systems if name in source.systems
    )
    return [
        "Made by `python -m reproduction relative-programs` of the table `experiments/programs.parquet`,",
        "of 87 programs of torch in 15 families, twelve sizes each, run unchanged on CPU and GPU",
        "(`reproduction/collect/torch_programs.py`). Times are medians of 5 to 15 repeats after one",
        f"that is not counted, on {systems}.",
        "A part of the GPU is CUDA's limit of a process to so many multiprocessors (MPS); clocks and power",
        "are untouched. Counters of Table I are Callgrind's, of one execution on one core of another machine",
        "(an EPYC): instructions and their mix exact, caches and branches simulated.",
        "An *application* is a family here, and a *kernel* a program.",
    ]


def _said(source: CounterTable, name: str) -> str:
    about = source.systems[name].description
    if about.get("device") == "cuda":
        return f"{about.get('multiprocessor_share', '')} % of an {about.get('name', 'GPU')}"
    return f"{about.get('threads', '?')} threads of a Xeon with 16 cores"


def _four(table: RelativeTable, answers: Sequence[Answers]) -> list[str]:
    """The same answers over four of the systems, where fewer of them lie close."""
    at = [table.systems.index(name) for name in FOUR]
    rows = list(dict.fromkeys(one.row for one in answers if one.vectors))
    lines = [
        "### Over four of the systems", "",
        f"The same answers, over {', '.join(FOUR)} alone, as many as the paper has:",
        "fewer orders are a matter of noise.", "",
        "| predictor | exact order, random | exact order, families left out | fastest named, families left"
        " out | time lost, families left out |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        found = {}
        for protocol in PROTOCOLS:
            one = next(one for one in answers if (one.row, one.protocol) == (row, protocol))
            truth = table.halves[0] if row == CEILINGS[0] else table.log_times
            found[protocol] = measures_of(truth[:, at], one.said[0][:, at])
        lines.append(
            f"| {row} | {found['random']['order']:.2f} | {found['application']['order']:.2f} | "
            f"{found['application']['top1']:.2f} | {found['application']['regret']:.2f} |"
        )
    return lines


def _curves(points: Sequence[CurvePoint]) -> list[str]:
    lines = ["### How much data would do", ""]
    for what, column in (("runs", COLUMNS["random"]), ("families", "families left out, five folds")):
        counts = sorted({one.count for one in points if one.what == what})
        lines += [
            f"Learned from so many {what} ({column}): R² / exact order / fastest named / time lost.", "",
            f"| learner | {' | '.join(f'{count} {what}' for count in counts)} |",
            "|---|" + "---|" * len(counts),
        ]  # fmt: skip
        for learner in CURVES:
            cells = []
            for count in counts:
                one = next(o for o in points if (o.learner, o.what, o.count) == (learner, what, count))
                cells.append(" / ".join(f"{one.measures[m]:.2f}" for m in ("r2", "order", "top1", "regret")))
            lines.append(f"| {learner} | {' | '.join(cells)} |")
        lines.append("")
    return lines
