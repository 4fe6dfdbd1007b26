"""Compiling: the real compiler, the real sandbox, sources as strangers write them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from apportion.errors import (
    CompileError,
    DeadlineExceeded,
    InvalidSetting,
    LimitExceeded,
    MalformedIR,
    MissingPackage,
    UnknownName,
    WorkerCrashed,
)
from apportion.jobs import landlock
from apportion.program import frontends, graph_of, includes, ircache, toolchain
from apportion.program.buildfile import BuildOptions
from apportion.program.compile import CompileOptions, ir_of, kernels_of, known_function
from apportion.program.llvm import GraphOptions
from apportion.program.source import Source
from apportion.settings import cache_folder

pytest.importorskip("ziglang", reason="the compiler comes with the extra 'compile'")

KERNELS = Path(__file__).parents[1] / "kernels"
SECRET = "hunter2_is_the_password"

SCALE = "__kernel void scale(__global float *x) { x[get_global_id(0)] *= 2; }\n"
INLINE = """
__attribute__((noinline)) inline float twice(float a) { return sin(a) * 2; }
kernel void k(global float *x) { x[get_global_id(0)] = twice(x[get_global_id(0)]); }
"""
TWO_KERNELS = (
    SCALE + "void aid(void) {}\n__kernel void shift(__global float *x) { x[get_global_id(0)] += 1; }\n"
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "cache"))


def c(text: str, **options: object) -> str:
    return ir_of(Source(text, "c", "input.c"), CompileOptions(**options))  # type: ignore[arg-type]


def opencl(text: str, **options: object) -> str:
    return ir_of(Source(text, "opencl", "input.cl"), CompileOptions(**options))  # type: ignore[arg-type]


def refused(text: str, **options: object) -> CompileError:
    """The error of a source that must not compile, none of whose parts may hold the secret."""
    with pytest.raises(CompileError) as caught:
        c(text, **options)
    assert SECRET not in str(caught.value) + caught.value.diagnostics
    return caught.value


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "private" / "secret.h"
    path.parent.mkdir()
    path.write_text(f"{SECRET}\n")
    return path


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    folder = tmp_path / "headers"
    folder.mkdir()
    (folder / "size.h").write_text("#define SIZE 11\n")
    return folder


# What comes out


def test_code_that_is_opencl_c_1_2_alone_compiles_where_nobody_says_which() -> None:
    text = """
    void set(float **place, private float *value) { *place = value; }
    kernel void k(global float *a) { float x = a[0], *p; set(&p, &x); a[1] = *p; }
    """.replace("float **", "private float *private *")
    assert kernels_of(opencl(text)) == ["k"]
    with pytest.raises(CompileError, match="address space"):
        opencl(text, standard="CL2.0")
    with pytest.raises(CompileError, match="undeclared identifier 'b'"):  # what is wrong in both is told once
        opencl("kernel void k(global int *a) { a[0] = b; }")


@pytest.mark.parametrize("standard", ["CL1.2", "CL2.0", "CL3.0", "1.2", "3.0"])
def test_opencl_c_compiles_in_every_version(standard: str) -> None:
    ir = opencl(SCALE, standard=standard)
    assert 'target triple = "spir64-unknown-unknown"' in ir
    assert kernels_of(ir) == ["scale"]
    major, minor = standard.removeprefix("CL").split(".")
    assert f"!{{i32 {major}, i32 {minor}}}" in ir


@pytest.mark.parametrize("name", ["saxpy.cl", "reduce.cl", "histogram.cl", "greet.c", "sum.cpp"])
def test_our_kernels_compile(name: str) -> None:
    ir = ir_of(Source.read(KERNELS / name))
    assert "\ndefine " in ir


def test_c_finds_the_headers_of_libc() -> None:
    assert "@puts" in c('#include <stdio.h>\nint main(void) { return puts("hello"); }\n')


def test_cpp_finds_the_headers_of_libcxx() -> None:
    text = "#include <vector>\nint first(std::vector<int> &v) { return v.at(0); }\n"
    assert "std::__1::vector" in ir_of(Source(text, "c++", "first.cpp"))


def test_the_levels_of_optimization_differ() -> None:
    text = "int twice(int a) { int b = a; return b + a; }\n"
    assert c(text, optimization="0").count("alloca") == 2
    assert c(text, optimization="3").count("alloca") == 0


def test_loops_become_vectors_unless_that_is_forbidden() -> None:
    text = "void twice(int *a) { for (int i = 0; i < 1024; i++) a[i] *= 2; }\n"
    assert "x i32>" in c(text)
    assert "x i32>" not in c(text, vectorize=False)


@pytest.mark.parametrize("target", ["nvptx64-nvidia-cuda", "x86_64-pc-linux-gnu", "amdgcn-amd-amdhsa"])
def test_the_target_can_be_chosen(target: str) -> None:
    ir = opencl(TWO_KERNELS, target=target)
    assert f'target triple = "{target}"' in ir
    assert kernels_of(ir) == ["scale", "shift"]


@pytest.mark.parametrize("target", ["aarch64-linux-gnu", "x86_64-linux-musl"])
def test_other_machines_have_their_headers_too(target: str) -> None:
    text = "#include <vector>\n#include <cstdio>\nint first(std::vector<int> &v) { return v[0]; }\n"
    assert "define" in ir_of(Source(text, "c++", "first.cpp"), CompileOptions(target=target))


def test_macros_are_defined() -> None:
    assert "i32 42" in c("int f(void) { return ANSWER(21); }\n", defines=("ANSWER(x)=(2 * x)",))


def test_a_standard_is_obeyed() -> None:
    text = "int f(void) { for (int i = 0; i < 3; ++i) {} return 0; }\ntypedef int bool;\n"
    assert "define" in c(text, standard="c99")
    with pytest.raises(CompileError, match="built-in type 'bool'"):
        c(text, standard="c23")


def test_the_ir_names_the_source_and_no_folder_of_this_machine() -> None:
    ir = c("const char *where(void) { return __FILE__; }\n")
    assert ir.startswith("; ModuleID = 'input.c'\nsource_filename = \"input.c\"\n")
    assert 'c"input.c\\00"' in ir
    assert "/tmp" not in ir


def test_a_name_with_odd_characters_does_no_harm() -> None:
    name = 'a "b"\\\n#error x\né.c'
    ir = ir_of(Source("int x;\n", "c", name), CompileOptions())
    assert 'source_filename = "a \\22b\\22\\5C\\0A#error x\\0A\\C3\\A9.c"' in ir


def test_the_same_source_gives_the_same_ir_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = opencl(SCALE)
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "another"))
    monkeypatch.chdir("/")
    assert opencl(SCALE) == here


@pytest.mark.parametrize(
    "data",
    [b"int x;\r\nint f(void) { return x; }\r\n", b"\xef\xbb\xbfint x; // \xe9\nint f(void) { return x; }"],
)
def test_files_from_elsewhere_compile(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.c").write_bytes(data)
    assert "@f(" in ir_of(Source.read(tmp_path / "a.c"))


def test_a_comment_at_the_end_needs_no_line_end() -> None:
    assert "@x" in c("int x; // done")


def test_ir_passes_as_it_is() -> None:
    text = "define void @f() {\n  ret void\n}\n"
    assert ir_of(Source(text, "llvm")) == text


def test_published_kernels_compile_when_they_did_for_others(shared_data: Path) -> None:
    csv.field_size_limit(1 << 24)
    with (shared_data / "cgo17" / "nvidia.csv").open() as file:
        sources = list(dict.fromkeys(row["src"] for row in csv.DictReader(file)))
    compiled = json.loads((shared_data / "programl-oracle" / "cgo17.manifest.json").read_text())
    assert (len(sources), len(compiled)) == (247, 190)
    for number in range(0, len(sources), 10):
        name = f"k{number:03}"
        source = Source(sources[number], "opencl", name)
        if name in compiled:
            assert kernels_of(ir_of(source, CompileOptions(standard=compiled[name]["std"])))
        else:
            with pytest.raises(CompileError):
                ir_of(source)


# What is said when it does not compile


def test_an_error_has_its_place_and_the_words_of_the_compiler() -> None:
    with pytest.raises(CompileError) as caught:
        opencl("__kernel void f(__global int *x) {\n  x[0] = nonsense;\n}\n")
    error = caught.value
    assert str(error) == (
        "input.cl:2:10: use of undeclared identifier 'nonsense'. If nonsense is a macro of the project's "
        "build, give it: -D nonsense=VALUE"
    )
    assert (error.file, error.line, error.column) == ("input.cl", 2, 10)
    assert "    2 |   x[0] = nonsense;" in error.diagnostics


def test_an_error_in_a_header_names_the_header(headers: Path) -> None:
    (headers / "wrong.h").write_text("int x = ;\n")
    with pytest.raises(CompileError, match=r"headers/wrong\.h:1:9: expected expression"):
        c('#include "wrong.h"\n', include_paths=(headers,))


def test_a_target_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(CompileError, match=r"^input\.c: unknown target triple 'pdp11'$"):
        c("int x;\n", target="pdp11")


def test_a_missing_header_asks_for_an_include_path() -> None:
    with pytest.raises(
        CompileError, match=r"'size\.h' file not found\. Give the folder that holds it as an include"
    ):
        c('#include "size.h"\n')


def test_a_kernel_that_is_not_there_lists_those_that_are() -> None:
    ir = opencl(TWO_KERNELS)
    assert known_function(ir, "aid") == "aid"
    with pytest.raises(
        UnknownName, match=r"^No kernel called 'scal'\. Did you mean 'scale'\? There are: scale, shift\.$"
    ):
        known_function(ir, "scal")


# What a source may read


def test_headers_of_an_include_path_are_found(headers: Path) -> None:
    (headers / "part").mkdir()
    (headers / "part" / "up.h").write_text('#include "../size.h"\n')
    assert "i32 11" in c('#include "part/up.h"\nint f(void) { return SIZE; }\n', include_paths=(headers,))


@pytest.mark.parametrize(
    "line",
    [
        '#include "PATH"',
        "#include <PATH>",
        '  #  include /* why */ "PATH"',
        '#inc\\\nlude "PATH"',
        '%:include "PATH"',
        '#include_next "PATH"',
        '#import "PATH"',
        '#embed "PATH"',
        '#if __has_include("PATH")\n#endif',
        '#include "../private/secret.h"',
        '#include "a/../../private/secret.h"',
    ],
)
def test_an_absolute_or_parent_path_is_refused_before_a_compiler_starts(line: str, secret: Path) -> None:
    error = refused("int x;\n" + line.replace("PATH", str(secret)), compiler="/absent/clang")
    assert "may not be included. A source may include headers of the compiler" in str(error)
    assert error.line in (2, 3)


def test_the_password_file_is_not_quoted() -> None:
    with pytest.raises(CompileError) as caught:
        c('#include "/etc/passwd"\n')
    assert "root" not in str(caught.value) + caught.value.diagnostics


def test_comments_and_strings_are_not_taken_for_includes() -> None:
    text = '// #include "/a"\n/*\n#include "/b"\n*/\nconst char *s = "\\\n#include \\"/c\\"";\n'
    assert "@s" in c(text)


@pytest.mark.parametrize(
    "piece", ['\\"', 'R"(', 'R"a(', "/*", "'", '"', "#include ", "\\ ", "defined ", "??/ ", "(\n"]
)
def test_the_check_of_the_text_takes_linear_time(piece: str) -> None:
    start = time.process_time()
    includes.check_text(piece * 200_000, "long.c")
    assert time.process_time() - start < 5


@pytest.fixture(params=["with Landlock", "without Landlock"])
def _either_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without Landlock":
        monkeypatch.setattr(landlock, "version", lambda: 0)
    elif not landlock.version():
        pytest.skip("this kernel has no Landlock")


@pytest.mark.usefixtures("_either_kernel")
def test_a_computed_include_reads_nothing(secret: Path) -> None:
    error = refused(f'#define WHERE "{secret}"\n#include WHERE\n')
    assert "may not be included" in str(error)


@pytest.mark.usefixtures("_either_kernel")
def test_an_include_computed_from_an_option_reads_nothing(secret: Path) -> None:
    assert "may not be included" in str(refused("#include WHERE\n", defines=(f'WHERE="{secret}"',)))


@pytest.mark.usefixtures("_either_kernel")
def test_a_computed_parent_path_reads_nothing(secret: Path, headers: Path) -> None:
    error = refused("#define WHERE <../private/secret.h>\n#include WHERE\n", include_paths=(headers,))
    assert "may not be included" in str(error)


@pytest.mark.usefixtures("_either_kernel")
def test_a_link_out_of_an_include_path_leads_nowhere(secret: Path, headers: Path) -> None:
    (headers / "file.h").symlink_to(secret)
    (headers / "folder").symlink_to(secret.parent)
    for name in ("file.h", "folder/secret.h"):
        error = refused(f'#include "{name}"\n', include_paths=(headers,))
        assert "may not be included" in str(error)


@pytest.mark.usefixtures("_either_kernel")
def test_a_header_that_would_compile_is_refused_all_the_same(secret: Path) -> None:
    secret.write_text("int stolen;\n")
    assert "may not be included" in str(refused(f'#define WHERE "{secret}"\n#include WHERE\n'))


def test_whether_a_file_exists_cannot_be_asked_through_a_macro() -> None:
    error = refused('#define ASK __has_include\n#if ASK("/etc/passwd")\n#endif\n')
    assert str(error).startswith("input.c:1: __has_include must be followed by a name")


def test_what_stands_in_a_string_is_not_pasted_together() -> None:
    text = 'const char *said = "a ## b"; int __has_, include, n, i, c, l, u, d, e;\n'
    assert "@said" in c(text)
    with pytest.raises(CompileError, match="can spell __has_include"):
        c("#define J(a, b) a##b\nint __has_, include;\n")


def test_asking_for_a_header_by_name_is_allowed() -> None:
    idiom = "#ifndef __has_include\n#define __has_include(x) 0\n#endif\n"
    assert "@yes" in c(idiom + "#if defined(__has_include) && __has_include(<stdio.h>)\nint yes;\n#endif\n")


def test_an_absent_and_a_forbidden_file_get_the_same_answer(secret: Path) -> None:
    there = str(refused(f'#define WHERE "{secret}"\n#include WHERE\n'))
    absent = secret.with_name("absent.h")
    assert str(refused(f'#define WHERE "{absent}"\n#include WHERE\n')) == there.replace(
        "secret.h", "absent.h"
    )


# What a source may use


BOMB = """
#define A(x) x x x x x x x x x x
#define B(x) A(A(A(A(x))))
int x = 0 B(B(+1));
"""


def test_a_source_that_takes_for_ever_is_stopped() -> None:
    with pytest.raises(
        DeadlineExceeded, match=r"^Compiling input\.c took longer than 1 seconds\. Raise .*'seconds'"
    ):
        c(BOMB, seconds=1, memory_bytes=16 << 30)


def test_a_template_that_never_ends_is_stopped() -> None:
    text = (
        "template <int N, class T> struct P {};\n"
        "template <int N, class T> struct A : A<N - 1, P<0, T>>, A<N - 1, P<1, T>> {};\n"
        "template <class T> struct A<0, T> {};\n"
        "A<60, int> bomb;\n"
    )
    with pytest.raises(DeadlineExceeded):
        ir_of(Source(text, "c++", "bomb.cpp"), CompileOptions(seconds=1))


def test_a_source_that_fills_the_memory_is_stopped() -> None:
    with pytest.raises(LimitExceeded, match=r"more than 314,572,800 bytes of memory.*'memory_bytes'"):
        c(BOMB, memory_bytes=300 << 20)


def test_ir_that_is_too_long_is_stopped() -> None:
    with pytest.raises(LimitExceeded, match=r"wrote more than 1,000 bytes.*'output_bytes'"):
        opencl(SCALE, output_bytes=1000)


def test_a_crash_of_the_compiler_is_an_error_of_ours() -> None:
    with pytest.raises(WorkerCrashed, match=r"^The compiler crashed on input\.c"):
        c(f"int x = {'!' * 300_000}1;\n")


@pytest.mark.parametrize(
    "options",
    [
        {"standard": "-o/tmp/x"},
        {"standard": "c99\n-v"},
        {"target": "-v"},
        {"target": "x86_64 -v"},
        {"defines": ("-v",)},
        {"defines": ("A=1\n#include</etc/passwd>",)},
        {"defines": ("A B",)},
        {"defines": "A"},
        {"optimization": "4"},
        {"optimization": "-v"},
        {"compiler": "-v"},
        {"compiler": ""},
        {"include_paths": (Path("/absent"),)},
        {"seconds": 0},
        {"memory_bytes": -1},
    ],
)
def test_options_cannot_smuggle_arguments(options: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        CompileOptions(**options)  # type: ignore[arg-type]


# What is kept


NO_TIME = 1e-6
"So little that any compiler is stopped: limits are not part of what IR is kept under."


def test_a_second_call_starts_no_compiler() -> None:
    first = opencl(SCALE)
    assert opencl(SCALE, seconds=NO_TIME) == first


@pytest.mark.parametrize(
    "change",
    [
        {"optimization": "0"},
        {"standard": "CL1.2"},
        {"defines": ("A=1",)},
        {"target": "spir-unknown-unknown"},
        {"vectorize": False},
    ],
)
def test_other_options_are_compiled_afresh(change: dict[str, object]) -> None:
    opencl(SCALE)
    with pytest.raises(DeadlineExceeded):
        opencl(SCALE, seconds=NO_TIME, **change)


def test_a_changed_header_is_compiled_afresh(headers: Path) -> None:
    text = '#include "size.h"\nint f(void) { return SIZE; }\n'
    assert "ret i32 11" in c(text, include_paths=(headers,))
    assert "ret i32 11" in c(text, include_paths=(headers,), seconds=NO_TIME)
    (headers / "size.h").write_text("#define SIZE 12\n")
    assert "ret i32 12" in c(text, include_paths=(headers,))


def test_a_header_that_was_absent_is_noticed(headers: Path, tmp_path: Path) -> None:
    text = "#include <size.h>\nint f(void) { return SIZE; }\n"
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    assert "ret i32 11" in c(text, include_paths=(earlier, headers))
    (earlier / "size.h").write_text("#define SIZE 13\n")
    assert "ret i32 13" in c(text, include_paths=(earlier, headers))


def test_include_paths_that_are_too_large_to_watch_are_not_kept(
    headers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(includes, "MOST_FILES", 0)
    c("int x;\n", include_paths=(headers,))
    with pytest.raises(DeadlineExceeded):
        c("int x;\n", include_paths=(headers,), seconds=NO_TIME)


def test_a_damaged_entry_is_made_again() -> None:
    first = opencl(SCALE)
    (entry,) = cache_folder("ir").glob("*/*")
    entry.write_bytes(entry.read_bytes()[:-10])
    assert opencl(SCALE) == first
    assert opencl(SCALE, seconds=NO_TIME) == first


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "file"))
    assert "define" in opencl(SCALE)


def test_the_cache_forgets_what_was_used_longest_ago(tmp_path: Path) -> None:
    for number in range(5):
        key = ircache.key_of([str(number)])
        ircache.store(key, "x" * 1000)
        os.utime(cache_folder("ir") / key[:2] / key[2:], (number, number))
    ircache.shrink(cache_folder("ir"), 4000)
    kept = [number for number in range(5) if ircache.load(ircache.key_of([str(number)]))]
    assert kept == [3, 4]


# Which compiler


@pytest.fixture
def other_clang(tmp_path: Path) -> Path:
    """A clang that is found by its path, as one of the machine would be: a script around the wheel's."""
    zig = Path(toolchain.toolchain_of("ziglang").command[0])
    binaries, resources = (
        tmp_path / "install" / "bin",
        tmp_path / "install" / "lib" / "clang" / "18" / "include",
    )
    binaries.mkdir(parents=True)
    resources.mkdir(parents=True)
    try:
        os.link(zig, binaries / "real")
    except OSError:
        pytest.skip("the wheel lies on another file system")
    (resources / "opencl-c-base.h").write_bytes(
        (zig.parent / "lib" / "include" / "opencl-c-base.h").read_bytes()
    )
    script = binaries / "clang"
    script.write_text(f'#!/bin/sh\nexec "{binaries}/real" clang -resource-dir "{resources.parent}" "$@"\n')
    script.chmod(0o755)
    return script


def test_a_compiler_can_be_named_by_its_path(other_clang: Path) -> None:
    assert kernels_of(opencl(SCALE, compiler=str(other_clang))) == ["scale"]


def test_a_clang_of_the_machine_is_found(other_clang: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(other_clang.parent))
    assert toolchain.toolchain_of("system").command == (str(other_clang),)
    assert toolchain.toolchain_of("system").version == 18
    assert "define" in c("int f(void) { return 1; }\n", compiler="system")


def test_another_compiler_reads_no_more_files(other_clang: Path, secret: Path) -> None:
    text = f'#define WHERE "{secret}"\n#include WHERE\n'
    assert "may not be included" in str(refused(text, compiler=str(other_clang)))


def test_a_compiler_s_libraries_are_not_headers(other_clang: Path) -> None:
    # It must read /usr to start, so Landlock lets it; its list of headers gives it away.
    release = Path("/usr/lib/os-release")
    if not release.exists():
        pytest.skip(f"this machine has no {release}")
    error = refused(f'#define WHERE "{release}"\n#include WHERE\n', compiler=str(other_clang))
    assert "may not be included" in str(error)
    assert error.diagnostics == ""


def test_what_is_not_clang_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="is not clang"):
        c("int x;\n", compiler="/bin/echo")


def test_a_compiler_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(UnknownName, match=r"No compiler called 'klang'.*ziglang"):
        c("int x;\n", compiler="klang")


def test_without_any_compiler_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(toolchain, "_ziglang", lambda: None)
    with pytest.raises(MissingPackage, match=r"pip install 'apportion\[compile\]'"):
        c("int x;\n")


# Bitcode, and the table of frontends


@pytest.fixture
def bitcode() -> bytes:
    binding = pytest.importorskip("llvmlite.binding", reason="bitcode needs the extra 'bitcode'")
    text = 'source_filename = "old.c"\ndefine i32* @f(i32* %p) {\n  ret i32* %p\n}\n'
    # Closed here: a module that is collected after its context takes the process with it.
    with binding.parse_assembly(text, context=binding.create_context()) as module:
        data: bytes = module.as_bitcode()
    return data


def test_bitcode_becomes_text(bitcode: bytes) -> None:
    ir = ir_of(Source(bitcode, "bitcode", "old.bc"))
    assert 'source_filename = "old.c"' in ir
    assert "define ptr @f(ptr %p)" in ir
    assert ir_of(Source(bitcode, "bitcode", "old.bc"), CompileOptions(seconds=NO_TIME)) == ir


def test_bitcode_that_is_cut_short_is_an_error(bitcode: bytes) -> None:
    with pytest.raises(MalformedIR, match=r"^old\.bc: LLVM cannot read this bitcode: "):
        ir_of(Source(bitcode[:100], "bitcode", "old.bc"))


def test_damaged_bitcode_never_takes_us_with_it(bitcode: bytes) -> None:
    for place in range(16, len(bitcode), len(bitcode) // 12):
        damaged = bitcode[:place] + bytes([bitcode[place] ^ 0xFF]) + bitcode[place + 1 :]
        with suppress(MalformedIR, WorkerCrashed):
            assert "\n" in ir_of(Source(damaged, "bitcode", "old.bc"))


def test_every_language_has_a_frontend() -> None:
    assert frontends.names()[:5] == ["llvm", "bitcode", "c", "c++", "opencl"]
    assert all(callable(frontends.load(name)) for name in frontends.names())


def test_a_language_without_a_frontend_is_unknown() -> None:
    with pytest.raises(UnknownName, match="No frontend called 'fortran'"):
        ir_of(Source("end program", "fortran"))


def test_the_table_of_frontends_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'llvmlite', 'ziglang', 'torch', 'apportion.program.compile'}"
    script = f"import apportion.program, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Graphs


def test_a_graph_is_built_from_a_path_or_a_source() -> None:
    path = KERNELS / "saxpy.cl"
    graph = graph_of(path)
    assert "saxpy" in [function.name for function in graph.functions]
    assert graph_of(str(path)) == graph == graph_of(Source.read(path))


def test_options_reach_the_compiler_and_the_graph() -> None:
    path = KERNELS / "reduce.cl"
    whole = graph_of(path, compile=CompileOptions(optimization="0"))
    part = graph_of(
        path, compile=CompileOptions(optimization="0"), graph=GraphOptions(function="reduce_serial")
    )
    assert len(part.node_type) < len(whole.node_type)
    assert "alloca" in whole.texts()
    assert "alloca" not in graph_of(path).texts()


def test_a_graph_of_a_missing_kernel_lists_the_kernels_there_are() -> None:
    with pytest.raises(UnknownName, match=r"No kernel called 'sum'\. There are: reduce, reduce_serial\.$"):
        graph_of(KERNELS / "reduce.cl", graph=GraphOptions(function="sum"))


def test_a_function_that_is_inline_alone_keeps_its_body() -> None:
    ir = ir_of(Source(INLINE, "opencl"))
    assert "define dso_local spir_func float @twice" in ir
    assert "declare dso_local spir_func float @twice" not in ir


def test_the_version_of_opencl_is_told_as_drivers_tell_it() -> None:
    text = """
#ifndef __OPENCL_VERSION__
#error "this is no OpenCL"
#elif __OPENCL_VERSION__ < 120
#error "too old"
#endif
kernel void k(global int *x) { x[0] = __OPENCL_VERSION__; }
"""
    assert "store i32 300" in ir_of(Source(text, "opencl"))
    build = BuildOptions(defines=("__OPENCL_VERSION__=120",))
    assert "store i32 120" in ir_of(Source(text, "opencl", build=build))
