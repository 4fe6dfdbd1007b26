"""Binaries of Triton kernels: compiled for a GPU that is not here, kept, and found again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

import triton

from reproduction.collect import triton_binaries as tritonbinaries
from reproduction.collect.base import CollectOptions
from reproduction.collect.triton_binaries import binary, compile_all, compiled, label
from reproduction.collect.triton_collect import graphs
from reproduction.collect.triton_families import families

OPTIONS = CollectOptions(configurations=2, workers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("collection")
    lines = list(compile_all(made, OPTIONS, [families()["row_sum"]]))
    assert [line["failure"] for line in lines] == ["", ""]
    return made


def test_what_is_compiled_is_not_compiled_again(folder):
    assert list(compile_all(folder, OPTIONS, [families()["row_sum"]])) == []


def test_a_kept_binary_is_read_wherever_its_folder_lies(folder, tmp_path, monkeypatch):
    family = families()["row_sum"]
    moved = folder.rename(tmp_path / "moved")
    try:
        monkeypatch.setattr(triton, "compile", None)
        kernel = binary(moved, family, family.default)
        assert kernel.metadata.num_warps == family.default["num_warps"]
        assert kernel.kernel.startswith(b"\x7fELF")
    finally:
        moved.rename(folder)


def test_a_binary_of_other_kernels_is_not_taken(folder, monkeypatch):
    family = families()["row_sum"]
    monkeypatch.setattr(tritonbinaries, "_kernels", lambda: "changed")
    monkeypatch.setattr(triton, "compile", None)
    with pytest.raises(TypeError, match="NoneType"):
        binary(folder, family, family.default)


def test_a_line_that_was_cut_off_is_forgotten(folder, tmp_path):
    whole = (folder / tritonbinaries.COMPILED).read_text()
    (tmp_path / tritonbinaries.COMPILED).write_text(whole + '{"family": "row')
    assert compiled(tmp_path) == compiled(folder)
    assert json.loads(whole.splitlines()[0])["configuration"] == label(families()["row_sum"].default)


def test_every_kernel_gets_a_shape_before_any_gets_its_second():
    chosen = graphs(CollectOptions(shapes=2))
    names = [family.name for family, _ in chosen]
    assert len(names) == 2 * len(families())
    assert names[: len(families())] == list(families())
