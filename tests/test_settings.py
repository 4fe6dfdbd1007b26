"""Where things are kept, and TOML files that become frozen dataclasses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.settings import (
    cache_folder,
    convert,
    home_folder,
    load,
    read_json,
    read_toml,
    replace_file,
)


@dataclass(frozen=True)
class Search:
    trials: int
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InvalidSetting(f"trials must be at least 1, not {self.trials}")


@dataclass(frozen=True)
class Experiment:
    name: str
    search: Search
    seeds: tuple[int, ...] = (0,)


def write(folder: Path, text: str) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def test_a_toml_file_becomes_a_frozen_dataclass(tmp_path):
    path = write(tmp_path, 'name = "one"\nseeds = [1, 2]\n[search]\ntrials = 8\n')
    assert load(Experiment, path) == Experiment("one", Search(8, 60.0), (1, 2))


def test_an_ill_typed_key_is_named_with_its_file(tmp_path):
    path = write(tmp_path, 'name = "one"\n[search]\ntrials = "many"\n')
    with pytest.raises(InvalidSetting) as caught:
        load(Experiment, path)
    assert str(caught.value) == (
        f"{path}: search.trials: Input should be a valid integer, unable to parse string as an integer"
    )


def test_a_missing_key_is_named_with_its_file(tmp_path):
    path = write(tmp_path, 'name = "one"\n[search]\n')
    with pytest.raises(InvalidSetting) as caught:
        load(Experiment, path)
    assert str(caught.value).startswith(f"{path}: search.trials: ")


def test_an_unknown_key_is_named_with_its_file(tmp_path):
    path = write(tmp_path, 'name = "one"\n[search]\ntrials = 1\ntrails = 8\n')
    with pytest.raises(InvalidSetting) as caught:
        load(Experiment, path)
    assert str(caught.value).startswith(f"{path}: search.trails: ")


def test_every_problem_is_named_at_once():
    with pytest.raises(InvalidSetting) as caught:
        convert(Experiment, {"search": {"trials": "many"}}, source="<here>")
    assert "name: " in str(caught.value)
    assert "search.trials: " in str(caught.value)


def test_what_a_value_says_of_itself_is_said_with_its_key(tmp_path):
    path = write(tmp_path, 'name = "one"\n[search]\ntrials = 0\n')
    with pytest.raises(InvalidSetting) as caught:
        load(Experiment, path)
    assert str(caught.value) == f"{path}: search: trials must be at least 1, not 0"


def test_text_that_is_no_toml_is_reported_with_its_line(tmp_path):
    path = write(tmp_path, 'name = "one"\nseeds = \n')
    with pytest.raises(MalformedInput, match=r"experiment\.toml:.*line 2"):
        read_toml(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UnreadableFile, match=r"^Cannot read .*absent\.toml: "):
        read_toml(tmp_path / "absent.toml")


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableFile, match=r"^Cannot read .*binary\.toml: "):
        read_toml(tmp_path / "binary.toml")


def test_the_cache_is_where_the_variable_says_and_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "kept"))
    assert cache_folder("ir") == tmp_path / "kept" / "ir"
    assert (tmp_path / "kept" / "ir").is_dir()


def test_without_the_variable_the_cache_is_the_users(tmp_path, monkeypatch):
    monkeypatch.delenv("APPORTION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "apportion"


@pytest.mark.parametrize("place", ["", "here", "./here"])
def test_a_users_cache_without_a_place_of_its_own_is_not_the_working_folder(place, tmp_path, monkeypatch):
    monkeypatch.delenv("APPORTION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert cache_folder() == tmp_path / "home" / ".cache" / "apportion"


def test_a_cache_that_cannot_be_made_says_what_to_set(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "file"))
    with pytest.raises(UnreadableFile) as caught:
        cache_folder("ir")
    assert str(caught.value) == (
        f"Cannot write to the cache folder {tmp_path}/file/ir (Not a directory). "
        "Set APPORTION_CACHE to another."
    )


def test_a_file_is_written_whole_with_its_folder_or_an_error_says_why(tmp_path):
    path = tmp_path / "new" / "page.html"
    replace_file(path, "é")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(UnreadableFile, match=r"Cannot write .*page\.html/below: "):
        replace_file(path / "below", "three")


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text",
    [DEEP, "9" * 5000, '"\\ud800"', "{", '"\xe9'],
    ids=["deep", "digits", "half a pair", "cut", "Latin-1"],
)
def test_json_that_cannot_be_used_is_named_with_its_file(text, tmp_path):
    path = tmp_path / "said.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(MalformedInput, match=r"said\.json: is not JSON") as told:
        read_json(path)
    assert "\n" not in str(told.value)
    path.write_text(json.dumps({"a": "é"}))
    assert read_json(path) == {"a": "é"}


@pytest.mark.parametrize("value", [DEEP, "9" * 5000], ids=["deep", "digits"])
def test_toml_that_cannot_be_used_is_named_with_its_file(value, tmp_path):
    path = tmp_path / "said.toml"
    path.write_text(f"value = {value}\n")
    with pytest.raises(MalformedInput, match=r"said\.toml: is not TOML"):
        read_toml(path)


_WRITER = """
import sys, time
from pathlib import Path
from apportion.settings import whole_file, whole_folder
folder = sys.argv[2] == "folder"
with (whole_folder if folder else whole_file)(Path(sys.argv[1])) as part:
    inner = part / "inner" if folder else part
    inner.write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
    inner.write_text("whole")
"""


def _writing(path: Path, kind: str) -> subprocess.Popen[str]:
    """A process that is in the middle of writing a file or a folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITER, path, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(kind: str, tmp_path: Path):
    killed, alive = _writing(tmp_path / "killed", kind), _writing(tmp_path / "alive", kind)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(list(tmp_path.glob(".*.part"))) == 2
    next_one = _writing(tmp_path / "next", kind)
    assert [path.name.split(".")[1] for path in sorted(tmp_path.glob(".*.part"))] == ["alive", "next"]
    for process in (alive, next_one):
        process.communicate("go on")
        assert process.returncode == 0
    assert (tmp_path / "alive" / ("inner" if kind == "folder" else "")).read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alive", "next"]


def test_the_home_folder_is_kept_and_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("APPORTION_HOME", str(tmp_path / "one"))
    assert home_folder("models") is home_folder("models")  # new paths at every answer cost a service memory
    assert home_folder("models") == tmp_path / "one" / "models"
    monkeypatch.setenv("APPORTION_HOME", str(tmp_path / "two"))
    assert home_folder("models") == tmp_path / "two" / "models"
    monkeypatch.delenv("APPORTION_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home_folder() == tmp_path / "data" / "apportion"
    monkeypatch.setenv("XDG_DATA_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert home_folder() == tmp_path / "home" / ".local" / "share" / "apportion"
