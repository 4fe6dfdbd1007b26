"""Counters of many kernels, in a file that only grows; and times that a campaign measured, to stand beside.

A run is named after what was launched: the source, the kernel and the range. Counters belong to no system,
times to one each, and both tables name their runs alike, so that joining them is joining rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from apportion.data.counter_table import GRAPH, CounterTable, Row, System
from apportion.data.published import cgo17_kernels
from apportion.errors import ApportionError, InvalidSetting, MalformedInput, UnreadableFile
from apportion.jobs import LocalRunner
from apportion.jobs.journal import Journal
from apportion.measure.campaign import Campaign, kernel_files, workloads_of
from apportion.measure.counters.kernels import CountLimits, KernelProfile, count, job_of
from apportion.program.compile import ir_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.features import SUMMARY, features_of
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.source import Source
from apportion.runtime.images import Argument
from apportion.runtime.words import ArrayWord, Word, value_of
from apportion.runtime.workload import Case, Workload, from_json
from apportion.suite import PROBLEMS, problem_of

_TIMES = {"seconds": "seconds", "kernel_seconds": "kernel_seconds"}
"A column of a campaign's table → the counter that it becomes."


@dataclass(frozen=True)
class Counted:
    """What became of one launch, or of the launches of one problem."""

    name: str
    rows: tuple[Row, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class SuiteItem:
    """A problem of the suite, of one size."""

    problem: str
    size: int
    seed: int = 0

    @property
    def name(self) -> str:
        """What the journal calls it."""
        return f"suite {self.problem} {self.size} {self.seed}"


@dataclass(frozen=True)
class WorkloadItem:
    """A case of a workload."""

    workload: Workload
    case: Case

    @property
    def name(self) -> str:
        """What the journal calls it."""
        size, local = self.case.span.in_words
        workload = self.workload
        return f"workload {workload.name} {run_of(workload.digest, workload.kernel, size, local)}"


def run_of(digest: str, kernel: str, global_size: str, local_size: str) -> str:
    """The name of a run: the same for its counters and for its times."""
    return hashlib.sha256("\0".join((digest, kernel, global_size, local_size)).encode()).hexdigest()[:20]


def items_of(workloads: Iterable[Workload]) -> list[WorkloadItem]:
    """Every case of every workload."""
    return [WorkloadItem(workload, case) for workload in workloads for case in workload.cases]


def items_from(
    files: Sequence[Path],
    suite: bool,
    sizes: tuple[int, ...],
    local_sizes: tuple[int, ...],
    workloads: Path | None = None,
    cgo17: Path | None = None,
) -> list[SuiteItem | WorkloadItem]:
    """What to count: kernels in files or folders, the suite's problems, a campaign's workloads, CGO17's.

    Args:
        cgo17: the folder of the CGO17 tables; kernels of theirs that do not compile are left out.

    Raises:
        InvalidSetting: there is nothing.
        UnreadableFile, MalformedInput: a file is not what it should be.
    """
    paths = kernel_files(files)
    campaign = Campaign(sizes=sizes, local_sizes=local_sizes)
    described = [each for each in workloads_of(paths, campaign) if isinstance(each, Workload)]
    if workloads is not None:
        described += _packed(workloads) if workloads.suffix == ".parquet" else _lines(workloads)
    if cgo17 is not None:
        published = cgo17_kernels.workloads(cgo17, sizes=sizes, local_sizes=local_sizes)
        described += [each for each in published if isinstance(each, Workload)]
    items: list[SuiteItem | WorkloadItem] = [*items_of(described)]
    if suite:
        items += [SuiteItem(name, size) for name in PROBLEMS for size in sizes]
    if not items:
        raise InvalidSetting(
            "There is nothing to count: give files of OpenCL C, --suite, --cgo17 or --workloads"
        )
    return items


def _lines(path: Path) -> list[Workload]:
    """The workloads in a file of JSON Lines."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(from_json(json.loads(line)))
        except ValueError as error:
            raise MalformedInput(str(error), file=str(path), line=number) from error
    return found


def _packed(path: Path) -> list[Workload]:
    """The workloads in the table that a campaign packed its kernels into."""
    frame = _parquet(path)
    needed = ("name", "suite", "kernel", "options", "source", "cases")
    if missing := [name for name in needed if name not in frame.columns]:
        raise MalformedInput(f"the table lacks the column {missing[0]!r}", file=str(path))
    found = []
    for number, row in enumerate(frame.select(needed).iter_rows(named=True), start=1):
        try:
            found.append(from_json({**row, "cases": json.loads(row["cases"])}))
        except (ValueError, TypeError) as error:
            raise MalformedInput(f"row {number}: {error}", file=str(path)) from error
    return found


def _parquet(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (PolarsError, OSError) as error:
        raise UnreadableFile(f"Cannot read {path} as Parquet: {error}") from error


def timed_everywhere(times: CounterTable) -> set[str]:
    """The runs that have a time on every system of a table."""
    found = times.times()
    return {run for run, mask in zip(found.runs["run"], found.mask, strict=True) if mask.all()}


def items_among(
    items: Iterable[SuiteItem | WorkloadItem], runs: Collection[str]
) -> list[SuiteItem | WorkloadItem]:
    """The items with a launch that is one of these runs."""
    return [
        item for item in items
        if any(run_of(source.digest, kernel, *span.in_words) in runs
               for source, _, kernel, span in _launches(item))
    ]  # fmt: skip


def count_all(
    items: Sequence[SuiteItem | WorkloadItem], path: Path, *, limits: CountLimits, workers: int = 1,
    runs: Collection[str] | None = None,
) -> Iterator[Counted]:  # fmt: skip
    """Count what the journal beside `path` does not hold yet, and add it to the table when all is done.

    Each item is in the journal before it is yielded; killing the process loses those under way.

    Args:
        items: what to count.
        path: the table; what it holds of other runs stays.
        limits: of one launch.
        workers: how many are counted at once.
        runs: add only these; all that the journal holds when None.

    Raises:
        UnreadableFile: the files cannot be written.
        MalformedInput: what stands at `path` is no table of counters.
    """
    kept = CounterTable.read(path) if path.exists() else CounterTable.of([])
    journal = Journal(path.with_suffix(".jsonl"))
    done = {entry["name"] for entry in journal.entries()}
    left = [item for item in items if item.name not in done]
    runner = LocalRunner(workers, deadline_seconds=limits.seconds, memory_bytes=limits.memory_bytes)
    with journal.alone():
        for outcome in runner.map(partial(counted, limits=limits), left):
            failure = str(outcome.error) if outcome.error is not None else ""
            entry = outcome.value or Counted(left[outcome.item_index].name, failure=failure)
            journal.add({"name": entry.name, "rows": entry.rows, "failure": entry.failure})
            yield entry
    kept.updated(table_of(journal.path).about(runs=runs)).write(path)


def table_of(journal: Path) -> CounterTable:
    """Everything that a journal holds; a launch that several items share is there once."""
    rows: dict[tuple[str, str], Row] = {}
    for entry in Journal(journal).entries():
        for values in entry["rows"]:
            row = Row(*values)
            rows.setdefault((row.run, row.counter), row)
    return CounterTable.of(rows.values())


def counted(item: SuiteItem | WorkloadItem, *, limits: CountLimits) -> Counted:
    """Count one item here; errors of ours become its failure. Call it in a process that may be lost."""
    try:
        rows = _problem_rows(item, limits) if isinstance(item, SuiteItem) else _workload_rows(item, limits)
    except ApportionError as error:
        return Counted(item.name, failure=f"{type(error).__name__}: {error}")
    return Counted(item.name, tuple(rows))


def times_of(measurements: Path, names: dict[str, str] | None = None) -> CounterTable:
    """The times in a table of a campaign; failures are left out.

    The table is `measurements.parquet`, one row a device, or one of several systems with every repeat, which
    has the columns `system` and `repeat`.

    Args:
        names: a device's id → what to call the system; the device's own name where it is not there.

    Raises:
        UnreadableFile, MalformedInput: it is no such table.
    """
    frame = _parquet(measurements)
    frame = frame.rename(
        {"name": "source"} if "source" not in frame.columns and "name" in frame.columns else {}
    )
    named = "system" in frame.columns
    needed = {"source", "digest", "kernel", "global_size", "local_size", *_TIMES}
    needed |= {"system"} if named else {"device", "device_name"}
    if missing := sorted(needed - set(frame.columns)):
        raise MalformedInput(f"the table lacks the column {missing[0]!r}", file=str(measurements))
    rows: dict[tuple[str, str, int, str], Row] = {}
    systems: dict[str, System] = {}
    good = pl.col("seconds").is_not_null()
    if "failure" in frame.columns:  # a launch may have been timed, and have computed something else
        good &= pl.col("failure").fill_null("") == ""
    for point in frame.filter(good).iter_rows(named=True):
        system = point["system"] if named else (names or {}).get(point["device"], point["device_name"])
        if system not in systems:
            systems[system] = _system(system, point)
        run = run_of(point["digest"], point["kernel"], point["global_size"], point["local_size"])
        size = f"{point['global_size']}/{point['local_size']}"
        repeat = int(point.get("repeat", 0))
        program, kernel = _called(point["source"], point.get("suite") or "", point["kernel"])
        identity = (run, program, kernel, size, system, repeat)
        for column, counter in _TIMES.items():
            row = Row(*identity, counter, point[column], "clock", "exact")
            rows.setdefault((run, system, repeat, counter), row)
    return CounterTable.of(rows.values(), systems.values())


def _system(name: str, point: dict[str, Any]) -> System:
    """What a campaign's table says of a system."""
    device = str(point.get("device") or "")
    about = ", ".join(str(point[key]) for key in ("device_name", "driver") if point.get(key))
    gpu = "gpu" in (device or name).lower()
    kind = "gpu" if gpu else "cpu" if device else ""  # a name alone, as `h200`, tells nothing
    return System(name, kind, description={"name": about} if about else {})


def graphs_of(items: Iterable[SuiteItem | WorkloadItem], runs: Collection[str]) -> CounterTable:
    """What the program graph of each run's kernel is made of (`program.features.SUMMARY`), read off the code.

    Args:
        runs: the names of those that are wanted; a kernel that does not compile has none.
    """
    rows: dict[tuple[str, str], Row] = {}
    made: dict[tuple[str, str], dict[str, float] | None] = {}
    for item in items:
        for source, (program, called), kernel, span in _launches(item):
            size, local = span.in_words
            run = run_of(source.digest, kernel, size, local)
            if run not in runs:
                continue
            if (source.digest, kernel) not in made:
                made[source.digest, kernel] = _summary(source, kernel)
            found = made[source.digest, kernel]
            if found is None:
                continue
            for name in SUMMARY:
                row = Row(run, program, called, f"{size}/{local}", "", 0, f"{GRAPH}{name}",
                          float(found.get(name, 0.0)), "program-graph", "static")  # fmt: skip
                rows[run, name] = row
    return CounterTable.of(rows.values())


def _summary(source: Source, kernel: str) -> dict[str, float] | None:
    try:
        return features_of(graph_of_ir(ir_of(source), name=kernel, options=GraphOptions(function=kernel)))
    except ApportionError:
        return None


def _launches(item: SuiteItem | WorkloadItem) -> Iterator[tuple[Source, tuple[str, str], str, NDRange]]:
    """Source, what program and kernel are called, the kernel's function and the range of each launch."""
    if isinstance(item, WorkloadItem):
        workload = item.workload
        source = workload.program
        called = _called(workload.name, workload.suite, workload.kernel)
        yield source, called, workload.kernel, item.case.span
        return
    problem = problem_of(item.problem)
    for stage in problem.instance(item.size, seed=item.seed).stages:
        span = NDRange(stage.global_size, stage.local_size)
        yield problem.source(), (problem.name, stage.kernel), stage.kernel, span


def _problem_rows(item: SuiteItem, limits: CountLimits) -> list[Row]:
    """The launches of a problem one after the other, each on what the former left."""
    problem = problem_of(item.problem)
    instance = problem.instance(item.size, seed=item.seed)
    arrays = instance.fresh()
    source = problem.source()
    rows: list[Row] = []
    seen: set[str] = set()
    for stage in instance.stages:
        span = NDRange(stage.global_size, stage.local_size)
        profile = count(job_of(source, stage.kernel, instance.values(stage, arrays), span, limits=limits))
        named = [argument for argument in stage.arguments if isinstance(argument, str)]
        arrays |= dict(zip(named, profile.arrays.values(), strict=True))
        found = _rows(profile, source.digest, (problem.name, stage.kernel), span)
        if found[0].run not in seen:
            seen.add(found[0].run)
            rows += found
    wrong = problem.verify(instance.expected, arrays)
    if wrong is not None:
        raise InvalidSetting(f"{problem.name} was counted, but computed something else: {wrong}")
    return rows


def _workload_rows(item: WorkloadItem, limits: CountLimits) -> list[Row]:
    workload, case = item.workload, item.case
    values = tuple(_value(position, word) for position, word in enumerate(case.words()))
    source = workload.program
    profile = count(job_of(source, workload.kernel, values, case.span, limits=limits))
    return _rows(profile, workload.digest, _called(workload.name, workload.suite, workload.kernel), case.span)


def _rows(profile: KernelProfile, digest: str, called: tuple[str, str], span: NDRange) -> list[Row]:
    size, local = span.in_words
    rows = profile.rows(run_of(digest, profile.kernel, size, local), called[0], f"{size}/{local}")
    return [row._replace(kernel=called[1]) for row in rows]


def _called(name: str, suite: str, kernel: str) -> tuple[str, str]:
    """The application that a workload belongs to, and its kernel.

    Kernels of one application are no strangers to each other, and folds by application keep them together.
    Workloads are called `SUITE-APPLICATION-KERNEL` where they come from others' suites, whose functions may
    all have one name (`A` in CGO17), and `PROBLEM-KERNEL` or `PROBLEM` where they come from ours.
    """
    if suite and name.startswith(f"{suite}-"):
        application, _, rest = name[len(suite) + 1 :].partition("-")
        return f"{suite}-{application}", rest or kernel
    return name.removesuffix(".cl").removesuffix(f"-{kernel}"), kernel


def _value(position: int, word: Word) -> Argument:
    """What a campaign gives a kernel for a word: random numbers as in `runtime.opencl.visiting`."""
    if not isinstance(word, ArrayWord) or word.kind.fields is not None:
        return value_of(word, np.random.default_rng(0))
    if word.fill.partition(":")[0] not in ("random", "below"):
        return value_of(word, np.random.default_rng(0)).reshape(-1)  # type: ignore[union-attr]
    kind = word.kind
    noise = np.random.default_rng(0).random(64 * position + word.count, np.float32)[64 * position :]
    if kind.kind == "f":
        return noise.astype(kind)
    return np.minimum((noise.astype(np.float64) * word.bound).astype(np.int64), word.bound - 1).astype(kind)
