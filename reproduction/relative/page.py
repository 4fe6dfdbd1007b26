"""The results page of relative performance: every predictor under every split, beside the paper's."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from apportion import __version__
from apportion.learn.metrics import Interval
from apportion.learn.relative.figures import distributions, roc_curves
from apportion.learn.relative.performance import MEASURES, Roc, common_order, order_of, roc
from apportion.learn.relative.relative_shipping import Trust
from apportion.learn.relative.relative_table import WITH_GRAPH, RelativeTable
from apportion.report.charts import bars
from apportion.report.hardware import hardware
from apportion.report.numbers import with_interval
from reproduction.published import published
from reproduction.relative.comparison import (
    CEILINGS,
    PROTOCOLS,
    RULES,
    Answers,
    Comparison,
    against,
    choice_called,
    r_squared_as_said,
    scores,
    splits,
)  # fmt: skip
from reproduction.relative.few_runs import FewScore

COLUMNS = {
    "random": "random 80-20 (sizes leak)",
    "kernel": "kernels left out",
    "application": "applications left out",
}
_MEASURES = {
    "r2": "R², in parts of the slowest",
    "mae": "mean absolute error, in parts of the slowest",
    "order": "exact order of all systems",
    "kendall": "Kendall's tau",
    "top1": "fastest system named",
    "regret": "time lost against the fastest (ratio)",
}


@dataclass(frozen=True)
class RelativeNumbers:
    """`published.toml`."""

    reported: Mapping[str, float]
    goals: Mapping[str, Mapping[str, float]]
    "Folds → measure; of a regret less is better, of everything else more."
    few_runs: Mapping[int, float]
    "R² of a new system, by the runs that are measured on it."


PUBLISHED = published("relative", RelativeNumbers)
TARGETS = {
    (protocol, measure): (goal, measure != "regret")
    for protocol, measures in PUBLISHED.goals.items()
    for measure, goal in measures.items()
}
"Folds and measure → goal, and whether more is better."
FEW_TARGETS = PUBLISHED.few_runs


@dataclass(frozen=True)
class Goals:
    """What is to be reached on a set of runs."""

    targets: Mapping[tuple[str, str], float]
    "Folds and measure → goal; of a regret less is better, of everything else more."
    few_runs: Mapping[int, float]
    "R² of a new system, by the runs that are measured on it."


@dataclass(frozen=True, eq=False)
class Set:
    """Everything that was found on one set of runs."""

    title: str
    comparison: Comparison
    everything: RelativeTable
    answers: Sequence[Answers]
    stacked: Mapping[str, Mapping[str, float]]
    few: Sequence[FewScore] = ()
    trust: Trust | None = None
    hardware: str = ""
    "What the systems are."
    goals: Goals | None = None
    "Where they are others than those for AIWC."

    @property
    def table(self) -> RelativeTable:
        """The runs on the systems compared."""
        return self.everything.on(self.comparison.systems)

    def answer(self, row: str, protocol: str) -> Answers:
        """What one row said under one split."""
        return next(one for one in self.answers if (one.row, one.protocol) == (row, protocol))


def page(sets: Mapping[str, Set], figures: str, *, samples: int = 400) -> tuple[str, dict[str, str]]:
    """The page in Markdown, and the files of its figures.

    Args:
        sets: by a short name, which figures are called after.
        figures: the folder of the figures, as the page links to it.
        samples: how often applications are drawn anew for the intervals.
    """
    lines = ["# Relative performance across systems", "", *_reading()]
    drawn: dict[str, str] = {}
    for short, one in sets.items():
        measures = _measured(one, samples)
        figures_of = _figures(one, measures)
        drawn |= {f"{short}-{name}.svg": svg for name, svg in figures_of.items()}
        links = [f"{figures}/{short}-{name}.svg" for name in figures_of]
        lines += ["", *sections(one, measures, samples=samples, against_targets=short == "aiwc", links=links)]
    return "\n".join([*lines, "", *_made(sets), ""]), drawn


def _measured(one: Set, samples: int) -> dict[tuple[str, str], dict[str, Interval]]:
    return {(a.row, a.protocol): scores(a, one.table, samples=samples) for a in one.answers}


def sections(
    one: Set,
    measures: Mapping[tuple[str, str], Mapping[str, Interval]] | None = None,
    *,
    samples: int = 400,
    against_targets: bool = False,
    links: Sequence[str] = (),
) -> list[str]:
    """What the page says of one set.

    Args:
        measures: of each row and split, where they are known already.
        samples: how often applications are drawn anew for the intervals.
        against_targets: the targets for AIWC are told.
        links: the figures, as the page links to them.
    """
    measures = measures or _measured(one, samples)
    lines = [f"## {one.title}", "", *_described(one)]
    if against_targets:
        lines += ["", *_targets(one, measures, samples)]
    if one.goals:
        lines += ["", *_goals(one, one.goals, measures)]
    lines += ["", *_winner(one, measures), "", *published_beside(one, measures, samples)]
    for link in links:
        lines += ["", f"![{Path(link).stem.partition('-')[2]}]({link})"]
    for measure in MEASURES:
        lines += ["", f"### {_MEASURES[measure]}", "", *_table(one, measure, measures)]
    lines += ["", *_chosen(one), "", *_stages(one, samples)]
    if one.few:
        lines += ["", *_few(one)]
    if one.trust:
        lines += ["", *_trust(one.trust, one.comparison.profiled)]
    return lines


def _goals(one: Set, goals: Goals, measures: Mapping[tuple[str, str], Mapping[str, Interval]]) -> list[str]:
    """Each goal beside what validation chose from counters alone, the network, and what the noise allows."""
    rows = [choice_called("counters"), one.comparison.whole, CEILINGS[0]]
    rows = [row for row in rows if (row, "random") in measures]
    lines = [
        "### Against the goals", "",
        f"| split | measure | goal | {' | '.join(rows)} | met |",
        "|---|---|---|" + "---|" * len(rows) + "---|",
    ]  # fmt: skip
    for (protocol, measure), goal in goals.targets.items():
        found = [measures[row, protocol][measure] for row in rows]
        value = found[0].value
        met = value <= goal if measure == "regret" else value >= goal
        cells = " | ".join(_number(interval) for interval in found)
        lines.append(
            f"| {COLUMNS[protocol]} | {_MEASURES[measure]} | {goal} | {cells} | {'yes' if met else 'no'} |"
        )
    return lines


def _reading() -> list[str]:
    return [
        "Counters of a run on one system in, its relative performance on several systems out: the work of",
        "Nichols, Yeom and Bhatele (Predicting Cross-Platform Relative Performance with Deep "
        "Generative Models).",
        "Each row learns from the training runs of a fold alone; numbers are over all runs, each "
        "predicted when it",
        "was in the test, with the middle 95 % over resampled applications. Random folds put sizes "
        "of one kernel",
        "on both sides; what to expect of a program never seen is the last column. `chosen by "
        "validation` takes, in",
        "each fold, the candidate with the least regret in folds of the same kind inside the training runs.",
        "Rows in italics are no models: half of the repeats against the other half, and one repeat, show",
        "what the noise of the times allows; rules name an order or a system without looking at counters.",
    ]


def _described(one: Set) -> list[str]:
    table = one.table
    applications, kernels = len(set(table.application)), len(set(table.kernel))
    order = common_order(table.log_times)
    share = float((order_of(table.log_times) == np.array(order)).all(axis=1).mean())
    folds = len(splits("application", table, one.comparison.seed))
    apart = "each application" if folds == applications else f"each of {folds} groups of applications"
    return [
        f"{len(table.runs)} runs of {kernels} kernels in {applications} applications, "
        f"{len(table.counters)} counters,"
        f" {len(table.systems)} systems: {', '.join(table.systems)}. {table.left_out} runs of the "
        "source were left"
        f" out: incomplete. The most common order, {' < '.join(table.systems[i] for i in order)}, is that of"
        f" {share:.0%} of the runs. `One time known`: the run was timed on {one.comparison.profiled}"
        + (f", `two`: on {one.comparison.second} as well" if one.comparison.second else "")
        + ". In the"
        f" last column {apart} in turn is the test."
        + (" Program graphs are not known of every run, and do not join." if table.graph is None else "")
        + ("" if one.comparison.whole else " No network was trained on them.")
        + ("" if table.repeated else " Each time is one median: there are no repeats to tell the noise by."),
        *([f"Systems: {one.hardware}."] if one.hardware else []),
    ]


def _number(interval: Interval) -> str:
    return with_interval(interval, ".2f")


def _targets(one: Set, measures: Mapping[tuple[str, str], Mapping[str, Interval]], samples: int) -> list[str]:
    """Each target beside the rows that validation chose, then beside the best row, which the test chooses."""
    groups = list(dict.fromkeys(row.candidate for row in one.comparison.rows if row.candidate))
    rows = [choice_called(group) for group in groups]
    singles = [row.name for row in one.comparison.rows]
    lines = [
        "### Against the targets", "",
        f"| split | measure | target | {' | '.join(rows)} | met by | best single row, seen after the test |",
        "|---|---|---|" + "---|" * len(rows) + "---|---|",
    ]  # fmt: skip
    unmet = []
    counts = dict.fromkeys(rows, 0)
    for (protocol, measure), (target, more) in TARGETS.items():
        found = [measures[row, protocol][measure] for row in rows]
        met = [
            name
            for name, interval in zip(rows, found, strict=True)
            if (interval.value >= target if more else interval.value <= target)
        ]
        for name in met:
            counts[name] += 1
        sign = 1 if more else -1
        best = max(singles, key=lambda name: sign * measures[name, protocol][measure].value)
        value = measures[best, protocol][measure].value
        reached = sign * value >= sign * target
        if not met:
            unmet.append((protocol, measure, reached))
        names = ", ".join(name.rpartition(", ")[2] for name in met) or "none"
        lines.append(
            f"| {COLUMNS[protocol]} | {_MEASURES[measure]} | {target:g} | "
            + " | ".join(_number(interval) for interval in found)
            + f" | {names} | {best}: {value:.3f}{'' if reached else ', not reached'} |"
        )
    two = measures.get((RULES[1], "application"))
    often = ", ".join(f"{row.rpartition(', ')[2]} {count}" for row, count in counts.items())
    lines += ["", f"Of the {len(TARGETS)} targets, rows that validation chose meet: {often}."]
    if counts.get(choice_called("counters")) == 0:
        lines.append("Counters alone reach none of them.")
    if unmet:
        said = ", ".join(
            f"{_MEASURES[measure].split(',')[0]} ({COLUMNS[protocol]})"
            + (", which one row reaches that nobody could have picked beforehand" if reached else "")
            for protocol, measure, reached in unmet
        )
        lines.append(f"Met by none of them: {said}. Rows differ by less than their intervals are wide.")
    lines += _informed(one, groups, samples)
    lines.append(
        "Tried besides, looked at on these same folds, and not adopted: some twenty blends of rows, Gaussian"
        " processes, other rules of choosing."
    )
    if two:
        lines.append(
            "What reaches the targets of decisions on every split without a model: measure on two systems of"
            f" the four, take the faster: top-1 {_number(two['top1'])}, regret {_number(two['regret'])}."
        )
    return lines


def _informed(one: Set, groups: Sequence[str], samples: int) -> list[str]:
    """What program graphs and descriptions of systems add to one time."""
    if "informed" not in groups or "timed" not in groups:
        return []
    rows = [row for row in one.comparison.rows if row.candidate == "informed"]
    kinds = {
        "the kernels' program graphs": any(row.features == WITH_GRAPH for row in rows),
        f"descriptions of all {len(one.everything.systems)} systems (to learn from pairs of a run and a"
        " system)": any(row.described for row in rows),
    }
    told = []
    for protocol in ("random", "application"):
        found = against(
            one.answer(choice_called("informed"), protocol), one.answer(choice_called("timed"), protocol),
            one.table, samples=samples,
        )  # fmt: skip
        told.append(
            f"{COLUMNS[protocol]}: R² {_signed(found['r2'])}, exact order {_signed(found['order'])}, top-1"
            f" {_signed(found['top1'])}, regret divided by the other's {_number(found['regret'])}"
        )
    return [
        f"Beside one time, {' and '.join(kind for kind, tried in kinds.items() if tried)} were given to"
        f" {len(rows)} more rows (their names tell which). Choosing among these as well, against choosing"
        f" among those with one time alone: {'; '.join(told)}. An interval that holds 0 (for regret 1) shows"
        " no gain."
    ]


def _signed(interval: Interval) -> str:
    return with_interval(interval, "+.2f")


def _winner(one: Set, measures: Mapping[tuple[str, str], Mapping[str, Interval]]) -> list[str]:
    """Who loses least time on applications left out, rules among them."""
    models = [row.name for row in one.comparison.rows if row.learner != "constant"]
    rules = [RULES[1], *(row.name for row in one.comparison.rows if row.learner == "constant")]
    alone = [
        row.name for row in one.comparison.rows
        if row.name in models
        and not (row.timed or row.of or row.described or row.features == WITH_GRAPH)
    ]  # fmt: skip

    def least(names: Sequence[str]) -> str:
        name = min(names, key=lambda name: measures[name, "application"]["regret"].value)
        return f"`{name}` {_number(measures[name, 'application']['regret'])}"

    return [
        "Least time lost on applications left out, each picked after the test: of the rules"
        f" {least(rules)}; of the rows with counters alone {least(alone)}; of all rows {least(models)}."
    ]


def published_beside(
    one: Set, measures: Mapping[tuple[str, str], Mapping[str, Interval]], samples: int
) -> list[str]:
    """The paper's numbers beside ours; the forest scored both ways."""
    network = one.comparison.whole
    forest = next((row.name for row in one.comparison.rows if row.learner == "random-forest"), "")
    lines = [
        "### Beside the paper's numbers", "",
        "| | published | here, runs at random | here, applications left out |", "|---|---|---|---|",
    ]  # fmt: skip
    pairs = [
        ("R² of the network", network, "r2"),
        ("R² of the random forest", forest, "r2"),
        ("exact order", network, "order"),
    ]
    for label, row, measure in pairs:
        if row:
            lines.append(
                f"| {label} | {PUBLISHED.reported[label]:.2f} | "
                f"{_number(measures[row, 'random'][measure])} | "
                f"{_number(measures[row, 'application'][measure])} |"
            )
        if row and row == forest:
            as_said = {
                answers.protocol: r_squared_as_said(answers, one.table, samples=samples)
                for answers in one.answers if answers.row == forest
            }  # fmt: skip
            lines.append(
                f"| … scored as the forest says it | {PUBLISHED.reported[label]:.2f} | "
                f"{_number(as_said['random'])} | {_number(as_said['application'])} |"
            )
    table = one.table
    prior = roc(table.log_times, table.log_times).prior
    lines.append(
        f"| share of the common order | {PUBLISHED.reported['common order']:.2f} | {prior:.2f} "
        f"| {prior:.2f} |"
    )
    if not one.stacked:
        return [
            *lines,
            "",
            "Not comparable: other programs, counters and systems. Comparable is the protocol.",
        ]
    at_random, by_run, by_application = (one.stacked[name] for name in one.stacked)
    return [
        *lines, "",
        "Not comparable: other programs, counters and systems, and in the paper's data 80 % of the "
        "runs share one",
        "order. Comparable is the protocol, and there the layout decides. The paper's public "
        "scripts keep a row for",
        "each system that a run was profiled on, all with the same label, and draw rows. Done so "
        "here, with its",
        f"random forest: R² {at_random['r2']:.2f}, exact order {at_random['order']:.2f}. The same "
        "forest with whole runs"
        f" drawn: R² {by_run['r2']:.2f}, order {by_run['order']:.2f}; with applications held out: R²"
        f" {by_application['r2']:.2f}, order {by_application['order']:.2f}. These score vectors divided by",
        "their largest number, which the slowest system has by definition; scored as the forest says them,",
        f"as the papers do, R² is {at_random['r2_as_said']:.2f}, {by_run['r2_as_said']:.2f} and "
        f"{by_application['r2_as_said']:.2f}.",
        "", "Rows of this page say log times; their vectors are made of these, so that the slowest system "
        "has 1. A forest",
        "that learns vectors says none for which that holds exactly. The papers' R² is that of what it says "
        "(scikit-learn's).",
    ]  # fmt: skip


def _figures(one: Set, measures: Mapping[tuple[str, str], Mapping[str, Interval]]) -> dict[str, str]:
    table, network = one.table, one.comparison.whole
    shown = [row for row in (network, *(choice_called(group) for group in ("counters", "timed"))) if row]
    example = int(np.argmax(np.ptp(table.log_times, axis=1)))
    vector = 2 ** (table.log_times[example] - table.log_times[example].max())
    curves: dict[str, Roc] = {}
    for protocol in ("random", "application"):
        for row in shown[:2]:
            curves[f"{row}, {protocol}"] = roc(table.log_times, one.answer(row, protocol).said[0])
    rows = list(dict.fromkeys([RULES[0], *shown]))
    orders = {
        f"{row}, {protocol}": measures[row, protocol]["order"]
        for row in rows
        for protocol in ("random", "application")
    }
    return {
        "figure-2": distributions("Figure 2: relative time on each system", table.systems, table.log_times),
        "figure-3": bars(
            [(name, v, f"{v:.2f}") for name, v in zip(table.systems, vector.tolist(), strict=True)],
            most=1.0, title=f"Figure 3: {table.runs[example]}", paper="white",
        ),
        "figure-4": bars(
            [(name, order.value, f"{order.value:.2f}") for name, order in orders.items()], most=1.0,
            errors=[(i.low, i.high) for i in orders.values()],
            title="Figure 4: share of runs in the right order", paper="white",
        ),
        "figure-5": roc_curves("Figure 5: telling the common order", curves),
    }  # fmt: skip


def _table(one: Set, measure: str, measures: Mapping[tuple[str, str], Mapping[str, Interval]]) -> list[str]:
    lines = [f"| predictor | {' | '.join(COLUMNS[p] for p in PROTOCOLS)} |", "|---|---|---|---|"]
    for row in dict.fromkeys(a.row for a in one.answers):
        vectors = all(a.vectors for a in one.answers if a.row == row)
        if (measure in ("r2", "mae") and not vectors) or (
            row == RULES[1] and measure in ("order", "kendall")
        ):
            continue
        said = f"*{row}*" if row in (*CEILINGS, *RULES) else row
        lines.append(f"| {said} | {' | '.join(_number(measures[row, p][measure]) for p in PROTOCOLS)} |")
    return lines


def _chosen(one: Set) -> list[str]:
    lines = ["### What validation chose", ""]
    for group in dict.fromkeys(row.candidate for row in one.comparison.rows if row.candidate):
        for protocol in PROTOCOLS:
            often = Counter(one.answer(choice_called(group), protocol).chosen)
            words = ", ".join(f"{name} ({count})" for name, count in often.most_common())
            lines.append(f"- {choice_called(group)}, {COLUMNS[protocol]}: {words}")
    return lines


def _stages(one: Set, samples: int) -> list[str]:
    """Each stage of the network: what leaving it out changes."""
    whole = one.comparison.whole
    rows = [row.name for row in one.comparison.rows if row.name.startswith(one.comparison.stages)]
    if not whole or not rows:
        return []
    lines = [
        "### Does each stage of the network help?", "",
        f"What each change does to `{whole}`: R² and top-1 less those of the whole, regret divided "
        "by its; the same",
        "folds, applications resampled in pairs. An interval that holds 0 (for regret 1) shows no "
        "effect.", "",
        "| change | split | R² | top-1 | regret | the stage |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        for protocol in PROTOCOLS:
            found = against(
                one.answer(row, protocol), one.answer(whole, protocol), one.table, samples=samples
            )
            lines.append(
                f"| {row} | {COLUMNS[protocol]} | {_number(found['r2'])} | {_number(found['top1'])} | "
                f"{_number(found['regret'])} | {_verdict(found)} |"
            )
    return lines


def _verdict(found: Mapping[str, Interval]) -> str:
    r2, regret = found["r2"], found["regret"]
    if r2.high < 0 and regret.high >= 1:
        return "helps"
    if regret.low > 1 and r2.low <= 0:
        return "helps"
    if r2.low > 0 or regret.high < 1:
        return "hurts"
    return "no effect shown"


def _few(one: Set) -> list[str]:
    targets = one.goals.few_runs if one.goals else FEW_TARGETS
    lines = [
        "### New systems from few measured runs", "",
        f"Each of the {len(one.everything.systems)} systems in turn is new, with all runs of three "
        "applications; so many",
        "runs of the other applications are measured on it. R² of the log time relative to the "
        "other systems, 0 for",
        f"knowing the system's mean speed; mean over {10 if one.goals else 20} draws with its 95 % interval, "
        "and the median error of a time.",
        "The draws are others than those with which the prior variances were set. Siblings "
        + ("(parts of one GPU, of one CPU)" if one.goals else "(gtx1080 and ti, 290x and"),
        ("" if one.goals else "295x2) ") + "flatter whoever looks for the nearest system.", "",
        "| method | " + " | ".join(f"{k} runs" for k in targets) + " |",
        "|---|" + "---|" * len(targets),
    ]  # fmt: skip
    for method in dict.fromkeys(score.method for score in one.few):
        cells = [
            f"{_number(score.r2)}, {score.error:.0f} %"
            + (f", {score.held:.0%} in one sigma" if score.held else "")
            for score in one.few
            if score.method == method
        ]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    lines.append("| *target* | " + " | ".join(f"{target:.2f}" for target in targets.values()) + " |")
    return lines


def _trust(trust: Trust, profiled: str) -> list[str]:
    return [
        "### Does the shipped model know what it does not know?", "",
        f"Each application in turn unknown to it. One sigma holds {trust.held:.0%} of the relative "
        "times (each"
        f" application counting once; {trust.held_rows:.0%} of all), with the time on {profiled} known"
        f" {trust.timed_held:.0%} ({trust.timed_held_rows:.0%}); 68 % were promised. Of these runs "
        f"{trust.abstained:.0%}"
        f" lie so far from the others that it abstains. Regret is {trust.near_regret:.2f} over the "
        "nearer half of the"
        f" runs and {trust.far_regret:.2f} over the farther half"
        + (
            "." if trust.far_regret > trust.near_regret
            else ": within this data, distance alone does not tell where decisions go wrong."
        ),
    ]  # fmt: skip


def _made(sets: Mapping[str, Set]) -> list[str]:
    data = "; ".join(f"{short} `{one.everything.digest[:16]}`" for short, one in sets.items())
    first = next(iter(sets.values())).comparison
    return [
        "## How it was made", "",
        "- Command: `python -m reproduction relative-performance"
        + "".join(
            f" --measured experiments/{one.everything.name}.parquet --profiled {one.comparison.profiled}"
            + ("" if one.comparison.whole else " --no-networks")
            for short, one in sets.items()
            if short == "own"
        )
        + "`; settings: `experiments/relative-performance.toml`; "
        f"seed {first.seed}, one more each repetition",
        f"- Repetitions of the random folds: {first.repetitions}, of the networks 1; one seed each",
        f"- Data fingerprint: {data}",
        f"- Made with apportion {__version__}, Python {platform.python_version()}, on {hardware('cpu')},"
        f" {datetime.now(UTC):%Y-%m-%d}",
    ]  # fmt: skip
