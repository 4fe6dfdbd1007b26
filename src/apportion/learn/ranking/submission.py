"""The competition's answer file: a header, and for each test graph its configurations, fastest first.

ID,TopConfigs
layout:xla:random:NAME,3;0;2;1        all configurations of a layout graph
tile:xla:NAME,17;4;9;0;2              the first five of a tile kernel
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.published.tpugraphs import COLLECTIONS
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.learn.ranking.measures import fastest_first
from apportion.settings import whole_file

HEADER = ["ID", "TopConfigs"]
TILE_ANSWERS = 5
PUBLISHED_ROWS = {
    "tile:xla": 844, "layout:xla:default": 8, "layout:xla:random": 8,
    "layout:nlp:default": 17, "layout:nlp:random": 17,
}  # fmt: skip
"How many graphs the published test set has in each collection: 894 in all."


@dataclass(frozen=True)
class Asked:
    """A graph that an answer is wanted for."""

    collection: str
    name: str
    configurations: int

    @property
    def identifier(self) -> str:
        """What the answer file calls it."""
        return f"{self.collection}:{self.name}"

    @property
    def answers(self) -> int:
        """How many configurations its row must have."""
        return (
            min(TILE_ANSWERS, self.configurations) if self.collection == "tile:xla" else self.configurations
        )


def write_submission(path: Path, ranked: Iterable[tuple[Asked, NDArray[Any]]]) -> int:
    """Write the answers for graphs with their scores (C,), lower for faster; how many rows there are.

    Raises:
        InvalidSetting: scores do not fit a graph, or a graph comes twice.
    """
    seen: set[str] = set()
    with whole_file(path) as part, part.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(HEADER)
        for asked, scores in ranked:
            if len(scores) != asked.configurations or np.isnan(scores).any():
                wanted = f"{asked.configurations} scores that are numbers"
                raise InvalidSetting(
                    f"{asked.identifier} needs {wanted}, not {len(scores)} of which some are not"
                )
            if asked.identifier in seen:
                raise InvalidSetting(f"{asked.identifier} was given twice")
            seen.add(asked.identifier)
            order = fastest_first(scores)[: asked.answers]
            rows.writerow([asked.identifier, ";".join(map(str, order.tolist()))])
    return len(seen)


def check_submission(path: Path, asked: Mapping[str, Asked] | None = None) -> dict[str, int]:
    """How many rows there are of each collection, if the file keeps the rules.

    Args:
        asked: identifier → graph: that each has a row of the right length, and no others. Without it the rows
            are checked by themselves, and their number against that of the published test set.

    Raises:
        UnreadableFile: there is no such file.
        MalformedInput: a rule is broken; the message carries the line.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    if not lines or lines[0].split(",") != HEADER:
        raise MalformedInput(f"The first line must be {','.join(HEADER)}", file=str(path), line=1)
    seen: dict[str, str] = {}
    for number, line in enumerate(lines[1:], 2):
        identifier, collection, problem = _row(line, asked)
        if problem is None and identifier in seen:
            problem = f"{identifier} has a row already"
        if problem:
            raise MalformedInput(problem, file=str(path), line=number)
        seen[identifier] = collection
    found = dict(Counter(seen.values()))
    if asked is not None:
        lacking = sorted(set(asked) - set(seen))
        if lacking:
            raise MalformedInput(f"{len(lacking)} graphs have no row, {lacking[0]} first", file=str(path))
    elif found != PUBLISHED_ROWS:
        wanted = ", ".join(f"{count} of {name}" for name, count in PUBLISHED_ROWS.items())
        there = ", ".join(f"{count} of {name}" for name, count in found.items())
        raise MalformedInput(f"The test set has {wanted}; this file has {there or 'none'}", file=str(path))
    return found


def _row(line: str, asked: Mapping[str, Asked] | None) -> tuple[str, str, str | None]:
    """A row's identifier, its collection, and what is wrong with it."""
    identifier, comma, answers = line.partition(",")
    collection = next((name for name in COLLECTIONS if identifier.startswith(f"{name}:")), "")
    if not comma or not collection:
        return identifier, collection, f"{line[:60]!r} is no row like layout:xla:random:NAME,3;0;2;1"
    words = answers.split(";")
    if not all(word.isascii() and word.isdigit() for word in words):
        return identifier, collection, f"{identifier}: the configurations must be numbers joined by ';'"
    order = [int(word) for word in words]
    if len(set(order)) != len(order):
        return identifier, collection, f"{identifier}: a configuration comes twice"
    if asked is None:
        whole = collection == "tile:xla" or sorted(order) == list(range(len(order)))
        if collection == "tile:xla" and len(order) > TILE_ANSWERS:
            return (
                identifier,
                collection,
                f"{identifier}: {len(order)} configurations instead of {TILE_ANSWERS}",
            )
        return identifier, collection, None if whole else f"{identifier}: not every configuration is there"
    graph = asked.get(identifier)
    if graph is None:
        return identifier, collection, f"{identifier} is not among the graphs that are asked for"
    if len(order) != graph.answers or max(order) >= graph.configurations:
        wanted = f"{graph.answers} of the configurations 0 to {graph.configurations - 1}"
        return identifier, collection, f"{identifier} needs {wanted}, not {len(order)} up to {max(order)}"
    return identifier, collection, None
