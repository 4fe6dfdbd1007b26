"""CounterTable: performance counters of many runs on many systems, one value a row, in one Parquet file.

Columns, in order:

    run         what was done: a program (or one kernel of it) with an input. The same run may be there for
                several systems: that is what makes relative performance
    program     the group that evaluation holds out: an application, or a command's name
    kernel      within the program; empty where the program is counted as a whole
    size        the input, in words: `small`, `1048576`, or a command's arguments; empty where unknown
    system      where it ran; empty for counters that are the same on every system (architecture-independent)
    repeat      0, 1, … : which execution of the run on the system
    counter     the quantity: a row of Table I of Nichols et al. (`instructions`, `page_faults`, …), a column
                of AIWC (`branch_entropy_yokota`, …), or `seconds`, the time of one execution
    value       a number, or null where the source could not give it: missing stays missing
    source      what counted it: `perf`, `proc`, `callgrind`, `blocks`, `kernel-ir`, `aiwc`, `clock`, …
    exactness   one of `EXACTNESS`

One counter from two sources is two quantities: a simulated cache does not miss when the machine's does. So
the columns of `CounterTable.wide` are pairs of counter and source, and no column ever mixes two sources.
Relative performance is derived from `seconds` and never stored. What is known about the systems themselves
stands in the file's metadata and is read back as `CounterTable.systems`.

    >>> table = CounterTable.read(Path("aiwc.parquet"))
    >>> features = table.about(counters=AIWC).wide()    # a row for each run and system, medians over repeats
    >>> features.values.shape == features.mask.shape    # (R, C); values are 0 where mask is False
    True
    >>> times = table.times()                           # (R, S) seconds: runs × systems, with a mask
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PanicException, PolarsError

from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.settings import replace_file

VERSION = "1"
SECONDS = "seconds"
"The counter that holds the time of one execution."
GRAPH = "graph: "
"What the names of counters begin with that are read off a kernel's program graph."
EXACTNESS = ("exact", "simulated", "sampled", "static", "estimated")
"""How a value came about: counted, one by one; counted in a model of the machine; counted for a part and
extrapolated; read off the program without running it; computed from other values."""

SCHEMA: dict[str, pl.DataType] = {
    "run": pl.String(),
    "program": pl.String(),
    "kernel": pl.String(),
    "size": pl.String(),
    "system": pl.String(),
    "repeat": pl.Int32(),
    "counter": pl.String(),
    "value": pl.Float64(),
    "source": pl.String(),
    "exactness": pl.String(),
}
RUN_COLUMNS = ("run", "program", "kernel", "size")
"What is the same in every row of a run."
_ONE_VALUE = ("run", "system", "repeat", "counter", "source")
"What a table has one value for."

TABLE_I: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "# Instructions": ("instructions",),
        "Ratio Int Arith. to Total Instr.": ("int_ratio",),
        "Ratio Float Arith. to Total Instr.": ("fp_ratio",),
        "Ratio Mem. to Total Instr.": ("mem_ratio",),
        "Ratio Caches Misses to Hits": ("l1_miss_hit_ratio", "ll_miss_hit_ratio"),
        "# Page Levels": ("page_levels",),
        "# Page Faults": ("page_faults",),
        "GPU2CPU & CPU2GPU Bandwidth": ("gpu_to_cpu_bandwidth", "cpu_to_gpu_bandwidth"),
        "Ratio Control to Total Instr.": ("control_ratio",),
        "Ratio Indep. Instr. to Total Instr.": ("independent_ratio",),
        "Ratio Branch Misses to Branch Instr.": ("branch_miss_ratio",),
        "# Threads / Streams": ("threads",),
        "Warp Blocks": ("warp_blocks",),
        "IO Bytes Read/Written": ("io_bytes_read", "io_bytes_written"),
        "IO File Descriptors Opened": ("fds_opened",),
    }
)
"""The fifteen rows of Table I of Nichols et al., *Predicting Cross-Platform Relative Performance with Deep
Generative Models*, in its order, and our counters for each. Bandwidths are bytes per second;
the two cache counters are of first-level data and of the last level."""

AIWC = (
    "opcode", "granularity", "barriers_per_instruction", "instructions_per_operand",
    "total_instruction_count", "workitems", "operand_sum", "total_barriers_hit",
    "min_instructions_to_barrier", "max_instructions_to_barrier", "median_instructions_to_barrier",
    "max_simd_width", "mean_simd_width", "stddev_simd_width", "total_memory_footprint",
    "ninety_percent_memory_footprint", "global_memory_address_entropy",
    *(f"local_memory_address_entropy_{bits}" for bits in range(1, 11)),
    "total_unique_branch_instructions", "ninety_percent_branch_instructions", "branch_entropy_yokota",
    "branch_entropy_average_linear",
)  # fmt: skip
"The 31 architecture-independent counters of AIWC (Johnston et al.), under the names of its published table."

_VERSION_KEY, _SYSTEMS_KEY = "apportion.measure.counters", "apportion.systems"


class Row(NamedTuple):
    """One value; the fields are the columns."""

    run: str
    program: str
    kernel: str
    size: str
    system: str
    repeat: int
    counter: str
    value: float | None
    source: str
    exactness: str


@dataclass(frozen=True)
class System:
    """A machine that programs ran on."""

    name: str
    kind: str = ""
    "`cpu`, `gpu`, or empty where unknown."
    vendor: str = ""
    description: Mapping[str, str | float] = field(default_factory=dict)
    "Whatever else is known: cores, memory, clock."

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidSetting("A system needs a name")
        object.__setattr__(self, "description", MappingProxyType(dict(self.description)))


@dataclass(frozen=True, eq=False)
class Wide:
    """Runs × counters as a matrix, with what is missing left out."""

    runs: pl.DataFrame
    "One row for each row of the matrix: `RUN_COLUMNS`, `system`, and `repeat` where repeats are kept apart."
    counters: tuple[str, ...]
    sources: tuple[str, ...]
    "The source of each column; a counter that two sources gave has two columns."
    values: NDArray[np.float64]  # (R, C), 0 where missing
    mask: NDArray[np.bool_]  # (R, C), True where there is a value

    def column(self, counter: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Values and mask (R,) of a counter that one source gave.

        Raises:
            UnknownName: no column has that name.
            InvalidSetting: several sources gave it; choose one with `CounterTable.about`.
        """
        found = [position for position, name in enumerate(self.counters) if name == counter]
        if not found:
            raise UnknownName("counter", counter, self.counters)
        if len(found) > 1:
            sources = ", ".join(self.sources[position] for position in found)
            raise InvalidSetting(f"{counter} comes from several sources ({sources}); choose one of them")
        return self.values[:, found[0]], self.mask[:, found[0]]


@dataclass(frozen=True, eq=False)
class SystemTimes:
    """Runs × systems: how long each run took on each system."""

    runs: pl.DataFrame
    "One row for each row of the matrix: `RUN_COLUMNS`."
    systems: tuple[str, ...]
    seconds: NDArray[np.float64]  # (R, S), medians over repeats, 0 where missing
    mask: NDArray[np.bool_]  # (R, S), True where there is a time


@dataclass(frozen=True, eq=False)
class CounterTable:
    """Counters of runs, checked; see the module's docstring for the columns of `frame`."""

    frame: pl.DataFrame
    systems: Mapping[str, System] = field(default_factory=dict)
    "By name; a system that rows name need not be described."

    def __post_init__(self) -> None:
        _check(self.frame)
        for name, system in self.systems.items():
            if name != system.name:
                raise InvalidSetting(f"The system {system.name!r} is kept under the name {name!r}")
        object.__setattr__(self, "systems", MappingProxyType(dict(self.systems)))

    @classmethod
    def of(cls, rows: Iterable[Row | Sequence[Any]], systems: Iterable[System] = ()) -> Self:
        """A table of these rows."""
        frame = pl.DataFrame([tuple(row) for row in rows], schema=SCHEMA, orient="row")
        return cls(frame, {system.name: system for system in systems})

    @classmethod
    def read(cls, path: Path) -> Self:
        """The table in a file that `write` made, or in any Parquet file with the documented columns.

        Raises:
            UnreadableFile: the file is not there or is no Parquet.
            MalformedInput: it holds something else, or another version.
        """
        try:
            metadata = pl.read_parquet_metadata(path)
            frame = pl.read_parquet(path)
        except (PolarsError, PanicException, OSError) as error:
            raise UnreadableFile(f"Cannot read {path} as Parquet: {error}") from error
        lacking = [name for name in SCHEMA if name not in frame.columns]
        if lacking:
            problem = f"a Parquet file, but not one of counters: the column {lacking[0]!r} is missing"
            raise MalformedInput(problem, file=str(path))
        if metadata.get(_VERSION_KEY, VERSION) != VERSION:
            raise MalformedInput(
                f"Counters of version {metadata[_VERSION_KEY]}, but this apportion reads version {VERSION}",
                file=str(path),
            )
        try:
            systems = [System(**entry) for entry in json.loads(metadata.get(_SYSTEMS_KEY, "[]"))]
            if _VERSION_KEY not in metadata:
                frame = frame.select(list(SCHEMA)).cast(pl.Schema(SCHEMA))
            return cls(frame, {system.name: system for system in systems})
        except (InvalidSetting, ValueError, TypeError, PolarsError) as error:
            raise MalformedInput(str(error), file=str(path)) from error

    def write(self, path: Path) -> None:
        """Write the table as a whole: a reader sees the old file or the new one.

        Raises:
            UnreadableFile: the file cannot be written.
        """
        systems = [
            {**_fields(system), "description": dict(system.description)} for system in self._described()
        ]
        buffer = BytesIO()
        self.frame.write_parquet(
            buffer, metadata={_VERSION_KEY: VERSION, _SYSTEMS_KEY: json.dumps(systems, ensure_ascii=True)}
        )
        replace_file(path, buffer.getvalue())

    def joined(self, *others: CounterTable) -> CounterTable:
        """This table with the rows and systems of others.

        Raises:
            InvalidSetting: two of them have a value for the same thing.
        """
        systems = dict(self.systems)
        for other in others:
            systems |= other.systems
        return CounterTable(pl.concat([self.frame, *(other.frame for other in others)]), systems)

    def updated(self, *others: CounterTable) -> CounterTable:
        """This table with the rows and systems of others; the last one, where several have a value."""
        systems = dict(self.systems)
        for other in others:
            systems |= other.systems
        frame = pl.concat([self.frame, *(other.frame for other in others)])
        return CounterTable(frame.unique(list(_ONE_VALUE), keep="last", maintain_order=True), systems)

    def about(
        self,
        *,
        counters: Collection[str] | None = None,
        sources: Collection[str] | None = None,
        systems: Collection[str] | None = None,
        programs: Collection[str] | None = None,
        runs: Collection[str] | None = None,
    ) -> CounterTable:
        """The rows about these; None is all."""
        frame = self.frame
        chosen = {"counter": counters, "source": sources, "system": systems, "program": programs, "run": runs}
        for column, names in chosen.items():
            if names is not None:
                frame = frame.filter(pl.col(column).is_in(list(names)))
        return CounterTable(frame, self.systems)

    def wide(self, *, per: Literal["system", "repeat"] = "system") -> Wide:
        """The table as a matrix: a row for each run on each system (medians over repeats), or each repeat.

        Rows and columns are in the order in which runs, and pairs of counter and source, first occur.
        """
        identity = ["run", "system", *(["repeat"] if per == "repeat" else [])]
        runs = self.frame.select([*RUN_COLUMNS, *identity[1:]]).unique(maintain_order=True)
        columns = self.frame.select("counter", "source").unique(maintain_order=True)
        values, mask = _matrix(self.frame, runs, identity, columns, ["counter", "source"])
        return Wide(runs, tuple(columns["counter"]), tuple(columns["source"]), values, mask)

    def times(self, counter: str = SECONDS) -> SystemTimes:
        """How long each run took on each system, medians over repeats.

        Args:
            counter: which time; tables of kernels have `kernel_seconds` too, without transfers.
        """
        frame = self.frame.filter(pl.col("counter") == counter)
        runs = frame.select(RUN_COLUMNS).unique(maintain_order=True)
        systems = frame.select("system").unique(maintain_order=True)
        values, mask = _matrix(frame, runs, ["run"], systems, ["system"])
        return SystemTimes(runs, tuple(systems["system"]), values, mask)

    def _described(self) -> list[System]:
        return [self.systems[name] for name in sorted(self.systems)]


def _matrix(
    frame: pl.DataFrame, rows: pl.DataFrame, row: list[str], columns: pl.DataFrame, column: list[str]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Medians of the values in each cell, and which cells have any."""
    values = np.zeros((len(rows), len(columns)))
    mask = np.zeros(values.shape, np.bool_)
    held = (
        frame.drop_nulls("value")
        .group_by([*row, *column])
        .agg(pl.col("value").median())
        .join(rows.select(row).with_row_index("at row"), on=row)
        .join(columns.with_row_index("at column"), on=column)
    )
    at = (held["at row"].to_numpy(), held["at column"].to_numpy())
    values[at], mask[at] = held["value"].to_numpy(), True
    return values, mask


def _fields(system: System) -> dict[str, Any]:
    return {name: getattr(system, name) for name in ("name", "kind", "vendor")}


def _check(frame: pl.DataFrame) -> None:
    """See that a frame is a table of counters.

    Raises:
        InvalidSetting: it is not; the message names the column, and the run where there is one.
    """
    if dict(frame.schema) != SCHEMA:
        wrong = next(
            (name for name in {**SCHEMA, **frame.schema} if frame.schema.get(name) != SCHEMA.get(name)), None
        )
        if wrong is None:
            raise InvalidSetting(f"The columns must be {', '.join(SCHEMA)}, in this order")
        raise InvalidSetting(
            f"The column {wrong!r} is {frame.schema.get(wrong, 'missing')}, not {SCHEMA.get(wrong, 'there')}"
        )
    for column in SCHEMA:
        if column != "value" and frame[column].null_count():
            raise InvalidSetting(f"The column {column!r} has a value missing; only 'value' may")
    for column in ("run", "program", "counter", "source"):
        if (frame[column] == "").any():
            raise InvalidSetting(f"The column {column!r} is empty in a row")
    wrong_kind = frame.filter(~pl.col("exactness").is_in(EXACTNESS))
    if len(wrong_kind):
        raise UnknownName("exactness", wrong_kind["exactness"][0], EXACTNESS)
    if (frame["repeat"] < 0).any():
        raise InvalidSetting("repeat must be 0 or more")
    endless = frame.filter(~pl.col("value").is_finite())
    if len(endless):
        row = endless.row(0, named=True)
        raise InvalidSetting(
            f"{row['counter']} of the run {row['run']!r} is {row['value']}; a missing value is null"
        )
    twice = frame.filter(pl.struct(*_ONE_VALUE).is_duplicated())
    if len(twice):
        row = twice.row(0, named=True)
        raise InvalidSetting(
            f"{row['counter']} of the run {row['run']!r}, repeat {row['repeat']}, is there twice "
            f"from the source {row['source']!r}"
        )
    described = frame.select(RUN_COLUMNS).unique()
    split = described.filter(pl.col("run").is_duplicated())
    if len(split):
        raise InvalidSetting(
            f"The run {split['run'][0]!r} has rows with different programs, kernels or sizes"
        )
