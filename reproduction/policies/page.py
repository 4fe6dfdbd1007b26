"""The page about policies: what each loses, launch after launch, on kernels that none was tuned on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from apportion.coexecution.expected_times import BELIEVING
from apportion.coexecution.policies.bayes import HORIZON
from apportion.report.numbers import with_interval
from apportion.report.tabular import markdown_table
from reproduction.efficiency.page import mean_with_interval
from reproduction.policies.replays import (
    BAYES,
    BEST_DEVICE,
    CONTENDERS,
    FEEDBACK,
    LAUNCHES,
    ReplayedKernel,
    Replays,
)

COUNTS = (1, 3, 10, 100)
"Launches over which time is added up."
SINGLE = (1, 2, 3, 4, 5, 10, 30, 100)
"Launches that are shown one by one."
_TEN, _HUNDRED, _OVER_DEVICE, _FIRST = 1.04, 1.01, 1.05, 1.15
"What is wanted."

_INTRODUCTION = """# Policies, launch after launch

`python -m reproduction policies` writes this page from what is stored beside the command. Every kernel of
a recording is launched a hundred times under every policy, on the backend `replay`, through the code that
launches it anywhere. Launches take what they took on the machine that was recorded; they vary as they did
there, which misleads policies but is not counted; and they take 1.15 times as long right after one by
another device, 1.07 where one of the two was shared
([measured](../decisions/0008-what-a-launch-after-another-takes.md)). What choosing takes is not in these
times: 0.05 ms for `learned+feedback`, 0.6 ms for `bayes`, at the launches where they choose. Forecasts
are those of a [timing model](campaign.md) that never saw a kernel of the suite.

*Regret* is the time of the launches so far over that of as many launches of the best cut. The best cut is
the one that took least of all that were recorded, but no less than the best one did when it was measured
again: the least of several noisy numbers is too low. Means over kernels; in parentheses what they vary by
when kernels are drawn again.
"""
_AFTERWARDS = """## What was tuned on what

- `bayes` has {numbers} numbers. Five are estimated from a campaign in which no kernel of the suite is
  (below).
- `learned+feedback` has 15 thresholds, chosen on earlier runs over **these very kernels** on the Xeon
  with 16 processors: its numbers here are better than they would be elsewhere.
- What both are told of sharing (0.4 ms on top) was chosen on such a run, too, and what a launch right
  after another takes was measured on 14 of these kernels.
- These recordings were looked at three times. After the first look the policy was changed by what
  rehearsals on the campaign said (of two launches the quicker one counts, as launches may be late; spreads
  are read as those of Student's distribution). After the second the replay was mended: two sizes of one
  kernel had been mixed, and noise was counted. The third showed that `bayes` stayed with a new cut that took
  longer than one it knew; since then it thinks again after the first launch with a cut.

## What follows

`learned+feedback` stays the default. `bayes`, which was tuned on none of these kernels, loses about as
much over ten and over a hundred launches, and less over the first three where the second launch costs
most (16 processors). It is behind at the first launch: it trusts the forecast for the CPU less than the
thresholds do. On kernels of the campaign it is ahead (last table), but its own numbers come from there;
over a hundred launches it is behind on the two pairs of CPUs. It does not pay for ten times the time to
choose. `bayes` is there for whoever wants it (`--split bayes`), and sessions decide by the same belief
about times. Chunks (`dynamic`) begin with the split of `learned+feedback`. A hundred launches cost more
than is wanted because neither finds the best cut where sharing wins much and the forecast is against it.

## Machines that were never measured

`xeon-4` and `xeon-8` are the same machine confined to 4 and to 8 of its processors: pairs of devices that
no model and no threshold learned from. All that is known of them is what `apportion calibrate` found (for
8 processors it was not kept: speeds between those of 4 and of 16 are taken). `two-pocl` and `pocl-intel` are
two processors of another machine, under two copies of PoCL and under PoCL and Intel's runtime, recorded
while other programs used them: few kernels, five rounds of each, and equal devices that differ by up to
a factor of eight. No model fits two CPUs; forecasts are calibrated speeds. They do not say that Intel's
runtime takes twelve times as long as PoCL for a sparse matrix, nor that PoCL takes thirteen times as long
for Black–Scholes. Where devices share memory, `bayes` takes what a device took beside another for
what it takes alone, and then does not try it alone: that is the next thing to mend.

Kernels of CHAI are among those of the suite; its own sources were not recorded."""


def page(fitted: Mapping[str, Any], replays: Mapping[str, Replays]) -> str:
    """The page in Markdown.

    Args:
        fitted: what `reproduction.policies.run.fit` gave.
        replays: name → what policies lost on a recording.
    """
    numbers = len(fields(BELIEVING)) + len(fields(HORIZON))
    lines = [_INTRODUCTION, *_goals(replays), "", _AFTERWARDS.format(numbers=numbers, launches=LAUNCHES), ""]
    for name, found in replays.items():
        lines += _recording(name, found)
    return "\n".join([*lines, *_fit(fitted)]) + "\n"


def _goals(replays: Mapping[str, Replays]) -> list[str]:
    rows = []
    for name, found in replays.items():
        for contender in (BAYES, FEEDBACK, BEST_DEVICE):
            after = [each.over_best_device(contender, 3, LAUNCHES) for each in found.kernels]
            first, ten, hundred = (regret(found.kernels, contender, count) for count in (1, 10, 100))
            worst = max(found.kernels, key=lambda each: each.over_best_device(contender, 3, LAUNCHES))
            rows.append(
                (
                    name, contender, _judged(first, _FIRST), _judged(ten, _TEN), _judged(hundred, _HUNDRED),
                    f"{max(after):.3f}, `{worst.kernel}`",
                    f"{sum(each > _OVER_DEVICE for each in after)} of {len(after)}",
                )
            )  # fmt: skip
    columns = (
        "recording", "policy", f"first launch (wanted {_FIRST})", f"ten launches (wanted {_TEN})",
        f"hundred (wanted {_HUNDRED})", "worst kernel after three launches, over the best device",
        f"kernels beyond {_OVER_DEVICE} there (wanted none)",
    )  # fmt: skip
    return [markdown_table(columns, rows), "", "Bold where what is wanted is missed."]


def _judged(found: tuple[float, float, float], wanted: float) -> str:
    said = with_interval(found)
    return said if found[0] <= wanted else f"**{said}**"


def regret(kernels: Sequence[ReplayedKernel], contender: str, launches: int) -> tuple[float, float, float]:
    """The mean over kernels of the time of so many launches over that of the best cut, with its interval."""
    return mean_with_interval([each.over_best_cut(contender, launches) for each in kernels])


def _recording(name: str, found: Replays) -> list[str]:
    """The tables of one recording."""
    kernels = found.kernels
    devices = "; ".join(f"{device}: {said}" for device, said in found.about.items())
    origin = (
        "a timing model without the suite" if found.model else "calibrated speeds: no model fits the devices"
    )
    regrets = [
        (name, *(with_interval(regret(kernels, name, count)) for count in COUNTS)) for name in CONTENDERS
    ]
    beside = [
        (
            name,
            *(
                f"{mean_with_interval([each.over_best_device(name, 0, count) for each in kernels])[0]:.3f}"
                for count in COUNTS
            ),
        )
        for name in CONTENDERS
    ]
    single = [
        (
            name,
            *(
                f"{mean_with_interval([each.lost[name][number - 1] for each in kernels])[0]:.3f}"
                for number in SINGLE
            ),
        )
        for name in CONTENDERS
    ]
    differ = sorted(
        kernels, key=lambda each: each.over_best_cut(BAYES, 100) - each.over_best_cut(FEEDBACK, 100)
    )
    counts = [str(count) for count in COUNTS]
    right = "l" + "r" * len(COUNTS)
    return [
        f"## {name}",
        "",
        f"{devices}. {len(kernels)} launches of {len({each.kernel for each in kernels})} kernels; "
        f"forecasts from {origin}. "
        + (
            f"Launches vary by {found.noise:.0%} there."
            if found.noise
            else "How much launches vary was measured too seldom: they do not."
        ),
        "",
        "Regret over so many launches:",
        "",
        markdown_table(("policy", *counts), regrets, align=right),
        "",
        "The same over the best device alone, known in advance, which never pays for a launch after "
        "another's:",
        "",
        markdown_table(("policy", *counts), beside, align=right),
        "",
        "Launch by launch, over the best cut:",
        "",
        markdown_table(("policy", *map(str, SINGLE)), single, align="l" + "r" * len(SINGLE)),
        "",
        f"Where `{BAYES}` differs most from `{FEEDBACK}` over a hundred launches: "
        + ", ".join(_beside(each) for each in (*differ[:3], *differ[-3:]))
        + ".",
        "",
    ]  # fmt: skip


def _beside(kernel: ReplayedKernel) -> str:
    mine, other = (kernel.over_best_cut(name, 100) for name in (BAYES, FEEDBACK))
    return f"`{kernel.kernel}` ({kernel.size}) {mine:.2f} for {other:.2f}"


def _fit(fitted: Mapping[str, Any]) -> list[str]:
    """Where the numbers of `bayes` come from."""
    model, generated = fitted["by_model"], fitted["by_model_generated"]
    speeds, noise = fitted["by_speeds"], fitted["noise"]
    spread = markdown_table(
        ("forecasts", "launches", "log error, CPU", "GPU", "mean error, CPU", "GPU", "correlation",
         "log odds of the fixed part", "degrees of freedom"),
        [
            (
                label, each["launches"], *(f"{value:.2f}" for value in (*each["deviation"], *each["bias"])),
                f"{each['alike']:.2f}", f"{each['part']:.2f}", f"{each['sure']:g}",
            )
            for label, each in (
                ("model, published suites held out", model),
                ("model, generated kernels held out", generated),
                ("calibrated speeds, published suites", speeds),
                ("calibrated speeds, generated kernels", fitted["by_speeds_generated"]),
            )
        ],
        align="lrrrrrrrr",
    )  # fmt: skip
    varying = markdown_table(
        ("device", "cases", "usual", "single launches"),
        [
            (name, each["cases"], f"{each['usual']:.2f}", f"{each['single']:.2f}")
            for name, each in noise.items()
        ],
        align="lrrr",
    )
    horizons = markdown_table(
        ("forecasts from", "policy", *map(str, COUNTS)),
        [
            (
                *key.split(" ", 1),
                *(f"{each[str(count)]:.3f}" for count in COUNTS),
            )
            for key, each in fitted["horizons"].items()
        ],
        align="llrrrr",
    )
    return [
        f"## Where the numbers of `{BAYES}` come from",
        "",
        "`python -m reproduction policies fit`, from the [campaign](campaign.md) without the suite: "
        "published suites and "
        "generated kernels on a 16-core Xeon with an H200. Errors are of the logarithm of the time, "
        "root mean squares; "
        "a mean above 0 says that launches take longer than predicted.",
        "",
        spread,
        "",
        f"Taken: a correlation of {BELIEVING.alike:g}, {BELIEVING.part:g} for the fixed part, "
        f"{BELIEVING.sure:g} degrees of freedom: "
        "errors of published suites have far heavier tails than normal ones, so that a forecast that "
        "is off by much for one device is not "
        "trusted for the other. Each device's own error comes with the forecast. Speeds alone "
        "say too little for all devices alike, which the policy does not correct.",
        "",
        "How much launches of one kernel vary (standard deviation of the logarithm, from the range "
        "of two to seven launches; "
        "the median over kernels, and the root mean square, in which late launches are):",
        "",
        varying,
        "",
        f"Taken: {BELIEVING.noise:g} for both, and {BELIEVING.late:g} for late launches, until a "
        "kernel's own launches say how much they vary "
        f"(what is taken counts as {BELIEVING.noise_counts:g} of them).",
        "",
        "How many launches to expect, at least, where nobody says it: rehearsed on the campaign, "
        "with the noise above (regret over "
        "so many launches; the number is the horizon):",
        "",
        horizons,
        "",
        f"Taken: {HORIZON.coming}. By choice, not by measurement: {HORIZON.sharing:g} for how far off "
        "the forecast of what sharing costs may be.",
    ]  # fmt: skip
