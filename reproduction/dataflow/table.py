"""Table 4.1 on our own corpus: which runs it is made of, and running those that are not finished."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from apportion.data.artifact import read_bytes
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.jobs import Runner
from apportion.learn.experiment import Experiment, load_experiment
from apportion.learn.experiment_run import CHECKPOINT, METRICS, RESULT, SETTINGS, run

Labels = Literal["reference", "exact"]
LEAST_SECONDS = 20.0
"A run that would have less time than this is not begun."


@dataclass(frozen=True)
class TableRow:
    """One line of the table: an experiment, run with several seeds."""

    name: str
    experiment: str
    "The name of the file in the folder of experiments."
    labels: Labels = "reference"
    goal: float | None = None
    sources: tuple[str, ...] = ()
    "Corpora that are learnt from; the others are then tested on apart."
    seeds: tuple[int, ...] = ()
    "Instead of the plan's."
    turn: int = 0
    "Runs begin after those of lower turns: the longest have the lowest, what time may leave out the highest."
    ships: bool = False
    "Whether the package may have one of its networks."
    after: str = ""
    "The `folder_prefix` of an earlier row, each of whose runs is gone on with, seed by seed."
    set: tuple[str, ...] = ()

    @property
    def folder_prefix(self) -> str:
        """What its folders are called before the seed: all that tells it from others, for a file system."""
        parts = [self.experiment, *(["again"] if self.after else []), *self.set, *self.sources]
        return re.sub(r"[^A-Za-z0-9.=-]+", "_", "-".join(parts))

    @property
    def elsewhere(self) -> bool:
        """Whether the row says how a network does on other sources than it was trained on."""
        return bool(self.sources)


@dataclass(frozen=True)
class TablePlan:
    """The table's rows, and the seeds of those that name none."""

    rows: tuple[TableRow, ...]
    seeds: tuple[int, ...] = (0,)
    remarks: str = ""
    "The file beside the plan whose Markdown the page ends with: what its runs taught."
    title: str = "Learning the data-flow analyses: Table 4.1 on our corpus"
    "Of the page."
    command: str = "python -m reproduction dataflow --store STORE --exact-store EXACT --jobs 12 --seconds 390"
    "That made it."
    corpus: str = "[the corpus](dataflow-corpus.md)"
    "What it was trained and tested on, in Markdown."

    def __post_init__(self) -> None:
        if not self.rows or not self.seeds:
            raise InvalidSetting("A table needs at least one row and one seed")

    def goal_of(self, row: TableRow, ended: Iterable[FinishedRun]) -> float | None:
        """What a row is held to: nothing, where another goes on with its runs and has finished as many."""
        seeds = {(one.run.row, one.run.seed) for one in ended}
        for later in self.rows:
            same = later.after == row.folder_prefix and later.labels == row.labels
            if same and all((later, seed) in seeds for seed in row.seeds or self.seeds):
                return None
        return row.goal

    def runs(self) -> list[PlannedRun]:
        """Every run, turn by turn; in a turn all first seeds, then second ones: lack of time costs seeds."""
        planned = [
            PlannedRun(row, seed, place)
            for row in self.rows
            for place, seed in enumerate(row.seeds or self.seeds)
        ]
        return sorted(planned, key=lambda one: (one.row.turn, one.place))


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a row."""

    row: TableRow
    seed: int
    place: int = field(default=0, compare=False)

    @property
    def folder_name(self) -> str:
        """The name of its folder."""
        return f"{self.row.folder_prefix}-seed{self.seed}"

    def experiment(
        self, experiments: Path, stores: Mapping[Labels, Path], seconds: float, runs: Path
    ) -> Experiment:
        """The experiment with the row's settings, this seed, and at most so many seconds."""
        if self.row.labels not in stores:
            raise InvalidSetting(f"The row {self.row.name!r} needs a store with {self.row.labels} labels")
        base = load_experiment(
            experiments / f"{self.row.experiment}.toml",
            (*self.row.set, f"data={json.dumps(str(stores[self.row.labels]))}", f"seed={self.seed}"),
        )
        longest = base.optimisation.max_seconds or float("inf")
        optimisation = replace(base.optimisation, max_seconds=min(longest, seconds))
        start = runs / f"{self.row.after}-seed{self.seed}" if self.row.after else base.start
        return replace(base, training_sources=self.row.sources, optimisation=optimisation, start=start)


@dataclass(frozen=True)
class FinishedRun:
    """What a run left: its settings and its evaluation."""

    run: PlannedRun
    settings: Mapping[str, Any]
    result: Mapping[str, Any]
    curve: tuple[tuple[int, float], ...] = ()
    "Updates, and the validation F1 after them."


def finished(plan: TablePlan, folder: Path) -> list[FinishedRun]:
    """The runs of a plan that have ended, in the plan's order."""
    ended = []
    for one in plan.runs():
        place = folder / one.folder_name
        if (place / RESULT).exists():
            result = json.loads(read_bytes(place / RESULT))
            settings = json.loads(read_bytes(place / SETTINGS))
            ended.append(FinishedRun(one, settings, result, _curve(place / METRICS)))
    return ended


def _curve(metrics: Path) -> tuple[tuple[int, float], ...]:
    rows = (json.loads(line) for line in read_bytes(metrics).splitlines())
    return tuple((row["step"], row["validation_f1"]) for row in rows if "validation_f1" in row)


def train_rest(
    plan: TablePlan,
    stores: Mapping[Labels, Path],
    folder: Path,
    runner: Runner,
    *,
    experiments: Path = Path("experiments"),
    only: Iterable[str] = (),
    seconds: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Run what is not finished.

    Args:
        stores: the folder of the store with each kind of labels.
        folder: where runs have their folders.
        runner: where they run; several at once share a GPU well.
        only: names of experiments; all when there is none.
        seconds: all must end by then; 0 for no end. Runs that come late have what is left, or are left out.
        say: told as each run ends.
    """
    wanted = set(only)
    waiting = [
        one
        for one in plan.runs()
        if (not wanted or one.row.experiment in wanted) and not (folder / one.folder_name / RESULT).exists()
    ]
    end = time.time() + seconds if seconds else float("inf")
    work = partial(_train, folder=folder, experiments=experiments, stores=dict(stores), end=end)
    for outcome in runner.map(work, waiting):
        name = waiting[outcome.item_index].folder_name
        if outcome.error is not None:
            say(f"{name}: {outcome.error}")
        else:
            say(f"{name}: {outcome.value}")


def _train(
    one: PlannedRun, *, folder: Path, experiments: Path, stores: Mapping[Labels, Path], end: float
) -> str:
    """Train and evaluate in a worker; what it says goes into the run's folder."""
    left = end - time.time()
    if left < LEAST_SECONDS:
        return "left out: the time is up"
    place = folder / one.folder_name
    if (place / SETTINGS).exists() and not (place / CHECKPOINT).exists():
        _forget(place)  # it was stopped before its first checkpoint, perhaps with another limit of time
    if (place / SETTINGS).exists():
        experiment = _as_begun(one.experiment(experiments, stores, left, folder), place)
    else:
        experiment = one.experiment(experiments, stores, left, folder)
    said = _Lines(f"{one.folder_name} ")
    try:
        result = run(experiment, place, resume=True, progress=said)
    except RuntimeError as error:
        if "CUDA error" in str(error):
            # A process can do nothing more on a GPU after that, and would fail all runs that wait.
            traceback.print_exc()
            os._exit(1)
        raise
    f1 = result["test"]["f1"]["value"] if result["test"] else float("nan")
    return f"F1 {f1:.4f} after {result['updates']:,} updates and {result['seconds']:.0f} s"


def _as_begun(experiment: Experiment, place: Path) -> Experiment:
    """With the limit of time that the run was begun with: resuming is not another experiment."""
    begun = json.loads(read_bytes(place / SETTINGS))
    try:
        seconds = float(begun["settings"]["optimisation"]["max_seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(
            f"{place / SETTINGS} does not describe a run ({error}); delete the folder"
        ) from error
    return replace(experiment, optimisation=replace(experiment.optimisation, max_seconds=seconds))


def _forget(place: Path) -> None:
    for name in (SETTINGS, METRICS):
        (place / name).unlink(missing_ok=True)


class _Lines(io.StringIO):
    """Standard error with a name before each line, for runs side by side; steps are left to the metrics."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def write(self, text: str) -> int:
        if text.strip() and "nodes/s" not in text:
            sys.stderr.write(f"{self.prefix}{text.strip()}\n")
            sys.stderr.flush()
        return len(text)
