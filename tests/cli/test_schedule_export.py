"""`apportion schedule export`: its files, its lines, and one line for what is wrong."""

from __future__ import annotations

import json

import pytest

from apportion.cli import main

TABLE = "class,predicted:v100,predicted:p100\nbert,100,150\nlstm,80,20\nnone,,\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "predicted.csv"
    path.write_text(TABLE)
    return str(path)


def ended(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(["schedule", "export", *words])
    return left.value.code, capsys.readouterr()


def test_each_class_becomes_a_file_that_yaml_reads_too(table, tmp_path, capsys):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    out = tmp_path / "tasks"
    code, said = ended(capsys, "--for", "skypilot", "--predictions", table, "--called", "v100=V100:1", "p100=P100:1",
                       "--out", str(out))  # fmt: skip
    assert code == 0
    assert "nothing usable is predicted: none" in said.err
    assert sorted(path.name for path in out.iterdir()) == ["bert.yaml", "lstm.yaml"]
    task = yaml.safe_load((out / "lstm.yaml").read_text())
    assert task == {"name": "lstm", "resources": {"ordered": [{"accelerators": "P100:1"}]}}


def test_without_a_folder_one_document_a_line_is_printed(table, capsys):
    code, said = ended(
        capsys, "--for", "flux", "--predictions", table, "--command", "true", "--class", "bert"
    )
    assert code == 0
    (line,) = said.out.splitlines()
    assert json.loads(line)["attributes"]["user"]["apportion"]["systems"] == ["v100", "p100"]


def test_kueue_says_which_queue_a_class_takes(table, capsys):
    code, said = ended(capsys, "--for", "kueue", "--predictions", table, "--systems", "v100=8", "p100=16")
    assert code == 0
    assert "Jobs of class bert take the label kueue.x-k8s.io/queue-name: apportion-v100-p100" in said.err
    assert json.loads(said.out)["kind"] == "List"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--for", "kueu"), "No form called 'kueu'. Did you mean 'kueue'?"),
        (("--for", "flux"), "--command 'PROGRAM ARGUMENTS'"),
        (("--for", "skypilot", "--class", "brt"), "No class called 'brt'. Did you mean 'bert'?"),
        (("--for", "skypilot", "--called", "v100"), "--called is written NAME=VALUE, not 'v100'"),
        (("--for", "skypilot", "--within", "0.5"), "within is a factor of 1 or more, not 0.5"),
        (("--for", "skypilot", "--class", "none"), "predicts nothing usable for any class"),
        (("--for", "kueue", "--label", "a b"), "not 'a b'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(table, capsys, words, message):
    code, said = ended(capsys, "--predictions", table, *words)
    assert code == 1
    assert message in said.err
    assert said.err.splitlines()[-1].count(message) == 1
