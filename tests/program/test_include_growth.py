"""One construct of a source, repeated: time and memory of the scan grow no faster than the text."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from apportion.errors import CompileError
from apportion.program.includes import check_text
from apportion.program.untrusted import check_runnable

GROWING = {
    "blanks after a condition (H5)": ("#if defined", " ", "x\n"),
    "blanks after a hash": ("#", " ", "x\n"),
    "directives": ("", "#define ", ""),
    "continued blanks": ("", "\\ ", ""),
    "continued lines": ("", "\\\n", ""),
    "questions": ("#define ", "__has_include(", ""),
    "a string (H5)": ('"', "a", '"'),
    "a string of escapes": ('"', "\\a", '"'),
    "quotes": ("", '"', ""),
    "apostrophes": ("", "'", ""),
    "stars in a comment": ("/*", "*", ""),
    "comments in a comment": ("", "/*", ""),
    "raw strings": ("", 'R"(', ""),
    "marked raw strings": ("", 'R"abc(', ""),
    "pastings": ("", "## ", "__has_"),
    "defined": ("", "defined(", ""),
    "includes": ("", '#include "a.h"\n', ""),
    "brackets": ("#include <", "a", ""),
    "names": ("", "__has_", ""),
    "conditions": ("", "#if A\n", ""),
}


def scanned(text: str) -> tuple[float, int]:
    """Seconds, and the most bytes of memory at once."""
    started = time.process_time()
    for check in (lambda: check_text(text, "k.cl"), lambda: check_runnable(text, "", "k.cl")):
        try:
            check()
        except CompileError:
            continue
    seconds = time.process_time() - started
    tracemalloc.start()
    try:
        check_text(text, "k.cl")
    except CompileError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return seconds, most


@pytest.mark.parametrize("name", GROWING)
def test_the_scan_of_a_repeated_construct_is_linear(name: str) -> None:
    start, repeated, end = GROWING[name]
    small = start + repeated * 5_000 + end
    large = start + repeated * 50_000 + end
    # The least of some: other programs on the machine only add to a time.
    few = min(scanned(small)[0] for _ in range(3))
    many, most = min(scanned(large) for _ in range(2))
    assert many < 25 * few + 0.3  # ten times as long; a quadratic scan takes a hundred times as much
    assert most < 60 * len(large) + (1 << 20)


def test_a_text_that_no_program_is_as_long_as_is_not_looked_at() -> None:
    started = time.process_time()
    with pytest.raises(CompileError, match="more than the 67,108,864 of the largest"):
        check_text(" " * (65 << 20), "k.cl")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text",
    [
        '#define J(a,b) a##b\n#if J(__has_,include)("/etc/shadow")\n#endif\n',
        '#define J(a,b) a##b\n#define H J(__ha,s_include)\n#define F "/etc/shadow"\n#if H(F)\n#endif\n',
        "#define J(a,b) a%:%:b\n#if J(__has_embed,)\n#endif\n#define K J(__has,_embed)\n",
    ],
)
def test_existence_of_a_file_cannot_be_asked_by_a_macro(text: str) -> None:
    with pytest.raises(CompileError, match=r"__has_|spell"):
        check_text(text, "k.c")


def test_a_string_that_would_be_raw_elsewhere_hides_no_include() -> None:
    with pytest.raises(CompileError, match="may not be included"):
        check_text('char *R = R"(";\n#include "/etc/shadow"\n//)"\n', "k.c")
    check_text('auto s = R"(\n#include "ours.h"\n)";\n', "k.cc")


@pytest.mark.parametrize(
    "text",
    [
        '// a\r#include "/etc/shadow"\n',
        '// a\r\n#inc\\\r\nlude "/etc/shadow"\n',
        '#inc\\\rlude "/etc/shadow"\n',
        '// a ??/\n#include "/etc/shadow"\n',
        '"??/" "/*\n#include "/etc/shadow"\n',
    ],
)
def test_a_line_ends_where_any_compiler_ends_it(text: str) -> None:
    with pytest.raises(CompileError, match="may not be included"):
        check_text(text, "k.c")
