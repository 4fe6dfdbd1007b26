"""Choosing a split from what earlier launches took, beside what was forecast for them.

The choice of the next launch is the one that is expected to end soonest: a device alone, a new cut, or a cut
that was seen. The second launch is for learning: another device alone that may do about as well is tried,
once, or sharing where it is expected to win. Later a launch after another cut takes longer, and so does the
one after that. What may win only if the forecast is wrong by more is tried once, too, because otherwise it
would never be known, but when one launch counts little: sharing, or another device alone where sharing costs
too much to show what it takes. Only where no model spoke, but calibrated speeds, it is tried at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np

from apportion.coexecution.cuts import CostModel, ending_together, hedged_shares
from apportion.coexecution.forecast import Forecast
from apportion.runtime.base import DeviceInfo
from apportion.runtime.split import Split

_KEPT = 8
"Launches by the same devices that count; older ones may be of another state of the machine."
_NEAR = 0.02
"Cuts that differ by less are taken to be the same."
_WORTH = 0.97
"What a new cut must promise, over the best that was seen, to be tried."
_UNSEEN = 0.9
"What a cut that was never launched must promise over a device alone whose time is known: it may be wrong."
PROMISED = 0.6
"""The same where nothing was seen yet: too much for the slower device costs more than sharing can gain, and a
forecast from speeds may be wrong by a factor. Over the suite on 16 processors with an H200 it comes nearer to
the best cuts than 0.8 (`tools/replay.py`)."""
PROMISED_BY_A_MODEL = 0.9
"The same where a model says how sure it is, and that was weighed."
_PROBE = 0.1
"The part of a device that is only to show its speed, where it is as fast as the known one; else less."
_PROBE_FIXED = 1.0
"What that may take at most by the forecast, over the known device alone."
_CLEARLY = 0.8
"What sharing must promise once the first chance to try it is over: noise would make a hope of what was none."
_LATER = 10
"Launches after which what may win is tried, though it is not expected to."
_ALIKE = 0.4
"""How wrong a forecast is about a device that was not seen, as a power of how wrong it was about others.
Where suites were held out of the campaign it is 0.26 for the GPU, given the CPU, and 0.59 for the CPU."""
_AS_EXPECTED = 1.15
_JITTER = 1e-4
"What a launch may take, over what it was chosen for, without making anybody think again: times, and plus."
_UNEVEN = 1.25
"What the slowest device of a launch takes over the fastest one, if the cut is to be thought about."
_CLOSE = 1.4
"""What another device alone may be expected to take, over the best that is known, to be tried at the second
launch. If it may be off by a factor of 1.5, as forecasts are of each other, and thirty launches follow, more
is gained than lost by trying."""
_SHORT = 1e-3
"Seconds of a launch up to which that is not done: most of it is what host and drivers do, on any device."
_NEARLY = 1.1
"The same where sharing took what was foretold, or later on, or where the first device was misjudged."
_FAR = 1.5
"The same where a device that was tried alone took `_WRONG` of that cut: others must be the better ones."
_WRONG = 1.25
_AFTER_ANOTHER, _AFTER_SHARED = 0.87, 0.94
"""What a launch would take again, over what it took right after one by another device, or after or with a
shared one: processors' caches hold what that wrote. Measured on 16 processors with an H200 (14 kernels in two
sizes, 14 times each: `tools/after.py`)."""
_MISJUDGED = 1.5
"What a first launch takes, over its forecast, if that was wrong about the kernel."
_PRIOR_WEIGHT = 0.25
"Of the forecast's fixed cost and of its whole, in points that weigh 1: noise must not decide a slope."
_FADES = 0.7
_FIXED_PART = 0.3
"How much of what a device took longer than expected is taken for fixed, beyond what is in proportion."


@dataclass(frozen=True)
class Seen:
    """What one launch took."""

    shares: Mapping[str, float]
    "Device → share, of those that took part."
    seconds: float
    devices: Mapping[str, float]
    "Device → seconds from the start of the launch until it was done."
    merge_seconds: float = 0.0
    cold: bool = False
    "A driver compiled in it; the times are what is left without that."
    switched: bool = False
    "It came right after a launch by other devices; the times are what they would be again."

    @cached_property
    def alone(self) -> str | None:
        """The device that did everything, or None where several did."""
        return next(iter(self.shares)) if len(self.shares) == 1 else None

    @property
    def uneven(self) -> bool:
        """Whether a device was done long before another one: the cut may be wrong, whatever it took."""
        return max(self.devices.values()) > _UNEVEN * min(self.devices.values())


@dataclass(frozen=True)
class Choice:
    """A split, what it is expected to take, and why."""

    split: Split
    seconds: float | None
    "None where it is launched to see what it takes."
    reason: str

    def surprising(self, seconds: float) -> bool:
        """Whether a launch under it that took so long was expected to end sooner."""
        return self.seconds is not None and seconds >= _AS_EXPECTED * self.seconds + _JITTER


@dataclass
class Observations:
    """What earlier launches of one kernel at one size took, oldest first."""

    launches: list[Seen] = field(default_factory=list)
    decided: Choice | None = None
    "The split of the next launch, where it was chosen already; a launch that is noted makes it void."
    surprised: bool = False
    "Whether the last launch took longer than it was chosen for."
    noted: int = 0
    "Launches that were noted, also those that count no more."

    def add(self, launch: Seen) -> None:
        """Note a launch; what was seen cold, or right after other devices, counts only until the same was
        seen otherwise."""
        self.decided = None
        self.noted += 1
        if self.launches and (before := self.launches[-1].shares.keys()) != launch.shares.keys():
            again = _AFTER_ANOTHER if before.isdisjoint(launch.shares) else _AFTER_SHARED
            launch = replace(
                launch,
                seconds=again * launch.seconds,
                devices={name: again * seconds for name, seconds in launch.devices.items()},
                switched=True,
            )
        self.launches = [
            seen
            for seen in self.launches
            if seen.shares != launch.shares or (seen.cold <= launch.cold and seen.switched <= launch.switched)
        ]
        same = [seen for seen in self.launches if seen.shares.keys() == launch.shares.keys()]
        if len(same) >= _KEPT:
            self.launches.remove(same[0])
        self.launches.append(launch)

    def stands(self, choice: Choice, seconds: float) -> bool:
        """Whether there is nothing to choose anew after the launch just noted: what was chosen for its time
        took that, or longer for the first time, which may be noise if it was launched before, no device had
        to wait long for another, and it is not yet time to try something else."""
        latest = self.launches[-1]
        if self.noted == _LATER or (self.noted < _LATER and latest.uneven):
            return False
        surprised, self.surprised = self.surprised, choice.surprising(seconds)
        if choice.seconds is None or not self.surprised:
            return choice.seconds is not None
        return not surprised and sum(_near(latest.shares, seen.shares) for seen in self.launches) > 1

    def alone(self) -> dict[str, float]:
        """Device → median seconds of launches that it did all of."""
        found: dict[str, list[float]] = {}
        for seen in self.launches:
            if seen.alone is not None:
                found.setdefault(seen.alone, []).append(seen.seconds)
        return {device: _median(seconds) for device, seconds in found.items()}

    def best_seen(self) -> tuple[Split, float] | None:
        """The cut that took least, and its median seconds; launches with about the same cut count as one."""
        warm = [seen for seen in self.launches if not seen.cold]
        best: tuple[Mapping[str, float], float] | None = None
        for seen in sorted(warm, key=lambda launch: launch.seconds):
            if best is not None and seen.seconds >= best[1]:
                break  # launches like one of these take longer still, by the median
            seconds = _median([other.seconds for other in warm if _near(seen.shares, other.shares)])
            if best is None or seconds < best[1]:
                best = seen.shares, seconds
        return None if best is None else (Split(dict(best[0])), best[1])

    def model(self, device: str, forecast: Forecast | None) -> CostModel | None:
        """What a device takes for a share, from its launches and the forecast; None without either."""
        taken = [seen for seen in self.launches if device in seen.shares]
        kept = [seen for seen in taken if not seen.cold] or taken
        points = [(seen.shares[device], seen.devices[device]) for seen in kept]
        expected = forecast.models.get(device) if forecast is not None else None
        if not points:
            return expected
        if expected is None:  # time goes with the share, as far as is known
            expected = CostModel(0.0, points[-1][1] / points[-1][0])
        return _line(points, _through(points[-3:], expected))


def choose(seen: Observations, devices: Sequence[DeviceInfo], forecast: Forecast, groups: int) -> Choice:
    """The split for the next launch.

    Args:
        forecast: what was expected before anything ran.
        groups: work-groups along the dimension that is cut: a part has one at least.
    """
    names = [device.id for device in devices]
    if not seen.launches:
        return foretold(forecast, devices)
    known = seen.alone()
    models = _models(seen, names, forecast)
    alone = {name: known.get(name, models[name].seconds(1.0)) for name in names}
    # A device that was never launched alone must promise more than one that was: it may be wrong.
    single = min(alone, key=lambda name: alone[name] / (1.0 if name in known or not known else _UNSEEN))
    # What shared launches took beyond their devices: merging, and starting and waiting for two.
    beyond = [each.seconds - max(each.devices.values()) for each in seen.launches if each.alone is None]
    sharing = _median(beyond) if beyond else forecast.sharing_seconds
    shared = best_shared(models, sharing, groups) or (_everything(single, names), alone[single])
    if not beyond:
        if (rival := _promising(seen, known, models, forecast, shared[1])) is not None:
            reason = f"{rival} may do as well as {' and '.join(known)}: it is tried once"
            return Choice(_everything(rival, names), None, reason)
        if (tried := _tried(seen, known, models, forecast, alone[single], sharing, groups)) is not None:
            return tried
    best = seen.best_seen()
    enough = _UNSEEN if single in known and not _launched(shared[0], seen) else _WORTH
    split, seconds = (
        shared if shared[1] < enough * alone[single] else (_everything(single, names), alone[single])
    )
    if best is not None and best[1] * _WORTH < seconds:
        split, seconds = Split({name: best[0].shares.get(name, 0.0) for name in names}), best[1]
    if beyond:
        # What a device took beside others says too much of it: alone it has the memory to itself.
        # Where one alone was far slower, the first launch did not choose the right one.
        wrong = bool(known) and min(known.values()) > _WRONG * seconds
        misled = seen.noted == 1 and foretold(forecast, devices).surprising(seen.launches[0].seconds)
        soon = _CLOSE if misled else _NEARLY
        hope = forecast.spread if seen.noted >= _LATER else _FAR if wrong else soon
        close = {name: alone[name] for name in names if name not in known and alone[name] < hope * seconds}
        if close:
            rival = min(close, key=lambda name: close[name])
            return Choice(_everything(rival, names), None, f"{rival} alone may do as well: it is tried once")
    return Choice(_known_cut(split, seen), seconds, f"earlier launches foretell {seconds * 1e3:.3g} ms")


def choose_one(
    seen: Observations, devices: Sequence[DeviceInfo], forecast: Forecast, obstacle: str
) -> Choice:
    """The device for the next launch of what cannot be shared: the fastest one, as far as that is known; one
    that is expected to be faster is tried, and later on one that may be.

    Args:
        obstacle: why it cannot be shared.
    """
    names, known = [device.id for device in devices], seen.alone()
    said = f"one device: {obstacle}"
    if not known:
        expected = {name: forecast.models[name].seconds(1.0) for name in names}
        return Choice(Split.alone(min(expected, key=lambda name: expected[name])), None, said)
    best = min(known, key=lambda name: known[name])
    models = _models(seen, names, forecast)
    hope = forecast.spread if _dares(seen, forecast) else 1.0
    for name in names:
        if name not in known and models[name].seconds(1.0) / hope < _UNSEEN * known[best]:
            return Choice(Split.alone(name), None, f"{said}; {name} is tried once")
    return Choice(Split.alone(best), known[best], said)


def _dares(seen: Observations, forecast: Forecast) -> bool:
    """Whether it is time to try what is not expected to win: calibrated speeds are so often wrong that what
    they speak against is tried at once."""
    return seen.noted >= _LATER or forecast.doubt is None


def _tried(
    seen: Observations,
    known: Mapping[str, float],
    models: Mapping[str, CostModel],
    forecast: Forecast,
    seconds: float,
    sharing: float,
    groups: int,
) -> Choice | None:
    """What is launched to see what it takes, as long as nothing was shared; None where nothing is.

    Args:
        known: `seen.alone()`.
        seconds: what the best device alone takes, as far as is known.
    """
    names = list(models)
    dares = _dares(seen, forecast)
    said = " and ".join(known)
    hoped = best_shared(_hopeful(models, known, forecast.spread if dares else 1.0), sharing, groups)
    enough = _WORTH if len(seen.launches) == 1 or seen.noted >= _LATER else _CLEARLY
    if hoped is not None and hoped[1] < enough * seconds:
        # Against what is expected, with a part for which it will do if the others are slow: a wrong hope must
        # not cost much, and a small part shows what they take.
        feared = _hopeful(models, known, forecast.spread**-0.5) if dares else models
        split, _ = best_shared(feared, sharing, groups) or hoped
        return Choice(split, None, f"sharing may beat {said} alone, which is known: it is tried once")
    if not dares or len(known) != 1 or 1 < seen.noted < _LATER:
        return None
    probe = _probe(known, models, names, sharing, groups)
    if probe is not None:
        return Choice(probe, None, f"a small part shows what others take, since {said} alone is known")
    rival = _rival(known, models, forecast.spread)
    if rival is not None:
        return Choice(_everything(rival, names), None, f"{rival} alone may beat {said}: it is tried once")
    return None


def _promising(
    seen: Observations,
    known: Mapping[str, float],
    models: Mapping[str, CostModel],
    forecast: Forecast,
    shared: float,
) -> str | None:
    """The device to try after a first launch by another one: it is expected to take not much longer than that
    and than sharing, or the first took far longer than foretold, and what was said of the others may hold all
    the same.

    Args:
        known: `seen.alone()`.
        shared: seconds that sharing is expected to take.
    """
    if len(known) != 1 or len(seen.launches) != 1:
        return None
    ((single, seconds),) = known.items()
    limits: list[tuple[Mapping[str, CostModel], float]] = []
    if forecast.doubt is not None and seconds > _SHORT:
        limits.append((models, _CLOSE * min(seconds, shared)))
    if seconds >= _MISJUDGED * forecast.models[single].seconds(1.0):
        limits.append((forecast.models, _NEARLY * seconds))
    for expected, limit in limits:
        others = {name: expected[name].seconds(1.0) for name in models if name != single}
        rival = min(others, key=lambda name: others[name], default=None)
        if rival is not None and others[rival] < limit:
            return rival
    return None


def _probe(
    known: Mapping[str, float],
    models: Mapping[str, CostModel],
    names: Sequence[str],
    sharing: float,
    groups: int,
) -> Split | None:
    """One device that was seen does nearly everything, the others as little as shows their speed: a forecast
    that is wrong about them by more than it thinks must not keep them from ever being tried.

    None where even that would take longer than the one device alone.
    """
    (single,) = known
    least = {
        name: max(_PROBE * min(1.0, known[single] / models[name].seconds(1.0)), 1 / groups)
        for name in names
        if name != single
    }
    costly = any(models[name].seconds(share) > _PROBE_FIXED * known[single] for name, share in least.items())
    if costly or sharing > _PROBE * known[single] or sum(least.values()) > 0.5:
        return None
    return Split({name: least.get(name, 1 - sum(least.values())) for name in names})


def _rival(known: Mapping[str, float], models: Mapping[str, CostModel], spread: float) -> str | None:
    """The device that may well do everything faster than the known one, where sharing would not show it."""
    fastest = {name: model.seconds(1.0) / spread**0.5 for name, model in models.items() if name not in known}
    rival = min(fastest, key=lambda name: fastest[name], default=None)
    return rival if rival is not None and fastest[rival] < min(known.values(), default=0.0) else None


def _known_cut(split: Split, seen: Observations) -> Split:
    """The cut of an earlier launch where it is about the same: what is known is quicker to launch again."""
    launch = _launched(split, seen)
    return split if launch is None else Split({name: launch.shares.get(name, 0.0) for name in split.shares})


def _launched(split: Split, seen: Observations) -> Seen | None:
    """The latest launch with about this cut."""
    wanted = {name: share for name, share in split.shares.items() if share > 0}
    return next((launch for launch in reversed(seen.launches) if _near(wanted, launch.shares)), None)


def foretold(forecast: Forecast, devices: Sequence[DeviceInfo]) -> Choice:
    """The split that a forecast alone asks for."""
    names = [device.id for device in devices]
    alone = {name: forecast.models[name].seconds(1.0) for name in names}
    single = min(alone, key=lambda name: alone[name])
    said = f"foretold from {forecast.origin}, give or take a factor of {forecast.spread:.2g}"
    if forecast.doubt is not None and len(names) == 2:
        return Choice(*_bet(forecast, tuple(names), forecast.doubt), said)
    split, seconds = _everything(single, names), alone[single]
    shared = best_shared({name: forecast.models[name] for name in names}, forecast.sharing_seconds, 1 << 30)
    if shared is not None and shared[1] < PROMISED * seconds:
        split, seconds = shared
    return Choice(split, seconds, said)


@lru_cache(maxsize=256)
def _bet(forecast: Forecast, names: tuple[str, ...], doubt: float) -> tuple[Split, float]:
    """The split of two devices that costs least over what may be true, where it is known how much may."""
    models = [forecast.models[name] for name in names]
    fixed, rate = (np.array([[getattr(model, part) for model in models]]) for part in ("fixed", "rate"))
    share = float(hedged_shares(fixed, rate, np.array([doubt]))[0])
    alone = [model.seconds(1.0) for model in models]
    if 0 < share < 1:
        together = max(models[0].seconds(share), models[1].seconds(1 - share))
        seconds = together + forecast.sharing_seconds
        if seconds < PROMISED_BY_A_MODEL * min(alone):
            return Split({names[0]: share, names[1]: 1 - share}), seconds
        share = float(alone[0] < alone[1])
    single = 0 if share == 1 else 1
    return _everything(names[single], names), alone[single]


def best_shared(
    models: Mapping[str, CostModel], sharing_seconds: float, groups: int
) -> tuple[Split, float] | None:
    """The split between two devices or more that ends soonest, and when; None where none has a whole part."""
    best: tuple[float, dict[str, float]] | None = None
    for count in range(2, len(models) + 1):
        for chosen in combinations(models, count):
            together, shares = ending_together({name: models[name] for name in chosen})
            if min(shares.values()) * groups < 0.5:
                continue  # its fixed cost alone is longer than the rest needs, or its part is no work-group
            if best is None or together < best[0]:
                best = together, shares
    if best is None:
        return None
    total = sum(best[1].values())
    return Split({name: best[1].get(name, 0.0) / total for name in models}), best[0] + sharing_seconds


def _models(seen: Observations, names: Sequence[str], forecast: Forecast) -> dict[str, CostModel]:
    """What each device takes; those never seen by the forecast, wrong in part as it is about the others."""
    found = {
        name: seen.model(name, forecast) for name in names if any(name in s.shares for s in seen.launches)
    }
    models = {name: model for name, model in found.items() if model is not None}
    scale = _median(model.seconds(1.0) / forecast.models[name].seconds(1.0) for name, model in models.items())
    for name in names:
        if name not in models:
            model = forecast.models[name]
            models[name] = CostModel(model.fixed * scale**_ALIKE, model.rate * scale**_ALIKE)
    return {name: models[name] for name in names}


def _hopeful(
    models: Mapping[str, CostModel], known: Mapping[str, float], spread: float
) -> dict[str, CostModel]:
    """Models in which devices that were never measured are faster by as much as they may well be."""
    return {
        name: model if name in known else CostModel(model.fixed / spread, model.rate / spread)
        for name, model in models.items()
    }


def _everything(device: str, names: Sequence[str]) -> Split:
    return Split({name: float(name == device) for name in names})


def _median(values: Iterable[float]) -> float:
    """As `statistics.median` has it, without what that costs beside a launch of a millisecond."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _near(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    # A part that is small must be nearer: one in a hundred or two is twice the time of a slow device.
    return a.keys() == b.keys() and all(abs(a[name] - b[name]) <= min(_NEAR, 0.1 * a[name]) for name in a)


def _through(points: Sequence[tuple[float, float]], expected: CostModel) -> CostModel:
    """What was expected, moved to what was seen: scaled where it took less, else in equal parts scaled and
    with a longer fixed part. Forecasts know little of what does not shrink with the share."""
    scale = _median(seconds / expected.seconds(share) for share, seconds in points)
    scaled = CostModel(expected.fixed * scale, expected.rate * scale)
    if scale <= 1:
        return scaled
    more = _median(seconds - expected.seconds(share) for share, seconds in points)
    share = _median(share for share, _ in points)
    fixed = scaled.fixed + _FIXED_PART * max(0.0, expected.fixed + more - scaled.fixed)
    return CostModel(fixed, max(scaled.rate + (scaled.fixed - fixed) / share, 1e-9))


def _line(points: Sequence[tuple[float, float]], expected: CostModel) -> CostModel:
    """fixed + rate × share through the points, the latest of which count most, held by what is expected."""
    weighed = [(share, seconds, _FADES**age) for age, (share, seconds) in enumerate(reversed(points))]
    weighed += [(0.0, expected.fixed, _PRIOR_WEIGHT), (1.0, expected.fixed + expected.rate, _PRIOR_WEIGHT)]
    total = sum(weight for _, _, weight in weighed)
    mean_share = sum(share * weight for share, _, weight in weighed) / total
    mean_seconds = sum(seconds * weight for _, seconds, weight in weighed) / total
    spread = sum(weight * (share - mean_share) ** 2 for share, _, weight in weighed)
    slope = sum(w * (s - mean_share) * (t - mean_seconds) for s, t, w in weighed) / spread
    least = min(seconds for _, seconds in points)
    rate = max(slope, 0.05 * mean_seconds)
    return CostModel(min(max(mean_seconds - rate * mean_share, 0.0), least), max(rate, 1e-9))
