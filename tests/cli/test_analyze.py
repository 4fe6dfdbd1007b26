"""`apportion analyze`: what it prints, what it draws, and what it refuses."""

from __future__ import annotations

import gzip
import json

import pytest

from apportion.cli import main
from apportion.program.exchange import save_json
from apportion.program.llvm import graph_of_ir

IR = """define i32 @f(i32 %a, i32 %b) {
entry:
  %c = icmp slt i32 %a, %b
  br i1 %c, label %yes, label %no
yes:
  %u = add i32 %a, 1
  br label %no
no:
  %r = phi i32 [ %u, %yes ], [ %b, %entry ]
  ret i32 %r
}
"""
# 0 root; 1 icmp; 2 br, 3 its %c; 4 add; 5 br; 6 phi, 7 its %u; 8 ret, 9 its %r; 10 %a; 11 %b; 12 constant 1


@pytest.fixture(autouse=True)
def unfolded(monkeypatch):
    """Tables as wide as they like."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def analyze(capsys):
    """Run the command in this process: exit status, stdout, stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as exit_:
            main(["analyze", *map(str, arguments)])
        captured = capsys.readouterr()
        return exit_.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "f.ll"
    path.write_text(IR)
    return path


def test_one_root_in_json(analyze, program):
    status, out, err = analyze(program, "--analysis", "liveness", "--root", 2, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "analysis": "liveness",
        "eligible": [1, 2, 4, 5, 6],
        "runs": [[2, 2, 3, [7, 10, 11]]],
    }


def test_several_roots_and_all_of_them(analyze, program):
    _, out, _ = analyze(program, "--analysis", "dominance", "--roots", "4,1", "--json")
    assert json.loads(out)["runs"] == [[4, 2, 2, [4, 5]], [1, 4, 6, [1, 2, 4, 5, 6, 8]]]
    _, out, _ = analyze(program, "--analysis", "dominance", "--roots", "all", "--json")
    assert [run[0] for run in json.loads(out)["runs"]] == json.loads(out)["eligible"] == [1, 2, 4, 5, 6, 8]


def test_the_reference_answers_in_its_own_way(analyze, program):
    arguments = (program, "--analysis", "dominance", "--root", 1, "--json")
    _, out, _ = analyze(*arguments, "--mode", "reference")
    assert json.loads(out)["runs"] == [[1, 11, 6, [1, 2, 4, 5, 6, 8]]]  # a step for every other node
    _, out, _ = analyze(*arguments, "--mode", "exact")
    assert json.loads(out)["runs"] == [[1, 4, 6, [1, 2, 4, 5, 6, 8]]]


def test_a_sample_is_drawn_by_its_seed(analyze, program):
    def roots(*arguments):
        _, out, _ = analyze(program, "--analysis", "reachability", "--json", *arguments)
        return [run[0] for run in json.loads(out)["runs"]]

    assert len(roots("--roots", "sample:3")) == 3
    assert roots("--roots", "sample:3", "--seed", 4) == roots("--roots", "sample:3", "--seed", 4)
    assert len({tuple(roots("--roots", "sample:3", "--seed", seed)) for seed in range(6)}) > 1
    assert len(roots()) == 2  # a tenth of thirteen nodes


def test_a_graph_in_json_keeps_its_node_numbers(analyze, program, tmp_path):
    graph = tmp_path / "f.json"
    save_json(graph_of_ir(IR), graph)
    for name in ("reachability", "datadep", "liveness"):
        from_program = analyze(program, "--analysis", name, "--roots", "all", "--json")
        assert analyze(graph, "--analysis", name, "--roots", "all", "--json") == from_program


def test_the_command_line_prints_the_runs_of_the_reference(analyze, shared_data, tmp_path):
    path = tmp_path / "oracle.json"
    with gzip.open(shared_data / "programl-oracle" / "analysis.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line, _ in zip(lines, range(4), strict=False)]
    for record in records:
        path.write_text(json.dumps(record["graph"]))
        for name, expected in record["labels"].items():
            roots = ",".join(str(run[0]) for run in expected["runs"])
            _, out, _ = analyze(path, "--analysis", name, "--roots", roots, "--mode", "reference", "--json")
            assert json.loads(out) == {"analysis": name, **expected}


def chain(length):
    nodes = [[0, "x", 0, 0, None]] * (length + 1)
    edges = [[0, 0, node, node + 1] for node in range(1, length)]
    return {"nodes": nodes, "edges": edges, "functions": [["f", {}]], "module": []}


def test_an_error_of_the_reference_takes_the_place_of_its_steps(analyze, tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(chain(1100)))
    arguments = (path, "--analysis", "dominance", "--root", 1, "--mode", "reference")
    status, out, _ = analyze(*arguments, "--json")
    assert status == 0
    assert json.loads(out)["runs"] == [[1, "Dominance fixed-point not found in 1000 steps"]]
    assert "Dominance fixed-point not found in 1000 steps" in analyze(*arguments)[1]
    status, _, err = analyze(*arguments, "--out", tmp_path / "x.svg")
    assert status == 1
    assert "Nothing to draw from root 1" in err


def test_a_reference_that_gives_the_whole_graph_up_says_so_in_json_too(analyze, tmp_path):
    graph = chain(3)
    graph["edges"].append([0, 0, 2, 1])  # 1 ⇄ 2 → 3, and nothing is ever read
    path = tmp_path / "ring.json"
    path.write_text(json.dumps(graph))
    status, out, err = analyze(path, "--analysis", "liveness", "--mode", "reference", "--json")
    assert status == 1
    assert json.loads(out) == {
        "analysis": "liveness",
        "init_error": "Failed to terminate liveness computation in 5000 steps",
    }
    assert err == "apportion: Failed to terminate liveness computation in 5000 steps\n"


def test_people_get_a_table(analyze, program):
    status, out, _ = analyze(program, "--analysis", "dominance", "--root", 1)
    assert status == 0
    assert "dominance, exact: 6 eligible roots" in out
    assert "%c = icmp slt i32 %a, %b" in out
    assert "1 2 4 5 6 8" in out


@pytest.mark.parametrize("end", ["svg", "html", "dot"])
def test_a_picture_colours_the_root_and_what_it_labels(analyze, program, tmp_path, end):
    picture = tmp_path / f"f.{end}"
    status, _, err = analyze(program, "--analysis", "dominance", "--root", 4, "--out", picture)
    assert (status, err) == (0, f"Wrote {picture}\n")
    text = picture.read_text()
    assert "#d7301f" in text
    assert "#fdbb5c" in text
    assert "dominance from node 4" in text


def test_one_function_can_be_chosen(analyze, program):
    program.write_text(IR + "define void @g() {\n  ret void\n}\n")
    _, out, _ = analyze(program, "--analysis", "reachability", "--function", "g", "--roots", "all", "--json")
    assert json.loads(out)["runs"] == [[1, 1, 1, [1]]]
    status, _, err = analyze(program, "--analysis", "reachability", "--function", "h")
    assert status == 1
    assert "No function called 'h'" in err


ROOTS = "--roots must be 'all', 'sample:N' or numbers such as '3,17,20'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--root", "3", "--roots", "all"], "Give --root or --roots, not both"),
        (["--roots", "some"], f"{ROOTS}, not 'some'"),
        (["--roots", "sample:x"], f"{ROOTS}, not 'sample:x'"),
        (["--roots", "3,"], f"{ROOTS}, not '3,'"),
        (["--roots", "sample:0"], "The number of roots to draw must be at least 1, not 0"),
        (["--seed", "-1"], "--seed must be 0 or more, not -1"),
        (["--root", "99"], "There is no node 99: the graph has nodes 0 to 12. Eligible: 1, 2, 4, 5, 6, 8."),
        (
            ["--root", "12"],
            "Node 12 (i32) is no eligible root for dominance: roots are instructions of a function. "
            "Eligible: 1, 2, 4, 5, 6, 8.",
        ),
        (["--out", "x.png"], "No form of picture called '.png'. There are: .dot, .html, .svg."),
        (["--out", "x.svg"], "A picture shows one root, and 2 are chosen. Name it with --root"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(analyze, program, arguments, message):
    status, out, err = analyze(program, "--analysis", "dominance", *arguments)
    assert (status, out, err) == (1, "", f"apportion: {message}\n")


def test_a_graph_without_eligible_roots_is_refused(analyze, program, tmp_path):
    status, out, err = analyze(program, "--analysis", "subexpressions", "--json")
    assert status == 1
    assert json.loads(out) == {"analysis": "subexpressions", "eligible": [], "runs": []}
    assert err == (
        "apportion: No eligible root nodes for subexpressions: no two of its instructions compute the same.\n"
    )
    empty = tmp_path / "empty.json"
    empty.write_text('{"nodes": [], "edges": [], "functions": [], "module": []}')
    status, out, err = analyze(empty, "--analysis", "dominance")
    assert (status, out) == (1, "")
    assert err == "apportion: No eligible root nodes for dominance: the graph is empty.\n"


def test_a_graph_has_no_functions_to_choose_from(analyze, tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(chain(3)))
    status, _, err = analyze(path, "--analysis", "dominance", "--function", "f")
    assert status == 1
    assert err == f"apportion: --function chooses from a program; {path} already is a graph\n"


def test_too_many_labels_are_refused_before_they_are_made(analyze, tmp_path):
    path = tmp_path / "huge.json"
    path.write_text(json.dumps(chain(70_000)))
    status, out, err = analyze(path, "--analysis", "dominance", "--roots", "all")
    assert (status, out) == (1, "")
    assert err == (
        "apportion: All 70,000 roots over 70,001 nodes may give 5 billion labels. "
        "Take fewer: --roots sample:10\n"
    )
    assert analyze(path, "--analysis", "dominance", "--roots", "sample:2", "--json")[0] == 0


def test_a_network_answers_beside_the_analysis(analyze, program):
    status, out, err = analyze(program, "--analysis", "reachability", "--root", 2, "--learned", "--json")
    found = json.loads(out)
    assert (status, err, found["trained_on"]) == (0, "", "reference")
    (run,) = found["runs"]
    assert run["labelled"] == run["learned"] == [2, 4, 5, 6, 8]
    assert run["f1"] == 1.0


def test_a_network_that_learnt_other_labels_says_so(analyze, program):
    status, out, err = analyze(program, "--analysis", "dominance", "--root", 2, "--learned")
    assert status == 0
    assert "beside what a network says" in out
    assert "has learnt the labels of --mode reference" in err
