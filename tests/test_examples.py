"""The examples run as they are printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_graph_of_a_kernel_is_built_and_drawn(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "graph_of_a_kernel.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("33 nodes and 52 edges, in the function saxpy\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saxpy.html", "saxpy.npz"]
