"""Closed and full outputs, and requests to end: one line, whole results, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from apportion.program.corpus import graphs  # noqa: F401 - what `graph` needs is installed

SH = "/bin/sh"
PROGRAM = "define i32 @f(i32 %a) {\n  %b = add i32 %a, 1\n  ret i32 %b\n}\n"


def shell(command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"APPORTION": f"{sys.executable} -m apportion.cli"} | settings
    return subprocess.run(
        [SH, "-c", command], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


START = f'{sys.executable} -c "from apportion.cli import main; main()"'


def test_a_full_output_is_told_in_one_line() -> None:
    done = shell(f"{START} data list > /dev/full")
    assert (done.returncode, done.stderr) == (1, "apportion: No space left on device\n")


def test_a_closed_output_is_no_traceback_and_no_file_is_written_into_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "f.ll").write_text(PROGRAM)
    whole = shell(f"cd {tmp_path} && {START} graph f.ll --out whole.parquet")
    assert whole.returncode == 0, whole.stderr
    for closing in ("2>&-", "<&- >&- 2>&-"):
        done = shell(f"cd {tmp_path} && rm -f out.parquet; {START} graph f.ll --out out.parquet {closing}")
        assert "Traceback" not in done.stderr
        assert done.returncode == 0
        assert len((tmp_path / "out.parquet").read_bytes()) == len((tmp_path / "whole.parquet").read_bytes())


def test_an_output_that_nobody_reads_any_more_ends_it_quietly() -> None:
    done = shell(f"({START} data list; echo $? >&2) | true")
    assert done.stderr in ("141\n", "1\n", "0\n")  # tables are printed by rich, which leaves with 1


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "f.ll").write_text(PROGRAM)
    done = shell(f"cd {tmp_path} && {START} graph f.ll --out /proc/nothing.parquet")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("apportion: ")


@pytest.mark.parametrize("module", ["cyclopts", "apportion.errors"])
def test_an_interruption_while_modules_load_is_one_line(module: str) -> None:
    interrupting = (
        "import os, runpy, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['apportion', 'data', 'list']\n"
        "runpy.run_module('apportion', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", interrupting], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "apportion: interrupted before anything was begun\n"


def test_the_command_that_is_installed_starts_where_interruptions_are_told_in_one_line() -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["apportion"] == "apportion.__main__:main"


@pytest.mark.xdist_group("opencl")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_request_to_end_ends_the_workers_too_and_leaves_nothing_half_done(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    kernel = "kernel void k(global int *a) { volatile int on = 1; while (on) {} a[0] = 1; }"
    (tmp_path / "k.cl").write_text(kernel)
    command = [sys.executable, "-c", "from apportion.cli import main; main()"]
    command += ["measure", "k.cl", "--out", "out", "--pocl-instances", "1", "--threads", "1"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        workers: list[str] = []
        end = time.monotonic() + 60
        while not workers and time.monotonic() < end:
            time.sleep(0.2)
            workers = children_of(process.pid)
        time.sleep(1)
        process.send_signal(number)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == status
    assert "Traceback" not in said
    assert workers
    end = time.monotonic() + 5
    while any(Path("/proc", worker, "cmdline").exists() for worker in workers) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [worker for worker in workers if Path("/proc", worker, "cmdline").exists()]
    assert [path.name for path in tmp_path.rglob("*") if path.name.endswith((".part", ".lock"))] == []


def children_of(parent: int) -> list[str]:
    """Processes that this one started, and that these started."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found += [path.parent.name, *children_of(int(path.parent.name))]
        except (OSError, ValueError, IndexError):
            continue
    return found
