"""`python -m reproduction collect`: configurations measured on this machine, in TpuGraphs' form."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from apportion.cli.show import note, print_json, print_table, progress
from apportion.settings import replace_file
from reproduction.collect import collectors
from reproduction.collect.base import CollectOptions
from reproduction.ranking.collection_page import collection_page

collect_app = App(name="collect", help="Measure configurations of kernels, publish and describe them.")

_Json = Annotated[bool, Parameter(negative="")]


@collect_app.command
def measure(
    what: Literal["triton", "blocked", "layout", "xla-gemm"],
    *,
    out: Path,
    graphs: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    configurations: int = CollectOptions.configurations,
    shapes: int | None = None,
    rounds: int = CollectOptions.rounds,
    seconds: float = CollectOptions.seconds,
    seed: int = 0,
    workers: int | None = None,
    compile_seconds: float | None = None,
    measure_seconds: float | None = None,
    compile_only: Annotated[bool, Parameter(negative="")] = False,
    measure_only: Annotated[bool, Parameter(negative="")] = False,
    json: _Json = False,
) -> None:
    """Measure configurations of kernels on this machine, every repeat kept, in TpuGraphs' form.

    Rounds are interleaved: every configuration once, in an order drawn anew, then all of them again. The same
    command after an interruption goes on where it was. A wrong or failing configuration is kept with its
    reason and left out of what is ranked.

    Args:
        what: Triton kernels' tiles on a GPU; tiles of blocked C kernels on this CPU; layouts of JAX programs
            on this CPU; tiles of XLA's matrix products on a GPU.
        out: The folder: runs/ has everything, tile/ or layout/ the published form.
        graphs: Families of kernels, or names of graphs; all when none is given.
        configurations: Of each graph, at most.
        shapes: Of each family, the first so many.
        rounds: How often each configuration is measured.
        seconds: What the rounds of one graph may take.
        seed: Draws configurations, data and orders.
        workers: Processes that compile.
        compile_seconds: What compiling may take in all; what is not compiled then is left out.
        measure_seconds: What measuring may take in all; the same command goes on with the next graph.
        compile_only: Compile Triton's kernels, which needs no GPU, and measure nothing.
        measure_only: Write runs/ and leave the published form to `collect publish`, which needs JAX.
        json: Print every graph as a line of JSON.
    """
    options = CollectOptions(
        graphs, configurations, shapes, rounds, seconds, seed, workers, compile_seconds, measure_seconds
    )
    if compile_only:
        _compile(out, options)
        return
    for done in progress(collectors.load(what)(out, options), label="measuring", quiet=json):
        if done.failure:
            note(f"{done.name}: {done.failure}")
        elif done.failed:
            note(f"{done.name}: {done.configurations} ran, {done.failed} failed, {done.seconds:.1f} s")
    if not measure_only:
        publish(out, json=json)


@collect_app.command
def programs(folder: Path, *, out: Path) -> None:
    """Make one table of what `python -m reproduction.collect.program_times` left of each system.

    Args:
        folder: Has a file of times for each system, and counters.jsonl.
        out: The table of counters and times (Parquet), as `apportion relative train` reads it.
    """
    from reproduction.collect.program_table import failures, program_table  # torch, which nothing else needs

    table = program_table(folder)
    table.write(out)
    failed = failures(folder)
    for system, run, reason in failed:
        note(f"{system}, {run}: {reason}")
    times = table.times()
    rows = [(name, int(times.mask[:, place].sum())) for place, name in enumerate(times.systems)]
    print_table(("system", "runs"), rows, right=("runs",))
    note(f"{out}: {int(times.mask.all(axis=1).sum())} runs on every system, {len(failed)} failures")


@collect_app.command
def publish(folder: Path, *, json: _Json = False) -> None:
    """Write what was measured in TpuGraphs' form, and say how far each graph can be trusted.

    Args:
        folder: What `python -m reproduction collect measure` wrote: runs/ is enough.
        json: Print every graph as a line of JSON.
    """
    # JAX is asked for only here: nothing that was measured is lost when it is not installed.
    from reproduction.collect.publish import publish as publish_graphs

    graphs_published = list(publish_graphs(folder))
    if json:
        for graph in graphs_published:
            print_json(graph)
        return
    columns = (
        "graph",
        "configurations",
        "failed",
        "rounds",
        "default slower by",
        "slowest / fastest",
        "ceiling tau-b",
    )
    rows = [
        (
            graph.name, graph.configurations, graph.failed, graph.rounds,
            "failed" if math.isnan(graph.default_slowdown) else f"{graph.default_slowdown:.1%}",
            f"{graph.spread:.2f}", f"{graph.ceiling.tau_b:.3f}",
        )
        for graph in graphs_published
    ]  # fmt: skip
    print_table(columns, rows, right=columns[1:])


@collect_app.command
def describe(
    folders: tuple[Path, ...],
    *,
    budgets: Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative="")] = (12, 24),
    seeds: int = 1,
    out: Path | None = None,
) -> None:
    """Say what collections hold, how far they can be trusted, and what measuring a few of each graph gives.

    Args:
        folders: What `python -m reproduction collect measure` wrote.
        budgets: How many configurations of each graph are measured when tuning is replayed.
        seeds: How often that is repeated.
        out: Write it there (Markdown) instead of printing it.
    """
    page = collection_page(folders, budgets, seeds=seeds)
    if out is None:
        print(page)
    else:
        replace_file(out, page)
        note(f"Wrote {out}")


def _compile(out: Path, options: CollectOptions) -> None:
    compiling = collectors.load("triton-compile")
    failed = [line for line in progress(compiling(out, options), label="compiling") if line["failure"]]
    note(f"{len(failed)} configurations could not be compiled" if failed else "Everything is compiled")
