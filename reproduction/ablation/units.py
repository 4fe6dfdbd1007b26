"""The ablation of the thesis' Chapter 5: every network, form and protocol, as units that run once.

A unit is a stack of folds of one row of the table; when it is finished it is a file, so that an interrupted
run, or one on several machines, goes on where it stood.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.folds import PROTOCOLS, Fold, folds_of
from apportion.data.records import CLASSES
from apportion.errors import InvalidSetting, UnknownName
from apportion.jobs import Runner
from apportion.learn.shares.colours import Sharing
from apportion.learn.shares.load_balance import classes_of
from apportion.learn.shares.network_settings import Fitted, Fitting, KernelNetworkSettings, KernelRows
from apportion.settings import replace_file
from reproduction.ablation.rows import AblationData, unpack
from reproduction.kernels.cross_validation import Entry

Form = Literal["classification", "regression", "device-mapping"]
FORMS: tuple[Form, ...] = ("classification", "regression", "device-mapping")
_TIMED = "forward-times.json"


@dataclass(frozen=True)
class NetworkRow:
    """One line of the table: a network."""

    name: str
    network: KernelNetworkSettings
    forms: tuple[Form, ...] = ("classification", "regression")
    batch: int = 256
    "Of the run as published."
    protocols: tuple[str, ...] = ("thesis", "source")
    equal: bool = True
    "It is run with the common batch too, where its published one differs."
    pairs: tuple[str, ...] = ("cgo17-nvidia",)
    sharing: Sharing = "colours"
    "Which nodes share a state and its dropout."
    stack: int = 12
    "The most folds that are fitted side by side."
    launch: bool = False
    "The readout is told what is known of the launch beside its sizes."
    prepared: int = 0
    "Batches that are prepared; 0 for as many as the ablation says."
    seed: int = 0
    "Of weights, shuffling and dropout; 0 for the ablation's. Folds are the ablation's."

    def __post_init__(self) -> None:
        for name in ("batch", "stack"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Average:
    """The mean of the shares that a network and a predictor without one say; nothing is fitted to it."""

    name: str
    network: str
    "The name of its row."
    classical: str


@dataclass(frozen=True)
class Ablation:
    """What `python -m reproduction ablation` runs."""

    rows: tuple[NetworkRow, ...]
    classical: tuple[Entry, ...] = ()
    "Predictors without a network, to stand beside the rows."
    averages: tuple[Average, ...] = ()
    fitting: Fitting = field(default_factory=Fitting)
    seed: int = 1

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) < len(names):
            raise InvalidSetting("Each row needs a name of its own")
        for average in self.averages:
            if average.network not in names or average.classical not in names:
                raise InvalidSetting(f"{average.name!r} averages a row that is not there")
        for row in self.rows:
            for protocol in row.protocols:
                if protocol not in PROTOCOLS:
                    raise UnknownName("protocol", protocol, PROTOCOLS)

    @property
    def names(self) -> list[str]:
        """Of all lines of a table, in its order."""
        return [
            *(entry.name for entry in self.classical),
            *(row.name for row in self.rows),
            *(average.name for average in self.averages),
        ]

    def row(self, name: str) -> NetworkRow:
        """The row of that name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownName("row", name, [row.name for row in self.rows])

    def stacked(self, most: int) -> Ablation:
        """The same with at most so many folds side by side; as it is where that is 0."""
        if most < 0:
            raise InvalidSetting(f"stack must not be negative, not {most}")
        return replace(
            self, rows=tuple(replace(row, stack=min(row.stack, most or row.stack)) for row in self.rows)
        )


@dataclass(frozen=True)
class Unit:
    """Folds of one row that are fitted side by side."""

    row: str
    form: Form
    pair: str
    protocol: str
    batch: int
    part: int = 0
    parts: int = 1

    @property
    def file(self) -> str:
        """The name of its result."""
        words = (self.row, self.form, self.pair.removeprefix("cgo17-"), self.protocol, str(self.batch))
        slug = ".".join(re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words)
        return f"{slug}.json" if self.parts == 1 else f"{slug}.{self.part + 1}-of-{self.parts}.json"


def units_of(
    ablation: Ablation,
    data: AblationData,
    *,
    protocols: Sequence[str] = (),
    rows: Sequence[str] = (),
    forms: Sequence[str] = (),
) -> list[Unit]:
    """The units of some rows, forms and protocols, of all when none are named: the thesis' folds first.

    Raises:
        UnknownName: there is no such row, form or protocol.
    """
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise UnknownName("protocol", protocol, PROTOCOLS)
    for form in forms:
        if form not in FORMS:
            raise UnknownName("form", form, FORMS)
    chosen = [ablation.row(name) for name in rows] or list(ablation.rows)
    found = []
    for protocol in dict.fromkeys(name for name in PROTOCOLS if not protocols or name in protocols):
        for row in chosen:
            if protocol not in (protocols or row.protocols):
                continue
            for form in row.forms:
                if forms and form not in forms:
                    continue
                for pair in row.pairs:
                    for batch in dict.fromkeys([row.batch, *([ablation.fitting.batch] if row.equal else [])]):
                        parts = len(stacks(ablation, data, row, protocol, batch))
                        found += [
                            Unit(row.name, form, pair, protocol, batch, part, parts) for part in range(parts)
                        ]
    # What shares nothing takes longest, and is wanted last.
    return sorted(found, key=lambda unit: ablation.row(unit.row).sharing == "nodes")


def stacks(
    ablation: Ablation, data: AblationData, row: NetworkRow, protocol: str, batch: int
) -> list[list[Fold]]:
    """The folds of a protocol in lists of a few, each of folds with as many batches."""
    folds = folds_of(protocol, data.origins, seed=ablation.seed)
    lists: dict[int, list[list[Fold]]] = {}
    for fold in sorted(folds, key=lambda fold: len(fold.train)):
        same = lists.setdefault(-(-len(fold.train) // batch), [[]])
        if len(same[-1]) == row.stack:
            same.append([])
        same[-1].append(fold)
    return [stack for same in lists.values() for stack in same]


def shared_out(units: Sequence[Unit], worker: int, workers: int) -> list[Unit]:
    """The units in the order in which one of several workers takes them.

    Protocols one after the other; within one, each worker begins at another place and goes round, and what
    another has begun is passed over. Units that can use the same preparation stand together.
    """
    if not 1 <= worker <= workers:
        raise InvalidSetting(f"A worker is given as I/N, with I from 1 to N, not {worker}/{workers}")
    found: list[Unit] = []
    for _, group in groupby(units, key=lambda unit: unit.protocol):
        same = sorted(group, key=lambda unit: (-unit.batch, unit.part))
        first = (worker - 1) * len(same) // workers
        found += same[first:] + same[:first]
    return found


def run_units(
    ablation: Ablation,
    data: AblationData,
    units: Iterable[Unit],
    folder: Path,
    *,
    device: str,
    report: Callable[[str], None],
    seconds: float = 0.0,
) -> None:
    """Run the units that have no file yet and that no other process works on, one after the other.

    Args:
        seconds: no unit is begun after so long; 0 for no such limit.
    """
    bench = _Bench(ablation, data, folder, device)
    started = time.monotonic()
    for unit in units:
        if seconds and time.monotonic() - started > seconds:
            return
        bench.run(unit, report)


def run_over(
    runner: Runner,
    ablation: Ablation,
    packed: Path,
    units: Sequence[Unit],
    folder: Path,
    *,
    device: str,
    report: Callable[[str], None],
    seconds: float = 0.0,
) -> None:
    """The same by the workers of a runner: `packed` and `folder` lie where all of them see them."""
    end = time.time() + seconds if seconds else float("inf")
    work = partial(_run_one, ablation, packed, folder, device, end)
    for outcome in runner.map(work, units):
        report(outcome.value or f"{units[outcome.item_index].file}: {outcome.error}")


def _run_one(ablation: Ablation, packed: Path, folder: Path, device: str, end: float, unit: Unit) -> str:
    """In a worker: one unit, with what the units before it left prepared."""
    if time.time() > end:
        return f"{unit.file}: left out, the time is up"
    said: list[str] = []
    _bench_of(ablation, packed, folder, device).run(unit, said.append)
    return said[-1] if said else f"{unit.file}: finished before"


_benches: dict[tuple[str, Path, Path, str], _Bench] = {}
"A worker's bench, kept from one unit to the next; never more than one."


def _bench_of(ablation: Ablation, packed: Path, folder: Path, device: str) -> _Bench:
    key = (json.dumps(asdict(ablation)), packed, folder, device)
    if key not in _benches:
        _benches.clear()
        _benches[key] = _Bench(ablation, unpack(packed), folder, device)
    return _benches[key]


class _Bench:
    """Runs units one after the other, and keeps what was prepared for folds while they stay the same."""

    def __init__(self, ablation: Ablation, data: AblationData, folder: Path, device: str) -> None:
        self._ablation, self._data, self._folder, self._device = ablation, data, folder, device
        self._workshop: Any = None
        self._prepared_for: tuple[str, int, int] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, unit: Unit, report: Callable[[str], None]) -> None:
        """Run a unit that has no file yet and that no other process works on."""
        ablation, data, path = self._ablation, self._data, self._folder / unit.file
        if _finished(path, ablation, data, unit) or not _claimed(path):
            return
        from apportion.learn.shares.stacks import Workshop, fit  # torch, which a page alone does not need

        if self._prepared_for != (unit.protocol, unit.batch, unit.part):
            # What was prepared for other folds is let go: it fills a GPU's memory.
            self._workshop = Workshop(data.graphs, data.graph, self._device)
            self._prepared_for = (unit.protocol, unit.batch, unit.part)
        row = ablation.row(unit.row)
        folds = stacks(ablation, data, row, unit.protocol, unit.batch)[unit.part]
        rows = rows_of(data, unit, launch=row.launch)
        begun = time.monotonic()
        fitted = fit(
            self._workshop, rows, folds, row.network, _fitting(ablation, unit),
            seed=row.seed or ablation.seed,
            report=partial(_told, report, unit),
        )  # fmt: skip
        result = {
            "stamp": stamp(ablation, data, unit),
            "device": _device_name(self._device),
            **asdict(unit),
            **outcome(fitted, rows, folds),
        }
        replace_file(path, json.dumps(result).encode())
        _claim(path).unlink(missing_ok=True)
        spent = time.monotonic() - begun
        report(f"{unit.file}: {fitted.steps} steps in {fitted.seconds:.1f} s, {spent:.1f} s in all")


def _told(report: Callable[[str], None], unit: Unit, said: str) -> None:
    report(f"{unit.file}: {said}")


def _fitting(ablation: Ablation, unit: Unit) -> Fitting:
    row, fitting = ablation.row(unit.row), ablation.fitting
    return replace(fitting, batch=unit.batch, sharing=row.sharing, prepared=row.prepared or fitting.prepared)


def _claim(path: Path) -> Path:
    return path.with_suffix(".claim")


def _claimed(path: Path) -> bool:
    """Whether this process now works on a unit: no other living one does."""
    claim = _claim(path)
    while True:
        try:
            with claim.open("x") as file:
                file.write(str(os.getpid()))
            return True
        except FileExistsError:
            text = claim.read_text() if claim.exists() else ""
            if not text.isdigit() or int(text) == os.getpid() or Path(f"/proc/{text}").exists():
                return text.isdigit() and int(text) == os.getpid()
            claim.unlink(missing_ok=True)


def rows_of(data: AblationData, unit: Unit, *, launch: bool = False) -> KernelRows:
    """The rows as a unit asks about them, with what is known of the launch where that is wanted."""
    pair = data.pairs[unit.pair]
    inputs = np.hstack([pair.inputs, pair.launch]) if launch else pair.inputs
    if unit.form == "regression":
        return KernelRows(data.graphs, data.graph, inputs, pair.shares.astype(np.float32))
    labels = classes_of(pair.shares) if unit.form == "classification" else pair.to_gpu
    classes = len(CLASSES) if unit.form == "classification" else 2
    return KernelRows(data.graphs, data.graph, inputs, labels.astype(np.float32), classes)


def outcome(fitted: Fitted, rows: KernelRows, folds: Sequence[Fold]) -> dict[str, Any]:
    """What a unit's file says: each fold's test rows, with the answers of the last and the validated epoch.

    The validated epoch is the one that did best on the validation rows, the earliest of equal ones.
    """
    said: NDArray[Any] = fitted.scores[..., 0] if rows.classes == 0 else fitted.scores.argmax(-1)
    described = []
    for model, fold in enumerate(folds):
        truth = rows.labels[fold.validation]
        if rows.classes:
            worth = (said[:, model, fold.validation] == truth).mean(1)
        else:
            worth = -np.abs(said[:, model, fold.validation] - truth).mean(1)
        best = int(worth.argmax())
        described.append({
            "fold": fold.name,
            "test": fold.test.tolist(),
            "trained": len(fold.train),
            "last": _short(said[-1, model, fold.test]),
            "validated": _short(said[best, model, fold.test]),
            "validated_epoch": int(fitted.epochs[best]),
            "validation": _short(worth),
            "loss": _short(fitted.losses[:, model]),
        })  # fmt: skip
    return {
        "epochs": fitted.epochs.tolist(),
        "steps": fitted.steps,
        "seconds": fitted.seconds,
        "folds": described,
    }


def _short(values: NDArray[Any]) -> list[float]:
    """Three digits are enough for percents, and a float of 32 bits would be written with nine more."""
    kept: list[float] = np.asarray(values, np.float64).round(3).tolist()
    return kept


def time_forward(
    ablation: Ablation, data: AblationData, folder: Path, *, device: str, report: Callable[[str], None]
) -> None:
    """Time the forward pass of every row on the test rows of one fold, with states shared and without."""
    from apportion.learn.shares.stacks import Workshop, forward_milliseconds

    path = folder / _TIMED
    times = json.loads(path.read_text()) if path.exists() else []
    workshop = Workshop(data.graphs, data.graph, device)
    asked = folds_of("thesis", data.origins, seed=ablation.seed)[0].test
    for row in ablation.rows:
        for form in row.forms:
            key = {"row": row.name, "form": form, "device": _device_name(device)}
            if any(key.items() <= known.items() for known in times):
                continue
            unit = Unit(row.name, form, row.pairs[0], "thesis", row.batch)
            rows = rows_of(data, unit, launch=row.launch)
            both = {
                sharing: round(forward_milliseconds(workshop, rows, asked, row.network, sharing), 4)
                for sharing in ("colours", "nodes")
            }
            times.append({**key, "rows": len(asked), "shared": both["colours"], "plain": both["nodes"]})
            replace_file(path, json.dumps(times, indent=1).encode())
            report(f"{row.name}, {form}: {both['colours']:.2f} ms shared, {both['nodes']:.2f} ms plain")


def results(ablation: Ablation, data: AblationData, folder: Path) -> Iterator[dict[str, Any]]:
    """Every finished unit of this ablation in a folder, in the order of the table."""
    rows = {row.name: number for number, row in enumerate(ablation.rows)}
    found = []
    for path in sorted(folder.glob("*.json")):
        said = _read(path)
        if isinstance(said, dict) and said.get("row") in rows and "stamp" in said:
            unit = Unit(**{name: said[name] for name in Unit.__dataclass_fields__})
            if said["stamp"] == stamp(ablation, data, unit):
                found.append(said)
    order = list(PROTOCOLS)
    yield from sorted(found, key=lambda said: (order.index(said["protocol"]), rows[said["row"]]))


def forward_times(folder: Path) -> list[dict[str, Any]]:
    """What `time_forward` left."""
    path = folder / _TIMED
    return list(json.loads(path.read_text())) if path.exists() else []


def stamp(ablation: Ablation, data: AblationData, unit: Unit) -> str:
    """What a unit's result depends on, in short: another setting or other data gives another."""
    row = ablation.row(unit.row)
    network = asdict(row.network)
    if not row.network.both_ways:
        del network["both_ways"]  # results were kept before there was such a setting
    context = {
        "data": data.digest,
        "network": network,
        "fitting": asdict(_fitting(ablation, unit)),
        "seed": row.seed or ablation.seed,
        "unit": asdict(unit),
        **({"launch": data.launch_digest} if row.launch else {}),
        **({"folds": ablation.seed} if row.seed else {}),
    }
    return hashlib.sha256(json.dumps(context, sort_keys=True).encode()).hexdigest()[:16]


def _finished(path: Path, ablation: Ablation, data: AblationData, unit: Unit) -> bool:
    said = _read(path) if path.exists() else None
    return isinstance(said, dict) and said.get("stamp") == stamp(ablation, data, unit)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError:
        return None


def _device_name(device: str) -> str:
    if device == "cpu":
        return "CPU"
    from apportion.learn.shares.stacks import device_name

    return device_name()
