"""Graphs of many programs: built by all cores, into one Parquet file, and nothing lost by an interruption.

Beside `graphs.parquet` stands a folder `graphs.parquet.parts` while the work goes on. Each finished graph is
a file in it, named by the digest of its source and options and written whole or not at all; so a run that is
killed loses only the files it was at, and the next run of the same command takes up the rest. When all is
done the parts become the one file and the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from apportion import __version__
from apportion.errors import ApportionError, UnreadableFile, UnwritableFile
from apportion.jobs import LocalRunner, Outcome
from apportion.jobs.base import outcome_of
from apportion.jobs.holding import held
from apportion.program import graph_of, includes, tables
from apportion.program.buildfile import NOTHING, BuildOptions
from apportion.program.compile import CompileOptions
from apportion.program.exchange import json_text
from apportion.program.graph import ProgramGraph
from apportion.program.llvm import GraphOptions
from apportion.program.source import SUFFIXES, Source

R = TypeVar("R")

_IN_PROCESS = 4
"So few files are built here and now: starting workers would take longer."
_SPARE_SECONDS = 10.0
"What a file may take beyond its compilation: reading, parsing and writing."
_LIMITS = ("seconds", "memory_bytes", "output_bytes")


@dataclass(frozen=True)
class Recipe:
    """How a source becomes a graph."""

    language: str | None = None
    "None takes what each file's name says."
    build: BuildOptions = NOTHING
    "How every file is compiled, over what the build files beside them say."
    compile: CompileOptions = field(default_factory=CompileOptions)
    graph: GraphOptions = field(default_factory=GraphOptions)

    def source(self, path: Path) -> Source:
        return Source.read(path, self.language, build=self.build)

    def graph_of(self, source: Source) -> ProgramGraph:
        return graph_of(source, compile=self.compile, graph=self.graph)

    def fingerprint(self) -> str:
        """Everything but the source that decides what the graph is, headers included."""
        chosen = {name: value for name, value in asdict(self.compile).items() if name not in _LIMITS}
        folders = (*self.compile.include_paths, *self.build.include_paths)
        headers = includes.fingerprint(folders)
        parts = [__version__, tables.VERSION, self.language, headers, chosen, asdict(self.graph)]
        if self.build != NOTHING:
            parts.append(asdict(self.build))
        return hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Built:
    """What became of one file."""

    path: Path
    nodes: int = 0
    edges: int = 0
    digest: str = ""
    "Of source, name and recipe."
    kept: bool = False
    "Whether it was there from an earlier run."
    error: ApportionError | None = None


def files_of(paths: Iterable[Path]) -> list[Path]:
    """These files as they are given, and for a folder the programs in it and below, hidden ones left out.

    Raises:
        UnreadableFile: there is no program in a folder.
    """
    found: list[Path] = []
    for path in paths:
        programs = list(_programs_under(path)) if path.is_dir() else [path]
        if not programs:
            raise UnreadableFile(f"No program found in {path}: nothing there ends in {', '.join(SUFFIXES)}")
        found += programs
    return found


def json_lines(
    files: Sequence[Path], recipe: Recipe, *, workers: int | None = None
) -> Iterator[tuple[Path, str | ApportionError]]:
    """Each file with its graph as one line of JSON, or with the error in its place, in the files' order."""
    for path, outcome in _in_order(files, partial(_line, recipe=recipe), recipe, workers):
        yield path, outcome.error if outcome.error is not None else outcome.unwrap()


def graphs(
    files: Sequence[Path], recipe: Recipe, *, workers: int | None = None
) -> Iterator[tuple[Path, ProgramGraph | ApportionError]]:
    """Each file with its graph, or with the error that took its place, in the files' order."""
    for path, outcome in _in_order(files, partial(_graph, recipe=recipe), recipe, workers):
        yield path, outcome.error if outcome.error is not None else outcome.unwrap()


def build(files: Sequence[Path], out: Path, recipe: Recipe, *, workers: int | None = None) -> Iterator[Built]:
    """Build the graphs of these files, each once, and write them as one Parquet file when the last is done.

    Yields what became of each file as soon as it is known. Afterwards `out` holds one row for each file that
    gave a graph, and no others: rows of an earlier run come first, new ones follow in the order of `files`.
    When no file gave a graph, `out` is not touched. Files that failed are tried again by the next run.

    Raises:
        UnreadableFile: `out` cannot be written, or another run is writing it.
        MalformedInput: `out` exists and is not a file of program graphs.
    """
    files = list(dict.fromkeys(files))
    folder = out.with_name(f"{out.name}.parts")
    with held(out):
        folder.mkdir(exist_ok=True)
        try:
            there = tables.digests(out) if out.exists() else {}
            work = partial(_part, recipe=recipe, fingerprint=recipe.fingerprint(), folder=folder)
            items = [(path, there.get(str(path))) for path in files]
            built: dict[int, Built] = {}
            for outcome in _runner(recipe, workers).map(work, items):
                path = files[outcome.item_index]
                if isinstance(outcome.error, UnwritableFile):  # no fault of the file
                    raise outcome.error
                result = Built(path, error=outcome.error) if outcome.error is not None else outcome.unwrap()
                built[outcome.item_index] = result
                yield result
            finished = [result.digest for _, result in sorted(built.items()) if result.error is None]
            if finished:
                old = set(there.values()) & set(finished)
                parts = [folder / f"{digest}.parquet" for digest in finished if digest not in old]
                if parts or len(old) < len(there):
                    tables.merge([out, *parts] if old else parts, out, digests=finished)
                shutil.rmtree(folder)
        finally:
            with suppress(OSError):  # not empty: what was finished stays for the next run
                folder.rmdir()


def _programs_under(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                yield Path(place, name)


def _runner(recipe: Recipe, workers: int | None) -> LocalRunner:
    return LocalRunner(workers, deadline_seconds=recipe.compile.seconds + _SPARE_SECONDS)


def _in_order(
    files: Sequence[Path], work: Callable[[Path], R], recipe: Recipe, workers: int | None
) -> Iterator[tuple[Path, Outcome[R]]]:
    """Each file with its outcome, in the files' order although they finish in another."""
    waiting: dict[int, Outcome[R]] = {}
    following = 0
    outcomes = (
        (outcome_of(work, path, number) for number, path in enumerate(files))
        if len(files) <= _IN_PROCESS
        else _runner(recipe, workers).map(work, files)
    )
    for outcome in outcomes:
        waiting[outcome.item_index] = outcome
        while following in waiting:
            yield files[following], waiting.pop(following)
            following += 1


def _line(path: Path, *, recipe: Recipe) -> str:
    return json_text(recipe.graph_of(recipe.source(path)))


def _graph(path: Path, *, recipe: Recipe) -> ProgramGraph:
    return recipe.graph_of(recipe.source(path))


def _part(item: tuple[Path, str | None], *, recipe: Recipe, fingerprint: str, folder: Path) -> Built:
    """In a worker: build one graph and write it, unless it is there from an earlier run."""
    path, known = item
    source = recipe.source(path)
    identity = [fingerprint, source.name, source.language, source.digest]
    if source.build != recipe.build:  # the file has a build file beside it
        identity.append(repr(source.build))
    digest = hashlib.sha256(json.dumps(identity).encode("ascii")).hexdigest()
    part = folder / f"{digest}.parquet"
    if digest == known or _is_sound(part):
        return Built(path, digest=digest, kept=True)
    graph = recipe.graph_of(source)
    tables.write_part(part, [tables.GraphRow(str(path), graph, digest)])
    nodes, edges = graph.size
    return Built(path, nodes, edges, digest)


def _is_sound(part: Path) -> bool:
    try:
        tables.check(part)
    except ApportionError:  # not there, or of another version
        return False
    return True
