"""Which OpenCL drivers a worker process sees: those of the system, PoCL from pip, more PoCL instances,
Intel's.

An OpenCL loader finds drivers through a folder of `.icd` files, each naming a library. The folder made here
holds those of the system, drivers whose library is there although nobody registered it, Intel's CPU runtime
from pip (its own file names a path that does not exist), and copies of PoCL.

A second PoCL is a copy of the library under another SONAME: with the name unchanged the dynamic linker hands
out the instance it already has. Sub-devices and `POCL_DEVICES` are no substitute, since they share one pool
of threads (docs/decisions/0004-co-execution.md). The copy also reads its own environment variables, so that
each instance can have its own number of threads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from apportion.errors import MissingPackage, UnreadableFile
from apportion.jobs.processors import processors
from apportion.runtime import memory
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.opencl.processor import renamed, replacement_for
from apportion.settings import cache_folder, replace_file

_OWN_VARIABLES = (b"POCL_MAX_PTHREAD_COUNT", b"POCL_AFFINITY")
"Environment variables that a copy of PoCL reads under another name: the last letter becomes its number."

_UNREGISTERED = (
    "/usr/lib/x86_64-linux-gnu/libnvidia-opencl.so.1", "/usr/lib64/libnvidia-opencl.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-opencl.so.1", "/usr/lib/libnvidia-opencl.so.1",
    "/usr/local/nvidia/lib64/libnvidia-opencl.so.1", "/usr/local/cuda/compat/libnvidia-opencl.so.1",
    "/usr/lib/wsl/lib/libnvidia-opencl.so.1", "/opt/rocm/lib/libamdocl64.so",
    "/opt/rocm/opencl/lib/libamdocl64.so",
    "/usr/lib/x86_64-linux-gnu/intel-opencl/libigdrcl.so", "/usr/lib64/intel-opencl/libigdrcl.so",
)  # fmt: skip
"Drivers that containers often bring without an `.icd` file."


def worker_environment(options: DriverOptions = DEFAULT_DRIVERS) -> dict[str, str]:
    """The environment of a worker process: it is read when the drivers load, so it must be set before.

    Raises:
        MissingPackage: pyopencl is not installed.
    """
    if find_spec("pyopencl") is None:
        raise MissingPackage("pyopencl", "opencl", "Running kernels")
    libraries = vendor_libraries(os.environ) if options.vendors else []
    others = [library for library in libraries if "libpocl" not in library]
    instances = options.pocl_instances or (1 if others else 2)
    if instances > 1:  # copies of the wheel's PoCL; another PoCL beside them would be one more device
        libraries = others
    wheel = pocl_library()
    # Where the wheel's PoCL does not know the processor, the first instance is a copy too.
    name = replacement_for(wheel) if wheel is not None else None
    copies = range(1 if name else 2, instances + 1)
    if wheel is not None:
        libraries += [str(pocl_copy(wheel, number, name)) for number in copies]
    intel = next((Path(library) for library in libraries if "libintelocl" in library), None)
    # Devices that run on the same processors share them, or each would wait for the other.
    threads = options.threads or max(1, processors() // (instances + (intel is not None)))
    environment = {name: value for name, value in os.environ.items() if name != "OCL_ICD_FILENAMES"}
    environment |= {
        "OCL_ICD_VENDORS": str(_icd_folder(libraries)),
        "PYOPENCL_NO_CACHE": "1",  # the drivers cache binaries themselves, and check their own versions
        "POCL_CACHE_DIR": str(cache_folder("pocl")),
        # Else every kernel is compiled once more for launches with an offset, which all parts but the first
        # have.
        "POCL_WORK_GROUP_SPECIALIZATION": "0",
        "POCL_MAX_PTHREAD_COUNT": str(threads),
        "APPORTION_GUARDS": memory.SEED,
        "APPORTION_COPYING": ",".join(options.copying),
        "APPORTION_POCL_INSTANCES": str(instances),
        # Intel's runtime on the CPU.
        "CL_CONFIG_CPU_TBB_NUM_WORKERS": str(threads),
        "DPCPP_CPU_NUM_CUS": str(threads),
    }
    for number in copies:
        environment[f"POCL_MAX_PTHREAD_COUN{number}"] = str(threads)
    if intel is not None and (runtime := _installed("intel-cmplr-lib-rt", "libsvml.so")) is not None:
        # The runtime's own libraries come in another package, which may lie in another place.
        known = environment.get("LD_LIBRARY_PATH", "")
        environment["LD_LIBRARY_PATH"] = ":".join(
            filter(None, (known, str(runtime.parent), str(intel.parent)))
        )
    return environment


def vendor_libraries(environment: Mapping[str, str]) -> list[str]:
    """The drivers of this machine, each once: registered ones, unregistered ones, Intel's from pip."""
    named = environment.get("OCL_ICD_FILENAMES", "").split(":")
    found: list[str] = []
    for library in (*registered_libraries(environment), *named, *_UNREGISTERED, str(intel_library() or "")):
        # A path that is not there is Intel's placeholder, or a driver that was removed.
        there = library and ("/" not in library or Path(library).exists())
        if there and _stem(library) not in map(_stem, found) and "pyopencl/.libs" not in library:
            found.append(library)
    return found


def registered_libraries(environment: Mapping[str, str]) -> list[str]:
    """What the system's `.icd` files (or those of `OCL_ICD_VENDORS`) name."""
    place = Path(environment.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    files = [place] if place.suffix == ".icd" else sorted(place.glob("*.icd"))
    found = []
    for file in files:
        with suppress(OSError):
            found.append(file.read_text().strip())
    return found


def pocl_library() -> Path | None:
    """PoCL as pip installs it: inside pyopencl's own folder, where pyopencl's loader looks."""
    spec = find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob(".libs/libpocl*.so*"))
    return found[0] if found else None


def intel_library() -> Path | None:
    """Intel's CPU runtime as pip installs it; its own `.icd` file names a path that is nowhere."""
    return _installed("intel-opencl-rt", "libintelocl.so")


def _installed(package: str, name: str) -> Path | None:
    """A file of an installed package that lies outside its Python code, wherever pip has put it."""
    with suppress(PackageNotFoundError):
        for file in distribution(package).files or ():
            if file.name == name and Path(str(file.locate())).exists():
                return Path(str(file.locate())).resolve()
    return None


def pocl_copy(library: Path, number: int, processor_name: str | None = None) -> Path:
    """An independent instance of PoCL: a copy under another SONAME, made once and kept in the cache.

    Args:
        processor_name: what the copy calls the processor; None for what the library itself does.

    Raises:
        UnreadableFile: the library does not hold its own name, so that it cannot be renamed.
    """
    name = library.name.encode()
    status = library.stat()
    digest = hashlib.sha256(
        f"{library.resolve()}:{status.st_size}:{status.st_mtime_ns}{processor_name or ''}".encode()
    )
    root = cache_folder("drivers", f"pocl{number}-{digest.hexdigest()[:12]}")
    # PoCL finds its own files, and hwloc, by this path relative to itself.
    folder = root / "pyopencl" / ".libs"
    new_name = (
        name[:-4] + f"{number}".encode() + name[-3:]
        if name.endswith(b".so")
        else name[:-1] + str(number).encode()
    )
    copy = folder / new_name.decode()
    if copy.exists():
        return copy
    data = library.read_bytes()
    if name + b"\0" not in data:
        raise UnreadableFile(
            f"{library} does not hold its own name; a second PoCL instance cannot be made of it"
        )
    data = data.replace(name + b"\0", new_name + b"\0")
    for variable in _OWN_VARIABLES:
        data = data.replace(variable + b"\0", variable[:-1] + str(number).encode() + b"\0")
    if processor_name is not None:
        data = renamed(data, processor_name)
    folder.mkdir(parents=True, exist_ok=True)
    (root / "pocl_binary_distribution").mkdir(exist_ok=True)
    link = root / "pocl_binary_distribution" / ".libs"
    with suppress(FileExistsError):  # of an earlier time, or of another that makes it just now
        link.symlink_to(library.parents[2] / "pocl_binary_distribution" / ".libs")
    replace_file(copy, data)
    return copy


def _icd_folder(libraries: Iterable[str]) -> Path:
    """A folder of `.icd` files that names these libraries, in this order."""
    names = list(dict.fromkeys(libraries))
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    folder = cache_folder("drivers", f"vendors-{digest}")
    for position, library in enumerate(names):
        replace_file(folder / f"{position:02d}.icd", f"{library}\n".encode())
    return folder


def _stem(library: str) -> str:
    """`/usr/lib/libnvidia-opencl.so.1` → `libnvidia-opencl`: one driver lies at several paths."""
    return Path(library).name.split(".so")[0]
