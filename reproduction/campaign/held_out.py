"""How well cuts are predicted for suites that were not learned from, beside constants and trees that know
shares only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.cuts import best_shares, hedged_shares, seconds_at
from apportion.coexecution.policies.learned import PREDICTION
from apportion.learn.metrics import Interval
from apportion.learn.shares.trees import RowModel, RowSettings
from apportion.learn.times.campaign_table import CampaignTable, regrets
from apportion.learn.times.fitting_times import DEFAULT, TimingSettings, fit_timing
from apportion.learn.times.timing_model import times_by_speeds

Numbers = NDArray[np.float64]
_SHARES = RowSettings("extra-trees", trees=80, max_features=0.4, leaf=2)
_GRID = np.linspace(0, 1, 21)
_BOOTSTRAPS = 300
OURS = "timing model"
PLAIN = "timing model, best cut as predicted"
SPEEDS = "calibrated speeds"
CAUTIOUS = "calibrated speeds, shared where that promises much"
CONSTANTS = ("best constant", "even", "first device alone", "second device alone")
METHODS = (OURS, PLAIN, SPEEDS, CAUTIOUS, "trees on the share", *CONSTANTS, "Eq. 5.8")
"""What is compared. The timing model's cut is the one that costs least in the mean over what may be true;
beside it the cut that would be best if times were exactly as predicted. `calibrated speeds`: what launches
consist of over what each device was measured to do per second, learned from nothing; beside it what
`apportion run` makes of them where it has no model: a launch is shared only where that promises much. `best
constant`: the share with the smallest error, or for regret the smallest regret, on the rows learned from.
`Eq. 5.8`: the ratio of the true times, which only a measurement knows."""


@dataclass(frozen=True, eq=False)
class Tested:
    """One suite that was held out."""

    suite: str
    table: CampaignTable
    shares: Mapping[str, Numbers]
    "Method → the first device's share of every launch, from 0 to 1."
    ratios: Mapping[str, Numbers]
    "Method → the same by the ratio of times alone (Eq. 5.8), where the method says that."
    constant_for_regret: float
    log_errors: Numbers  # (N, 2): log of predicted over measured seconds, by device
    weights: Numbers | None = None
    "(N,): what each launch counts; all alike where that is not said."


def often_measured(tests: Sequence[Tested], least: int) -> list[Tested]:
    """The launches among them that were measured at least so often; suites count as they did with all."""
    kept = [one.table.measured(least) for one in tests]
    there = Counter(suite for one in tests for suite in one.table.suites)
    here = Counter(
        suite for one, some in zip(tests, kept, strict=True) for suite in one.table.part(some).suites
    )
    return [
        replace(
            one, table=part, log_errors=one.log_errors[some],
            shares={method: values[some] for method, values in one.shares.items()},
            ratios={method: values[some] for method, values in one.ratios.items()},
            weights=np.array([there[suite] / here[suite] for suite in part.suites]),
        )
        for one, some in zip(tests, kept, strict=True)
        if len(part := one.table.part(some))
    ]  # fmt: skip


def leave_one_suite_out(
    table: CampaignTable,
    *,
    speeds: tuple[Mapping[str, float], Mapping[str, float]] | None = None,
    settings: TimingSettings = DEFAULT,
    report: Callable[[str], None],
) -> list[Tested]:
    """Every suite in turn, predicted by models of the others; kernels that also stand elsewhere are not
    learned."""
    suites = np.array(table.suites)
    digests = np.array(table.digests)
    found = []
    for suite in sorted(set(table.suites)):
        test = suites == suite
        train = ~test & ~np.isin(digests, digests[test])
        found.append(held_out(table.part(train), table.part(test), suite, settings, speeds))
        share = found[-1].shares[OURS]
        held = found[-1].table
        report(
            f"{suite}: {len(held)} launches, "
            f"share off by {100 * np.abs(share - held.best_share).mean():.1f}, "
            f"regret {regrets(share, held).mean():.3f}"
        )
    return found


def leave_kernels_out(
    table: CampaignTable,
    folds: int = 10,
    *,
    speeds: tuple[Mapping[str, float], Mapping[str, float]] | None = None,
    settings: TimingSettings = DEFAULT,
) -> list[Tested]:
    """A part of the kernels in turn, predicted by models of the others, of their own suite too."""
    kernels = sorted(set(table.digests))
    drawn = np.random.default_rng(settings.seed).permutation(len(kernels)) % min(folds, len(kernels))
    fold = dict(zip(kernels, drawn.tolist(), strict=True))
    place = np.array([fold[digest] for digest in table.digests])
    return [
        held_out(table.part(place != number), table.part(place == number), f"fold {number}", settings, speeds)
        for number in range(min(folds, len(kernels)))
    ]


def held_out(
    train: CampaignTable,
    test: CampaignTable,
    suite: str,
    settings: TimingSettings = DEFAULT,
    speeds: tuple[Mapping[str, float], Mapping[str, float]] | None = None,
) -> Tested:
    """Models of some launches, asked for others."""
    model = fit_timing(train, suite, settings=settings, speeds=speeds or ({}, {}))
    fixed, rate, _ = model.times(test.rows, test.totals)
    trees = RowModel.fit(_SHARES, train.rows, train.best_share, seed=settings.seed)
    constant = float(np.median(train.best_share))
    costs = [float(regrets(np.full(len(train), share), train).mean()) for share in _GRID]
    count = len(test)
    shares = {
        OURS: hedged_shares(fixed, rate, model.doubt(test.rows, test.totals)),
        PLAIN: best_shares(fixed, rate),
        "trees on the share": np.clip(trees.predict(test.rows), 0, 1),
        "best constant": np.full(count, constant),
        "even": np.full(count, 0.5),
        "first device alone": np.ones(count),
        "second device alone": np.zeros(count),
        "Eq. 5.8": test.ratio_share,
    }
    if speeds is not None:
        plain = [
            times_by_speeds(test.rows, test.totals, each, copies=device != "cpu")
            for each, device in zip(speeds, test.devices, strict=True)
        ]
        fixed_part, rate_part, waiting = (np.stack(part, axis=1) for part in zip(*plain, strict=True))
        rate_part = rate_part + waiting
        shares[SPEEDS] = best_shares(fixed_part, rate_part)
        alone = fixed_part + rate_part
        together = seconds_at(shares[SPEEDS], fixed_part, rate_part)
        shares[CAUTIOUS] = np.where(
            together < PREDICTION.promised * alone.min(axis=1),
            shares[SPEEDS],
            (alone[:, 0] <= alone[:, 1]).astype(np.float64),
        )
    whole = fixed + rate
    ratios = {
        OURS: whole[:, 1] / whole.sum(axis=1),
        "trees on the share": RowModel.fit(
            _SHARES, train.rows, train.ratio_share, seed=settings.seed
        ).predict(test.rows),
        "best constant": np.full(count, float(np.median(train.ratio_share))),
        "even": np.full(count, 0.5),
    }
    return Tested(
        suite, test, shares, ratios, float(_GRID[int(np.argmin(costs))]), np.log(whole / test.seconds)
    )


def share_error(tests: list[Tested], method: str) -> Interval:
    """The mean over launches of how far shares are from the best ones, in percent of the work."""
    return _interval(tests, lambda one: 100 * np.abs(one.shares[method] - one.table.best_share))


def ratio_error(tests: list[Tested], method: str) -> Interval:
    """The same for the papers' label: how far ratios of times alone (Eq. 5.8) are from the true ones."""
    return _interval(tests, lambda one: 100 * np.abs(one.ratios[method] - one.table.ratio_share))


def regret(tests: list[Tested], method: str) -> Interval:
    """The mean over launches of the time over that of the best cut."""

    def of(one: Tested) -> Numbers:
        share = one.shares[method]
        if method == "best constant":
            share = np.full(len(share), one.constant_for_regret)
        return regrets(share, one.table)

    return _interval(tests, of)


def _interval(tests: list[Tested], of: Callable[[Tested], Numbers]) -> Interval:
    """The mean, with an interval by drawing kernels again: launches of one kernel are not independent."""
    values = np.concatenate([of(one) for one in tests])
    weights = np.concatenate(
        [np.ones(len(one.table)) if one.weights is None else one.weights for one in tests]
    )
    kernels = np.concatenate([np.array(one.table.digests) for one in tests])
    _, place = np.unique(kernels, return_inverse=True)
    sums, counts = np.bincount(place, weights * values), np.bincount(place, weights)
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(_BOOTSTRAPS):
        chosen = random.integers(0, len(sums), len(sums))
        drawn.append(sums[chosen].sum() / counts[chosen].sum())
    return Interval.resampled(np.average(values, weights=weights), drawn)


def spreads_of(tests: Sequence[Tested]) -> tuple[float, float]:
    """Each device's standard deviation of log seconds, over suites that were held out, each counting
    alike."""
    each = np.sqrt(np.mean([(one.log_errors**2).mean(axis=0) for one in tests], axis=0))
    return float(each[0]), float(each[1])
