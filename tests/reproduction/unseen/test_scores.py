"""Kernels never seen, against measured shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.advise.queries import read_queries
from apportion.errors import InvalidSetting
from reproduction.unseen.scores import evaluate, levels, page

KERNEL = """
declare i64 @_Z13get_global_idj(i32)
define spir_kernel void @scale(float* %x) {
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, float* %x, i64 %i
  %v = load float, float* %p
  store float %v, float* %p
  ret void
}
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "a.ll").write_text(KERNEL)
    (tmp_path / "b.ll").write_text(KERNEL.replace("load", "load volatile"))
    path = tmp_path / "measured.csv"
    path.write_text(
        "source,local_size,bytes,cpu_share\na.ll,64,4096,0.5\nb.ll,64,4194304,0.01\nc.ll,64,1,0.5\n"
    )
    return path


def test_any_table_of_measured_shares_is_evaluated(table: Path) -> None:
    kernels, left = evaluate(read_queries(table, needed=("cpu_share",)), "cgo17-nvidia")
    assert [kernel.measured for kernel in kernels] == [0.5, 0.01]
    assert len(left) == 1
    assert "c.ll" in left[0]
    found = {level.name: level for level in levels(kernels, "cgo17-nvidia")}
    assert found["always 0.5"].mae == pytest.approx((0 + 0.49) / 2)
    assert found["always 0.5"].within_10 == 1
    first = kernels[0]
    assert first.swept[0] <= first.regression <= first.swept[1]


def test_the_page_says_whether_the_bar_is_met_and_what_was_left_out(table: Path) -> None:
    kernels, left = evaluate(read_queries(table), "cgo17-nvidia")
    text = page({"cgo17-nvidia": kernels}, left, table)
    assert "The bar (mean error below 0.12" in text
    assert "## Left out" in text
    assert "always 0.5" in text
    assert "| b.ll | 64 | 4,194,304 |  |" in text
    assert "thesis" not in text.split("##")[0]  # a table of somebody else's has nothing to do with it


def test_shares_must_be_shares_and_something_must_be_left(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("source,local_size,bytes,cpu_share\na.ll,64,4096,50\n")
    with pytest.raises(InvalidSetting, match="cpu_share must lie between 0 and 1, not '50'"):
        evaluate(read_queries(path), "cgo17-nvidia")


def test_the_thesis_kernels_are_evaluated_beside_its_predictions(shared_data: Path) -> None:
    pytest.importorskip("ziglang")
    table = Path(__file__).parents[3] / "experiments" / "unseen-chai.csv"
    kernels, left = evaluate(read_queries(table, folder=shared_data / "chai"), "cgo17-nvidia")
    assert (len(kernels), left) == (8, [])
    found = {level.name: level for level in levels(kernels, "cgo17-nvidia")}
    # What the thesis reports, and what always answering one half reaches.
    assert found["thesis regression"].mae == pytest.approx(0.152, abs=5e-4)
    assert (found["thesis regression"].within_20, found["thesis regression"].within_10) == (6, 3)
    assert (found["always 0.5"].within_20, found["always 0.5"].within_10) == (6, 5)


def test_the_networks_answer_by_name_beside_the_same_constants(table: Path) -> None:
    pytest.importorskip("ziglang")
    kernels, _ = evaluate(read_queries(table), "gnn-load-balance")
    names = [level.name for level in levels(kernels, "gnn-load-balance")]
    forest, _ = evaluate(read_queries(table), "cgo17-nvidia")
    known = [level.name for level in levels(forest, "cgo17-nvidia")]
    assert names[0] == "gnn-load-balance, regression"
    # The same rows taught both, so that the constants are the same.
    assert [name for name in names if "always" in name] == [name for name in known if "always" in name]
    assert [one.regression for one in kernels] != [one.regression for one in forest]
