import io
import json
import lzma
import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from apportion.data import dataflow as dataflow_module
from apportion.data import shards as shards_module
from apportion.data.columns import COLUMNS, SPLITS
from apportion.data.dataflow import LabelSettings, build, corpus_files, label_graph
from apportion.data.store import DataflowStore
from apportion.errors import (
    AlreadyWritten,
    ApportionError,
    InvalidSetting,
    LimitExceeded,
    MalformedInput,
    UnknownName,
    UnreadableFile,
)
from apportion.jobs.holding import held
from apportion.program.analysis import analyses, run
from apportion.program.llvm import graph_of_ir
from apportion.program.vocabulary import Vocabulary


def chain(length: int, *, opcode: str = "add", type_name: str = "i32") -> str:
    """A function of one argument that is changed so many times."""
    lines = [f"define {type_name} @f({type_name} %v0) {{"]
    lines += [f"  %v{i} = {opcode} {type_name} %v{i - 1}, {i}" for i in range(1, length + 1)]
    return "\n".join([*lines, f"  ret {type_name} %v{length}", "}", ""])


def write_programs(folder: Path) -> Path:
    """Twenty programs of different structure, one copy, and one that is no program."""
    folder.mkdir()
    for length in range(1, 21):
        (folder / f"chain{length:02d}.ll").write_text(chain(length))
    (folder / "copy.ll").write_text(chain(7))
    (folder / "broken.ll").write_text("define i32 @f( {\n")
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_programs(tmp_path / "programs")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataflow")
    return build([write_programs(folder / "programs")], folder / "store", LabelSettings(), jobs=0).folder


@pytest.fixture
def store(built: Path, tmp_path: Path) -> DataflowStore:
    """A store of its own for each test, to break if it likes."""
    return DataflowStore.open(shutil.copytree(built, tmp_path / "store"))


def test_a_graph_is_stored_once_and_its_instances_refer_to_it(store):
    assert len(store) == 20
    graphs = np.concatenate([store.graphs(split) for split in SPLITS])
    assert sorted(graphs.tolist()) == list(range(20))
    instances = np.concatenate([store.instances("reachability", split) for split in SPLITS])
    assert len(instances) > 20
    assert set(store.columns["instance_graph"][instances].tolist()) == set(range(20))


@pytest.mark.parametrize("task", analyses)
def test_stored_labels_are_those_of_the_analysis(store, task):
    checked = 0
    for split in SPLITS:
        for index in store.instances(task, split, max_steps=None)[:20].tolist():
            instance = store.instance(index)
            name = store.names[instance.graph].removeprefix("programs/chain").removesuffix(".ll")
            wanted = 7 if "copy" in name else int(name)
            (expected,) = run(graph_of_ir(chain(wanted)), task, instance.root, "reference")
            assert instance.labels.tolist() == expected.labels.tolist()
            assert (instance.steps, instance.active) == (expected.steps, expected.active)
            checked += 1
    assert checked > 0 or task == "subexpressions"


def test_a_stored_graph_is_the_graph_in_vocabulary_numbers(store):
    index = store.names.index("programs/chain09.ll")
    graph, stored = graph_of_ir(chain(9)), store.graph(index)
    assert stored.edges.tolist() == graph.edges.tolist()
    assert stored.edge_flow.tolist() == graph.edge_flow.tolist()
    assert stored.edge_position.tolist() == graph.edge_position.tolist()
    texts = [*store.vocabulary, "?"]
    assert [texts[number] for number in stored.node_text_id] == graph.texts()


def test_files_are_split_three_to_one_to_one(store):
    assert [len(store.graphs(split)) for split in SPLITS] == [12, 4, 4]


def test_identical_graphs_are_kept_once_and_counted(store):
    counts = store.description["settings"]["counts"]
    assert counts == {"files": 22, "failed": 1, "duplicates": 1, "graphs": 20}
    assert ("programs/copy.ll" in store.names) != ("programs/chain07.ll" in store.names)


def test_a_failure_is_kept_with_its_reason(store):
    lines = [json.loads(line) for line in (store.folder / "failures.jsonl").read_text().splitlines()]
    (failure,) = [line for line in lines if "task" not in line]
    assert failure["name"] == "broken.ll"
    assert "broken.ll:" in failure["reason"]


def test_graphs_of_one_structure_stay_on_one_side_whatever_their_texts(tmp_path):
    folder = tmp_path / "twins"
    folder.mkdir()
    for length in range(1, 11):
        (folder / f"{length}-add.ll").write_text(chain(length))
        (folder / f"{length}-mul.ll").write_text(chain(length, opcode="mul", type_name="i64"))
    store = build([folder], tmp_path / "store", LabelSettings(), jobs=0)
    assert len(store) == 20
    side = {name: int(split) for name, split in zip(store.names, store.columns["graph_split"], strict=True)}
    for length in range(1, 11):
        assert side[f"twins/{length}-add.ll"] == side[f"twins/{length}-mul.ll"]


def test_levels_of_optimisation_of_one_source_stay_on_one_side(tmp_path):
    folder = tmp_path / "levels"
    folder.mkdir()
    for length in range(1, 11):
        (folder / f"p{length}.c.O0.ll").write_text(chain(length))
        (folder / f"p{length}.c.O3.ll").write_text(chain(length + 20))
    store = build([folder], tmp_path / "store", LabelSettings(), jobs=0)
    side = {name: int(split) for name, split in zip(store.names, store.columns["graph_split"], strict=True)}
    for length in range(1, 11):
        assert side[f"levels/p{length}.c.O0.ll"] == side[f"levels/p{length}.c.O3.ll"]


def test_graphs_that_differ_only_in_unknown_texts_are_one_graph_to_a_model(tmp_path):
    folder = tmp_path / "types"
    folder.mkdir()
    (folder / "a.ll").write_text(chain(3, type_name="i31"))
    (folder / "b.ll").write_text(chain(3, type_name="i33"))
    known = Vocabulary.counted(Counter({"add": 1}))
    store = build([folder], tmp_path / "store", LabelSettings(), jobs=0, vocabulary=known)
    assert len(store) == 1
    assert store.vocabulary == list(known.texts)
    assert store.columns["node_text"].max() == 1


def test_the_order_of_the_files_changes_nothing(corpus, tmp_path):
    files = sorted(corpus.iterdir())
    one = build(files, tmp_path / "one", LabelSettings(), jobs=0)
    other = build(files[::-1], tmp_path / "other", LabelSettings(), jobs=0)
    assert one.fingerprint == other.fingerprint
    assert one.names == other.names


def test_another_seed_draws_other_roots(corpus, tmp_path):
    one = build([corpus], tmp_path / "one", LabelSettings(seed=1), jobs=0)
    other = build([corpus], tmp_path / "other", LabelSettings(seed=2), jobs=0)
    assert one.columns["instance_root"].tolist() != other.columns["instance_root"].tolist()


@pytest.mark.parametrize(("rule", "expected"), [("paper", 8), ("reference", 3)])
def test_the_number_of_roots_follows_the_rule(rule, expected):
    graph = graph_of_ir(chain(24))
    labelled = label_graph(graph, LabelSettings(rule=rule))
    assert graph.nodes == 75
    assert int((labelled.task == analyses.index("reachability")).sum()) == expected


def test_at_most_ten_roots_are_drawn_from_a_graph():
    labelled = label_graph(graph_of_ir(chain(300)), LabelSettings())
    assert int((labelled.task == analyses.index("datadep")).sum()) == 10


def test_an_analysis_that_has_no_root_is_a_problem_not_a_failure():
    labelled = label_graph(graph_of_ir("define void @f() {\n  ret void\n}\n"), LabelSettings())
    assert dict(labelled.problems)["datadep"].startswith("No eligible root nodes for datadep")
    assert analyses.index("reachability") in labelled.task


def test_exact_and_reference_labels_differ_where_the_reference_is_wrong():
    loop = """define void @NAME(i1 %c) {
a:
  br label %b
b:
  br i1 %c, label %b, label %d
d:
  ret void
}
"""
    graph = graph_of_ir("".join(loop.replace("NAME", f"f{i}") for i in range(20)))
    by_mode = {mode: label_graph(graph, LabelSettings(mode=mode)) for mode in ("reference", "exact")}
    dominance = analyses.index("dominance")
    positives = {
        mode: int(np.unpackbits(found.labels[found.task == dominance]).sum())
        for mode, found in by_mode.items()
    }
    assert positives["reference"] < positives["exact"]


def test_a_graph_above_the_limit_is_a_failure_with_that_reason(corpus, tmp_path):
    store = build([corpus], tmp_path / "store", LabelSettings(max_nodes=30), jobs=0)
    lines = (store.folder / "failures.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in lines]
    assert "The graph has more than 30 nodes" in reasons
    assert int(store.graph_nodes.max()) <= 30


def test_instances_are_filtered_by_steps_and_nodes_and_source(store):
    wide = store.instances("reachability", "train", max_steps=None)
    narrow = store.instances("reachability", "train", max_steps=5)
    assert 0 < len(narrow) < len(wide)
    assert int(store.columns["instance_steps"][narrow].max()) <= 5
    beyond = store.instances("reachability", "train", max_steps=None, min_steps=6)
    assert len(narrow) + len(beyond) == len(wide)
    few = store.instances("reachability", "train", max_steps=None, max_nodes=20)
    assert int(store.graph_nodes[store.columns["instance_graph"][few]].max()) <= 20
    assert len(store.instances("reachability", "train", max_steps=None, sources=("programs",))) == len(wide)
    with pytest.raises(UnknownName, match="No task called 'reachable'"):
        store.instances("reachable", "train")
    with pytest.raises(UnknownName, match="There are: test, train, val"):
        store.graphs("valid")


def test_folders_archives_and_files_make_one_corpus_each(corpus, tmp_path):
    archive = tmp_path / "packed.inputs.tar.gz"
    with tarfile.open(archive, "w:gz") as written:
        written.add(corpus / "chain01.ll", "a/chain01.ll")
        written.add(corpus / "chain02.ll", "notes.txt")
    found = list(corpus_files([archive, corpus / "chain03.ll"]))
    assert [(file.corpus, file.name) for file in found] == [
        ("packed.inputs", "a/chain01.ll"),
        ("files", "chain03.ll"),
    ]
    store = build([archive, corpus], tmp_path / "store", LabelSettings(), jobs=0)
    assert store.source_names == ("packed.inputs", "programs")
    assert store.sources[store.names.index("programs/chain04.ll")] == "programs"


def test_source_in_c_is_compiled(tmp_path):
    pytest.importorskip("ziglang")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "twice.h").write_text("#define TWICE(x) ((x) + (x))\n")
    (tmp_path / "c" / "f.c").write_text('#include "twice.h"\nint f(int a, int b) { return TWICE(a * b); }\n')
    store = build([tmp_path / "c"], tmp_path / "store", LabelSettings(), jobs=0)
    assert store.names == ["c/f.c"]
    assert "mul" in store.vocabulary


@pytest.mark.parametrize("problem", ["missing", "wrong kind", "archive cut short"])
def test_a_path_that_is_no_corpus_is_named(tmp_path, problem):
    path = tmp_path / {"missing": "x", "wrong kind": "x.txt", "archive cut short": "x.tar.gz"}[problem]
    if problem != "missing":
        path.write_text("hello")
    with pytest.raises((UnreadableFile, MalformedInput), match=str(path)):
        build([path], tmp_path / "store", LabelSettings(), jobs=0)


def test_a_corpus_without_a_graph_says_why(tmp_path):
    (tmp_path / "x.ll").write_text("define i32 @f( {\n")
    with pytest.raises(
        InvalidSetting, match=r"No file gave a graph\. Most frequent: x\.ll:2:1: expected a type"
    ):
        build([tmp_path / "x.ll"], tmp_path / "store", LabelSettings(), jobs=0)


def test_a_build_with_other_settings_is_refused(corpus, tmp_path, store):
    with pytest.raises(InvalidSetting, match="holds a build with mode = 'reference', not 'exact'"):
        build([corpus], store.folder, LabelSettings(mode="exact"), jobs=0)


def test_an_interrupted_build_resumes_with_nothing_lost_or_doubled(corpus, tmp_path, monkeypatch):
    whole = build([corpus], tmp_path / "whole", LabelSettings(), jobs=0)
    monkeypatch.setattr(shards_module, "SHARD_FILES", 3)
    out = tmp_path / "store"

    class StopError(Exception):
        pass

    done: list[int] = []
    for stop_after in (2, 5, 9):

        def stop(seen: int, failed: int, stop_after: int = stop_after) -> None:
            done.append(seen)
            if seen >= stop_after:
                raise StopError

        with pytest.raises(StopError):
            build([corpus], out, LabelSettings(), jobs=0, report=stop)
        with pytest.raises(UnreadableFile, match="no finished data-flow store"):
            DataflowStore.open(out)
    store = build([corpus], out, LabelSettings(), jobs=0)
    assert store.fingerprint == whole.fingerprint
    assert store.names == whole.names
    keys = [key for shard in (out / "work").glob("*.npz") for key in shards_module.read_keys(shard)]
    assert len(keys) == len(set(keys)) == 22


def test_a_file_that_took_too_long_is_tried_again(corpus, tmp_path, store, monkeypatch):
    monkeypatch.setattr(dataflow_module, "FILE_SECONDS", 1e-6)
    with pytest.raises(InvalidSetting, match="It took longer than the 1e-06 s it was given"):
        build([corpus], tmp_path / "late", LabelSettings(), jobs=1)
    monkeypatch.undo()
    again = build([corpus], tmp_path / "late", LabelSettings(), jobs=1)
    assert again.fingerprint == store.fingerprint
    assert again.description["settings"]["counts"] == store.description["settings"]["counts"]


def test_files_added_later_are_the_only_ones_made(corpus, tmp_path, store):
    (corpus / "more.ll").write_text(chain(33))
    seen: list[int] = []
    larger = build(
        [corpus], store.folder, LabelSettings(), jobs=0, report=lambda count, failed: seen.append(count)
    )
    assert len(larger) == 21
    assert len(seen) == 1


def test_another_corpus_is_added_and_nothing_is_removed_unless_asked_for(corpus, tmp_path, store):
    other = tmp_path / "others"
    other.mkdir()
    (other / "more.ll").write_text(chain(33))
    both = build([other], store.folder, LabelSettings(), jobs=0)
    assert len(both) == 21
    assert {name.partition("/")[0] for name in both.names} == {"programs", "others"}
    (other / "more.ll").write_text(chain(34))  # the same file, changed: it takes its own place
    assert len(build([other], store.folder, LabelSettings(), jobs=0)) == 21
    alone = build([other], store.folder, LabelSettings(), jobs=0, only=True)
    assert list(alone.names) == ["others/more.ll"]


def test_a_shard_that_was_cut_short_is_named_with_the_remedy(corpus, tmp_path, store):
    shard = next((store.folder / "work").glob("*.npz"))
    shard.write_bytes(shard.read_bytes()[:-400])
    with pytest.raises(MalformedInput, match=f"{shard.name}: .*Delete it and run the same command again"):
        build([corpus], store.folder, LabelSettings(), jobs=0)
    shard.unlink()
    assert build([corpus], store.folder, LabelSettings(), jobs=0).fingerprint == store.fingerprint


def test_two_builds_in_one_folder_are_refused(corpus, tmp_path):
    with (
        shards_module.held(tmp_path / "store"),
        pytest.raises(UnreadableFile, match="is being written by process"),
    ):
        build([corpus], tmp_path / "store", LabelSettings(), jobs=0)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_was_cut_short_is_named(store, name):
    path = store.folder / "columns" / f"{name}.npy"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(MalformedInput, match=f"{name}.npy: It has .* cut short .* Build the store again"):
        DataflowStore.open(store.folder)


def test_a_column_with_another_content_is_found_by_verify(store):
    path = store.folder / "columns" / "labels.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(MalformedInput, match=r"labels\.npy: Its contents have changed"):
        DataflowStore.open(store.folder).verify()


def test_an_edge_out_of_its_graph_is_found_when_it_is_read(store):
    path = store.folder / "columns" / "edge_target.npy"
    data = bytearray(path.read_bytes())
    data[-1] = 255
    path.write_bytes(data)
    with pytest.raises(MalformedInput, match="has an edge to node 255 but only"):
        DataflowStore.open(store.folder).graph(len(store) - 1)


def test_a_folder_without_a_store_says_how_to_make_one(tmp_path):
    with pytest.raises(UnreadableFile, match="Make one with: apportion dataset dataflow"):
        DataflowStore.open(tmp_path)


def test_a_subset_keeps_its_graphs_and_their_instances(store, tmp_path):
    graphs = store.graphs("train")[:3]
    instances = np.concatenate([store.instances(task, "train", max_steps=10) for task in store.tasks])
    small = store.subset(tmp_path / "small", graphs, instances)
    assert [small.names[i] for i in range(3)] == [store.names[int(g)] for g in graphs]
    of_these = instances[np.isin(store.columns["instance_graph"][instances], graphs)]
    assert len(small.columns["instance_root"]) == len(of_these)
    for new, old in enumerate(np.sort(of_these).tolist()):
        here, there = small.instance(new), store.instance(old)
        assert here.labels.tolist() == there.labels.tolist()
        assert (here.root, here.steps) == (there.root, there.steps)
        assert small.names[here.graph] == store.names[there.graph]
    assert small.graph(1).edges.tolist() == store.graph(int(graphs[1])).edges.tolist()


def test_an_archive_fits_the_limit_and_unpacks_to_the_same(store, tmp_path):
    packed = store.write_archive(tmp_path / "all.tar", limit_bytes=10**9, train_steps=8, test_steps=12)
    unpacked = DataflowStore.unpack(tmp_path / "all.tar", tmp_path / "unpacked")
    unpacked.verify()
    assert unpacked.fingerprint == packed.fingerprint
    assert len(unpacked) == len(store)
    steps = unpacked.columns["instance_steps"]
    test_side = unpacked.columns["graph_split"][unpacked.columns["instance_graph"]] == 2
    assert 8 < steps[test_side].max() <= 12
    assert steps[~test_side].max() <= 8


def test_an_archive_takes_only_some_tasks_along_but_every_graph(store, tmp_path):
    packed = store.write_archive(tmp_path / "some.tar", limit_bytes=10**9, tasks=("liveness",))
    assert len(packed) == len(store)
    assert len(packed.instances("liveness", "train")) == len(store.instances("liveness", "train")) > 0
    assert len(packed.instances("reachability", "train")) == 0
    with pytest.raises(UnknownName, match="no task"):
        store.write_archive(tmp_path / "none.tar", limit_bytes=10**9, tasks=("no task",))


def test_an_archive_that_would_be_too_large_has_fewer_graphs(tmp_path):
    draw = np.random.default_rng(0)
    folder = tmp_path / "random"
    folder.mkdir()
    for i in range(12):
        lines = ["define i32 @f(i32 %v0) {"]
        for j in range(1, 400):
            left, right = draw.integers(0, j, 2)
            lines.append(f"  %v{j} = {draw.choice(['add', 'sub', 'mul', 'xor'])} i32 %v{left}, %v{right}")
        (folder / f"{i}.ll").write_text("\n".join([*lines, "  ret i32 %v399", "}", ""]))
    store = build([folder], tmp_path / "store", LabelSettings(), jobs=0)
    fewer = store.write_archive(tmp_path / "less.tar", limit_bytes=45_000)
    assert (tmp_path / "less.tar").stat().st_size <= 45_000
    assert 0 < len(fewer) < len(store) == 12
    with pytest.raises(InvalidSetting, match="1,000 bytes cannot hold even one graph"):
        store.write_archive(tmp_path / "none.tar", limit_bytes=1_000)


def test_an_archive_that_was_cut_short_is_named(store, tmp_path):
    store.write_archive(tmp_path / "all.tar", limit_bytes=10**9)
    os.truncate(tmp_path / "all.tar", 3000)
    with pytest.raises(MalformedInput, match=r"all\.tar: "):
        DataflowStore.unpack(tmp_path / "all.tar", tmp_path / "unpacked")


def test_the_share_of_positives_is_that_of_the_labels(store):
    indices = store.instances("liveness", "train", max_steps=None, max_nodes=None).tolist()
    found = [store.instance(index).labels for index in indices]
    expected = sum(labels.sum() for labels in found) / sum(len(labels) for labels in found)
    assert store.summary()["tasks"]["liveness"]["train"]["positive"] == pytest.approx(expected)


def test_a_store_of_the_test_corpus_labels_all_five_tasks(tmp_path):
    archive = Path(__file__).parents[3] / "shared" / "data" / "programl-oracle" / "corner.inputs.tar.gz"
    if not archive.exists():
        pytest.skip(f"{archive} is not there")
    store = build([archive], tmp_path / "store", LabelSettings(), jobs=0)
    assert 15 <= len(store) <= 20
    instances = [store.instances(task, split) for task in analyses for split in SPLITS]
    assert sum(len(found) for found in instances) > 100


def test_nothing_of_others_is_removed_for_the_subset_that_is_packed(store, tmp_path):
    folder = tmp_path / "all.tar.store"
    folder.mkdir()
    (folder / "mine").write_text("x")
    with pytest.raises(AlreadyWritten, match="is no store that an archive left"):
        store.write_archive(tmp_path / "all.tar", limit_bytes=10**9)
    assert [path.name for path in folder.iterdir()] == ["mine"]
    (folder / "mine").unlink()
    for _ in range(2):  # the subset of an earlier time is replaced
        assert store.write_archive(tmp_path / "all.tar", limit_bytes=10**9).folder == folder
    shutil.rmtree(folder)
    shutil.copytree(store.folder, folder)  # a store, and not one that an archive left
    with pytest.raises(AlreadyWritten, match="is no store that an archive left"):
        store.write_archive(tmp_path / "all.tar", limit_bytes=10**9)
    assert DataflowStore.open(folder).fingerprint == store.fingerprint
    (tmp_path / "folder").mkdir()
    with pytest.raises(AlreadyWritten, match="folder is a folder: name a file for the archive"):
        store.write_archive(tmp_path / "folder", limit_bytes=10**9)
    with (
        held(tmp_path / "other.tar"),
        pytest.raises(AlreadyWritten, match=f"is being written by process {os.getpid()} "),
    ):
        store.write_archive(tmp_path / "other.tar", limit_bytes=10**9)
    assert len(store.write_archive(tmp_path / "no-suffix", limit_bytes=10**9)) == len(store)
    assert (tmp_path / "no-suffix").is_file()


@pytest.mark.parametrize("there", ["a file of the user", "another store"])
def test_nothing_is_removed_for_a_store_that_is_unpacked(store, tmp_path, there):
    store.write_archive(tmp_path / "all.tar", limit_bytes=1 << 24)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(
        AlreadyWritten, match=r"is not an empty folder\. Unpack into one that is not there yet"
    ):
        DataflowStore.unpack(tmp_path / "all.tar", folder)
    assert (folder / "thesis.tex").read_text() == "years of work"
    (folder / "thesis.tex").unlink()
    assert len(DataflowStore.unpack(tmp_path / "all.tar", folder)) == len(store)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_a_packed_store_with_a_changed_byte_is_refused_and_leaves_nothing(store, tmp_path):
    packed = store.write_archive(tmp_path / "all.tar", limit_bytes=1 << 24)
    whole = (tmp_path / "all.tar").read_bytes()
    for place in range(600, len(whole) - 10240, len(whole) // 25):
        changed = bytearray(whole)
        changed[place] ^= 4
        (tmp_path / "changed.tar").write_bytes(changed)
        try:
            back = DataflowStore.unpack(tmp_path / "changed.tar", tmp_path / "back")
        except ApportionError:
            assert not (tmp_path / "back").exists()
        else:  # names and padding have no checksum
            assert back.fingerprint == packed.fingerprint
            shutil.rmtree(back.folder)


def test_a_small_archive_does_not_become_a_large_store(tmp_path):
    content = lzma.compress(bytes(1 << 28))
    with tarfile.open(tmp_path / "bomb.tar", "w") as archive:
        member = tarfile.TarInfo("columns/labels.npy.xz")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    with pytest.raises(LimitExceeded, match="times larger when it is unpacked"):
        DataflowStore.unpack(tmp_path / "bomb.tar", tmp_path / "back")
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.tar"]
