"""Assembly: the shards of a build become one store.

Identical graphs are kept once. Graphs whose edges are the same, and files that are one source at several
levels of optimisation, are a family and stay on one side of the split: so no test graph was seen in training,
whatever vocabulary a model uses. Families are drawn into the split 3:1:1 by files.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.columns import COLUMNS, SPLITS, create_column, describe, write_names
from apportion.data.shards import FileResult, LabelledGraph, read_shard
from apportion.errors import InvalidSetting
from apportion.program.graph import Flow
from apportion.program.vocabulary import Vocabulary

SHARES = {"train": 3 / 5, "val": 1 / 5, "test": 1 / 5}
LARGEST_ACTIVE = 2**32 - 1
"Larger counts of active nodes, which only the reference's repeated visits reach, are stored as this."

_LEVEL = re.compile(r"[._-]?O[0-3sz](?=[./_-]|$)")


@dataclass
class _Candidate:
    """A graph in a shard, with what deciding about it needs."""

    corpus: str
    name: str
    split: str | None
    exact: bytes
    "Digest of texts, edges, flows and positions."
    structure: bytes
    "The same without texts."
    nodes: int
    edges: int
    instances: int
    largest: tuple[int, int, int]
    "Edge position, steps, active."
    text_ids: NDArray[np.int32]
    text_counts: NDArray[np.int32]


def assemble(
    shards: Sequence[Path],
    out: Path,
    *,
    tasks: tuple[str, ...],
    seed: int,
    settings: Mapping[str, Any],
    wanted: Collection[str] | None = None,
    vocabulary: Vocabulary | None = None,
    vocabulary_texts: int = 2_500,
) -> None:
    """Write the store of the graphs in some shards; an earlier store in the folder is replaced.

    Args:
        wanted: keys of the files to take; None takes all.
        vocabulary: numbers the texts; by default the most frequent texts of the training side do.

    Raises:
        InvalidSetting: there is no graph.
        MalformedInput: a shard is corrupt.
    """
    texts: dict[str, int] = {}
    candidates: dict[str, _Candidate] = {}
    failures: list[dict[str, str]] = []
    for result in _results(shards, wanted):
        place = {"corpus": result.corpus, "name": result.name}
        if result.graph is None:
            failures.append({**place, "reason": str(result.reason)})
            continue
        failures += [{**place, "task": task, "reason": reason} for task, reason in result.graph.problems]
        candidates[result.key] = _candidate(result, result.graph, texts)
    if not candidates:
        raise InvalidSetting(f"No file gave a graph. {_reasons(failures)}")
    kept = _first_of_each(candidates, lambda key: candidates[key].exact)
    split = _splits({key: candidates[key] for key in kept}, seed)
    if vocabulary is None:
        training = [candidates[key] for key in kept if split[key] == "train"]
        vocabulary = _vocabulary(training, list(texts)).cut(texts=vocabulary_texts)
    # What a model sees of two different graphs can still be the same, where they differ in unknown texts.
    seen = {
        result.key: _digest(graph, _numbers(graph, vocabulary)) for result, graph in _graphs(shards, kept)
    }
    kept = _first_of_each({key: candidates[key] for key in kept}, lambda key: seen[key])
    kept.sort(key=lambda key: candidates[key].exact)
    counts = {
        "files": len(candidates) + sum("task" not in failure for failure in failures),
        "failed": sum("task" not in failure for failure in failures),
        "duplicates": len(candidates) - len(kept),
        "graphs": len(kept),
    }
    part = out / "part"
    shutil.rmtree(part, ignore_errors=True)
    (part / "columns").mkdir(parents=True)
    sources = tuple(sorted({candidate.corpus for candidate in candidates.values()}))
    _write_columns(shards, part, [candidates[key] for key in kept], kept, split, sources, vocabulary)
    vocabulary.write(part / "vocabulary.csv")
    write_names(part, [f"{candidates[key].corpus}/{candidates[key].name}" for key in kept])
    failures.sort(key=lambda failure: (failure["corpus"], failure["name"], failure.get("task", "")))
    (part / "failures.jsonl").write_text("".join(json.dumps(failure) + "\n" for failure in failures))
    describe(part, tasks, sources, {**settings, "counts": counts})
    _replace(out, part)


def _results(shards: Sequence[Path], wanted: Collection[str] | None) -> Iterator[FileResult]:
    """Each wanted file's result once: the latest, when it was tried again."""
    done: set[str] = set()
    for shard in reversed(shards):
        for result in read_shard(shard):
            if result.key not in done and (wanted is None or result.key in wanted):
                done.add(result.key)
                yield result


def _graphs(shards: Sequence[Path], keys: Sequence[str]) -> Iterator[tuple[FileResult, LabelledGraph]]:
    for result in _results(shards, set(keys)):
        if result.graph is not None:
            yield result, result.graph


def _candidate(result: FileResult, graph: LabelledGraph, texts: dict[str, int]) -> _Candidate:
    ids = np.array([texts.setdefault(text, len(texts)) for text in graph.texts], np.int32)
    ordered = np.argsort(np.array(graph.texts, object), kind="stable")
    rank = np.empty(len(ordered), np.int64)
    rank[ordered] = np.arange(len(ordered))
    structure = _digest(graph, np.zeros(graph.nodes, np.int64))
    words = hashlib.sha256("\0".join(graph.texts[i] for i in ordered).encode("utf-8", "surrogateescape"))
    words.update(_digest(graph, rank[graph.node_text]))
    largest = (graph.edge_position, graph.steps, np.minimum(graph.active, LARGEST_ACTIVE))
    return _Candidate(
        result.corpus, result.name, result.split, words.digest(), structure,
        graph.nodes, graph.edges.shape[1], len(graph.root),
        tuple(int(array.max(initial=0)) for array in largest),  # type: ignore[arg-type]
        ids, np.bincount(graph.node_text, minlength=len(ids)).astype(np.int32),
    )  # fmt: skip


def _digest(graph: LabelledGraph, node_numbers: NDArray[np.integer]) -> bytes:
    digest = hashlib.sha256()
    for array in (node_numbers, graph.edges, graph.edge_flow, graph.edge_position):
        digest.update(np.ascontiguousarray(array, np.int64).data)
    return digest.digest()


def _numbers(graph: LabelledGraph, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """(N,) the number of each node's text."""
    return np.array([vocabulary.number(text) for text in graph.texts], np.int64)[graph.node_text]


def _first_of_each(candidates: Mapping[str, _Candidate], digest_of: Any) -> list[str]:
    """One key for each digest: the one whose file comes first by corpus and name."""
    first: dict[bytes, str] = {}
    for key in sorted(candidates, key=lambda key: (candidates[key].corpus, candidates[key].name, key)):
        first.setdefault(digest_of(key), key)
    return list(first.values())


def _splits(candidates: Mapping[str, _Candidate], seed: int) -> dict[str, str]:
    """The side of each file, family by family."""
    parent = {key: key for key in candidates}

    def root(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    known: dict[object, str] = {}
    for key, candidate in candidates.items():
        program = _LEVEL.sub("", f"{candidate.corpus}/{candidate.name}")
        for mark in (candidate.structure, program):
            parent[root(key)] = root(known.setdefault(mark, key))
    families: dict[str, list[str]] = {}
    for key in candidates:
        families.setdefault(root(key), []).append(key)

    def drawn(family: list[str]) -> str:
        first = min(candidates[key].exact for key in family)
        return hashlib.sha256(f"{seed}/".encode() + first).hexdigest()

    counts = dict.fromkeys(SPLITS, 0)
    split: dict[str, str] = {}
    for family in sorted(families.values(), key=drawn):
        given = {candidates[key].split for key in family} - {None}
        total = sum(counts.values()) + len(family)
        lacking = max(SPLITS, key=lambda side: SHARES[side] * total - counts[side])
        chosen = next((side for side in SPLITS if side in given), lacking)
        counts[chosen] += len(family)
        split.update(dict.fromkeys(family, chosen))
    return split


def _vocabulary(candidates: Sequence[_Candidate], texts: list[str]) -> Vocabulary:
    totals = np.zeros(len(texts), np.int64)
    for candidate in candidates:
        np.add.at(totals, candidate.text_ids, candidate.text_counts)
    tally = {text: int(count) for text, count in zip(texts, totals, strict=True) if count}
    # A vocabulary file has one text per line, so a text with a line end stays unknown.
    return Vocabulary.counted(Counter({text: count for text, count in tally.items() if text.isprintable()}))


def _write_columns(
    shards: Sequence[Path],
    folder: Path,
    candidates: Sequence[_Candidate],
    keys: Sequence[str],
    split: Mapping[str, str],
    sources: tuple[str, ...],
    vocabulary: Vocabulary,
) -> None:
    nodes = np.array([candidate.nodes for candidate in candidates])
    edges = np.array([candidate.edges for candidate in candidates])
    instances = np.array([candidate.instances for candidate in candidates])
    bytes_each = (nodes + 7) // 8
    starts = {"node": _starts(nodes), "edge": _starts(edges), "instance": _starts(instances)}
    label_starts = _starts(instances * bytes_each)
    position, steps, active = np.max([candidate.largest for candidate in candidates], axis=0).tolist()
    total = {name: int(values[-1]) for name, values in starts.items()} | {"graph": len(keys)}
    most_nodes = int(nodes.max())
    largest = {
        "graph_split": len(SPLITS) - 1, "graph_source": len(sources) - 1, "node_text": vocabulary.unknown,
        "edge_source": most_nodes - 1, "edge_target": most_nodes - 1,
        "edge_flow": len(Flow) - 1, "edge_position": position,
        "instance_graph": len(keys) - 1, "instance_task": 255, "instance_root": most_nodes - 1,
        "instance_steps": steps, "instance_active": active,
        "node_offset": total["node"], "edge_offset": total["edge"], "label_offset": int(label_starts[-1]),
        "labels": 255,
    }  # fmt: skip
    lengths = {name: total.get(name.partition("_")[0], 0) for name in COLUMNS}
    lengths |= {
        "node_offset": len(keys) + 1, "edge_offset": len(keys) + 1,
        "label_offset": total["instance"] + 1, "labels": int(label_starts[-1]),
    }  # fmt: skip
    columns = {name: create_column(folder, name, largest[name], lengths[name]) for name in COLUMNS}
    columns["node_offset"][:], columns["edge_offset"][:] = starts["node"], starts["edge"]
    columns["label_offset"][:] = _starts(np.repeat(bytes_each, instances))
    columns["graph_split"][:] = [SPLITS.index(split[key]) for key in keys]
    columns["graph_source"][:] = [sources.index(candidate.corpus) for candidate in candidates]
    number_of = {key: number for number, key in enumerate(keys)}
    for result, graph in _graphs(shards, keys):
        g = number_of[result.key]
        node, edge, instance = (slice(int(starts[name][g]), int(starts[name][g + 1])) for name in starts)
        columns["node_text"][node] = _numbers(graph, vocabulary)
        columns["edge_source"][edge], columns["edge_target"][edge] = graph.edges
        columns["edge_flow"][edge] = graph.edge_flow
        columns["edge_position"][edge] = graph.edge_position
        columns["instance_graph"][instance] = g
        columns["instance_task"][instance], columns["instance_root"][instance] = graph.task, graph.root
        columns["instance_steps"][instance] = graph.steps
        columns["instance_active"][instance] = np.minimum(graph.active, LARGEST_ACTIVE)
        columns["labels"][int(label_starts[g]) : int(label_starts[g + 1])] = graph.labels.reshape(-1)
    for column in columns.values():
        if isinstance(column, np.memmap):
            column.flush()


def _starts(lengths: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _replace(out: Path, part: Path) -> None:
    """Put the finished files in place; meanwhile there is no store.json, so nobody opens half a store."""
    (out / "store.json").unlink(missing_ok=True)
    shutil.rmtree(out / "columns", ignore_errors=True)
    for name in ("columns", "vocabulary.csv", "names.txt", "failures.jsonl", "store.json"):
        (part / name).rename(out / name)
    part.rmdir()


def _reasons(failures: Sequence[Mapping[str, str]]) -> str:
    if not failures:
        return "There is no file whose name ends as sources do."
    most = Counter(failure["reason"] for failure in failures).most_common(3)
    return "Most frequent: " + "; ".join(f"{reason} ({count} files)" for reason, count in most)
