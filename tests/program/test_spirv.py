"""SPIR-V becomes IR by the translator from pip, and what is none is refused in one line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from apportion.cli import main
from apportion.errors import InvalidSetting, MalformedInput, MissingPackage
from apportion.program import graph_of
from apportion.program.compile import CompileOptions, ir_of, kernels_of
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source
from apportion.program.toolchain import toolchain_of

translator = pytest.importorskip("dpcpp_llvm_spirv")
pytest.importorskip("ziglang")
pytest.importorskip("llvmlite")

SAXPY = """kernel void saxpy(float a, global const float *x, global float *y, int n) {
  int i = get_global_id(0);
  if (i < n) y[i] += a * x[i];
}
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module as a compiler of another project would write it."""
    source, bitcode, path = tmp_path / "saxpy.cl", tmp_path / "saxpy.bc", tmp_path / "saxpy.spv"
    source.write_text("unsigned long __attribute__((overloadable)) get_global_id(unsigned);\n" + SAXPY)
    clang = [
        *toolchain_of("ziglang").command,
        "-x",
        "cl",
        "-target",
        "spir64-unknown-unknown",
        "-cl-std=CL2.0",
    ]
    subprocess.run(
        [*clang, "-cl-kernel-arg-info", "-cl-no-stdinc", "-O2", "-c", "-emit-llvm", source, "-o", bitcode],
        check=True,
    )
    program = Path(translator.__file__).parent / "bin" / "llvm-spirv"
    subprocess.run([program, bitcode, "-o", path], check=True)
    return path


def test_a_module_has_the_kernels_and_the_graph_of_its_source(module: Path) -> None:
    source = Source.read(module)
    assert source.language == "spirv"
    ir = ir_of(source)
    assert kernels_of(ir) == ["saxpy"]
    assert [(each.type, each.space) for each in signature_of(ir).arguments] == [
        ("float", "value"), ("float*", "global"), ("float*", "global"), ("int", "value"),
    ]  # fmt: skip
    ours, theirs = graph_of(module), graph_of(Source(SAXPY, "opencl"))
    assert theirs.nodes < ours.nodes < 2 * theirs.nodes


def test_predict_answers_and_run_says_that_it_is_read_alone(
    module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(
            [
                "predict",
                str(module),
                "--pair",
                "cgo17-nvidia",
                "--local-size",
                "64",
                "--bytes",
                "65536",
                "--json",
            ]
        )
    assert not left.value.code
    assert 0 <= json.loads(capsys.readouterr().out)["cpu_share"] <= 1
    with pytest.raises(InvalidSetting, match=r"is SPIR-V, which is read but not run"):
        Source.read(module, "opencl")


def test_what_is_no_module_of_kernels_is_refused_in_one_line(module: Path, tmp_path: Path) -> None:
    with pytest.raises(MalformedInput, match="this is no SPIR-V: it does not begin with"):
        Source(b"BC\xc0\xde", "spirv")
    cut = tmp_path / "cut.spv"
    cut.write_bytes(module.read_bytes()[:60])
    with pytest.raises(MalformedInput, match="no SPIR-V that can be read") as caught:
        ir_of(Source.read(cut))
    assert "\n" not in str(caught.value)


def test_without_the_translator_the_extra_is_named(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'apportion\[spirv\]'"):
        ir_of(Source(module.read_bytes(), "spirv"), CompileOptions())
