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

from apportion.data.counter_table import AIWC, GRAPH, SCHEMA, SECONDS, CounterTable, System
from apportion.errors import MalformedInput, UnreadableFile

TIDY, RUNS, DEVICES = "aiwc_tidy.parquet", "aiwc_runs.parquet", "aiwc_devices.csv"
FOUR_SYSTEMS = ("xeon_es-2697v2", "i7-6700k", "fiji-furyx", "gtx1080")
"Two CPUs and two GPUs of two vendors: those of Nichols et al."
_KINDS = {"CPU": "cpu", "MIC": "cpu", "GPU": "gpu"}
_RUN = ("application", "kernel", "size")
_ABOUT = ("cores", "clock_ghz", "gflops", "gb_per_second")
DATA_SHEETS: dict[str, tuple[float, float, float, float]] = {
    "xeon_es-2697v2": (12, 2.7, 518, 59.7), "i7-6700k": (4, 4.0, 512, 34.1), "i5-3350": (4, 3.1, 198, 25.6),
    "knl": (64, 1.3, 5325, 102), "titanx": (3584, 1.42, 10974, 480), "gtx1080": (2560, 1.61, 8873, 320),
    "gtx1080ti": (3584, 1.48, 11340, 484), "k20c": (2496, 0.71, 3524, 208),
    "k40c": (2880, 0.75, 4291, 288), "firepro-s9150": (2816, 0.90, 5069, 320),
    "hawaii-r9-290x": (2816, 1.00, 5632, 320), "hawaii-r9-295x2": (2816, 1.02, 5733, 320),
    "fiji-furyx": (4096, 1.05, 8602, 512), "tahiti-hd7970": (2048, 0.93, 3789, 264),
    "polaris-rx480": (2304, 1.12, 5834, 256),
}  # fmt: skip
"""By the vendors' data sheets: cores or lanes, clock in GHz, peak of single precision in GFLOPS, bandwidth of
memory in GB/s (KNL's of its DDR4; of a card with two GPUs one)."""


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


def with_graphs(table: CounterTable, path: Path) -> CounterTable:
    """The table with what the kernels' program graphs are made of.

    Args:
        path: a CSV with the columns `application`, `kernel`, and one for each value.

    Raises:
        UnreadableFile: it is no CSV.
        MalformedInput: it lacks a column.
    """
    try:
        frame = pl.read_csv(path)
    except (PolarsError, OSError) as error:
        raise UnreadableFile(f"Cannot read {path} as CSV: {error}") from error
    if missing := [name for name in _RUN[:2] if name not in frame.columns]:
        raise MalformedInput(f"the column {missing[0]!r} is missing", file=str(path))
    values = [name for name in frame.columns if name not in _RUN]
    runs = table.frame.select("run", "program", "kernel", "size").unique(maintain_order=True)
    long = runs.join(
        frame, left_on=["program", "kernel"], right_on=["application", "kernel"], how="inner"
    ).unpivot(values, index=["run", "program", "kernel", "size"], variable_name="counter", value_name="value")
    described = long.with_columns(
        pl.lit("").alias("system"), pl.lit(0).alias("repeat"), (GRAPH + pl.col("counter")).alias("counter"),
        pl.lit("program-graph").alias("source"), pl.lit("static").alias("exactness"),
    )  # fmt: skip
    return table.joined(
        CounterTable(described.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items()))
    )


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
            System(
                row["device"], _KINDS.get(row["class"], ""), row["vendor"],
                {"name": row["name"], **dict(zip(_ABOUT, DATA_SHEETS.get(row["device"], ()), strict=False))},
            )
            for row in rows
        ]  # fmt: skip
    except KeyError as error:
        raise MalformedInput(f"the column {error} is missing", file=str(path)) from error
