"""Files beside a source that define what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.cli.building import Building
from apportion.errors import CompileError
from apportion.program.compile import CompileOptions, driver_text, ir_of, kernels_of
from apportion.program.kernel.recover import guessed
from apportion.program.source import Source

KERNEL = "kernel void scale(global pixel *x) { x[get_global_id(0)] = TWICE(x[get_global_id(0)]); }\n"


def _names(source: Source) -> list[str]:
    return [Path(each).name for each in source.companions]


def test_what_a_kernel_lacks_comes_from_the_file_beside_it_that_defines_it(tmp_path: Path) -> None:
    (tmp_path / "types.h").write_text("typedef float pixel;\n#define TWICE(a) twice(a)\n")
    (tmp_path / "arithmetic.cl").write_text("float twice(float a) { return 2.0f * a; }\n")
    (tmp_path / "other.cl").write_text("float never(float a) { return a; }\n")
    (tmp_path / "scale.cl").write_text(KERNEL)
    source = Source.read(tmp_path / "scale.cl")
    assert sorted(_names(source)) == ["arithmetic.cl", "types.h"]
    ir = ir_of(source)
    assert kernels_of(ir) == ["scale"]
    assert "2.000000e+00" in ir
    assert "typedef float pixel;" in driver_text(source, CompileOptions())


def test_files_that_need_each_other_stand_in_the_order_of_their_need(tmp_path: Path) -> None:
    (tmp_path / "a.cl").write_text("real4 mix4(real4 a) { return a * a; }\n")
    (tmp_path / "z.h").write_text("typedef float4 real4;\n")
    (tmp_path / "k.cl").write_text("kernel void k(global float4 *x) { x[0] = mix4(x[1]); }\n")
    assert _names(Source.read(tmp_path / "k.cl")) == ["z.h", "a.cl"]


def test_lines_of_the_kernel_stay_its_own(tmp_path: Path) -> None:
    (tmp_path / "types.h").write_text("typedef float pixel;\n\n\n#define TWICE(a) a\n")
    (tmp_path / "k.cl").write_text(KERNEL)
    ir = ir_of(Source.read(tmp_path / "k.cl"), CompileOptions(line_tables=True))
    assert 'filename: "' + str(tmp_path / "k.cl") in ir
    assert "!DILocation(line: 1," in ir


def test_of_two_files_that_define_the_same_none_is_taken(tmp_path: Path) -> None:
    for name, size in (("small.h", 16), ("large.h", 64)):
        (tmp_path / name).write_text(f"#define SIZE {size}\n")
    (tmp_path / "k.cl").write_text("kernel void k(global int *x) { x[0] = SIZE; }\n")
    source = Source.read(tmp_path / "k.cl")
    assert _names(source) == []
    with pytest.raises(CompileError, match="SIZE is a macro"):
        ir_of(source)


def test_a_file_that_does_not_help_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "half.h").write_text("typedef float pixel;\n")
    (tmp_path / "k.cl").write_text(KERNEL)
    source = Source.read(tmp_path / "k.cl")
    assert _names(source) == []
    assert str(source.text) == KERNEL


def test_what_compiles_alone_stays_alone(tmp_path: Path) -> None:
    (tmp_path / "beside.h").write_text("#define i 5\nfloat half_of(float a) { return a / 2; }\n")
    text = "kernel void k(global int *x) { for (int i = 0; i < 4; ++i) x[i] = i; }\n"
    (tmp_path / "k.cl").write_text(text)
    assert str(Source.read(tmp_path / "k.cl").text) == text


def test_nothing_outside_the_folder_is_taken(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "types.h").write_text("typedef float pixel;\n#define TWICE(a) a\n")
    (inside / "led_out.h").symlink_to(tmp_path / "types.h")
    (inside / "k.cl").write_text(KERNEL)
    assert _names(Source.read(inside / "k.cl")) == []


def test_a_companion_that_includes_what_it_may_not_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "types.h").write_text('#include "/etc/hostname"\ntypedef float pixel;\n#define TWICE(a) a\n')
    (tmp_path / "k.cl").write_text(KERNEL)
    assert _names(Source.read(tmp_path / "k.cl")) == []


def test_the_command_line_says_which_files_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "types.h").write_text("typedef float pixel;\n#define TWICE(a) a\n")
    (tmp_path / "k.cl").write_text(KERNEL)
    Building().source(tmp_path / "k.cl")
    said = " ".join(capsys.readouterr().err.split())
    assert "lacks what these files beside it define; they are read before it: types.h." in said


def test_what_files_beside_it_define_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "tools.cl").write_text("float twice(float a) { return 2.0f * a; }\n")
    (tmp_path / "k.cl").write_text("kernel void k(global float *x) { x[0] = twice(x[1]) + SIZE; }\n")
    source, guesses = guessed(Source.read(tmp_path / "k.cl"), tmp_path / "k.cl")
    assert guesses == ("tools.cl before it", "-D SIZE=16")
    assert "2.000000e+00" in ir_of(source)


def test_functions_of_vendors_are_known() -> None:
    text = """kernel void k(global uint *x) {
        x[get_global_id(0)] = amd_bitalign(x[0], x[1], 3u) + intel_sub_group_shuffle(x[2], 1u); }"""
    ir = ir_of(Source(text, "opencl"))
    assert "amd_bitalign" in ir
    assert "intel_sub_group_shuffle" in ir


def test_what_lacks_more_than_a_vendors_function_is_told_the_rest() -> None:
    text = "kernel void k(global uint *x) { x[0] = amd_bitalign(x[0], x[1], 3u) + SIZE; }"
    with pytest.raises(CompileError, match="SIZE is a macro"):
        ir_of(Source(text, "opencl"))


def test_a_file_named_after_cuda_with_kernels_of_opencl_is_opencl(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__kernel void k(__global float *x) { x[get_global_id(0)] = 0; }\n")
    assert Source.read(tmp_path / "k.cu").language == "opencl"
    (tmp_path / "c.cu").write_text("__global__ void k(float *x) { x[threadIdx.x] = 0; }\n")
    assert Source.read(tmp_path / "c.cu").language == "cuda"
