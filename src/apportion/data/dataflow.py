"""Build a data-flow dataset: files of any corpus → graphs → labels from sampled roots → one `DataflowStore`.

Files become shards first, so that a build that was interrupted goes on with the files that no shard has; when
every file has been seen, the shards become a store. Neither the order of the files nor the number of workers
nor an interruption changes what comes out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from apportion import __version__
from apportion.data.archives import files_in
from apportion.data.assembly import assemble
from apportion.data.shards import FileResult, LabelledGraph, held, read_files, read_keys, write_shards
from apportion.data.store import DataflowStore
from apportion.errors import (
    AnalysisError,
    ApportionError,
    InvalidSetting,
    JobError,
    MissingPackage,
    UnreadableFile,
)
from apportion.jobs import LocalRunner, Runner
from apportion.jobs.base import outcome_of
from apportion.program import graph_of
from apportion.program.analysis import analyses, modes, run_packed, sample_roots, sampling_rules
from apportion.program.compile import CompileOptions
from apportion.program.graph import ProgramGraph
from apportion.program.llvm import GraphOptions
from apportion.program.source import SUFFIXES, Source, is_bitcode
from apportion.program.vocabulary import Vocabulary
from apportion.settings import replace_file

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
FILE_SECONDS = 60.0
"What one file may take, as in the reference's own labelling."

Report = Callable[[int, int], None]
"Told after each file how many were seen and how many of these failed."


@dataclass(frozen=True)
class LabelSettings:
    """How a file becomes labels. All files of a store are labelled with one setting."""

    rule: Literal["paper", "reference"] = "paper"
    "How many roots: a tenth of the nodes (the paper's text) or of the eligible roots (its code), at most 10."
    mode: Literal["reference", "exact"] = "reference"
    "The definitions that the published labels were made with, or the textbook's."
    seed: int = 0
    max_nodes: int = 40_000
    "Larger graphs are left out, as the paper does."
    tasks: tuple[str, ...] = analyses

    def __post_init__(self) -> None:
        if self.rule not in sampling_rules:
            raise InvalidSetting(f"rule must be one of {', '.join(sampling_rules)}, not {self.rule!r}")
        if self.mode not in modes:
            raise InvalidSetting(f"mode must be one of {', '.join(modes)}, not {self.mode!r}")
        if self.max_nodes < 1:
            raise InvalidSetting(f"max_nodes must be positive, not {self.max_nodes}")


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus, read."""

    corpus: str
    name: str
    "Its path within the corpus."
    data: bytes
    include_paths: tuple[Path, ...] = ()

    @property
    def key(self) -> str:
        """What tells it from all other files: corpus, name and contents."""
        digest = hashlib.sha256(f"{self.corpus}\0{self.name}\0".encode("utf-8", "surrogateescape"))
        digest.update(self.data)
        return digest.hexdigest()

    def source(self) -> Source:
        """It, as a source in the language that its name says."""
        if is_bitcode(self.data):
            return Source(self.data, "bitcode", self.name)
        try:
            text = self.data.decode("utf-8")
        except UnicodeDecodeError:
            text = self.data.decode("latin-1")
        return Source(text.replace("\r\n", "\n"), SUFFIXES[Path(self.name).suffix.lower()], self.name)


def build(
    corpora: Iterable[Path],
    out: Path,
    settings: LabelSettings,
    *,
    vocabulary: Vocabulary | None = None,
    vocabulary_texts: int = 2_500,
    jobs: int = 1,
    runner: Runner | None = None,
    only: bool = False,
    report: Report = lambda seen, failed: None,
) -> DataflowStore:
    """Label every file of some corpora and add them to the store; what an earlier call did is kept.

    A file that has changed takes the place of what it was.

    Args:
        corpora: folders, archives and files; sources by the ends of their names.
        out: the store's folder. Its folder `work` holds the shards, for going on and for adding files later.
        vocabulary: the vocabulary to number texts with; by default that of the training side is made.
        vocabulary_texts: how many texts a vocabulary made here has at most.
        jobs: worker processes; 0 works in this one, where no file can be stopped when it takes too long.
        runner: where files are labelled, instead of in `jobs` processes of this machine.
        only: leave out what earlier calls took from other corpora.

    Raises:
        InvalidSetting: the folder holds a build with other settings, or no file gave a graph.
        MissingPackage: some files need a compiler that is not installed.
        MalformedInput: a shard is corrupt; the message names it.
    """
    with held(out) as work:
        _agree(work, settings)
        known = {key for shard in sorted(work.glob("shard-*.npz")) for key in read_keys(shard)}
        wanted: dict[str, tuple[str, str]] = {}
        write_shards(work, _results(corpora, settings, runner or _runner(jobs), known, wanted, report))
        described = {
            **asdict(settings), "vocabulary_texts": vocabulary_texts,
            "graph": asdict(GraphOptions()), "version": __version__,
        }  # fmt: skip
        shards = sorted(work.glob("shard-*.npz"))
        taken = set(wanted)
        if not only:
            now = set(wanted.values())
            earlier = (entry for shard in shards for entry in read_files(shard))
            taken |= {key for key, corpus, name in earlier if (corpus, name) not in now}
        assemble(
            shards, out, tasks=settings.tasks, seed=settings.seed, settings=described, wanted=taken,
            vocabulary=vocabulary, vocabulary_texts=vocabulary_texts,
        )  # fmt: skip
    return DataflowStore.open(out)


def corpus_files(paths: Iterable[Path]) -> Iterator[CorpusFile]:
    """The sources in files, folders and archives, folders in alphabetical order.

    A corpus is called after its folder or archive, less the end of its name; single files are called `files`.

    Raises:
        UnreadableFile: a path is not there, or is nothing that can hold sources.
    """
    for path in paths:
        if path.is_dir():
            for inner in sorted(path.rglob("*")):
                if inner.suffix.lower() in SUFFIXES and inner.is_file():
                    folders = tuple(dict.fromkeys((inner.parent, path)))
                    name = inner.relative_to(path).as_posix()
                    yield CorpusFile(path.resolve().name, name, inner.read_bytes(), folders)
        elif path.is_file() and path.name.endswith(ARCHIVES):
            yield from _archived(path)
        elif path.is_file() and path.suffix.lower() in SUFFIXES:
            yield CorpusFile("files", path.name, path.read_bytes(), (path.parent,))
        elif path.exists():
            ends = ", ".join([*SUFFIXES, *ARCHIVES])
            raise UnreadableFile(f"{path} is no corpus. Give a folder, or a file whose name ends in {ends}.")
        else:
            raise UnreadableFile(f"There is no file or folder {path}")


def label(file: CorpusFile, settings: LabelSettings) -> LabelledGraph:
    """The graph of a file, analysed from sampled roots.

    Raises:
        ApportionError: it does not compile, is no program, or its graph is too large.
    """
    graph = graph_of(file.source(), compile=CompileOptions(include_paths=file.include_paths))
    if graph.nodes > settings.max_nodes:
        raise InvalidSetting(f"The graph has more than {settings.max_nodes:,} nodes")
    return label_graph(graph, settings)


def label_graph(graph: ProgramGraph, settings: LabelSettings) -> LabelledGraph:
    """A graph, analysed from roots that are drawn by the seed and the graph's own contents."""
    used, node_text = np.unique(graph.node_text, return_inverse=True)
    texts = tuple(graph.strings[int(i)] for i in used)
    contents = hashlib.sha256("\0".join([str(settings.seed), *texts]).encode("utf-8", "surrogateescape"))
    for array in (node_text, graph.node_function, graph.edges, graph.edge_flow, graph.edge_position):
        contents.update(np.ascontiguousarray(array, np.int64).data)
    seed = int.from_bytes(contents.digest()[:8], "little")
    width = (graph.nodes + 7) // 8
    rows = [np.zeros((4, 0), np.int64)]  # task, root, steps, active
    labels, problems = [np.zeros((0, width), np.uint8)], []
    for number, task in enumerate(settings.tasks):
        try:
            roots = sample_roots(graph, task, settings.rule, seed=seed + number, mode=settings.mode)
            runs = run_packed(graph, task, roots, settings.mode)
        except AnalysisError as error:
            problems.append((task, str(error)))
            continue
        ended = np.array([error is None for error in runs.errors])
        problems += [(task, error) for error in dict.fromkeys(runs.errors) if error is not None]
        rows.append(np.stack([np.full(len(runs), number), runs.roots, runs.steps, runs.active])[:, ended])
        labels.append(runs.bits[ended])
    tasks, roots_used, steps, active = np.concatenate(rows, axis=1)
    return LabelledGraph(
        texts, node_text.astype(np.int32), graph.edges, graph.edge_flow, graph.edge_position,
        tasks.astype(np.uint8), roots_used.astype(np.int32), steps, active,
        np.concatenate(labels), tuple(problems),
    )  # fmt: skip


def _runner(jobs: int) -> Runner | None:
    return LocalRunner(workers=jobs, deadline_seconds=FILE_SECONDS) if jobs else None


def _results(
    corpora: Iterable[Path],
    settings: LabelSettings,
    runner: Runner | None,
    known: set[str],
    wanted: dict[str, tuple[str, str]],
    report: Report,
) -> Iterator[FileResult]:
    """What became of each file that is not known; `wanted` receives the keys, corpora and names of all."""
    under_way: list[CorpusFile | None] = []
    seen = failed = 0

    def unknown() -> Iterator[CorpusFile]:
        nonlocal seen
        for file in corpus_files(corpora):
            if file.key in wanted:
                continue
            wanted[file.key] = (file.corpus, file.name)
            if file.key in known:
                seen += 1
                continue
            under_way.append(file)
            yield file

    function = partial(label, settings=settings)
    if runner is not None:
        outcomes = runner.map(function, unknown())
    else:
        outcomes = (outcome_of(function, file, number) for number, file in enumerate(unknown()))
    for outcome in outcomes:
        file, under_way[outcome.item_index] = under_way[outcome.item_index], None
        assert file is not None
        if isinstance(outcome.error, MissingPackage):
            raise outcome.error
        reason = None if outcome.error is None else _one_line(outcome.error)
        seen, failed = seen + 1, failed + (reason is not None)
        report(seen, failed)
        again = isinstance(outcome.error, JobError)
        yield FileResult(file.key, file.corpus, file.name, outcome.value, reason, again)


def _one_line(error: ApportionError) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _archived(path: Path) -> Iterator[CorpusFile]:
    corpus = next(path.name.removesuffix(end) for end in ARCHIVES if path.name.endswith(end))
    for name, data in files_in(path, SUFFIXES):
        yield CorpusFile(corpus, name.removeprefix("./"), data)


def _agree(work: Path, settings: LabelSettings) -> None:
    """Note the settings of a new build; refuse those that differ from an earlier one's."""
    path = work / "settings.json"
    ours = json.loads(json.dumps(asdict(settings)))
    if path.exists():
        theirs = json.loads(path.read_bytes())
        for name, value in ours.items():
            if theirs.get(name) != value:
                raise InvalidSetting(
                    f"{work.parent} holds a build with {name} = {theirs.get(name)!r}, not {value!r}. "
                    "Use another --out, or delete that folder."
                )
        return
    replace_file(path, json.dumps(ours).encode())
