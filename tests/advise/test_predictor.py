"""Prediction with the shipped models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apportion
from apportion.advise.describe import describe
from apportion.advise.prediction import Prediction
from apportion.advise.predictor import Task, forests_model, pairs, predict, predict_all
from apportion.advise.queries import Query
from apportion.data.published.cgo17 import PAIRS, read
from apportion.errors import CompileError, InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.program.kernel.features import FEATURES, INPUTS, inputs_of
from apportion.program.source import Source
from apportion.weights import manifest

KERNEL = """
declare i64 @_Z13get_global_idj(i32)
define spir_kernel void @scale(float* %x) !kernel_arg_addr_space !0 {
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, float* %x, i64 %i
  %v = load float, float* %p
  %w = fmul float %v, 2.0
  store float %w, float* %p
  ret void
}
!0 = !{i32 1}
"""


def source(text: str = KERNEL) -> Source:
    return Source(text, "llvm", "scale.ll")


def test_an_answer_has_a_share_inside_its_interval() -> None:
    found = apportion.predict(source(), local_size=64, bytes=1 << 22)
    assert 0 <= found.interval[0] <= found.cpu_share <= found.interval[1] <= 1
    assert found.device == ("gpu" if found.cpu_share < 0.5 else "cpu")
    assert found.warnings == ()


def test_json_has_the_promised_keys_and_no_others() -> None:
    found = predict(source(), local_size=64, bytes=1 << 22, pair="cgo17-nvidia").as_json()
    assert list(found) == [
        "cpu_share", "interval", "confidence", "class", "device", "familiarity", "model", "milliseconds",
        "nearest",
    ]  # fmt: skip
    assert list(found["milliseconds"]) == ["compile", "graph", "predict"]


@pytest.mark.parametrize("pair", PAIRS)
def test_opencl_c_is_compiled_as_what_the_shipped_models_learned_from(pair: str) -> None:
    pytest.importorskip("ziglang")
    model = forests_model("load-balance", pair, f"{pair}-recall")
    assert not model.vectorized  # the archived IR is not
    text = (
        "kernel void k(global float *x) { for (int i = 0; i < 64; i++) x[i] *= 2; x[get_global_id(0)] = 1; }"
    )
    kernel = Source(text, "opencl", "k.cl")
    vectors = FEATURES.index("variable vector")
    scalar, wide = (describe(kernel, vectorized=said).code for said in (False, True))
    assert scalar[vectors] == 0 < wide[vectors]
    found = predict(kernel, local_size=64, bytes=1 << 22, model=model.name)
    answer = model.estimate(scalar, np.array(inputs_of(1 << 22, 64)), confidence=0.9)
    assert found.cpu_share == pytest.approx(answer.share / 100, abs=1e-4)
    (batched,) = predict_all([Query(kernel, 64, 1 << 22)], model=model.name)
    assert isinstance(batched, Prediction)
    assert batched.cpu_share == found.cpu_share


def test_device_mapping_gives_one_device_all_the_work() -> None:
    found = predict(source(), local_size=64, bytes=1 << 22, task="device-mapping")
    assert found.cpu_share == (0.0 if found.device == "gpu" else 1.0)
    assert found.share_class in (0, 100)
    assert set(found.interval) <= {0.0, 1.0}


def test_the_two_pairs_have_models_of_their_own() -> None:
    shares = {pair: predict(source(), local_size=64, bytes=1 << 22, pair=pair).cpu_share for pair in PAIRS}
    assert len(set(shares.values())) == 2


@pytest.mark.parametrize("pair", PAIRS)
def test_shipped_models_know_the_features_of_this_version_and_checked_their_intervals(pair: str) -> None:
    model = forests_model("load-balance", pair, f"{pair}-recall")
    assert model.features == (*FEATURES, *INPUTS)
    assert [level["confidence"] for level in model.about["coverage"]] == [0.5, 0.8, 0.9]
    for level in model.about["coverage"]:
        # Applications are what intervals are calibrated on; of rows, those of one large application decide.
        assert level["of_applications"] >= level["confidence"] - 0.01
        assert level["of_rows"] >= level["confidence"] - 0.03
    assert manifest().called(model.name).size < 5 << 20


def test_impossible_sizes_pairs_tasks_and_kernels_are_said() -> None:
    with pytest.raises(InvalidSetting, match="local_size must be 1 to 65536 work-items, not 0"):
        predict(source(), local_size=0, bytes=1)
    with pytest.raises(InvalidSetting, match="bytes must not be negative, not -1"):
        predict(source(), local_size=1, bytes=-1)
    with pytest.raises(UnknownName, match="There are: cgo17-amd, cgo17-nvidia"):
        predict(source(), local_size=1, bytes=1, pair="h200")
    with pytest.raises(UnknownName, match="No task called 'energy'"):
        predict(source(), local_size=1, bytes=1, task="energy")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match=r"No kernel called 'grow'\. There are: scale"):
        predict(source(), local_size=1, bytes=1, kernel="grow")


def test_a_range_gives_the_share_in_whole_work_groups() -> None:
    found = predict(source(), local_size=(16, 4), global_size=(1024, 100), bytes=1 << 22)
    assert found.cpu_work_items is not None
    assert found.cpu_work_items % 64 == 0
    assert found.cpu_work_items / 102_400 == pytest.approx(found.cpu_share, abs=64 / 102_400)
    assert found.as_json()["cpu_work_items"] == found.cpu_work_items


def test_a_range_that_is_not_whole_work_groups_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"1000 is not made of whole work-groups of 64"):
        predict(source(), local_size=64, global_size=1000, bytes=1)
    with pytest.raises(InvalidSetting, match="the same for both sizes"):
        predict(source(), local_size=64, global_size=(64, 64), bytes=1)


def test_every_pair_with_weights_is_shipped() -> None:
    assert set(PAIRS) <= set(pairs())
    assert all(manifest().answering("shares", pair) for pair in pairs())


def test_many_launches_get_the_answers_that_each_gets_alone() -> None:
    one = source()
    queries = [Query(one, 64, 1 << power) for power in (10, 20, 30)]
    together = predict_all(queries)
    alone = [predict(one, local_size=64, bytes=query.bytes) for query in queries]
    for both, single in zip(together, alone, strict=True):
        assert isinstance(both, Prediction)
        assert both.cpu_share == pytest.approx(single.cpu_share)
        assert both.interval == pytest.approx(single.interval)


def test_a_launch_that_fails_does_not_keep_others_from_their_answers(tmp_path: Path) -> None:
    found = predict_all([Query(tmp_path / "none.ll", 64, 1), Query(source(), 64, 1)])
    assert isinstance(found[0], UnreadableFile)
    assert isinstance(found[1], Prediction)


def test_a_source_without_its_helpers_is_answered_and_marked() -> None:
    pytest.importorskip("ziglang")
    cut = "__kernel void A(__global float* a) { a[get_global_id(0)] = B(a[1]); }"
    found = predict(Source(cut, "opencl", "cut.cl"), local_size=64, bytes=1 << 20)
    assert found.recovered == ("float B",)
    assert found.as_json()["recovered"] == ["float B"]
    assert "float B had to be declared" in found.warnings[0]


def test_several_kernels_must_be_told_apart() -> None:
    two = KERNEL.replace("!0 = !{i32 1}", KERNEL.split("\n", 2)[2].replace("@scale", "@grow"))
    with pytest.raises(InvalidSetting, match=r"has 2 kernels\. Name one of: scale, grow"):
        predict(source(two), local_size=64, bytes=1)
    assert "has no OpenCL kernel" not in str(
        predict(source(two), local_size=64, bytes=1, kernel="*").warnings
    )
    assert predict(source(two), local_size=64, bytes=1, kernel="grow").model == "cgo17-nvidia"


def test_a_kernel_without_ids_and_a_module_without_kernels_are_warned_about() -> None:
    found = predict(source("define void @f() {\n  ret void\n}\n"), local_size=64, bytes=1)
    assert "has no OpenCL kernel" in found.warnings[0]
    assert "never asks for a global, local or group id" in found.warnings[1]


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.ll").write_text("")
    with pytest.raises(MalformedInput, match=r"empty\.ll: it defines no function"):
        predict(tmp_path / "empty.ll", local_size=64, bytes=1)
    (tmp_path / "empty.cl").write_text("\n")
    with pytest.raises(MalformedInput, match="the file is empty"):
        predict(tmp_path / "empty.cl", local_size=64, bytes=1)


def test_a_kernel_of_fifty_thousand_lines_gets_an_answer_and_a_warning() -> None:
    line = "  %a{} = fadd float %a{}, 1.0"
    body = "\n".join(line.format(i + 1, i) for i in range(50_000))
    long = KERNEL.replace("  %w =", f"  %a0 = fadd float %v, 1.0\n{body}\n  %w =")
    found = predict(source(long), local_size=64, bytes=1 << 22)
    assert found.familiarity < 0.1
    assert "unlike what the model learned from" in found.warnings[0]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("task", ["load-balance", "device-mapping"])
def test_both_engines_give_the_same_answer(pair: str, task: Task) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    asked: dict[str, Any] = {"local_size": 64, "bytes": 1 << 22, "pair": pair, "task": task}
    ours, theirs = (predict(source(), engine=engine, **asked).as_json() for engine in ("numpy", "onnx"))
    for key in ("cpu_share", "interval", "familiarity", "class", "device"):
        assert theirs[key] == pytest.approx(ours[key], abs=1e-5)
    queries = [Query(source(), 64, 1 << power) for power in (10, 20)]
    ours_all = predict_all(queries, task=task, pair=pair)
    for one, other in zip(ours_all, predict_all(queries, task=task, pair=pair, engine="onnx"), strict=True):
        assert isinstance(one, Prediction)
        assert isinstance(other, Prediction)
        assert one.cpu_share == pytest.approx(other.cpu_share, abs=1e-5)


def test_an_engine_that_is_not_there_is_said() -> None:
    with pytest.raises(UnknownName, match=r"No engine called 'onyx'\. Did you mean 'onnx'"):
        predict(source(), local_size=64, bytes=1, engine="onyx")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["numpy", "onnx"])
def test_prediction_loads_neither_torch_nor_scikit_learn(tmp_path: Path, engine: str) -> None:
    if engine == "onnx":
        pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    (tmp_path / "scale.ll").write_text(KERNEL)
    program = (
        "import sys, apportion;"
        f"apportion.predict({str(tmp_path / 'scale.ll')!r}, local_size=64, bytes=1, engine={engine!r});"
        "print({'torch', 'sklearn', 'scipy', 'polars'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_row_that_was_learned_from_is_familiar_and_well_met(shared_data: Path) -> None:
    row = next(read(shared_data / "cgo17", "cgo17-nvidia"))
    found = predict(Source(row.ir, "llvm", row.name), local_size=row.work_group, bytes=row.bytes_moved)
    assert found.familiarity == 1.0
    assert found.cpu_share == pytest.approx(row.cpu_share / 100, abs=0.02)


def test_another_compiler_moves_answers_by_less_than_their_intervals_allow(shared_data: Path) -> None:
    pytest.importorskip("ziglang")
    moved, seen = [], set()
    for row in read(shared_data / "cgo17", "cgo17-nvidia"):
        if row.source in seen or len(moved) == 8:
            continue
        seen.add(row.source)
        launch = {"local_size": max(row.work_group, 1), "bytes": row.bytes_moved}
        try:
            ours = predict(Source(row.source, "opencl", "kernel.cl"), **launch)
        except CompileError:
            continue  # the publication's rewriter dropped helper functions of some
        archived = predict(Source(row.ir, "llvm", "kernel.ll"), **launch)
        moved.append(abs(ours.cpu_share - archived.cpu_share))
        assert ours.interval[0] <= archived.cpu_share <= ours.interval[1]
    assert len(moved) == 8
    assert sum(moved) / len(moved) < 0.15


def test_sizes_that_nobody_says_are_worked_out_from_the_range_and_told() -> None:
    text = """
kernel void scale(global const float *x, global float *y, int n) {
  int i = get_global_id(0);
  if (i < n) y[i] = 2 * x[i];
}
"""
    found = predict(Source(text, "opencl"), global_size=65536, pair="xeon-h200")
    assert found.assumed[:2] == (
        "local_size=64 (nothing says it)",
        "bytes=524288 (arrays that it reads, and those that it writes)",
    )
    given = predict(Source(text, "opencl"), global_size=65536, local_size=64, bytes=524288, pair="xeon-h200")
    assert found.cpu_share == given.cpu_share
    with pytest.raises(InvalidSetting, match="Give the global size of the launch"):
        predict(Source(text, "opencl"), pair="xeon-h200")


def test_a_work_group_that_is_left_out_is_the_one_that_the_kernel_requires() -> None:
    text = """
__attribute__((reqd_work_group_size(16, 2, 1))) kernel void sum(global float *x) {
  x[get_global_id(1) * get_global_size(0) + get_global_id(0)] += 1;
}
"""
    found = predict(Source(text, "opencl"), global_size=(64, 64), pair="xeon-h200")
    assert found.assumed[0] == "local_size=16x2 (the kernel requires it)"
    free = Source("kernel void k(global float *x) { x[get_global_id(0)] = 1; }", "opencl")
    assert predict(free, global_size=1000, pair="xeon-h200").assumed[0] == "local_size=50 (nothing says it)"
