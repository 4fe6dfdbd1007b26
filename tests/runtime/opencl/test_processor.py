"""Processors that the wheel's PoCL does not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from apportion.runtime.opencl.platforms import pocl_library
from apportion.runtime.opencl.processor import level_of, renamed

HASWELL = {
    "cx16",
    "popcnt",
    "ssse3",
    "sse4_1",
    "sse4_2",
    "avx",
    "avx2",
    "bmi1",
    "bmi2",
    "f16c",
    "fma",
    "abm",
    "movbe",
}


def test_the_level_is_the_highest_whose_flags_and_those_below_are_all_there() -> None:
    assert level_of(HASWELL | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) == "x86-64-v4"
    assert level_of(HASWELL | {"avx512f"}) == "x86-64-v3"
    assert level_of(HASWELL - {"ssse3"}) == "x86-64"
    assert level_of(set()) == "x86-64"


def test_a_library_of_another_make_stays_as_it_is() -> None:
    assert renamed(b"\x7fELF nothing of the kind", "x86-64-v3") == b"\x7fELF nothing of the kind"


def test_a_renamed_copy_of_pocl_tells_its_compiler_the_level(tmp_path: Path) -> None:
    library = pocl_library()
    if library is None:
        pytest.skip("PoCL's wheel is not installed")
    data = library.read_bytes()
    changed = renamed(data, "x86-64-v2")
    if changed == data:
        pytest.skip("this PoCL is of another make")
    assert sum(map(int.__ne__, data, changed)) < 30
    folder = tmp_path / "pyopencl" / ".libs"
    folder.mkdir(parents=True)
    (folder / library.name).write_bytes(changed)
    (tmp_path / "pocl_binary_distribution").symlink_to(library.parents[2] / "pocl_binary_distribution")
    # In a process of its own: loading PoCL has effects.
    ask = f"import ctypes; f = ctypes.CDLL({str(folder / library.name)!r}).pocl_get_llvm_cpu_name; "
    ask += "f.restype = ctypes.c_char_p; print(f().decode())"
    assert subprocess.check_output([sys.executable, "-c", ask], text=True) == "x86-64-v2\n"
