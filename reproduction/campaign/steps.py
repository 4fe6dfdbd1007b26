"""The measuring campaign behind docs/results/campaign.md, in steps that fit a machine lent for minutes.

    python -m reproduction.campaign.steps pack KERNELS --cgo17 FOLDER    # where there is a compiler
    python -m reproduction.campaign.steps features KERNELS               # what models see of every case
    python -m reproduction.campaign.steps prepare KERNELS RESULTS --devices cpu  # compile; may share it
    python -m reproduction.campaign.steps prepare KERNELS RESULTS        # try everything on all devices
    python -m reproduction.campaign.steps measure KERNELS RESULTS --seconds 180
    python -m reproduction.campaign.steps systems KERNELS RESULTS --seconds 40
    python -m reproduction.campaign.steps fit KERNELS RESULTS            # a model that never saw the suite
    python -m reproduction.campaign.steps suite KERNELS RESULTS efficiency --large  # without a compiler
    python -m reproduction campaign --results RESULTS --kernels KERNELS --ship

`tools/campaign.sh` puts the steps together for a machine that is lent.
Kernels are the generator's, those of CGO17 that compile, and the suite's. They are measured in a random order
that is the same on every machine: first every kernel at two sizes, then at more. What is done when time is up
is a balanced sample. Every step goes on where it was stopped; with `PART=1/3` in the environment a step takes
a third of the kernels, for machines that are lent several times: copy `journal.jsonl` to the next RESULTS.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import sys
import threading
import time
from collections.abc import Container, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from apportion.data.published import cgo17
from apportion.errors import ApportionError
from apportion.jobs import LocalRunner
from apportion.jobs.journal import Entry, Journal
from apportion.measure.campaign import Campaign, read_journal, run_campaign, write_table
from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.signature import signatures_of
from apportion.program.source import Source
from apportion.runtime.base import Limits, info_from
from apportion.runtime.default_arguments import cases_of
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.sampling import Repeats
from apportion.runtime.workload import Case, Workload, from_json
from apportion.settings import cache_folder
from apportion.suite import PROBLEMS
from apportion.suite.generator import Rejected, generate
from reproduction.__main__ import main as reproduce
from reproduction.campaign.preparing import PreparedWorkload, prepare
from reproduction.campaign.suite_workloads import SUITE, keep_instances, kept_instance, workloads_of
from reproduction.packed_ir import use

SEED = 1
ARRAYS = Path("/tmp/apportion-suite")
"Where the suite's arrays lie while they are measured: part of what a case is called."
SUITE_SIZES = (1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22)
CGO17_SIZES = (1 << 12, 1 << 15, 1 << 18, 1 << 20)
LARGE = 0.15
"The part of the kernels whose largest size comes early: such launches take a tenth of a second each."
SYSTEM_ITEMS = 1 << 18
CAMPAIGN = Campaign(
    repeats=Repeats(least=4, most=7, seconds=0.03),
    shares=(1.0, 0.3),
    most_seconds=0.2,
    visit_seconds=8.0,
)
LIMITS = Limits(seconds=30.0, memory_bytes=64 << 30)


class Everything:
    """A container that holds everything: no kernel is run where kernels are packed."""

    def __contains__(self, name: object) -> bool:
        return True


# Packing


def pack(out: Path, folder: Path, count: int) -> None:
    """Write what the other steps need: kernels with their IR and cases, and the features of every case."""
    out.mkdir(parents=True, exist_ok=True)
    workloads = [*_generated(count), *_cgo17(folder)]
    rows = [
        {
            **each.as_json(),
            "cases": json.dumps(each.as_json()["cases"]),
            "digest": each.digest,
            "ir": _ir(each),
        }
        for each in workloads
    ]
    pl.DataFrame(rows).write_parquet(out / "kernels.parquet", compression="zstd", compression_level=19)
    sources = {problem.file: problem.source() for problem in PROBLEMS.values()}
    pl.DataFrame(
        [{"digest": each.digest, "ir": ir_of(each), "source": str(each.text)} for each in sources.values()]
    ).write_parquet(out / "suite.parquet", compression="zstd", compression_level=19)
    print(f"{len(workloads)} kernels, {sum(len(w.cases) for w in workloads)} cases")


def _generated(count: int) -> Iterator[Workload]:
    for made in generate(count, SEED, None, verified=Everything()):  # type: ignore[arg-type]
        if not isinstance(made, Rejected):
            yield made.workload()


def _cgo17(folder: Path) -> Iterator[Workload]:
    seen: set[str] = set()
    for example in cgo17.read(folder):
        source = Source(str(example.source), "opencl", f"{example.application}-{example.kernel}.cl")
        if source.digest in seen:
            continue
        seen.add(source.digest)
        text = str(source.text)
        try:
            ir = ir_of(source)
            accesses = accesses_of(ir, text)
            for name, signature in signatures_of(ir, text).items():
                cases = cases_of(signature, accesses[name], text, CGO17_SIZES, (64, 256))
                yield Workload(
                    f"{example.application}-{example.kernel}", example.suite, text, name, tuple(cases)
                )
        except ApportionError as error:
            print(f"{source.name}: {str(error).splitlines()[0][:120]}", file=sys.stderr)


def _suite() -> list[Workload]:
    """The suite's kernels; the arrays of their cases are written where they are not yet."""
    found = []
    for problem in PROBLEMS.values():
        cases = [pair for size in SUITE_SIZES for pair in kept_instance(problem, size, ARRAYS)]
        found += workloads_of(problem, cases)
    return found


def _ir(workload: Workload) -> str:
    return ir_of(Source(workload.source, "opencl", f"{workload.name}.cl"))


def features(out: Path, processes: int) -> None:
    """Write the features of every case, so that a model can be fitted at once where times are measured."""
    from apportion.learn.times.campaign_table import described_of

    ir = _carried(out)
    work = [*_packed(out), *_suite()]
    items = [(each, ir[each.digest]) for each in work]
    found = {each.item_index: each.unwrap() for each in LocalRunner(processes).map(described_of, items)}
    rows = [row for number in sorted(found) for row in found[number]]
    pl.DataFrame(rows).write_parquet(out / "features.parquet", compression="zstd", compression_level=19)
    print(f"{len(rows)} cases described")


# On the machine


def _packed(folder: Path) -> list[Workload]:
    """The packed kernels, or of several parts of them (`PART=2/3`) those that are in this one."""
    number, _, parts = os.environ.get("PART", "1/1").partition("/")
    return [
        from_json({**row, "cases": json.loads(row["cases"])})
        for row in pl.read_parquet(folder / "kernels.parquet").iter_rows(named=True)
        if int(row["digest"][:8], 16) % int(parts) == int(number) - 1
    ]


def _carried(folder: Path) -> dict[str, str]:
    """Digest of a source → its IR."""
    tables = [
        pl.read_parquet(folder / file).select("digest", "ir") for file in ("kernels.parquet", "suite.parquet")
    ]
    return {digest: ir for table in tables for digest, ir in table.iter_rows()}


def prepare_all(
    folder: Path, results: Path, processes: int, seconds: float, devices: tuple[str, ...] = ()
) -> None:
    """Compile every kernel for every device, run it once and compare results; or for some devices, alone.

    Compiling for a CPU takes longest, and can be done while others use the GPU; what fails then is not tried
    again on all.
    """
    results.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    ir = _carried(folder)
    alone, journal = (Journal(results / f"{name}.jsonl", sync=False) for name in ("compiled", "prepared"))
    if devices:
        journal = alone
    done = {line["called"] for line in journal.entries()}
    impossible = [line for line in alone.entries() if line["failure"] and line["called"] not in done]
    if not devices:
        journal.add(*impossible)
    done |= {line["called"] for line in impossible}
    packed = _packed(folder)

    def workloads() -> Iterator[Workload]:
        # Those last that may not end, or crash: published ones, whose arguments are deduced.
        yield from (each for each in packed if each.suite == "generated")
        _make_arrays(processes)  # not meanwhile: gigabytes of new memory slow compilers down
        yield from _suite()
        published = [each for each in packed if each.suite != "generated"]
        random.Random(SEED).shuffle(published)  # should time be up, some of every suite are there
        yield from published

    lock = threading.Lock()
    with journal.alone():

        def report(prepared: PreparedWorkload) -> None:
            each = prepared.workload
            with lock:
                journal.add(
                    {
                        "called": _called(each),
                        "name": each.name,
                        "suite": each.suite,
                        "kernel": each.kernel,
                        "failure": prepared.failure,
                        "said": prepared.said,
                    }
                )
                done.add(_called(each))
                if len(done) % 50 == 0:
                    print(f"{len(done)} prepared after {time.monotonic() - began:.1f} s", flush=True)

        prepare(
            (each for each in workloads() if _called(each) not in done),
            dataclasses.replace(CAMPAIGN, devices=devices, binaries=_binaries(), visit_seconds=10.0),
            processes=processes, drivers=DriverOptions(threads=1), limits=LIMITS,
            compiled=lambda each: ir[each.digest], report=report, until=began + seconds,
        )  # fmt: skip
    failed = [bool(line["failure"]) for line in journal.entries()]
    print(f"{len(failed)} prepared in {time.monotonic() - began:.0f} s, {sum(failed)} failed")


def _make_arrays(processes: int) -> None:
    """The suite's arrays, where workers find them.

    Raises:
        ApportionError: some could not be made.
    """
    work = partial(keep_instances, ARRAYS, SUITE_SIZES)
    for outcome in LocalRunner(processes).map(work, list(PROBLEMS)):
        if outcome.error is not None:
            raise outcome.error


def _binaries() -> str:
    return str(cache_folder("campaign-binaries"))


def _called(workload: Workload) -> str:
    return f"{workload.digest}:{workload.kernel}:{workload.name}"


def _prepared(results: Path) -> list[Entry]:
    return Journal(results / "prepared.jsonl").entries()


def measure(folder: Path, results: Path, seconds: float, passes: int = 1, sample: int = 900) -> None:
    """Measure for so many seconds; with several passes a sample of what was measured before, until it was so
    often."""
    until = time.monotonic() + seconds
    ir = _carried(folder)
    # What was tried on one device alone is compiled for the others as it comes; visits compare results too.
    compiled = Journal(results / "compiled.jsonl").entries()
    tried = {line["called"]: line for line in (*compiled, *_prepared(results))}
    good = {name for name, line in tried.items() if not line["failure"] and not line["said"]}
    workloads = [each for each in (*_suite(), *_packed(folder)) if _called(each) in good]
    print(f"{len(workloads)} kernels of {len(tried)} that were tried", flush=True)
    with OpenCLBackend(DriverOptions(), LIMITS) as backend:
        infos = [dataclasses.asdict(info) for info in backend.calibrate()]
    (results / "devices.json").write_text(json.dumps(infos, indent=1))
    campaign = dataclasses.replace(CAMPAIGN, binaries=_binaries(), passes=passes)
    found = run_campaign(
        ordered(workloads) if passes == 1 else _again(workloads, results, sample),
        results,
        campaign,
        limits=LIMITS,
        compiled=lambda each: ir[each.digest],
        until=until,
    )
    points = failures = 0
    for point in found:
        points += 1
        failures += bool(point.failure)
        if points % 1000 == 0:
            print(f"{points} points, {failures} failures, {until - time.monotonic():.0f} s left", flush=True)
    print(f"{points} points, {failures} failures")


def _again(workloads: Iterable[Workload], results: Path, sample: int) -> list[Workload]:
    """A sample of what was measured before, the same on every machine, and all of the suite's.

    What there is of a kernel comes at once, since loading it takes longer than a launch."""
    from apportion.learn.times.campaign_table import key_of, key_of_point

    known = {key_of_point(point): point["suite"] for point in read_journal(results) if not point["failure"]}
    others = [case for case, suite in known.items() if suite != SUITE]
    random.Random(SEED).shuffle(others)
    chosen = set(others[:sample])
    cases = (
        (each, tuple(case for case in each.cases if each.suite == SUITE or key_of(each, case) in chosen))
        for each in workloads
    )
    kept = [dataclasses.replace(each, cases=some) for each, some in cases if some]
    random.Random(SEED).shuffle(kept)
    return kept


def ordered(workloads: Iterable[Workload]) -> list[Workload]:
    """Kernels in random order, each in several parts: two sizes of each first, then more."""
    generator = random.Random(SEED)
    passes: list[list[Workload]] = [[], [], []]
    for workload in workloads:
        for number, cases in enumerate(_parts(workload, generator)):
            if cases:
                passes[number].append(dataclasses.replace(workload, cases=tuple(cases)))
    for part in passes:
        generator.shuffle(part)
    return [workload for part in passes for workload in part]


def _parts(workload: Workload, generator: random.Random) -> list[list[Case]]:
    """The cases of the first, second and third pass."""
    by_size: dict[int, list[Case]] = {}
    for case in sorted(workload.cases, key=lambda case: case.span.work_items):
        by_size.setdefault(case.span.work_items, []).append(case)
    sizes = list(by_size.values())
    for cases in sizes:
        generator.shuffle(cases)
    if len(sizes) < 3:
        return [
            [case for cases in sizes for case in cases[:1]],
            [c for cases in sizes for c in cases[1:]],
            [],
        ]
    early = generator.random() < LARGE or workload.suite == "apportion"
    first = [sizes[-3][0], sizes[-2][0], *(sizes[-1][:1] if early else [])]
    second = [*(cases[0] for cases in sizes[:-3]), *sizes[-2][1:2], *sizes[-3][1:2]]
    taken = {id(case) for case in (*first, *second)}
    return [first, second, [case for case in workload.cases if id(case) not in taken]]


def systems(folder: Path, results: Path, seconds: float) -> None:
    """Some kernels with the CPU as 1 and as 4 processors, at ranges that the campaign measured with all of
    them and on the GPU."""
    ir = _carried(folder)
    good = {line["called"] for line in _prepared(results) if not line["failure"] and not line["said"]}
    measured = {
        (point["digest"], point["kernel"], point["work_items"], point["group_items"])
        for point in read_journal(results)
        if point["device"] != "cpu" and not point["failure"]
    }
    every = [*_suite(), *(each for each in _packed(folder) if each.suite in cgo17.SUITES)]
    kept = [(each, _small(each, measured)) for each in every if _called(each) in good]
    chosen = [dataclasses.replace(each, cases=cases) for each, cases in kept if cases]
    random.Random(SEED).shuffle(chosen)
    campaign = dataclasses.replace(CAMPAIGN, devices=("cpu",), shares=(1.0,), most_seconds=1.0)
    for threads in (1, 4):
        until = time.monotonic() + seconds / 2
        found = run_campaign(
            chosen, results / f"cpu-{threads}", campaign, limits=LIMITS,
            drivers=DriverOptions(threads=threads), compiled=lambda each: ir[each.digest], until=until,
        )  # fmt: skip
        print(f"{threads} processors: {sum(1 for point in found if not point.failure)} points", flush=True)


def _small(workload: Workload, measured: Container[tuple[str, str, int, int]]) -> tuple[Case, ...]:
    """Two of its ranges that were measured and that a single processor does quickly."""
    by_size: dict[int, Case] = {}
    for case in workload.cases:
        items, group = case.span.work_items, math.prod(case.span.local_size)
        if items <= SYSTEM_ITEMS and (workload.digest, workload.kernel, items, group) in measured:
            by_size.setdefault(items, case)
    return tuple(by_size[items] for items in sorted(by_size)[-2:])


def fit(folder: Path, results: Path) -> None:
    """Fit the timing model to what was measured of other kernels than the suite's, here or, where nothing
    was, in the shipped campaign, and put it where predictions find it."""

    from apportion.learn.base import list_again
    from apportion.learn.times.campaign_table import from_described, read_table
    from apportion.learn.times.fitting_times import fit_timing
    from apportion.weights import WEIGHTS
    from reproduction.campaign.run import PREFERRED, shipped

    began = time.monotonic()
    if (results / "devices.json").exists():
        if not (results / "measurements.parquet").exists():
            write_table(results)
        points = pl.read_parquet(results / "measurements.parquet")
        described = pl.read_parquet(folder / "features.parquet")
        devices = {info["id"]: info for info in json.loads((results / "devices.json").read_text())}
        first, second, *_ = devices
        table, _ = read_table(points, from_described(described), (first, second))
        known = [info_from(devices[name]) for name in table.devices]
        names, speeds = [info.name for info in known], [info.speeds() for info in known]
    else:
        table, about = shipped(PREFERRED)
        names, speeds = about["device_names"], about["speeds"]
    others = table.part(np.array(table.suites) != SUITE)
    model = fit_timing(
        others, PREFERRED, spreads=(0.5, 0.5),
        device_names=(names[0], names[1]), speeds=(speeds[0], speeds[1]),
        about={"experiment": "reproduction.campaign.steps fit: without the suite", "about": PREFERRED},
    )  # fmt: skip
    model.save(WEIGHTS / "timing")
    list_again(WEIGHTS)
    print(f"{len(others)} launches of {len(set(others.digests))} kernels, {time.monotonic() - began:.1f} s")


def suite(folder: Path, words: list[str]) -> None:
    """A reproduction over the suite's kernels where there is no compiler: the suite's IR was packed."""
    known = dict(pl.read_parquet(folder / "suite.parquet").select("digest", "ir").iter_rows())
    use(known)
    reproduce(words)


def tables(results: Path) -> None:
    """Write the journals as tables, also those of a run that was stopped."""
    for folder in (results, *sorted(results.glob("cpu-*"))):
        write_table(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    steps = ("pack", "features", "prepare", "measure", "systems", "table", "fit", "suite")
    parser.add_argument("step", choices=steps)
    parser.add_argument("kernels", type=Path)
    parser.add_argument("results", type=Path, nargs="?", default=Path("out/campaign"))
    parser.add_argument("--cgo17", type=Path, default=Path("../shared/data/cgo17"))
    parser.add_argument("--count", type=int, default=1050)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--passes", type=int, default=1, help="measure: so often, a sample")
    parser.add_argument("--sample", type=int, default=900, help="measure: with several passes, so many")
    parser.add_argument("--devices", nargs="*", default=(), help="prepare: for these alone")
    asked, words = parser.parse_known_args()
    if asked.step == "suite":
        suite(asked.kernels, words)
        return
    if words:
        parser.error(f"unknown: {' '.join(words)}")
    steps_done = {
        "pack": lambda: pack(asked.kernels, asked.cgo17, asked.count),
        "features": lambda: features(asked.kernels, asked.processes),
        "prepare": lambda: prepare_all(
            asked.kernels, asked.results, asked.processes, asked.seconds, tuple(asked.devices)
        ),
        "measure": lambda: measure(asked.kernels, asked.results, asked.seconds, asked.passes, asked.sample),
        "systems": lambda: systems(asked.kernels, asked.results, asked.seconds),
        "table": lambda: tables(asked.results),
        "fit": lambda: fit(asked.kernels, asked.results),
    }
    steps_done[asked.step]()


if __name__ == "__main__":
    main()
