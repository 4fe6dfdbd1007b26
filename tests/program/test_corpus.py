from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apportion.errors import ApportionError, MalformedInput, UnreadableFile
from apportion.program.compile import CompileOptions
from apportion.program.corpus import Built, Recipe, build, files_of, graphs, json_lines
from apportion.program.exchange import to_json
from apportion.program.llvm import GraphOptions
from apportion.program.tables import read_graphs, write_graphs

ADD = "define i32 @{0}(i32 %a) {{\n  %b = add i32 %a, {1}\n  ret i32 %b\n}}\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of three programs and one that is none."""
    folder = tmp_path / "programs"
    (folder / "below").mkdir(parents=True)
    for number, name in enumerate(("b.ll", "a.ll", "below/c.ll")):
        (folder / name).write_text(ADD.format("f", number))
    (folder / "broken.ll").write_text("define i32 @f( {\n")
    return folder


def state(steps: Iterator[Built], folder: Path) -> dict[str, str]:
    found = {}
    for step in steps:
        word = "failed" if step.error else "kept" if step.kept else f"{step.nodes} nodes"
        found[str(step.path.relative_to(folder))] = word
    return found


def test_a_folder_is_walked_in_order_and_hidden_things_are_left_out(programs: Path) -> None:
    (programs / ".git").mkdir()
    (programs / ".git" / "hidden.ll").write_text("")
    (programs / ".hidden.c").write_text("")
    (programs / "notes.txt").write_text("")
    found = [str(path.relative_to(programs)) for path in files_of([programs])]
    assert found == ["a.ll", "b.ll", "broken.ll", "below/c.ll"]


def test_files_are_taken_as_they_are_named(programs: Path) -> None:
    named = [programs / "b.ll", programs / "nothing.txt", programs / "b.ll"]
    assert files_of(named) == named


def test_a_folder_without_programs_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"No program found in .*: nothing there ends in \.ll, \.bc"):
        files_of([tmp_path])


def test_a_file_named_twice_is_written_once(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    list(build([programs / "a.ll", programs / "b.ll", programs / "a.ll"], out, Recipe(), workers=1))
    assert [name for name, _ in read_graphs(out)] == [str(programs / "a.ll"), str(programs / "b.ll")]


def test_graphs_come_in_the_order_of_the_files_with_errors_in_their_places(programs: Path) -> None:
    files = files_of([programs]) + [programs / "a.ll"] * 3  # enough for workers
    found = list(graphs(files, Recipe(), workers=2))
    assert [path for path, _ in found] == files
    assert [isinstance(graph, ApportionError) for _, graph in found] == [False, False, True, False] + [
        False
    ] * 3
    for (_, graph), (_, line) in zip(found, json_lines(files, Recipe(), workers=2), strict=True):
        if isinstance(graph, ApportionError) or isinstance(line, ApportionError):
            assert str(graph) == str(line)
            assert "broken.ll:2:1:" in str(line)
        else:
            assert json.loads(line) == to_json(graph)


def test_a_folder_becomes_one_file_and_a_bad_file_costs_only_itself(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    found = state(build(files_of([programs]), out, Recipe(), workers=1), programs)
    assert found == {"a.ll": "6 nodes", "b.ll": "6 nodes", "broken.ll": "failed", "below/c.ll": "6 nodes"}
    rows = dict(read_graphs(out))
    assert list(rows) == [str(programs / name) for name in ("a.ll", "b.ll", "below/c.ll")]
    assert rows[str(programs / "b.ll")].full_texts()[-1] == "i32 0"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graphs.parquet", "programs"]


def test_a_second_run_does_only_what_changed_and_doubles_nothing(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    list(build(files_of([programs]), out, Recipe(), workers=1))
    before = out.stat().st_mtime_ns
    found = state(build(files_of([programs]), out, Recipe(), workers=1), programs)
    assert found == {"a.ll": "kept", "b.ll": "kept", "broken.ll": "failed", "below/c.ll": "kept"}
    assert out.stat().st_mtime_ns == before

    (programs / "a.ll").write_text(ADD.format("changed", 9))
    (programs / "b.ll").unlink()
    (programs / "broken.ll").write_text(ADD.format("mended", 7))
    found = state(build(files_of([programs]), out, Recipe(), workers=1), programs)
    assert found == {"a.ll": "6 nodes", "broken.ll": "6 nodes", "below/c.ll": "kept"}
    rows = [(Path(name).name, graph.functions[0].name) for name, graph in read_graphs(out)]
    assert sorted(rows) == [("a.ll", "changed"), ("broken.ll", "mended"), ("c.ll", "f")]


def test_another_recipe_builds_everything_anew(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    files = [programs / "a.ll"]
    list(build(files, out, Recipe(), workers=1))
    again = Recipe(graph=GraphOptions(variant="ddf"))
    assert [step.kept for step in build(files, out, again, workers=1)] == [False]
    assert [graph.text(0) for _, graph in read_graphs(out)] == ["<root>"]
    patient = Recipe(compile=CompileOptions(seconds=99), graph=GraphOptions(variant="ddf"))
    assert [step.kept for step in build(files, out, patient, workers=1)] == [True]


def test_what_an_interrupted_run_finished_is_taken_up(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    steps = build(files_of([programs]), out, Recipe(), workers=1)
    first = next(steps)
    steps.close()  # what an interruption does to it
    assert not out.exists()
    parts = list((tmp_path / "graphs.parquet.parts").glob("*.parquet"))
    assert f"{first.digest}.parquet" in [part.name for part in parts]
    found = state(build(files_of([programs]), out, Recipe(), workers=1), programs)
    assert found[first.path.name] == "kept"
    assert len(list(read_graphs(out))) == 3


def test_a_part_that_a_full_disk_left_damaged_is_built_again(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    steps = build([programs / "a.ll"], out, Recipe(), workers=1)
    part = tmp_path / "graphs.parquet.parts" / f"{next(steps).digest}.parquet"
    steps.close()
    part.write_bytes(part.read_bytes()[:100])
    assert [step.kept for step in build([programs / "a.ll"], out, Recipe(), workers=1)] == [False]
    assert len(list(read_graphs(out))) == 1


def test_a_run_killed_at_any_moment_loses_only_what_it_was_at(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    for number in range(24):
        (folder / f"{number:02}.cl").write_text(f"kernel void k(global int *x) {{ x[0] = {number}; }}\n")
    out, parts = tmp_path / "graphs.parquet", tmp_path / "graphs.parquet.parts"
    program = "import sys; from apportion.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "graph", str(folder), "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while (
        len(list(parts.glob("[!.]*.parquet"))) < 4 and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finished = {part.stem for part in parts.glob("[!.]*.parquet")}
    assert len(finished) >= 4, "the run ended before it could be killed"
    time.sleep(0.5)  # its workers notice that they are alone

    steps = list(build(files_of([folder]), out, Recipe(), workers=2))
    assert {step.digest for step in steps if step.kept} >= finished
    names = [name for name, _ in read_graphs(out)]
    assert sorted(names) == [str(folder / f"{number:02}.cl") for number in range(24)]
    assert not parts.exists()


def test_two_runs_do_not_write_one_file_at_once(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    steps = build(files_of([programs]), out, Recipe(), workers=1)
    next(steps)
    with pytest.raises(UnreadableFile, match="is being written by process"):
        next(build(files_of([programs]), out, Recipe(), workers=1))
    assert len(list(steps)) == 3
    assert len(list(read_graphs(out))) == 3


def test_a_file_of_something_else_is_not_overwritten(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "thesis.parquet"
    out.write_text("years of work")
    with pytest.raises(UnreadableFile, match=r"Cannot read .*thesis\.parquet as Parquet"):
        list(build(files_of([programs]), out, Recipe(), workers=1))
    assert out.read_text() == "years of work"


def test_when_no_file_gives_a_graph_the_old_file_stays(programs: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs.parquet"
    write_graphs(out, [("old", next(iter(graphs([programs / "a.ll"], Recipe())))[1])])  # type: ignore[list-item]
    (step,) = build([programs / "broken.ll"], out, Recipe(), workers=1)
    assert isinstance(step.error, MalformedInput)
    assert [name for name, _ in read_graphs(out)] == ["old"]
    assert not (tmp_path / "graphs.parquet.parts").exists()
