"""`apportion graph`: what it prints and writes, and how it fails."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.cli import main
from apportion.program.exchange import from_json, load_json, load_npz
from apportion.program.tables import read_graphs

ADD = "define i32 @twice(i32 %a) {\n  %b = add i32 %a, %a\n  ret i32 %b\n}\n"
CALL = ADD + "define i32 @four(i32 %a) {\n  %b = call i32 @twice(i32 %a)\n  ret i32 %b\n}\n"
KERNEL = "kernel void scale(global float *x) { x[get_global_id(0)] *= FACTOR; }\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def apportion(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: exit status, stdout, stderr."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "twice.ll"
    path.write_text(ADD)
    return path


def test_json_is_one_object_in_the_reference_format(apportion: Run, program: Path) -> None:
    status, out, err = apportion("graph", program, "--json")
    assert (status, err) == (0, "")
    assert out.count("\n") == 1
    assert json.loads(out) == {
        "nodes": [
            [0, "[external]", 0, 0, None],
            [0, "add", 0, 0, "%b = add i32 %a, %a"],
            [0, "ret", 0, 0, "ret i32 %b"],
            [1, "i32", 0, 0, "i32 %b"],
            [1, "i32", 0, 1, "i32 %a"],
        ],
        "edges": json.loads(out)["edges"],
        "functions": [["twice", {}]],
        "module": [[str(program), {"llvm_target_triple": "", "llvm_data_layout": ""}]],
    }
    assert sorted(json.loads(out)["edges"]) == [
        [0, 0, 1, 2], [1, 0, 1, 3], [1, 0, 3, 2], [1, 0, 4, 1], [1, 1, 4, 1], [2, 0, 0, 1], [2, 0, 2, 0],
    ]  # fmt: skip


def test_several_files_print_one_object_a_line_in_their_order(apportion: Run, tmp_path: Path) -> None:
    files = []
    for number in (3, 1, 2):
        files.append(tmp_path / f"{number}.ll")
        files[-1].write_text(ADD.replace("twice", f"f{number}"))
    status, out, _ = apportion("graph", *files, "--json")
    assert status == 0
    assert [json.loads(line)["functions"][0][0] for line in out.splitlines()] == ["f3", "f1", "f2"]


def test_a_bad_file_among_several_is_reported_and_the_others_are_printed(
    apportion: Run, program: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.ll"
    bad.write_text("define void @f() {\n  nonsense\n}\n")
    status, out, err = apportion("graph", program, bad, tmp_path / "nothing.ll", program, "--json")
    assert status == 1
    assert [json.loads(line)["functions"] for line in out.splitlines()] == [[["twice", {}]]] * 2
    first, second = err.splitlines()
    assert first.startswith(f"apportion: {bad}:2:")
    assert second == f"apportion: Cannot read {tmp_path / 'nothing.ll'}: No such file or directory"


@pytest.mark.parametrize("option", ["--json", "--variant=corrected"])
def test_one_bad_file_is_one_line_and_exit_status_1(apportion: Run, option: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.ll"
    bad.write_text("define void @f() {\n  nonsense\n}\n")
    status, out, err = apportion("graph", bad, option)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


def test_the_summary_counts_nodes_edges_and_texts(apportion: Run, program: Path) -> None:
    status, out, err = apportion("graph", program)
    assert (status, err) == (0, "")
    assert "3 instruction, 2 variable" in out
    assert "1 control, 4 data, 2 call" in out
    assert "1 defined, 0 declared" in out
    assert "│ i32        │     2 │" in out


def test_the_summary_tells_what_a_vocabulary_covers(apportion: Run, program: Path, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary.tsv"
    vocabulary.write_text(
        "cumulative_frequency\tcumulative_node_frequency\tcount\ttext\n0.5\t0.5\t2\ti32\n1.0\t1.0\t2\t<root>\n"
    )
    _, out, _ = apportion("graph", program, "--vocabulary", vocabulary)
    assert "40.0% │ unknown: [external] ×1, add ×1, ret ×1" in out
    _, out, _ = apportion("graph", program, "--vocabulary", vocabulary, "--alias", "root")
    assert "60.0% │ unknown: add ×1, ret ×1" in out


def test_a_graph_is_written_in_the_form_its_name_asks_for(
    apportion: Run, program: Path, tmp_path: Path
) -> None:
    _, line, _ = apportion("graph", program, "--json")
    expected = from_json(json.loads(line))
    for suffix in ("json", "npz", "dot", "svg", "html", "parquet"):
        status, _, err = apportion("graph", program, "--out", tmp_path / f"graph.{suffix}")
        assert status == 0, err
    assert load_json(tmp_path / "graph.json") == expected
    assert load_npz(tmp_path / "graph.npz") == expected
    assert dict(read_graphs(tmp_path / "graph.parquet")) == {str(program): expected}
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    assert (tmp_path / "graph.html").read_text().startswith("<!doctype html>")


def test_a_form_that_is_not_known_lists_those_there_are(
    apportion: Run, program: Path, tmp_path: Path
) -> None:
    status, _, err = apportion("graph", program, "--out", tmp_path / "graph.png")
    assert status == 1
    assert "No form of graph file called '.png'." in err
    assert ".svg" in err


def test_several_graphs_do_not_go_into_one_picture(apportion: Run, program: Path, tmp_path: Path) -> None:
    (tmp_path / "other.ll").write_text(ADD)
    status, _, err = apportion("graph", tmp_path, "--out", tmp_path / "graph.svg")
    assert status == 1
    assert "2 graphs go into one .parquet, not into graph.svg" in err


def test_a_folder_goes_into_one_parquet_and_bad_files_are_listed_at_the_end(
    apportion: Run, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.ll").write_text("define void @f() {\n  nonsense\n}\n")
    out = tmp_path / "graphs.parquet"
    status, text, err = apportion("graph", tmp_path, "--out", out, "--jobs", 1)
    assert status == 0
    assert text == f"{out}: 1 graphs\n"
    assert err.splitlines()[0] == "apportion: 1 files gave no graph:"
    assert err.splitlines()[1].startswith(f"  {tmp_path / 'bad.ll'}:2:")
    status, text, _ = apportion("graph", tmp_path, "--out", out, "--jobs", 1, "--json")
    report = json.loads(text)
    assert (status, report["graphs"], report["kept"]) == (0, 1, 1)
    assert [failure["file"] for failure in report["failures"]] == [str(tmp_path / "bad.ll")]


def test_the_exit_status_is_1_when_no_file_of_a_folder_gives_a_graph(apportion: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.ll").write_text("nonsense")
    status, text, err = apportion("graph", tmp_path, "--out", tmp_path / "graphs.parquet", "--jobs", 1)
    assert (status, text) == (1, "")
    assert "1 files gave no graph" in err


def test_a_folder_without_out_is_a_table_of_its_files(
    apportion: Run, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "four.ll").write_text(CALL)
    status, out, _ = apportion("graph", tmp_path)
    assert status == 0
    assert f"│ {tmp_path / 'four.ll'}" in out
    assert f"│ {program}" in out


def test_a_kernel_is_compiled_with_its_macros_and_headers(apportion: Run, tmp_path: Path) -> None:
    kernel = tmp_path / "scale.cl"
    kernel.write_text(KERNEL)
    status, _, err = apportion("graph", kernel, "--json")
    assert status == 1
    assert "FACTOR" in err
    assert f"{kernel}:1:" in err
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "factor.h").write_text("#define FACTOR 3.0f\n")
    for arguments in (["-DFACTOR=3.0f"], ["-D", "FACTOR=3.0f", "--opt", "0"], ["-D", "FACTOR=3.0f", "-O0"]):
        status, out, err = apportion("graph", kernel, "--json", *arguments)
        assert status == 0, err
        assert ("alloca" in out) == (len(arguments) > 2 or "-O0" in arguments)
    kernel.write_text('#include "factor.h"\n' + KERNEL)
    status, out, _ = apportion("graph", kernel, "--json", "-I", tmp_path / "include", "--std", "CL1.2")
    assert status == 0
    assert json.loads(out)["functions"][0][0] == "scale"


def test_one_function_comes_with_what_it_calls(apportion: Run, tmp_path: Path) -> None:
    path = tmp_path / "four.ll"
    path.write_text(CALL)
    names: dict[str, list[Any]] = {}
    for function in ("twice", "four"):
        _, out, _ = apportion("graph", path, "--json", "--function", function)
        names[function] = sorted(name for name, _ in json.loads(out)["functions"])
    assert names == {"twice": ["twice"], "four": ["four", "twice"]}
    status, _, err = apportion("graph", path, "--function", "for")
    assert status == 1
    assert "Did you mean 'four'?" in err


def test_options_of_the_graph_change_it(apportion: Run, program: Path, tmp_path: Path) -> None:
    def texts(*arguments: object) -> list[str]:
        _, out, err = apportion("graph", *arguments, "--json")
        assert err == ""
        return [node[1] for node in json.loads(out)["nodes"]]

    assert texts(program, "--variant", "ddf")[0] == "<root>"
    assert "var" in texts(program, "--variant", "development")
    assert len(texts(program, "--type-nodes")) > len(texts(program))
    pointer = tmp_path / "pointer.ll"
    pointer.write_text(
        "define i32 @f(ptr %p) {\n  %v = load i32, ptr %p\n  %w = add i32 %v, %v\n  ret i32 %w\n}\n"
    )
    assert "i32*" in texts(pointer)
    assert "ptr" in texts(pointer, "--opaque-pointers")
    assert len(texts(pointer, "--variable-per", "definition")) < len(texts(pointer))


def test_standard_input_is_read_as_a_minus(apportion: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ADD.encode())))
    status, out, _ = apportion("graph", "-", "--language", "llvm", "--json")
    assert status == 0
    assert json.loads(out)["module"][0][0] == "<stdin>"
    status, _, err = apportion("graph", "-")
    assert (status, err) == (1, "apportion: Say the --language of what comes from standard input\n")
    status, _, err = apportion("graph", "-", "x.ll", "--language", "llvm")
    assert "goes alone" in err


def test_no_file_an_unknown_option_and_a_missing_file_are_refused(apportion: Run) -> None:
    assert apportion("graph")[2].startswith("apportion: Name a file or a folder")
    status, _, err = apportion("graph", "--nonsense", "x.ll")
    assert status != 0
    assert "--nonsense" in err
    status, _, err = apportion("graph", "nothing.ll")
    assert (status, err) == (1, "apportion: Cannot read nothing.ll: No such file or directory\n")


def test_a_reader_that_has_seen_enough_causes_no_traceback(program: Path) -> None:
    python = f"{sys.executable} -c 'import sys; from apportion.cli import main; main(sys.argv[1:])'"
    done = subprocess.run(
        f"{python} graph {program} --json | head -c 9",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == '{"nodes":'
    assert "Traceback" not in done.stderr
