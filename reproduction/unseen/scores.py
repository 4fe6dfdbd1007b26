"""How the shipped models do on kernels from nowhere near their training data, against measured shares.

By default the eight CHAI problems of the thesis (§5.3); any table of sources, sizes and measured shares does.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import __version__
from apportion.advise.describe import describe
from apportion.advise.predictor import CONFIDENCE, model_of, predictor_for
from apportion.advise.queries import MeasuredQuery, Size, size_in_words
from apportion.data.artifact import read_description
from apportion.errors import ApportionError, InvalidSetting
from apportion.learn.base import Answer
from apportion.learn.shares.kernel_model import ShareEstimate
from apportion.learn.shares.kernel_query import KernelQuery, ShareAnswer, SharePredictor
from apportion.weights import folder_of, manifest

SHARE = "cpu_share"
"The column of what was measured, from 0 to 1."
PUBLISHED = ("thesis regression", "thesis classification")
"Columns of what others predicted, where a table has them."
SWEPT_BYTES = tuple(4**power for power in range(5, 18))
SWEPT_GROUPS = (1, 16, 64, 256, 1024)
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Kernel:
    """One line of the table, answered by one model; shares from 0 to 1."""

    name: str
    local_size: Size
    bytes: int
    where: str
    measured: float
    estimate: ShareEstimate
    swept: tuple[float, float]
    "The lowest and highest share that the model gives this kernel at any size."
    published: Mapping[str, float]

    @property
    def regression(self) -> float:
        """The predicted share."""
        return self.estimate.share / 100

    @property
    def classification(self) -> float:
        """The predicted class."""
        return self.estimate.share_class / 100

    @property
    def held(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.estimate.low <= 100 * self.measured <= self.estimate.high


@dataclass(frozen=True)
class Level:
    """How near a predictor came."""

    name: str
    mae: float
    within_20: int
    within_10: int


def evaluate(rows: Sequence[MeasuredQuery], name: str) -> tuple[list[Kernel], list[str]]:
    """Every line that can be answered, and what kept the others from it.

    Args:
        rows: the lines of a table.
        name: a pair of devices, whose preferred model answers, or a shipped model of shares.

    Raises:
        UnknownName: no such pair or model.
        InvalidSetting: none can be answered.
    """
    model = _model_called(name)
    found, left = [], []
    for row in rows:
        name = row.columns.get("name") or row.columns.get("source") or str(row.query.source)
        try:
            measured = row.number(SHARE)
            if measured is None or not 0 <= measured <= 1:
                raise InvalidSetting(f"{SHARE} must lie between 0 and 1, not {row.columns.get(SHARE)!r}")
            found_kernel = describe(row.query.source, kernel=row.query.kernel, vectorized=model.vectorized)
            sizes = [(row.query.bytes, row.query.group_items)]
            sizes += [(size, group) for size in SWEPT_BYTES for group in SWEPT_GROUPS]
            asked = [
                KernelQuery(found_kernel.graph, size, group, row.query.work_items, found_kernel.code)
                for size, group in sizes
            ]
            estimates = [estimate_of(answer) for answer in model.answer(asked, confidence=CONFIDENCE)]
        except ApportionError as error:
            left.append(f"{name}: {error}")
            continue
        swept = [estimate.share / 100 for estimate in estimates]
        published = {column: value for column in PUBLISHED if (value := row.number(column)) is not None}
        where = row.columns.get("where the bytes come from", "")
        sweep = (min(swept), max(swept))
        query = row.query
        found.append(
            Kernel(name, query.local_size, query.bytes, where, measured, estimates[0], sweep, published)
        )
    if not found:
        raise InvalidSetting(f"No line of the table can be answered. {left[0] if left else 'It is empty.'}")
    return found, left


def estimate_of(answer: Answer[float]) -> ShareEstimate:
    """An answer in percent of the work."""
    voted = answer.share_class if isinstance(answer, ShareAnswer) else round(100 * answer.value)
    ends = (100 * answer.value, 100 * answer.low, 100 * answer.high)
    return ShareEstimate(*ends, answer.familiarity, int(voted))


def levels(kernels: Sequence[Kernel], pair: str) -> list[Level]:
    """How near each predictor came: the model's two forms, those published, and constants."""
    truth = np.array([kernel.measured for kernel in kernels])
    rows = [
        _level(f"{pair}, regression", truth, [kernel.regression for kernel in kernels]),
        _level(f"{pair}, classification", truth, [kernel.classification for kernel in kernels]),
    ]
    for column in _published(kernels):
        rows.append(_level(column, truth, [kernel.published[column] for kernel in kernels]))
    learned = float(_made_by(pair).get("median_share", 50.0)) / 100
    best = float(np.median(truth))
    return [
        *rows,
        _level("always 0.5", truth, np.full(len(truth), 0.5)),
        _level(f"always {learned:.3f}, the median learned from", truth, np.full(len(truth), learned)),
        _level(f"always {best:.3f}, the best constant in hindsight", truth, np.full(len(truth), best)),
        _level(f"{pair}, odds scaled to this machine by the other kernels", truth, _rescaled(kernels)),
    ]


def _level(name: str, truth: Numbers, said: Sequence[float] | Numbers) -> Level:
    error = np.abs(truth - np.asarray(said, np.float64)) + 0.0
    # A share of 0.682 against 0.482 is within 0.20, whatever binary fractions make of it.
    return Level(name, float(error.mean()), int((error < 0.2 + 1e-9).sum()), int((error < 0.1 + 1e-9).sum()))


def _rescaled(kernels: Sequence[Kernel]) -> Numbers:
    """Predictions with their odds multiplied by one number: that which fits the other kernels best.

    It stands for another speed of one device against the other: if machines differed by no more than that,
    it would mend the labels.
    """
    said = _odds(np.array([kernel.regression for kernel in kernels]))
    truth = _odds(np.array([kernel.measured for kernel in kernels]))
    found = []
    for number in range(len(kernels)):
        others = np.arange(len(kernels)) != number
        shift = float(np.median((truth - said)[others])) if others.any() else 0.0
        found.append(1 / (1 + np.exp(-(said[number] + shift))))
    return np.array(found)


def _odds(shares: Numbers) -> Numbers:
    kept = np.clip(shares, 0.005, 0.995)
    odds: Numbers = np.log(kept / (1 - kept))
    return odds


def page(found: Mapping[str, Sequence[Kernel]], left: Sequence[str], table: Path) -> str:
    """The results page, in Markdown, of models by the name of their pair."""
    first = next(iter(found.values()))
    lines = ["# Kernels never seen: the shipped models against measured shares", "", *_opening(table, first)]
    for pair, kernels in found.items():
        lines += [
            "",
            f"## {pair}: {len(kernels)} kernels",
            "",
            *_kernels(kernels),
            "",
            *_levels(kernels, pair),
        ]
        lines += ["", *_reading(kernels, pair)]
    if left:
        lines += ["", "## Left out", "", *(f"- {reason}" for reason in left)]
    lines += ["", "## Sizes used", "", "| kernel | work-group | bytes | from |", "|---|---|---|---|"]
    lines += [f"| {k.name} | {size_in_words(k.local_size)} | {k.bytes:,} | {k.where} |" for k in first]
    return "\n".join([*lines, "", *_made(table), ""])


def _opening(table: Path, kernels: Sequence[Kernel]) -> list[str]:
    sizes = ["The sizes are those of the table, and stand at the end."]
    if _published(kernels):
        sizes = [
            "The thesis says neither the sizes nor the work-groups behind its table; CHAI's defaults are",
            "used here, in the table at the end.",
        ]
    return [
        "Each kernel's share is predicted at one size and compared with the share that its measured times",
        "ask for. `range` is what the model says of the same kernel at other sizes (1 KiB to 16 GiB, groups",
        f"of 1 to 1,024). Measured shares, and predictions of others if there are any: `{table.name}`.",
        *sizes,
        "Constant answers stand beside every model: with few kernels no claim of skill can rest on a table",
        "that they win.",
    ]


def _published(kernels: Sequence[Kernel]) -> list[str]:
    """The predictors of others that said something of every kernel."""
    return [column for column in PUBLISHED if all(column in kernel.published for kernel in kernels)]


def _kernels(kernels: Sequence[Kernel]) -> list[str]:
    published = _published(kernels)
    heads = ["kernel", "measured", "regression", f"{CONFIDENCE:.0%} interval", "holds", "class", "range"]
    heads += ["familiarity", *published]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---|" * (len(heads) - 1)]
    for kernel in kernels:
        low, high = kernel.swept
        cells = [
            kernel.name, f"{kernel.measured:.3f}", f"{kernel.regression:.3f}",
            f"{kernel.estimate.low / 100:.2f} to {kernel.estimate.high / 100:.2f}",
            "yes" if kernel.held else "no", f"{kernel.classification:.2f}", f"{low:.2f} to {high:.2f}",
            f"{kernel.estimate.familiarity:.2f}",
            *(f"{kernel.published[column]:.3f}" for column in published),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _levels(kernels: Sequence[Kernel], pair: str) -> list[str]:
    lines = ["| predictor | mean error | within 0.20 | within 0.10 |", "|---|---|---|---|"]
    for level in levels(kernels, pair):
        lines.append(f"| {level.name} | {level.mae:.3f} | {level.within_20} | {level.within_10} |")
    return lines


def _reading(kernels: Sequence[Kernel], pair: str) -> list[str]:
    """What the tables say, in words that follow from the numbers."""
    ranked = levels(kernels, pair)
    ours = ranked[0]
    constants = [level for level in ranked if level.name.startswith("always")]
    best = min(constants[:2], key=lambda level: level.mae)
    met = ours.mae < 0.12 and ours.within_20 >= len(kernels) - 1
    held = sum(kernel.held for kernel in kernels)
    extreme = [kernel for kernel in kernels if kernel.measured < 0.02 or kernel.measured > 0.98]
    moved = float(np.mean([high - low for low, high in (kernel.swept for kernel in kernels)]))
    word = "met" if met else "**not met**"
    strange = sum(kernel.estimate.familiarity < 0.1 for kernel in kernels)
    lines = [
        f"The bar (mean error below 0.12, all but one kernel within 0.20) is {word}: "
        f"{ours.mae:.3f}, {ours.within_20} of {len(kernels)}. "
        f"{'It beats' if ours.mae < best.mae else 'It loses to'} the constant answer {best.mae:.3f} "
        f"({best.name}).",
        "",
        f"- {held} of {len(kernels)} intervals hold the measured share; {strange} kernels are stranger than "
        "nine in ten of those learned from.",
        f"- The answer moves by {moved:.2f} on average over the sizes swept"
        + (": sizes that nobody published decide much." if _published(kernels) else "."),
    ]
    if extreme:
        share = float(_made_by(pair).get("below_2_percent", 0.0))
        error = sum(abs(kernel.regression - kernel.measured) for kernel in extreme)
        total = ours.mae * len(kernels)
        names = ", ".join(kernel.name for kernel in extreme)
        lines.append(
            f"- {names}: measured below 0.02 or above 0.98. Of the rows learned from, {share:.1%} have a "
            f"share below 0.02, and these kernels alone make {error / total:.0%} of the model's error."
        )
    rescaled = ranked[-1]
    mended = "mends part of it" if rescaled.mae < ours.mae else "does not mend it"
    lines.append(
        "- One factor between the two machines' speeds, fitted to the other kernels, "
        f"{mended}: mean error {rescaled.mae:.3f}. The learned times are those of two old machines, "
        "transfers included: how other devices rank the same kernels is not in them, and a model of this "
        "machine's own measurements is what would carry over."
    )
    return lines


def _model_called(name: str) -> SharePredictor:
    shipped = {one.name for one in manifest().answering("shares")}
    found = predictor_for("load-balance", model=name) if name in shipped else model_of(name)
    assert isinstance(found, SharePredictor)
    return found


def _made_by(name: str) -> Mapping[str, Any]:
    """What is said of the rows that a pair's models learned from; the preferred model says it."""
    about = {one.name: one.about for one in manifest().answering("shares")}
    return read_description(folder_of(model_of(about.get(name, name)).name)).experiment


def _made(table: Path) -> list[str]:
    return [
        "## How it was made",
        "",
        f"- Command: `python -m reproduction unseen`, table `{table}`; any table with the columns source,",
        f"  local_size, bytes and {SHARE} (from 0 to 1) does:",
        "  `python -m reproduction unseen --measured T.csv`",
        f"- Made with apportion {__version__}, Python {platform.python_version()}, "
        f"{datetime.now(UTC):%Y-%m-%d}",
    ]
