"""Systems that a user adds from a few measured runs: kept as what was measured, fitted when asked."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.data.counter_table import SECONDS, CounterTable
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.learn.relative.mixture import Known, TimeEstimate, estimate
from apportion.learn.relative.relative_features import features_of
from apportion.learn.relative.relative_model import RelativeModel
from apportion.settings import cache_folder, convert, replace_file

FEWEST = 5
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """One run that was measured on the new system."""

    run: str
    "The name of a run that the model knows, unless there are counters."
    seconds: float
    counters: dict[str, float] | None = None
    times: dict[str, float] | None = None
    "Seconds of the run on systems that the model knows, where it was measured there as well."

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and np.isfinite(self.seconds)):
            raise InvalidSetting(f"The time of {self.run} must be positive, not {self.seconds}")


@dataclass(frozen=True)
class KnownSystem:
    """A system and what was measured on it."""

    name: str
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting(
                f"A system's name is made of letters, digits, '.', '_' and '-', not {self.name!r}"
            )
        if len(self.samples) < FEWEST:
            raise InvalidSetting(
                f"{self.name}: {len(self.samples)} measured runs are too few; at least {FEWEST} are needed"
            )

    def measured(self, model: RelativeModel) -> tuple[Known, Numbers]:
        """The samples as runs of the known systems, and their log2 times on this one.

        Raises:
            UnknownName: the model does not know a run, and no counters came with it.
        """
        reference = model.reference
        values, log_times = [], []
        for sample in self.samples:
            if sample.run in reference.runs:
                at = reference.runs.index(sample.run)
                values.append(reference.values[at])
                log_times.append(reference.log_times[at])
                continue
            if sample.counters is None:
                raise UnknownName("run", sample.run, reference.runs)
            row, _ = model.row_of(sample.counters)
            times = {
                name: float(np.log2(value))
                for name, value in (sample.times or {}).items()
                if name in reference.systems
            }
            vector = model.vector(row, times).vector
            # Without a time on a known system its scale is unknown: the new system's own stands in for it.
            scale = (
                np.mean([value - vector[reference.systems.index(name)] for name, value in times.items()])
                if times
                else np.log2(sample.seconds)
            )
            values.append(row[0])
            log_times.append(vector + scale)
        features = features_of("counters", reference.counters, np.array(values))
        return Known(np.array(log_times), features), np.log2([sample.seconds for sample in self.samples])


@dataclass(frozen=True)
class Fit:
    """How well the samples tell a system."""

    samples: int
    likeness: Mapping[str, float]
    "The known systems it is most like, with their weights."
    error: float
    "The median error, in percent, of each sample when the others predict it."


def fit_of(system: KnownSystem, model: RelativeModel) -> Fit:
    """What the samples say of a system, each of them predicted by the others."""
    known, log_times = system.measured(model)
    reference = model.reference
    background = Known(reference.log_times, features_of("counters", reference.counters, reference.values))
    whole = estimate(known, log_times, known, background=background)
    errors = []
    for left_out in range(len(log_times)):
        others = np.arange(len(log_times)) != left_out
        found: TimeEstimate = estimate(
            Known(known.log_times[others], known.features[others]), log_times[others],
            Known(known.log_times[[left_out]], known.features[[left_out]]), background=background,
        )  # fmt: skip
        errors.append(abs(2 ** float(found.mean[0] - log_times[left_out]) - 1))
    names = (*reference.systems, "their mean")
    nearest = np.argsort(-whole.likeness)[:3].tolist()
    likeness = {names[i]: round(float(whole.likeness[i]), 4) for i in nearest if whole.likeness[i] > 0.005}
    return Fit(len(log_times), likeness, round(100 * float(np.median(errors)), 1))


def read_samples(path: Path, system: str) -> tuple[Sample, ...]:
    """The runs of a file: CSV with the columns `run` and `seconds`, or a table of counters (Parquet).

    Of a table, `seconds` on the system called `system` are taken, with the run's counters and other times.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or a line is wrong; the message names it.
    """
    if path.suffix == ".parquet":
        return _samples_of(CounterTable.read(path), system)
    try:
        reader = csv.DictReader(path.read_text().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    if not {"run", "seconds"} <= set(reader.fieldnames or ()):
        raise MalformedInput("the columns 'run' and 'seconds' must be there", file=str(path), line=1)
    samples = []
    for row in reader:
        try:
            samples.append(Sample(row["run"], float(row["seconds"])))
        except (ValueError, TypeError) as error:
            raise MalformedInput(
                f"not a run and its seconds ({error})", file=str(path), line=reader.line_num
            ) from error
    return tuple(samples)


def _samples_of(table: CounterTable, system: str) -> tuple[Sample, ...]:
    times = table.times()
    if system not in times.systems:
        raise UnknownName("system", system, times.systems)
    counters: dict[str, dict[str, float]] = {}
    wide = table.wide()
    for row, run in enumerate(wide.runs["run"].to_list()):
        for name, value, there in zip(
            wide.counters, wide.values[row].tolist(), wide.mask[row].tolist(), strict=True
        ):
            if there and name != SECONDS:
                counters.setdefault(run, {}).setdefault(name, value)
    at = times.systems.index(system)
    return tuple(
        Sample(
            run, float(times.seconds[row, at]), counters.get(run),
            {
                name: float(times.seconds[row, place])
                for place, name in enumerate(times.systems)
                if place != at and times.mask[row, place]
            },
        )
        for row, run in enumerate(times.runs["run"].to_list())
        if times.mask[row, at]
    )  # fmt: skip


def systems_folder() -> Path:
    """Where added systems are kept: `$APPORTION_SYSTEMS`, else in the cache."""
    place = os.environ.get("APPORTION_SYSTEMS")
    return Path(place) if place else cache_folder("systems")


def keep(system: KnownSystem, *, taken: Collection[str] = (), replace: bool = False) -> Path:
    """Write a system; its file comes back.

    Args:
        taken: the names of systems that a model knows, which none that is added may have.
        replace: whether it takes the place of an added one of the same name.

    Raises:
        InvalidSetting: there is a system of that name.
    """
    if system.name in taken:
        raise InvalidSetting(f"{system.name} is a system of the model's own; choose another name")
    if system.name in kept_systems() and not replace:
        raise InvalidSetting(
            f"There is an added system called {system.name}; choose another name, or give --replace"
        )
    folder = systems_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{system.name}.json"
    replace_file(path, json.dumps(asdict(system), indent=1).encode())
    return path


def kept_systems() -> dict[str, KnownSystem]:
    """All systems that were added, by name."""
    found = {}
    for path in sorted(systems_folder().glob("*.json")):
        try:
            values = json.loads(path.read_text())
        except (ValueError, RecursionError) as error:
            raise MalformedInput(
                f"is not JSON ({error}); remove it, or add the system again", file=str(path)
            ) from error
        found[path.stem] = convert(KnownSystem, values, source=str(path))
    return found


def kept_system(name: str) -> KnownSystem:
    """The added system of that name.

    Raises:
        UnknownName: there is none.
    """
    systems = kept_systems()
    if name not in systems:
        raise UnknownName("added system", name, systems)
    return systems[name]


def remove(name: str) -> None:
    """Forget an added system."""
    kept_system(name)
    (systems_folder() / f"{name}.json").unlink()
