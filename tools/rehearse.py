"""The policy's first launches, rehearsed on curves of cuts that were measured, to try rules without devices.

    python tools/rehearse.py docs/results/co-execution

The folder is one that `tools/replay.py` reads. Each kernel that can be shared is launched some times in a row
by the policy, many times over: a cut takes what the curve says, give or take noise, longer right after a
launch by other devices, as `tools/after.py` measured, and longer where the GPU is late, as rows tell. What
each device takes of it comes from lines that fit the curve. That is no measurement; rules that do badly here
did badly on the machine, too.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import product

import numpy as np
from replay import MODEL, SIZES, devices_of, fitted, forecasts, milliseconds, parser_of, rows_of
from scipy.optimize import minimize

from apportion.coexecution.forecast import Forecast
from apportion.coexecution.observations import Observations
from apportion.coexecution.observations import PastLaunch as Seen
from apportion.coexecution.policies.base import Situation
from apportion.coexecution.policies.feedback import FeedbackPolicy
from apportion.runtime.base import DeviceInfo
from apportion.runtime.opencl.platforms import DriverOptions
from apportion.runtime.opencl.worker import Worker
from reproduction.efficiency.rounds import IN_A_ROW, SETTLED, Row

AFTER_SHARED, AFTER_ANOTHER = 1.07, 1.15
_NOISE = 0.05
_LATE, _BY = 0.15, 0.6
"How often the second device is late in a shared launch, and by what part of its time."
_GROUPS = 1 << 12
_OVER = 1.05


@dataclass(frozen=True)
class Curve:
    """What cuts of one kernel take, and what each of two devices does of it."""

    row: Row
    alone: tuple[float, float]
    parts: tuple[float, float]
    "Of each device's time alone, what does not shrink with its share."
    beyond: float
    "What a shared launch takes on top."

    def devices(self, share: float) -> tuple[float, float]:
        """Milliseconds of both."""
        shares = (share, 1 - share)
        first, second = (
            alone * (part + (1 - part) * each)
            for alone, part, each in zip(self.alone, self.parts, shares, strict=True)
        )
        return first, second

    def fitted(self, share: float) -> float:
        """By the lines, where both have a part."""
        return max(self.devices(share)) + self.beyond

    def seconds(self, share: float) -> float:
        """Halfway between what was measured, which is noisy, and the lines."""
        measured = milliseconds(self.row, share)
        both = measured if share in (0.0, 1.0) else (measured * self.fitted(share)) ** 0.5
        return 1e-3 * both

    def best(self) -> float:
        """Seconds of the best cut."""
        return min(map(self.seconds, np.linspace(0, 1, 41).tolist()))


def curve_of(row: Row, devices: list[DeviceInfo]) -> Curve:
    """The lines that fit a kernel's curve best."""
    first, second = (row.alone[info.id].median for info in devices)
    least = min(first, second)
    points = [(float(cut), taken) for cut, taken in row.curve.items() if 0 < float(cut) < 1]

    def of(numbers: np.ndarray) -> Curve:
        a, b, c = (1 / (1 + np.exp(-numbers))).tolist()
        return Curve(row, (first, second), (0.6 * a, 0.9 * b), 0.3 * least * c)

    def off(numbers: np.ndarray) -> float:
        curve = of(numbers)
        errors = ((np.log(curve.fitted(cut) / taken), taken) for cut, taken in points)
        return float(sum(error**2 * (3 if taken < 1.5 * least else 1) for error, taken in errors))

    starts = [np.array([one, other, -1.0]) for one, other in product((-3.0, -1.0), (-2.0, 0.0))]
    found = [minimize(off, start, method="Nelder-Mead", options={"maxiter": 300}) for start in starts]
    return of(min(found, key=lambda each: float(each.fun)).x)


def trial(
    curve: Curve, forecast: Forecast, devices: list[DeviceInfo], random: np.random.Generator
) -> list[float]:
    """Seconds of the policy's first launches."""
    names = [info.id for info in devices]
    policy, situation = FeedbackPolicy(), Situation(tuple(devices), _GROUPS, lambda: forecast)
    seen, before, taken = Observations(), None, []
    for _ in range(IN_A_ROW):
        choice = seen.decided or policy.choose(situation, seen)
        share = float(choice.split.shares[names[0]])
        parts = {name: each for name, each in zip(names, (share, 1 - share), strict=True) if each > 0}
        factor = float(np.exp(random.normal(0, _NOISE)))
        if before is not None and before != parts.keys():
            factor *= AFTER_SHARED if 2 in (len(before), len(parts)) else AFTER_ANOTHER
        before = parts.keys()
        whole = curve.seconds(share)
        each = dict(zip(names, curve.devices(share), strict=True))
        scale = min(1e-3, 0.97 * whole / max(each[name] for name in parts))
        times = {name: factor * scale * each[name] for name in parts}
        whole *= factor
        if len(parts) > 1 and random.random() < _LATE:
            times[names[1]] *= 1 + _BY
            whole = max(whole, *times.values())
        taken.append(whole)
        seen.add(Seen(parts, whole, times))
        if seen.noted > 1 and policy.stands(seen, choice, whole):
            seen.decided = choice
    return taken


def rehearsed(rows: list[Row], said: list[Forecast], devices: list[DeviceInfo], trials: int) -> str:
    """A line of the table."""
    random = np.random.default_rng(0)
    efficiency: dict[str, list[float]] = {"second": [], "third": [], "later": []}
    slower = []
    for row, forecast in zip(rows, said, strict=True):
        if row.obstacle:
            continue
        curve = curve_of(row, devices)
        taken = np.array([trial(curve, forecast, devices, random) for _ in range(trials)])
        later = taken[:, SETTLED:].mean(axis=1)
        for name, each in (("second", taken[:, 1]), ("third", taken[:, SETTLED]), ("later", later)):
            efficiency[name].append(float(np.median(curve.best() / each)))
        over = float(np.median(later)) / (1e-3 * min(curve.alone))
        if over > _OVER:
            slower.append(f"`{row.kernel}` {over:.2f}")
    means = " | ".join(f"{statistics.fmean(each):.3f}" for each in efficiency.values())
    return f"{len(efficiency['third'])} | {means} | {', '.join(slower) or 'none'} |"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--trials", type=int, default=20)
    asked = parser.parse_args()
    fitted()
    devices = devices_of(asked.folder)
    print("| instances | kernels | second launch | third | from the third on | over the best device alone |")
    print("|---|---:|---:|---:|---:|---|")
    with Worker(DriverOptions(pocl_instances=2, threads=1, vendors=False)) as worker:
        for size in SIZES:
            rows = rows_of(asked.folder, size)
            said = forecasts(rows, size, devices, worker)[MODEL]
            print(f"| {size} | {rehearsed(rows, said, devices, asked.trials)}", flush=True)


if __name__ == "__main__":
    main()
