"""The wheel, installed where no checkout is near: every verb answers, and the everyday ones do one real thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from apportion.cli import COMMANDS

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("opencl")

SAXPY = """
kernel void saxpy(const float a, global const float *x, global float *y, const int n)
{
    const int i = get_global_id(0);
    if (i < n)
        y[i] += a * x[i];
}
"""

TUNED = """
import apportion

def add(*, step):
    return sum(range(0, 20_000, step))

tunable = apportion.Tunable(add, {"step": (1, 2, 4, 8, 16, 32)})
"""

PROFILE = {
    "name": "mine",
    "counters": {
        "total_instruction_count": 1e8,
        "total_memory_footprint": 1e6,
        "workitems": 1e6,
        "barriers_per_instruction": 0.0,
        "branch_entropy_yokota": 0.2,
        "branch_entropy_average_linear": 0.1,
        "global_memory_address_entropy": 20.0,
        "local_memory_address_entropy_10": 10.0,
    },
}


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and a folder to work in."""

    python: Path
    package: Path
    work: Path
    variables: dict[str, str]

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.work, env=self.variables, capture_output=True, text=True, check=False
        )

    def apportion(self, *words: str) -> str:
        """What a verb prints; its exit status is 0."""
        done = self.run(self.python.parent / "apportion", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self) -> dict[str, tuple[int, int]]:
        """Each file of the installed package, with its size and when it was written."""
        return {
            str(path.relative_to(self.package)): (path.stat().st_size, path.stat().st_mtime_ns)
            for path in sorted(self.package.rglob("*"))
            if path.is_file()
        }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout; what was compiled stays in build/, so that the second time is quick."""
    folder = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "--quiet",
        "--disable-pip-version-check", "--wheel-dir", folder, "-C", f"build-dir={ROOT / 'build' / 'wheel'}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment that has nothing else of ours; other packages are those of this one."""
    home = tmp_path_factory.mktemp("home")
    environment = home / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index",
         "--disable-pip-version-check", wheel],
        check=True,
    )  # fmt: skip
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    # A .pth file appends folders without reading the .pth files in them, so no editable install comes along.
    others = [path for path in sys.path if path.endswith("-packages")]
    (site / "others.pth").write_text("\n".join(others) + "\n")
    variables = {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    work = home / "work"
    work.mkdir()
    (work / "saxpy.cl").write_text(SAXPY)
    (work / "tuned.py").write_text(TUNED)
    (work / "profile.json").write_text(json.dumps(PROFILE))
    return Installed(python, site / "apportion", work, variables)


def test_the_wheel_holds_the_product_alone(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    tops = {name.partition("/")[0] for name in names}
    assert {top.partition("-")[0] for top in tops} == {"apportion"}
    assert "apportion/py.typed" in names
    assert "apportion/_native.pyi" in names
    ours = "apportion/program/cuda_headers/"  # CUDA sources are compiled with them
    extra = [name for name in names if not name.startswith(ours)]
    assert not [name for name in extra if "/tests/" in name or name.endswith((".pyc", ".cpp", ".h"))]
    assert wheel.stat().st_size < 20e6
    assert sum(sizes.values()) < 60e6


def test_the_installed_package_is_the_one_that_runs(installed: Installed):
    done = installed.run(installed.python, "-c", "import apportion; print(apportion.__file__)")
    assert done.stdout == f"{installed.package}/__init__.py\n", done.stderr


HELP = """
import contextlib, io, json, sys
from cyclopts import App
from apportion.cli import COMMANDS, app, main

blocked = set(json.loads(sys.argv[1]))

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
problems = []

def ask(*words):
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([*words, "--help"])
        status = 0
    except SystemExit as left:
        status = left.code or 0
    except BaseException as error:
        status = repr(error)
    if status or "Usage: apportion" not in out.getvalue():
        problems.append([" ".join(words), str(status), err.getvalue()[-300:]])

def ask_all(served, *words):
    global asked
    asked += 1
    ask(*words)
    for name in served:
        if not name.startswith("-"):
            ask_all(served[name], *words, name)

asked = 0
ask()
for verb in COMMANDS:
    ask_all(app[verb], verb)
print(json.dumps([asked, problems]))
"""

DECLARED = """
import json, re, sys
from importlib.metadata import distribution, packages_distributions, PackageNotFoundError

def name_of(text): return re.sub(r"[-_.]+", "-", re.match(r"[\\w.-]+", text).group()).lower()

needed, waiting = set(), ["apportion"]
while waiting:
    name = waiting.pop()
    if name in needed: continue
    needed.add(name)
    try: wanted = distribution(name).requires or []
    except PackageNotFoundError: continue
    waiting += [name_of(one) for one in wanted if "extra ==" not in one]
owners = packages_distributions()
print(json.dumps(sorted(
    module for module, names in owners.items()
    if module not in sys.stdlib_module_names and not {name_of(one) for one in names} & needed
)))
"""


def test_every_verb_answers_help_with_the_declared_dependencies_alone(installed: Installed):
    undeclared = installed.run(installed.python, "-c", DECLARED)
    blocked = json.loads(undeclared.stdout)
    assert {"torch", "pyopencl", "sklearn", "pytest"} <= set(blocked)
    assert not {"numpy", "polars", "cyclopts", "rich", "pydantic", "safetensors"} & set(blocked)
    done = installed.run(installed.python, "-c", HELP, undeclared.stdout)
    assert done.returncode == 0, done.stderr
    asked, problems = json.loads(done.stdout.splitlines()[-1])
    assert problems == []
    assert asked > 2 * len(COMMANDS)  # verbs of verbs, too, at any depth


def test_completion_is_installed_with_the_declared_dependencies_alone(installed: Installed):
    blocked = installed.run(installed.python, "-c", DECLARED).stdout
    program = HELP.partition("problems =")[0] + "main(['--install-completion', '--shell', 'bash'])"
    done = installed.run(installed.python, "-c", program, blocked)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


# One real use each of the everyday verbs, and a word that its answer holds.
USES = {
    "graph": (("graph", "saxpy.cl", "--json"), '"nodes"'),
    "analyze": (("analyze", "saxpy.cl", "--analysis", "reachability", "--roots", "sample:1", "--json"), '"runs"'),
    "predict": (("predict", "saxpy.cl", "--local-size", "64", "--bytes", "1048576", "--json"), '"cpu_share"'),
    "explain": (("explain", "saxpy.cl", "--local-size", "64", "--bytes", "1048576", "--json"), '"instructions"'),
    "run": (("run", "saxpy.cl", "-n", "65536", "--json"), '"verified": true'),
    "measure": (
        ("measure", "saxpy.cl", "--out", "measured", "--sizes", "4096", "--local-sizes", "64", "--budget", "5", "--json"),
        '"seconds"',
    ),
    "counters": (("counters", "kernel", "saxpy.cl", "-n", "1024", "--json"), '"total_instruction_count"'),
    "relative": (("relative", "predict", "profile.json", "--json"), '"order"'),
    "rank": (("rank", "tune", "tuned.py:tunable", "--budget", "6", "--json"), '"step"'),
    "doctor": (("doctor", "--json"), '"packages"'),
    "demo": (("demo", "--out", "demo", "--json"), '"report": "demo/report.html"'),
}  # fmt: skip


@pytest.mark.parametrize("verb", USES)
def test_a_verb_does_one_real_thing_and_leaves_the_package_as_it_was(installed: Installed, verb: str):
    assert verb in COMMANDS
    before = installed.files()
    words, expected = USES[verb]
    assert expected in installed.apportion(*words)
    assert installed.files() == before


def test_the_public_names_work_without_the_checkout(installed: Installed):
    program = ROOT / "tests" / "consumer" / "program.py"
    (installed.work / "program.py").write_text(program.read_text())
    done = installed.run(installed.python, "program.py")
    assert done.returncode == 0, done.stderr


def test_no_default_points_into_a_checkout():
    suspects = []
    for path in sorted((ROOT / "src" / "apportion").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line.partition("#")[0]
            if "__file__" in text and ("parents[" in text or ".parent.parent" in text):
                suspects.append(f"{path.relative_to(ROOT)}:{number}")
            if any(f'Path("{folder}' in text for folder in ("docs", "experiments", "tests", "src", "tools")):
                suspects.append(f"{path.relative_to(ROOT)}:{number}")
    assert suspects == []
