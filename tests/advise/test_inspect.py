"""Inspection: lines cost what their instructions do, cuts are what the devices' times say."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.advise.inspect import inspect
from apportion.errors import InvalidSetting, UnknownName
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.kernel.instructions import read_module
from apportion.program.kernel.work import work_by_instruction, work_of
from apportion.program.source import Source
from apportion.runtime.base import Calibration, DeviceInfo

STARTERS = Path(__file__).parents[2] / "src/apportion/serve/starters"
MATMUL = Source.read(STARTERS / "matmul.cl")
SPEEDS = Calibration(1e10, 1e10, 2e10, 1e11, 1e-5)


def device(id: str, arithmetic: float = 1e11) -> DeviceInfo:
    speeds = Calibration(1e10, 1e10, 2e10, arithmetic, 1e-5)
    return DeviceInfo(
        id, id, "cpu", "", "", "", "", 4, 1 << 30, 1 << 15, 256, shares_memory=True, calibration=speeds
    )


def test_the_line_of_the_inner_loop_costs_most_and_runs_as_often_as_the_loop():
    found = inspect(MATMUL, global_size=(256, 256), arguments=["n=256"], devices=[device("cpu")])
    costs = {line.line: line for line in found.lines}
    dearest = max(costs.values(), key=lambda line: line.seconds["this machine/cpu"])
    assert "sum += a[row" in str(MATMUL.text).splitlines()[dearest.line - 1]
    assert dearest.times == pytest.approx(256, rel=0.05)
    assert costs[dearest.line].counts["coalesced bytes"] == pytest.approx(4 * 256, rel=0.05)


def test_lines_together_do_what_the_kernel_does():
    found = inspect(MATMUL, global_size=(256, 256), arguments=["n=256"])
    module = read_module(ir_of(MATMUL, CompileOptions()))
    work = work_of(module, "matmul", found.span, {3: 256})
    for name, count in work.counts.items():
        assert sum(line.counts.get(name, 0.0) for line in found.lines) == pytest.approx(count)
    whole = work_by_instruction(module, "matmul", found.span, {3: 256})
    assert sum(counts["instructions"] for _, counts in whole) == pytest.approx(work.counts["instructions"])


def test_a_timing_model_that_is_named_answers_alone():
    found = inspect(MATMUL, global_size=(256, 256), devices=[device("cpu")], model="xeon-h200")
    assert [one.name for one in found.machines] == ["this machine", "xeon-h200"]
    assert {one.model for one in found.machines} == {"xeon-h200"}
    with pytest.raises(UnknownName, match="relative-aiwc"):
        inspect(MATMUL, global_size=(256, 256), model="relative-aiwk")


def test_two_equal_devices_share_in_halves_and_the_curve_is_lowest_there():
    found = inspect(MATMUL, global_size=(512, 512), devices=[device("cpu"), device("cpu2")])
    (machine,) = [one for one in found.machines if one.name == "this machine"]
    assert machine.cut.shares["cpu"] == pytest.approx(0.5, abs=0.01)
    share, seconds, low, high = min(machine.cut.curve, key=lambda point: point[1])
    assert share == pytest.approx(0.5, abs=0.03)
    assert low < seconds < high
    assert machine.cut.worth_sharing


def test_a_device_a_thousand_times_slower_gets_nothing_worth_the_name():
    found = inspect(MATMUL, global_size=(512, 512), devices=[device("cpu"), device("slow", 1e8)])
    (machine,) = [one for one in found.machines if one.name == "this machine"]
    assert machine.cut.alone == "cpu"
    assert not machine.cut.worth_sharing


def test_what_was_assumed_is_told_apart_from_what_was_given():
    said = inspect(MATMUL, global_size=(256, 256), arguments=["n=128"]).as_json()
    told = {one["name"]: one for one in said["arguments"]}
    assert told["n"] == {"name": "n", "is": "int32:128", "assumed": False}
    assert told["a"]["assumed"] is True


def test_strided_access_is_named():
    found = inspect(Source.read(STARTERS / "transpose.cl"), global_size=(1024, 1024))
    assert any("stride" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["n"], "name=value"),
        (["a=1"], "a=1: An argument is written"),
        (["n=99999999999"], "does not fit int32"),
    ],
)
def test_an_argument_that_cannot_be_given_is_refused(arguments, message):
    with pytest.raises(InvalidSetting, match=message):
        inspect(MATMUL, global_size=(256, 256), arguments=arguments)


def test_arguments_are_written_as_for_a_run():
    said = inspect(MATMUL, global_size=(256, 128), arguments=["n=N1", "a=float32[N]"]).as_json()
    told = {one["name"]: (one["is"], one["assumed"]) for one in said["arguments"]}
    assert told["n"] == ("int32:128", False)
    assert told["a"] == ("float32[32768]=random", False)


def test_an_unknown_kernel_and_a_source_without_one_are_refused():
    with pytest.raises(UnknownName, match="matmul"):
        inspect(MATMUL, global_size=256, kernel="matmull")
    with pytest.raises(InvalidSetting, match="no OpenCL kernel"):
        inspect(Source("int f(void) { return 1; }", "c", "f.c"), global_size=256)
