"""The reference implementation (`programl` 0.3.2), fetched and made to run: the peer of the graph benchmark.

Its wheel carries `llvm2graph-10`, which wants `libtinfo.so.5`, a library that distributions no longer have.
It calls four functions of it, to ask whether a terminal has colours; a stand-in that says no is all it needs.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from apportion.settings import cache_folder

WHEEL = "programl==0.3.2"
TERMINAL = """
int setupterm(char *t, int f, int *e) { (void)t; (void)f; if (e) *e = 0; return -1; }
void *set_curterm(void *t) { (void)t; return 0; }
int del_curterm(void *t) { (void)t; return 0; }
int tigetnum(char *c) { (void)c; return -1; }
"""
VERSIONS = "NCURSES_TINFO_5.0.19991023 { setupterm; set_curterm; del_curterm; tigetnum; };"


def llvm2graph() -> Path | None:
    """The reference's `llvm2graph-10`, ready to run; None where it cannot be had."""
    folder = cache_folder("reference")
    binary = folder / "llvm2graph-10"
    if not binary.exists() and not _fetched(folder):
        return None
    answer = subprocess.run([binary, "-"], input=b"declare void @f()", capture_output=True, check=False)
    return binary if answer.returncode == 0 else None


def _fetched(folder: Path) -> bool:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    if subprocess.run(pip, capture_output=True, check=False).returncode != 0:
        return False
    wheel = next(folder.glob("programl-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            name = member.rsplit("/", 1)[-1]
            if name in ("llvm2graph-10", "libLLVMPolly.so.10.0.0"):
                (folder / name).write_bytes(archive.read(member))
                (folder / name).chmod(0o755)
    wheel.unlink()
    (folder / "terminal.c").write_text(TERMINAL)
    (folder / "terminal.map").write_text(VERSIONS)
    compiler = ["cc", "-shared", "-fPIC", "-o", "libtinfo.so.5", "terminal.c"]
    link = ["-Wl,-soname,libtinfo.so.5", "-Wl,--version-script=terminal.map"]
    return subprocess.run([*compiler, *link], cwd=folder, check=False).returncode == 0
