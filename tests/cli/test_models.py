"""`apportion models`, and the manifest of what is shipped."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
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


def test_a_model_that_is_worse_than_the_trivial_answer_is_called_a_miss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("models", "list", "--json") == 0
    said = {one["name"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert said["gnn-load-balance"]["misses"] == ["MAE 22.2 is worse than always 50 % (20.2)"]
    assert said["relative-aiwc-forest"]["misses"] == [
        "fastest system named 0.53 is worse than always the fastest on average (0.58)"
    ]
    assert said["cgo17-nvidia"]["misses"] == []
    assert said["gnn-device-mapping"]["misses"] == []
    assert run("models", "list", "--question", "shares") == 0
    table = " ".join(re.sub(r"[│|]", " ", capsys.readouterr().out).split())
    assert table.count("missed:") == sum(
        len(one["misses"]) for one in said.values() if one["question"] == "shares"
    )


@pytest.mark.parametrize(
    ("score", "missed"),
    [
        ("MAE 20.3, application held out (always 50 %: 20.2)", 1),
        ("MAE 20.2, application held out (a constant: 20.2)", 0),
        ("MAE 9.0, device 0.56, source held out (always 50 %: 20.2; one device: 0.57)", 1),
        ("F1 0.030 on exact labels (yes to every node: 0.043)", 1),
        ("OPA 0.49, first choice 40% slower than the best, kernel held out (by chance: 0.51, 39%)", 2),
        ("fastest system named 0.9, time lost 1.4x (always the fastest on average: 0.58, 1.36x)", 1),
        ("time off by a factor of 1.93", 0),
    ],
)
def test_each_measure_of_a_score_is_held_against_the_trivial_answer(score: str, missed: int) -> None:
    model = replace(weights.manifest().models[0], score=score)
    assert len(model.misses) == missed


def test_every_shipped_score_with_a_trivial_answer_has_a_measure_that_is_understood() -> None:
    for one in weights.manifest().models:
        own, _, trivial = one.score.rpartition(" (")
        if ":" not in trivial:
            assert one.name == "xeon-h200"  # its score has none beside it
            continue
        understood = [
            each for each in weights.MEASURES if re.search(each.own, own) and re.search(each.trivial, trivial)
        ]
        assert len(understood) == len(
            re.findall(r"MAE|device \d|F1|OPA|first choice|named|time lost", own)
        ), one


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
