"""Build options in words, and the files that projects say them in."""

from __future__ import annotations

import json
import random
import shlex
import time
from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, MalformedInput
from apportion.program.buildfile import NOTHING, BuildOptions, beside, parsed, words_of
from apportion.program.compile import CompileOptions, driver_options, driver_text, effective, ir_of
from apportion.program.source import Source

KERNEL = "kernel void f(global int *x) { x[get_global_id(0)] = WIDTH; }\n"


def test_options_are_read_as_a_driver_reads_them() -> None:
    found = parsed(words_of('-DN=5 -D "MODE=a b" -U DEBUG -I inc -cl-std=CL1.2 -cl-fast-relaxed-math'))
    assert found.defines == ("N=5", "MODE=a b")
    assert found.undefined == ("DEBUG",)
    assert found.include_paths == (Path("inc"),)
    assert found.standard == "CL1.2"
    assert found.flags == ("-cl-fast-relaxed-math",)


def test_options_of_one_vendor_are_told_to_be_without_effect() -> None:
    assert parsed(["-cl-nv-verbose", "-cl-mad-enable"]) == BuildOptions(
        flags=("-cl-mad-enable",), ignored=("-cl-nv-verbose",)
    )


@pytest.mark.parametrize("words", ["-Xlinker", "-D", "--config=/etc/passwd", "file.o", "'open"])
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(InvalidSetting):
        parsed(words_of(words))


def test_the_user_wins_over_the_project(tmp_path: Path) -> None:
    (tmp_path / "apportion.toml").write_text('[build]\ndefine = ["WIDTH=3", "A"]\n')
    (tmp_path / "k.cl").write_text(KERNEL)
    assert "store i32 3," in ir_of(Source.read(tmp_path / "k.cl"))
    mine = Source.read(tmp_path / "k.cl", build=BuildOptions(defines=("WIDTH=4",)))
    assert mine.build.defines == ("A", "WIDTH=4")
    assert "store i32 4," in ir_of(mine)
    assert "store i32 5," in ir_of(mine, CompileOptions(defines=("WIDTH=5",)))
    assert driver_options(mine, CompileOptions(standard="1.2")) == "-cl-std=CL1.2"
    text = driver_text(mine, CompileOptions(standard="1.2"))
    assert text.startswith("#define A 1\n#define WIDTH 4\n#line 1 ")


def test_a_file_has_settings_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "apportion.toml").write_text(
        '[build]\noptions = "-DWIDTH=3 -cl-std=CL1.2"\n[build."k.cl"]\ndefine = ["WIDTH=7"]\n'
    )
    assert beside(tmp_path / "k.cl").defines == ("WIDTH=7",)
    assert beside(tmp_path / "other.cl").defines == ("WIDTH=3",)
    assert beside(tmp_path / "k.cl").standard == "CL1.2"


def test_compile_commands_are_read(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "k.c").write_text("int f(void) { return WIDTH; }\n")
    command = "cc -DWIDTH=9 -Iinc -O2 -Wall -o k.o -c k.c"
    (tmp_path / "compile_commands.json").write_text(
        json.dumps([{"directory": str(tmp_path), "file": "k.c", "command": command}])
    )
    found = Source.read(tmp_path / "k.c")
    assert "ret i32 9" in ir_of(found)
    assert effective(found, CompileOptions()).include_paths == (tmp_path / "inc",)


def test_a_project_cannot_open_folders_outside_its_own(tmp_path: Path) -> None:
    inside = tmp_path / "project"
    inside.mkdir()
    (tmp_path / "secret.h").write_text("the secret\n")
    (inside / "apportion.toml").write_text(
        '[build]\ninclude = ["..", "/etc"]\noptions = "-include ../secret.h"\n'
    )
    (inside / "k.cl").write_text('#include "secret.h"\n' + KERNEL)
    found = Source.read(inside / "k.cl")
    assert found.build.include_paths == ()
    assert "the secret" not in str(found.text)
    assert len(found.build.ignored) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[build", "is not TOML"),
        ("[build]\nflags = 3\n", "no setting 'flags'"),
        ("[build]\ndefine = 3\n", "a list"),
    ],
)
def test_a_wrong_build_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "apportion.toml").write_text(text)
    with pytest.raises(MalformedInput, match=said) as caught:
        beside(tmp_path / "k.cl")
    assert caught.value.file == str(tmp_path / "apportion.toml")


def test_without_a_build_file_nothing_is_said(tmp_path: Path) -> None:
    assert beside(tmp_path / "k.cl") == NOTHING


def test_flags_change_the_code(tmp_path: Path) -> None:
    text = "kernel void f(global float *x) { x[0] = x[1] * x[2] + x[3]; }\n"
    relaxed = Source(text, "opencl", build=BuildOptions(flags=("-cl-fast-relaxed-math",)))
    assert "reassoc" in ir_of(relaxed)
    assert "reassoc" not in ir_of(Source(text, "opencl"))


def test_python_takes_the_words_of_a_build(tmp_path: Path) -> None:
    (tmp_path / "f.cl").write_text("kernel void f(global T *x) { *x = N; }\n")
    source = Source.read(tmp_path / "f.cl", build='-D "T=unsigned int" -DN=5 -cl-fast-relaxed-math')
    assert "store i32 5" in ir_of(source)
    with pytest.raises(InvalidSetting, match="The build option '--frobnicate' is not known"):
        Source.read(tmp_path / "f.cl", build="--frobnicate")


def test_reading_options_takes_time_in_proportion_to_their_number():
    """A hundred thousand took minutes: a case of `python -m reproduction.fuzzing.repetition`."""
    started = time.process_time()
    found = parsed(words_of("-I inc -DA -U B -w " * 100_000))
    assert len(found.include_paths) == len(found.defines) == len(found.flags) == 100_000
    assert time.process_time() - started < 20  # of a processor, of which it takes two


def test_words_are_those_of_a_shell():
    draws = random.Random(1)
    for _ in range(5_000):
        text = "".join(draws.choice("ab \t\n'\"\\-=<#") for _ in range(draws.randrange(12)))
        try:
            wanted = shlex.split(text)
        except ValueError:
            with pytest.raises(InvalidSetting):
                words_of(text)
        else:
            assert words_of(text) == wanted, text


def test_a_long_word_takes_time_in_proportion_to_its_length():
    """A million characters took a minute: a case of `python -m reproduction.fuzzing.repetition`."""
    started = time.process_time()
    assert len(words_of("-DA=" + "<" * 1_000_000 + '"' + '\\"' * 1_000_000 + '"')) == 1
    assert time.process_time() - started < 20  # of a processor, of which it takes a half
