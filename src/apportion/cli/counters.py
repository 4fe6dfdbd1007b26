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
    """Say which counters this machine gives, and from which source, by counting something small.

    Args:
        json: Print one JSON object: each counter from each source with its value, or with why there is none
            and what to do about it.
    """
    found, names = probe_and_keep()
    if json:
        entries = [{**vars(one), "problem": one.problem, "works": one.works} for one in found]
        print_json({"counters": entries, "chosen": names})
        return
    print_table(
        ("quantity", "counter", "sources that work", "exactness", "counted"),
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
        command: The program and its arguments. It reads `--stdin`; its output is thrown away.
        repeat: How often to run it under each source.
        source: Use only the sources that you name. By default those that `apportion counters probe` chooses.
        out: A Parquet file for the table. Rows are added to those in it; if a later repeat fails, the
            finished ones are in it.
        seconds: The deadline of one run of the command. Some sources make it much slower.
        stdin: A file that the command reads as its standard input.
        exit_status: The exit status that means success.
        program: A name for the command in the table. By default that of its executable.
        size: A description of its input for the table. By default its arguments.
        system: A name for this machine in the table. By default its host name.
        json: Print one line of JSON for each value.
    """
    wanted = Command(tuple(command), stdin, seconds, exit_status)
    for name in source:
        if name not in known_sources:
            raise UnknownName("counter source", name, known_sources)
    names: Sequence[str] = source or usual_sources()
    known = _known(out)
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
                whole = add_to(known, table)
                whole.write(out)
                note(f"Added {len(rows)} values to {out}; {_held(whole)}.")
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
        source: A file of OpenCL C.
        global_size: All work-items: `1048576`, or `1024x1024` for two dimensions.
        local_size: The work-items of a work-group, such as `64` or `16x16`. By default 64 in all, or fewer if
            64 does not divide the global size.
        kernel: The kernel's name, if the file has several.
        arg: One argument of the kernel, written as for `apportion run`. Arguments that you leave out are
            assumed from the code and printed.
        groups: Run only this many work-groups, evenly spaced, and extrapolate. Counters that depend on all of
            memory are then missing.
        seed: Seed of the random numbers in arrays that you did not give.
        seconds: The deadline, in seconds.
        instructions: Stop with an error after this many instructions.
        out: A Parquet file for the table. Rows are added to those in it.
        json: Print one JSON object.
    """
    from apportion.measure.counters.profile_file import (
        profile_file,  # llvmlite and the compiler are only for kernels
    )

    known = _known(out)
    profile, assumed, table = profile_file(
        building.source(source, "opencl"), kernel, sizes_of(global_size, "--global-size"),
        None if local_size is None else sizes_of(local_size, "--local-size"), arg, groups=groups, seed=seed,
        seconds=seconds, instructions=instructions,
    )  # fmt: skip
    if out is not None:
        add_to(known, table).write(out)
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
        files: Files of OpenCL C, or folders of `.cl` files. Their arguments are those that `apportion
            measure` uses.
        out: The Parquet file for the table. A journal beside it lets an interrupted run continue.
        suite: Also count the kernels of the bundled suite, and verify each.
        sizes: The numbers of work-items, separated by commas.
        local_sizes: The work-group sizes, separated by commas. The suite has its own.
        workloads: A file with one workload (JSON) a line, or a `.parquet` file of packed kernels.
        cgo17: The folder of the CGO17 tables. Their kernels are counted too, with arguments assumed from
            their code.
        times: A `measurements.parquet` of `apportion measure`, whose times join the table. You may rename its
            devices: `out/measurements.parquet:cpu=xeon,gpu=h200`.
        timed: Count only launches that `--times` has a time for on every system.
        graphs: Add how many nodes and edges of each kind the program graph of each kernel has.
        processes: How many launches to count at once.
        seconds: The deadline of one launch, in seconds.
        instructions: How many instructions one launch may execute.
        json: Print one line of JSON for each launch.
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
        measured = measured.about(runs=wanted)
        items = batch.items_among(items, wanted)
        if not items:
            raise InvalidSetting(f"Of {len(wanted)} launches with a time on every system none was given")
        note(f"{len(wanted)} launches have a time on every system; {len(items)} items are counted for them.")
    limits = CountLimits(seconds=seconds, instructions=instructions)
    failures = 0
    for one in progress(
        batch.count_all(items, out, limits=limits, workers=processes, runs=wanted if timed else None),
        label="Counting", total=len(items), quiet=json,
    ):  # fmt: skip
        failures += bool(one.failure)
        if json:
            print_json({"name": one.name, "values": len(one.rows), "failure": one.failure})
        elif one.failure:
            note(f"{one.name}: {one.failure}")
    table = CounterTable.read(out).updated(measured)
    if graphs:
        runs_with_code = set(table.frame["run"])
        described = batch.graphs_of(items, runs_with_code)
        table = table.updated(described)
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
        files: Files that `perf stat -j`, `perf stat -x,`, `perf script`, PAPI's high-level interface,
            Caliper, HPCToolkit (a folder), `ncu --csv` or Nsight Compute (if `ncu` is installed) wrote, or
            plain CSV.
        out: The Parquet file for the table. New rows are added to those in it; a run that it has already gets
            one more repeat.
        format: The format of the files: auto, perf, perf-script, papi, caliper, hpctoolkit, ncu or csv.
        map: A TOML file: [counters] renames counters, [columns] says what the columns of a CSV file are, and
            [seconds] which of them are times and in which unit.
        program: A name for the program, if the files have none.
        system: A name for the machine, if the files have none.
        size: A description of the input, if the files have none.
        json: Print one JSON object.
    """
    if not files:
        raise InvalidSetting("There is nothing to import: give files")
    known = _known(out)
    imported = import_files(files, ImportOptions(program, system, size, read_map(map)), format)
    table = add_to(known, imported)
    table.write(out)
    summary = {"rows": len(table.frame)}
    summary |= {f"{name}s": table.frame[name].n_unique() for name in ("run", "counter", "system")}
    if json:
        print_json({**summary, "out": out})
    else:
        _print_imported(imported)
        note(f"{out}: {_held(table)}.")


def _known(out: Path | None) -> CounterTable:
    """What a table holds before anything is counted, so that a file of another kind is told now."""
    return CounterTable.read(out) if out is not None and out.exists() else CounterTable.of([])


def _held(table: CounterTable) -> str:
    return f"it holds {len(table.frame)} values of {table.frame['run'].n_unique()} runs now"


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
