"""On a machine that cannot confine all of what a kernel reaches for, a run says so, or is refused."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyopencl")
pytestmark = [
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or platform.machine() != "x86_64",
        reason="a kernel of the system without Landlock is made by system calls of x86-64",
    ),
    pytest.mark.xdist_group("opencl"),
]
_KERNEL = "kernel void f(global float *x) { x[get_global_id(0)] = 1; }"
_WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
lines = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
kept = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
described = struct.pack("@HP", len(lines), ctypes.addressof(kept))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, described, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-c", "from apportion.cli import main; main()", *sys.argv[1:]])
"""
"From here on the system knows no landlock_create_ruleset, as before Linux 5.13."


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "f.cl").write_text(_KERNEL)
    command = [sys.executable, "-c", _WITHOUT_LANDLOCK, "run", "f.cl", "-n", "1024", "--json", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_run_without_landlock_says_what_is_missing(tmp_path: Path):
    done = _run(tmp_path)
    assert done.returncode == 0, done.stderr
    confinement = json.loads(done.stdout.splitlines()[-1])["confinement"]
    assert confinement["missing"] == ["files"]
    assert not confinement["whole"]


def test_a_run_that_requires_confinement_is_refused_without_landlock(tmp_path: Path):
    done = _run(tmp_path, "--require-confinement")
    assert done.returncode == 1
    assert done.stderr.count("apportion: ") == 1
    assert "Kernels would run without limits on files" in done.stderr
    assert done.stdout == ""
