"""A kernel with its arguments and range: a split is chosen, checked, launched and learnt from."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from apportion.coexecution.checking import Check
from apportion.coexecution.launching import Kernel, Launcher, LaunchState
from apportion.coexecution.observations import Choice
from apportion.coexecution.policies import policy_of
from apportion.coexecution.policies.base import Policy, Situation
from apportion.coexecution.policies.feedback import one_device
from apportion.errors import InvalidSetting, NotSplittable
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import DeviceInfo
from apportion.runtime.binding import Binding
from apportion.runtime.plan import LaunchOutcome, Plan
from apportion.runtime.split import Split


@dataclass(frozen=True)
class Execution:
    """What became of one launch."""

    policy: str
    split: Mapping[str, float]
    "Device → the share of the work-groups it did."
    seconds: float
    alone: Mapping[str, float]
    "Device → seconds for everything, where that was measured."
    verified: bool
    "Whether the results of this kernel at this size were compared with those of one device."
    merge: Mapping[str, str]
    "Written argument → how the devices' results were put together."
    conflicts: int
    "Elements that two devices wrote differently when the launch was checked."
    reason: str
    outcome: LaunchOutcome
    wall_seconds: float = 0.0
    "As the caller saw it: choosing, sending and waiting included, verifying not."

    def as_json(self) -> dict[str, Any]:
        """The keys that `apportion run --json` prints."""
        return {
            "policy": self.policy,
            "split": {device: round(share, 6) for device, share in self.split.items()},
            "milliseconds": self.seconds * 1e3,
            "alone": {device: seconds * 1e3 for device, seconds in self.alone.items()},
            "verified": self.verified,
            "merge": dict(self.merge),
            "conflicts": self.conflicts,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class SteadySettings:
    """When a loop is steady, so that its launches are chosen, checked and noted no more."""

    after: int = 16
    """Launches of a case after which a loop is steady, if its choice stands. Chosen: later than any launch at
    which a policy tries something because one launch counts little."""
    noted_one_in: int = 8
    "Of the launches that take what was expected, one in as many is noted, as streams time them. Chosen."
    late_factor: float = 1.15
    "A launch that takes longer than this times what was expected … Chosen: as `FeedbackSettings.surprise`."
    late_seconds: float = 1e-4
    "… and so many seconds is thought about. Chosen: as `FeedbackSettings.jitter`."

    def __post_init__(self) -> None:
        if self.after < 1 or self.noted_one_in < 1 or self.late_factor < 1 or self.late_seconds < 0:
            raise InvalidSetting(
                "after, noted_one_in and late_factor must be at least 1, late_seconds not below 0, "
                f"not {self}"
            )


STEADY = SteadySettings()


@dataclass(frozen=True)
class _SteadyLaunch:
    """What is launched again without thinking, as long as nothing changes."""

    policy: str | float | Policy
    choice: Choice
    learns: bool
    plan: Plan
    obstacle: str
    "What was known against sharing."
    execution: Execution
    "Of the launch before; only times differ."


class BoundKernel:
    """A kernel with its arguments and range."""

    def __init__(
        self,
        kernel: Kernel,
        binding: Binding,
        span: NDRange,
        case: LaunchState,
        steady: SteadySettings = STEADY,
    ) -> None:
        self.kernel, self.binding, self.span, self.case = kernel, binding, span, case
        self.steady = steady
        self._launcher = Launcher(kernel, binding, span, case)
        self._check = Check(self._launcher)
        self._steady: _SteadyLaunch | None = None
        self._since = 0

    @property
    def devices(self) -> list[DeviceInfo]:
        """The devices that share."""
        return self.kernel.devices

    @property
    def groups(self) -> int:
        """Work-groups along the dimension that is cut."""
        return self.span.groups[self.case.dimension]

    def run(self, policy: str | float | Policy) -> Execution:
        """Launch under a policy; the shared arrays hold the results afterwards."""
        steady = self._steady
        if steady is not None:
            if (execution := self._run_again(steady, policy)) is not None:
                return execution
            self._steady = None
        started = time.perf_counter()
        chooser = policy_of(policy, self.devices)
        choice = self._choose(chooser)
        if self.case.obstacle and len(choice.split.parts(self.groups)) > 1:
            if chooser.insists:
                raise NotSplittable(
                    f"{self.kernel.signature.name!r} cannot be shared between devices: {self.case.obstacle}. "
                    f"Run it on one of {', '.join(info.id for info in self.devices)}"
                )
            choice = one_device(self._situation(), self.case.seen)
        parts = choice.split.parts(self.groups)
        reason = choice.reason
        if not self.kernel.trust and len(parts) > 1:
            if not self.case.shareable:
                if not self._check.shared(choice.split):
                    return self.run(policy)  # now that it is known that the work cannot be shared
                started = time.perf_counter()
        elif not self.kernel.trust and parts[0].device not in self.case.trusted:
            reason += self._check.alone(parts[0].device)
            started = time.perf_counter()
        self._check.probe(choice.split)
        chunks = None if self.case.obstacle else choice.chunks
        remembered = self._must_remember(len(parts) > 1 or chunks is not None)
        if remembered:
            self.binding.remember()
        plan = self._launcher.plan(tuple(parts) if chunks is None else (), chunks)
        outcome = self.kernel.backend.launch(plan)
        if self._conflicting(outcome):
            if remembered:
                self.binding.restore()
            return self.run(policy)
        stands = self._noted(chooser, choice, outcome)
        name = policy if isinstance(policy, str | int | float) else type(policy).__name__
        execution = self._execution(str(name), outcome, reason, time.perf_counter() - started)
        if stands and not remembered and chunks is None and self.case.seen.noted >= self.steady.after:
            learns = chooser.learns and len(self.devices) > 1
            self._steady = _SteadyLaunch(policy, choice, learns, plan, self.case.obstacle, execution)
        return execution

    def _run_again(self, steady: _SteadyLaunch, policy: str | float | Policy) -> Execution | None:
        """The next launch of a steady loop; None where it is not one any more: it is still to be made."""
        started = time.perf_counter()
        seen = self.case.seen
        same = steady.policy is policy or steady.policy == policy
        if not same or self.case.obstacle != steady.obstacle:
            return None
        if steady.learns and seen.decided is not steady.choice:
            return None
        outcome = self.kernel.backend.launch(steady.plan)
        if any(outcome.conflicts.values()) and self._conflicting(outcome):
            return None
        self._since += 1
        expected = steady.choice.seconds
        allowed = self.steady.late_factor * (expected or math.inf) + self.steady.late_seconds
        late = outcome.seconds > allowed
        if late or self._since >= self.steady.noted_one_in:
            self._since = 0
            if not self._noted(policy_of(policy, self.devices), steady.choice, outcome):
                self._steady = None
        return replace(
            steady.execution, seconds=outcome.seconds, outcome=outcome,
            wall_seconds=time.perf_counter() - started,
        )  # fmt: skip

    def _conflicting(self, outcome: LaunchOutcome) -> bool:
        """Whether devices wrote one place: another cut than the one that was verified may do that. The work
        is not shared from then on."""
        if self.kernel.trust or not any(outcome.conflicts.values()):
            return False
        self.case.conflicts = sum(outcome.conflicts.values())
        self.case.obstacle = f"{self.case.conflicts} conflicts between the devices' writes"
        return True

    def _noted(self, chooser: Policy, choice: Choice, outcome: LaunchOutcome) -> bool:
        """Remember a launch; whether the choice holds for the next one too."""
        self._launcher.note(outcome)
        seen = self.case.seen
        if not (chooser.learns and len(self.devices) > 1):
            return True
        if len(seen.launches) < 2:
            return False
        # What follows from the second launch is part of it, and later ones that go as expected change
        # nothing: choosing takes a tenth as long as a short launch, once that has emptied the caches.
        stands = chooser.stands(seen, choice, outcome.seconds)
        seen.decided = choice if stands else chooser.choose(self._situation(), seen)
        return stands

    def _must_remember(self, shared: bool) -> bool:
        """Whether undoing a conflicting launch needs copies: of what is read and changed in place."""
        if self.kernel.trust or not shared or "diff" not in self.case.merges.values():
            return False
        slices = [place for place in self.binding.written if self.case.merges[place.name] == "slice"]
        return any(place.read_reach != () for place in slices)

    def trial(self, split: Split) -> LaunchOutcome:
        """What one launch under a split takes; the arrays hold afterwards what was last remembered."""
        outcome = self._launcher.launch(split)
        self.binding.restore()
        self._launcher.note(outcome)
        return outcome

    def time(self, split: Split, repeats: int = 3) -> list[float]:
        """Seconds of trial launches under a split, after one to warm up; the arrays stay as they are."""
        self.binding.remember()
        self._launcher.launch(split)
        self.binding.restore()
        return [self.trial(split).seconds for _ in range(repeats)]

    def apart(self, split: Split, repeats: int = 5) -> dict[str, list[tuple[float, LaunchOutcome]]]:
        """Wall-clock seconds and outcomes of launches in turn, after one each to warm up.

        `both` is the split as it is; each device's name is its part of it while the others do nothing. The
        arrays hold what the last of these left.
        """
        parts = tuple(split.parts(self.groups))
        plans = {"both": self._launcher.plan(parts)}
        plans |= {part.device: self._launcher.plan((part,)) for part in parts}
        found: dict[str, list[tuple[float, LaunchOutcome]]] = {name: [] for name in plans}
        for number in range(repeats + 1):
            for name, plan in plans.items():
                started = time.perf_counter()
                outcome = self.kernel.backend.launch(plan)
                if number:
                    found[name].append((time.perf_counter() - started, outcome))
        return found

    def curve(self, repeats: int = 3, steps: int = 10) -> dict[float, float]:
        """Share of the first device → median seconds, on a grid and refined round its best; two devices."""
        first, second = (info.id for info in self.devices[:2])
        found: dict[float, float] = {}

        def measure(share: float) -> None:
            share = round(min(1.0, max(0.0, share)), 4)
            if share not in found:
                found[share] = statistics.median(self.time(Split({first: share, second: 1 - share}), repeats))

        for step in range(steps + 1):
            measure(step / steps)
        for width in (0.5 / steps, 0.25 / steps):
            best = min(found, key=lambda share: found[share])
            measure(best - width)
            measure(best + width)
        return dict(sorted(found.items()))

    # Choosing

    def _situation(self) -> Situation:
        return Situation(tuple(self.devices), self.groups, self._launcher.forecast, self.case.obstacle)

    def _choose(self, policy: Policy) -> Choice:
        situation, seen = self._situation(), self.case.seen
        if policy.insists:
            return policy.choose(situation, seen)
        if len(self.devices) == 1:
            return Choice(Split.alone(self.devices[0].id), None, "there is only one device")
        if policy.learns:
            return seen.decided or policy.choose(situation, seen)
        if self.case.obstacle:
            return one_device(situation, seen)
        choice = policy.choose(situation, seen)
        while choice.trial:
            seconds = statistics.median(self.time(choice.split))
            seen.trials.append((choice.split, seconds))
            choice = policy.choose(situation, seen)
        return choice

    def _execution(self, policy: str, outcome: LaunchOutcome, reason: str, wall_seconds: float) -> Execution:
        shares = {info.id: 0.0 for info in self.devices}
        for each in outcome.devices:
            shares[each.device] = each.groups / self.groups
        shared = sum(share > 0 for share in shares.values()) > 1
        merges = dict(self.case.merges) if shared else dict.fromkeys(self.case.merges, "none")
        return Execution(
            policy, shares, outcome.seconds, self._launcher.alone(), self.case.verified, merges,
            self.case.conflicts, reason, outcome, wall_seconds,
        )  # fmt: skip
