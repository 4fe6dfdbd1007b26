"""A measuring campaign's table as rows to learn from: a row for each launch that both devices ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from apportion.data.records import Example
from apportion.errors import ApportionError, InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.learn.shares.kernel_table import KernelTable, table_of
from apportion.measure.campaign import TABLE
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.source import Source

TARGET = "x86_64-unknown-unknown"
"What kernels are compiled for before their features are counted, by `apportion predict` too."
NEEDED = ("source", "digest", "kernel", "work_items", "device", "bytes_moved", "seconds")


def read_campaign(
    measurements: Path,
    sources: Iterable[Path | Source],
    pair: str,
    *,
    cpu: str,
    gpu: str,
    report: Callable[[str], None],
) -> KernelTable:
    """Launches of a campaign with the features of their kernels.

    Rows with a failure, or whose results differ between devices, are left out.

    Args:
        measurements: the campaign's Parquet file, or its folder.
        sources: the OpenCL C files that were measured; they are found by the hash of their text.
        pair: what to call these devices.
        cpu: the id or name of the device whose share is learned; a part of it that fits one device is enough.
        gpu: of the other.
        report: is told what could not be used.

    Raises:
        UnreadableFile, MalformedInput: no such table, or one without a column that is needed.
        UnknownName: the table has no such device.
        InvalidSetting: nothing is left to learn from.
    """
    path = measurements / TABLE if measurements.is_dir() else measurements
    table = _read(path)
    devices = [_device(table, wanted) for wanted in (cpu, gpu)]
    if devices[0] == devices[1]:
        raise InvalidSetting(f"The two devices of a pair must differ, and both {cpu!r} and {gpu!r} are one")
    texts = {source.digest: source for source in map(_source, sources)}
    launches: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in table.iter_rows(named=True):
        if row["device"] in devices and row["seconds"] and row.get("agrees") is not False:
            group = row.get("group_items") or int(row["local_size"])
            key = (row["digest"], row["kernel"], row["work_items"], group, row["bytes_moved"])
            launches.setdefault(key, dict(row, group=group))[f"seconds {row['device']}"] = row["seconds"]
    both = [row for row in launches.values() if all(f"seconds {device}" in row for device in devices)]
    ir = _compiled({row["digest"] for row in both}, texts, report)
    usable = [row for row in both if row["digest"] in ir]
    if not usable:
        raise InvalidSetting(
            f"{path} has no launch that both devices ran and whose source is here ({len(both)} of both)"
        )
    report(f"{pair}: {len(usable)} launches of {len({row['digest'] for row in usable})} sources are used")
    examples = [_example(row, number, devices, texts, ir) for number, row in enumerate(usable)]
    return table_of(
        pair, examples, len(both), work_items=[row["work_items"] for row in usable], kernels_alone=True
    )


def _read(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UnreadableFile(f"Cannot read the measurements {path}: {error}") from error
    if missing := [name for name in NEEDED if name not in table.columns]:
        raise MalformedInput(f"the table of measurements lacks the column {missing[0]!r}", file=str(path))
    return table


def _device(table: pl.DataFrame, wanted: str) -> str:
    """The id of the one device whose id or name is, or holds, `wanted`."""
    names: dict[str, str] = dict(
        table.select("device", pl.col("device_name") if "device_name" in table.columns else pl.lit(""))
        .filter(pl.col("device") != "")
        .unique()
        .iter_rows()
    )
    found = [id_ for id_ in names if id_ == wanted] or [
        id_ for id_, name in names.items() if wanted.lower() in f"{id_} {name}".lower()
    ]
    if len(found) != 1:
        raise UnknownName("one device", wanted, [f"{id_} ({name})" for id_, name in names.items()])
    return found[0]


def _source(source: Path | Source) -> Source:
    return source if isinstance(source, Source) else Source.read(source, "opencl")


def _compiled(
    digests: set[str], texts: Mapping[str, Source], report: Callable[[str], None]
) -> dict[str, str]:
    found = {}
    for digest in sorted(digests):
        if digest not in texts:
            report(f"No source with the hash {digest[:12]} was given: its launches are left out")
            continue
        try:
            found[digest] = ir_of(texts[digest], CompileOptions(target=TARGET))
        except ApportionError as error:
            report(f"{texts[digest].name} is left out: {error}")
    return found


def _example(
    row: Mapping[str, Any],
    number: int,
    devices: list[str],
    texts: Mapping[str, Source],
    ir: Mapping[str, str],
) -> Example:
    suite = row.get("suite") or "measured"
    return Example(
        name=f"{row['source']}-{row['kernel']}-{number}",
        suite=suite,
        application=f"{suite}-{row['source']}",
        kernel=row["kernel"],
        source=str(texts[row["digest"]].text),
        ir=ir[row["digest"]],
        bytes_moved=int(row["bytes_moved"]),
        work_group=int(row["group"]),
        cpu_time=float(row[f"seconds {devices[0]}"]),
        gpu_time=float(row[f"seconds {devices[1]}"]),
    )
