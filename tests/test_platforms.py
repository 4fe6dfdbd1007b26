"""What is portable works where Linux's modules and calls are missing, and the rest says so in one line.

There is no macOS and no Windows here: a child process loses what those systems lack (modules, functions of
`os` and `signal`, the C library by no name), imports everything and runs real verbs. It keeps `SIGKILL`,
with which this system's own `subprocess` ends processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import asyncio, ctypes, getpass, importlib, json, multiprocessing.pool, multiprocessing.resource_tracker
import multiprocessing.popen_spawn_posix, concurrent.futures.process, os, pkgutil, shutil, signal, subprocess
import sys, sysconfig, tarfile, tempfile, urllib.request, uuid, zipfile
import cyclopts, numpy, polars, pydantic, rich.console, rich.live, rich.progress, safetensors
for package in ("fastapi", "uvicorn", "uvicorn.protocols.http.httptools_impl", "scipy.optimize",
                "sklearn.ensemble", "llvmlite.binding", "ziglang", "onnxruntime", "pyopencl"):
    try:
        importlib.import_module(package)
    except ImportError:
        pass
sysconfig.get_config_vars()

GONE = {
    "darwin": ([], ["sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "memfd_create",
                    "pidfd_open", "eventfd"], []),
    "win32": (["fcntl", "resource", "termios", "pwd", "grp", "pty", "tty"],
              ["sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "memfd_create", "pidfd_open",
               "eventfd", "fork", "setsid", "killpg", "getuid", "geteuid", "waitid", "sysconf", "getloadavg",
               "register_at_fork", "mkfifo", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "pread", "pwrite", "fchmod",
               "uname", "getpgid"],
              ["SIGXCPU", "SIGXFSZ", "SIGUSR1", "SIGHUP", "SIGALRM", "alarm", "pthread_sigmask"]),
}
modules, calls, signals = GONE[sys.argv[1]]

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {*modules, "torch", "triton", "ray", "jax"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in modules:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refuse())
for name in calls:
    if hasattr(os, name):
        delattr(os, name)
for name in signals:
    delattr(signal, name)
if sys.argv[1] == "win32":
    class Library(ctypes.CDLL):
        def __init__(self, name, *rest, **more):
            if name is None:
                raise TypeError("bad argument type for built-in operation")
            super().__init__(name, *rest, **more)
    ctypes.CDLL = Library
sys.platform = sys.argv[1]
"""

IMPORTS = """
import apportion
LINUX_ALONE = {
    "apportion.jobs.caged", "apportion.measure.counters.perfevents", "apportion.measure.counters.watched",
    "apportion._qemu_blocks",
}
wrong = []
for found in pkgutil.walk_packages(apportion.__path__, "apportion."):
    if found.name.endswith("__main__") or ".testing" in found.name or found.name in LINUX_ALONE:
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torch", "triton", "ray", "jax", "torch_geometric"):
            wrong.append([found.name, str(error)])
    except Exception as error:
        wrong.append([found.name, repr(error)])
"""

VERBS = """
import contextlib, io
from apportion.cli import main

said = {}
for name, words in json.loads(sys.argv[2]).items():
    out, err = io.StringIO(), io.StringIO()
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as left:
            status = left.code or 0
        except BaseException as error:
            status = repr(error)
    said[name] = [status, out.getvalue(), err.getvalue()]
"""

SERVED = """
import threading, time
from apportion.serve import server
from apportion.serve.service_settings import ServiceSettings

settings = ServiceSettings(port=0, token="a-token-for-the-test", folder=__import__("pathlib").Path("jobs"))
listening = server.bound(settings)
port = listening.getsockname()[1]
service = server.server_of(settings.__class__(**{**vars(settings), "port": port}))
# uvicorn asks for Windows' own event loop by the platform's name
thread = threading.Thread(target=lambda: asyncio.run(service.serve([listening])))
thread.start()
form = json.dumps({"source": {"text": json.loads(sys.argv[3]), "language": "opencl", "name": "k.cl"},
                   "local_size": 64, "bytes": 1048576}).encode()

def answer(address, body=None):
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{address}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=120) as response:
        return response.status, response.read().decode()

page, predicted = answer("/"), answer("/api/predict", form)
service.should_exit = True
thread.join()
print(json.dumps({"wrong": wrong, "said": said, "page": page, "predicted": predicted}))
"""

SAXPY = """
kernel void saxpy(const float a, global const float *x, global float *y) {
    y[get_global_id(0)] += a * x[get_global_id(0)];
}
"""
TUNED = """
import apportion

def add(*, step):
    return sum(range(0, 2000, step))

tunable = apportion.Tunable(add, {"step": (1, 2, 4, 8)})
"""
WORDS = {
    "predict": ["predict", "saxpy.cl", "--local-size", "64", "--bytes", "1048576", "--json"],
    "graph": ["graph", "saxpy.cl", "--json"],
    "wrong": ["graph", "wrong.cl"],
    "endless": ["graph", "saxpy.cl", "-D", "saxpy=endless", "--seconds", "0.001"],
    "tune": ["tune", "tuned.py:tunable", "--budget", "4", "--json"],
    "simulate": [
        "schedule",
        "simulate",
        "--format",
        "synthetic",
        "--systems",
        "a=2",
        "b=2",
        "--jobs",
        "50",
        "--json",
    ],
    "run": ["run", "saxpy.cl", "-n", "1024"],
}


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_what_is_portable_works_and_the_rest_is_refused_in_one_line(platform: str, tmp_path: Path):
    pytest.importorskip("ziglang")
    pytest.importorskip("pyopencl")
    pytest.importorskip("uvicorn")
    (tmp_path / "saxpy.cl").write_text(SAXPY)
    (tmp_path / "wrong.cl").write_text("kernel void wrong(global float *x) { x[0] = y; }")
    (tmp_path / "tuned.py").write_text(TUNED)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + IMPORTS + VERBS + SERVED, platform, json.dumps(WORDS), json.dumps(SAXPY)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []  # every module that is not for Linux alone can be imported
    said = found["said"]
    for verb in ("predict", "graph", "tune", "simulate"):
        assert said[verb][0] == 0, said[verb]
    assert 0 <= json.loads(said["predict"][1])["cpu_share"] <= 1
    assert json.loads(said["graph"][1])["nodes"]
    assert '"step"' in said["tune"][1]
    assert found["page"][0] == 200
    assert "<title>" in found["page"][1]
    assert found["predicted"][0] == 200
    assert 0 <= json.loads(found["predicted"][1])["cpu_share"] <= 1
    assert said["wrong"][0] == 1
    assert said["wrong"][2].startswith("apportion: wrong.cl:1:")
    assert said["endless"][0] == 1
    assert said["endless"][2].startswith("apportion: Compiling saxpy.cl took longer than 0.001 seconds.")
    assert said["run"][0] == 1
    assert said["run"][2].splitlines()[-1] == (
        f"apportion: Kernels run on Linux alone, where their process can be confined; this is {platform}. "
        "Graphs, predictions, tuning of commands and simulated schedules work here"
    )
