from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.program.exchange import from_json
from apportion.program.graph import ProgramGraph
from apportion.program.vocabulary import Vocabulary, VocabularyCoverage

HEADER = "cumulative_frequency\tcumulative_node_frequency\tcount\ttext\n"


def graph_of(*texts: str) -> ProgramGraph:
    nodes = [[0, text, 0, 0, f"full {text}"] for text in texts]
    return from_json({"nodes": nodes, "edges": [], "functions": [], "module": []})


def test_a_text_has_the_number_of_its_line_and_an_unknown_one_the_next(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.tsv"
    path.write_text(HEADER + "0.5\t0.5\t30\ti32\n0.75\t0.75\t15\tload\n")
    vocabulary = Vocabulary.read(path)
    assert (len(vocabulary), vocabulary.unknown) == (2, 2)
    assert [vocabulary.number(text) for text in ("i32", "load", "full i32", "")] == [0, 1, 2, 2]
    ids = vocabulary.ids(graph_of("load", "i32", "store", "load"))
    assert ids.tolist() == [1, 0, 2, 1]
    assert ids.dtype == np.int32


def test_a_vocabulary_of_a_corpus_keeps_every_tie_in_alphabetical_order() -> None:
    vocabulary = Vocabulary.of([graph_of("mul", "add", "load"), graph_of("load", "ret")])
    assert vocabulary.texts == ("load", "add", "mul", "ret")
    assert vocabulary.counts == (2, 1, 1, 1)
    assert vocabulary.cumulative == (0.4, 0.6, 0.8, 1.0)


def test_a_vocabulary_of_nothing_knows_nothing() -> None:
    assert len(Vocabulary.of([])) == 0
    assert Vocabulary.of([]).ids(graph_of("add")).tolist() == [0]


def test_a_vocabulary_is_the_same_after_saving(tmp_path: Path) -> None:
    vocabulary = Vocabulary.of([graph_of("add", 'i8 (%"class.x"*)', "größer", "b\udce9", "add")])
    vocabulary.write(tmp_path / "vocabulary.tsv")
    assert Vocabulary.read(tmp_path / "vocabulary.tsv") == vocabulary


def test_a_text_that_would_break_the_file_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"'a\\tb' cannot stand in a tab-separated file"):
        Vocabulary.of([graph_of("a\tb")]).write(tmp_path / "vocabulary.tsv")


def test_coverage_counts_nodes_and_names_what_is_missed_most() -> None:
    vocabulary = Vocabulary(("i32",), (1,), (1.0,))
    graphs = [graph_of("i32", "fneg", "fneg"), graph_of("i32", "ret", "call")]
    coverage = vocabulary.coverage(graphs)
    assert coverage == VocabularyCoverage(6, 2, (("fneg", 2), ("call", 1), ("ret", 1)))
    assert coverage.share == pytest.approx(1 / 3)
    assert vocabulary.coverage(graphs[0]) == VocabularyCoverage(3, 1, (("fneg", 2),))
    assert vocabulary.coverage([]).share == 1.0


def test_aliases_count_only_when_asked_for_by_name() -> None:
    vocabulary = Vocabulary(("<root>", "struct*", "fsub"), (3, 2, 1), (0.5, 0.8, 1.0))
    graph = graph_of("[external]", "struct**", "fneg", "struct***")
    assert vocabulary.ids(graph).tolist() == [3, 3, 3, 3]
    assert vocabulary.with_aliases("root").ids(graph).tolist() == [0, 3, 3, 3]
    assert vocabulary.with_aliases("root", "struct-pointer", "fneg").ids(graph).tolist() == [0, 1, 2, 3]


def test_a_text_that_is_known_is_not_replaced_by_its_alias() -> None:
    vocabulary = Vocabulary(("fsub", "fneg"), (2, 1), (0.7, 1.0)).with_aliases("fneg")
    assert vocabulary.ids(graph_of("fneg", "fsub")).tolist() == [1, 0]


def test_an_unknown_alias_lists_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"No alias called 'rot'\. Did you mean 'root'"):
        Vocabulary(("<root>",), (1,), (1.0,)).with_aliases("rot")


def test_an_alias_of_a_text_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="stands for 'fsub', which the vocabulary does not have"):
        Vocabulary(("<root>",), (1,), (1.0,)).with_aliases("fneg")


def test_a_vocabulary_can_be_cut_by_number_or_by_coverage() -> None:
    vocabulary = Vocabulary(("a", "b", "fsub"), (6, 3, 1), (0.6, 0.9, 1.0)).with_aliases("fneg")
    assert vocabulary.cut().texts == ("a", "b", "fsub")
    assert vocabulary.cut(texts=1).texts == ("a",)
    assert vocabulary.cut(coverage=0.9).texts == ("a", "b")
    assert vocabulary.cut(coverage=0.61).texts == ("a", "b")
    assert vocabulary.cut(texts=2).number("fneg") == 2


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("text\n", ":1: No vocabulary: the first line must be"),
        (HEADER + "0.5\t0.5\tmany\ti32\n", ":2: Not four columns"),
        (HEADER + "0.5\t0.5\t3\n", ":2: Not four columns"),
        (HEADER + "0.5\t0.5\t3\ti32\tx\n", ":2: more than four columns"),
        (HEADER + "0.5\t0.5\t3\ti32\n0.6\t0.6\t1\ti32\n", ":3: 'i32' a second time"),
    ],
)
def test_a_malformed_file_gives_its_line(contents: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.tsv"
    path.write_text(contents)
    with pytest.raises(MalformedInput) as caught:
        Vocabulary.read(path)
    assert message in str(caught.value)


def test_a_vocabulary_checks_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="a count and a frequency per text, not 1 and 2 for 2"):
        Vocabulary(("a", "b"), (1,), (0.5, 1.0))
    with pytest.raises(InvalidSetting, match="has the text 'a' twice"):
        Vocabulary(("a", "a"), (1, 1), (0.5, 1.0))
    with pytest.raises(UnreadableFile, match="Cannot read the vocabulary"):
        Vocabulary.read(tmp_path / "nothing")


def test_the_published_vocabulary_is_read_and_written_byte_for_byte(
    shared_data: Path, tmp_path: Path
) -> None:
    published = shared_data / "programl-vocabulary.csv"
    vocabulary = Vocabulary.read(published)
    assert (len(vocabulary), vocabulary.unknown) == (2230, 2230)
    assert (vocabulary.texts[0], vocabulary.counts[0]) == ("i32", 30788415)
    assert vocabulary.number("[external]") == 2230
    vocabulary.write(tmp_path / "copy.csv")
    assert (tmp_path / "copy.csv").read_bytes() == published.read_bytes()


def test_the_published_vocabulary_covers_the_reference_graphs_of_kernels(shared_data: Path) -> None:
    with gzip.open(shared_data / "programl-oracle" / "cgo17_spir64_O3.graphs.jsonl.gz") as lines:
        graphs = [from_json(json.loads(line)) for line in lines]
    vocabulary = Vocabulary.read(shared_data / "programl-vocabulary.csv")
    assert vocabulary.coverage(graphs).share == pytest.approx(0.9886, abs=0.0005)
    assert vocabulary.with_aliases("root", "struct-pointer", "fneg").coverage(graphs).share > 0.993
