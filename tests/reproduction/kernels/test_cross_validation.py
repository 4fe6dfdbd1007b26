"""Cross-validation of kernel predictors, on forty kernels made here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion.data.folds import folds_of
from apportion.data.records import Example
from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.shares.kernel_table import KernelTable, table_of
from apportion.learn.shares.nearest_launches import EXTENTS
from apportion.learn.shares.shipping import ship
from apportion.learn.shares.trees import PooledSettings
from reproduction.kernels.ceiling import neighbours
from reproduction.kernels.cross_validation import CHOSEN, Comparison, Entry, measures_of, predict, run
from reproduction.kernels.page import page

IR = """
define void @k(float* %x) {{
  %v0 = load float, float* %x
{body}
  ret void
}}
"""
COUNTS = {"comp": 3.0, "rational": 0.0, "mem": 1.0, "localmem": 0.0, "coalesced": 1.0, "atomic": 0.0}


def example(number: int) -> Example:
    """Kernels with many additions run faster on the GPU, whatever their application is."""
    adds = number % 10
    body = "\n".join(f"  %v{i + 1} = fadd float %v{i}, 1.0" for i in range(adds))
    application = f"s{number // 20}-a{number // 4}"
    return Example(
        f"row{number}", f"s{number // 20}", application, "k", f"source {number // 2}", IR.format(body=body),
        1024 * number, 64, cpu_time=1.0, gpu_time=2.0 - 0.19 * adds, counts=COUNTS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def table() -> KernelTable:
    return table_of("cgo17-nvidia", [example(number) for number in range(40)], 41)


def comparison(task: str = "load-balance", repetitions: int = 2) -> Comparison:
    return Comparison(
        task,  # type: ignore[arg-type]
        ("cgo17-nvidia",),
        {"thesis": repetitions, "application": 1},
        (
            Entry("always 50", "constant", value=50.0),
            Entry("median", "median"),
            Entry("look-up", "look-up"),
            Entry("tree", "decision-tree", candidate=True),
            Entry("no code", "decision-tree", features="inputs", candidate=True),
        ),
    )


def test_a_tree_on_code_beats_what_does_not_look_at_it(table: KernelTable, tmp_path: Path) -> None:
    scores = run(comparison(), {"cgo17-nvidia": table}, tmp_path / "r.jsonl", report=lambda _: None)
    found = {(score.row, score.protocol): score.measures["mae"].value for score in scores}
    assert found["tree", "thesis"] < 2 < found["no code", "thesis"]
    assert found["tree", "thesis"] < found["median", "thesis"]
    assert found[CHOSEN, "thesis"] == found["tree", "thesis"]
    assert {score.tested for score in scores} == {40}


def test_finished_answers_are_not_made_again_and_a_broken_line_is_passed_over(
    table: KernelTable, tmp_path: Path
) -> None:
    kept = tmp_path / "r.jsonl"
    tables = {"cgo17-nvidia": table}
    first = run(comparison(), tables, kept, report=lambda _: None)
    lines = kept.read_text().splitlines()
    # Five rows on test folds (two repetitions of ten, one of ten applications), two on validation folds.
    assert len(lines) == 5 * (20 + 10) + 2 * (10 + 10)
    # One answer is lost, one is cut off in the middle, and one says what no predictor said.
    told = json.loads(lines[0])
    assert told["row"] == "always 50"
    told["answers"] = [0.0] * len(told["answers"])
    kept.write_text("\n".join([json.dumps(told), *lines[2:], lines[1][:50]]))
    again = run(comparison(), tables, kept, report=lambda _: None)
    assert len(kept.read_text().splitlines()) == len(lines)
    mae = {score.row: score.measures["mae"].value for score in first if score.protocol == "thesis"}
    changed = {score.row: score.measures["mae"].value for score in again if score.protocol == "thesis"}
    assert changed["tree"] == mae["tree"]
    assert changed["always 50"] > mae["always 50"]


def test_a_row_that_is_run_once_has_one_repetition(table: KernelTable, tmp_path: Path) -> None:
    rows = (Entry("tree", "decision-tree"), Entry("slow", "median", once=True))
    asked = Comparison("load-balance", ("cgo17-nvidia",), {"thesis": 3}, rows)
    scores = run(asked, {"cgo17-nvidia": table}, tmp_path / "r.jsonl", report=lambda _: None)
    assert {score.row: score.repetitions for score in scores} == {"tree": 3, "slow": 1}


def test_the_chosen_row_is_the_best_on_validation_rows_of_other_folds(
    table: KernelTable, tmp_path: Path
) -> None:
    scores = run(comparison(), {"cgo17-nvidia": table}, tmp_path / "r.jsonl", report=lambda _: None)
    chosen = next(score for score in scores if score.row == CHOSEN and score.protocol == "thesis")
    assert chosen.chosen["mae"] == "tree"
    validated = {score.row: score.validation for score in scores if score.protocol == "thesis"}
    assert validated["tree"]["mae"] < validated["no code"]["mae"]
    assert validated["median"] == {}


def test_rows_that_learn_the_same_are_fitted_once(table: KernelTable) -> None:
    one, two = (Entry(name, "pooled", asked={"answer": name}) for name in ("code", "inputs"))
    assert one.fit_key() == two.fit_key()
    assert one.answer_key() != two.answer_key()
    assert Entry("x", "pooled", settings={"trees": 9}).fit_key() != one.fit_key()


def test_a_look_up_answers_by_the_same_source_and_else_by_the_median(table: KernelTable) -> None:
    fold = folds_of("source", table.origins, seed=1)[0]
    asked = predict(Entry("look-up", "look-up"), table, fold, 1)
    assert set(asked.tolist()) == {float(np.median(table.shares[fold.train]))}
    fold = folds_of("thesis", table.origins, seed=1)[0]
    assert len(set(predict(Entry("look-up", "look-up"), table, fold, 1).tolist())) > 1


def test_measures_of_a_perfect_answer(table: KernelTable) -> None:
    rows = np.arange(40)
    perfect = measures_of("load-balance", table, rows, table.shares)
    assert (perfect["mae"], perfect["rmse"], perfect["classes"]) == (0, 0, 1)
    # Labels are whole percents, so that even they are not quite the best share.
    assert perfect["of_oracle"] == pytest.approx(1, abs=0.02)
    assert perfect["over_cpu"] > 1
    assert perfect["over_gpu"] > 1
    halves = measures_of("load-balance", table, rows, np.full(40, 50.0))
    assert halves["regret"] > perfect["regret"] >= 0
    mapped = measures_of("device-mapping", table, rows, 100 * (1 - table.to_gpu))
    assert (mapped["accuracy"], mapped["of_oracle"], mapped["regret"]) == (1, 1, 0)
    always_cpu = measures_of("device-mapping", table, rows, np.full(40, 100.0))
    assert always_cpu["over_cpu"] == 1
    assert always_cpu["regret"] > 0


def test_the_page_names_rows_used_protocols_and_the_command(table: KernelTable, tmp_path: Path) -> None:
    tables = {"cgo17-nvidia": table}
    scores = run(comparison(), tables, tmp_path / "r.jsonl", report=lambda _: None)
    written = page(comparison(), tables, scores)
    assert "40 of 41 rows used" in written
    assert "| predictor | random (leaks) | one application out |" in written
    assert "`python -m reproduction load-balance`" in written
    assert "| *thesis, published* | 7.324 |  |" in written
    assert "### chosen by validation rows" in written
    assert "## The ceiling" in written
    assert "| class | 0 | 25 | 50 | 75 | 100 |" in written


def test_the_page_holds_targets_against_the_shipped_row(table: KernelTable, tmp_path: Path) -> None:
    asked = Comparison(
        "load-balance", ("cgo17-nvidia",), {"thesis": 2}, (Entry("pooled forests", "pooled", settings={"trees": 6}),)
    )  # fmt: skip
    scores = run(asked, {"cgo17-nvidia": table}, tmp_path / "r.jsonl", report=lambda _: None)
    level = {"confidence": 0.9, "of_rows": 0.91, "of_applications": 0.9, "width": 60.0}
    written = page(asked, {"cgo17-nvidia": table}, scores, coverage={"cgo17-nvidia": [level]}, figures={})
    assert "| cgo17-nvidia | mean absolute error | random (leaks) | 5.2 |" in written
    any_row = neighbours(table)[0]
    line = next(
        text for text in written.splitlines() if "five-class accuracy | random (leaks) | 0.83" in text
    )
    assert line.endswith(f"| {1 - any_row.wrong_class:.3f}, at most {any_row.best_accuracy(5):.3f} |")
    assert "| cgo17-nvidia | 90% | 91.0% | 90.0% | 60.0 |" in written


def test_the_page_names_the_rows_that_reach_a_target_which_the_shipped_one_misses(
    table: KernelTable, tmp_path: Path
) -> None:
    rows = (
        Entry("pooled forests", "constant", value=90.0),
        Entry("constant", "constant", value=40.0),
        Entry("trees", "extra-trees", settings={"trees": 9}),
    )
    asked = Comparison("load-balance", ("cgo17-nvidia",), {"thesis": 1}, rows)
    scores = run(asked, {"cgo17-nvidia": table}, tmp_path / "r.jsonl", report=lambda _: None)
    written = page(asked, {"cgo17-nvidia": table}, scores, networks=["## Networks", "", "None."])
    assert "- cgo17-nvidia, mean absolute error, random (leaks), 5.2: trees " in written
    assert "nothing but the test rows" in written
    assert "## Networks\n\nNone.\n\n## What was tried" in written
    better = replace(asked, rows=(Entry("pooled forests", "extra-trees", settings={"trees": 9}), *rows[1:]))
    scores = run(better, {"cgo17-nvidia": table}, tmp_path / "r.jsonl", report=lambda _: None)
    assert "nothing but the test rows" not in page(better, {"cgo17-nvidia": table}, scores)


def test_rows_protocols_and_features_must_exist() -> None:
    with pytest.raises(UnknownName, match="No set of features called 'ast'"):
        Entry("x", "median", features="ast")
    with pytest.raises(UnknownName, match="No protocol called 'holdout'"):
        Comparison("load-balance", (), {"holdout": 1}, ())
    with pytest.raises(InvalidSetting, match="a name of its own"):
        Comparison("load-balance", (), {}, (Entry("x", "median"), Entry("x", "median")))


def test_a_shipped_models_intervals_hold_on_applications_it_has_not_seen(table: KernelTable) -> None:
    model, coverage = ship(table, settings=PooledSettings(trees=12), report=lambda _: None)
    assert [level.confidence for level in coverage] == [0.5, 0.8, 0.9]
    assert all(level.of_applications >= level.confidence for level in coverage)
    assert model.about["rows"] == 40
    seen = model.estimate(table.code[9], table.inputs[9], confidence=0.7)
    assert seen.share == pytest.approx(table.shares[9], abs=3)
    assert model.features == table.columns
    assert seen.familiarity == 1.0


@pytest.mark.parametrize("target", ["share", "shares", "class", "log-odds", "device"])
def test_every_target_is_answered_as_a_share(table: KernelTable, tmp_path: Path, target: str) -> None:
    both = replace(table, others=100 - table.shares)
    rows = (Entry("trees", "extra-trees", target=target, settings={"trees": 9}),)  # type: ignore[arg-type]
    asked = Comparison("load-balance", ("cgo17-nvidia",), {"thesis": 1}, rows)
    (score,) = run(asked, {"cgo17-nvidia": both}, tmp_path / "r.jsonl", report=lambda _: None)
    # Forty shares from 8 to 67 percent; classes lose what lies between them, and devices all but the side.
    assert score.measures["mae"].value < {"class": 8, "device": 45}.get(target, 3)


def test_shares_beside_another_gpu_are_part_of_the_fingerprint(table: KernelTable) -> None:
    assert replace(table, others=100 - table.shares).digest != table.digest
    assert table.every_share.shape == (40, 1)
    assert replace(table, others=100 - table.shares).every_share.shape == (40, 2)


def test_a_set_of_features_may_leave_out_what_constants_say(table: KernelTable) -> None:
    width = table.features("code").shape[1]
    assert table.features("code without numbers").shape[1] == width - len(EXTENTS)


def test_pre_trained_features_tell_graphs_apart_and_equal_ones_not(table: KernelTable) -> None:
    pytest.importorskip("torch")
    rows = table.features("pre-trained")[:, : -table.inputs.shape[1]]
    assert rows[0].tolist() == rows[10].tolist()
    assert len(np.unique(rows.round(6), axis=0)) == 10


def test_the_page_says_plainly_where_a_constant_answer_is_no_worse(
    table: KernelTable, tmp_path: Path
) -> None:
    rows = (Entry("median", "median"), Entry("pooled forests", "constant", value=90.0))
    asked = Comparison("load-balance", ("cgo17-nvidia",), {"thesis": 1}, rows)
    scores = run(asked, {"cgo17-nvidia": table}, tmp_path / "r.jsonl", report=lambda _: None)
    written = page(asked, {"cgo17-nvidia": table}, scores)
    assert "random (leaks): `pooled forests` **is not better than a constant answer**" in written
    assert "| pooled forests | the shipped ensemble |" in written
