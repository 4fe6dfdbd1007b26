"""One output, one writer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apportion.errors import AlreadyWritten, UnreadableFile
from apportion.jobs.holding import held

HOLD = "import sys; from pathlib import Path; from apportion.jobs.holding import held\n"
HOLD += "with held(Path(sys.argv[1])): print('held', flush=True); input()"


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    said = (
        rf"^{re.escape(str(tmp_path))} is being written by process {os.getpid()} on \S+ \(.*\), for less than"
    )
    with held(tmp_path), pytest.raises(AlreadyWritten, match=said), held(tmp_path):
        pass


@pytest.mark.parametrize("name", ["folder", "file.parquet"])
def test_nothing_is_left_and_the_next_writer_is_let_in(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with held(tmp_path / name):
            assert [path.name for path in tmp_path.rglob("*lock")]
        assert list(tmp_path.rglob("*lock")) == []


def test_a_writer_that_was_killed_holds_nothing_any_more(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(AlreadyWritten, match=f"process {other.pid} "), held(tmp_path):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert (tmp_path / ".lock").exists()  # left behind, and of no effect
    with held(tmp_path):
        pass


def test_of_eight_that_begin_at_once_one_writes(tmp_path: Path) -> None:
    script = HOLD.replace("input()", "import time; time.sleep(1.5)")
    others = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]
    said = [process.communicate() for process in others]
    assert sum(out == b"held\n" for out, _ in said) == 1
    assert sum(b"AlreadyWritten" in error for _, error in said) == 7


def test_where_nothing_can_be_written_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableFile, match="Cannot write to"), held(tmp_path / "file" / "folder"):
        pass


def test_a_folder_with_files_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    said = (
        f"^{re.escape(str(tmp_path))} holds files of something else, such as mine.txt. Name a folder that is"
    )
    with pytest.raises(AlreadyWritten, match=said), held(tmp_path, ("store.json", "work")):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "work").mkdir()  # that of an earlier run, with notes beside it
    with held(tmp_path, ("store.json", "work")):
        pass


def test_a_folder_may_have_a_point_in_its_name(tmp_path: Path) -> None:
    with held(tmp_path / "store.v2", ("store.json",)):
        assert (tmp_path / "store.v2").is_dir()
