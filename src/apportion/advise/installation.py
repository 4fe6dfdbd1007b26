"""What is installed, what is found, what is missing and how to get it: the findings of `apportion doctor`.

Nothing heavy is loaded here: packages are looked up by their metadata, compilers are asked for their version,
and OpenCL drivers, which crash when they feel like it, are asked in a worker process with a deadline.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Any

from apportion import __version__
from apportion.errors import ApportionError, MissingPackage
from apportion.jobs import LocalRunner, cage, landlock
from apportion.jobs.processors import memory_bytes, processors
from apportion.program.toolchain import toolchain_of

PURPOSES = {
    "compile": "compiling C, C++ and OpenCL C",
    "bitcode": "reading LLVM bitcode",
    "spirv": "reading SPIR-V, by Intel's translator",
    "opencl": "running kernels on OpenCL devices",
    "intel": "running kernels on Intel's own CPU driver",
    "torch": "learning with neural networks",
    "pyg": "handing graphs to PyTorch Geometric",
    "networkx": "handing graphs to NetworkX",
    "trees": "learning with decision trees",
    "xgboost": "ranking configurations with boosted trees",
    "onnx": "exporting predictors, and answering by ONNX Runtime",
    "jax": "turning JAX functions into graphs, and tuning them",
    "triton": "measuring and tuning Triton kernels on a GPU",
    "serve": "the studio: `apportion serve`",
    "schedule": "scheduling jobs by linear programs",
    "ray": "running work on a Ray cluster",
    "frames": "exchanging counters with pandas, Hatchet and Thicket",
    "docs": "building the documentation site",
    "counters": "telling the instruction mix of programs, and counting what kernels do",
}
"What each extra is for, in words that finish the sentence 'needed for …'."

_DISTRIBUTIONS = {"sklearn": "scikit-learn", "xgboost": "xgboost-cpu", "pocl": "pocl-binary-distribution"}
"Modules whose distributions have other names."
_TOOL_SECONDS = 30.0
_DRIVER_SECONDS = 60.0
_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Package:
    """A distribution that apportion can use."""

    package: str
    extra: str | None
    "The extra that brings it; None for those that apportion cannot do without."
    version: str | None
    "None when it is not installed."

    @property
    def purpose(self) -> str:
        return "everything" if self.extra is None else PURPOSES.get(self.extra, f"the extra {self.extra!r}")


@dataclass(frozen=True)
class Compiler:
    """A C compiler on this machine, and what it says it is."""

    name: str
    command: str
    version: str | None
    problem: str | None = None


@dataclass(frozen=True)
class Missing:
    """Something that is not there, and what to type to get it."""

    what: str
    command: str
    essential: bool


def examine() -> dict[str, Any]:
    """Everything the doctor finds, as one JSON object; `healthy` unless something essential is broken."""
    found = packages()
    native_problem = _native_problem()
    cache = _cache()
    opencl = _opencl(found)
    missing = list(_missing(found, native_problem, cache["problem"], opencl))
    return {
        "apportion": {"version": __version__, "native": native_problem is None, "problem": native_problem},
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "machine": _machine(),
        "packages": [
            {"package": one.package, "version": one.version, "extra": one.extra, "purpose": one.purpose}
            for one in found
        ],
        "compilers": list(compilers()),
        "opencl": opencl,
        "confinement": _confinement(),
        "gpus": _nvidia_gpus(),
        "cache": cache,
        "missing": missing,
        "healthy": not any(one.essential for one in missing),
    }


def packages() -> list[Package]:
    """What the metadata of apportion asks for, with what is installed; those needed always come first."""
    found = []
    for requirement in metadata.requires("apportion") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra == ["']([\w-]+)["']""", requirement)
        if name is None or name[0] == "apportion" or (extra and extra[1] == "dev"):
            continue
        found.append(Package(name[0], extra[1] if extra else None, _version(name[0])))
    return found


def extra_of(module: str) -> str | None:
    """The extra that brings a module, such as `trees` for `sklearn`; None where none does."""
    wanted = _DISTRIBUTIONS.get(module, module).replace("_", "-").lower()
    return next((one.extra for one in packages() if one.package.lower() == wanted), None)


def compilers() -> Iterator[Compiler]:
    """The compilers that can be started, ours from pip first."""
    with suppress(MissingPackage):
        yield _compiler("ziglang", toolchain_of("ziglang").command)
    for name in ("clang", "gcc"):
        command = shutil.which(name)
        if command is not None:
            yield _compiler(name, [command])


def opencl_devices(_: object) -> list[dict[str, Any]]:
    """The OpenCL devices of this machine, one dict each; call it in a process that may be lost."""
    # Drivers are looked for where `apportion run` looks; the places must be set before they load.
    from apportion.runtime.drivers import DriverOptions
    from apportion.runtime.opencl.platforms import worker_environment

    os.environ.update(worker_environment(DriverOptions(pocl_instances=1)))
    import pyopencl  # here, because only the worker may load it

    bits = pyopencl.device_type  # a device may have DEFAULT set as well, and PoCL's say ALL
    kinds = {bits.CPU: "cpu", bits.GPU: "gpu", bits.ACCELERATOR: "accelerator"}
    return [
        {
            "platform": driver.name,
            "device": device.name.strip(),
            "kind": next((kind for bit, kind in kinds.items() if device.type & bit), "other"),
            "version": device.version.strip(),
            "driver": device.driver_version,
            "compute_units": device.max_compute_units,
            "memory_bytes": device.global_mem_size,
        }
        for driver in pyopencl.get_platforms()
        for device in driver.get_devices()
    ]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _native_problem() -> str | None:
    try:
        import_module("apportion._native")
    except ImportError as error:
        return str(error)
    return None


def _compiler(name: str, command: Sequence[str]) -> Compiler:
    shown = " ".join(command)
    try:
        said = _said([*command, "--version"])
    except (OSError, subprocess.SubprocessError) as error:
        return Compiler(name, shown, None, str(error))
    first_line = said.splitlines()[0] if said else ""
    return Compiler(name, shown, first_line) if first_line else Compiler(name, shown, None, "it says nothing")


def _said(command: Sequence[str]) -> str:
    """What a program prints; one that fails or takes too long raises a `SubprocessError`."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=True
    ).stdout


def _opencl(found: Sequence[Package]) -> dict[str, Any]:
    if any(one.package == "pyopencl" and one.version is None for one in found):
        return {"devices": [], "problem": "pyopencl is not installed"}
    (outcome,) = LocalRunner(workers=1, deadline_seconds=_DRIVER_SECONDS).map(opencl_devices, [None])
    return {"devices": outcome.value or [], "problem": str(outcome.error) if outcome.error else None}


def _confinement() -> dict[str, Any]:
    """What would confine kernels on this machine: tried in another process."""
    (outcome,) = LocalRunner(workers=1, deadline_seconds=_DRIVER_SECONDS, fresh=True).map(cage.tried, [None])
    return (outcome.value or cage.NONE).as_json()


def _nvidia_gpus() -> list[dict[str, Any]]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        said = _said(
            [command, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
        )
    except (OSError, subprocess.SubprocessError):  # the program without its driver: no GPU to speak of
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.count(",") == 2]
    return [
        {
            "name": name,
            "driver": driver,
            "memory_bytes": int(mebibytes) << 20 if mebibytes.isdigit() else None,
        }
        for name, driver, mebibytes in rows
    ]


def _machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "architecture": platform.machine(),
        "processors": processors(),
        "memory_bytes": memory_bytes(),
        "landlock": landlock.version(),
    }


def _cache() -> dict[str, Any]:
    # By name, because settings needs pydantic, and the doctor must be able to say that it is missing.
    try:
        folder = import_module("apportion.settings").cache_folder()
    except (ApportionError, ImportError) as error:
        return {"folder": None, "bytes": None, "files": None, "problem": str(error)}
    sizes = [path.lstat().st_size for path in folder.rglob("*") if path.is_file()]
    return {"folder": str(folder), "bytes": sum(sizes), "files": len(sizes), "problem": None}


def _missing(
    found: Sequence[Package], native_problem: str | None, cache_problem: str | None, opencl: dict[str, Any]
) -> Iterator[Missing]:
    if sys.version_info < _OLDEST_PYTHON:
        yield Missing("Python 3.11 or newer", "install it, then: make test", essential=True)
    if native_problem is not None:
        command = f"{sys.executable} -m pip install --force-reinstall --no-deps apportion"
        yield Missing(f"the native extension ({native_problem})", command, essential=True)
    if cache_problem is not None:
        yield Missing(
            f"a cache folder ({cache_problem})", "export APPORTION_CACHE=/a/folder/you/own", essential=True
        )
    absent: dict[str | None, list[str]] = {}
    for one in found:
        if one.version is None:
            absent.setdefault(one.extra, []).append(one.package)
    for extra, names in absent.items():
        wanted = "apportion" if extra is None else f"apportion[{extra}]"
        purpose = Package(names[0], extra, None).purpose
        yield Missing(
            f"{', '.join(names)}, needed for {purpose}",
            f"{sys.executable} -m pip install '{wanted}'",
            essential=extra is None,
        )
    if "opencl" not in absent and not opencl["devices"]:
        yield Missing(
            f"an OpenCL device ({opencl['problem'] or 'drivers are there, devices are not'})",
            f"{sys.executable} -m pip install --force-reinstall pocl-binary-distribution",
            essential=False,
        )
