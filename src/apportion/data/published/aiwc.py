"""AIWC's published measurements (Johnston et al.): OpenDwarfs' kernels on 15 devices, 31 counters each.

Two files: `aiwc_tidy.parquet`, a row for each application, kernel and size with the 31 counters, and
`aiwc_runs.parquet`, every repeat on every device; `aiwc_devices.csv` describes the devices. Three things to
know of them: counters do not depend on the device, so there are as many inputs as kernels × sizes; they are
of a kernel's first invocation, while times are means over invocations; and the parts of `fft` carry the time
of the whole, each size twice, of which one is kept: 100 runs, 11 applications.
"""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException, PolarsError

from apportion.data.counters import AIWC, SCHEMA, SECONDS, CounterTable, System
from apportion.errors import MalformedInput, UnreadableFile

TIDY, RUNS, DEVICES = "aiwc_tidy.parquet", "aiwc_runs.parquet", "aiwc_devices.csv"
FOUR_SYSTEMS = ("xeon_es-2697v2", "i7-6700k", "fiji-furyx", "gtx1080")
"Two CPUs and two GPUs of two vendors, as the seed has them."
_KINDS = {"CPU": "cpu", "MIC": "cpu", "GPU": "gpu"}
_RUN = ("application", "kernel", "size")


def read(folder: Path) -> CounterTable:
    """Counters of every run (on no system: they are the same on all), and every repeat's time in `seconds`.

    Raises:
        UnreadableFile: a file is missing or no Parquet.
        MalformedInput: a file lacks a column.
    """
    tidy, runs = _frame(folder / TIDY, (*_RUN, *AIWC)), _frame(folder / RUNS, (*_RUN, "device", "run"))
    kept = _one_part_each(tidy)
    long = kept.unpivot(AIWC, index=["run", *_RUN], variable_name="counter", value_name="value")
    counters = long.with_columns(
        pl.lit("").alias("system"), pl.lit(0).alias("repeat"), pl.lit("aiwc").alias("source"),
        pl.lit("exact").alias("exactness"),
    )  # fmt: skip
    times = (
        runs.join(kept.select(*_RUN, pl.col("run").alias("name")), on=list(_RUN), how="inner")
        .with_columns(pl.int_range(pl.len()).over("name", "device").alias("repeat"))
        .select(
            pl.col("name").alias("run"), *_RUN, pl.col("device").alias("system"), "repeat",
            pl.lit(SECONDS).alias("counter"), (pl.col("kernel_time_us") / 1e6).alias("value"),
            pl.lit("clock").alias("source"), pl.lit("exact").alias("exactness"),
        )
    )  # fmt: skip
    columns = [pl.col("application" if name == "program" else name).cast(kind).alias(name)
               for name, kind in SCHEMA.items()]  # fmt: skip
    frame = pl.concat([counters.select(columns), times.select(columns)])
    return CounterTable(frame, {system.name: system for system in _systems(folder / DEVICES)})


def _one_part_each(tidy: pl.DataFrame) -> pl.DataFrame:
    """Rows with the name of their run; of `fft`, whose parts share one time, one of each size."""
    named = tidy.with_columns(pl.concat_str(_RUN, separator="/").alias("run"))
    first = named.filter(pl.col("application") == "fft").unique("size", keep="first", maintain_order=True)
    return named.filter((pl.col("application") != "fft") | pl.col("run").is_in(first["run"].to_list()))


def _frame(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path)
    except (PolarsError, PanicException, OSError) as error:
        raise UnreadableFile(f"Cannot read {path} as Parquet: {error}") from error
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise MalformedInput(f"the column {missing[0]!r} is missing", file=str(path))
    return frame.with_columns(pl.col(*_RUN).cast(pl.String))


def _systems(path: Path) -> list[System]:
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    try:
        return [
            System(row["device"], _KINDS.get(row["class"], ""), row["vendor"], {"name": row["name"]})
            for row in rows
        ]
    except KeyError as error:
        raise MalformedInput(f"the column {error} is missing", file=str(path)) from error
