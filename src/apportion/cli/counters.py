"""`apportion counters`: what this machine counts, what commands and kernels do, what other tools counted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from apportion.cli.building import USUAL, Building
from apportion.cli.show import note, print_json, print_table, progress
from apportion.data.counter_table import SECONDS, TABLE_I, CounterTable, Row
from apportion.errors import InvalidSetting, UnknownName
from apportion.measure.counters import sources as known_sources
from apportion.measure.counters.collect import (
    COLLECTION_SECONDS,
    Found,
    this_system,
)
from apportion.measure.counters.collect import (
    collect as collected,
)
from apportion.measure.counters.command import Command
from apportion.measure.counters.imports import ImportOptions, add_to, import_files, read_map
from apportion.measure.counters.kept_choice import probe_and_keep, usual_sources
from apportion.program.kernel.bounds import sizes_of

_FLAG = Parameter(negative="")
_LIST = Parameter(negative="")

counters = App(
    name="counters", help="Count what programs and kernels do, or import what other tools counted."
)


@counters.command
def probe(*, json: Annotated[bool, _FLAG] = False) -> None:
    """Say which counters of Table I this machine gives, and from which source, by counting something small.

    Args:
        json: print one JSON object: every counter from every source, what was counted or why not, the remedy.
    """
    found, names = probe_and_keep()
    if json:
        entries = [{**vars(one), "problem": one.problem, "works": one.works} for one in found]
        print_json({"counters": entries, "chosen": names})
        return
    print_table(
        ("Table I", "counter", "sources that work", "exactness", "counted"),
        [
            _probe_row(row, list(group))
            for row, group in groupby(found, key=lambda one: (one.row, one.counter))
        ],
        title="What this machine counts",
        right=("counted",),
    )
    problems = {
        (one.source, one.problem.reason, one.problem.remedy) for one in found if one.problem is not None
    }
    if problems:
        print_table(("source", "why not", "what to do"), sorted(problems), title="What it does not, and why")
    note(f"`apportion counters collect` would use: {', '.join(names)}.")


def _probe_row(row: tuple[str, str], group: list[Found]) -> tuple[str, str, str, str, str]:
    working = [one for one in group if one.works]
    return (
        *row,
        ", ".join(one.source for one in working) or "none",
        ", ".join(dict.fromkeys(one.exactness for one in working)),
        "" if not working or working[0].value is None else f"{working[0].value:.6g}",
    )


@counters.command
def collect(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    repeat: int = 1,
    source: Annotated[tuple[str, ...], _LIST] = (),
    out: Path | None = None,
    seconds: float = 600.0,
    stdin: Path = Path("/dev/null"),
    exit_status: int = 0,
    program: str = "",
    size: str = "",
    system: str = "",
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Run a command under every source that works, and say what it does; write it behind `--`.

    Args:
        command: the program and its arguments; it reads `--stdin`, and what it prints is thrown away.
        repeat: how often it is run under each source.
        source: use this source, and no others but those named; all that `apportion counters probe` chooses
            when not given.
        out: a Parquet file for the table; repeats that were finished are in it even when a later one fails.
        seconds: the deadline of one execution, under a source that makes it slower too.
        stdin: a file that the command reads.
        exit_status: the one that means success.
        program: what to call the command; the name of its executable when not given.
        size: its input, in words; its arguments when not given.
        system: what to call this machine; its host name when not given.
        json: print every value as a line of JSON.
    """
    wanted = Command(tuple(command), stdin, seconds, exit_status)
    for name in source:
        if name not in known_sources:
            raise UnknownName("counter source", name, known_sources)
    names: Sequence[str] = source or usual_sources()
    note(f"Counting with {', '.join(names)}.")
    rows: list[Row] = []
    executions = collected(
        wanted, names, repeats=repeat, system=system, program=program, size=size, say=note
    )  # fmt: skip
    try:
        for done in executions:
            rows += done
            if json:
                for row in done:
                    print_json(row._asdict())
    finally:
        if rows:
            table = CounterTable.of(rows, [this_system(system)])
            if out is not None:
                table.write(out)
                note(f"{len(rows)} values are in {out}.")
            if not json:
                _print_collected(table)


def _print_collected(table: CounterTable) -> None:
    wide = table.wide()
    exactness = {
        (row["counter"], row["source"]): row["exactness"] for row in table.frame.iter_rows(named=True)
    }
    native = float(wide.column(SECONDS)[0][0])
    values: list[tuple[str, str, str, str]] = []
    costs: list[tuple[str, str, str]] = [("clock", f"{native:.4g}", "1.0")]
    for position, (counter, source) in enumerate(zip(wide.counters, wide.sources, strict=True)):
        there, value = bool(wide.mask[0, position]), float(wide.values[0, position])
        if counter == COLLECTION_SECONDS:
            costs.append((source, f"{value:.4g}", f"{value / native:.1f}"))
        elif counter != SECONDS:
            shown = (
                f"{value:,.0f}" if there and value == int(value) else f"{value:.6g}" if there else "missing"
            )
            values.append((counter, shown, source, exactness[counter, source]))
    order = [counter for counters in TABLE_I.values() for counter in counters]
    values.sort(key=lambda row: order.index(row[0]) if row[0] in order else len(order))
    print_table(
        ("counter", "value", "source", "exactness"), values, title=table.frame["run"][0], right=("value",)
    )
    print_table(("source", "seconds", "times the command's own"), costs, title="What counting cost",
                right=("seconds", "times the command's own"))  # fmt: skip


@counters.command
def kernel(
    source: Path,
    *,
    global_size: Annotated[str, Parameter(name=["--global-size", "-n"])],
    local_size: Annotated[str | None, Parameter(name=["--local-size", "-l"])] = None,
    kernel: str | None = None,
    arg: Annotated[tuple[str, ...], _LIST] = (),
    groups: int | None = None,
    seed: int = 0,
    building: Building = USUAL,
    seconds: float = 120.0,
    instructions: int = 4_000_000_000,
    out: Path | None = None,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Count what one launch of an OpenCL kernel does, whatever the hardware: the columns of AIWC.

    Args:
        source: a file of OpenCL C.
        global_size: work-items: `1048576`, or `1024,1024` for two dimensions.
        local_size: work-items of a work-group, likewise; 64 in all when not given, or what divides the range.
        kernel: the kernel's name, where the file has several.
        arg: as for `apportion run`; what is not given is assumed, and told.
        groups: run so many work-groups, evenly chosen, and extrapolate; what depends on all of memory is then
            missing.
        seed: of the arrays that are made up.
        seconds: the deadline.
        instructions: how many may be executed.
        out: a Parquet file for the table.
        json: print one JSON object.
    """
    from apportion.measure.counters.profile_file import (
        profile_file,  # llvmlite and the compiler are only for kernels
    )

    profile, assumed, table = profile_file(
        building.source(source, "opencl"), kernel, sizes_of(global_size, "--global-size"),
        None if local_size is None else sizes_of(local_size, "--local-size"), arg, groups=groups, seed=seed,
        seconds=seconds, instructions=instructions,
    )  # fmt: skip
    if out is not None:
        table.write(out)
    if assumed:
        note(f"Assumed: {', '.join(map(str, assumed))}.")
    if json:
        print_json(
            {
                "kernel": profile.kernel,
                "assumed": [str(each) for each in assumed],
                "sampled": profile.sampled,
                "counters": dict(profile.counters),
                "opcodes": dict(profile.opcodes),
            }
        )
        return
    rows = [
        (name, "missing" if value is None else f"{value:.6g}") for name, value in profile.counters.items()
    ]
    print_table(("counter", "value"), rows, title=profile.kernel, right=("value",))
    executed = [(name, f"{count:,}") for name, count in profile.opcodes.items()]
    print_table(("instruction", "executed"), executed, right=("executed",))


@counters.command
def kernels(
    *files: Path,
    out: Path,
    suite: Annotated[bool, _FLAG] = False,
    sizes: str = "4096,65536",
    local_sizes: str = "64",
    workloads: Path | None = None,
    cgo17: Path | None = None,
    times: Annotated[tuple[str, ...], _LIST] = (),
    timed: Annotated[bool, _FLAG] = False,
    graphs: Annotated[bool, _FLAG] = False,
    processes: int = 1,
    seconds: float = 120.0,
    instructions: int = 4_000_000_000,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Count what many kernels do, into a table that a later run goes on with.

    Args:
        files: OpenCL C, or folders of `.cl` files; arguments are those that `apportion measure` uses.
        out: the Parquet file; a journal beside it keeps what is done.
        suite: also the problems of the bundled suite, each verified.
        sizes: numbers of work-items, with commas between them.
        local_sizes: work-group sizes, likewise; the suite has its own.
        workloads: a file of workloads, one JSON object a line, or a `.parquet` that a campaign packed its
            kernels into.
        cgo17: the folder of the CGO17 tables, whose kernels are counted too, with deduced arguments.
        times: a campaign's measurements.parquet, whose times are added to the table; with what to call its
            devices behind it, if need be: `out/measurements.parquet:cpu=xeon,gpu=h200`.
        timed: count only launches that `--times` has a time of on every system, and keep no others.
        graphs: add what the program graph of each kernel is made of.
        processes: how many launches are counted at once.
        seconds: the deadline of one launch.
        instructions: how many one launch may execute.
        json: print each launch as a line of JSON.
    """
    from apportion.measure.counters import (
        workloads as batch,  # llvmlite and the compiler are only for kernels
    )
    from apportion.measure.counters.kernels import CountLimits

    if timed and not times:
        raise InvalidSetting("--timed needs --times: which launches have times")
    items = batch.items_from(files, suite, _numbers(sizes), _numbers(local_sizes), workloads, cgo17)
    measured = CounterTable.of([])
    for word in times:
        path, _, names = word.partition(":")
        measured = measured.joined(batch.times_of(Path(path), _pairs(names)))
    wanted = batch.timed_everywhere(measured)
    if timed:
        items = batch.items_among(items, wanted)
        if not items:
            raise InvalidSetting(f"Of {len(wanted)} launches with a time on every system none was given")
        note(f"{len(wanted)} launches have a time on every system; {len(items)} items are counted for them.")
    limits = CountLimits(seconds=seconds, instructions=instructions)
    failures = 0
    for one in progress(
        batch.count_all(items, out, limits=limits, workers=processes),
        label="Counting", total=len(items), quiet=json,
    ):  # fmt: skip
        failures += bool(one.failure)
        if json:
            print_json({"name": one.name, "values": len(one.rows), "failure": one.failure})
        elif one.failure:
            note(f"{one.name}: {one.failure}")
    table = CounterTable.read(out).joined(measured)
    if timed:
        table = table.about(runs=wanted)
    if graphs:
        runs_with_code = set(table.frame["run"])
        described = batch.graphs_of(items, runs_with_code)
        table = table.joined(described)
        without = len(runs_with_code) - described.frame["run"].n_unique()
        if without:
            note(f"{without} launches have no program graph: their source was not given, or gives none.")
    if times or graphs:
        table.write(out)
    runs = table.frame["run"].n_unique()
    note(f"{runs} launches are in {out}; {failures} failed now, and are in its journal with their reasons.")


@counters.command(name="import")
def import_(
    *files: Path,
    out: Path,
    format: str = "auto",
    map: Path | None = None,
    program: str = "",
    system: str = "",
    size: str = "",
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Import what other tools counted: all files or, when one is malformed, none.

    Args:
        files: of `perf stat -j`, `perf stat -x,`, `perf script`, PAPI's high-level interface, Caliper,
            HPCToolkit (a folder), `ncu --csv`, Nsight Compute's reports (where `ncu` is installed), or plain
            CSV.
        out: the Parquet file; rows are added to what it holds already, as repeats where it has the run.
        format: auto, perf, perf-script, papi, caliper, hpctoolkit, ncu or csv.
        map: a file of TOML: [counters] renames counters, [columns] says what the columns of a CSV are,
            [seconds] which of them are times and in what unit.
        program: what to call the program, where the files do not say.
        system: what to call the machine, likewise.
        size: the input, likewise.
        json: print one JSON object.
    """
    if not files:
        raise InvalidSetting("There is nothing to import: give files")
    imported = table = import_files(files, ImportOptions(program, system, size, read_map(map)), format)
    if out.exists():
        table = add_to(CounterTable.read(out), imported)
    table.write(out)
    summary = {"rows": len(table.frame)}
    summary |= {f"{name}s": table.frame[name].n_unique() for name in ("run", "counter", "system")}
    if json:
        print_json({**summary, "out": out})
    else:
        _print_imported(imported)
        note(f"{out} holds {summary['rows']} values of {summary['runs']} runs now.")


def _print_imported(table: CounterTable) -> None:
    """Programs with their regions and metrics, by name."""
    rows = []
    for (program, size, system), part in table.frame.group_by(
        ["program", "size", "system"], maintain_order=True
    ):
        kernels = [name for name in part["kernel"].unique(maintain_order=True) if name]
        metrics = part["counter"].unique(maintain_order=True).to_list()
        rows.append((program, size, system, _some(kernels), _some(metrics), part["repeat"].n_unique()))
    columns = ("program", "input", "system", "regions", "metrics", "repeats")
    print_table(columns, rows, right=("repeats",), title="Imported")


def _some(names: list[str], most: int = 4) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _pairs(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(device and system for device, _, system in pairs):
        raise InvalidSetting(f"Devices are named DEVICE=SYSTEM with commas between them, not {text!r}")
    return {device: system for device, _, system in pairs}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidSetting(f"Sizes are numbers with commas between them, not {text!r}") from None
