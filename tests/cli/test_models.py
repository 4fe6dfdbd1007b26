"""`apportion models`, and the manifest of what is shipped."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from apportion import weights
from apportion.cli import main
from apportion.data.artifact import DESCRIPTION, read_description
from apportion.learn.base import predictor_questions


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return int(stopped.value.code or 0)


def test_every_shipped_model_is_in_the_manifest_and_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    folders = {path.parent.name for path in weights.WEIGHTS.glob(f"*/{DESCRIPTION}")}
    manifest = weights.manifest()
    names = {one.name for one in manifest.models}
    assert {one.folder for one in manifest.models} == folders
    assert set(manifest.defaults.values()) <= names
    for one in manifest.models:
        assert one.checksum == read_description(weights.WEIGHTS / one.folder).checksum
        assert one.score, f"{one.name} does not say how good it is"
        assert one.data, f"{one.name} does not say what it learned from"
        assert one.made_by.startswith(("python -m reproduction", "apportion train"))
    assert run("models", "check", "--json") == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["model"]: line["problem"] for line in said} == dict.fromkeys(names)


def test_the_manifest_is_what_its_artifacts_say(tmp_path: Path) -> None:
    for folder in weights.WEIGHTS.glob("*/"):
        if (folder / DESCRIPTION).exists():
            shutil.copytree(folder, tmp_path / folder.name)
    again = weights.write_manifest(tmp_path, predictor_questions(), defaults=weights.manifest().defaults)
    assert again == weights.manifest()


def test_models_are_listed_by_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models", "list", "--question", "times", "--json") == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["name"], line["default"], line["licence"]) == ("xeon-h200", True, "Apache-2.0")
    assert run("models", "list") == 0
    said = capsys.readouterr().out
    assert "dataflow-liveness" in said
    assert "shares: Which part of a kernel's work should the CPU take?" in said
    assert "question" not in said


def test_the_names_of_models_stay_whole_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert run("models", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert {one.name for one in weights.manifest().models} <= {
        word for line in lines for word in line.split()
    }


def test_a_question_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models", "list", "--question", "energy") == 1
    assert "No question called 'energy'" in capsys.readouterr().err


def test_a_model_is_shown_with_what_made_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models", "show", "cgo17-amd-recall") == 0
    said = capsys.readouterr().out
    for words in ("Which part of a kernel's work should the CPU take?", "held out mae", "Apache-2.0"):
        assert words in said


def test_a_damaged_model_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(weights.folder_of("relative-aiwc"), folder)
    assert run("models", "check", folder) == 0
    data = bytearray((folder / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(bytes(data))
    capsys.readouterr()
    assert run("models", "check", folder) == 1
    captured = capsys.readouterr()
    assert "does not have the checksum" in captured.out
    assert "1 of 1 models are damaged" in captured.err


def test_models_alone_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models", "--question", "ranking", "--json") == 0
    alone = capsys.readouterr().out
    assert run("models", "list", "--question", "ranking", "--json") == 0
    assert capsys.readouterr().out == alone
    assert run("models", "--question", "rankings") == 1
    assert "No question called 'rankings'" in capsys.readouterr().err


NETWORKS = (
    *(f"dataflow-{name}" for name in ("reachability", "dominance", "datadep", "liveness", "subexpressions")),
    "gnn-load-balance", "gnn-load-balance-classes", "gnn-device-mapping",
    "relative-aiwc-network", "relative-programs-network", "rank-h200-triton-network",
)  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_each_network_of_the_papers_has_its_score_beside_a_simple_models(name: str) -> None:
    # The score in words ends with what needs no network, in brackets.
    assert re.search(r"\d.*\(.*: ?[\d.]+.*\)$", weights.manifest().called(name).score)
