"""The client and `--server`: the same answers and the same errors as on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion import Client
from apportion.cli import main
from apportion.errors import (
    CompileError,
    DeadlineExceeded,
    InvalidSetting,
    JobError,
    UnreadableFile,
)
from apportion.program.source import Source
from tests.serve.conftest import HANGING, SAXPY, TOKEN, Service
from tests.serve.conftest import service as service

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytestmark = pytest.mark.xdist_group("serve")


@pytest.fixture
def client(service: Service) -> Client:
    return Client(f"{service.base}/#token={TOKEN}")


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.cl"
    path.write_text(SAXPY)
    return path


def printed(capsys, *words: str) -> list[dict]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code in (0, None), capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_client_predicts_and_runs(client, saxpy):
    assert 0 <= client.predict(saxpy, local_size=64, bytes=1 << 20)["cpu_share"] <= 1
    assert client.inspect(saxpy, global_size=1 << 16)["kernel"] == "saxpy"
    assert client.run(saxpy, global_size=4096, repeat=1, cuts=False)["verified"] is True
    assert client.jobs()[0]["state"] == "done"


def test_errors_are_those_of_a_local_call(client, service):
    with pytest.raises(CompileError, match=r"f\.cl:1:"):
        client.predict(Source("__kernel void f( {", "opencl", "f.cl"), local_size=64, bytes=1)
    with pytest.raises(DeadlineExceeded, match="Does the kernel end"):
        client.run(Source(HANGING, "opencl", "h.cl"), global_size=64, seconds=0.5, repeat=1, cuts=False)
    with pytest.raises(JobError, match="token"):
        Client(service.base, token="wrong").jobs()
    with pytest.raises(UnreadableFile, match="No service answers at 127"):
        Client("http://127.0.0.1:9").jobs()
    with pytest.raises(InvalidSetting, match="written like http://"):
        Client("ftp://x")


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "--local-size", "64", "--bytes", "1048576", "--pair", "cgo17-nvidia"),
        ("explain", "--local-size", "64", "--bytes", "1048576"),
        ("graph",),
        ("analyze", "--analysis", "reachability"),
    ],
    ids=lambda words: words[0],
)
def test_a_verb_answers_the_same_by_a_server(capsys, monkeypatch, service, saxpy, words):
    monkeypatch.chdir(saxpy.parent)
    name, *options = words
    (here,) = printed(capsys, name, "saxpy.cl", *options, "--json")
    (there,) = printed(capsys, name, "saxpy.cl", *options, "--json", "--server", service.base)
    for answer in (here, there):
        answer.pop("milliseconds", None)
        answer.pop("warnings", None)
    assert there == here


def test_a_table_is_printed_where_no_json_is_asked_for(capsys, service, saxpy):
    with pytest.raises(SystemExit):
        main(["devices", "--server", service.base])
    assert "answer" in capsys.readouterr().out


def test_what_a_server_cannot_do_is_told(capsys, service, saxpy):
    for words, message in (
        (["train", "--server", service.base], "No command for --server called 'train'"),
        (
            ["predict", str(saxpy), "--batch", "x.csv", "--server", service.base],
            "--batch works on this machine",
        ),
        (["predict", str(saxpy), "--server"], "--server needs the address"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 1
        assert message in capsys.readouterr().err
