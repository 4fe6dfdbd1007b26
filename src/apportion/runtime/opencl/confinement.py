"""What OpenCL drivers need of a machine: the cage of a worker process, and its environment.

PoCL links each kernel with the system's linker, so that `ld` is the one program that a worker may start.
NVIDIA's, AMD's and Intel's GPU drivers work through device files; those stay open where they are there, and
with them what these drivers do in the kernel of the system.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

import apportion
from apportion.jobs.cage import Cage
from apportion.settings import cache_folder

_READABLE = (
    # Libraries, and what loads them.
    "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local/lib",
    "/usr/local/lib64", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/opt/intel",
    "/opt/rocm", "/usr/local/cuda", "/usr/local/nvidia", "/usr/wsl", "/usr/lib/wsl",
    # Settings of drivers, of the C library, and of OpenSSL, which Python's hashes load.
    "/etc/OpenCL", "/etc/nvidia", "/usr/share/nvidia", "/usr/share/pocl", "/usr/share/locale",
    "/usr/share/zoneinfo", "/etc/localtime", "/etc/os-release", "/etc/ssl/openssl.cnf", "/etc/debian_version",
    # The machine: processors, memory, cards. Of processes, only the worker's own.
    "/sys", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/devices", "/proc/modules",
    "/proc/mounts", "/proc/cmdline", "/proc/version", "/proc/filesystems", "/proc/sys/vm",
    "/proc/driver/nvidia", "/proc/sys/kernel/osrelease",
    "/dev/urandom", "/dev/random",
)  # fmt: skip
_ALWAYS_OPEN = ("/dev/null", "/dev/zero", "/dev/full")
_CARDS = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri/*", "/dev/kfd", "/dev/dxg")
"Device files of GPUs."
_LINKERS = ("ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold")

_VARIABLES = re.compile(
    r"LANG|LC_\w+|TZ|LD_LIBRARY_PATH|PYTHON(PATH|HOME|NOUSERSITE|WARNINGS|HASHSEED|DONTWRITEBYTECODE|MALLOC)"
    r"|(APPORTION|OCL|OPENCL|POCL|PYOPENCL|CL|CUDA|NVIDIA|NV|AMD|GPU|HSA|HIP|ROC|ROCR|ROCM|ZE|ZET|ONEAPI|SYCL|IGC|NEO"
    r"|DPCPP|TBB|TCM|OMP|KMP|GOMP|OPENBLAS|MKL|LIBOCL|LLVM|COVERAGE)_\w+"
)
"What a worker sees of this process' environment."


def variables(environment: Mapping[str, str], scratch: str) -> dict[str, str]:
    """The environment of a worker: what drivers read, and nothing else of what this process has."""
    kept = {name: value for name, value in environment.items() if _VARIABLES.fullmatch(name)}
    root = os.path.join(scratch, "root")
    os.mkdir(root)
    for name in ("proc", "sys"):
        os.symlink(f"/{name}", os.path.join(root, name))
    return kept | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "CUDA_CACHE_PATH": environment.get("CUDA_CACHE_PATH") or str(cache_folder("cuda")),
        # hwloc opens the root of the files that it reads, and must not open the whole machine's.
        "HWLOC_FSROOT": root,
        "HWLOC_THISSYSTEM": "1",
        # Threads that multiply matrices are of no use here, and would be there before the cage is.
        "OPENBLAS_NUM_THREADS": "1",
    }


def cage_of(
    environment: Mapping[str, str],
    scratch: str,
    *,
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
    memory_bytes: int | None = None,
) -> Cage:
    """The cage of a worker that has this environment.

    Args:
        scratch: a folder of its own.
        readable: folders of headers.
        writable: folders in which it keeps binaries.
        memory_bytes: what it may have of memory; not held against workers with a GPU, whose drivers ask for
            more address space than there is memory.
    """
    cards = sorted(path for pattern in _CARDS for path in glob.glob(pattern))
    kept = [environment["POCL_CACHE_DIR"], environment["CUDA_CACHE_PATH"], scratch, *writable]
    if any("nvidia" in card for card in cards):
        kept.append("/dev/shm")  # CUDA puts a file there for every process
    for folder in kept:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Cage(
        readable=tuple(dict.fromkeys([*_READABLE, *_python(), *_libraries(environment), *readable])),
        writable=tuple(dict.fromkeys(kept)),
        programs=_linkers(environment["PATH"]),
        devices=(*_ALWAYS_OPEN, *cards),
        private_bytes=None if cards or memory_bytes is None else memory_bytes,
    )


def header_folders(options: str) -> list[str]:
    """The folders that a driver's options name for headers."""
    return [word[2:] for word in options.split() if word.startswith("-I/")]


def _python() -> list[str]:
    """Where Python and its packages lie."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    base = [f"{place}/lib" for place in (sys.base_prefix, sys.base_exec_prefix, sys.exec_prefix)]
    found = [
        *installed,
        *base,
        f"{sys.prefix}/pyvenv.cfg",
        *sys.path,
        os.path.dirname(os.path.dirname(apportion.__file__)),
    ]
    home = os.path.expanduser("~")
    # Where a script lies that was started by its name is on the path too; that may be all of a user's files.
    return [
        path
        for path in found
        if os.path.isabs(path)
        and not home.startswith(os.path.join(path, ""))
        and path not in (home, os.getcwd())
    ]


def _libraries(environment: Mapping[str, str]) -> list[str]:
    """Folders of the drivers that the environment names, links followed."""
    folders = [path for path in environment.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(path)]
    vendors = Path(environment.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    files = [vendors] if vendors.suffix == ".icd" else sorted(vendors.glob("*.icd"))
    for file in files:
        library = file.read_text().strip()
        if os.path.isabs(library):
            folders += [os.path.dirname(library), os.path.dirname(os.path.realpath(library))]
    return [*folders, str(vendors), str(cache_folder("drivers"))]


def _linkers(path: str) -> tuple[str, ...]:
    """The linkers of this machine, and what loads them: a program needs its loader to be executable too."""
    found = [place for name in _LINKERS if (place := shutil.which(name, path=path)) is not None]
    loaders = [
        *glob.glob("/lib64/ld-linux-*.so.*"),
        *glob.glob("/lib/ld-linux-*.so.*"),
        *glob.glob("/lib/ld-musl-*"),
    ]
    return tuple(dict.fromkeys(os.path.realpath(place) for place in [*found, *loaders] if found))
