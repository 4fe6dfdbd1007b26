"""Every predictor of the registry, and what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.data.counter_table import AIWC, CounterTable
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn import predictors
from apportion.learn.base import open_predictor
from apportion.learn.dataflow.analysis_predictor import AnalysisQuery
from apportion.learn.dataflow.constant import ConstantNodes, ConstantSettings
from apportion.learn.dataflow.tasks import reachability
from apportion.learn.forest import Forest
from apportion.learn.ranking.rank_predictor import RankTrust, opcode_parts, places, trust_of
from apportion.learn.ranking.ranker import Chance, UntaughtSettings
from apportion.learn.relative.fitting_relative import fitted_of
from apportion.learn.relative.profile import Profile
from apportion.learn.relative.relative_model import Reference, RelativeModel
from apportion.learn.relative.relative_table import table_of
from apportion.learn.shares.kernel_query import KernelQuery
from apportion.learn.times.timing_model import DeviceModel, TimingModel
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.launch import LAUNCH, TOTALS, PlannedLaunch
from apportion.program.llvm import graph_of_ir
from apportion.testing.predictor_checks import PredictorChecks
from apportion.testing.ranker_checks import layout_graph, tile_graph
from apportion.weights import folder_of

ONE = "declare i64 @_Z13get_global_idj(i32)\ndefine void @k(ptr %x) {\n  store float 2.0, ptr %x\n  ret void\n}\n"
TWO = ONE.replace(
    "store float 2.0, ptr %x", "%v = load float, ptr %x\n  %w = fmul float %v, 3.0\n  store float %w, ptr %x"
)
KERNELS = [graph_of_ir(text) for text in (ONE, TWO)]


class ShareChecks(PredictorChecks):
    """Of a shipped predictor of shares."""

    model: str

    def artifact(self, folder: Path) -> None:
        for path in folder_of(self.model).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())

    def queries(self) -> Sequence[Any]:
        return [KernelQuery(graph, 1 << 20, 64) for graph in KERNELS]


class TestShareForest(ShareChecks):
    model = "cgo17-nvidia"


class TestShareNetwork(ShareChecks):
    model = "gnn-load-balance"


class TestPooledForests(ShareChecks):
    model = "cgo17-nvidia-recall"


class TestLaunchTimes(PredictorChecks):
    def artifact(self, folder: Path) -> None:
        one = np.zeros(1, np.int32)
        nothing = Forest(one.astype(np.int16), np.zeros(1), one, one, np.zeros(1), one, 0)
        coefficients = np.zeros(len(TOTALS))
        coefficients[TOTALS.index("work-items")] = 1e-9
        devices = tuple(
            DeviceModel(kind, kind, coefficients, nothing, nothing, spread, {})
            for kind, spread in (("cpu", 0.2), ("gpu", 0.4))
        )
        TimingModel("mine", tuple(LAUNCH), devices, {}).save(folder)

    def queries(self) -> Sequence[Any]:
        text = (
            "define spir_kernel void @k(ptr addrspace(1) %x) {\n  store float 2.0, ptr addrspace(1) %x\n"
            "  ret void\n}\n"
        )
        return [
            PlannedLaunch(text, "k", NDRange((count,), (64,)), {0: 4 * count}) for count in (1 << 10, 1 << 20)
        ]


class TestRelativeRidge(PredictorChecks):
    @pytest.fixture(autouse=True)
    def _runs(self, timed_runs: CounterTable) -> None:
        table = table_of(timed_runs, name="made up", counters=AIWC)
        self.reference = Reference(
            table.runs, table.application, table.systems, table.counters, table.values, table.log_times
        )

    def artifact(self, folder: Path) -> None:
        RelativeModel("made up", self.reference, about={"seed": 1}).save(folder)

    def queries(self) -> Sequence[Any]:
        known = [
            Profile(run, dict(zip(self.reference.counters, row.tolist(), strict=True)))
            for run, row in zip(self.reference.runs[:2], self.reference.values[:2], strict=True)
        ]
        return [*known, Profile("timed", known[0].counters, {"new-gpu": 0.01})]


class TestRelativeFitted(TestRelativeRidge):
    def artifact(self, folder: Path) -> None:
        pytest.importorskip("sklearn")
        fitted_of(RelativeModel("made up", self.reference, about={"seed": 1}), "forest").save(folder)


class TestRanker(PredictorChecks):
    def artifact(self, folder: Path) -> None:
        ranker = Chance(UntaughtSettings(3))
        training, unseen = [tile_graph(seed) for seed in range(3)], [tile_graph(9)]
        ranker.save(folder, experiment={"trust": asdict(trust_of(ranker, training, unseen))})

    def queries(self) -> Sequence[Any]:
        return [tile_graph(1), layout_graph(1)]


class TestDataFlow(PredictorChecks):
    def artifact(self, folder: Path) -> None:
        model = ConstantNodes(reachability, ConstantSettings(), 0.9)
        model.save(folder, experiment={"labels": "exact"})

    def queries(self) -> Sequence[Any]:
        return [AnalysisQuery(KERNELS[0], 0), AnalysisQuery(KERNELS[0], 1), AnalysisQuery(KERNELS[1], 1)]


def test_every_predictor_of_the_registry_is_checked_above() -> None:
    checked = {
        "share-forest",
        "share-network",
        "pooled-forests",
        "launch-times",
        "relative-ridge",
        "relative-fitted",
        "ranker",
        "data-flow",
    }
    assert set(predictors) == checked


def test_a_model_that_answers_another_question_is_refused_with_those_that_answer_this_one() -> None:
    with pytest.raises(InvalidSetting, match=r"'xeon-h200' answers: How long .* shipped are relative-aiwc"):
        open_predictor("xeon-h200", "relative-performance")


def test_a_name_that_is_no_model_and_a_folder_without_one_are_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'xeon-h200'"):
        open_predictor("xeon-h20")
    with pytest.raises(MalformedInput, match=r"a folder without artifact\.json"):
        open_predictor(tmp_path)


def test_equal_scores_share_a_place_and_places_run_from_0_to_1() -> None:
    assert places(np.array([3.0, 1.0, 1.0, 9.0])).tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6, 1.0])
    assert places(np.array([4.0])).tolist() == [0.0]


def test_a_program_of_other_operations_than_those_learned_from_is_unfamiliar() -> None:
    known = [tile_graph(seed) for seed in range(3)]
    trust = RankTrust((0.0, 0.5), tuple(opcode_parts(graph) for graph in known), (0.0, 0.0, 0.0))
    assert trust.familiarity(known[0]) == 1.0
    assert trust.familiarity(layout_graph(1)) == 0.0
    assert trust.place_error(0.5) == 0.25
