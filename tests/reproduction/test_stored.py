"""Results pages are made again from what is stored, without the hardware, and differ in nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apportion.errors import MalformedInput, UnreadableFile
from reproduction.__main__ import main
from reproduction.corpus_opencl.run import STORED as CORPUS
from reproduction.stored import keep, kept

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def _made(out: Path, *words: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--out", str(out)])
    assert not stopped.value.code


def test_a_stored_value_comes_back_and_equal_values_give_equal_files(tmp_path: Path):
    one, other = tmp_path / "one.json.gz", tmp_path / "other.json.gz"
    for path in (one, other):
        keep(path, {"a": [1, 2.5, None]})
    assert kept(one, made_by="it") == {"a": [1, 2.5, None]}
    assert one.read_bytes() == other.read_bytes()


def test_a_lost_or_damaged_file_says_which_command_makes_it(tmp_path: Path):
    with pytest.raises(UnreadableFile, match="Make it with: the command"):
        kept(tmp_path / "lost.json.gz", made_by="the command")
    damaged = tmp_path / "damaged.json.gz"
    keep(damaged, [1])
    damaged.write_bytes(damaged.read_bytes()[:12])
    with pytest.raises(MalformedInput, match="Make it with: the command"):
        kept(damaged, made_by="the command")


def test_the_pages_about_scheduling_are_those_that_are_there(tmp_path: Path):
    _made(tmp_path, "scheduling")
    for name in ("scheduling-reference.md", "scheduling-policies.md"):
        assert (tmp_path / name).read_text() == (RESULTS / name).read_text()


@pytest.mark.skipif(not CORPUS.exists(), reason="the last run of corpus-opencl was not stored")
def test_the_page_about_published_kernels_is_the_one_that_is_there(tmp_path: Path):
    _made(tmp_path / "page.md", "corpus-opencl", "--stored")
    assert (tmp_path / "page.md").read_text() == (RESULTS / "corpus-opencl.md").read_text()


def test_the_page_about_tuning_is_the_one_that_is_there(tmp_path: Path):
    _made(tmp_path / "page.md", "tuning", "--stored", "--keep", str(RESULTS / "tuning.npz"))
    assert (tmp_path / "page.md").read_text() == (RESULTS / "tuning.md").read_text()


def test_the_page_about_collections_is_the_one_that_is_there_but_for_last_digits(tmp_path: Path):
    folder = RESULTS.parents[1] / "experiments" / "collections"
    names = ("h200-triton", "cpu-tiles", "cpu-layouts", "h200-xla-gemm")
    words = ["collect", "describe", *(str(folder / name) for name in names), "--budgets", "12", "24"]
    _made(tmp_path / "page.md", *words, "--seeds", "3")
    _alike(tmp_path / "page.md", RESULTS / "collections.md")


def test_the_page_about_kernels_never_seen_is_the_one_that_the_shipped_models_make(
    shared_data: Path, tmp_path: Path
):
    if not (shared_data / "chai").is_dir():
        pytest.skip(f"CHAI's kernels are not in {shared_data}")
    _made(tmp_path / "page.md", "unseen", "--data", str(shared_data / "chai"))
    _alike(tmp_path / "page.md", RESULTS / "unseen.md")


def _alike(made: Path, there: Path) -> None:
    """The same words and numbers; forests and least squares differ in the last digits between processors."""
    texts = [re.sub(r"^- Made with .*$", "", path.read_text(), flags=re.MULTILINE) for path in (made, there)]
    number = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
    assert number.sub("#", texts[0]) == number.sub("#", texts[1])
    values = [[float(one.replace(",", "")) for one in number.findall(text)] for text in texts]
    assert values[0] == pytest.approx(values[1], rel=0.05, abs=0.05)
