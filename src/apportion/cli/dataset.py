"""`apportion dataset`: make datasets, look at them, check them, and pack them for another machine."""

from __future__ import annotations

import json as json_format
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from apportion.cli.show import note, print_json, print_table, size_in_words
from apportion.data.columns import SPLITS
from apportion.data.dataflow import FILE_SECONDS, LabelSettings, build
from apportion.data.published.deepdataflow import store_of
from apportion.data.store import DataflowStore
from apportion.errors import InvalidSetting
from apportion.jobs import runner_of
from apportion.program.vocabulary import Vocabulary

dataset = App(
    name="dataset", help="Make datasets, look at them, check them, and pack them for another machine."
)

_NOTE_SECONDS = 5.0
"How often a build says how far it is."


@dataset.command
def dataflow(
    *corpus: Path,
    out: Path,
    rule: Literal["paper", "reference"] = "paper",
    mode: Literal["reference", "exact"] = "reference",
    seed: int = 0,
    max_nodes: int = 40_000,
    vocabulary: Path | None = None,
    vocabulary_texts: int = 2_500,
    jobs: int | None = None,
    runner: str = "local",
    only: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Label programs with the five data-flow analyses, for learning.

    Each graph is stored once and its labels as bits. Files are split 3:1:1 into train, val and test, the same
    for all analyses; identical graphs are kept once. The same command after an interruption goes on where it
    was; with another corpus it adds to what the folder holds.

    Args:
        corpus: Folders, archives (.tar, .tar.gz …) and files of .ll, .bc, .c, .cc, .cpp and .cl.
        out: The folder for the dataset.
        rule: How many roots a graph has: a tenth of its nodes, or of its eligible roots; at most ten.
        mode: Labels as the published dataset defines them, or as the textbook does.
        seed: Seed of the random numbers that choose roots and split.
        max_nodes: Larger graphs are left out.
        vocabulary: Numbers node texts by this file instead of by the training programs.
        vocabulary_texts: How many texts a vocabulary made here has at most.
        jobs: How many processes work at once. By default 1; on a cluster as many as it has room for.
        runner: Where files are labelled: local, ray, ray:HOST:PORT, slurm, or slurm:PARTITION.
        only: Drop the files that the folder holds of corpora that are not named now.
        json: Print the summary as JSON.
    """
    if not corpus:
        raise InvalidSetting("Name at least one folder, archive or file of programs")
    store = build(
        corpus, out, LabelSettings(rule, mode, seed, max_nodes),
        vocabulary=None if vocabulary is None else Vocabulary.read(vocabulary),
        vocabulary_texts=vocabulary_texts, jobs=1 if jobs is None else jobs, report=_Progress(),
        runner=None if runner == "local" else runner_of(runner, workers=jobs, deadline_seconds=FILE_SECONDS),
        only=only,
    )  # fmt: skip
    if only:
        note(f"{out} holds the files of {', '.join(map(str, corpus))} alone now.")
    _note_failures(store)
    _print(store, json)


@dataset.command
def deepdataflow(
    folder: Path,
    *,
    out: Path,
    vocabulary: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Turn the published DeepDataFlow graphs and labels into a dataset, with the published split.

    Args:
        folder: Where the archives were unpacked: graphs/, labels/, train/, val/ and test/ are in it.
        out: The folder for the dataset.
        vocabulary: Numbers node texts by this file (the publication's programl.csv) instead of by the
            training programs.
        json: Print the summary as JSON.
    """
    known = None if vocabulary is None else Vocabulary.read(vocabulary)
    store = store_of(folder, out, vocabulary=known)
    _note_failures(store)
    _print(store, json)


@dataset.command
def show(folder: Path, *, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Say what a dataset holds.

    Args:
        folder: The folder that `apportion dataset dataflow` wrote.
        json: Print it as JSON.
    """
    _print(DataflowStore.open(folder), json)


@dataset.command
def verify(folder: Path) -> None:
    """Read a whole dataset and compare its checksums.

    Args:
        folder: The folder that `apportion dataset dataflow` wrote.
    """
    store = DataflowStore.open(folder)
    store.verify()
    print(f"{folder}: all {len(store.columns)} columns are as they were written ({store.fingerprint})")


@dataset.command
def pack(
    folder: Path,
    archive: Path,
    *,
    megabytes: float = 50.0,
    max_nodes: int | None = None,
    train_steps: int = 30,
    test_steps: int = 200,
    tasks: tuple[str, ...] = (),
) -> None:
    """Write as much of a dataset as fits into one file, to carry to another machine.

    Args:
        folder: The folder that `apportion dataset dataflow` wrote.
        archive: The file to write.
        megabytes: How large it may be.
        max_nodes: Larger graphs stay behind.
        train_steps: Training and validation instances of more steps stay behind.
        test_steps: Test instances of more steps stay behind.
        tasks: Analyses whose instances are taken along; by default all.
    """
    store = DataflowStore.open(folder)
    packed = store.write_archive(
        archive, limit_bytes=int(megabytes * 1e6), max_nodes=max_nodes,
        train_steps=train_steps, test_steps=test_steps, tasks=tasks,
    )  # fmt: skip
    print(f"{archive}: {len(packed):,} of {len(store):,} graphs, {size_in_words(archive.stat().st_size)}")


@dataset.command
def unpack(archive: Path, folder: Path) -> None:
    """Lay out a dataset that was packed.

    Args:
        archive: The file that `apportion dataset pack` wrote.
        folder: Where to put the dataset.
    """
    print(f"{folder}: {len(DataflowStore.unpack(archive, folder)):,} graphs")


class _Progress:
    """Says on stderr how far a build is, now and then."""

    def __init__(self) -> None:
        self._started = self._said = time.monotonic()

    def __call__(self, seen: int, failed: int) -> None:
        now = time.monotonic()
        if now - self._said >= _NOTE_SECONDS:
            self._said = now
            note(f"{seen:,} files, {failed:,} failed, {seen / (now - self._started):.0f} files/s")


def _print(store: DataflowStore, json: bool) -> None:
    summary = store.summary()
    if json:
        print_json(summary)
        return
    counts = summary["counts"]
    split = ", ".join(f"{summary['graphs'][side]:,} {side}" for side in SPLITS)
    title = f"{len(store):,} graphs ({split}), {summary['nodes']:,} nodes, {summary['edges']:,} edges"
    rows: list[tuple[Any, ...]] = []
    for task, sides in summary["tasks"].items():
        for side, values in sides.items():
            steps = " / ".join(str(value) for value in values["steps"])
            within = (f"{values['within'][limit]:,}" for limit in ("30", "60", "200"))
            share = f"{values['positive']:.1%}"
            rows.append((task, side, f"{values['instances']:,}", *within, share, steps))
    columns = (
        "task",
        "split",
        "instances",
        "≤ 30 steps",
        "≤ 60",
        "≤ 200",
        "positive",
        "steps 50 / 90 / 100 %",
    )
    print_table(columns, rows, title=title, right=columns[2:])
    if counts:
        note(
            f"{counts['files']:,} files, {counts['failed']:,} failed, {counts['duplicates']:,} duplicates. "
            f"Vocabulary: {len(store.vocabulary):,} texts. Fingerprint {store.fingerprint}."
        )


def _note_failures(store: DataflowStore) -> None:
    path = store.folder / "failures.jsonl"
    reasons: Counter[str] = Counter()
    with path.open() as file:
        for line in file:
            failure = json_format.loads(line)
            if "task" not in failure:
                reasons[failure["reason"].partition(": ")[2] or failure["reason"]] += 1
    for reason, count in reasons.most_common(5):
        note(f"failed, {count:,} ×: {reason}")
    if reasons:
        print(f"All failures, with their reasons: {path}", file=sys.stderr)
