"""Verifying launches: shared ones against one device's, one device's against another compiler's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.launching import Launcher
from apportion.errors import VerificationFailed
from apportion.runtime import verify
from apportion.runtime.backend import info_of
from apportion.runtime.base import DeviceInfo
from apportion.runtime.split import Part, Split

_PATTERNS = (0xFF, 0x5A)
_UNOPTIMISED = "-cl-opt-disable"


@dataclass
class Check:
    """What must hold before a split, a device or a slice is trusted; each thing is checked once per case."""

    launcher: Launcher

    def __post_init__(self) -> None:
        self.kernel, self.case = self.launcher.kernel, self.launcher.case
        self.binding, self.devices = self.launcher.binding, self.launcher.devices

    def shared(self, split: Split) -> bool:
        """Compare a checked, shared launch with one device's; afterwards the arrays hold what they held
        before.

        Returns whether the work can be shared.
        """
        self.binding.remember()
        reference = self._reference(self.devices[0])
        outcome = self.launcher.launch(split, checked=True)
        for name, count in outcome.strays.items():
            if count:
                self.case.merges[name] = "diff"
        self.case.conflicts = sum(outcome.conflicts.values())
        wrong = self._differences(self.binding.shared, reference)
        self.binding.restore()
        self.case.verified = self.case.shareable = not wrong and not self.case.conflicts
        if not self.case.verified:
            for part in split.parts(self.launcher.groups):
                self._blame(part.device, reference)
            what = "; ".join(f"{name}: {said}" for name, said in wrong.items())
            if self.case.conflicts:
                what = f"{self.case.conflicts} conflicts between the devices' writes when shared" + (
                    f" ({what})" if what else ", though the results are the same"
                )
            else:
                what = f"the results of sharing are not those of one device ({what})"
            self.case.obstacle = what
        return self.case.shareable

    def alone(self, device: str) -> str:
        """Compare a device alone with another compiler's result, once; what is to be said of it."""
        if device in self.case.trusted:
            return ""
        self.binding.remember()
        reference = self._reference(info_of(device, self.devices))
        self.case.trusted.add(device)
        if not self._ordered:
            self._blame(device, reference)
            self.case.verified = True
            return ""
        # The order of work-groups decides where such a kernel puts things, not which things. If not even that
        # is the same when another compiler's code runs twice, nothing can be said; if it is, it must be here.
        steady = not self._differences(self._reference(info_of(device, self.devices)), reference, sort=True)
        if steady:
            self._blame(device, reference, sort=True)
        self.case.verified = steady
        return "" if steady else "; its results change from run to run, so they could not be verified"

    def probe(self, split: Split) -> None:
        """Find arrays that need not be copied to a device because every place of them is written there."""
        candidates = [p for p in self.binding.written if p.settled and p.read_reach == ()]
        if self.case.probed or not candidates or all(info.shares_memory for info in self.devices):
            return
        self.case.probed = True
        for pattern in _PATTERNS:  # two, since a kernel may happen to write what a place started as
            plan = self.launcher.plan(tuple(split.parts(self.launcher.groups)), checked=True)
            self.case.covered |= self.kernel.backend.launch(replace(plan, probe=pattern)).covered

    @property
    def _ordered(self) -> bool:
        """Whether results depend on the order in which work-groups run."""
        return "refuse" in self.case.merges.values()

    def _reference(self, device: DeviceInfo) -> dict[str, NDArray[Any]]:
        """The results by another compiler: another driver's where there is one, else without optimisation."""
        others = [d for d in self.devices if (d.platform, d.driver) != (device.platform, device.driver)]
        chosen = others[0] if others else device
        plan = self.launcher.plan((Part(chosen.id, 0, self.launcher.groups),), checked=True)
        if not others:
            options = f"{plan.build.options} {_UNOPTIMISED}".strip()
            plan = replace(plan, build=replace(plan.build, options=options))
        self.kernel.backend.launch(plan)
        results = {place.name: self.binding.shared[place.name].copy() for place in self.binding.written}
        self.binding.restore()
        return results

    def _differences(
        self, found: Mapping[str, NDArray[Any]], reference: Mapping[str, NDArray[Any]], *, sort: bool = False
    ) -> dict[str, str]:
        """Argument → what differs, in words; with `sort`, whatever the order of the elements."""
        said = {}
        exactness = verify.Exactness.of(
            self.kernel.access.computes_in, self.kernel.build_for(self.launcher.span).options
        )
        for name, expected in reference.items():
            here = found[name]
            use = self.kernel.access.argument(name)
            if use.undefined_lanes:
                here, expected = (_without(each, use.lanes, use.undefined_lanes) for each in (here, expected))
            if sort:
                here, expected = np.sort(here, None), np.sort(expected, None)
            if (difference := verify.difference(here, expected, exactness)) is not None:
                said[name] = difference
        return said

    def _blame(self, device: str, reference: Mapping[str, NDArray[Any]], *, sort: bool = False) -> None:
        """Raise an error when a device is wrong by itself: then it is not the sharing that is at fault."""
        self.launcher.launch(Split.alone(device), checked=True)
        wrong = self._differences(self.binding.shared, reference, sort=sort)
        self.binding.restore()
        if wrong:
            said = "; ".join(f"{name}: {what}" for name, what in wrong.items())
            info = info_of(device, self.devices)
            raise VerificationFailed(
                f"{info.id} ({info.platform} {info.driver}), alone, disagrees with another compiler about "
                f"what {self.kernel.signature.name!r} computes: {said}. Either a compiler is wrong or the "
                "kernel depends on the order of its work-items. Trust it (--trust) if you know better"
            )


def _without(values: NDArray[Any], lanes: int, undefined: frozenset[int]) -> NDArray[Any]:
    """An array of vectors with 0 in the lanes that a kernel never sets: any value is right there."""
    if values.dtype.kind not in "iuf" or values.size % lanes:
        return values
    kept = values.copy().reshape(-1, lanes)
    kept[:, sorted(undefined)] = 0
    return kept.reshape(values.shape)
