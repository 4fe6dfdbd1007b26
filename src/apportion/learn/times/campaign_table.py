"""A measuring campaign as a table to learn from: launches as rows, each device's fixed time and rate as
labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from apportion.coexecution.cuts import best_shares, seconds_at
from apportion.errors import ApportionError, InvalidSetting, UnreadableFile
from apportion.program.kernel.bounds import NDRange, sizes_of
from apportion.program.kernel.launch import PlannedLaunch
from apportion.runtime.workload import Case, Workload

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CampaignTable:
    """Launches that two devices were measured at."""

    devices: tuple[str, str]
    "The host's own first."
    names: tuple[str, ...]
    suites: tuple[str, ...]
    digests: tuple[str, ...]
    "Of the source and the kernel: rows of one kernel share it."
    ranges: tuple[str, ...]
    "`1024x64/16x4`: work-items and work-group."
    rows: Numbers  # (N, F) see `program.kernel.launch.LAUNCH`
    totals: Numbers  # (N, T) see `program.kernel.launch.TOTALS`
    fixed: Numbers  # (N, 2) seconds
    rate: Numbers  # (N, 2) seconds
    times: NDArray[np.int64] | None = None  # (N,) how often each was measured; once where that is not said

    def __post_init__(self) -> None:
        parts = (
            self.names,
            self.suites,
            self.digests,
            self.ranges,
            self.rows,
            self.totals,
            self.fixed,
            self.rate,
        )
        lengths = {len(part) for part in parts}
        if len(lengths) != 1:
            raise InvalidSetting(f"A campaign's table must have as many of each, not {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def seconds(self) -> Numbers:
        """(N, 2): each device alone."""
        return np.asarray(self.fixed + self.rate)

    @cached_property
    def ratio_share(self) -> Numbers:
        """(N,): the first device's share by the ratio of times alone (thesis, Eq. 5.8), from 0 to 1."""
        return np.asarray(self.seconds[:, 1] / self.seconds.sum(axis=1))

    @cached_property
    def best_share(self) -> Numbers:
        """(N,): the first device's share of the cut that ends soonest."""
        return best_shares(self.fixed, self.rate)

    def part(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> CampaignTable:
        """Some of the rows."""
        numbers = np.flatnonzero(chosen) if chosen.dtype == bool else chosen

        def pick(values: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(values[number] for number in numbers.tolist())

        return CampaignTable(
            self.devices, pick(self.names), pick(self.suites), pick(self.digests), pick(self.ranges),
            self.rows[numbers], self.totals[numbers], self.fixed[numbers], self.rate[numbers],
            None if self.times is None else self.times[numbers],
        )  # fmt: skip

    def measured(self, least: int) -> NDArray[np.bool_]:
        """(N,): which launches were measured at least so often."""
        times = np.ones(len(self), np.int64) if self.times is None else self.times
        return np.asarray(times >= least)

    @property
    def digest(self) -> str:
        """SHA-256 over names, features and times: what results rest on."""
        found = hashlib.sha256("\n".join(self.names).encode())
        for values in (self.rows, self.totals, self.fixed, self.rate):
            found.update(np.ascontiguousarray(values).tobytes())
        return found.hexdigest()


def regrets(share: Numbers, table: CampaignTable) -> Numbers:
    """(N,): the time under these cuts over that under the best ones."""
    best = seconds_at(table.best_share, table.fixed, table.rate)
    return np.asarray(seconds_at(share, table.fixed, table.rate) / best)


Key = tuple[str, str, str, str, str]
"A case: the source's digest, the kernel, the global size, the local size, the arguments."
Features = Callable[[Key], tuple[Numbers, Numbers]]
"A case → the `row` and `totals` of its `program.kernel.launch.PlannedLaunch`; KeyError if it is not known."


def key_of(workload: Workload, case: Case) -> Key:
    """What a case of a workload is called."""
    return (workload.digest, workload.kernel, *case.span.in_words, " ".join(case.arguments))


def key_of_point(point: Mapping[str, object]) -> Key:
    """What the case of a point of `device.campaign` is called."""
    digest, kernel, size, local, arguments = (
        str(point[name]) for name in ("digest", "kernel", "global_size", "local_size", "arguments")
    )
    return digest, kernel, size, local, arguments


def from_ir(ir: Mapping[str, tuple[str, str]]) -> Features:
    """Features that are worked out now.

    Args:
        ir: digest of a source → its IR and itself.
    """

    def of(key: Key) -> tuple[Numbers, Numbers]:
        launch = launch_of(ir, key)
        return launch.row(), launch.totals()

    return of


def from_described(described: pl.DataFrame) -> Features:
    """Features that `described_of` worked out before."""
    rows, totals = (described[name].to_numpy() for name in ("row", "totals"))
    place = {case: number for number, case in enumerate(described["case"])}

    def of(key: Key) -> tuple[Numbers, Numbers]:
        number = place[_digest(key)]
        return np.asarray(rows[number], np.float64), np.asarray(totals[number], np.float64)

    return of


def described_of(compiled: tuple[Workload, str]) -> list[dict[str, object]]:
    """Every case of a workload, given with its IR, as a row of a table of features; one that has none is left
    out."""
    workload, ir = compiled
    found: list[dict[str, object]] = []
    for case in workload.cases:
        key = key_of(workload, case)
        try:
            row, totals = from_ir({workload.digest: (ir, workload.source)})(key)
        except ApportionError:
            continue
        found.append({"case": _digest(key), "row": row.tolist(), "totals": totals.tolist()})
    return found


def _digest(key: Key) -> str:
    return hashlib.sha256("\0".join(key).encode()).hexdigest()[:24]


def read_table(
    points: pl.DataFrame, features: Features, devices: tuple[str, str]
) -> tuple[CampaignTable, dict[str, int]]:
    """The launches of a campaign that were measured on both devices, with equal results; and why others
    were not taken: reason → points. What was measured several times has the geometric mean of its times.

    Args:
        points: of `device.campaign`.
        features: what is known of each case.
    """
    left_out: dict[str, int] = {}

    def leave(reason: str) -> None:
        left_out[reason] = left_out.get(reason, 0) + 1

    by_case: dict[Key, dict[str, list[dict[str, object]]]] = {}
    for point in points.iter_rows(named=True):
        by_case.setdefault(key_of_point(point), {}).setdefault(point["device"], []).append(point)
    rows, totals, fixed, rate, names, suites, digests, ranges = [], [], [], [], [], [], [], []
    times = []
    for key, seen in by_case.items():
        both = [seen.get(device, []) for device in devices]
        good = [_measured(points) for points in both]
        if not all(good):
            leave(_reason([point for points in both for point in points[-1:]]))
            continue
        found = [_mean_of(points) for points in good]
        try:
            row, total = features(key)
        except (ApportionError, KeyError) as error:
            leave(f"no features: {type(error).__name__}")
            continue
        rows.append(row)
        totals.append(total)
        fixed.append([each[0] for each in found])
        rate.append([each[1] for each in found])
        names.append(str(good[0][-1]["source"]))
        suites.append(str(good[0][-1]["suite"]))
        digests.append(f"{key[0]}:{key[1]}")
        ranges.append(f"{key[2]}/{key[3]}")
        times.append(min(map(len, good)))
    if not rows:
        raise InvalidSetting("No launch was measured on both devices")
    table = CampaignTable(
        devices, tuple(names), tuple(suites), tuple(digests), tuple(ranges), np.array(rows), np.array(totals),
        np.array(fixed), np.array(rate), np.array(times, np.int64),
    )  # fmt: skip
    return table, left_out


def first_and_last(
    points: pl.DataFrame, features: Features, devices: tuple[str, str]
) -> tuple[CampaignTable, CampaignTable] | None:
    """The launches that were measured more than once, as they were the first time and the last; None where
    there are none. In between lie minutes or another machine of the same kind."""
    good = points.filter((pl.col("failure") == "") & pl.col("seconds").is_not_null())
    again = good.filter(pl.len().over("key") > 1).sort("measured_at", maintain_order=True)
    # In the order of their keys, which both have: the tables' rows then belong together.
    ends = [again.unique("key", keep=keep, maintain_order=True).sort("key") for keep in ("first", "last")]
    try:
        first, last = (read_table(each, features, devices)[0] for each in ends)
    except InvalidSetting:
        return None
    return first, last


def _measured(points: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    return [point for point in points if point["seconds"] is not None and not point["failure"]]


def _mean_of(points: Sequence[Mapping[str, object]]) -> tuple[float, float]:
    """(fixed, rate) of a device at a range that was measured several times: the geometric mean of its
    seconds, of which the mean part is fixed."""
    times = np.array([[float(str(point["fixed"])), float(str(point["rate"]))] for point in points])
    whole = times.sum(axis=1)
    seconds, part = float(np.exp(np.log(whole).mean())), float((times[:, 0] / whole).mean())
    return part * seconds, max((1 - part) * seconds, 1e-9)


def save_table(table: CampaignTable, path: Path) -> None:
    """Write a table: names, hashes, features and times; no source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, second = table.devices
    columns: dict[str, object] = {
        "name": table.names, "suite": table.suites, "digest": table.digests, "range": table.ranges,
        **{f"{kind} {device}": values[:, number].astype(np.float32)
           for kind, values in (("fixed", table.fixed), ("rate", table.rate))
           for number, device in enumerate((first, second))},
        **({} if table.times is None else {"times": table.times.astype(np.int32)}),
        **{f"feature {n}": table.rows[:, n].astype(np.float32) for n in range(table.rows.shape[1])},
        **{f"total {n}": table.totals[:, n].astype(np.float32) for n in range(table.totals.shape[1])},
    }  # fmt: skip
    pl.DataFrame(columns).write_parquet(path, compression="zstd", compression_level=19, statistics=False)


def load_table(path: Path) -> CampaignTable:
    """The table that `save_table` wrote.

    Raises:
        UnreadableFile: the file is not there, or not such a table.
    """
    try:
        frame = pl.read_parquet(path)
        names = [name.partition(" ")[2] for name in frame.columns if name.startswith("fixed ")]
        first, second = names

        def block(kind: str, parts: Sequence[object]) -> Numbers:
            return frame.select([f"{kind} {part}" for part in parts]).to_numpy().astype(np.float64)

        features = sum(name.startswith("feature ") for name in frame.columns)
        totals = sum(name.startswith("total ") for name in frame.columns)
        return CampaignTable(
            (first, second), tuple(frame["name"]), tuple(frame["suite"]), tuple(frame["digest"]),
            tuple(frame["range"]), block("feature", range(features)), block("total", range(totals)),
            block("fixed", names), block("rate", names),
            frame["times"].to_numpy().astype(np.int64) if "times" in frame.columns else None,
        )  # fmt: skip
    except (OSError, pl.exceptions.PolarsError, ValueError) as error:
        raise UnreadableFile(f"Cannot read the table of measurements {path}: {error}") from error


def launch_of(ir: Mapping[str, tuple[str, str]], key: Key) -> PlannedLaunch:
    """The launch of a case, whose source is among those of `ir`: digest → its IR and itself."""
    digest, kernel, size, local, arguments = key
    text, source = ir[digest]
    span = NDRange(sizes_of(size), sizes_of(local))
    case = Case(span, tuple(arguments.split(" ")) if arguments else ())
    return case.launch(text, kernel, source)


def _reason(points: Sequence[Mapping[str, object]]) -> str:
    for point in points:
        if point["failure"]:
            return str(point["failure"]).split(":")[0]
    return "measured on one device only"
