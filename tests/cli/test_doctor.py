"""`apportion doctor`: it says what is there, and a machine without the extras is still healthy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from apportion import __version__
from apportion.advise import installation as module
from apportion.advise.installation import PURPOSES, Package, examine, packages
from apportion.cli.doctor import doctor


@pytest.fixture(autouse=True)
def unfolded(monkeypatch):
    """Tables as wide as they like, whatever the width that pytest-xdist says its workers have."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def findings():
    program = "from apportion.cli import main; main(['doctor', '--json'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def test_the_doctor_finds_this_machine_healthy(findings):
    assert findings["healthy"] is True
    assert findings["apportion"] == {"version": __version__, "native": True, "problem": None}
    assert findings["python"]["executable"] == sys.executable
    assert findings["machine"]["processors"] == len(os.sched_getaffinity(0))
    assert findings["machine"]["memory_bytes"] > 1 << 28


def test_packages_are_those_of_the_metadata_with_their_versions(findings):
    versions = {one["package"]: one["version"] for one in findings["packages"]}
    assert versions["numpy"] == metadata.version("numpy")
    assert {"ziglang", "pyopencl", "torch", "networkx"} <= set(versions)
    assert "pytest" not in versions


def test_the_compiler_from_pip_is_really_run(findings):
    pytest.importorskip("ziglang", reason="the extra 'compile' is not installed")
    (compiler,) = [one for one in findings["compilers"] if one["name"] == "ziglang"]
    assert compiler["version"].startswith("clang version 18.")


def test_opencl_devices_are_found_in_another_process(findings):
    if not {one.package for one in packages() if one.version} >= {"pyopencl", "pocl-binary-distribution"}:
        pytest.skip("the extra 'opencl' is not installed")
    assert findings["opencl"]["problem"] is None
    assert findings["opencl"]["devices"]
    for device in findings["opencl"]["devices"]:
        assert device["kind"] in ("cpu", "gpu", "accelerator", "other")
        assert device["compute_units"] >= 1


def test_the_doctor_loads_nothing_heavy():
    program = """
import sys
from apportion.cli.doctor import examine
examine()
print(*sorted({"torch", "pyopencl", "llvmlite", "networkx", "sklearn", "polars"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_tables_name_every_package_and_the_verdict_is_a_note(capsys):
    doctor()
    captured = capsys.readouterr()
    for one in packages():
        assert one.package in captured.out
    assert "OpenCL devices" in captured.out
    assert captured.err == "apportion works on this machine.\n"


def test_every_extra_says_what_it_is_for():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(PURPOSES) == set(project["optional-dependencies"]) - {"all", "dev"}


def missing_when(found, opencl=None, native_problem=None, cache_problem=None):
    return list(
        module._missing(found, native_problem, cache_problem, opencl or {"devices": [{}], "problem": None})
    )


def test_a_missing_extra_comes_with_the_command_that_brings_it_and_is_not_essential():
    found = [Package("pyopencl", "opencl", None), Package("pocl-binary-distribution", "opencl", None)]
    (missing,) = missing_when(found, {"devices": [], "problem": "pyopencl is not installed"})
    assert missing.what == "pyopencl, pocl-binary-distribution, needed for running kernels on OpenCL devices"
    assert missing.command == f"{sys.executable} -m pip install 'apportion[opencl]'"
    assert not missing.essential


def test_a_missing_package_that_everything_needs_is_essential():
    (missing,) = missing_when([Package("numpy", None, None)])
    assert missing.what == "numpy, needed for everything"
    assert missing.essential


def test_a_native_extension_that_does_not_load_is_essential():
    (missing,) = missing_when([], native_problem="undefined symbol: xyz")
    assert missing.what == "the native extension (undefined symbol: xyz)"
    assert missing.essential


def test_a_driver_without_devices_is_named_with_its_problem():
    (missing,) = missing_when([], {"devices": [], "problem": "The worker was killed by SIGSEGV"})
    assert missing.what == "an OpenCL device (The worker was killed by SIGSEGV)"
    assert not missing.essential


def test_a_cache_that_cannot_be_written_makes_the_machine_unhealthy(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("COLUMNS", "200")  # the command stands on one line
    with pytest.raises(SystemExit) as exit_:
        doctor()
    assert exit_.value.code == 1
    captured = capsys.readouterr()
    assert "export APPORTION_CACHE=" in captured.out
    assert captured.err == "apportion does not work on this machine.\n"


def test_a_machine_without_pydantic_gets_a_diagnosis_and_no_traceback():
    program = """
import sys
class NoPydantic:
    def find_spec(self, name, path=None, target=None):
        if name == "pydantic":
            raise ModuleNotFoundError("No module named 'pydantic'", name="pydantic")
sys.meta_path.insert(0, NoPydantic())
from apportion.cli import main
main(["doctor", "--json"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")  # what looks at the machine needs no settings from files
    assert json.loads(done.stdout)["cache"]["problem"] is None


def test_the_cache_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path))
    (tmp_path / "ir").mkdir()
    (tmp_path / "ir" / "one").write_bytes(b"12345")
    assert examine()["cache"] == {"folder": str(tmp_path), "bytes": 5, "files": 1, "problem": None}


def test_gpus_are_read_from_what_nvidia_smi_says(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 570.86.15, 143771'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert module._nvidia_gpus() == [
        {"name": "NVIDIA H200", "driver": "570.86.15", "memory_bytes": 143771 << 20}
    ]
