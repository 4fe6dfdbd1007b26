"""A measuring campaign: kernels × sizes × work-group sizes × devices, as a table that only grows.

Each point is written to a journal, one line of JSON, as soon as it is measured; what is there already is not
measured again. Killing the process loses the launch in flight. The journal becomes a Parquet file at the end
of every run, failures included.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from apportion.device import verify
from apportion.device.arguments import arguments_for
from apportion.device.base import Limits
from apportion.device.bound import BoundKernel
from apportion.device.measure import Repeats, summary
from apportion.device.plan import Outcome
from apportion.device.platforms import DEFAULT_DRIVERS, DriverOptions
from apportion.device.split import Split
from apportion.device.together import Together
from apportion.device.worker import Worker
from apportion.errors import ApportionError, InvalidSetting, MalformedInput, UnreadableFile
from apportion.program.bounds import NDRange
from apportion.program.compile import ir_of
from apportion.program.signature import signatures_of
from apportion.program.source import Source

JOURNAL = "journal.jsonl"
TABLE = "measurements.parquet"


@dataclass(frozen=True)
class Campaign:
    """What to measure."""

    sizes: tuple[int, ...] = (1 << 12, 1 << 16, 1 << 20)
    "Work-items, in one dimension."
    local_sizes: tuple[int, ...] = (64, 256)
    devices: tuple[str, ...] = ()
    "Ids; all when empty."
    repeats: Repeats = field(default_factory=lambda: Repeats(seconds=2.0))
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1 or not self.local_sizes or min(self.local_sizes) < 1:
            raise InvalidSetting("A campaign needs sizes and work-group sizes above 0")


@dataclass(frozen=True)
class Point:
    """One measurement, or the reason why there is none; times in seconds."""

    key: str
    source: str
    digest: str
    kernel: str
    work_items: int
    local_size: int
    device: str
    device_name: str
    driver: str
    bytes_moved: int = 0
    seconds: float | None = None
    seconds_low: float | None = None
    seconds_high: float | None = None
    upload: float | None = None
    kernel_seconds: float | None = None
    download: float | None = None
    repeats: int = 0
    agrees: bool | None = None
    "Whether the results are those of the first device; None where there is nothing to compare."
    failure: str = ""
    measured_at: float = field(default_factory=time.time)


def run_campaign(
    sources: Sequence[Path],
    folder: Path,
    campaign: Campaign,
    *,
    limits: Limits | None = None,
    drivers: DriverOptions = DEFAULT_DRIVERS,
) -> Iterator[Point]:
    """Measure what the folder does not hold yet, point by point; each is in the journal when it is yielded.

    Raises:
        UnreadableFile: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableFile(f"Cannot write to {folder}: {error.strerror}") from error
    done = {point["key"] for point in read_journal(folder)}
    with Worker(drivers, limits) as worker, (folder / JOURNAL).open("a") as journal:
        for point in _points(sources, campaign, worker, done):
            journal.write(json.dumps(asdict(point)) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
            yield point
    write_table(folder)


def read_journal(folder: Path) -> list[dict[str, Any]]:
    """Every point of a folder; a last line that was cut off by a kill is dropped."""
    path = folder / JOURNAL
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        path.write_bytes(whole)
    try:
        return [json.loads(line) for line in whole.decode().splitlines()]
    except ValueError as error:
        raise MalformedInput(f"not a journal of measurements ({error})", file=str(path)) from error


def write_table(folder: Path) -> Path:
    """The journal as a Parquet file."""
    path = folder / TABLE
    points = read_journal(folder)
    if points:
        part = path.with_suffix(".part")
        pl.DataFrame(points, infer_schema_length=None).write_parquet(part)
        part.replace(path)
    return path


def count_points(sources: Sequence[Path], campaign: Campaign, devices: int) -> int:
    """An upper bound of the points, for a bar that shows how far it is."""
    kernels = 0
    for path in sources:
        try:
            kernels += len(_kernels(Source.read(path, "opencl")))
        except ApportionError:
            kernels += 1
    return kernels * len(campaign.sizes) * len(campaign.local_sizes) * devices


def _kernels(source: Source) -> list[str]:
    return list(signatures_of(ir_of(source), str(source.text)))


def _points(sources: Iterable[Path], campaign: Campaign, worker: Worker, done: set[str]) -> Iterator[Point]:
    infos = [info for info in worker.devices() if not campaign.devices or info.id in campaign.devices]
    seen: set[str] = set()
    for path in sources:
        start: dict[str, Any] = {
            "source": path.name, "digest": "", "kernel": "", "work_items": 0, "local_size": 0, "device": "",
            "device_name": "", "driver": "",
        }  # fmt: skip
        try:
            source = Source.read(path, "opencl")
            start["digest"] = source.digest
            if source.digest in seen:
                continue
            seen.add(source.digest)
            kernels = _kernels(source)
        except ApportionError as error:
            key = _key(start["digest"] or path, "compile")
            if key not in done:
                yield Point(key, **start, failure=_words(error))
            continue
        for kernel in kernels:
            for size in campaign.sizes:
                for local in campaign.local_sizes:
                    if size % local:
                        continue
                    reference: dict[str, NDArray[Any]] = {}
                    for info in infos:
                        key = _key(source.digest, kernel, size, local, info.id, info.name, info.driver)
                        if key in done:
                            continue
                        what = start | {
                            "kernel": kernel, "work_items": size, "local_size": local, "device": info.id,
                            "device_name": info.name, "driver": info.driver,
                        }  # fmt: skip
                        yield _point(key, what, source, campaign, worker, reference)


def _point(
    key: str,
    what: dict[str, Any],
    source: Source,
    campaign: Campaign,
    worker: Worker,
    reference: dict[str, NDArray[Any]],
) -> Point:
    try:
        span = NDRange((what["work_items"],), (what["local_size"],))
        with Together(source, what["kernel"], [what["device"]], worker=worker, trust=True) as kernel:
            values = arguments_for(kernel.signature, kernel.access, span, seed=campaign.seed)
            bound = kernel.bind(*values.values(), global_size=span.global_size, local_size=span.local_size)
            bound.binding.remember()
            bound.run(what["device"])
            results = {place.name: bound.binding.shared[place.name].copy() for place in bound.binding.written}
            bound.binding.restore()
            return Point(key, **what, **_measured(bound, campaign.repeats), agrees=_agree(results, reference))
    except ApportionError as error:
        return Point(key, **what, failure=_words(error))


def _measured(bound: BoundKernel, repeats: Repeats) -> dict[str, Any]:
    """Repeat until the interval is narrow; medians of each part of the time."""
    started = time.monotonic()
    outcomes: list[Outcome] = []
    device = bound.devices[0].id
    while len(outcomes) < repeats.most:
        outcomes.append(bound.trial(Split.alone(device)))
        total = summary([outcome.seconds for outcome in outcomes])
        narrow = len(outcomes) >= repeats.least and total.width <= repeats.width
        if narrow or time.monotonic() - started > repeats.seconds:
            break
    parts = np.median(
        [[o.devices[0].upload, o.devices[0].kernel, o.devices[0].download] for o in outcomes], 0
    )
    moved = sum(array.nbytes for array in bound.binding.shared.values())
    return {
        "bytes_moved": moved, "seconds": total.median, "seconds_low": total.low, "seconds_high": total.high,
        "upload": float(parts[0]), "kernel_seconds": float(parts[1]), "download": float(parts[2]),
        "repeats": total.count,
    }  # fmt: skip


def _agree(results: dict[str, NDArray[Any]], reference: dict[str, NDArray[Any]]) -> bool | None:
    if not reference:
        reference.update(results)
        return None
    return all(verify.difference(values, reference[name]) is None for name, values in results.items())


def _words(error: ApportionError) -> str:
    return f"{type(error).__name__}: {error}"


def _key(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]
