"""What a class of jobs is believed to take in each partition, and from what that is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apportion.errors import MalformedInput
from apportion.schedule.readers.sacct import FinishedJob
from apportion.schedule.relative_lines import read_relative_lines
from apportion.schedule.trace import PREDICTED, SIGMA, numbers_of, read_table

REPEAT_SIGMA = 0.1
"Of log2 of a run repeated, before enough runs of the class tell."
MOST_SIGMA = 2.0
"A prediction less sure than a factor of 4 is not used."


@dataclass(frozen=True)
class Estimate:
    """The time of a class in a partition."""

    seconds: float
    sigma: float
    "Of log2."

    source: str
    "`3 runs`, `predicted`, or `relative to ruby`."


@dataclass(frozen=True)
class ClassPrediction:
    """What a model says of a class: seconds, or log2 times relative to each other."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    relative: Mapping[str, float] = field(default_factory=dict)
    sigma: Mapping[str, float] = field(default_factory=dict)


def read_class_predictions(path: Path | None) -> dict[str, ClassPrediction]:
    """Predictions by class: a table with `class`, `predicted:PARTITION` and perhaps `sigma:PARTITION`, or
    the lines of `apportion relative predict --json`.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it holds something else.
    """
    if path is None:
        return {}
    if path.suffix in (".json", ".jsonl"):
        return {
            line.run: ClassPrediction({}, line.vector, line.sigma)
            for line in read_relative_lines(path)
            if line.vector
        }
    table = read_table(path)
    if "class" not in table.columns:
        raise MalformedInput("predictions have a column class", file=str(path))
    names = [str(name) for name in table["class"].to_list()]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedInput(f"class {twice!r} is predicted twice", file=str(path))
    said: dict[str, dict[str, dict[str, float]]] = {name: {PREDICTED: {}, SIGMA: {}} for name in names}
    for column in table.columns:
        prefix = next((prefix for prefix in (PREDICTED, SIGMA) if column.startswith(prefix)), None)
        if prefix is None:
            continue
        values = numbers_of(table, column, path, empty=math.nan)
        if (values < 0).any() or (prefix == PREDICTED and (values == 0).any()):
            raise MalformedInput(f"{column}: a predicted time must be positive, a sigma 0 or more; leave it "
                                 "empty where there is none", file=str(path))  # fmt: skip
        for name, value in zip(names, values, strict=True):
            if math.isfinite(value):
                said[name][prefix][column.removeprefix(prefix)] = float(value)
    return {name: ClassPrediction(one[PREDICTED], {}, one[SIGMA]) for name, one in said.items()}


@dataclass(frozen=True)
class Estimates:
    """Times by class and partition."""

    known: Mapping[tuple[str, str], tuple[float, float, int]]
    "(class, partition) → mean of log2 seconds, its spread, number of runs that completed."

    predicted: Mapping[str, ClassPrediction]

    def classes(self) -> list[str]:
        """Every class of which something is known, in order."""
        return sorted({key for key, _ in self.known} | set(self.predicted))

    def of(self, key: str, partitions: Sequence[str]) -> dict[str, Estimate]:
        """The partitions whose time is known: measured there, else predicted, else relative to one where it
        was measured. Never a guess: of others nothing is said."""
        found = {}
        said = self.predicted.get(key, ClassPrediction())
        for name in partitions:
            runs = self.known.get((key, name))
            sigma = said.sigma.get(name, 1.0)
            if runs is not None:
                mean, spread, count = runs
                found[name] = Estimate(2**mean, spread, f"{count} run{'s' if count > 1 else ''}")
            elif sigma > MOST_SIGMA:
                continue
            elif name in said.seconds:
                found[name] = Estimate(said.seconds[name], sigma, "predicted")
            elif name in said.relative:
                anchors = [
                    other for other in partitions if (key, other) in self.known and other in said.relative
                ]
                if anchors:
                    anchor = max(anchors, key=lambda other: self.known[key, other][2])
                    seconds = 2 ** (self.known[key, anchor][0] + said.relative[name] - said.relative[anchor])
                    found[name] = Estimate(seconds, sigma, f"relative to {anchor}")
        return found


def estimates_of(history: Iterable[FinishedJob], predicted: Mapping[str, ClassPrediction]) -> Estimates:
    """Estimates from jobs that completed, and predictions for what they leave open."""
    runs: dict[tuple[str, str], list[float]] = {}
    for job in history:
        if job.completed and job.seconds > 0:
            runs.setdefault((job.program, job.partition), []).append(math.log2(job.seconds))
    known = {}
    for place, logs in runs.items():
        mean = sum(logs) / len(logs)
        spread = (
            math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
            if len(logs) > 2
            else REPEAT_SIGMA
        )
        known[place] = (mean, max(spread, 0.01), len(logs))
    return Estimates(known, predicted)
