"""Policies replayed on a recording: the real launch path on the backend `replay`, where launches take what
they took.

A recording is a folder with `devices.json` and folders of `python -m reproduction efficiency`, one for each
size of the suite's instances (`apportion.runtime.replay`). Nothing here is fitted to it: what policies know
of these kernels is what a forecast says that never saw them.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.advise.launch_times import forecast_of
from apportion.coexecution.bound import BoundKernel
from apportion.coexecution.forecast import Forecast, from_speeds
from apportion.coexecution.launching import Launcher
from apportion.coexecution.observations import Observations
from apportion.coexecution.policies.base import Policy
from apportion.coexecution.policies.bayes import BayesPolicy
from apportion.coexecution.policies.feedback import FeedbackPolicy
from apportion.coexecution.policies.learned import LearnedPolicy
from apportion.coexecution.sharing import Together
from apportion.errors import ApportionError, MalformedInput, UnreadableFile
from apportion.runtime.replay import CURVES, DEVICES, RecordedKernel, Recording, ReplayBackend, ReplaySettings
from apportion.suite import PROBLEMS
from reproduction.efficiency.rounds import Row, row_from

BEST_DEVICE, LAST_DEVICE = "best device, known in advance", "always the last device"
BY_SPEEDS, BY_MODEL = "calibrated speeds alone", "predictions alone"
FEEDBACK, BAYES = "learned+feedback", "bayes"
FEEDBACK_BY_SPEEDS, BAYES_BY_SPEEDS = "learned+feedback, from speeds", "bayes, from speeds"
CONTENDERS = (
    BEST_DEVICE, LAST_DEVICE, BY_SPEEDS, BY_MODEL, FEEDBACK, BAYES, FEEDBACK_BY_SPEEDS, BAYES_BY_SPEEDS,
)  # fmt: skip
"What is compared. All but the last two are asked with the model's forecast, where a model fits the devices."
LAUNCHES = 100
SEEDS = 3
AFTER_ANOTHER, AFTER_SHARED = 1.15, 1.07
"What a launch right after one by other devices takes; measured on a Xeon with an H200 (decision 0008)."
_MEDIAN_OVER_MEAN = 1.253
"By how much the median of normal values varies more than their mean."


@dataclass(frozen=True)
class ReplayedKernel:
    """One kernel at one size: what its launches lost under each contender."""

    kernel: str
    size: str
    best_cut: float
    "Seconds of the best cut, or of the best device where the work cannot be shared."
    best_device: float
    obstacle: str
    lost: dict[str, list[float]]
    """Contender → seconds of each of `LAUNCHES` launches over those of the best cut, the mean over seeds.
    What a launch right after other devices takes on top is in it, and noise is not."""

    def over_best_cut(self, contender: str, launches: int) -> float:
        """The mean of so many launches over the best cut."""
        return statistics.fmean(self.lost[contender][:launches])

    def over_best_device(self, contender: str, first: int, last: int) -> float:
        """The mean of the launches after `first` up to `last` over the best device alone."""
        return statistics.fmean(self.lost[contender][first:last]) * self.best_cut / self.best_device


@dataclass(frozen=True)
class Replays:
    """All kernels of a recording."""

    about: dict[str, str]
    "Device → its name, driver and units."
    noise: float
    "The standard deviation of the log of a launch's time there."
    model: str
    "Where forecasts came from; empty where no model fits the devices."
    kernels: tuple[ReplayedKernel, ...]

    def as_json(self) -> dict[str, Any]:
        """What is stored, in four digits."""
        return {
            "about": self.about, "noise": self.noise, "model": self.model,
            "kernels": [
                {
                    **vars(each),
                    "lost": {name: [round(one, 4) for one in lost] for name, lost in each.lost.items()},
                }
                for each in self.kernels
            ],
        }  # fmt: skip


def replays_from(stored: dict[str, Any]) -> Replays:
    """What `Replays.as_json` gave."""
    kernels = tuple(ReplayedKernel(**each) for each in stored["kernels"])
    return Replays(stored["about"], stored["noise"], stored["model"], kernels)


def replay(
    folder: Path,
    model: Path | None,
    *,
    launches: int = LAUNCHES,
    seeds: int = SEEDS,
    problems: Sequence[str] = (),
    report: Callable[[str], None],
) -> Replays:
    """Every contender on every kernel of a recording.

    Args:
        model: a timing model that never saw the suite; None, or devices of other kinds: forecasts come from
            calibrated speeds.
        problems: names of problems; all that were recorded where none is given.

    Raises:
        UnreadableFile, MalformedInput: the folder holds no such recording.
    """
    found, noises = [], []
    for path in sorted(folder.rglob(CURVES)):
        size, rows = rows_of(path)
        recording = recording_of(path, folder)
        kinds = {device.kind for device in recording.devices}
        fits = model if kinds == {"cpu", "gpu"} else None
        noises.append(noise_of(rows))
        for row in rows:
            if problems and row.problem not in problems:
                continue
            try:
                each = _replayed(size, row, recording, fits, noises[-1], launches, seeds)
            except ApportionError as error:
                report(f"{size} {row.kernel} is left out: {error}")
            else:
                found.append(each)
                report(f"{size} {row.kernel}")
    if not found:
        raise UnreadableFile(
            f"Nothing to replay in {folder}. Make it with: python -m reproduction efficiency"
        )
    about = {
        each.id: f"{each.name} ({each.platform} {each.driver}, {each.compute_units} units)"
        for each in recording.devices
    }
    return Replays(about, statistics.median(noises), "" if fits is None else fits.name, tuple(found))


def rows_of(path: Path) -> tuple[str, list[Row]]:
    """The size of the instances in a file, and every kernel that both devices have run.

    Raises:
        MalformedInput: it is no recording.
    """
    try:
        size = json.loads((path.parent / "machine.json").read_text())["instances"]
        rows = [row_from(json.loads(line)) for line in path.read_text().splitlines()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MalformedInput(f"is no recording of efficiencies ({error})", file=str(path)) from error
    return size, [row for row in rows if len(row.alone) == 2 and not row.failure]


def recording_of(path: Path, folder: Path) -> Recording:
    """The recording in one file alone: two sizes of an instance may have equally many work-items.

    Raises:
        UnreadableFile, MalformedInput: it is no recording, or one of other than two devices.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for each in (folder / DEVICES, path):
            try:
                shutil.copy(each, scratch)
            except OSError as error:
                raise UnreadableFile(f"Cannot read the recording {each}: {error.strerror}") from error
        recording = Recording.load(Path(scratch))
    if len(recording.devices) != 2:
        raise MalformedInput("is a recording of other than two devices", file=str(folder))
    return recording


def noise_of(rows: Sequence[Row]) -> float:
    """The standard deviation of the log of a launch's time, by the intervals of devices alone: the median."""
    found = [
        (each.high - each.low) / each.median / (2 * 1.96 * _MEDIAN_OVER_MEAN / each.count**0.5)
        for row in rows
        for each in row.alone.values()
        if each.count > 5
    ]
    return statistics.median(found) if found else 0.0


def _replayed(
    size: str,
    row: Row,
    recording: Recording,
    model: Path | None,
    noise: float,
    launches: int,
    seeds: int,
) -> ReplayedKernel:
    problem = PROBLEMS[row.problem]
    instance = problem.instance(getattr(problem, size))
    stage = next(stage for stage in instance.stages if stage.kernel == row.kernel)
    names = [device.id for device in recording.devices]
    kernel = without_lucky_cuts(recording.kernels[(row.kernel, row.work_items)], row)
    alone = {name: kernel.seconds({name: 1.0})[0] for name in names}
    best = min(alone.values()) if row.obstacle else best_cut(kernel, names)
    lost: dict[str, list[list[float]]] = {name: [] for name in CONTENDERS}
    with Together(problem.source(), stage.kernel, backend=ReplayBackend(recording)) as together:
        bound = together.bind(
            *instance.values(stage, instance.arrays),
            global_size=stage.global_size,
            local_size=stage.local_size,
        )
        case = bound.case
        case.probed = True  # launches that only look at results would draw noise, too
        query = Launcher(together, bound.binding, bound.span, case).query()
        by_speeds = from_speeds(query, recording.devices)
        predicted = by_speeds if model is None else forecast_of(query, recording.devices, model)
        first = min(alone, key=lambda name: alone[name])
        asked: dict[str, tuple[str | Policy, Forecast]] = {
            BEST_DEVICE: (first, by_speeds), LAST_DEVICE: (names[-1], by_speeds),
            BY_SPEEDS: (LearnedPolicy(), by_speeds), BY_MODEL: (LearnedPolicy(), predicted),
            FEEDBACK: (FeedbackPolicy(), predicted), BAYES: (BayesPolicy(), predicted),
            FEEDBACK_BY_SPEEDS: (FeedbackPolicy(), by_speeds), BAYES_BY_SPEEDS: (BayesPolicy(), by_speeds),
        }  # fmt: skip
        drawn = int.from_bytes(f"{size} {row.kernel}".encode()[-4:])  # other noise for each kernel
        for seed in range(drawn, drawn + seeds):
            for name, (policy, forecast) in asked.items():
                settings = ReplaySettings(noise, AFTER_ANOTHER, AFTER_SHARED, seed)
                together.backend = ReplayBackend(recording, settings)
                case.seen, case.forecast, case.obstacle = Observations(), forecast, row.obstacle
                fresh = BoundKernel(together, bound.binding, bound.span, case)
                lost[name].append([fresh.run(policy).seconds / best for _ in range(launches)])
    # Noise is the same for all, launch by launch, and known by the best device, which takes nothing else: it
    # misled whom it misled, and does not count.
    noises = np.array(lost[BEST_DEVICE]) * best / min(alone.values())
    means = {name: (np.array(each) / noises).mean(axis=0).tolist() for name, each in lost.items()}
    return ReplayedKernel(row.kernel, size, best, min(alone.values()), row.obstacle, means)


def without_lucky_cuts(kernel: RecordedKernel, row: Row) -> RecordedKernel:
    """The kernel, no cut of which takes less than the best one took when it was measured again.

    Cuts were measured a few times each: the least of them is too low. The best one was measured again, in
    turn with each device alone. This changes the kernel of the recording, so that launches take these times,
    too.
    """
    if kernel.curve and row.oracle is not None:
        least = min(1e-3 * row.oracle.median, kernel.curve[0.0], kernel.curve[1.0])
        kernel.curve = {cut: max(seconds, least) for cut, seconds in kernel.curve.items()}
    return kernel


def best_cut(kernel: RecordedKernel, names: Sequence[str]) -> float:
    """Seconds of the cut that took least, of those that were recorded, or of a device alone."""
    alone = [kernel.seconds({name: 1.0})[0] for name in names]
    return min(*alone, *kernel.curve.values())
