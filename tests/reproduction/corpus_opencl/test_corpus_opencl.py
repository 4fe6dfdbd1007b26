"""Kernels of packages: what counts as compiled on which route, and what the page says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ziglang")

from reproduction.corpus_opencl.packages import Package
from reproduction.corpus_opencl.page import page
from reproduction.corpus_opencl.stages import KernelRow, rows_of

PLAIN = "kernel void plain(global float *x) { x[get_global_id(0)] *= 2; }\n"


def package(folder: Path, files: dict[str, str], **fields: object) -> Package:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    values = {"options": "", **fields}
    return Package("made", "debian", "made_1.0", folder, **values)  # type: ignore[arg-type]


def test_a_file_takes_the_first_route_on_which_a_kernel_comes_out(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        {
            "plain.cl": PLAIN,
            "typed.cl": "kernel void typed(global T *x) { x[get_global_id(0)] *= 2; }\n",
            "hidden.cl": "#ifdef OP\nkernel void hidden(global int *x) { x[get_global_id(0)] *= 2; }\n#endif\n",
            "guessed.cl": "kernel void guessed(global U *x) { x[get_global_id(0)] = SIZE; }\n",
            "wrong.cl": "kernel void wrong(global int *x) { x[0] = ; }\nkernel void two() {}\n",
        },
        options="-D T=float",
        forms=(("hidden", "-D OP"),),
    )
    rows = {path.stem: rows_of(made, path) for path in made.files()}
    assert {name: [row.route for row in found] for name, found in rows.items()} == {
        "plain": ["as given"], "typed": ["with the package's options"],
        "hidden": ["with the package's options"], "guessed": ["with guesses"], "wrong": [""],
    }  # fmt: skip
    assert [row.unread for row in rows["wrong"]] == [2]
    assert [rows[name][0].not_given.partition(": ")[2][:22] for name in ("plain", "typed", "guessed")] == [
        "", "unknown type name 'T'.", "unknown type name 'U'.",
    ]  # fmt: skip
    assert "leave out every kernel" in rows["hidden"][0].not_given
    assert all(row.predicted and row.graph for name in ("plain", "typed") for row in rows[name])


def test_kernels_of_files_that_are_put_before_are_not_counted_again(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        {"plain.cl": PLAIN, "more.cl": PLAIN.replace("plain(", "more(")},
        options="-include plain.cl -D N",
    )
    (tmp_path / "more.cl").write_text("#ifndef N\n#error N\n#endif\n" + (tmp_path / "more.cl").read_text())
    assert [row.kernel for row in rows_of(made, tmp_path / "more.cl")] == ["more"]


def test_options_of_a_form_replace_those_of_the_package_and_arrays_have_two_dimensions_or_three(
    tmp_path: Path,
) -> None:
    made = package(
        tmp_path,
        {"copy_2d.cl": "IMAGE_src_TYPE IMAGE_dst_TYPE"},
        options="-D depth=5 -D T=float",
        forms=(("copy", "-U depth -D MORE=1"),),
        name_pattern=r"IMAGE_(\w+?)_TYPE",
        each=("POS_{n}=int4",),
        flat=(("int4", "int2"),),
    )
    builds = [build.defines for build in made.builds(tmp_path / "copy_2d.cl")]
    first = ("T=float", "MORE=1")
    assert builds[0] == (*first, "POS_dst=int2", "POS_src=int2")  # as its name says
    assert builds[1:] == [
        (*first, "POS_dst=int4", "POS_src=int4"),
        (*first, "POS_dst=int2", "POS_src=int4"),
        (*first, "POS_dst=int4", "POS_src=int2"),
    ]


def test_the_page_counts_kernels_of_files_that_nobody_could_read_and_sets_held_out_packages_apart(
    tmp_path: Path,
) -> None:
    rows = [
        KernelRow("made", "a.cl", "k", "as given", True, True, 0, True, True, True),
        KernelRow("made", "b.cl", unread=3, reason="b.cl:1: unknown type name 'T'"),
        KernelRow("new", "c.cl", "k", "as given", True, True, 0, True),
        *(
            KernelRow(
                "made",
                "d.cl",
                name,
                "with guesses",
                True,
                True,
                0,
                True,
                not_given="d.cl:1: 'h' file not found",
            )
            for name in ("k", "l")
        ),
    ]
    known = [
        Package("made", "debian", "made_1.0", tmp_path, ""),
        Package("new", "pypi", "new-2", tmp_path, "", held_out=True),
    ]
    said = page(rows, known)
    assert "| kernels that compile as they are | 2 of 7 | 28.6% (8.2% to 64.1%) | 70 % |" in said
    assert "about 3 kernels in files that compile on no route" in " ".join(said.split())
    assert "Of the others, 1 of 6 kernels" in said
    held = said.partition("## Packages that nobody had looked into")[2].partition("## Packages")[0]
    assert "| kernels that compile as they are | 1 of 1 |" in held
    assert "| a macro or type is missing | 1 |" in said
    late = said.partition("Files that compile only with options or guesses (1):")[2]
    assert "| a header is missing | 1 | `made/d.cl`: d.cl:1: 'h' file not found |" in late
