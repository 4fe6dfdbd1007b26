"""A launch as `apportion run` and the studio run it: its bounds checked, and beside each device alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from apportion.coexecution.bound import BoundKernel
from apportion.coexecution.compare import Comparison, compare
from apportion.coexecution.objective import TIME, Objective, PowerModel
from apportion.coexecution.policies.objective_policy import ObjectivePolicy
from apportion.coexecution.sharing import Together
from apportion.runtime.arguments import Arguments
from apportion.runtime.default_arguments import outside
from apportion.runtime.split import Split

if TYPE_CHECKING:
    from apportion.measure.counters.bounds_check import Checked


@dataclass(frozen=True)
class LaunchRun:
    """What came of a launch."""

    comparison: Comparison
    assumed: tuple[str, ...]
    "Arguments that were not given, with what they were taken to be and why."
    printed: str
    "What the kernel printed in one launch."
    checked: Checked | None
    "None where the code proves that every access stays inside, or where the caller trusts it."
    confinement: dict[str, Any] | None
    "What holds the process that ran the kernel, as `jobs.cage` tells it; None where nothing is known."
    power: PowerModel | None = None
    "What devices draw, where the split was chosen for more than time."

    def energy(self) -> dict[str, Any] | None:
        """Joules of the launch, and of each device alone, by what devices draw; None if time alone counts."""
        if self.power is None:
            return None
        execution, power = self.comparison.execution, self.power
        working = {device.device: device.seconds for device in execution.outcome.devices if device.groups}
        return {
            "joules": power.joules(execution.seconds, working),
            "alone": {name: power.joules(taken, {name: taken}) for name, taken in execution.alone.items()},
            "watts": {"idle": power.idle, **power.active},
            "origin": dict(power.origin),
        }

    def as_json(self) -> dict[str, Any]:
        """The keys of `apportion run --json`."""
        return self.comparison.as_json() | {
            "assumed": list(self.assumed), "printed": self.printed,
            "checked": None if self.checked is None else self.checked.as_json(),
            "confinement": self.confinement, "energy": self.energy(),
        }  # fmt: skip


def aimed_for(shared: Together, objective: Objective, watts: Mapping[str, str]) -> PowerModel | None:
    """Have `shared` choose the split for an objective; what its devices draw, None where time alone counts.

    Args:
        watts: device → what it draws at work, or `120:30` with what it draws idle; else it is measured.

    Raises:
        InvalidSetting: what a device draws is neither given nor can be measured.
    """
    if objective == TIME:
        return None
    from apportion.measure.device_power import power_model  # it loads the bundled kernels

    power = power_model(shared.backend, shared.devices, watts)
    shared.policy = ObjectivePolicy(objective, power)
    return power


def checked_bounds(
    shared: Together, arguments: Arguments, *, whole: bool = False, trust: bool = False
) -> Checked | None:
    """A launch under bounds checks: all of it, or some work-groups where the code does not prove its bounds.

    Raises:
        OutOfBoundsRead, OutOfBoundsWrite: an access outside.
    """
    if not whole and (trust or outside(shared.signature, shared.access, arguments.case) is None):
        return None
    from apportion.measure.counters.bounds_check import check_launch  # llvmlite is only for checks

    return check_launch(shared.source, shared.signature.name, arguments, whole=whole)


def run_launch(
    shared: Together,
    bound: BoundKernel,
    arguments: Arguments,
    *,
    checked: Checked | None = None,
    repeats: int = 3,
    cuts: bool = False,
    power: PowerModel | None = None,
    report: Callable[[str, float], None] | None = None,
) -> LaunchRun:
    """Run a launch under the policy of `shared`, and time it on each device alone; see `compare`."""
    printed = _printed(shared, bound)
    comparison = compare(bound, shared.policy, repeats=repeats, cuts=cuts, report=report)
    bound.binding.give_back()
    held = shared.backend.confinement()
    return LaunchRun(
        comparison, tuple(map(str, arguments.assumed)), printed, checked,
        held.as_json() if held else None, power,
    )  # fmt: skip


def _printed(shared: Together, bound: BoundKernel) -> str:
    """What one launch prints; all the launches that follow print the same."""
    if "printf" not in str(shared.source.text):
        return ""
    bound.binding.remember()
    shared.backend.printed()
    bound.trial(Split.alone(shared.devices[0].id))
    return shared.backend.printed()
