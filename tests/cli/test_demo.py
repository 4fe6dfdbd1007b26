"""`apportion demo`: it works with what is installed, and leaves something to look at."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from apportion.cli import main
from apportion.program.exchange import load_json
from apportion.program.llvm import graph_of_ir


def test_the_demo_compiles_builds_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    with pytest.raises(SystemExit) as exit_:
        main(["demo", "--out", str(tmp_path / "demo")])
    assert not exit_.value.code
    captured = capsys.readouterr()
    assert "The graph of jacobi.cl" in captured.out
    assert "kernel jacobi" in captured.out
    assert f"Open {tmp_path / 'demo' / 'graph.html'}" in captured.out
    graph = load_json(tmp_path / "demo" / "graph.json")
    assert graph == graph_of_ir((tmp_path / "demo" / "kernel.ll").read_text(), name="jacobi.cl")
    assert graph.functions[0].name == "jacobi"
    picture = ElementTree.fromstring((tmp_path / "demo" / "graph.svg").read_text())
    nodes = {group.attrib["data-node"] for group in picture.iter() if "data-node" in group.attrib}
    assert len(nodes) == graph.nodes
    assert (tmp_path / "demo" / "graph.html").read_text().startswith("<!doctype html>")


def test_the_demo_tells_programs_what_each_step_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["demo", "--out", str(tmp_path), "--json"])
    captured = capsys.readouterr()
    steps = {step["step"]: step for step in json.loads(captured.out)["steps"]}
    assert list(steps)[:3] == ["compile_kernel", "build_graph", "draw_graph"]
    assert steps["compile_kernel"]["kernel"] == "jacobi"
    assert steps["build_graph"]["nodes"] == load_json(tmp_path / "graph.json").nodes
    asked = steps["ask_the_papers_models"]
    assert "of jacobi.cl" in asked["gnn_load_balance"]
    assert "nodes are reached from node" in asked["dataflow_reachability"]
    assert "is fastest on" in asked["relative_aiwc_network"]
    assert "BLOCK_M" in asked["rank_h200_triton"]
    assert asked["rank_h200_triton_network"].startswith("the paper's network says with BLOCK_M")
    run = steps["run_together"]
    assert run["verified"].startswith("yes")
    assert "cpu 50%, cpu2 50% in" in run["shared"]
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert captured.err == ""
