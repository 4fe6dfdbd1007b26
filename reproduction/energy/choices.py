"""Joules of measured cuts, and the cut that each objective asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from apportion.coexecution.objective import Objective, PowerModel
from apportion.measure.device_power import KERNELS
from reproduction.energy.measure import CutRow, EnergyRow

METERED = {"gpu": "card", "cpu": "package"}
"A device → how the names of its meters begin."


@dataclass(frozen=True)
class CutEnergy:
    """One cut: what it takes, and what it draws."""

    share: float
    "Of the first device."
    seconds: float
    joules: float
    working: Mapping[str, float]
    "Device → seconds."

    @property
    def watts(self) -> float:
        """The mean over the launch."""
        return self.joules / self.seconds


def measured_watts(cut: CutRow, idle: Mapping[str, float]) -> float | None:
    """What all meters said while launches ran; None where one of them did not move.

    Between launches arrays were put back; the machine is taken to draw what it draws idle then.
    """
    if cut.launching <= 0.05 or not idle or any(name not in cut.watts for name in idle):
        return None
    window, rest = sum(cut.watts.values()), sum(idle.values())
    return max(0.0, (window - rest * (1 - cut.launching)) / cut.launching)


def energies(
    row: EnergyRow, idle: Mapping[str, float], given: Mapping[str, tuple[float, float]]
) -> list[CutEnergy]:
    """The cuts of a kernel whose power was measured.

    Args:
        given: device without a meter → watts while it works and watts idle, which are added.
    """
    found = []
    for cut in row.cuts:
        watts = measured_watts(cut, idle)
        if watts is None:
            continue
        seconds = cut.seconds_mean
        joules = watts * seconds
        for name, (active, rest) in given.items():
            joules += rest * seconds + active * min(seconds, cut.devices.get(name, 0.0))
        found.append(CutEnergy(cut.share, seconds, joules, cut.devices))
    return found


def best(cuts: Sequence[CutEnergy], objective: Objective) -> CutEnergy:
    """The cut for which an objective is least."""
    return min(cuts, key=lambda cut: objective.value(cut.seconds, cut.joules))


def fitted_power(
    rows: Sequence[EnergyRow],
    idle: Mapping[str, float],
    given: Mapping[str, tuple[float, float]],
    mean: Callable[[Sequence[float]], float] = fmean,
) -> PowerModel:
    """The model that calibrating learns, from the two kernels that it uses, launched on each device alone."""
    rest = sum(idle.values())
    drawn: dict[str, list[float]] = {}
    for row in rows:
        if row.kernel not in KERNELS:
            continue
        for cut in row.cuts:
            watts = measured_watts(cut, idle)
            if watts is not None and cut.share in (0.0, 1.0):
                drawn.setdefault(row.devices[0 if cut.share == 1.0 else 1], []).append(watts - rest)
    active = {name: max(0.0, mean(watts)) for name, watts in drawn.items()}
    for name, (watts, _) in given.items():
        active[name] = active.get(name, 0.0) + watts
    origin = {name: "given" if name in given else "measured" for name in active}
    return PowerModel(rest + sum(idle_watts for _, idle_watts in given.values()), active, origin)


def predicted(cut: CutEnergy, power: PowerModel) -> float:
    """The joules that the model says of a cut that takes what it took."""
    return power.joules(cut.seconds, {name: min(cut.seconds, each) for name, each in cut.working.items()})


def off_by(cuts: Sequence[CutEnergy], power: PowerModel) -> list[float]:
    """Predicted joules over measured ones."""
    return [predicted(cut, power) / cut.joules for cut in cuts]


def middle(values: Sequence[float]) -> float:
    """The median; 0 of nothing."""
    return median(values) if values else 0.0
