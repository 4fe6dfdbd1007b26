"""Headers beside a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.errors import CompileError, MalformedInput
from apportion.program import siblings
from apportion.program.buildfile import BuildOptions
from apportion.program.compile import CompileOptions, driver_options, driver_text, ir_of, kernels_of
from apportion.program.siblings import own_lines
from apportion.program.source import Source


def test_a_header_beside_the_source_is_found(tmp_path: Path) -> None:
    (tmp_path / "zutil.h").write_text('#include "part/size.h"\n#define BASE SIZE\n')
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "size.h").write_text("#define SIZE 65521\n")
    (tmp_path / "adler32.c").write_text(
        '#include "zutil.h"\n#include <stddef.h>\nint f(void) { return BASE; }\n'
    )
    assert "ret i32 65521" in ir_of(Source.read(tmp_path / "adler32.c"))


def test_lines_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("#define A 1\n#define B 2\n\n")
    (tmp_path / "k.c").write_text('// first\n#include "a.h"\nint f(void) { return nothing; }\n')
    with pytest.raises(CompileError) as caught:
        ir_of(Source.read(tmp_path / "k.c"))
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "k.c"), 3)
    (tmp_path / "a.h").write_text("\nint g(void) { return none; }\n")
    with pytest.raises(CompileError) as caught:
        ir_of(Source.read(tmp_path / "k.c"))
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "a.h"), 2)


def test_headers_may_include_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#ifndef A\n#define A\n#include "b.h"\n#define ONE 1\n#endif\n')
    (tmp_path / "b.h").write_text('#pragma once\n#include "a.h"\n#define TWO 2\n')
    (tmp_path / "k.c").write_text(
        '#include "a.h"\n#include "b.h"\n#include "b.h"\nint f(void) { return ONE + TWO; }\n'
    )
    assert "ret i32 3" in ir_of(Source.read(tmp_path / "k.c"))


def test_a_header_may_be_read_several_times(tmp_path: Path) -> None:
    (tmp_path / "body.h").write_text("int NAME(void) { return 4; }\n")
    text = '#define NAME f\n#include "body.h"\n#undef NAME\n#define NAME g\n#include "body.h"\n'
    (tmp_path / "k.c").write_text(text)
    assert ir_of(Source.read(tmp_path / "k.c")).count("ret i32 4") == 2


def test_what_lies_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.h").write_text("int secret;\n")
    (inside / "led_out.h").symlink_to(tmp_path / "secret.h")
    for name in ("../secret.h", str(tmp_path / "secret.h"), "led_out.h"):
        (inside / "k.c").write_text(f'#include "{name}"\n')
        with pytest.raises(CompileError) as caught:
            ir_of(Source.read(inside / "k.c"))
        assert "int secret" not in str(caught.value) + caught.value.diagnostics


def test_an_include_in_a_comment_is_none(tmp_path: Path) -> None:
    (tmp_path / "wrong.h").write_text("wrong\n")
    (tmp_path / "k.c").write_text(
        '/*\n#include "wrong.h"\n*/\n// #include "wrong.h"\nint f(void) { return 1; }\n'
    )
    assert Source.read(tmp_path / "k.c").text == (tmp_path / "k.c").read_text()


def test_headers_that_double_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "MOST_BYTES", 10_000)
    for number in range(20):
        (tmp_path / f"h{number}.h").write_text(f'#include "h{number + 1}.h"\n' * 2 + "// more\n")
    (tmp_path / "h20.h").write_text("int x;\n")
    (tmp_path / "k.c").write_text('#include "h0.h"\n')
    with pytest.raises(MalformedInput, match="need guards"):
        Source.read(tmp_path / "k.c")


def test_a_header_can_be_read_first(tmp_path: Path) -> None:
    (tmp_path / "first.h").write_text("#define WIDTH 12\n")
    (tmp_path / "k.cl").write_text("kernel void f(global int *x) { *x = WIDTH; }\n")
    found = Source.read(tmp_path / "k.cl", build=BuildOptions(headers=(tmp_path / "first.h",)))
    assert "store i32 12" in ir_of(found)


def test_headers_of_given_folders_come_along_with_kernels(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "size.h").write_text("#define WIDTH 12\n")
    (tmp_path / "k.cl").write_text("#include <size.h>\nkernel void f(global int *x) { *x = WIDTH; }\n")
    found = Source.read(tmp_path / "k.cl", build=BuildOptions(include_paths=(tmp_path / "inc",)))
    assert "store i32 12" in ir_of(Source(found.text, "opencl"))


def test_a_driver_gets_one_text_however_includes_are_written(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "size.h").write_text("#define WIDTH 12\nint twice(int x) { return 2 * x; }\n")
    (tmp_path / "k.cl").write_text(
        "#define TEXT(x) #x\n#define PATH(x) TEXT(x)\n#include PATH(inc/size.h)\n"
        "kernel void f(global int *x) { *x = twice(WIDTH); }\n"
    )
    found = Source.read(tmp_path / "k.cl", build=BuildOptions(include_paths=(tmp_path,)))
    text = driver_text(found, CompileOptions())
    assert "#include" not in text
    assert "store i32 24" in ir_of(Source(text, "opencl"))
    assert driver_text(Source("kernel void f() {}", "opencl"), CompileOptions()) == "kernel void f() {}"


def test_macros_go_into_a_drivers_text() -> None:
    build = BuildOptions(defines=("N=4", "JOIN(a, b)=a ## b", "KIND=unsigned int"))
    source = Source("kernel void f(global KIND *x) { *JOIN(, x) = N; }", "opencl", build=build)
    assert driver_options(source, CompileOptions()) == ""  # drivers take options apart at spaces
    text = driver_text(source, CompileOptions())
    assert text.startswith("#define N 4\n#define JOIN(a, b) a ## b\n#define KIND unsigned int\n#line 1 ")
    assert "store i32 4" in ir_of(Source(text, "opencl"))


def test_lines_of_the_file_itself_are_told_from_those_of_its_headers(tmp_path: Path) -> None:
    (tmp_path / "size.h").write_text("#define ROWS 2\n#define COLUMNS 3\n")
    kernel = '// first\n#include "size.h"\nkernel void f(global int *x) {\n    *x = ROWS * COLUMNS;\n}\n'
    (tmp_path / "f.cl").write_text(kernel)
    source = Source.read(tmp_path / "f.cl")
    assert "ROWS 2" in str(source.text)
    lines = own_lines(str(source.text), source.name)
    assert lines[3] == "    *x = ROWS * COLUMNS;"
    assert "#define ROWS 2" not in lines
    assert own_lines(kernel, "f.cl") == tuple(kernel.split("\n"))


def test_headers_that_pyopencl_gives_to_every_program_are_found(tmp_path: Path) -> None:
    kernel = "#include <pyopencl-complex.h>\nkernel void f(global cfloat_t *x) { *x = cfloat_new(1, 2); }\n"
    (tmp_path / "f.cl").write_text(kernel)
    source = Source.read(tmp_path / "f.cl")
    assert "#include <pyopencl-complex.h>" not in driver_text(source, CompileOptions())
    assert kernels_of(ir_of(source)) == ["f"]
