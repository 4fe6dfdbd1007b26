"""Sources: what files become, and what is said about files that cannot be read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.program import source as source_module
from apportion.program.buildfile import BuildOptions
from apportion.program.source import Source


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("a.ll", "llvm"),
        ("a.c", "c"),
        ("a.cc", "c++"),
        ("a.cpp", "c++"),
        ("a.cxx", "c++"),
        ("a.cl", "opencl"),
        ("a.ocl", "opencl"),
        ("a.opencl", "opencl"),
        ("A.CL", "opencl"),
    ],
)
def test_the_language_follows_from_the_name(tmp_path: Path, name: str, language: str) -> None:
    assert Source.read(written(tmp_path, name, b"int x;\n")).language == language


def test_a_language_that_is_given_wins(tmp_path: Path) -> None:
    assert Source.read(written(tmp_path, "a.txt", b"int x;\n"), "opencl").language == "opencl"


@pytest.mark.parametrize("magic", [b"BC\xc0\xde", b"\xde\xc0\x17\x0b"])
def test_bitcode_is_known_by_its_first_bytes_whatever_its_name(tmp_path: Path, magic: bytes) -> None:
    read = Source.read(written(tmp_path, "a.ll", magic + b"\x00\x01"))
    assert (read.language, read.text) == ("bitcode", magic + b"\x00\x01")


def test_the_digest_is_that_of_the_contents(tmp_path: Path) -> None:
    read = Source.read(written(tmp_path, "a.c", b"int x;\n"))
    assert read.digest == hashlib.sha256(b"int x;\n").hexdigest()
    assert Source("int x;\n", "c", "other name").digest == read.digest
    assert Source("int y;\n", "c").digest != read.digest


def test_windows_line_ends_and_a_byte_order_mark_make_no_difference(tmp_path: Path) -> None:
    plain = Source.read(written(tmp_path, "a.c", b"int x;\nint y;\n"))
    other = Source.read(written(tmp_path, "b.c", b"\xef\xbb\xbfint x;\r\nint y;\r\n"))
    assert other.text == plain.text
    assert other.digest == plain.digest


def test_bytes_that_are_not_utf8_are_kept(tmp_path: Path) -> None:
    data = b'const char *name = "Andr\xe9";\n'
    assert Source.read(written(tmp_path, "a.c", data)).data == data


def test_ir_that_is_not_utf8_still_prints(tmp_path: Path) -> None:
    read = Source.read(written(tmp_path, "a.ll", b"; Andr\xe9\ndefine void @f() { ret void }\n"))
    assert str(read.text).startswith("; André")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"^Cannot read .*absent\.c: No such file or directory$"):
        Source.read(tmp_path / "absent.c")


def test_a_folder_is_not_a_source(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="is a folder, not a file"):
        Source.read(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.c")
    with pytest.raises(UnreadableFile, match="is not a plain file"):
        Source.read(tmp_path / "pipe.c")


@pytest.mark.parametrize("data", [b"", b"\n\n  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(MalformedInput, match=r"a\.cl: the file is empty$"):
        Source.read(written(tmp_path, "a.cl", data))


def test_an_empty_module_of_ir_is_a_module(tmp_path: Path) -> None:
    (tmp_path / "a.ll").write_bytes(b"")
    assert Source.read(tmp_path / "a.ll").text == ""


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"a\.c is a binary file, not c source$"):
        Source.read(written(tmp_path, "a.c", b"\x7fELF\x02\x01\x01\x00\x00"))


def test_utf16_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"is written in UTF-16\. Save it as UTF-8\.$"):
        Source.read(written(tmp_path, "a.c", "int x;".encode("utf-16")))


def test_an_unknown_name_asks_for_the_language(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"Cannot tell the language of .*a\.rs from its name\."):
        Source.read(written(tmp_path, "a.rs", b"fn main() {}\n"))


def test_an_unknown_language_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"No language called 'opencll'\. Did you mean 'opencl'\?"):
        Source.read(written(tmp_path, "a.cl", b"int x;\n"), "opencll")


def test_text_called_bitcode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedInput, match="this is not LLVM bitcode"):
        Source.read(written(tmp_path, "a.bc", b"define void @f() { ret void }\n"))


def test_bitcode_called_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="holds LLVM bitcode, not llvm"):
        Source.read(written(tmp_path, "a.ll", b"BC\xc0\xde\x00"), "llvm")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "LARGEST_BYTES", 10)
    with pytest.raises(UnreadableFile, match="has 11 bytes; sources of more than 10 are not read"):
        Source.read(written(tmp_path, "a.c", b"int longer;"))


def test_half_a_character_is_refused() -> None:
    with pytest.raises(MalformedInput, match="not text that can be written"):
        Source('const char *x = "\ud800";', "c", "a.c")


def test_bitcode_is_bytes_and_the_rest_is_text() -> None:
    with pytest.raises(InvalidSetting, match="bitcode and SPIR-V are bytes, the rest str"):
        Source("int x;", "bitcode")
    with pytest.raises(InvalidSetting, match="bitcode and SPIR-V are bytes, the rest str"):
        Source(b"int x;", "c")


def test_kernels_that_stand_in_a_string_of_cpp_are_read_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "scale.opencl"
    path.write_text('// for #include into host code\nR"(\nkernel void k(global int *a) { a[0] = X; }\n)"\n')
    (tmp_path / "common.opencl").write_text('R"(\n#define X 1\n)" R"(\n#define Y 2\n)"\n')
    source = Source.read(path, build=BuildOptions(headers=(tmp_path / "common.opencl",)))
    assert source.language == "opencl"
    assert 'R"' not in str(source.text)
    assert ')"' not in str(source.text)
    assert str(source.text).endswith(
        f'#line 1 "{path}"\n// for #include into host code\n\nkernel void k(global int *a) {{ a[0] = X; }}\n\n'
    )


def test_opencl_c_in_a_file_that_is_named_after_cuda_can_be_run_and_cuda_cannot(tmp_path: Path) -> None:
    path = tmp_path / "lj.cu"
    path.write_text("__kernel void k_lj(__global float *x) { x[get_global_id(0)] = 0; }\n")
    assert Source.read(path, "opencl").language == "opencl"
    path.write_text('extern "C" __global__ void k(float *x) { x[threadIdx.x] = 0; }\n')
    with pytest.raises(InvalidSetting, match="is CUDA, which is read but not run"):
        Source.read(path, "opencl")


def test_cpp_for_opencl_is_known_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "box.clcpp"
    path.write_text(
        "template <class T> T twice(T x) { return x + x; }\nkernel void k(global int *x) { *x = twice(*x); }\n"
    )
    source = Source.read(path)
    assert (source.language, source.build.standard) == ("opencl", "CLC++")
    assert Source.read(path, build=BuildOptions(standard="CLC++2021")).build.standard == "CLC++2021"
