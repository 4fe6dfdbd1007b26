"""The policy `bayes`: the launch that costs least, what it teaches about the launches to come included.

What each device takes is believed to be normal in the logarithm (`expected_times.Belief`): the forecast, and
how sure it is, to begin with, then what launches took. A launch costs what it is expected to take, and what
the launches after it are expected to take once its times are known. So many of these are taken to come as
there were, and ten at least. There is no rule for trying something: it pays for itself or is not done.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.expected_times import BELIEVING, Belief, BeliefSettings
from apportion.coexecution.normal_points import normal_points
from apportion.coexecution.observations import Choice, Observations, PastLaunch
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.learned import everything
from apportion.errors import InvalidSetting
from apportion.runtime.split import Split

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class HorizonSettings:
    """What the policy assumes beside what it believes of devices."""

    coming: int = 10
    "Launches that are taken to come, at least; later as many as there were. Chosen."
    sharing: float = 0.7
    "The standard deviation of what sharing costs, over what it is expected to cost. Chosen."
    careful: tuple[float, ...] = (0.25, 0.5, 0.75, 0.9)
    """Parts of a device's best share that are weighed, too: too much for a slow device costs most. Chosen."""
    about_best: float = 1.01
    """A launch that is expected to take less than this times the least is no try: its time is what the next
    one is compared with. Chosen: noise is larger."""
    combined: int = 3
    """Devices up to which all combinations of what each may take are weighed, three values each; beyond, one
    device at a time. Chosen: their number is three to the power of the devices."""

    def __post_init__(self) -> None:
        if self.coming < 1 or not self.sharing > 0:
            raise InvalidSetting(f"coming must be at least 1, and sharing more than 0, not {self}")
        if not all(0 < part < 1 for part in self.careful):
            raise InvalidSetting(f"careful holds parts of a share between 0 and 1, not {self.careful}")
        if self.about_best < 1 or self.combined < 0:
            raise InvalidSetting(f"about_best must be at least 1, and combined not below 0, not {self}")


HORIZON = HorizonSettings()


class BayesPolicy(Policy):
    """The launch that costs least, what it teaches included."""

    learns = True

    def __init__(self, settings: BeliefSettings = BELIEVING, horizon: HorizonSettings = HORIZON) -> None:
        self.settings, self.horizon = settings, horizon

    def choose(self, situation: Situation, seen: Observations) -> Choice:
        """The split whose expected time, and that of the launches after it, is least."""
        weighed = WeighedLaunches(situation, seen, self.settings, self.horizon)
        best = weighed.best()
        if best.tries:
            reason = f"{best.tries} may be faster than predicted: a launch that shows it pays for itself"
            return Choice(best.split, None, reason)
        said = "earlier launches predict" if seen.launches else f"{situation.forecast.origin} predict"
        return Choice(best.split, best.seconds, f"{said} {best.seconds * 1e3:.3g} ms")

    def stands(self, seen: Observations, choice: Choice, seconds: float) -> bool:
        """Whether a launch took what was expected but for noise, was not the first with its cut, and launches
        have not doubled."""
        doubled = seen.noted & (seen.noted - 1) == 0
        if choice.seconds is None or doubled:
            return False
        latest = seen.launches[-1].shares
        if sum(seen.near(latest, each.shares) for each in seen.launches) < 2:
            return False
        return abs(math.log(seconds / choice.seconds)) < self.settings.most_noise * self.settings.noise


@dataclass(frozen=True)
class PossibleLaunch:
    """A split that may be launched next."""

    split: Split
    seconds: float
    "What it is expected to take, launched again and again."
    now: float
    "What it is expected to take now: right after other devices it takes longer."
    later: float
    "What one of the launches after it is expected to take."
    cost: float
    "All of them."
    tries: str = ""
    "The devices it teaches about, where it is not the fastest as far as is known."


@dataclass
class WeighedLaunches:
    """What is believed before a launch, and what each split is expected to cost."""

    situation: Situation
    seen: Observations
    settings: BeliefSettings = BELIEVING
    horizon: HorizonSettings = HORIZON
    belief: Belief = field(init=False)
    sharing: float = field(init=False)
    "Seconds that sharing is expected to cost on top of its devices' times."

    def __post_init__(self) -> None:
        self.names, forecast = self.situation.names, self.situation.forecast
        models = {name: forecast.models[name] for name in self.names}
        whole = {name: model.seconds(1.0) for name, model in models.items()}
        parts = {name: model.fixed / whole[name] for name, model in models.items()}
        spreads = {name: forecast.spreads.get(name, forecast.spread) for name in self.names}
        self.belief = Belief(whole, spreads, self.settings, parts=parts)
        groups = _alike(self.seen)
        self.settings = replace(self.settings, noise=_noise(groups, self.settings))
        self.belief.settings = self.settings
        for launches in groups:
            for name, share in launches[0].shares.items():
                seconds = _middle(each.devices[name] for each in launches)
                self.belief.observe(name, seconds, len(launches), share=share)
        self.sharing = forecast.sharing_seconds
        variance = (self.horizon.sharing * self.sharing) ** 2
        for each in self.seen.launches:
            if each.alone is None and variance > 0:
                gain = variance / (variance + (self.settings.noise * each.seconds) ** 2)
                self.sharing += gain * (each.seconds - max(each.devices.values()) - self.sharing)
                variance *= 1 - gain
        self.sharing = max(0.0, self.sharing)
        self.divides = not self.situation.obstacle and len(self.names) > 1

    def best(self) -> PossibleLaunch:
        """The launch that costs least. What is known is quicker to launch again: of cuts that are about the
        same, the one that took least."""
        best = min(self.possible(), key=lambda each: each.cost)
        if known := self._launches_like(best.split):
            quickest = min(known, key=lambda each: each.seconds)
            best = replace(best, split=Split({name: quickest.shares.get(name, 0.0) for name in self.names}))
        return best

    def possible(self) -> list[PossibleLaunch]:
        """The launches that are weighed: each device alone, the cut that is best by what is believed, more
        careful ones, and the best one that was seen."""
        splits = self._splits()
        shares = np.array([list(split.shares.values()) for split in splits])
        known = self.seen.best_seen()
        seconds = self._expected(splits, shares)
        taught = self._taught(shares, known[1] if known is not None else math.inf)
        least = min(seconds)
        favourite = _used(splits[seconds.index(least)])
        horizon = max(self.horizon.coming, self.seen.noted) if self.seen.noted else 1
        before = frozenset(self.seen.launches[-1].shares) if self.seen.launches else None
        measured = {name for each in self.seen.launches for name in each.shares}
        found = []
        for split, expected, after in zip(splits, seconds, taught, strict=True):
            used = _used(split)
            now = expected * self._after(before, used)
            later = min(after, least)
            back = (self._after(used, favourite) - 1) * least
            tries = (
                "" if expected <= self.horizon.about_best * least else " and ".join(sorted(used - measured))
            )
            cost = now + back + horizon * later
            found.append(PossibleLaunch(split, expected, now, later, cost, tries))
        return found

    def expected(self, split: Split) -> float:
        """The mean of what a split takes: as it was seen, else over what devices may be."""
        return self._expected([split], np.array([list(split.shares.values())]))[0]

    def _expected(self, splits: Sequence[Split], shares: Numbers) -> list[float]:
        """What splits take in the mean.

        Args:
            shares: (C, D) of the same splits.
        """
        logs, covariance, _ = self._log_times(shares)
        points, weights = _points(len(self.names), self.horizon.combined)
        taken = logs[:, None, :] + points @ _root(covariance).transpose(0, 2, 1)  # (C, P, D)
        taken = np.where(shares[:, None, :] > 0, taken, -np.inf)
        together = (shares > 0).sum(axis=1) > 1
        means = np.exp(taken.max(axis=2)) @ weights + np.where(together, self.sharing, 0.0)
        found: list[float] = means.tolist()
        for place, split in enumerate(splits):
            same = self._launches_like(split)
            if len(same) > 1 or any(not each.cold for each in same):
                found[place] = _middle(each.seconds for each in same)
        return found

    def _launches_like(self, split: Split) -> list[PastLaunch]:
        """Earlier launches with about this cut."""
        wanted = {name: share for name, share in split.shares.items() if share > 0}
        return [each for each in self.seen.launches if self.seen.near(wanted, each.shares)]

    def _splits(self) -> list[Split]:
        found = [everything(name, self.names) for name in self.names]
        if not self.divides:
            return found
        shares = self._shares()
        if shares is not None:
            found.append(Split(shares))
            for name, share in shares.items():
                if 0 < share < 1:
                    found += [Split(_with_less(shares, name, part)) for part in self.horizon.careful]
        if (seen := self.seen.best_seen()) is not None:
            found.append(Split({name: seen[0].shares.get(name, 0.0) for name in self.names}))
        return [each for each in found if len(each.parts(self.situation.groups)) == len(_used(each))]

    def _shares(self) -> dict[str, float] | None:
        """The shares of the devices that end together soonest, among two or more of them."""
        fixed, rate = self._lines(self.belief.mean[None, :], np.diag(self.belief.covariance))
        seconds, shares = _shared(fixed, rate, self.situation.groups)
        if not np.isfinite(seconds[0]):
            return None
        total = float(shares[0].sum())
        return {name: each / total for name, each in zip(self.names, shares[0].tolist(), strict=True)}

    def _taught(self, shares: Numbers, cap: float) -> list[float]:
        """What the launches after one under each split are expected to take: the best that can be chosen
        once its times are known, over what these may be.

        Args:
            shares: (C, D) of the splits.
            cap: what the best cut that was seen takes: it can be launched again whatever is learned.
        """
        count = len(self.names)
        points, weights = _points(count, self.horizon.combined)
        _, covariance, across = self._log_times(shares)
        untaught = 1e9  # the variance of the time of a device that takes no part: nothing is learned of it
        noise = np.where(shares > 0, self.settings.variance(), untaught)  # (C, D)
        inside = covariance + noise[:, :, None] * np.eye(count)
        gain = across @ np.linalg.inv(inside)  # (C, 2 D, D)
        means = self.belief.mean + points @ (gain @ _root(inside)).transpose(0, 2, 1)  # (C, P, 2 D)
        left = np.diag(self.belief.covariance) - (gain * across).sum(axis=2)  # (C, 2 D)
        fixed, rate = self._lines(means, left[:, None, :])
        best = (fixed + rate).min(axis=2)
        if self.divides:
            flat = fixed.reshape(-1, count), rate.reshape(-1, count)
            together, _ = _shared(*flat, self.situation.groups)
            best = np.minimum(best, together.reshape(best.shape) + self.sharing)
        return list((np.minimum(best, cap) @ weights).tolist())

    def _log_times(self, shares: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The log of the time of every device under every split: (C, D) means, (C, D, D) covariances, and
        (C, 2 D, D) covariances with the entries of what is believed."""
        count, covariance = len(self.names), self.belief.covariance
        logs, slopes, bent = self.belief.log_times(shares)
        across = covariance[:, :count] + covariance[:, count:] * slopes[:, None, :]
        inside = across[:, :count] + slopes[:, :, None] * across[:, count:]
        return logs, inside + bent[:, :, None] * np.eye(count), across

    def _lines(self, means: Numbers, variances: Numbers) -> tuple[Numbers, Numbers]:
        """(…, D) each: the mean fixed and growing part of every device's time.

        Args:
            means: (…, 2 D) of what is believed.
            variances: (…, 2 D)
        """
        count = len(self.names)
        whole = np.exp(means[..., :count] + np.maximum(variances[..., :count], 0.0) / 2)
        part = 1 / (1 + np.exp(-means[..., count:]))
        return part * whole, (1 - part) * whole

    def _after(self, before: frozenset[str] | None, used: frozenset[str]) -> float:
        """What a launch takes right after one by other devices, over what it takes after its like."""
        if before is None or before == used:
            return 1.0
        settings = self.seen.settings
        return 1 / (settings.after_another if used.isdisjoint(before) else settings.after_shared)


def _middle(values: Iterable[float]) -> float:
    """The median; of two, the lower one: launches may be late, and are never early."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def _alike(seen: Observations) -> list[list[PastLaunch]]:
    """Launches with about the same cut, together; a cold one only where there is no other."""
    found: list[list[PastLaunch]] = []
    for launch in seen.launches:
        for group in found:
            if seen.near(group[0].shares, launch.shares):
                group.append(launch)
                break
        else:
            found.append([launch])
    return [[each for each in group if not each.cold] or group for group in found]


def _noise(groups: Sequence[Sequence[PastLaunch]], settings: BeliefSettings) -> float:
    """How much launches vary, as those that were repeated say: the mean of the posterior of the variance
    (inverse gamma), which counts what was expected like `BeliefSettings.noise_counts` launches."""
    squares, count = settings.noise_counts * settings.noise**2, settings.noise_counts
    for launches in groups:
        middle = math.log(_middle(each.seconds for each in launches))
        off = [abs(math.log(each.seconds) - middle) for each in launches]
        squares += sum(
            min(each, settings.most_noise * settings.noise) ** 2 for each in off
        )  # others were late
        count += len(launches) - 1
    return math.sqrt(squares / count)


def _shared(fixed: Numbers, rate: Numbers, groups: int) -> tuple[Numbers, Numbers]:
    """(M,) and (M, D): when two devices or more that end together soonest are done, and their shares.

    Infinite where a device's fixed time alone is longer than the rest needs, or its part is no work-group.

    Args:
        fixed: (M, D) seconds.
        rate: (M, D) seconds.
    """
    count = fixed.shape[1]
    least = np.full(len(fixed), np.inf)
    shares = np.zeros_like(fixed)
    for size in range(2, count + 1):
        for chosen in map(list, combinations(range(count), size)):
            f, r = fixed[:, chosen], np.maximum(rate[:, chosen], 1e-12)
            together = (1 + (f / r).sum(axis=1)) / (1 / r).sum(axis=1)
            each = (together[:, None] - f) / r
            better = (each.min(axis=1) * groups >= 0.5) & (together < least)
            least = np.where(better, together, least)
            mine = np.zeros_like(fixed)
            mine[:, chosen] = each
            shares = np.where(better[:, None], mine, shares)
    return least, shares


def _with_less(shares: Mapping[str, float], device: str, part: float) -> dict[str, float]:
    """Shares of which one device has only a part; the others have the rest as they had theirs."""
    left = (1 - part * shares[device]) / (1 - shares[device])
    return {name: share * (part if name == device else left) for name, share in shares.items()}


def _used(split: Split) -> frozenset[str]:
    return frozenset(name for name, share in split.shares.items() if share > 0)


@cache
def _points(count: int, combined: int) -> tuple[Numbers, Numbers]:
    """(P, count) standard deviations, and the weight of each point."""
    if count <= combined:
        deviations, weights = normal_points(3)
        products = np.array([math.prod(each) for each in product(weights.tolist(), repeat=count)])
        return np.array(list(product(deviations.tolist(), repeat=count))), products
    far = math.sqrt(count) * np.eye(count)
    return np.concatenate([far, -far]), np.full(2 * count, 1 / (2 * count))


def _root(covariances: Numbers) -> Numbers:
    """(C, D, D): matrices whose products with their transposes are these; the diagonal is raised by next to
    nothing, since what is known for sure has no variance."""
    return np.asarray(np.linalg.cholesky(covariances + 1e-12 * np.eye(covariances.shape[-1])))
