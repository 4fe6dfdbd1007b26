"""Jobs as they arrived, and what each takes on each system: the one table form of every source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.settings import replace_file

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.int32]

SECONDS, PREDICTED, SIGMA = "seconds:", "predicted:", "sigma:"
"What the columns of a system begin with: its true times, its predicted times, the sigma of their log2."


@dataclass(frozen=True)
class SystemSlots:
    """A system that jobs can be sent to: equal slots (nodes or GPUs), each for one job at a time."""

    name: str
    slots: int
    kind: str = ""
    "Which programs run there, such as cpu or gpu; the policy user_rr takes turns within a kind."

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidSetting("A system needs a name")
        if self.slots < 1:
            raise InvalidSetting(f"The system {self.name!r} needs one slot at least, not {self.slots}")

    @property
    def written(self) -> str:
        """As `parse_systems` reads it."""
        return f"{self.name}={self.slots}" + (f":{self.kind}" if self.kind else "")


def parse_systems(words: Sequence[str]) -> tuple[SystemSlots, ...]:
    """Systems written NAME=SLOTS or NAME=SLOTS:KIND, or files of them (CSV: system, slots, and perhaps kind).

    A system with 0 slots is left out.
    """
    found: list[SystemSlots] = []
    for word in words:
        name, equals, rest = word.partition("=")
        if not equals:
            found += _systems_of(Path(word))
            continue
        slots, _, kind = rest.partition(":")
        try:
            count = int(slots)
        except ValueError:
            raise InvalidSetting(f"A system is written NAME=SLOTS, such as v100=8, not {word!r}") from None
        if count != 0:
            found.append(SystemSlots(name, count, kind))
    names = [system.name for system in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidSetting(f"The system {name!r} is given twice")
    if not found:
        raise InvalidSetting("No system has a slot. Give systems as NAME=SLOTS, such as v100=8 p100=16")
    return tuple(found)


def _systems_of(path: Path) -> list[SystemSlots]:
    table = read_table(path)
    for name in ("system", "slots"):
        if name not in table.columns:
            raise MalformedInput(f"a file of systems has the columns system and slots; {name} is missing",
                                 file=str(path))  # fmt: skip
    slots = numbers_of(table, "slots", path)
    kinds = table["kind"].to_list() if "kind" in table.columns else [""] * len(table)
    names = [str(name) for name in table["system"].to_list()]
    return [
        SystemSlots(name, int(count), kind or "")
        for name, count, kind in zip(names, slots, kinds, strict=True)
        if count != 0
    ]


@dataclass(frozen=True, eq=False)
class JobTrace:
    """Jobs in order of arrival; N of them, S systems. It checks itself."""

    systems: tuple[SystemSlots, ...]
    job: NDArray[Any]  # (N,): names
    arrival: Floats  # (N,): seconds
    width: Integers  # (N,): slots at once, all on one system
    seconds: Floats  # (N, S): true time; infinite where the job cannot run
    program: Codes  # (N,): into `programs`
    programs: tuple[str, ...]
    user: Codes | None = None  # (N,): into `users`
    users: tuple[str, ...] = ()
    limit: Floats | None = None  # (N,): seconds after which it is killed; infinite: none
    weight: Floats | None = None  # (N,)
    chosen: Codes | None = None  # (N,): the system that its user chose; -1: none
    steps: Integers | None = None  # (N,): what it has to do, for rounds
    speed: Floats | None = None  # (N, S): steps per second; 0 where it cannot run
    predicted: Floats | None = None  # (N, S): seconds, where the source has them; NaN where it abstains
    sigma: Floats | None = None  # (N, S): of log2 of `predicted`
    notes: tuple[str, ...] = field(default=())
    "What the reader left out or took for granted."

    def __post_init__(self) -> None:
        count, systems = len(self.job), len(self.systems)
        if count == 0:
            raise InvalidSetting("The trace has no job")
        if not systems:
            raise InvalidSetting("A trace needs one system at least")
        if self.seconds.shape != (count, systems):
            raise InvalidSetting(f"Times need {count} rows and {systems} columns, not {self.seconds.shape}")
        self._check_jobs()

    def _check_jobs(self) -> None:
        distinct, first = np.unique(self.job, return_index=True)
        if len(distinct) < len(self.job):
            twice = np.setdiff1d(np.arange(len(self.job)), first)[0]
            raise InvalidSetting(f"Two jobs are called {self.job[twice]}. Give each job a name of its own")
        self._refuse(~np.isfinite(self.arrival), "has no arrival time")
        self._refuse(self.arrival < 0, "arrives before time 0; arrivals count from 0")
        earlier = np.concatenate(([False], np.diff(self.arrival) < 0))
        self._refuse(earlier, "arrives before the job above it. Sort the trace by arrival")
        self._refuse(self.width < 1, "needs no slot; a width is 1 or more")
        wrong = np.asarray((np.isnan(self.seconds) | (self.seconds <= 0)).any(axis=1))
        self._refuse(wrong, "has a time that is not positive. Leave out a system it cannot use")
        if self.limit is not None:
            self._refuse(~(self.limit > 0), "has a time limit that is not positive")
        if self.weight is not None:
            self._refuse(~(self.weight > 0), "has a weight that is not positive")
        lost = np.flatnonzero(~self.eligible().any(axis=1))
        if len(lost):
            raise InvalidSetting(self._why_nowhere(int(lost[0]), len(lost)))
        if self.chosen is not None:
            given = np.flatnonzero(self.chosen >= 0)
            cannot = given[~self.eligible()[given, self.chosen[given]]]
            if len(cannot):
                row = int(cannot[0])
                name = self.names[self.chosen[row]]
                raise InvalidSetting(f"Job {self.job[row]} was sent to {name}, where it cannot run")

    def _refuse(self, wrong: NDArray[np.bool_], complaint: str) -> None:
        if wrong.any():
            raise InvalidSetting(f"Job {self.job[int(wrong.argmax())]} {complaint}")

    def _why_nowhere(self, row: int, count: int) -> str:
        able = [
            system for system, here in zip(self.systems, np.isfinite(self.seconds[row]), strict=True) if here
        ]
        more = f" ({count} such jobs)" if count > 1 else ""
        if able:
            room = ", ".join(f"{system.name} has {system.slots}" for system in able)
            why = f"it needs {self.width[row]} slots at once, and {room}. Give a system more slots"
        else:
            why = (
                "none of the systems has a time for it, or its speed there is 0. Add a system that can run it"
            )
        return f"Job {self.job[row]} fits nowhere{more}: {why}, or leave the job out"

    def __len__(self) -> int:
        return len(self.job)

    @property
    def slots(self) -> Integers:
        return np.array([system.slots for system in self.systems], np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(system.name for system in self.systems)

    def eligible(self) -> NDArray[np.bool_]:  # (N, S)
        """Where each job can run: it has a time there, and fits."""
        return np.isfinite(self.seconds) & (self.width[:, None] <= self.slots)

    def fastest(self) -> Floats:  # (N,)
        """Each job's time on its fastest eligible system."""
        return np.asarray(np.where(self.eligible(), self.seconds, np.inf).min(axis=1))

    def first(self, count: int) -> JobTrace:
        """The first jobs alone."""
        rows: dict[str, Any] = {
            name: value[:count]
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray) and len(value) == len(self)
        }
        return replace(self, **rows)

    def write(self, path: Path) -> None:
        """Write the table as CSV, or Parquet by the file's name."""
        columns: dict[str, Any] = {"job": self.job, "arrival_s": self.arrival, "width": self.width}
        columns["class"] = np.array(self.programs, object)[self.program].astype(str)
        if self.user is not None:
            columns["user"] = np.array(self.users, object)[self.user].astype(str)
        for name, column in (("limit_s", self.limit), ("weight", self.weight), ("steps", self.steps)):
            if column is not None:
                columns[name] = column
        if self.chosen is not None:
            columns["system"] = [self.names[code] if code >= 0 else None for code in self.chosen.tolist()]
        matrices = {SECONDS: self.seconds, "speed:": self.speed, PREDICTED: self.predicted, SIGMA: self.sigma}
        for prefix, matrix in matrices.items():
            if matrix is not None:
                columns |= {f"{prefix}{name}": matrix[:, at] for at, name in enumerate(self.names)}
        write_table(pl.DataFrame(columns), path)


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a table as CSV where the file's name ends so, else as Parquet: whole or not at all.

    Raises:
        UnreadableFile: the file cannot be written.
    """
    buffer = BytesIO()
    if path.suffix == ".csv":
        table.write_csv(buffer)
    else:
        table.write_parquet(buffer)
    replace_file(path, buffer.getvalue())


def read_table(path: Path) -> pl.DataFrame:
    """A CSV file, every cell as text, or a Parquet file.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it is no table.
    """
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        return pl.read_csv(path, infer_schema=False)
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0] if str(error) else "it is empty"
        raise MalformedInput(f"is not a table ({first})", file=str(path)) from error


def numbers_of(table: pl.DataFrame, column: str, path: Path, *, empty: float | None = None) -> Floats:
    """A column as numbers.

    Args:
        empty: what an empty cell stands for; None refuses it.
    """
    values = table[column].cast(pl.Float64, strict=False)
    bad = values.is_null() & table[column].is_not_null()
    if empty is None:
        bad = values.is_null()
    if bad.any():
        row = int(bad.arg_true()[0])
        said = table[column][row]
        cell = "is empty" if said is None else f"{said!r} is no number"
        raise MalformedInput(f"{column}: {cell}", file=str(path), line=row + 2)
    return values.fill_null(math.nan if empty is None else empty).to_numpy().astype(np.float64)


def whole_numbers_of(table: pl.DataFrame, column: str, path: Path) -> Integers:
    """A column as whole numbers."""
    values = numbers_of(table, column, path)
    bad = ~np.isfinite(values) | (values != np.floor(values))
    if bad.any():
        row = int(bad.argmax())
        raise MalformedInput(f"{column}: {values[row]:g} is no whole number", file=str(path), line=row + 2)
    return values.astype(np.int64)


def codes_of(values: Sequence[Any]) -> tuple[Codes, tuple[str, ...]]:
    """Small numbers for texts, in the order in which the texts first come."""
    column = pl.Series(values, dtype=pl.String, strict=False)
    names = column.unique(maintain_order=True)
    codes = column.to_frame("name").join(
        pl.DataFrame({"name": names, "code": np.arange(len(names), dtype=np.int32)}),
        on="name", how="left", maintain_order="left", nulls_equal=True,
    )["code"]  # fmt: skip
    return codes.to_numpy(), tuple(name or "" for name in names.to_list())
