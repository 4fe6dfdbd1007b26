"""A measuring campaign: workloads × ranges × devices, as a table that only grows.

Every case is one visit: all devices in turn, warmed up, shares of the range interleaved,
repeated until the interval is narrow. Its points are in the journal, one line of JSON each, before the
next visit begins; what is there already is not measured again. Launches of the visit in flight are in a file
of their own, each as soon as it is measured: killing the process at any moment loses one launch. The journal
becomes a Parquet file at the end of every run, failures included.
"""

from __future__ import annotations

import hashlib
import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from apportion.errors import ApportionError, InvalidSetting, UnknownName, UnreadableFile
from apportion.jobs.holding import held
from apportion.jobs.journal import Journal
from apportion.program.compile import CompileOptions, driver_options, driver_text, ir_of
from apportion.program.kernel.access import KernelAccess, accesses_of
from apportion.program.kernel.signature import Signature, signatures_of
from apportion.program.source import Source
from apportion.program.untrusted import check_runnable
from apportion.runtime.backend import Backend, open_backend
from apportion.runtime.base import DeviceInfo, Limits
from apportion.runtime.default_arguments import cases_of
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.sampling import Repeats, summary
from apportion.runtime.visit import SHARES, Launched, Seen, Visit, plan_of
from apportion.runtime.workload import Case, Workload, described
from apportion.settings import whole_file

JOURNAL = "journal.jsonl"
LAUNCHES = "launches.jsonl"
"Of the visit in flight."
TABLE = "measurements.parquet"
_BREAKING = ("WorkerCrashed", "DeadlineExceeded", "LaunchFailed")
"Failures after which a worker begins anew, drivers and all: seconds, in which dozens of others are measured."
_BREAKS = 2
"A kernel that did so at this many ranges is not tried at others."
Compiled = Callable[[Workload], str]
"Where the LLVM IR of a workload comes from."


@dataclass(frozen=True)
class Campaign:
    """How to measure."""

    sizes: tuple[int, ...] = (1 << 12, 1 << 16, 1 << 20)
    "About how many work-items kernels get that say nothing of sizes themselves."
    local_sizes: tuple[int, ...] = (64, 256)
    devices: tuple[str, ...] = ()
    "Ids; all when empty."
    repeats: Repeats = field(default_factory=lambda: Repeats(least=3, most=20, seconds=2.0))
    shares: tuple[float, ...] = SHARES
    most_seconds: float = 2.0
    "A range is left out when a launch over it would take longer, by what a smaller one took."
    visit_seconds: float = 60.0
    "The deadline of one visit, compiling included."
    trust_source: bool = False
    "Run sources that have inline assembly, or code for some compilers only."
    binaries: str = ""
    "A folder where compiled programs are kept for later runs, beside what drivers keep themselves."
    retry: bool = False
    "Whether points that failed in an earlier run are measured again."
    passes: int = 1
    """How often every point is measured, in passes over everything: a machine that others use too is faster
    at one time than at another, by more than a visit's own interval says."""

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1 or not self.local_sizes or min(self.local_sizes) < 1:
            raise InvalidSetting("A campaign needs sizes and work-group sizes above 0")
        if self.passes < 1:
            raise InvalidSetting(f"A campaign makes at least one pass, not {self.passes}")
        if self.most_seconds <= 0 or self.visit_seconds <= 0:
            raise InvalidSetting("most_seconds and visit_seconds must be more than 0")


@dataclass(frozen=True)
class Point:
    """One device at one range, or the reason why there is no measurement; times in seconds."""

    key: str
    source: str
    suite: str = ""
    digest: str = ""
    kernel: str = ""
    global_size: str = ""
    "`1024x64`: work-items per dimension."
    local_size: str = ""
    work_items: int = 0
    group_items: int = 0
    arguments: str = ""
    device: str = ""
    device_name: str = ""
    driver: str = ""
    bytes_moved: int = 0
    "The size of all arrays."
    seconds: float | None = None
    "The median over launches of the whole range, transfers included."
    seconds_low: float | None = None
    seconds_high: float | None = None
    upload: float | None = None
    kernel_seconds: float | None = None
    download: float | None = None
    fixed: float | None = None
    rate: float | None = None
    "seconds ≈ fixed + rate × share of the range, fitted to launches of all, half and a quarter of it."
    shares: str = ""
    "`0.5:0.001,…`: median seconds of launches of parts of the range."
    repeats: int = 0
    agrees: bool | None = None
    "Whether the results are those of the first device; None where there is nothing to compare."
    joules: float | None = None
    "Energy of all launches together, by the machine's meters, where they were switched on."
    counters: str = ""
    "`page faults:12,…`: how much the system's counters grew in all launches together, likewise."
    failure: str = ""
    measured_at: float = field(default_factory=time.time)


def run_campaign(
    workloads: Iterable[Workload | Point],
    folder: Path,
    campaign: Campaign,
    *,
    limits: Limits | None = None,
    drivers: DriverOptions = DEFAULT_DRIVERS,
    backend: str = "opencl",
    compiled: Compiled | None = None,
    until: float | None = None,
) -> Iterator[Point]:
    """Measure what the folder does not hold yet, point by point; each is in the journal when it is yielded.

    Args:
        workloads: what to measure, or points of sources that could not be read.
        backend: the name of the backend that has the devices.
        compiled: where IR comes from; compiled when not given.
        until: when to stop, by `time.monotonic`.

    Raises:
        UnreadableFile, AlreadyWritten: the folder cannot be written to, or another run writes to it.
    """
    with held(folder):
        # An entry that the system has outlives this process; waiting for the disk would disturb timings.
        journal = Journal(folder / JOURNAL, sync=False)
        done: Counter[str] = Counter()
        for said in journal.entries():
            done[said["key"]] += not said.get("failure")
        if campaign.retry:
            done = Counter({key: times for key, times in done.items() if times})
        with (
            open_backend(backend, drivers, limits) as opened,
            journal.alone(),
            _Flight(folder / LAUNCHES) as flight,
        ):
            # What is asked for may come one by one, and be compiled meanwhile.
            kept: list[Workload | Point] = []
            for number in range(1, campaign.passes + 1):
                asked = _keeping(workloads, kept) if number == 1 else kept
                for points in _visits(asked, campaign, opened, done, compiled or _ir, until, flight, number):
                    journal.add(*(asdict(point) for point in points))
                    flight.landed()
                    for point in points:
                        done[point.key] += not point.failure
                    yield from points
        write_table(folder)


def _keeping(
    workloads: Iterable[Workload | Point], kept: list[Workload | Point]
) -> Iterator[Workload | Point]:
    for workload in workloads:
        kept.append(workload)
        yield workload


class _Flight:
    """Launches of the visit in flight, in a file: a campaign that was killed goes on after the last one."""

    def __init__(self, path: Path) -> None:
        self.known: dict[str, list[Launched]] = {}
        self._journal = Journal(path, sync=False)
        for said in self._journal.entries():
            self.known.setdefault(said.pop("key"), []).append(Launched(**said))
        self._held = ExitStack()
        self._held.enter_context(self._journal.alone())

    def add(self, key: str, launched: Launched) -> None:
        """Keep a launch of the point of this key."""
        self._journal.add({"key": key, **asdict(launched)})

    def landed(self) -> None:
        """The journal has everything: begin anew."""
        self._journal.keep(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """Every point of a folder."""
    return Journal(folder / JOURNAL).entries()


def write_table(folder: Path) -> Path:
    """The journal as a Parquet file: a point as often as it was measured, or what came of it last."""
    path = folder / TABLE
    journal = read_journal(folder)
    measured = {point["key"] for point in journal if not point.get("failure")}
    failed = {point["key"]: point for point in journal if point["key"] not in measured}
    points = [point for point in journal if not point.get("failure")] + list(failed.values())
    if points:
        with whole_file(path) as part:
            pl.DataFrame(points, infer_schema_length=None).write_parquet(part, compression="zstd")
    return path


def kernel_files(paths: Iterable[Path]) -> list[Path]:
    """Files as they are given, and for a folder the `.cl` files in it and below.

    Raises:
        UnreadableFile: a path that is not there, or a folder without kernels.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UnreadableFile(f"There is no file or folder {path}")
        files = sorted(path.rglob("*.cl")) if path.is_dir() else [path]
        if not files:
            raise UnreadableFile(f"There is no .cl file in {path}")
        found += files
    return found


def asked_for(known: Sequence[DeviceInfo], names: Sequence[str]) -> list[DeviceInfo]:
    """The devices of these ids; all where none is named.

    Raises:
        UnknownName: a device that there is not.
    """
    ids = [info.id for info in known]
    for name in names:
        if name not in ids:
            raise UnknownName("device", name, ids)
    return [info for info in known if not names or info.id in names]


def _opencl(path: Path) -> Source:
    return Source.read(path, "opencl")


def workloads_of(
    sources: Iterable[Path],
    campaign: Campaign,
    read: Callable[[Path], Source] = _opencl,
) -> Iterator[Workload | Point]:
    """What files of OpenCL C ask to be measured, each content once: as the `.json` beside them says, else
    with arguments deduced from the code. A file that cannot be used is a point with its reason.

    Args:
        read: the source in a file, compiled as whoever asks wants it.
    """
    seen: set[str] = set()
    for path in sources:
        digest = ""
        try:
            source = read(path)
            digest = source.digest
            if digest in seen:
                continue
            seen.add(digest)
            said = described(path, source)
            yield from [said] if said is not None else _deduced(source, campaign)
        except ApportionError as error:
            yield Point(_key(digest or path, "compile"), path.name, digest=digest, failure=_words(error))


def _deduced(source: Source, campaign: Campaign) -> Iterator[Workload | Point]:
    text = str(source.text)
    ir = ir_of(source)
    accesses = accesses_of(ir, text)
    for name, signature in signatures_of(ir, text).items():
        try:
            cases = cases_of(signature, accesses[name], text, campaign.sizes, campaign.local_sizes)
            words = driver_options(source, CompileOptions())
            yield Workload(
                Path(source.name).name, "", driver_text(source, CompileOptions()), name, tuple(cases), words
            )
        except ApportionError as error:
            key = _key(source.digest, name, "arguments")
            yield Point(key, Path(source.name).name, digest=source.digest, kernel=name, failure=_words(error))


def _ir(workload: Workload) -> str:
    return ir_of(workload.program)


@cache
def _read(ir: str, source: str) -> tuple[dict[str, Signature], dict[str, KernelAccess]]:
    return signatures_of(ir, source), accesses_of(ir, source)


def _visits(
    workloads: Iterable[Workload | Point],
    campaign: Campaign,
    backend: Backend,
    done: Mapping[str, int],
    compiled: Compiled,
    until: float | None,
    flight: _Flight,
    number: int,
) -> Iterator[list[Point]]:
    """What the pass of this number has to measure: what is not `done` (key → how often, 0 for failures)."""
    infos = asked_for(backend.devices(), campaign.devices)
    taken: dict[tuple[str, str], list[tuple[int, float]]] = {}
    broken: Counter[tuple[str, str]] = Counter()
    for workload in workloads:
        if isinstance(workload, Point):
            if workload.key not in done:
                yield [workload]
            continue
        for case in sorted(workload.cases, key=lambda case: case.span.work_items):
            if until is not None and time.monotonic() > until:
                return
            try:
                starts = {info.id: _start(workload, case, info) for info in infos}
            except ApportionError as error:
                point = _unread(workload, case, error)
                if point.key not in done:
                    yield [point]
                continue
            left = [info.id for info in infos if _wanted(starts[info.id].key, done, number)]
            if not left:
                continue
            # A kernel may come in several parts: what its first ones took counts for the later ones.
            kernel = (workload.digest, workload.kernel)
            smaller = taken.setdefault(kernel, [])
            expected = _expected(smaller, case.span.work_items)
            reason = ""
            if expected > campaign.most_seconds:
                reason = f"Skipped: a launch would take about {expected:.2g} s"
            elif broken[kernel] >= _BREAKS:
                reason = f"Skipped: this kernel broke {_BREAKS} workers at other ranges"
            if reason:
                yield [replace(starts[device], failure=reason) for device in left]
                continue
            # Results are compared also with those of a device that an earlier run measured.
            first = infos[0].id
            reference = [first] if first not in left and done[starts[first].key] else []
            asked = [starts[device] for device in (*reference, *left)]
            visited = _visit(workload, case, asked, campaign, backend, compiled, flight)
            points = [point for point in visited if point.device in left]
            broken[kernel] += any(point.failure.startswith(_BREAKING) for point in points)
            longest = max((point.seconds or 0.0 for point in points), default=0.0)
            insort(smaller, (case.span.work_items, longest))
            yield points


def _wanted(key: str, done: Mapping[str, int], number: int) -> bool:
    return key not in done or 0 < done[key] < number


def _expected(taken: Sequence[tuple[int, float]], items: int) -> float:
    """Seconds that a launch will take, by smaller ones: at least in proportion, more where they grew."""
    taken = [one for one in taken if one[0] < items]
    if not taken or not taken[-1][1]:
        return 0.0
    power = 1.0
    if len(taken) > 1 and taken[-2][1] and taken[-1][0] > taken[-2][0]:
        (less, quick), (more, slow) = taken[-2:]
        power = float(np.clip(np.log(slow / quick) / np.log(more / less), 1.0, 3.0))
    return float(taken[-1][1] * (items / taken[-1][0]) ** power)


def _start(workload: Workload, case: Case, info: DeviceInfo) -> Point:
    size, local = case.span.in_words
    arguments = " ".join(case.arguments)
    what = (
        workload.digest,
        workload.options,
        workload.kernel,
        size,
        local,
        arguments,
        info.id,
        info.name,
        info.driver,
    )
    return Point(
        _key(*what), workload.name, workload.suite, workload.digest, workload.kernel, size, local,
        case.span.work_items, int(np.prod(case.span.local_size)), arguments, info.id, info.name, info.driver,
        case.nbytes,
    )  # fmt: skip


def _unread(workload: Workload, case: Case, error: ApportionError) -> Point:
    size, local = case.span.in_words
    arguments = " ".join(case.arguments)
    return Point(
        _key(workload.digest, workload.kernel, size, local, arguments, "arguments"), workload.name,
        workload.suite, workload.digest, workload.kernel, size, local, arguments=arguments,
        failure=_words(error),
    )  # fmt: skip


def _visit(
    workload: Workload,
    case: Case,
    starts: Sequence[Point],
    campaign: Campaign,
    backend: Backend,
    compiled: Compiled,
    flight: _Flight,
) -> list[Point]:
    keys = {point.device: point.key for point in starts}
    try:
        visit = visit_of(workload, case, list(keys), campaign, compiled)
        # Taken off: a later pass begins anew.
        known = {device: tuple(flight.known.pop(key, ())) for device, key in keys.items()}
        seen = backend.measure(
            replace(visit, known=known),
            campaign.visit_seconds,
            lambda launched: flight.add(keys[launched[0]], launched[1]),
        )
    except ApportionError as error:
        if len(starts) == 1:
            return [replace(starts[0], failure=_words(error), measured_at=time.time())]
        # Which of the devices is at fault shows when each is visited alone.
        return [
            point
            for start in starts
            for point in _visit(workload, case, [start], campaign, backend, compiled, flight)
        ]
    return [_measured(start, one) for start, one in zip(starts, seen, strict=True)]


def visit_of(
    workload: Workload, case: Case, devices: Sequence[str], campaign: Campaign, compiled: Compiled = _ir
) -> Visit:
    """What a backend is asked for one case."""
    ir = compiled(workload)
    if not campaign.trust_source:
        check_runnable(workload.source, ir, workload.name)
    signatures, accesses = _read(ir, workload.source)
    if workload.kernel not in signatures:
        raise UnknownName("kernel", workload.kernel, signatures)
    plan = plan_of(workload, case, signatures[workload.kernel], accesses[workload.kernel])
    return Visit(
        plan, case.memory, tuple(devices), campaign.repeats, campaign.shares, campaign.most_seconds,
        binaries=campaign.binaries,
    )  # fmt: skip


def _measured(start: Point, seen: Seen) -> Point:
    whole = [launched for launched in seen.launches if launched.share == 1.0]
    if seen.failure or not whole:
        return replace(
            start, failure=seen.failure or "Skipped: nothing was launched", measured_at=time.time()
        )
    total = summary([launched.seconds for launched in whole])
    upload, kernel, download = np.median(
        [[one.upload, one.kernel, one.download] for one in whole], 0
    ).tolist()
    medians = medians_of(seen.launches)
    fixed, rate = line_of(medians)
    return replace(
        start, seconds=total.median, seconds_low=total.low, seconds_high=total.high, upload=upload,
        kernel_seconds=kernel, download=download, fixed=fixed, rate=rate,
        shares=",".join(f"{share:.6g}:{seconds:.6g}" for share, seconds in medians.items()),
        repeats=total.count, agrees=seen.agrees, joules=seen.joules,
        counters=",".join(f"{name}:{value:.6g}" for name, value in seen.counters.items()),
        failure="" if seen.agrees is not False else f"Disagrees: {seen.said}", measured_at=time.time(),
    )  # fmt: skip


def medians_of(launches: Iterable[Launched]) -> dict[float, float]:
    """Share → median seconds, the largest share first."""
    by_share: dict[float, list[float]] = {}
    for launched in launches:
        by_share.setdefault(launched.share, []).append(launched.seconds)
    return {share: float(np.median(by_share[share])) for share in sorted(by_share, reverse=True)}


def line_of(medians: dict[float, float]) -> tuple[float, float]:
    """(fixed, rate): the line through the seconds of shares, exact for the whole, with neither below 0."""
    whole = medians.get(1.0, next(iter(medians.values())))
    parts = [(share, seconds) for share, seconds in medians.items() if share < 1.0]
    if not parts:
        return 0.0, whole
    lacking = np.array([1 - share for share, _ in parts])
    saved = np.array([whole - seconds for _, seconds in parts])
    rate = float(np.clip((lacking @ saved) / (lacking @ lacking), 0.0, whole))
    return whole - rate, max(rate, 1e-9)


def _words(error: ApportionError) -> str:
    return f"{type(error).__name__}: {error}"


def _key(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]
