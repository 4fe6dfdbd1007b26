"""The results page of a comparison of kernel predictors, in Markdown, beside what was published."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from apportion import __version__
from apportion.data.records import CLASSES
from apportion.learn.metrics import Interval
from apportion.learn.shares.kernel_table import KernelTable
from apportion.report.hardware import processor
from apportion.report.numbers import with_interval
from reproduction.kernels.ceiling import Neighbour, neighbours, section
from reproduction.kernels.cross_validation import CHOSEN, UNDRAWN, Comparison, Score
from reproduction.kernels.distribution import class_counts
from reproduction.published import published

COLUMNS = {
    "thesis": "random (leaks)",
    "source": "by source (inputs leak)",
    "component": "by source or graph (inputs leak)",
    "application": "one application out",
    "suite": "one suite out",
}
"Protocol → heading; the last two are the leak-free ones."
_MEASURES = {
    "accuracy": "accuracy",
    "over_cpu": "speed-up over always CPU",
    "over_gpu": "speed-up over always GPU",
    "of_oracle": "of the oracle's speed",
    "regret": "time lost against the oracle",
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
    "classes": "five-class accuracy",
}


@dataclass(frozen=True)
class KernelNumbers:
    """`published.toml`: task → pair of devices → measure."""

    reported: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
    "Paper → what it reports under random folds."
    goals: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
    "Folds → what we want to reach."


PUBLISHED = published("kernels", KernelNumbers)
SHIPPED = "pooled forests"
"The row that is what the recalling models use."
SHIPPED_CLASS = "pooled, vote for a class"
"The row that is the class it gives beside the share."
_SHARED_TIME = (
    "Each device's time goes with its share, the later one counts, and the oracle knows the best share; what",
    "sharing itself costs is not in it.",
)
_LEFT_BY = ("thesis", "source", "application")
"The protocols whose folds leave the rows that `neighbours` asks, in its order."
_LESS_IS_BETTER = frozenset(("mae", "rmse", "regret"))


def page(
    comparison: Comparison,
    tables: Mapping[str, KernelTable],
    scores: Sequence[Score],
    *,
    coverage: Mapping[str, Sequence[Mapping[str, float]]] | None = None,
    figures: Mapping[str, str] | None = None,
    networks: Sequence[str] = (),
) -> str:
    """The page: the targets, a table of each pair of devices and measure, the ceiling, then how it was made.

    Args:
        comparison: what was run.
        tables: pair → its rows.
        scores: what came out.
        coverage: pair → how often the shipped intervals held, at several confidences.
        figures: pair → the name of a picture beside the page that shows its labels.
        networks: lines about networks for the same task, under a heading of their own.
    """
    lines = [f"# {comparison.task}: classical predictors on CGO17", "", *_reading(comparison)]
    lines += ["", *_against_targets(comparison, tables, scores), "", *_plainly(comparison, scores)]
    lines += ["", *networks] if networks else []
    lines += ["", *_tried(comparison)]
    measures = list(scores[0].measures)
    for pair in comparison.pairs:
        used = len(tables[pair].examples)
        lines += ["", f"## {pair}: {used} of {tables[pair].rows_published} rows used"]
        if comparison.task == "load-balance":
            lines += ["", *_labels(tables[pair], (figures or {}).get(pair))]
        chosen = [score for score in scores if score.pair == pair]
        for measure in measures:
            lines += ["", f"### {_MEASURES[measure]}", "", *_table(comparison, pair, measure, chosen)]
        lines += ["", *_validation(comparison, chosen)]
    if coverage:
        lines += ["", *_coverage(coverage)]
    lines += ["", *_ceiling_words()]
    for pair in comparison.pairs:
        lines += ["", *section(tables[pair])]
    return "\n".join([*lines, "", *_made(comparison, tables), ""])


def _reading(comparison: Comparison) -> list[str]:
    return [
        "Mean over repetitions. Where folds are drawn, with the mean's 95 % interval (Student's t); where",
        "they are not (one application or suite out), with the middle 95 % of resampled folds. Every",
        "predictor learns from all rows of a fold that are not tested. Random folds leak: rows of one",
        "source stand on both sides. Folds by source, or by source and graph, leak the inputs: bytes moved",
        "name the application. Only the folds that hold out applications or suites, purged of equal sources",
        "and graphs, say what to expect of a program never seen.",
        "",
        "Every row's graph is of the archived IR; the sources of 184 rows do not compile as they are",
        "published, and none of them was needed. A decision costs time: speed-ups are geometric means over",
        "rows, and the time lost is that of all rows together beyond the oracle's, as a part of it.",
        *(_SHARED_TIME if comparison.task == "load-balance" else ()),
        "",
        f"`{SHIPPED}` answers as `--model cgo17-nvidia-recall`: forests on all code, on a summary,",
        "one on that summary and on what the nearest known launches did, and one on the inputs",
        "alone, which is heard where a training row moved exactly as many bytes; the answer is the mean of",
        "the middle 30 % of the trees. They learn the shares beside both GPUs and the faster device at once.",
        f"`{CHOSEN}` is, for each protocol, the candidate that did best on validation rows of folds drawn",
        f"with another seed ({comparison.selection_seed}),",
        "learned from their training rows alone. The settings of the forests were found on such rows too.",
        "Those folds cut the same rows, so what is chosen by one fold's validation rows is tested on them by",
        "another: the choice is a little optimistic.",
    ]


def _labels(table: KernelTable, figure: str | None) -> list[str]:
    heads = "| class | " + " | ".join(str(value) for value in CLASSES) + " |"
    counts = "| rows | " + " | ".join(str(count) for count in class_counts(table)) + " |"
    lines = [heads, "|---|" + "---|" * len(CLASSES), counts]
    if figure:
        lines = [f"![Distribution of the labels, {table.pair} (thesis, Figure 5.1)]({figure})", "", *lines]
    return lines


def _validation(comparison: Comparison, scores: Sequence[Score]) -> list[str]:
    """What the candidates did on validation rows, and which of them was chosen."""
    if not any(score.validation for score in scores):
        return []
    protocols = list(comparison.repetitions)
    shown = ("accuracy",) if comparison.task == "device-mapping" else ("mae", "classes")
    lines = ["### chosen by validation rows", ""]
    for measure in shown:
        lines += [
            f"| {_MEASURES[measure]} | " + " | ".join(COLUMNS[protocol] for protocol in protocols) + " |",
            "|---|" + "---|" * len(protocols),
        ]
        picked = {score.protocol: score.chosen.get(measure) for score in scores if score.row == CHOSEN}
        for row in dict.fromkeys(score.row for score in scores if score.validation):
            found = {score.protocol: score.validation[measure] for score in scores if score.row == row}
            cells = [
                f"**{found[protocol]:.3f}**" if picked.get(protocol) == row else f"{found[protocol]:.3f}"
                for protocol in protocols
            ]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines[:-1]


def _coverage(coverage: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    lines = [
        "## How often the shipped intervals hold",
        "",
        "Conformal intervals, checked on applications held out of the forests and of the calibration, purged",
        "of equal sources and graphs. Width is that before intervals are cut at 0 and 100.",
        "",
        "| pair | confidence | rows held | applications held, each counting once | mean width |",
        "|---|---|---|---|---|",
    ]
    for pair, levels in coverage.items():
        for level in levels:
            lines.append(
                f"| {pair} | {level['confidence']:.0%} | {level['of_rows']:.1%} | "
                f"{level['of_applications']:.1%} | {level['width']:.1f} |"
            )
    return lines


def _ceiling_words() -> list[str]:
    return [
        "## The ceiling",
        "",
        "Rows equal in all that a model sees and apart in their labels bound every model; they are few here.",
        "What bounds these folds is how far labels move between the nearest launches of one source: the",
        "range of a launch is not published, and bytes moved stand for it badly. The nearest neighbour (code",
        "and inputs counting alike) says what memory alone does; by Cover and Hart no rule errs less than",
        "about half as often, which `at most` says. The last table draws each time again with noise: what",
        "remains of the labels is the most that anyone could agree with, were that the measurements' noise.",
    ]


def _table(comparison: Comparison, pair: str, measure: str, scores: Sequence[Score]) -> list[str]:
    protocols = list(comparison.repetitions)
    lines = [
        "| predictor | " + " | ".join(COLUMNS[protocol] for protocol in protocols) + " |",
        "|---|" + "---|" * len(protocols),
    ]
    for row in dict.fromkeys(score.row for score in scores):
        found = {score.protocol: score.measures[measure] for score in scores if score.row == row}
        lines.append(f"| {row} | " + " | ".join(_number(found[protocol]) for protocol in protocols) + " |")
    for name, value in PUBLISHED.reported.get(comparison.task, {}).get(pair, {}).get(measure, {}).items():
        cells = [f"{value:.3f}" if protocol == "thesis" else "" for protocol in protocols]
        lines.append(f"| *{name}, published* | " + " | ".join(cells) + " |")
    return lines


def _against_targets(
    comparison: Comparison, tables: Mapping[str, KernelTable], scores: Sequence[Score]
) -> list[str]:
    """Each target beside the shipped row and the one that validation chose, never the best by test."""
    rows = [name for name in (SHIPPED, CHOSEN) if any(score.row == name for score in scores)]
    wanted = {
        (pair, measure): levels
        for pair, measures in PUBLISHED.goals.get(comparison.task, {}).items()
        for measure, levels in measures.items()
        if pair in comparison.pairs
    }
    if not rows or not wanted:
        return []
    lines = [
        "## Against the targets",
        "",
        "A target that is missed but lies inside the interval may be reached with other folds. The",
        "last column is what the nearest neighbour reaches that such folds leave, and by Cover and Hart's",
        "bound the most that any rule could: an estimate from few rows, and where a row passes it, too low.",
        "A missed target that lies below is hard to reach, but not shown to be out of reach.",
        "",
    ]
    lines += ["| pair | measure | folds | target | " + " | ".join(rows) + " | nearest neighbour |"]
    lines.append("|---|---|---|---|" + "---|" * (len(rows) + 1))
    near = {pair: dict(zip(_LEFT_BY, neighbours(tables[pair]), strict=True)) for pair, _ in wanted}
    found = {(score.pair, score.protocol, score.row): score.measures for score in scores}
    for (pair, measure), levels in wanted.items():
        for protocol, target in levels.items():
            if protocol in comparison.repetitions:
                cells = []
                for row in rows:
                    voted = (pair, protocol, SHIPPED_CLASS)
                    by_vote = measure == "classes" and row == SHIPPED and voted in found
                    measures = found[voted if by_vote else (pair, protocol, row)]
                    cells.append(_met(measures[measure], target, measure) + (", by vote" if by_vote else ""))
                lines.append(
                    f"| {pair} | {_MEASURES[measure]} | {COLUMNS[protocol]} | {target:g} | "
                    + " | ".join(cells) + f" | {_nearest(near[pair].get(protocol), measure)} |"
                )  # fmt: skip
    reached = _reached_by_others(wanted, comparison, scores)
    if reached:
        lines += [
            "",
            "Rows that reach a target which the shipped one misses; nothing but the test rows",
            "speaks for them:",
            "",
        ]
    return [*lines, *reached]


def _nearest(found: Neighbour | None, measure: str) -> str:
    if found is None:
        return ""
    if measure == "mae":
        return f"{found.difference:.2f}"
    wrong, classes = (found.wrong_class, len(CLASSES)) if measure == "classes" else (found.wrong_device, 2)
    return f"{1 - wrong:.3f}, at most {found.best_accuracy(classes):.3f}"


def _reached_by_others(
    wanted: Mapping[tuple[str, str], Mapping[str, float]], comparison: Comparison, scores: Sequence[Score]
) -> list[str]:
    """Where a target is not out of reach: the rows that reach it and were not chosen."""
    lines = []
    for (pair, measure), levels in wanted.items():
        for protocol, target in levels.items():
            if protocol not in comparison.repetitions:
                continue
            found = {
                score.row: score.measures[measure]
                for score in scores
                if (score.pair, score.protocol) == (pair, protocol)
            }
            reached = {name: value for name, value in found.items() if _reaches(value, target, measure)}
            constants = [row.name for row in comparison.rows if row.learner in ("constant", "median")]
            names = [name for name in reached if name != CHOSEN and name not in constants]
            if SHIPPED in reached or (measure == "classes" and SHIPPED_CLASS in reached) or not names:
                continue
            rows = ", ".join(f"{name} {_number(reached[name])}" for name in names)
            lines.append(f"- {pair}, {_MEASURES[measure]}, {COLUMNS[protocol]}, {target:g}: {rows}")
    return lines


def _plainly(comparison: Comparison, scores: Sequence[Score]) -> list[str]:
    """Where an answer that does not look at the launch is as good as the shipped model."""
    measure = "accuracy" if comparison.task == "device-mapping" else "mae"
    constants = [row.name for row in comparison.rows if row.learner in ("constant", "median")]
    found = {(score.pair, score.protocol, score.row): score.measures[measure].value for score in scores}
    lines = []
    for pair in comparison.pairs:
        for protocol in comparison.repetitions:
            known = {name: found[pair, protocol, name] for name in constants}
            ours = found.get((pair, protocol, SHIPPED))
            if ours is None or not known:
                continue
            pick = min if measure in _LESS_IS_BETTER else max
            best = pick(known, key=lambda name: known[name])
            better = ours < known[best] if measure in _LESS_IS_BETTER else ours > known[best]
            word = (
                "is better than every constant answer"
                if better
                else "**is not better than a constant answer**"
            )
            lines.append(
                f"- {pair}, {COLUMNS[protocol]}: `{SHIPPED}` {word} ({_MEASURES[measure]} {ours:.3f}; the "
                f"best of them, {best}, {known[best]:.3f})"
            )
    return ["## Beside constant answers", "", *lines] if lines else []


_TRIED = {
    "boosting, pre-trained graphs": "graph embedding and boosting; pre-training on data flow: means of node "
    "states of a network that learned data dependences, with the inputs, boosted",
    "extra trees": "the plain learner that the next four differ from in one thing each",
    "extra trees, no numbers": "without the numbers that constants and extents of arrays hold, which the "
    "others see, as PERFOGRAPH does",
    "extra trees on log-odds": "the logarithm of share / rest as the target",
    "extra trees on classes": "the five classes as ordered numbers as the target",
    "extra trees, both GPUs": "the shares beside both GPUs learned at once",
    "pooled, no nearest launches": "the shipped ensemble without what known launches did",
    "pooled forests": "the shipped ensemble",
}


def _tried(comparison: Comparison) -> list[str]:
    """What was tried, and the row that says what came of it."""
    rows = [row.name for row in comparison.rows if row.name in _TRIED]
    if not rows:
        return []
    return [
        "## What was tried",
        "",
        "| row of the tables | idea |",
        "|---|---|",
        *(f"| {name} | {_TRIED[name]} |" for name in rows),
        "",
        "Tried on validation rows of random folds and left out, being no better there: Gaussian processes on",
        "code and sizes, XGBoost on squared and on absolute errors, their means with the pool, and the times",
        "of the three devices as further targets of the trees. Networks: `python -m reproduction ablation`.",
    ]


def _met(found: Interval, target: float, measure: str) -> str:
    met = _reaches(found, target, measure)
    inside = found.low <= target <= found.high
    return f"{_number(found)}: {'**met**' if met else 'missed, inside' if inside else 'missed'}"


def _reaches(found: Interval, target: float, measure: str) -> bool:
    return found.value <= target if measure in _LESS_IS_BETTER else found.value >= target


def _number(interval: Interval) -> str:
    return with_interval(interval, ".2f" if abs(interval.value) >= 3 else ".3f")


def _made(comparison: Comparison, tables: Mapping[str, KernelTable]) -> list[str]:
    data = "; ".join(f"{pair} `{table.digest[:16]}`" for pair, table in tables.items())
    repetitions = ", ".join(f"{protocol} {count}" for protocol, count in comparison.repetitions.items())
    once = ", ".join(row.name for row in comparison.rows if row.once)
    return [
        "## How it was made",
        "",
        f"- Command: `python -m reproduction {comparison.task}`; settings: "
        f"`experiments/{comparison.task}-trees.toml`; seed {comparison.seed}, one more each repetition",
        f"- Repetitions: {repetitions}" + (f"; one of {once}" if once else ""),
        f"- Of {' and '.join(UNDRAWN)} out, repetitions differ in what is learned, not in the folds",
        f"- Data fingerprint: {data}",
        f"- Made with apportion {__version__}, Python {platform.python_version()}, on {processor()}, "
        f"{os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}",
    ]
