"""Launching a bound kernel: plans for the worker, and what their launches teach."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import Protocol

from apportion.device.base import DeviceInfo
from apportion.device.binding import Binding
from apportion.device.plan import ArrayPlace, Build, Chunks, Outcome, Plan
from apportion.device.policies import Observations, Predictor
from apportion.device.split import Part, Split
from apportion.device.worker import Worker
from apportion.program.access import KernelAccess
from apportion.program.bounds import NDRange
from apportion.program.signature import Signature


class Kernel(Protocol):
    """What a launch needs to know of its kernel."""

    signature: Signature
    access: KernelAccess
    devices: list[DeviceInfo]
    worker: Worker
    predictor: Predictor | None
    trust: bool

    def build_for(self, span: NDRange) -> Build:
        """What is compiled for a range."""


@dataclass
class Case:
    """What is known of one kernel at one size with one kind of arguments."""

    dimension: int
    merges: dict[str, str]
    obstacle: str = ""
    "Why the work is not shared; empty when it may be."
    verified: bool = False
    conflicts: int = 0
    seen: Observations = field(default_factory=Observations)
    launches: int = 0
    covered: frozenset[str] = frozenset()
    "Arguments whose slices are written without a gap."
    probed: bool = False
    trusted: set[str] = field(default_factory=set)
    "Devices whose results alone were compared."


@dataclass
class Launcher:
    """A kernel, its arguments and its range, ready for the worker."""

    kernel: Kernel
    binding: Binding
    span: NDRange
    case: Case

    @property
    def devices(self) -> list[DeviceInfo]:
        """The devices that share."""
        return self.kernel.devices

    @property
    def groups(self) -> int:
        """Work-groups along the dimension that is cut."""
        return self.span.groups[self.case.dimension]

    def launch(self, split: Split, chunks: Chunks | None = None, *, checked: bool = False) -> Outcome:
        """Run the kernel under a split, or in chunks; the shared arrays hold the results afterwards."""
        parts = tuple(split.parts(self.groups)) if chunks is None else ()
        return self.kernel.worker.run(self.plan(parts, chunks, checked=checked))

    def plan(self, parts: tuple[Part, ...], chunks: Chunks | None = None, *, checked: bool = False) -> Plan:
        """What the worker is asked to do."""
        plan = self._plan(parts, chunks, checked)
        ranges = [(part.first, part.last) for part in parts]
        torn = [p.name for p in self.binding.written if not plan.sliced(p, ranges)]
        overlapping = [name for name in torn if self.case.merges[name] == "slice"] if len(parts) > 1 else []
        if not overlapping:
            return plan
        # Cuts at other places were apart (`Together` tried some); these are not.
        self.case.merges |= dict.fromkeys(overlapping, "diff")
        return self._plan(parts, chunks, checked)

    def _plan(self, parts: tuple[Part, ...], chunks: Chunks | None, checked: bool) -> Plan:
        places = tuple(
            replace(
                place,
                merge=self.case.merges.get(place.name, place.merge),
                covered=place.name in self.case.covered,
            )
            if isinstance(place, ArrayPlace)
            else place
            for place in self.binding.places
        )
        return Plan(
            self.kernel.build_for(self.span), self.span, self.case.dimension, places, parts, chunks,
            self.kernel.access.program, self.binding.scalars, checked,
        )  # fmt: skip

    def note(self, outcome: Outcome, foretold: float | None = None) -> None:
        """Remember what each device took; the first launch is left out, since drivers compile in it."""
        self.case.launches += 1
        if self.case.launches == 1:
            return
        for time in outcome.devices:
            if time.groups:
                self.case.seen.add(time.device, time.groups / self.groups, time.seconds)
        if len(outcome.devices) > 1:
            self.case.seen.add_shared(outcome.seconds, outcome.merge_seconds, foretold)

    def alone(self) -> dict[str, float]:
        """Device → median seconds of launches that it did all of."""
        return {device: statistics.median(seconds) for device, seconds in self.case.seen.whole.items()}
