"""Vocabulary: node text → number, and how much of a program it covers.

The file format is that of the published vocabulary: tab-separated columns cumulative_frequency,
cumulative_node_frequency, count and text, most frequent first. A text's number is its line, from 0; every
unknown text has the number one past the last, so an embedding has `len(vocabulary) + 1` rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.program.graph import ProgramGraph
from apportion.settings import replace_file

ALIASES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        # The published vocabulary was made from graphs of June 2020, whose root was called otherwise.
        "root": {"[external]": "<root>"},
        # Those graphs abbreviated one level of pointer over a structure only.
        "struct-pointer": {"struct**": "struct*"},
        # A negation was written `fsub -0.0, x` before LLVM 8.
        "fneg": {"fneg": "fsub"},
    }
)
"Names of the ways in which a text unknown to the published vocabulary may count as one that it knows."

_HEADER = ("cumulative_frequency", "cumulative_node_frequency", "count", "text")


@dataclass(frozen=True)
class VocabularyCoverage:
    """How many nodes of some graphs have a text that a vocabulary knows."""

    nodes: int
    known: int
    misses: tuple[tuple[str, int], ...]
    "Unknown texts with the number of their nodes, most frequent first."

    @property
    def share(self) -> float:
        """The part of the nodes that is known, from 0 to 1; 1 when there are no nodes."""
        return self.known / self.nodes if self.nodes else 1.0


@dataclass(frozen=True)
class Vocabulary:
    """Texts in the order of their numbers."""

    texts: tuple[str, ...]
    counts: tuple[int, ...]
    "How often each text occurred in the corpus it was made from."
    cumulative: tuple[float, ...]
    "The part of the corpus' nodes that the vocabulary covers up to and with each text."
    aliases: Mapping[str, str] = field(default_factory=dict)
    "Unknown text → the known text that it counts as."

    def __post_init__(self) -> None:
        if not len(self.texts) == len(self.counts) == len(self.cumulative):
            raise InvalidSetting(
                f"A vocabulary needs a count and a frequency per text, "
                f"not {len(self.counts)} and {len(self.cumulative)} for {len(self.texts)}"
            )
        if len(set(self.texts)) < len(self.texts):
            twice = Counter(self.texts).most_common(1)[0][0]
            raise InvalidSetting(f"The vocabulary has the text {twice!r} twice")
        if strangers := sorted(set(self.aliases.values()) - set(self.texts)):
            raise InvalidSetting(f"An alias stands for {strangers[0]!r}, which the vocabulary does not have")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def unknown(self) -> int:
        """The number of every text that is not in it."""
        return len(self.texts)

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """The vocabulary in a tab-separated file.

        Raises:
            UnreadableFile: the file is not there.
            MalformedInput: a line is not four columns with numbers in the first three, or repeats a text.
        """
        try:
            lines = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
        except OSError as error:
            raise UnreadableFile(f"Cannot read the vocabulary {path}: {error.strerror or error}") from error
        if tuple(lines[0].rstrip("\r").split("\t")) != _HEADER:
            raise MalformedInput(f"No vocabulary: the first line must be {_HEADER}", file=str(path), line=1)
        rows: dict[str, tuple[int, float]] = {}
        for number, line in enumerate(lines[1:], 2):
            if not line:
                continue
            cells = line.rstrip("\r").split("\t")
            try:
                cumulative, _, count, text = float(cells[0]), float(cells[1]), int(cells[2]), cells[3]
            except (ValueError, IndexError) as error:
                raise MalformedInput(
                    f"Not four columns {', '.join(_HEADER)}: {line!r}", file=str(path), line=number
                ) from error
            if len(cells) != len(_HEADER) or text in rows:
                problem = (
                    "more than four columns" if len(cells) != len(_HEADER) else f"{text!r} a second time"
                )
                raise MalformedInput(problem, file=str(path), line=number)
            rows[text] = (count, cumulative)
        counts = tuple(count for count, _ in rows.values())
        return cls(tuple(rows), counts, tuple(cumulative for _, cumulative in rows.values()))

    @classmethod
    def numbered(cls, texts: Iterable[str]) -> Vocabulary:
        """These texts in this order, as a trained model has them; how often they occurred is not known."""
        ordered = tuple(texts)
        return cls(ordered, (0,) * len(ordered), (0.0,) * len(ordered))

    @classmethod
    def of(cls, graphs: Iterable[ProgramGraph]) -> Vocabulary:
        """Every text of these graphs, most frequent first, equally frequent ones in alphabetical order."""
        tally: Counter[str] = Counter()
        for graph in graphs:
            tally.update(_tally(graph))
        return cls.counted(tally)

    @classmethod
    def counted(cls, tally: Counter[str]) -> Vocabulary:
        """Every text of a tally of nodes, in the order that `of` gives."""
        ordered = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
        total = tally.total()
        cumulative = np.cumsum([count for _, count in ordered]) / max(total, 1)
        return cls(
            tuple(text for text, _ in ordered),
            tuple(count for _, count in ordered),
            tuple(np.round(cumulative, 4).tolist()),
        )

    def write(self, path: Path) -> None:
        """Save it in the published format; aliases are not part of a file.

        Raises:
            InvalidSetting: a text holds a tab or a line break, which the format cannot say.
        """
        for text in self.texts:
            if set(text) & set("\t\n\r"):
                raise InvalidSetting(f"The text {text!r} cannot stand in a tab-separated file")
        lines = ["\t".join(_HEADER)]
        for text, count, cumulative in zip(self.texts, self.counts, self.cumulative, strict=True):
            lines.append(f"{cumulative}\t{cumulative}\t{count}\t{text}")
        replace_file(path, ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))

    def with_aliases(self, *names: str) -> Vocabulary:
        """The same vocabulary in which the named `ALIASES` count as known.

        Raises:
            UnknownName: there is no such group of aliases.
            InvalidSetting: an alias stands for a text that this vocabulary does not have.
        """
        chosen: dict[str, str] = dict(self.aliases)
        for name in names:
            if name not in ALIASES:
                raise UnknownName("alias", name, ALIASES)
            chosen.update(ALIASES[name])
        return replace(self, aliases=chosen)

    def cut(self, *, texts: int | None = None, coverage: float | None = None) -> Vocabulary:
        """Its most frequent part: at most so many texts, and no more than are needed to cover so much.

        Aliases of a text that is cut away go with it.
        """
        keep = len(self) if texts is None else min(texts, len(self))
        if coverage is not None:
            keep = min(keep, int(np.searchsorted(self.cumulative, coverage)) + 1)
        kept = self.texts[:keep]
        return Vocabulary(
            kept,
            self.counts[:keep],
            self.cumulative[:keep],
            {text: known for text, known in self.aliases.items() if known in set(kept)},
        )

    def number(self, text: str) -> int:
        """The number of a text, or `unknown`."""
        found = self._numbers.get(text)
        if found is None and text in self.aliases:
            found = self._numbers[self.aliases[text]]
        return self.unknown if found is None else found

    def ids(self, graph: ProgramGraph) -> NDArray[np.int32]:
        """(N,) the number of each node's text."""
        numbers = np.full(len(graph.strings), self.unknown, np.int32)
        for string in _used(graph):
            numbers[string] = self.number(graph.strings[string])
        return numbers[graph.node_text]

    def coverage(self, graphs: ProgramGraph | Iterable[ProgramGraph]) -> VocabularyCoverage:
        """How much of these graphs it knows, and what it misses."""
        tally: Counter[str] = Counter()
        for graph in [graphs] if isinstance(graphs, ProgramGraph) else graphs:
            tally.update(_tally(graph))
        misses = {text: count for text, count in tally.items() if self.number(text) == self.unknown}
        return VocabularyCoverage(
            nodes=tally.total(),
            known=tally.total() - sum(misses.values()),
            misses=tuple(sorted(misses.items(), key=lambda item: (-item[1], item[0]))),
        )

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.texts)}


def _used(graph: ProgramGraph) -> list[int]:
    """The strings that are the text of some node: few, although most strings are full texts."""
    used = np.zeros(len(graph.strings), bool)
    used[graph.node_text] = True
    found: list[int] = np.flatnonzero(used).tolist()
    return found


def _tally(graph: ProgramGraph) -> dict[str, int]:
    counts = np.bincount(graph.node_text, minlength=len(graph.strings))
    tally: Counter[str] = Counter()  # two strings of the table may be the same text
    for string in _used(graph):
        tally[graph.strings[string]] += int(counts[string])
    return tally
