"""A kernel with its arguments and range: a split is chosen, checked, launched and learnt from."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from apportion.device.base import DeviceInfo
from apportion.device.binding import Binding
from apportion.device.checking import Check
from apportion.device.launching import Case, Kernel, Launcher
from apportion.device.plan import Chunks, Outcome
from apportion.device.policies import best_split, fixed_policy, predicted, prior
from apportion.device.split import Split
from apportion.errors import NotSplittable
from apportion.program.bounds import NDRange


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
    outcome: Outcome

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


_PROBE = 0.1
"The least share of a device whose speed is not known while others' are."


@dataclass(frozen=True)
class _Choice:
    """What a policy came to."""

    split: Split
    chunks: Chunks | None
    reason: str
    foretold: float | None = None
    "Seconds that earlier launches foretell."


class BoundKernel:
    """A kernel with its arguments and range."""

    def __init__(self, kernel: Kernel, binding: Binding, span: NDRange, case: Case) -> None:
        self.kernel, self.binding, self.span, self.case = kernel, binding, span, case
        self._launcher = Launcher(kernel, binding, span, case)
        self._check = Check(self._launcher)

    @property
    def devices(self) -> list[DeviceInfo]:
        """The devices that share."""
        return self.kernel.devices

    @property
    def groups(self) -> int:
        """Work-groups along the dimension that is cut."""
        return self.span.groups[self.case.dimension]

    def run(self, policy: str | float) -> Execution:
        """Launch under a policy; the shared arrays hold the results afterwards."""
        choice = self._choose(policy)
        if self.case.obstacle and len(choice.split.parts(self.groups)) > 1:
            if fixed_policy(policy, self.devices) is not None and policy not in ("even", "static"):
                raise NotSplittable(
                    f"{self.kernel.signature.name!r} cannot be shared between devices: {self.case.obstacle}. "
                    f"Run it on one of {', '.join(info.id for info in self.devices)}"
                )
            choice = self._one_device()
        parts = choice.split.parts(self.groups)
        reason = choice.reason
        if not self.kernel.trust and len(parts) > 1:
            if not self.case.verified and not self._check.shared(choice.split):
                return self.run(policy)  # now that it is known that the work cannot be shared
        elif not self.kernel.trust:
            reason += self._check.alone(parts[0].device)
        self._check.probe(choice.split)
        if "diff" in self.case.merges.values():
            self.binding.remember()
        outcome = self._launcher.launch(choice.split, choice.chunks)
        if any(outcome.conflicts.values()) and not self.kernel.trust:
            # Another cut than the one that was verified may put two writers of one place on two devices.
            self.case.conflicts = sum(outcome.conflicts.values())
            self.case.obstacle = f"{self.case.conflicts} conflicts between the devices' writes"
            self.binding.restore()
            return self.run(policy)
        self._launcher.note(outcome, choice.foretold)
        return self._execution(str(policy), outcome, reason)

    def trial(self, split: Split) -> Outcome:
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

    def _choose(self, policy: str | float) -> _Choice:
        fixed = fixed_policy(policy, self.devices)
        if fixed is not None:
            return _Choice(fixed, None, f"the policy {policy} was asked for")
        if len(self.devices) == 1:
            return _Choice(Split.alone(self.devices[0].id), None, "there is only one device")
        if self.case.obstacle:
            return self._one_device()
        if policy == "oracle":
            return self._search()
        choice = self._expected()
        if policy == "dynamic":
            shares = {name: max(share, 0.02) for name, share in choice.split.shares.items()}
            # The surer the shares, the more is handed out at once.
            chunks = Chunks(shares, 0.25 if choice.foretold is None else 0.75, max(1, self.groups // 256))
            return replace(choice, chunks=chunks, reason=f"{choice.reason}; the rest in chunks")
        return choice

    def _expected(self) -> _Choice:
        """The split that is expected to end soonest, and why."""
        best = self.case.seen.best(self.devices)
        if best is not None:
            return _Choice(best[0], None, f"earlier launches foretell {best[1] * 1e3:.3g} ms", best[1])
        if self.kernel.predictor is not None:
            return _Choice(
                predicted(self.kernel.predictor, self.devices), None, "the learned model foretells it"
            )
        split, _ = best_split(prior(self.devices))
        strangers = [device.id for device in self.devices if self.case.seen.model(device) is None]
        if len(strangers) == len(self.devices):
            return _Choice(split, None, "from the devices' descriptions: nothing was measured yet")
        # A description that belittles a device would otherwise keep it from ever being measured.
        least = min(1 / len(self.devices), max(_PROBE, 1 / self.groups))
        shares = {
            name: max(share, least if name in strangers else 0.0) for name, share in split.shares.items()
        }
        whole = sum(shares.values())
        probing = Split({name: share / whole for name, share in shares.items()})
        return _Choice(probing, None, f"{', '.join(strangers)} gets a part to be measured by")

    def _one_device(self) -> _Choice:
        """The device that is fastest alone, as far as that is known."""
        shares = self._expected().split.shares
        alone = self._launcher.alone()
        if len(alone) == len(self.devices):
            chosen = min(alone, key=lambda name: alone[name])
        else:
            chosen = max(shares, key=lambda name: shares[name])
        return _Choice(Split.alone(chosen), None, f"one device: {self.case.obstacle}")

    def _search(self) -> _Choice:
        names = [info.id for info in self.devices]
        if len(names) == 2:
            curve = self.curve()
            share = min(curve, key=lambda s: curve[s])
            split = Split({names[0]: share, names[1]: 1 - share})
            return _Choice(split, None, f"the best of {len(curve)} measured cuts")
        for name in names:
            self.time(Split({other: float(other == name) for other in names}))
        split = self._expected().split
        best, tried = statistics.median(self.time(split)), 1
        for width in (0.1, 0.05):
            for giver, taker in permutations(names, 2):
                if split.shares[giver] < width:
                    continue
                shares = dict(split.shares)
                shares[giver] -= width
                shares[taker] += width
                seconds, tried = statistics.median(self.time(Split(shares))), tried + 1
                if seconds < best:
                    best, split = seconds, Split(shares)
        return _Choice(split, None, f"the best of {tried} measured cuts")

    def _execution(self, policy: str, outcome: Outcome, reason: str) -> Execution:
        shares = {info.id: 0.0 for info in self.devices}
        for time in outcome.devices:
            shares[time.device] = time.groups / self.groups
        shared = sum(share > 0 for share in shares.values()) > 1
        merges = dict(self.case.merges) if shared else dict.fromkeys(self.case.merges, "none")
        return Execution(
            policy, shares, outcome.seconds, self._launcher.alone(), self.case.verified, merges,
            self.case.conflicts, reason, outcome,
        )  # fmt: skip
