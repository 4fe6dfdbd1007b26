"""The pages *Write a policy*, *a backend*, *a runner* and *a frontend*: their code is found through entry points, and passes the checks."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from apportion.cli import main
from apportion.coexecution.policies import policy_of
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting
from apportion.jobs import runner_of
from apportion.runtime.backend import open_backend
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.replay import Recorder
from apportion.runtime.split import Split
from apportion.suite import problem_of
from apportion.testing.backend_checks import launches, run
from tests.conftest import Installer

DOCS = Path(__file__).parents[1] / "docs"
RECORDING = DOCS / "results" / "co-execution"


def _of_page(page: str) -> tuple[dict[str, str], str]:
    """The Python files of a page, and its entry points as an installed package has them."""
    text = (DOCS / "howto" / page).read_text()
    files = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        file = re.match(r"# (\S+\.py)\n", code)
        assert file is not None, "every example says which file it is"
        files[file[1]] = code
    (points,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    group, key, target = re.match(r'\[project.entry-points."(.*?)"\]\n(\S+) = "(.*?)"', points).groups()  # type: ignore[union-attr]
    return files, f"[{group}]\n{key} = {target}\n"


def _pass(checks: type) -> int:
    """Run every check of a class; how many there were."""
    names = [name for name in dir(checks) if name.startswith("test_")]
    for name in names:
        getattr(checks(), name)()
    return len(names)


def test_the_policy_of_the_page_is_found_by_its_name_and_passes_the_checks(
    installed: Installer,
) -> None:
    installed(*_of_page("write-a-policy.md"))
    problem = problem_of("bezier")
    instance = problem.instance(problem.usual)
    (stage,) = instance.stages
    with Together(
        problem.source(), "bezier", backend=f"replay:{RECORDING}", policy="fastest-so-far"
    ) as kernel:
        bound = kernel.bind(
            *instance.values(stage, instance.arrays),
            global_size=stage.global_size,
            local_size=stage.local_size,
        )
        splits = [bound.run("fastest-so-far").split for _ in range(4)]
        assert type(policy_of("fastest-so-far", kernel.devices)).__name__ == "FastestSoFar"
    assert [split["cpu"] for split in splits] == [1.0, 0.0, 0.0, 0.0]
    assert _pass(importlib.import_module("test_mine").TestFastestSoFar) >= 5


def test_the_backend_of_the_page_is_found_by_its_name_and_passes_the_checks(
    backend: OpenCLBackend, installed: Installer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(*_of_page("write-a-backend.md"))
    recorder = Recorder(backend)
    names = [info.id for info in recorder.devices()]
    for call, _, _ in launches().values():
        for split in (*map(Split.alone, names), Split.even(names)):
            run(recorder, call, split)
    recorder.save(tmp_path / "recorded")
    with open_backend(f"slow:{tmp_path / 'recorded'}") as slow:
        call = launches()["a line"][0]
        assert run(slow, call, Split.alone("cpu")).seconds > 1e-3
    module = importlib.import_module("test_theirs")
    monkeypatch.setattr(module, "RECORDED", tmp_path / "recorded", raising=False)
    assert _pass(module.TestSlowLaunches) >= 9


def test_the_runner_of_the_page_is_found_by_its_name_and_passes_the_checks(
    installed: Installer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(*_of_page("write-a-runner.md"))
    outcomes = runner_of("polite:12", workers=1).map(functools.partial(os.getpriority, os.PRIO_PROCESS), [0])
    assert [outcome.unwrap() for outcome in outcomes] == [12]
    with pytest.raises(InvalidSetting, match="a niceness from 0 to 19, not 'night'"):
        runner_of("polite:night")
    with pytest.raises(SystemExit) as stopped:
        main(["tune", "--command", "test {size} -gt 0", "--param", "size=1,2", "--budget", "2",
              "--study", str(tmp_path / "study.jsonl"), "--runner", "polite:12", "--json"])  # fmt: skip
    assert not stopped.value.code
    assert json.loads(capsys.readouterr().out)["best"]["size"] in (1, 2, "1", "2")
    assert _pass(importlib.import_module("test_theirs").TestPoliteRunner) >= 12


def test_the_frontend_of_the_page_makes_a_graph_of_its_language(installed: Installer) -> None:
    text = (DOCS / "howto" / "write-a-frontend.md").read_text()
    module, use = re.findall(r"```python\n(.*?)```", text, re.S)
    (name,) = re.findall(r"`(\w+\.py)`:", text)
    (points,) = re.findall(r"(\[project.entry-points.*?)```", text, re.S)
    with pytest.raises(AssertionError):
        exec(use, {})
    installed(
        {name: module}, points.replace('[project.entry-points."', "[").replace('"]', "]").replace('"', "")
    )
    said: dict[str, Any] = {}
    exec(use, said)
    graph = said["graph"]
    assert "ret i32 42" in [graph.full_text(node) for node in range(graph.nodes)]
