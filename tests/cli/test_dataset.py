import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apportion.cli import main
from apportion.data.published import deepdataflow
from apportion.program.analysis import analyses, eligible_roots, run
from apportion.program.llvm import graph_of_ir


def chain(length: int) -> str:
    lines = [f"  %v{i} = add i32 %v{i - 1}, {i}" for i in range(1, length + 1)]
    return "\n".join(["define i32 @f(i32 %v0) {", *lines, f"  ret i32 %v{length}", "}", ""])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for length in range(1, 11):
        (folder / f"chain{length}.ll").write_text(chain(length))
    return folder


def finished(*words: str | Path) -> None:
    """Run a command, which must succeed."""
    with pytest.raises(SystemExit) as leaving:
        main([str(word) for word in words])
    assert not leaving.value.code


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What a command that succeeds prints on stdout."""
    finished(*words)
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The line that a failing command leaves on stderr."""
    with pytest.raises(SystemExit) as leaving:
        main([str(word) for word in words])
    assert leaving.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_corpus_becomes_a_dataset_and_its_summary_is_printed(corpus, tmp_path, capsys):
    out = printed(capsys, "dataset", "dataflow", corpus, "--out", tmp_path / "store", "--json")
    summary = json.loads(out)
    assert summary["graphs"] == {"train": 6, "val": 2, "test": 2}
    assert summary["counts"] == {"files": 10, "failed": 0, "duplicates": 0, "graphs": 10}
    assert list(summary["tasks"]) == list(analyses)
    assert json.loads(printed(capsys, "dataset", "show", tmp_path / "store", "--json")) == summary
    table = printed(capsys, "dataset", "show", tmp_path / "store")
    assert "10 graphs (6 train, 2 val, 2 test)" in table
    assert "dominance" in table


def test_failures_are_summarised_on_stderr(corpus, tmp_path, capsys):
    (corpus / "broken.ll").write_text("define i32 @f( {\n")
    finished("dataset", "dataflow", corpus, "--out", tmp_path / "store", "--json")
    captured = capsys.readouterr()
    assert "failed, 1 ×: " in captured.err
    assert str(tmp_path / "store" / "failures.jsonl") in captured.err
    assert json.loads(captured.out)["counts"]["failed"] == 1


def test_a_build_that_is_killed_goes_on_when_called_again(corpus, tmp_path, capsys):
    command = Path(sys.executable).with_name("apportion")
    killed = subprocess.Popen(
        [command, "dataset", "dataflow", corpus, "--out", tmp_path / "store"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not (tmp_path / "store" / "work" / "settings.json").exists() and killed.poll() is None:
        time.sleep(0.01)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "store" / "store.json").exists()
    again = json.loads(printed(capsys, "dataset", "dataflow", corpus, "--out", tmp_path / "store", "--json"))
    whole = json.loads(printed(capsys, "dataset", "dataflow", corpus, "--out", tmp_path / "whole", "--json"))
    assert again == whole


def test_a_dataset_is_verified(corpus, tmp_path, capsys):
    printed(capsys, "dataset", "dataflow", corpus, "--out", tmp_path / "store")
    assert "columns are as they were written" in printed(capsys, "dataset", "verify", tmp_path / "store")
    column = tmp_path / "store" / "columns" / "labels.npy"
    column.write_bytes(column.read_bytes()[:-1] + b"\x55")
    error = refused(capsys, "dataset", "verify", tmp_path / "store")
    assert error.startswith(f"apportion: {column}: Its contents have changed since it was written.")


def test_a_dataset_is_packed_and_unpacked(corpus, tmp_path, capsys):
    printed(capsys, "dataset", "dataflow", corpus, "--out", tmp_path / "store")
    out = printed(capsys, "dataset", "pack", tmp_path / "store", tmp_path / "carry.tar", "--megabytes", "1")
    assert "10 of 10 graphs" in out
    assert "10 graphs" in printed(capsys, "dataset", "unpack", tmp_path / "carry.tar", tmp_path / "there")
    assert "columns are as they" in printed(capsys, "dataset", "verify", tmp_path / "there")


def test_the_published_layout_becomes_a_dataset(tmp_path, capsys):
    folder = tmp_path / "ddf"
    (folder / "graphs").mkdir(parents=True)
    (folder / "labels" / "datadep").mkdir(parents=True)
    for length in range(1, 6):
        graph = graph_of_ir(chain(length))
        deepdataflow.write_graph(folder / "graphs" / f"a.{length}.c.ProgramGraph.pb", graph)
        path = folder / "labels" / "datadep" / f"a.{length}.c.ProgramGraphFeaturesList.pb"
        deepdataflow.write_labels(path, run(graph, "datadep", eligible_roots(graph, "datadep")))
    out = printed(capsys, "dataset", "deepdataflow", folder, "--out", tmp_path / "store", "--json")
    summary = json.loads(out)
    assert summary["graphs"] == {"train": 3, "val": 1, "test": 1}
    assert summary["tasks"]["datadep"]["train"]["instances"] > 3
    assert summary["tasks"]["liveness"]["train"]["instances"] == 0


def test_a_corpus_that_is_not_there_is_named(tmp_path, capsys):
    error = refused(capsys, "dataset", "dataflow", tmp_path / "nowhere", "--out", tmp_path / "store")
    assert error == f"apportion: There is no file or folder {tmp_path / 'nowhere'}\n"
    assert "Name at least one folder" in refused(capsys, "dataset", "dataflow", "--out", tmp_path / "store")


def test_a_folder_that_is_no_dataset_says_how_to_make_one(tmp_path, capsys):
    error = refused(capsys, "dataset", "show", tmp_path)
    assert error.startswith(f"apportion: There is no finished data-flow store in {tmp_path}: ")
    assert error.count("\n") == 1


def test_a_runner_that_does_not_exist_is_named_with_those_that_do(corpus, tmp_path, capsys):
    said = refused(
        capsys, "dataset", "dataflow", corpus, "--out", tmp_path / "store", "--runner", "rai:head:1"
    )
    assert "No runner called 'rai'. Did you mean 'ray'?" in said
    assert not (tmp_path / "store").exists()
