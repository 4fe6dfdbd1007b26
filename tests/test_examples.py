"""The examples run as they are printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "analyze_a_program": "reachability from ",
    "graph_of_a_kernel": "33 nodes and 52 edges, in the function saxpy\n",
    "order_of_systems": "counters and the time on gtx1080",
    "predict_a_share": "the instructions that moved the answer most:\n",
    "share_a_kernel": "points lie in the set\n",
    "tune_a_function": "16 of 49 configurations measured\n",
}


def test_every_example_is_among_those_that_are_run():
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(SAYS)


@pytest.mark.xdist_group("opencl")
@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs_and_says_what_it_found(name: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout


def test_the_graph_of_a_kernel_is_drawn_and_kept(tmp_path: Path):
    subprocess.run([sys.executable, EXAMPLES / "graph_of_a_kernel.py", tmp_path], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saxpy.html", "saxpy.npz"]
