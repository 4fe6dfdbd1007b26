"""A predictor and a learner from outside the package: the code of the two how-tos, found by entry points."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import packaged

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto"
TEST_HEAD = "import numpy as np\nfrom loops import *\n"


def code_of(page: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (HOWTO / page).read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the import path with both modules, their tests, and the entry points of a package."""
    folder = tmp_path_factory.mktemp("outside")
    predictor, predictor_tests = code_of("write-a-predictor.md")
    learner, learner_tests = code_of("write-a-learner.md")
    files = {
        "loops.py": predictor, "mean_share.py": learner, "test_outside_loops.py": TEST_HEAD + predictor_tests,
        "test_outside_mean.py": learner_tests,
    }  # fmt: skip
    points = "[apportion.predictor]\nloops = loops:LoopShare\n\n[apportion.learner]\nmean-share = mean_share:MeanShare\n"
    packaged(folder, "outside", files, points)
    (folder / "k.ll").write_text("define void @k(ptr %x) {\n  store float 2.0, ptr %x\n  ret void\n}\n")
    (folder / "launches.csv").write_text("cpu_share\n0.25\n0.75\n0.8\n")
    (folder / "mean.toml").write_text('learner = "mean-share"\ndata = "launches.csv"\n')
    return folder


def run(outside: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(outside), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *words], cwd=outside, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def test_what_the_pages_say_passes_the_checks_that_ours_pass(outside: Path) -> None:
    done = run(outside, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(outside))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 passed" in done.stdout


def test_verbs_ask_a_predictor_from_outside_and_train_by_a_learner_from_outside(outside: Path) -> None:
    main = "import sys; from apportion.cli import main; main(sys.argv[1:])"
    trained = run(outside, "-c", main, "train", "mean.toml", "--out", "my-mean")
    assert trained.returncode == 0, trained.stderr
    assert "always_half_mae" in trained.stdout
    asked = run(
        outside, "-c", main, "predict", "k.ll", "--local-size", "64", "--bytes", "4096", "--model", "my-mean",
        "--json",
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    assert '"cpu_share": 0.6' in asked.stdout
    assert '"model": "mean"' in asked.stdout
    other = run(outside, "-c", main, "relative", "predict", "none.json", "--model", "my-mean")
    assert other.returncode == 1
    assert "The model 'my-mean' answers: Which part of a kernel's work should the CPU take?" in other.stderr
