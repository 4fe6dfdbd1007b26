"""The ablation on forty kernels made here: units, their files, scores, page and command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from apportion.data.folds import folds_of
from apportion.data.records import Example
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.jobs import LocalRunner
from apportion.learn.shares.kernel_table import KernelTable, table_of
from apportion.learn.shares.load_balance import classes_of
from apportion.learn.shares.network_settings import Fitting, KernelNetworkSettings
from apportion.program.llvm import graph_of_ir
from apportion.program.vocabulary import Vocabulary
from apportion.settings import load
from reproduction.ablation.launches import LAUNCH
from reproduction.ablation.page import FIGURE, TABLE_51, TABLE_52, write_page
from reproduction.ablation.rows import AblationData, data_of, pack, unpack
from reproduction.ablation.scores import EQUAL, PUBLISHED, measures_of, scores, weighted_rates
from reproduction.ablation.units import (
    Ablation,
    Average,
    NetworkRow,
    Unit,
    rows_of,
    run_over,
    run_units,
    shared_out,
    stacks,
    stamp,
    time_forward,
    units_of,
)
from reproduction.kernels.cross_validation import Entry

IR = """
define void @k(float* %x) {{
  %v0 = load float, float* %x
{body}
  ret void
}}
"""
COUNTS = {"comp": 3.0, "rational": 0.0, "mem": 1.0, "localmem": 0.0, "coalesced": 1.0, "atomic": 0.0}
SMALL = KernelNetworkSettings("messages", "skips", "extended", hidden=8, steps=2, dropout=0.0)
FITTING = Fitting(epochs=12, batch=16, learning_rate=3e-2, validate_every=4, prepared=2)


def example(number: int, *, faster: float = 1.0) -> Example:
    """Kernels with many additions run faster on the GPU, whatever their application is."""
    adds = number % 10
    body = "\n".join(f"  %v{i + 1} = fadd float %v{i}, 1.0" for i in range(adds))
    return Example(
        f"row{number}", f"s{number // 20}", f"s{number // 20}-a{number // 4}", "k", f"source {number // 2}",
        IR.format(body=body), 1024 * number, 64, cpu_time=1.0, gpu_time=faster * (2.0 - 0.19 * adds), counts=COUNTS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tables() -> dict[str, KernelTable]:
    return {
        "cgo17-nvidia": table_of("cgo17-nvidia", [example(i) for i in range(40)], 41),
        "cgo17-amd": table_of("cgo17-amd", [example(i, faster=2.0) for i in range(40)], 41),
    }


@pytest.fixture(scope="module")
def data(tables: dict[str, KernelTable]) -> AblationData:
    return data_of(tables, Vocabulary.of(graph_of_ir(example(i).ir) for i in range(10)))


@pytest.fixture(scope="module")
def plan() -> Ablation:
    return Ablation(
        (
            NetworkRow("Skips", SMALL, batch=8),
            NetworkRow("Mean Pooling + MLP", replace(SMALL, layers="none", pooling="mean"), ("regression",), 16),
            NetworkRow(
                "Device", replace(SMALL, pooling="gated-sum"), ("device-mapping",), 16, ("thesis",),
                pairs=("cgo17-amd", "cgo17-nvidia"), stack=5,
            ),
        ),
        (Entry("median", "median"), Entry("Grewe's features, linear", "linear", "grewe"), Entry("tree", "decision-tree")),
        (Average("both", "Skips", "tree"),),
        FITTING,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(plan: Ablation, data: AblationData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ablation")
    units = units_of(plan, data, protocols=["thesis"])
    run_units(plan, data, units, folder, device="cpu", report=lambda _: None)
    time_forward(plan, data, folder, device="cpu", report=lambda _: None)
    return folder


def test_equal_graphs_are_kept_once_and_labels_are_those_of_the_tables(
    data: AblationData, tables: dict[str, KernelTable]
) -> None:
    assert data.graphs.graphs == 10
    assert data.graph.tolist() == [i % 10 for i in range(40)]
    np.testing.assert_array_equal(data.pairs["cgo17-amd"].shares, tables["cgo17-amd"].shares)
    np.testing.assert_allclose(data.pairs["cgo17-amd"].inputs[3], np.log1p([64, 3072]), rtol=1e-6)


def test_what_is_packed_is_unpacked_with_the_same_folds(data: AblationData, tmp_path: Path) -> None:
    pack(data, tmp_path / "kernels.npz")
    again = unpack(tmp_path / "kernels.npz")
    assert again.digest == data.digest
    assert again.launch_digest == data.launch_digest
    np.testing.assert_array_equal(again.pairs["cgo17-amd"].launch, data.pairs["cgo17-amd"].launch)
    for protocol in ("thesis", "source", "application"):
        for one, other in zip(*(folds_of(protocol, d.origins, seed=1) for d in (data, again)), strict=True):
            assert np.array_equal(one.test, other.test)
            assert np.array_equal(one.train, other.train)


def test_a_file_that_was_never_packed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"none\.npz"):
        unpack(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    with pytest.raises(MalformedInput, match="lacks the array"):
        unpack(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(MalformedInput, match="no archive of arrays"):
        unpack(tmp_path / "text.npz")


def test_tables_of_other_rows_do_not_go_together(tables: dict[str, KernelTable]) -> None:
    fewer = table_of("cgo17-amd", [example(i) for i in range(39)], 41)
    with pytest.raises(InvalidSetting, match="the same rows in the same order"):
        data_of({"cgo17-nvidia": tables["cgo17-nvidia"], "cgo17-amd": fewer}, Vocabulary.numbered(["fadd"]))


def test_units_cover_each_row_form_batch_and_stack_once(plan: Ablation, data: AblationData) -> None:
    units = units_of(plan, data)
    assert len({unit.file for unit in units}) == len(units)
    skips = [unit for unit in units if unit.row == "Skips" and unit.protocol == "thesis"]
    assert sorted((unit.form, unit.batch) for unit in skips) == [
        ("classification", 8), ("classification", 16), ("regression", 8), ("regression", 16)
    ]  # fmt: skip
    device = [unit for unit in units if unit.row == "Device"]
    assert len(device) == 2 * 2
    folds = [fold.name for stack in stacks(plan, data, plan.row("Device"), "thesis", 16) for fold in stack]
    assert sorted(folds) == sorted(fold.name for fold in folds_of("thesis", data.origins, seed=1))


def test_folds_can_be_units_of_their_own(plan: Ablation, data: AblationData, tmp_path: Path) -> None:
    single = plan.stacked(1)
    folds = len(folds_of("thesis", data.origins, seed=1))
    units = units_of(single, data, protocols=["thesis"], rows=["Skips"], forms=["regression"])
    assert [unit.parts for unit in units] == [folds] * (2 * folds)  # two sizes of batches
    run_units(single, data, units[:2], tmp_path, device="cpu", report=lambda said: None)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == sorted(unit.file for unit in units[:2])
    assert plan.stacked(0) == plan
    with pytest.raises(InvalidSetting, match="stack must not be negative"):
        plan.stacked(-1)


def test_what_is_known_of_a_launch_reaches_the_readout_and_the_stamp(
    data: AblationData, tmp_path: Path
) -> None:
    rows = (
        NetworkRow("Plain", SMALL, ("regression",)),
        NetworkRow("Told", SMALL, ("regression",), launch=True),
        NetworkRow("Other seed", SMALL, ("regression",), seed=2, prepared=4),
    )
    plan = Ablation(rows, fitting=replace(FITTING, epochs=4))
    units = units_of(plan, data, protocols=["thesis"])
    assert rows_of(data, units[0]).inputs.shape == (40, 2)
    assert rows_of(data, units[0], launch=True).inputs.shape == (40, 2 + len(LAUNCH))
    assert (
        len(
            {
                stamp(plan, data, replace(unit, row=name))
                for unit in units[:1]
                for name in ("Plain", "Told", "Other seed")
            }
        )
        == 3
    )
    run_units(plan, data, units, tmp_path, device="cpu", report=lambda _: None)
    said = [json.loads((tmp_path / unit.file).read_text())["folds"][0]["last"] for unit in units]
    assert said[0] != said[1]
    assert said[0] != said[2]


def test_results_that_were_kept_before_a_setting_was_new_are_still_known(data: AblationData) -> None:
    plan = Ablation((NetworkRow("Skips", SMALL),))
    unit = units_of(plan, data, protocols=["thesis"])[0]
    known = stamp(plan, data, unit)
    told = Ablation((NetworkRow("Skips", SMALL, stack=5),))
    assert stamp(told, data, unit) == known
    both = Ablation((NetworkRow("Skips", replace(SMALL, both_ways=True)),))
    assert stamp(both, data, unit) != known


def test_workers_begin_at_different_units_and_cover_all(plan: Ablation, data: AblationData) -> None:
    units = units_of(plan, data)
    one, other = shared_out(units, 1, 2), shared_out(units, 2, 2)
    assert one[0] != other[0]
    assert set(one) == set(other) == set(units)
    assert [unit.protocol for unit in one] == sorted((u.protocol for u in units), reverse=True)
    with pytest.raises(InvalidSetting, match="I from 1 to N, not 3/2"):
        shared_out(units, 3, 2)


def test_names_that_are_not_there_are_refused(plan: Ablation, data: AblationData) -> None:
    for asked in ({"rows": ["Skip"]}, {"forms": ["ranking"]}, {"protocols": ["random"]}):
        with pytest.raises(UnknownName):
            units_of(plan, data, **asked)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="a name of its own"):
        Ablation((plan.rows[0], plan.rows[0]))
    with pytest.raises(InvalidSetting, match="'both' averages a row that is not there"):
        Ablation(plan.rows, (), (Average("both", "Skips", "forest"),))


def test_a_finished_unit_is_not_run_again_and_one_of_another_process_is_left_to_it(
    plan: Ablation, data: AblationData, finished: Path, tmp_path: Path
) -> None:
    units = units_of(plan, data, protocols=["thesis"])
    said: list[str] = []
    run_units(plan, data, units, finished, device="cpu", report=said.append)
    assert said == []
    unit = units[0]
    (tmp_path / unit.file).with_suffix(".claim").write_text("1")  # init lives as long as the machine
    run_units(plan, data, [unit], tmp_path, device="cpu", report=said.append)
    assert not (tmp_path / unit.file).exists()
    other = replace(plan, seed=2)
    (tmp_path / unit.file).write_bytes((finished / unit.file).read_bytes())
    (tmp_path / unit.file).with_suffix(".claim").write_text("999999999")  # of a process that is no more
    short = replace(other, fitting=replace(FITTING, epochs=1))
    run_units(short, data, [unit], tmp_path, device="cpu", report=said.append)
    assert json.loads((tmp_path / unit.file).read_text())["epochs"] == [1]


def test_networks_learn_and_scores_come_with_the_rows_that_look_at_no_graph(
    plan: Ablation, data: AblationData, tables: dict[str, KernelTable], finished: Path
) -> None:
    found = scores(plan, data, tables, finished, report=lambda _: None)
    by = {(s.row, s.form, s.pair, s.budget): s for s in found}
    assert {s.tested for s in found} == {40}
    assert {s.folds for s in found} == {10}
    learned = by["Skips", "regression", "cgo17-nvidia", PUBLISHED].main
    assert learned.value < by["median", "regression", "cgo17-nvidia", ""].main.value
    assert learned.low <= learned.value <= learned.high
    assert by["Skips", "classification", "cgo17-nvidia", EQUAL].main.value > 0.5
    assert by["tree", "classification", "cgo17-nvidia", ""].main.value > 0.9
    worse = by["Skips", "regression", "cgo17-nvidia", EQUAL].main.value
    assert by["both", "regression", "cgo17-nvidia", EQUAL].main.value < worse
    assert ("Device", "device-mapping", "cgo17-amd", PUBLISHED) in by
    paid = {row: by[row, "classification", "cgo17-nvidia", ""].measures for row in ("tree", "median")}
    assert paid["tree"]["of_oracle"].value > paid["median"]["of_oracle"].value
    assert 0 <= paid["tree"]["regret"].value < paid["median"]["regret"].value
    again = scores(plan, data, tables, finished, report=pytest.fail)
    assert again == found


def test_the_page_shows_what_was_measured_beside_what_was_published(
    plan: Ablation, data: AblationData, tables: dict[str, KernelTable], finished: Path, tmp_path: Path
) -> None:
    found = scores(plan, data, tables, finished, report=lambda _: None)
    write_page(plan, data, tables, found, finished, tmp_path / "ablation.md")
    text = (tmp_path / "ablation.md").read_text()
    assert "All 40 of 41 rows" in text
    assert "| Mean Pooling + MLP | 13.58 / 9.89 / 189.5 |" in text
    assert "(Linear Regression) | 23.08 / 19.41 / 534.1 |" in text
    assert "| the thesis' port, published | random (leaks) | 15.0 | 21.0 |" in text
    assert f"({FIGURE})" in text
    assert "Not run yet" not in text
    assert "Skips (not whole: classification by source (inputs leak)" in text
    assert "; Mean Pooling + MLP (not whole: " in text
    assert "### device-mapping, AMD" in text
    paid = text.split("### regression, NVIDIA")[1].split("###")[0]
    assert re.search(r"\| Skips \| as published \| [\d.]+ / [\d.]+ / 0\.\d+ \(\S+ to \S+\) / [\d.]+ \|", paid)
    why = text.split("## Why do rows stay below the thesis'?")[1]
    assert re.search(
        r"- Of \d+ rows, the intervals of the mean error of \d+ hold the thesis' level or are better", why
    )
    more = replace(plan, rows=(*plan.rows, NetworkRow("New", SMALL), NetworkRow("Newer", SMALL)))
    write_page(more, data, tables, found, finished, tmp_path / "more.md")
    assert "**Not run yet**, 2 of 5 networks: New; Newer." in (tmp_path / "more.md").read_text()
    figure = (tmp_path / FIGURE).read_text()
    assert figure.startswith("<svg")
    assert figure.count("<circle") == 2 + 1 + 2  # regression, classification, and the list of names


def test_decisions_cost_what_the_devices_take() -> None:
    cpu, gpu = np.array([1.0, 4.0]), np.array([2.0, 1.0])
    wrong = measures_of("device-mapping", (np.array([0.0, 1.0]), np.array([1.0, 1.0]), cpu, gpu))
    assert wrong["over_gpu"] == 1
    assert wrong["regret"] == pytest.approx((2 + 1) / (1 + 1) - 1)
    # Class 3 is 75 %: then the CPU is done after 0.75, the GPU after 0.5; the best share takes 2/3.
    shared = measures_of("classification", (np.array([3.0]), np.array([3.0]), cpu[:1], gpu[:1]))
    assert shared["of_oracle"] == pytest.approx((2 / 3) / 0.75)
    beyond = measures_of("regression", (np.array([66.0]), np.array([130.0]), cpu[:1], gpu[:1]))
    assert beyond["over_cpu"] == 1


def test_weighted_rates_are_those_of_the_published_code() -> None:
    truth, said = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 1, 1, 1])
    found = weighted_rates(truth, said)
    assert found["accuracy"] == found["recall"] == 0.6  # recall, weighted by class, is accuracy
    assert found["precision"] == pytest.approx(3 / 5 * 1 + 1 / 5 * 1 / 3)
    assert found["f1"] == pytest.approx(3 / 5 * 0.8 + 1 / 5 * 0.5)


def test_the_experiment_in_the_repository_has_every_row_of_both_tables() -> None:
    plan = load(Ablation, Path(__file__).parents[3] / "experiments" / "ablation.toml")
    networks = {name for name in (*TABLE_51, *TABLE_52) if name not in ("Decision Tree", "Linear Regression")}
    assert networks <= {row.name for row in plan.rows}
    assert {"Grewe's features, one tree", "Grewe's features, linear"} <= {row.name for row in plan.classical}
    assert all(plan.row(name).network.hidden == 64 for name in networks)
    assert {plan.row(name).batch for name in networks if "Diff" in name} == {32}
    assert (plan.fitting.epochs, plan.fitting.batch, plan.fitting.learning_rate) == (300, 256, 1e-3)


def test_a_unit_is_named_after_what_it_is() -> None:
    unit = Unit("(Skips + Ext. Readout) + ProGraML", "regression", "cgo17-nvidia", "thesis", 256)
    assert unit.file == "skips-ext-readout-programl.regression.nvidia.thesis.256.json"
    assert replace(unit, part=1, parts=3).file.endswith(".256.2-of-3.json")


def test_classes_are_the_nearest(data: AblationData) -> None:
    assert set(classes_of(data.pairs["cgo17-nvidia"].shares)) <= {0, 1, 2, 3, 4}


def test_the_workers_of_a_runner_leave_the_same_files(
    plan: Ablation, data: AblationData, finished: Path, tmp_path: Path
) -> None:
    pack(data, tmp_path / "kernels.npz")
    units = units_of(plan, data, protocols=["thesis"], rows=["Mean Pooling + MLP"])
    said: list[str] = []
    for _ in range(2):  # the second time there is nothing left to do
        run_over(
            LocalRunner(workers=2), plan, tmp_path / "kernels.npz", units, tmp_path / "out",
            device="cpu", report=said.append,
        )  # fmt: skip
    assert [" steps in " in line for line in said] == [True] * len(units) + [False] * len(units)
    for unit in units:
        ours, theirs = (
            json.loads((folder / unit.file).read_text()) for folder in (tmp_path / "out", finished)
        )
        assert ours["stamp"] == theirs["stamp"]
        assert [fold["validated"] for fold in ours["folds"]] == [
            fold["validated"] for fold in theirs["folds"]
        ]
    run_over(
        LocalRunner(workers=1), plan, tmp_path / "kernels.npz", units[:1], tmp_path / "late",
        device="cpu", report=said.append, seconds=1e-9,
    )  # fmt: skip
    assert "the time is up" in said[-1]
    assert not list((tmp_path / "late").glob("*.json"))
