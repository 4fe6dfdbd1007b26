"""What every test has: a cache of its own, third-party data where it is there, and steady Hypothesis."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from apportion.data.counter_table import AIWC, CounterTable, Row, System
from apportion.data.dataflow import LabelSettings, build
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.opencl.worker import Worker

# No deadline: a busy machine is no bug. In CI the examples are always the same: a failure is the change's.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder of this test run, in place of the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APPORTION_CACHE", str(folder))
        patch.setenv("APPORTION_HOME", str(tmp_path_factory.mktemp("kept")))
        yield folder


@pytest.fixture(autouse=True)
def no_known_devices(cache: Path) -> None:
    """A prediction answers for the devices that were found last: a test must not depend on an earlier one's."""
    shutil.rmtree(cache / "devices", ignore_errors=True)


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run side by side inherit a COLUMNS from their runner, which would fold the tables they read."""
    monkeypatch.delenv("COLUMNS", raising=False)


Installer = Callable[[Mapping[str, str], str], None]


def packaged(folder: Path, name: str, files: Mapping[str, str], entry_points: str) -> None:
    """Put files and their entry points into a folder, where an installed package would have them."""
    for path, text in files.items():
        (folder / path).write_text(text)
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installer]:
    """Install a package of files with entry points for one test: its modules are nobody's before and after."""
    added: set[str] = set()

    def forget() -> None:
        for module in added:
            sys.modules.pop(module, None)

    def install(files: Mapping[str, str], entry_points: str) -> None:
        added.update(Path(path).stem for path in files if path.endswith(".py"))
        forget()
        packaged(tmp_path, "installed", files, entry_points)
        monkeypatch.syspath_prepend(tmp_path)

    yield install
    forget()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party data beside the checkout; it is never copied into it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"third-party data is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def timed_runs() -> CounterTable:
    """Made-up runs with AIWC's counters, timed four times on four systems: 6 applications, 2 kernels, 2 sizes.

    The CPUs' times follow the work, the GPUs' the work for each item after a launch; noise is a percent.
    """
    random = np.random.default_rng(7)
    rows: list[Row] = []
    for application in range(6):
        for kernel in range(2):
            steps = 2 ** random.uniform(4, 16)
            for size, items in (
                ("small", 2 ** random.uniform(6, 10)),
                ("large", 2 ** random.uniform(12, 18)),
            ):
                program = f"app{application}"
                identity = (f"{program}/k{kernel}/{size}", program, f"k{kernel}", size)
                work = steps * items
                counters = {name: float(random.uniform(1, 5)) for name in AIWC} | {
                    "total_instruction_count": work, "workitems": items, "total_memory_footprint": items * 8,
                }  # fmt: skip
                rows += [
                    Row(*identity, "", 0, name, value, "aiwc", "exact") for name, value in counters.items()
                ]
                seconds = {
                    "slow-cpu": work / 1e9, "quick-cpu": work / 4e9,
                    "old-gpu": 4e-4 + work / 2e10 + steps / 4e7, "new-gpu": 1e-4 + work / 1e11 + steps / 2e7,
                }  # fmt: skip
                for system, time in seconds.items():
                    for repeat in range(4):
                        noisy = time * (1 + 0.01 * random.standard_normal())
                        rows.append(Row(*identity, system, repeat, "seconds", noisy, "clock", "exact"))
    systems = [System(name, name[-3:]) for name in ("slow-cpu", "quick-cpu", "old-gpu", "new-gpu")]
    return CounterTable.of(rows, systems)


@pytest.fixture(scope="session")
def backend() -> Iterator[OpenCLBackend]:
    """Three independent PoCL devices, the third of which copies arrays as a discrete device does."""
    pytest.importorskip("pyopencl")
    options = DriverOptions(pocl_instances=3, threads=1, vendors=False, copying=("cpu3",))
    with OpenCLBackend(options, Limits(seconds=20)) as started:
        yield started


@pytest.fixture(scope="session")
def worker(backend: OpenCLBackend) -> Worker:
    """The process behind these devices."""
    return backend.worker


EXPERIMENT = """
task = "reachability"
data = "{data}"
device = "cpu"
node_budget = 400

[hyperparameters]
width = 6
steps = 3

[optimisation]
learning_rate = 1e-2
max_steps = 30
validate_every = 10
"""


def program(number: int) -> str:
    """A function with some additions, a branch and two returns."""
    additions = [f"  %v{i + 1} = add i32 %v{i}, {number + i}" for i in range(3 + number)]
    return "\n".join([
        f"define i32 @f{number}(i32 %v0) {{", *additions, f"  %c = icmp eq i32 %v{number}, 0",
        "  br i1 %c, label %x, label %y", "x:", "  ret i32 %v0", "y:", f"  ret i32 %v{1 + number}", "}", "",
    ])  # fmt: skip


@pytest.fixture(scope="session")
def dataflow_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store of fifteen programs."""
    folder = tmp_path_factory.mktemp("store")
    programs = folder / "programs"
    programs.mkdir()
    for number in range(15):
        (programs / f"program{number}.ll").write_text(program(number))
    return build([programs], folder / "built", LabelSettings()).folder


@pytest.fixture
def experiment_file(dataflow_store: Path, tmp_path: Path) -> Path:
    """A TOML file."""
    path = tmp_path / "small.toml"
    path.write_text(EXPERIMENT.format(data=dataflow_store))
    return path
