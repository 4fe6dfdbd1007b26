"""The results page of a comparison of kernel predictors, in Markdown, beside what was published."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from apportion import __version__
from apportion.task.metrics import Interval
from apportion.train.crossvalidate import CHOSEN, Comparison, Score
from apportion.train.kerneltable import KernelTable

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
    "slowdown": "slowdown against the best share",
}
PUBLISHED: Mapping[tuple[str, str, str], Mapping[str, float]] = {
    ("device-mapping", "cgo17-amd", "accuracy"): {
        "ProGraML": 0.866, "thesis": 0.850, "IR2Vec": 0.918, "PERFOGRAPH": 0.94
    },
    ("device-mapping", "cgo17-nvidia", "accuracy"): {
        "ProGraML": 0.800, "thesis": 0.790, "IR2Vec": 0.883, "PERFOGRAPH": 0.90
    },
    ("load-balance", "cgo17-nvidia", "mae"): {"thesis": 7.324},
    ("load-balance", "cgo17-nvidia", "rmse"): {"thesis": 11.121},
    ("load-balance", "cgo17-nvidia", "classes"): {"thesis": 0.782},
}  # fmt: skip
"What papers report under random folds."
TARGETS: Mapping[tuple[str, str, str], Mapping[str, float]] = {
    ("device-mapping", "cgo17-amd", "accuracy"): {
        "thesis": 0.945, "source": 0.905, "application": 0.81, "suite": 0.588
    },
    ("device-mapping", "cgo17-nvidia", "accuracy"): {
        "thesis": 0.915, "source": 0.875, "application": 0.70, "suite": 0.569
    },
    ("load-balance", "cgo17-nvidia", "mae"): {
        "thesis": 5.2, "source": 8.8, "application": 15.5, "suite": 20.2
    },
    ("load-balance", "cgo17-nvidia", "classes"): {"thesis": 0.83, "source": 0.72},
}  # fmt: skip
"What the project wants to reach; with a suite held out, to beat the best constant answer."
_LESS_IS_BETTER = frozenset(("mae", "rmse", "slowdown", "regret"))


def page(comparison: Comparison, tables: Mapping[str, KernelTable], scores: Sequence[Score]) -> str:
    """The page: a table of each pair of devices and measure, then how it was made."""
    lines = [f"# {comparison.task}: classical predictors on CGO17", "", *_reading()]
    measures = list(scores[0].measures)
    for pair in comparison.pairs:
        used = len(tables[pair].examples)
        lines += ["", f"## {pair}: {used} of {tables[pair].rows_published} rows used"]
        chosen = [score for score in scores if score.pair == pair]
        for measure in measures:
            lines += ["", f"### {_MEASURES[measure]}", "", *_table(comparison, pair, measure, chosen)]
    lines += ["", *_against_targets(comparison, scores)]
    return "\n".join([*lines, "", *_made(comparison, tables), ""])


def _reading() -> list[str]:
    return [
        "Mean over repetitions with its 95 % interval (Student's t); under one repetition, the middle 95 %",
        "of resampled folds. Every predictor learns from a fold's training rows alone: 80 % of the rows",
        f"where folds are drawn. `{CHOSEN}` takes in each fold the candidate that did best on the fold's",
        "validation rows. Random folds leak: rows of one source stand on both sides. Folds by source leak",
        "the inputs: bytes moved name the application. Only the folds that hold out applications or suites,",
        "purged of equal sources and graphs, say what to expect of a program never seen.",
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
    for name, value in PUBLISHED.get((comparison.task, pair, measure), {}).items():
        cells = [f"{value:.3f}" if protocol == "thesis" else "" for protocol in protocols]
        lines.append(f"| *{name}, published* | " + " | ".join(cells) + " |")
    return lines


def _against_targets(comparison: Comparison, scores: Sequence[Score]) -> list[str]:
    """Each target beside the row that validation chose, never the best row, which the test would choose."""
    lines = [
        f"## Against the targets: the row `{CHOSEN}`",
        "",
        "| pair | measure | folds | target | here | met |",
        "|---|---|---|---|---|---|",
    ]
    for (task, pair, measure), wanted in TARGETS.items():
        for score in scores:
            if (task, pair, CHOSEN) != (
                comparison.task,
                score.pair,
                score.row,
            ) or score.protocol not in wanted:
                continue
            target, found = wanted[score.protocol], score.measures[measure]
            met = found.value <= target if measure in _LESS_IS_BETTER else found.value >= target
            lines.append(
                f"| {pair} | {_MEASURES[measure]} | {COLUMNS[score.protocol]} | {target:g} | "
                f"{_number(found)} | {'yes' if met else 'no'} |"
            )
    return lines


def _number(interval: Interval) -> str:
    digits = 2 if abs(interval.value) >= 3 else 3
    value, low, high = (f"{number:.{digits}f}" for number in (interval.value, interval.low, interval.high))
    return value if low == high else f"{value} ({low} to {high})"


def _made(comparison: Comparison, tables: Mapping[str, KernelTable]) -> list[str]:
    data = "; ".join(f"{pair} `{table.digest[:16]}`" for pair, table in tables.items())
    repetitions = ", ".join(f"{protocol} {count}" for protocol, count in comparison.repetitions.items())
    return [
        "## How it was made",
        "",
        f"- Command: `apportion reproduce {comparison.task}`; settings: "
        f"`experiments/{comparison.task}-trees.toml`; seed {comparison.seed}, one more each repetition",
        f"- Repetitions: {repetitions}",
        f"- Data fingerprint: {data}",
        f"- Made with apportion {__version__}, Python {platform.python_version()}, on {_processor()}, "
        f"{os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}",
    ]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
