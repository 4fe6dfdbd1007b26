"""The 680 kernels of Cummins et al. (PACT'17), measured on an i7-3820 with an AMD and with an NVIDIA GPU.

Two tables, `amd.csv` and `nvidia.csv`, and an archive of one LLVM IR file per row (`kernels_ir.tar.gz`, of
the IR2Vec experiments). A file is called `BENCHMARK.ll`, or `BENCHMARK_DATASET.ll` where a benchmark was run
with several; 11 rows share the file of another, so 669 files serve 680 rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from apportion.data.archives import files_in
from apportion.data.records import Example
from apportion.errors import MalformedInput, UnknownName, UnreadableFile

PAIRS = {"cgo17-nvidia": "nvidia.csv", "cgo17-amd": "amd.csv"}
"A pair of devices, and the table of their times."
ARCHIVE = "kernels_ir.tar.gz"
SUITES = (
    "amd-app-sdk-3.0", "npb-3.3", "nvidia-4.2", "parboil-0.2", "polybench-gpu-1.0", "rodinia-3.1",
    "shoc-1.1.5",
)  # fmt: skip
COUNTS = ("comp", "rational", "mem", "localmem", "coalesced", "atomic")
"Columns of static counts: compute, relational and memory operations, local, coalesced and atomic accesses."

csv.field_size_limit(1 << 24)  # a column holds whole kernels


def read(folder: Path, pair: str = "cgo17-nvidia") -> Iterator[Example]:
    """Every row whose IR is in the archive, in the table's order; `rows_of` tells how many there are.

    Raises:
        UnknownName: no such pair of devices.
        UnreadableFile: a file is missing.
        MalformedInput: a table lacks a column, or holds what is no number.
    """
    if pair not in PAIRS:
        raise UnknownName("pair of devices", pair, PAIRS)
    ir = _archived(folder / ARCHIVE)
    for number, row in enumerate(_rows(folder / PAIRS[pair]), start=2):
        text = ir_of_row(ir, row["benchmark"], row["dataset"])
        if text is not None:
            yield _example(row, text, folder / PAIRS[pair], number)


def rows_of(folder: Path, pair: str) -> int:
    """How many rows a pair's table has, with IR or without."""
    if pair not in PAIRS:
        raise UnknownName("pair of devices", pair, PAIRS)
    return sum(1 for _ in _rows(folder / PAIRS[pair]))


def ir_of_row(ir: dict[str, str], benchmark: str, dataset: str) -> str | None:
    """The IR of a row: under its benchmark's name, else under that with the dataset's behind it."""
    return ir.get(benchmark) or ir.get(f"{benchmark}_{dataset}")


def _example(row: dict[str, str], ir: str, path: Path, number: int) -> Example:
    benchmark = row["benchmark"]
    suite = next((name for name in SUITES if benchmark.startswith(f"{name}-")), None)
    if suite is None:
        raise MalformedInput(f"{benchmark!r} begins with the name of no suite", file=str(path), line=number)
    application, _, kernel = benchmark[len(suite) + 1 :].partition("-")
    try:
        return Example(
            name=f"{benchmark}-{row['dataset']}",
            suite=suite,
            application=f"{suite}-{application}",
            kernel=kernel,
            source=row["src"],
            ir=ir,
            bytes_moved=int(row["transfer"]),
            work_group=int(row["wgsize"]),
            cpu_time=float(row["runtime_cpu"]),
            gpu_time=float(row["runtime_gpu"]),
            counts={column: float(row[column]) for column in COUNTS},
        )
    except (TypeError, ValueError) as error:
        raise MalformedInput(f"{benchmark}: {error}", file=str(path), line=number) from error


def _rows(path: Path) -> Iterator[dict[str, str]]:
    needed = {"benchmark", "dataset", *COUNTS, "transfer", "wgsize", "runtime_cpu", "runtime_gpu", "src"}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if missing := sorted(needed - set(reader.fieldnames or ())):
                raise MalformedInput(f"the table lacks the column {missing[0]!r}", file=str(path), line=1)
            yield from reader
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(
            f"Cannot read {path}: {error}. `apportion data path cgo17` says where it belongs."
        ) from error


def _archived(path: Path) -> dict[str, str]:
    """Name without `.ll` → text, of every file in the archive."""
    try:
        return {Path(name).stem: data.decode("utf-8", "surrogateescape") for name, data in files_in(path)}
    except (UnreadableFile, MalformedInput) as error:
        raise UnreadableFile(f"{error}. `apportion data path cgo17` says where it belongs.") from error
