"""The results page of a measuring campaign: what was measured, what came of it, and how well it is
predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.cuts import best_shares
from apportion.learn.metrics import Interval
from apportion.learn.times.campaign_table import CampaignTable, regrets
from apportion.learn.times.fitting_times import DEFAULT
from apportion.report.charts import HISTOGRAM_HEIGHT, histogram
from apportion.report.numbers import with_interval
from apportion.report.svg import drawing, group
from apportion.report.tabular import markdown_table
from reproduction.campaign.held_out import (
    CONSTANTS,
    METHODS,
    OURS,
    Tested,
    often_measured,
    ratio_error,
    regret,
    share_error,
)
from reproduction.published import published

Numbers = NDArray[np.float64]
_BESIDE = (OURS, "trees on the share", "best constant")
OFTEN = 5
"Times that a launch is measured for its label to be taken for the truth."
_SPREADS = (0.05, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class CampaignGoals:
    """`published.toml`."""

    goals: Mapping[str, float]


_TARGETS = published("campaign", CampaignGoals).goals


@dataclass(frozen=True)
class About:
    """Where the measurements come from."""

    machine: str
    date: str
    command: str
    points: int
    "Rows of the campaign's table: one per device and range."
    left_out: Mapping[str, int]
    "Reason → ranges that are not in the table."
    failed: Mapping[str, int]
    "Reason → kernels that could not be prepared."
    remarks: str = ""
    "What there is to say beside the numbers, in Markdown."
    again: Mapping[str, float] = field(default_factory=dict)
    "Of `compared`, where launches were measured more than once."


def page(
    table: CampaignTable,
    tests: Sequence[Tested],
    about: About,
    figure: str,
    chai: Mapping[str, str],
    kernel_tests: Sequence[Tested] = (),
) -> str:
    """The page, in Markdown.

    Args:
        figure: the name of the file of the figure.
        chai: problem → its name in the CHAI suite.
        kernel_tests: of `leave_kernels_out`.
    """
    kernels = len(set(table.digests))
    parts = [
        "# A measuring campaign on a 16-core Xeon with an H200\n",
        f"{len(table)} launches of {kernels} distinct kernels, each measured on both devices with transfers, "
        "in whole and in part of the range, so that a device's time is known as fixed + rate × share. From "
        "these come the papers' label (Eq. 5.8, the ratio of times alone) and the cut that ends soonest.\n",
        f"- Machine: {about.machine}; {about.date}\n- Made by `{about.command}`; data {table.digest[:16]}, "
        f"seed {DEFAULT.seed}\n"
        f"- {about.points} measurements of a device at a range in all, failures included\n"
        f"- Wanted: {_TARGETS['kernels']:,.0f} distinct kernels "
        f"({_met(kernels >= _TARGETS['kernels'])}) and {_TARGETS['launches']:,.0f} launches "
        f"({_met(len(table) >= _TARGETS['launches'])})\n",
        "## What was measured\n", _counts(table), "", _failures(about),
        "## Where the best cut lies\n", f"![Shares of the CPU]({figure})\n", _cuts(table),
        "## Suites that were not learned from\n", _intro(), _overall(list(tests)), "", _by_suite(list(tests)),
        _exactness(table),
    ]  # fmt: skip
    often = often_measured(tests, OFTEN)
    if often:
        parts += ["## The same launches, measured several times\n", _again(often, kernel_tests, about.again)]
    if kernel_tests:
        parts += ["## Kernels that were not learned from\n", _kernels(list(kernel_tests))]
    parts += [about.remarks] if about.remarks else []
    own = [one for one in tests if one.suite == "apportion"]
    if own:
        parts += ["## Kernels of the suite, none of them learned from\n", _unseen(own, chai)]
    return "\n".join(parts) + "\n"


def compared(first: CampaignTable, last: CampaignTable) -> dict[str, float]:
    """How two measurements of the same launches differ, and what the first would be worth as a forecast."""
    off = np.log(last.seconds / first.seconds)
    return {
        "launches": len(first),
        "cpu": float(off[:, 0].std()),
        "gpu": float(off[:, 1].std()),
        "factor": float((off[:, 0] - off[:, 1]).std()),
        "share": float(100 * np.abs(first.best_share - last.best_share).mean()),
        "ratio": float(100 * np.abs(first.ratio_share - last.ratio_share).mean()),
        "regret": float(regrets(first.best_share, last).mean()),
        "faster": float(regrets(_faster(first), last).mean()),
    }


def _again(often: list[Tested], kernel_tests: Sequence[Tested], again: Mapping[str, float]) -> str:
    lines = []
    if again:
        lines.append(
            f"Others use these machines too. Of {again['launches']:.0f} launches that were measured more "
            "than once, the last measurement differs from the first by "
            f"{again['cpu']:.2f} on the CPU and {again['gpu']:.2f} on the GPU (standard deviations of the "
            f"logarithm, {again['factor']:.2f} for the factor between the two). Taken for a forecast, the "
            f"first measurement itself would be off by {again['share']:.1f} points of the best share and "
            f"{again['ratio']:.1f} of Eq. 5.8's, with a regret of {again['regret']:.3f}, or "
            f"{again['faster']:.3f} where it only names the faster device. What a single measurement says "
            "of a model is mostly that.\n"
        )
    count = sum(len(one.table) for one in often)
    lines.append(
        f"{count} launches, a random sample and all of our own suite's, were measured at least {OFTEN} "
        "times, minutes apart and on several machines; their labels are geometric means. The same models "
        "as above, suites held out, each suite with the weight that it has among all launches:\n"
    )
    lines.append(_methods(often, f"measured at least {OFTEN} times"))
    lines.append("\n" + _wanted(often))
    if kernel_tests:
        kernels = often_measured(kernel_tests, OFTEN)
        lines.append(
            f"\nWith kernels held out instead of suites: share error {_said(share_error(kernels, OURS), 1)}, "
            f"of Eq. 5.8's share {_said(ratio_error(kernels, OURS), 1)}, regret "
            f"{_said(regret(kernels, OURS), 3)}."
        )
    return "\n".join(lines) + "\n"


def _counts(table: CampaignTable) -> str:
    rows = []
    for suite in [*sorted(set(table.suites)), "all"]:
        part = table if suite == "all" else table.part(np.array(table.suites) == suite)
        faster = float((part.seconds[:, 0] < part.seconds[:, 1]).mean())
        cpu, gpu = (np.median(part.seconds, axis=0) * 1e3).tolist()
        rows.append((suite, len(set(part.digests)), len(part), f"{faster:.0%}", f"{cpu:.3g}", f"{gpu:.3g}"))
    columns = ("suite", "kernels", "launches", "CPU alone is faster", "median CPU, ms", "median GPU, ms")
    return markdown_table(columns, rows)


def _failures(about: About) -> str:
    words = [
        f"{count} {reason}" for reason, count in sorted(about.left_out.items(), key=lambda item: -item[1])
    ]
    failed = [
        f"{count} {reason}" for reason, count in sorted(about.failed.items(), key=lambda item: -item[1])
    ]
    said = f"Ranges that are not in the table: {'; '.join(words) or 'none'}.\n"
    return said + f"Kernels that could not be prepared on both devices: {'; '.join(failed) or 'none'}.\n"


def _cuts(table: CampaignTable) -> str:
    best = table.best_share
    alone = [float((best == 1).mean()), float((best == 0).mean())]
    lost = regrets(table.ratio_share, table)
    return (
        f"The CPU alone is best for {alone[0]:.0%} of the launches, the GPU alone for {alone[1]:.0%}; "
        f"the others gain by "
        f"sharing, {_gain(table):.0%} in the median. Eq. 5.8 is off the best cut by "
        f"{100 * np.abs(table.ratio_share - best).mean():.1f} points in the mean and costs "
        f"{lost.mean():.2f} times the best "
        "time, since it shares launches whose fixed costs are larger than what sharing saves.\n"
    )


def _gain(table: CampaignTable) -> float:
    shared = (table.best_share > 0) & (table.best_share < 1)
    if not shared.any():
        return 0.0
    part = table.part(shared)
    return float(np.median(1 - 1 / regrets(_faster(part), part)))


def _faster(table: CampaignTable) -> Numbers:
    """(N,): everything for the device that is faster alone, as the first one's share."""
    return np.where(table.seconds[:, 0] < table.seconds[:, 1], 1.0, 0.0)


def _intro() -> str:
    return (
        "Each suite in turn is predicted by models that learned from the others. `timing model`: what each "
        "device's calibrated speeds predict from operations and bytes (where they are not known, a "
        "fitted sum "
        "over these), corrected by extra trees on these times and the features of the IR; the cut "
        "follows from fixed + rate × share with each device alone as a candidate, and is the one that costs "
        "least in the mean over what may be true. Share errors are in percent of the work, against the cut "
        "that ends soonest; beside them those of the papers' label. Regret is the time under the cut over "
        "that of the best one. In parentheses: 95 %, over kernels drawn again.\n"
    )


def _kernels(tests: list[Tested]) -> str:
    said = (
        f"A tenth of the kernels in turn ({len(tests)} folds), predicted by models of the others, of "
        f"their own "
        "suite too.\n"
    )
    return f"{said}\n{_methods(tests, 'all kernels')}\n"


def _overall(tests: list[Tested]) -> str:
    lines = [_methods(tests, "all suites")]
    share, time, ratio = (
        np.mean([of([one], OURS).value for one in tests]) for of in (share_error, regret, ratio_error)
    )
    lines.append(f"| {OURS}, each suite counting alike | {share:.1f} | {time:.3f} | {ratio:.1f} |")
    lines.append("\n" + _wanted(tests))
    return "\n".join(lines)


def _wanted(tests: list[Tested]) -> str:
    most, reached = _TARGETS["share"], regret(tests, OURS).value
    return (
        f"Wanted: share error at most {most:.0f} (of the papers' share "
        f"{_met(ratio_error(tests, OURS).value <= most)}, of the best cut's "
        f"{_met(share_error(tests, OURS).value <= most)}), regret at most {_TARGETS['regret']:.2f} "
        f"({_met(reached <= _TARGETS['regret'])})."
    )


def _exactness(table: CampaignTable) -> str:
    """What errors in times cost: how exactly they would have to be predicted."""
    random = np.random.default_rng(0)
    faster = regrets(_faster(table), table).mean()
    said = (
        "How exactly times would have to be predicted: the true times of this table, each device's off by "
        "a random factor of its own (normal in the logarithm), and the cut that is best under them. Always "
        f"the faster device, known for certain, has a regret of {faster:.3f}.\n\n"
    )
    rows = []
    for spread in _SPREADS:
        off = np.exp(spread * random.standard_normal(table.seconds.shape))
        share = best_shares(table.fixed * off, table.rate * off)
        wrong = 100 * np.abs(share - table.best_share).mean()
        rows.append((f"{spread:g}", f"{wrong:.1f}", f"{regrets(share, table).mean():.3f}"))
    columns = ("standard deviation of log seconds", "share error", "regret")
    return said + markdown_table(columns, rows) + "\n"


def _methods(tests: list[Tested], what: str) -> str:
    rows = []
    for method in METHODS:
        if method not in tests[0].shares:
            continue
        ratio = _said(ratio_error(tests, method), 1) if method in tests[0].ratios else ""
        rows.append((method, _said(share_error(tests, method), 1), _said(regret(tests, method), 3), ratio))
    return markdown_table((what, "share error", "regret", "error of Eq. 5.8's share"), rows)


def _by_suite(tests: list[Tested]) -> str:
    rows = []
    for one in tests:
        errors = np.sqrt((one.log_errors**2).mean(axis=0))
        shares = [f"{share_error([one], method).value:.1f}" for method in _BESIDE]
        times = [f"{regret([one], method).value:.3f}" for method in _BESIDE]
        rows.append((one.suite, len(one.table), f"{errors[0]:.2f}, {errors[1]:.2f}", *shares, *times))
    columns = (
        "suite held out", "launches", "log error CPU, GPU", "share error", "trees", "constant", "regret",
        "trees", "constant",
    )  # fmt: skip
    return markdown_table(columns, rows) + "\n"


def _unseen(own: list[Tested], chai: Mapping[str, str]) -> str:
    (test,) = own
    constants = {method: share_error(own, method) for method in CONSTANTS}
    best = min(constants, key=lambda method: constants[method].value)
    ours, time = share_error(own, OURS), regret(own, OURS)
    met = ours.value <= constants[best].value / 2
    words = (
        f"Share error {_said(ours, 1)} against {_said(constants[best], 1)} of the best constant "
        f"({best}); wanted: at most half "
        f"of it ({_met(met)}). Regret of the first launch {_said(time, 3)}; wanted: at most "
        f"{_TARGETS['unseen regret']:.2f} "
        f"({_met(time.value <= _TARGETS['unseen regret'])}).\n\n"
    )
    rows = []
    names = np.array(test.table.names)
    said = test.shares[OURS]
    lost = regrets(said, test.table)
    for name in sorted(set(test.table.names)):
        here = names == name
        problem = chai.get(name.split("-")[0], "")
        errors = test.log_errors[here].mean(axis=0)
        off = 100 * np.abs(said[here] - test.table.best_share[here]).mean()
        rows.append(
            (
                name, problem, here.sum(), f"{test.table.best_share[here].mean():.2f}",
                f"{said[here].mean():.2f}", f"{off:.1f}", f"{lost[here].mean():.3f}",
                f"{errors[0]:+.2f}, {errors[1]:+.2f}",
            )
        )  # fmt: skip
    columns = (
        "kernel", "CHAI's", "ranges", "best share", "predicted", "share error", "regret",
        "log error CPU, GPU",
    )  # fmt: skip
    return words + markdown_table(columns, rows) + "\n"


def _said(value: Interval, digits: int) -> str:
    return with_interval(value, f".{digits}f")


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


def figure_of(table: CampaignTable) -> str:
    """Best shares and Eq. 5.8's shares of the CPU, as bars."""
    panels = {"best cut": table.best_share, "Eq. 5.8": table.ratio_share}
    names = [f"{number / 20:g}" for number in range(21)]
    parts = []
    for number, (name, shares) in enumerate(panels.items()):
        counts = np.bincount(np.minimum((shares * 20).astype(int), 20), minlength=21).tolist()
        title = f"{name}: the CPU's share"
        parts.append(group(histogram(title, counts, names, below="share", every=5), x=420 * number))
    return drawing(840, HISTOGRAM_HEIGHT, parts, label="Shares of the CPU")
