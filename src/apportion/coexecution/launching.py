"""Launching a bound kernel: plans for a backend, and what their launches teach."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Protocol

from apportion.coexecution.forecast import Forecast, LaunchQuery, Predictor
from apportion.coexecution.observations import Observations, PastLaunch
from apportion.errors import InvalidSetting
from apportion.program.compile import CompileOptions
from apportion.program.kernel.access import KernelAccess
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import Signature
from apportion.program.source import Source
from apportion.runtime.backend import Backend
from apportion.runtime.base import DeviceInfo
from apportion.runtime.binding import Binding
from apportion.runtime.plan import ArrayPlace, Build, Chunks, LaunchOutcome, LocalPlace, Plan, ValuePlace
from apportion.runtime.split import Part, Split

_KEPT_PLANS = 32
"Plans of one case that are kept: feedback moves the cut a little at each launch until it settles."


class Kernel(Protocol):
    """What a launch needs to know of its kernel."""

    signature: Signature
    access: KernelAccess
    devices: list[DeviceInfo]
    backend: Backend
    source: Source
    compile: CompileOptions
    predictor: Predictor
    trust: bool

    def build_for(self, span: NDRange) -> Build:
        """What is compiled for a range."""

    def calibrate(self) -> None:
        """See to it that every device's speed is known."""


@dataclass
class LaunchState:
    """What is known of one kernel at one size with one kind of arguments."""

    dimension: int
    merges: dict[str, str]
    obstacle: str = ""
    "Why the work is not shared; empty when it may be."
    verified: bool = False
    "Results were compared, of sharing or of the device that did everything."
    shareable: bool = False
    "Sharing was compared with one device."
    conflicts: int = 0
    seen: Observations = field(default_factory=Observations)
    forecast: Forecast | None = None
    "What was expected before anything ran, once somebody asked."
    covered: frozenset[str] = frozenset()
    "Arguments whose slices are written without a gap."
    probed: bool = False
    trusted: set[str] = field(default_factory=set)
    "Devices whose results alone were compared."
    plans: dict[Hashable, Plan] = field(default_factory=dict)
    "Plans that were made, oldest first."


@dataclass
class Launcher:
    """A kernel, its arguments and its range, ready for its backend."""

    kernel: Kernel
    binding: Binding
    span: NDRange
    case: LaunchState

    @property
    def devices(self) -> list[DeviceInfo]:
        """The devices that share."""
        return self.kernel.devices

    @property
    def groups(self) -> int:
        """Work-groups along the dimension that is cut."""
        return self.span.groups[self.case.dimension]

    def launch(self, split: Split, chunks: Chunks | None = None, *, checked: bool = False) -> LaunchOutcome:
        """Run the kernel under a split, or in chunks; the shared arrays hold the results afterwards.

        Where it is not trusted and devices conflict, arrays that are merged hold what they held before.
        """
        parts = tuple(split.parts(self.groups)) if chunks is None else ()
        return self.kernel.backend.launch(self.plan(parts, chunks, checked=checked))

    def plan(self, parts: tuple[Part, ...], chunks: Chunks | None = None, *, checked: bool = False) -> Plan:
        """What the backend is asked to do; the same object for the same launch, which a backend may know
        again."""
        key = self._key(parts, chunks, checked)
        if key not in self.case.plans:
            if len(self.case.plans) >= _KEPT_PLANS:
                del self.case.plans[next(iter(self.case.plans))]
            plan = self._new_plan(parts, chunks, checked=checked)
            self.case.plans[self._key(parts, chunks, checked)] = plan  # it may have found merges to change
            return plan
        return self.case.plans[key]

    def _key(self, parts: tuple[Part, ...], chunks: Chunks | None, checked: bool) -> Hashable:
        """What a plan depends on: the cuts, the merges, and which memory and values the arguments are."""
        arguments = [
            place.region
            if isinstance(place, ArrayPlace)
            else place.data
            if isinstance(place, ValuePlace)
            else place.nbytes
            if isinstance(place, LocalPlace)
            else place.sampler
            for place in self.binding.places
        ]
        division = (
            parts if chunks is None else (tuple(chunks.shares.items()), chunks.first, chunks.least_groups)
        )
        return division, checked, self.case.covered, tuple(self.case.merges.values()), tuple(arguments)

    def _new_plan(self, parts: tuple[Part, ...], chunks: Chunks | None, *, checked: bool) -> Plan:
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
            undo=not (self.kernel.trust or checked),
        )  # fmt: skip

    def query(self) -> LaunchQuery:
        """What a predictor is asked about."""
        kernel = self.kernel
        plan = self._plan((), None, False)
        return LaunchQuery(
            kernel.source, kernel.signature.name, kernel.compile, kernel.access, plan,
            self.binding.contents(),
        )  # fmt: skip

    def forecast(self) -> Forecast:
        """What the launch is expected to take on each device; asked once."""
        if self.case.forecast is None:
            self.kernel.calibrate()
            forecast = self.kernel.predictor(self.query(), self.devices)
            if missing := [info.id for info in self.devices if info.id not in forecast.models]:
                raise InvalidSetting(f"The predictor says nothing of {', '.join(missing)}")
            self.case.forecast = forecast
        return self.case.forecast

    def note(self, outcome: LaunchOutcome) -> None:
        """Remember what each device took, without what its driver compiled meanwhile."""
        devices = {
            time.device: time.seconds - (max(0.0, time.kernel - time.busy) if time.cold else 0.0)
            for time in outcome.devices
            if time.groups
        }
        cold = any(time.cold for time in outcome.devices)
        self.case.seen.add(
            PastLaunch(
                {time.device: time.groups / self.groups for time in outcome.devices if time.groups},
                max(devices.values()) + outcome.merge_seconds if cold else outcome.seconds,
                devices,
                outcome.merge_seconds,
                cold,
            )
        )

    def alone(self) -> dict[str, float]:
        """Device → median seconds of launches that it did all of."""
        return self.case.seen.alone()
