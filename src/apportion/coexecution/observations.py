"""What earlier launches of one kernel took, and what follows from them for each device's cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from apportion.coexecution.cuts import CostModel
from apportion.coexecution.forecast import Forecast
from apportion.errors import InvalidSetting
from apportion.runtime.plan import Chunks
from apportion.runtime.split import Split


@dataclass(frozen=True)
class ObservationSettings:
    """How launches are remembered, and how a device's cost is fitted to them."""

    kept: int = 8
    "Launches by the same devices that count. Chosen: older ones may be of another state of the machine."
    near: float = 0.02
    "Shares that differ by less are taken to be the same. Chosen: noise between launches is larger."
    uneven: float = 1.25
    """A cut is uneven if its slowest device takes this times what the fastest one does. Chosen on the Xeon +
    H200."""
    after_another: float = 0.87
    """A repeated launch takes this times what it took right after a launch by another device. Measured: 14
    kernels on a 16-core Xeon with an H200 (`docs/decisions/0008-what-a-launch-after-another-takes.md`)."""
    after_shared: float = 0.94
    "The same right after a shared launch, or of a shared one. Measured in the same run."
    prior_weight: float = 0.25
    """How much a forecast's two points weigh in a fit where a launch weighs 1. Chosen: noise must not decide
    a slope."""
    fades: float = 0.7
    "A launch weighs this times what the one after it weighs. Chosen: the machine's state changes slowly."
    fixed_part: float = 0.3
    """The part of unexpected time that counts as fixed, not as growing with the share. Chosen on the Xeon +
    H200."""
    near_part: float = 0.1
    """A share that is smaller must be nearer to count as the same: nearer than this part of it. Chosen: one
    in a hundred or two is twice the time of a slow device."""
    scaled_by: int = 3
    "The latest launches by which a forecast is scaled. Chosen: the median of three leaves out a late one."
    least_slope: float = 0.05
    """The least part of a device's time that is taken to grow with its share. Chosen: noise must not make a
    line that falls."""

    def __post_init__(self) -> None:
        for name in ("kept", "uneven", "scaled_by"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("near", "after_another", "after_shared", "prior_weight", "fades", "fixed_part",
                     "near_part", "least_slope"):  # fmt: skip
            if not 0 < getattr(self, name) <= 1:
                raise InvalidSetting(f"{name} must be above 0 and at most 1, not {getattr(self, name)}")


REMEMBERING = ObservationSettings()


@dataclass(frozen=True)
class PastLaunch:
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

    def uneven(self, factor: float) -> bool:
        """Whether a device was done long before another one: the cut may be wrong, whatever it took."""
        return max(self.devices.values()) > factor * min(self.devices.values())


@dataclass(frozen=True)
class Choice:
    """A split, what it is expected to take, and why."""

    split: Split
    seconds: float | None
    "None where it is launched to see what it takes."
    reason: str
    chunks: Chunks | None = None
    "Hand out the work in chunks that begin with this split, instead of one part for each device."
    trial: bool = False
    "Time this split on copies first and ask again: `Observations.trials` has the result."


@dataclass
class Observations:
    """What earlier launches of one kernel at one size took, oldest first."""

    launches: list[PastLaunch] = field(default_factory=list)
    decided: Choice | None = None
    "The split of the next launch, where it was chosen already; a launch that is noted makes it void."
    surprised: bool = False
    "Whether the last launch took longer than it was chosen for."
    noted: int = 0
    "Launches that were noted, also those that count no more."
    trials: list[tuple[Split, float]] = field(default_factory=list)
    "Splits that were timed because a policy asked for it, and their median seconds."
    settings: ObservationSettings = REMEMBERING

    def add(self, launch: PastLaunch) -> None:
        """Note a launch; what was seen cold, or right after other devices, counts only until the same was
        seen otherwise."""
        self.decided = None
        self.noted += 1
        if self.launches and (before := self.launches[-1].shares.keys()) != launch.shares.keys():
            apart = before.isdisjoint(launch.shares)
            again = self.settings.after_another if apart else self.settings.after_shared
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
        if len(same) >= self.settings.kept:
            self.launches.remove(same[0])
        self.launches.append(launch)

    def near(self, a: Mapping[str, float], b: Mapping[str, float]) -> bool:
        """Whether two cuts are about the same."""
        most, part = self.settings.near, self.settings.near_part
        return a.keys() == b.keys() and all(abs(a[name] - b[name]) <= min(most, part * a[name]) for name in a)

    def alone(self) -> dict[str, float]:
        """Device → median seconds of launches that it did all of."""
        found: dict[str, list[float]] = {}
        for seen in self.launches:
            if seen.alone is not None:
                found.setdefault(seen.alone, []).append(seen.seconds)
        return {device: median_of(seconds) for device, seconds in found.items()}

    def best_seen(self) -> tuple[Split, float] | None:
        """The cut that took least, and its median seconds; launches with about the same cut count as one."""
        warm = [seen for seen in self.launches if not seen.cold]
        best: tuple[Mapping[str, float], float] | None = None
        for seen in sorted(warm, key=lambda launch: launch.seconds):
            if best is not None and seen.seconds >= best[1]:
                break  # launches like one of these take longer still, by the median
            seconds = median_of([other.seconds for other in warm if self.near(seen.shares, other.shares)])
            if best is None or seconds < best[1]:
                best = seen.shares, seconds
        return None if best is None else (Split(dict(best[0])), best[1])

    def latest_like(self, split: Split) -> PastLaunch | None:
        """The latest launch with about this cut."""
        wanted = {name: share for name, share in split.shares.items() if share > 0}
        return next((launch for launch in reversed(self.launches) if self.near(wanted, launch.shares)), None)

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
        return self._line(points, self._through(points[-self.settings.scaled_by :], expected))

    def _through(self, points: Sequence[tuple[float, float]], expected: CostModel) -> CostModel:
        """What was expected, moved to what was seen: scaled where it took less, else in equal parts scaled
        and with a longer fixed part. Forecasts know little of what does not shrink with the share."""
        scale = median_of(seconds / expected.seconds(share) for share, seconds in points)
        scaled = CostModel(expected.fixed * scale, expected.rate * scale)
        if scale <= 1:
            return scaled
        more = median_of(seconds - expected.seconds(share) for share, seconds in points)
        share = median_of(share for share, _ in points)
        fixed = scaled.fixed + self.settings.fixed_part * max(0.0, expected.fixed + more - scaled.fixed)
        return CostModel(fixed, max(scaled.rate + (scaled.fixed - fixed) / share, 1e-9))

    def _line(self, points: Sequence[tuple[float, float]], expected: CostModel) -> CostModel:
        """fixed + rate × share through the points, the latest of which count most, held by what is
        expected."""
        fades, prior = self.settings.fades, self.settings.prior_weight
        weighed = [(share, seconds, fades**age) for age, (share, seconds) in enumerate(reversed(points))]
        weighed += [(0.0, expected.fixed, prior), (1.0, expected.fixed + expected.rate, prior)]
        total = sum(weight for _, _, weight in weighed)
        mean_share = sum(share * weight for share, _, weight in weighed) / total
        mean_seconds = sum(seconds * weight for _, seconds, weight in weighed) / total
        spread = sum(weight * (share - mean_share) ** 2 for share, _, weight in weighed)
        slope = sum(w * (s - mean_share) * (t - mean_seconds) for s, t, w in weighed) / spread
        least = min(seconds for _, seconds in points)
        rate = max(slope, self.settings.least_slope * mean_seconds)
        return CostModel(min(max(mean_seconds - rate * mean_share, 0.0), least), max(rate, 1e-9))


def median_of(values: Iterable[float]) -> float:
    """As `statistics.median` has it, without what that costs beside a launch of a millisecond."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
