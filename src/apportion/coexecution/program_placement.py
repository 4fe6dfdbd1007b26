"""Where the launches of a program run: predicted and measured times, what moving costs, and what comes next.

Launches of one kernel over one range go to one device. Which, is searched over the launches that were seen
lately or wait to be placed: the sequence is simulated with every array where it would be then. A program
that repeats itself is judged by what one more round takes, so that moving an array once counts little and
every round much.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from apportion.coexecution.expected_times import Belief
from apportion.errors import InvalidSetting
from apportion.runtime.residency import HOST

_NODES = ((-1.3556, 0.2221), (0.0, 0.5558), (1.3556, 0.2221))
"Standard deviations at which an unknown time is tried, and their weights."


@dataclass(frozen=True)
class PlacementSettings:
    """The numbers of placing; times in seconds."""

    window: int = 48
    "Steps of a program that are looked at. Chosen: a round of any bundled program has fewer."
    searched: int = 64
    "All assignments are tried where there are at most so many, else one kernel is moved at a time. Chosen."
    launch_seconds: float = 6e-6
    "What a queued launch takes beyond its kernel. Chosen; not measured yet."
    move_seconds: float = 4e-5
    "What a copy takes beyond its bytes: devices wait for each other. From launches on a Xeon with an H200."
    bytes_per_second: float = 6e9
    "What is copied per second where no calibration says. Chosen: PCIe with memory that is not pinned."
    better: float = 0.97
    "Take another assignment if it promises less than this times the present one. Chosen: noise is as large."
    divided: float = 0.9
    """Use several devices if that promises less than this times everything on the best one. Chosen: noise
    (`BeliefSettings.noise`) makes one of two equal devices look a tenth faster for some kernels."""
    explores: float = 0.5
    "A hoped gain counts this much against the price of trying a device. Chosen: below 1 is careful."

    def __post_init__(self) -> None:
        for name in ("window", "searched"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        if not (
            0 < self.better <= 1
            and 0 < self.divided <= 1
            and self.bytes_per_second > 0
            and self.explores >= 0
        ):
            raise InvalidSetting(f"better and divided must lie between 0 and 1, and rates be above 0: {self}")
        if min(self.launch_seconds, self.move_seconds) < 0:
            raise InvalidSetting(f"Times must not be below 0: {self}")


PLACING = PlacementSettings()


@dataclass(frozen=True)
class Where:
    """A device as the planner sees it."""

    device: str
    location: int
    "`HOST`, or the number of the device's own memory."
    to_device: float
    "Seconds per byte; 0 where nothing is copied."
    from_device: float


@dataclass(eq=False)
class LaunchGroup:
    """Launches of one kernel over one range."""

    name: str
    belief: Belief
    allowed: tuple[int, ...]
    "Places of the devices that can run it."
    place: int | None = None
    "Where it runs now."
    reason: str = ""
    count: int = 0
    tried: set[int] = field(default_factory=set)
    "Places where it was launched."
    measured: dict[int, int] = field(default_factory=dict)
    "Place → launches whose times were taken account of."


@dataclass(frozen=True, eq=False)
class ProgramStep:
    """A launch, or a read of the host's (no group)."""

    group: LaunchGroup | None
    reads: tuple[tuple[int, int], ...]
    "(Array, bytes) that must be valid where it happens."
    writes: tuple[int, ...]
    "Arrays that are valid only there afterwards."

    def same(self, other: ProgramStep) -> bool:
        """Whether two steps do the same to the same arrays."""
        return self.group is other.group and self.reads == other.reads and self.writes == other.writes


Value = Callable[[float, Mapping[str, float]], float]
"From seconds, and device → seconds for which it works."
Valid = dict[int, int]
"Array → bits of the locations where it is valid; the host where nothing is said."


class _Done:
    """What was simulated so far; times in seconds."""

    def __init__(self, places: int) -> None:
        self.free = [0.0] * places
        "When each device has nothing more to do."
        self.latest = 0.0
        self.wrote: dict[int, tuple[float, int]] = {}
        "Array → when the last launch that wrote it ended, and where."
        self.read: dict[int, tuple[float, int]] = {}
        self.working = [0.0] * places
        "For how long each device worked."


class Planner:
    """Assigns groups to devices, and thinks again whenever the launches of a group have doubled."""

    def __init__(
        self, places: Sequence[Where], settings: PlacementSettings = PLACING, value: Value | None = None
    ) -> None:
        self.places, self.settings = list(places), settings
        apart = [place for place in self.places if place.location != HOST]
        self._to_device = {place.location: place.to_device for place in apart}
        self._from_device = {place.location: place.from_device for place in apart}
        self.value = value
        "What is to be least of a program that takes so long, with devices that work so long; None: time."
        self.steps: deque[ProgramStep] = deque(maxlen=settings.window)
        self.aim = "expected to end soonest"
        self.plans = 0
        "How often assignments were searched."

    def note(self, step: ProgramStep) -> None:
        """Remember a step that was done."""
        self.steps.append(step)

    def plan(self, coming: Sequence[ProgramStep], valid: Mapping[int, int], *, explore: bool = True) -> bool:
        """Assign the groups of the steps to come, and of the round that repeats itself.

        Returns:
            Whether something is tried, so that it should soon be thought about again.

        Args:
            coming: what waits to be placed; may be empty.
            valid: array → bits of the locations where it is valid now.
        """
        self.plans += 1
        past = list(self.steps)
        period = period_of([*past, *coming])
        repeated = [*past, *coming][-period:] if period else []
        placed = {step.group for step in repeated}
        if any(step.group and step.group.place is None and step.group not in placed for step in coming):
            period = 0  # something new comes before what repeats itself
        sequence = repeated if period else list(coming) or past
        groups = list(dict.fromkeys(step.group for step in sequence if step.group is not None))
        if not groups:
            return False
        rounds = max(1, min(group.count for group in groups))
        now = self._search(groups, sequence, valid, rounds, bool(period))
        for group in groups:
            if group.place != now[group]:
                self._move(group, now[group], self.aim)
        return bool(explore and period and self._explore(groups, sequence, valid, rounds))

    def _move(self, group: LaunchGroup, place: int, why: str) -> None:
        group.place = place
        seconds = group.belief.seconds(self.places[place].device)
        known = "measured" if group.measured.get(place) else "predicted"
        group.reason = f"{why}: {known} {1e3 * seconds:.3g} ms"

    def _search(
        self,
        groups: list[LaunchGroup],
        sequence: list[ProgramStep],
        valid: Mapping[int, int],
        rounds: int,
        repeats: bool,
    ) -> dict[LaunchGroup, int]:
        known: dict[tuple[int, ...], float] = {}

        def cost(assigned: Mapping[LaunchGroup, int]) -> float:
            key = tuple(map(assigned.__getitem__, groups))
            if key not in known:
                known[key] = self.cost(sequence, assigned, valid, rounds if repeats else 0)
            return known[key]

        common = [place for place in range(len(self.places)) if all(place in g.allowed for g in groups)]
        starts = [dict.fromkeys(groups, place) for place in common]
        if not starts or math.prod(len(group.allowed) for group in groups) <= self.settings.searched:
            if math.prod(len(group.allowed) for group in groups) <= self.settings.searched:
                starts = [
                    dict(zip(groups, each, strict=True)) for each in product(*(g.allowed for g in groups))
                ]
            else:
                starts = [{group: group.allowed[0] for group in groups}]
            best = min(starts, key=cost)
        else:
            best = min(starts, key=cost)
            seconds, improved = cost(best), True
            while improved:
                improved = False
                for group in groups:
                    for place in group.allowed:
                        other = {**best, group: place}
                        if place != best[group] and (taken := cost(other)) < seconds * (1 - 1e-9):
                            best, seconds, improved = other, taken, True
        enough = math.inf
        if common:
            single = min((dict.fromkeys(groups, place) for place in common), key=cost)
            enough = self.settings.divided * cost(single)
            if cost(best) >= enough:
                best = single
        present = {group: group.place for group in groups}
        if all(place is not None for place in present.values()):
            kept = {group: place for group, place in present.items() if place is not None}
            worth_it = len(set(kept.values())) == 1 or cost(kept) < enough
            if worth_it and cost(best) >= self.settings.better * cost(kept):
                return kept
        return best

    def _explore(
        self, groups: list[LaunchGroup], sequence: list[ProgramStep], valid: Mapping[int, int], rounds: int
    ) -> bool:
        """Try one group on a device where it never ran, if that is expected to pay for itself within as many
        rounds as there were; whether one is tried."""
        present = {group: group.place for group in groups if group.place is not None}
        now = self.round(sequence, present)
        best: tuple[float, LaunchGroup, int] | None = None
        for group in groups:
            for place in group.allowed:
                if place in group.tried or place == group.place:
                    continue
                device, other = self.places[place].device, {**present, group: place}
                gain = price = 0.0
                for deviations, weight in _NODES:
                    (seconds,) = group.belief.quantiles(device, [deviations])
                    taken = self.round(sequence, other, {(id(group), place): seconds})
                    gain += weight * max(0.0, now - taken)
                    price += weight * max(0.0, taken - now)
                moves = self.cost(sequence, other, valid, 0) - self.cost(sequence, present, valid, 0)
                worth = self.settings.explores * gain * rounds - max(price, moves)
                if worth > 0 and (best is None or worth > best[0]):
                    best = worth, group, place
        if best is not None:
            _, group, place = best
            self._move(
                group, place, f"it may be faster than {self.places[group.place or 0].device}, tried once"
            )
        return best is not None

    # Simulation

    def round(
        self,
        sequence: Sequence[ProgramStep],
        assigned: Mapping[LaunchGroup, int],
        times: Mapping[tuple[int, int], float] | None = None,
    ) -> float:
        """Seconds of one more round, once all arrays are where a round leaves them; or its value."""
        valid: Valid = {}
        done, placed = _Done(len(self.places)), self._placed(assigned, times)
        first = self._pass(sequence, placed, valid, done)
        before = list(done.working)
        seconds = self._pass(sequence, placed, valid, done) - first
        return self._valued(seconds, [each - b for each, b in zip(done.working, before, strict=True)])

    def cost(
        self,
        sequence: Sequence[ProgramStep],
        assigned: Mapping[LaunchGroup, int],
        valid: Mapping[int, int],
        rounds: int,
    ) -> float:
        """Seconds of a pass over the sequence from where arrays are now, and of so many rounds after it; or
        the value of that."""
        there, done, placed = dict(valid), _Done(len(self.places)), self._placed(assigned)
        first = self._pass(sequence, placed, there, done)
        if not rounds:
            return self._valued(first, done.working)
        before = list(done.working)
        seconds = first + rounds * (self._pass(sequence, placed, there, done) - first)
        working = [b + rounds * (each - b) for each, b in zip(done.working, before, strict=True)]
        return self._valued(seconds, working)

    def _valued(self, seconds: float, working: Sequence[float]) -> float:
        if self.value is None:
            return seconds
        names = [place.device for place in self.places]
        return self.value(seconds, dict(zip(names, working, strict=True)))

    def _placed(
        self, assigned: Mapping[LaunchGroup, int], times: Mapping[tuple[int, int], float] | None = None
    ) -> dict[LaunchGroup, tuple[int, int, float]]:
        """Group → its place, the location of that, and the seconds of a launch there."""
        found = {}
        for group, place in assigned.items():
            where = self.places[place]
            taken = times.get((id(group), place)) if times else None
            seconds = group.belief.seconds(where.device) if taken is None else taken
            found[group] = place, where.location, seconds + self.settings.launch_seconds
        return found

    def _pass(
        self,
        sequence: Sequence[ProgramStep],
        placed: Mapping[LaunchGroup, tuple[int, int, float]],
        valid: Valid,
        done: _Done,
    ) -> float:
        """When all steps have ended, after what was done before."""
        # The innermost loop of placing, a few thousand times for a program: hence no calls and plain lists.
        free, working, latest = done.free, done.working, done.latest
        tables, wrote, read = (done.wrote, done.read), done.wrote, done.read
        waiting, at_home = self.settings.move_seconds, 1 << HOST
        for step in sequence:
            if step.group is None:
                place, location, seconds, began = -1, HOST, 0.0, max(free)
            else:
                place, location, seconds = placed[step.group]
                began = free[place]
            for array, nbytes in step.reads:
                # One device waits for another, also where nothing has to be copied.
                if array in wrote:
                    ended, other = wrote[array]
                    if other != place:
                        ended += waiting
                    if ended > began:
                        began = ended
                bits = valid.get(array, at_home)
                if not bits >> location & 1:
                    began += self._moving(bits, location, nbytes)
                    valid[array] = bits | 1 << location | at_home
            for array in step.writes:  # what is still read or written elsewhere is not written over
                for table in tables:
                    if array in table:
                        ended, other = table[array]
                        if other != place:
                            ended += waiting
                        if ended > began:
                            began = ended
            if place < 0:
                free[:] = [max(each, began) for each in free]
                if began > latest:
                    latest = began
                continue
            ended = began + seconds
            working[place] += seconds
            free[place] = ended
            if ended > latest:
                latest = ended
            done_there = ended, place
            for array, _ in step.reads:
                read[array] = done_there
            for array in step.writes:
                valid[array] = 1 << location
                wrote[array] = done_there
        done.latest = latest
        return latest

    def _moving(self, bits: int, location: int, nbytes: int) -> float:
        seconds = 0.0
        if not bits & 1 << HOST:
            source = next((each for each in self._from_device if bits >> each & 1), None)
            if source is not None:
                seconds += self.settings.move_seconds + nbytes * self._from_device[source]
        if location != HOST:
            seconds += self.settings.move_seconds + nbytes * self._to_device[location]
        return seconds


def period_of(steps: Sequence[ProgramStep]) -> int:
    """After how many steps a sequence repeats itself: all of it where it does, else its end; 0 where neither.

    A program whose rounds end with a loop repeats the loop at its end, and more than that all the time.
    """
    count, at_the_end = len(steps), 0
    for period in range(1, count // 2 + 1):
        same = 0
        while same < count - period and steps[count - 1 - same].same(steps[count - 1 - same - period]):
            same += 1
        if same == count - period:
            return period
        if same >= period and not at_the_end:
            at_the_end = period
    return at_the_end
