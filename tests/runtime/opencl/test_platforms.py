from __future__ import annotations

from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, UnreadableFile
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.platforms import pocl_copy, vendor_libraries, worker_environment


def test_every_driver_is_found_once_and_placeholders_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "real.so").touch()
    (tmp_path / "a.icd").write_text("libnvidia-opencl.so.1\n")
    (tmp_path / "b.icd").write_text(f"{tmp_path / 'real.so'}\n")
    (tmp_path / "c.icd").write_text("/opt/anaconda1anaconda2anaconda3/lib/libnothing.so\n")
    (tmp_path / "d.icd").write_text("/usr/lib/libnvidia-opencl.so.580\n")
    environment = {
        "OCL_ICD_VENDORS": str(tmp_path),
        "OCL_ICD_FILENAMES": "libnvidia-opencl.so.1:libamdocl64.so",
    }
    found = vendor_libraries(environment)
    assert found[:3] == ["libnvidia-opencl.so.1", str(tmp_path / "real.so"), "libamdocl64.so"]
    assert not [library for library in found if "libnothing" in library]
    assert len([library for library in found if "nvidia" in library]) == 1


def test_a_copy_of_pocl_has_its_own_name_and_its_own_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "cache"))
    library = tmp_path / "site" / "pyopencl" / ".libs" / "libpocl-21062cec.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"..libpocl-21062cec.so\0..POCL_MAX_PTHREAD_COUNT\0..POCL_CACHE_DIR\0")
    copy = pocl_copy(library, 2)
    assert copy.name == "libpocl-21062ce2.so"
    assert copy.read_bytes() == b"..libpocl-21062ce2.so\0..POCL_MAX_PTHREAD_COUN2\0..POCL_CACHE_DIR\0"
    assert pocl_copy(library, 2) == copy
    assert (copy.parents[2] / "pocl_binary_distribution" / ".libs").is_symlink()


def test_a_library_that_does_not_hold_its_name_cannot_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "cache"))
    library = tmp_path / "a" / "b" / "libpocl.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"nothing")
    with pytest.raises(UnreadableFile, match="does not hold its own name"):
        pocl_copy(library, 2)


def test_threads_are_shared_between_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl")
    monkeypatch.setattr("apportion.runtime.opencl.platforms.processors", lambda: 8)
    environment = worker_environment(DriverOptions(pocl_instances=2, vendors=False))
    assert environment["POCL_MAX_PTHREAD_COUNT"] == environment["POCL_MAX_PTHREAD_COUN2"] == "4"


def test_impossible_options_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="pocl_instances must lie between 1 and 9, not 0"):
        DriverOptions(pocl_instances=0)
