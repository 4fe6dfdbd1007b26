"""Measuring campaigns: nothing measured is lost, nothing is measured twice, failures are kept."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest

from apportion.errors import AlreadyWritten, InvalidSetting, MalformedInput
from apportion.jobs.journal import Journal
from apportion.measure.campaign import (
    JOURNAL,
    LAUNCHES,
    TABLE,
    Campaign,
    Point,
    line_of,
    medians_of,
    read_journal,
    run_campaign,
    workloads_of,
)
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.sampling import Repeats
from apportion.runtime.visit import Launched
from apportion.runtime.workload import Case, Workload

CAMPAIGN = Campaign(sizes=(256,), local_sizes=(32,), repeats=Repeats(least=1, most=2), visit_seconds=8.0)


def _measure(folder: Path, *sources: Path, campaign: Campaign = CAMPAIGN) -> list[Point]:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    workloads = workloads_of(sources, campaign)
    return list(run_campaign(workloads, folder, campaign, limits=Limits(seconds=5), drivers=drivers))


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    texts = {
        "good.cl": "kernel void twice(global const float *x, global float *y) {"
        " y[get_global_id(0)] = 2 * x[get_global_id(0)]; }",
        "past.cl": "kernel void past(global int *y) { y[((get_global_id(0) * 7) & 255) + 1] = 1; }",
        "wrong.cl": "kernel void wrong(global int *y) { y[0] = ; }",
        "image.cl": "kernel void seen(read_only image2d_t i, global int *y) { y[0] = get_image_width(i); }",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "past.json").write_text(
        json.dumps(
            {
                "kernel": "past",
                "suite": "mine",
                "arguments": {"y": "int32[N]=zeros"},
                "ranges": [[[256], [32]]],
            }
        )
    )
    (tmp_path / "good again.cl").write_text(texts["good.cl"])
    return [tmp_path / name for name in [*texts, "good again.cl"]]


def test_every_point_is_kept_with_its_times_or_its_reason(sources: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    points = _measure(out, *sources)
    said = {(p.source, p.device): p.failure.split(":")[0] for p in points}
    assert said == {
        ("good.cl", "cpu"): "",
        ("good.cl", "cpu2"): "",
        ("past", "cpu"): "OutOfBoundsWrite",
        ("past", "cpu2"): "OutOfBoundsWrite",
        ("wrong.cl", ""): "CompileError",
        ("image.cl", "cpu"): "",
        ("image.cl", "cpu2"): "",
    }
    good = [p for p in points if p.source == "good.cl"]
    assert [p.agrees for p in good] == [None, True]
    for point in good:
        assert point.seconds is not None
        assert point.fixed is not None
        assert point.rate is not None
        assert point.fixed + point.rate == pytest.approx(point.seconds, rel=0.5)
        assert point.bytes_moved == 2 * 4 * 256
        assert point.shares.startswith("1:")
    table = pl.read_parquet(out / TABLE)
    assert sorted(table["key"]) == sorted(p.key for p in points)
    # A second run has nothing left to do; a wider one measures only what is new.
    assert _measure(out, *sources) == []
    wider = Campaign(sizes=(256, 512), local_sizes=(32,), repeats=Repeats(least=1, most=2))
    assert {p.work_items for p in _measure(out, sources[0], campaign=wider)} == {512}


def test_a_device_that_is_measured_later_is_compared_with_the_first(
    sources: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    _measure(out, sources[0])
    lines = (out / JOURNAL).read_text().splitlines()
    (out / JOURNAL).write_text("".join(line + "\n" for line in lines if json.loads(line)["device"] == "cpu"))
    (again,) = _measure(out, sources[0])
    assert (again.device, again.agrees) == ("cpu2", True)


def test_what_failed_is_measured_again_where_that_is_asked_for(sources: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    _measure(out, sources[0])
    lines = [json.loads(line) for line in (out / JOURNAL).read_text().splitlines()]
    lines[1] |= {"seconds": None, "failure": "LaunchFailed: by a driver that was repaired since"}
    (out / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert _measure(out, sources[0]) == []
    (again,) = _measure(out, sources[0], campaign=replace(CAMPAIGN, retry=True))
    assert (again.key, again.failure) == (lines[1]["key"], "")
    table = pl.read_parquet(out / TABLE)
    assert table["key"].to_list() == [line["key"] for line in lines]
    assert set(table["failure"]) == {""}


def test_passes_measure_everything_as_often_and_go_on_where_they_were(
    sources: list[Path], tmp_path: Path
) -> None:
    out, twice = tmp_path / "out", replace(CAMPAIGN, passes=2)
    points = _measure(out, sources[0], sources[2], campaign=twice)
    good = [point.key for point in points if not point.failure]
    assert len(good) == 4
    assert good[:2] == good[2:]  # one pass after the other
    assert len(points) == 5  # what failed is not tried in every pass
    assert _measure(out, sources[0], sources[2], campaign=twice) == []
    assert len(_measure(out, sources[0], campaign=replace(CAMPAIGN, passes=3))) == 2
    table = pl.read_parquet(out / TABLE)
    assert sorted(Counter(table["key"]).values()) == [1, 3, 3]
    with pytest.raises(InvalidSetting, match="at least one pass"):
        Campaign(passes=0)


def test_a_kernel_that_hangs_costs_its_own_points(sources: list[Path], tmp_path: Path) -> None:
    hangs = tmp_path / "hangs.cl"
    hangs.write_text("kernel void hangs(global int *y) { volatile int on = 1; while (on) {} y[0] = 1; }")
    impatient = Campaign(
        sizes=(256, 512, 1024), local_sizes=(32,), repeats=Repeats(least=1, most=1), visit_seconds=1.5
    )
    points = _measure(tmp_path / "out", hangs, sources[0], campaign=impatient)
    said = [(p.source, p.failure.split(":")[0]) for p in points]
    # After two ranges it is known, and costs no more time.
    assert said[:6] == [("hangs.cl", "DeadlineExceeded")] * 4 + [("hangs.cl", "Skipped")] * 2
    assert said[6:] == [("good.cl", "")] * 6


def test_a_bad_description_beside_a_kernel_costs_its_own_points(tmp_path: Path) -> None:
    good = {"kernel": "twice", "arguments": {"x": "float32[N]", "n": "int32:3"}, "ranges": [[[256], [32]]]}
    bad = {
        "unknown kernel": json.dumps({**good, "kernel": "thrice"}),
        "no text": json.dumps({**good, "kernel": ["twice"]}),
        "too large a number": json.dumps({**good, "arguments": {"x": "float32[N]", "n": "int32:99999999999999"}}),
        "no type": json.dumps({**good, "arguments": {"x": "object[N]", "n": "int32:3"}}),
        "too few": json.dumps({**good, "arguments": {"x": "float32[N]"}}),
        "too large a range": json.dumps({**good, "ranges": [[[10**15], [1]]]}),
        "no range": json.dumps({**good, "ranges": [[[1e300], [32]]]}),
        "beyond counting": json.dumps({**good, "ranges": [[[10**30], [1]]]}),
        "long structure": json.dumps({**good, "arguments": {"x": f"struct{{float32@0*{10**12}}}8[N]", "n": "int32:3"}}),
        "digits": json.dumps({**good, "arguments": {"x": f"float32[{'9' * 5000}]", "n": "int32:3"}}),
        "more digits": json.dumps(good).replace("256", "9" * 5000),
        "half a pair": json.dumps({**good, "arguments": {"x": "float32[N]=file:\ud800", "n": "int32:3"}}),
        "deep": "[" * 100_000 + "]" * 100_000,
    }  # fmt: skip
    sources = []
    for number, (name, text) in enumerate({**bad, "whole": json.dumps(good)}.items()):
        file = tmp_path / f"{number:02} {name}.cl"
        file.write_text(
            f"kernel void twice(global float *x, int n) {{ x[get_global_id(0)] *= n; }} // {number}"
        )
        file.with_suffix(".json").write_text(text)
        sources.append(file)
    points = _measure(tmp_path / "out", *sources, campaign=replace(CAMPAIGN, devices=("cpu",)))
    assert [bool(point.failure) for point in points] == [True] * len(bad) + [False]
    assert all(len(point.failure) < 500 for point in points)
    said = dict(zip(bad, [point.failure for point in points], strict=False))
    assert "No kernel called 'thrice'. " in said["unknown kernel"]
    assert "does not fit int32" in said["too large a number"]
    assert "No type called 'object'" in said["no type"]
    assert "takes 2 arguments, not 1" in said["too few"]
    assert "Cannot allocate memory" in said["too large a range"]
    assert "at most 9,223,372,036,854,775,807 work-items" in said["beyond counting"]
    assert _measure(tmp_path / "out", *sources, campaign=replace(CAMPAIGN, devices=("cpu",))) == []


def test_arguments_of_a_workload_that_cannot_be_read_cost_that_case_alone(tmp_path: Path) -> None:
    text = "kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }"
    span = NDRange((256,), (32,))
    cases = (Case(span, ("object[256]",)), Case(span, ("float32[256]",)))
    workload = Workload("twice", "", text, "twice", cases)
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False)
    campaign = replace(CAMPAIGN, devices=("cpu",))
    points = list(run_campaign([workload], tmp_path, campaign, limits=Limits(seconds=5), drivers=drivers))
    assert ["No type called 'object'" in point.failure for point in points] == [True, False]
    assert points[1].seconds


def test_a_range_that_would_take_too_long_is_left_out_with_its_reason(
    sources: list[Path], tmp_path: Path
) -> None:
    hasty = Campaign(
        sizes=(256, 1 << 18), local_sizes=(32,), repeats=Repeats(least=1, most=1), most_seconds=1e-9
    )
    points = _measure(tmp_path / "out", sources[0], campaign=hasty)
    assert [p.failure.split(":")[0] for p in points] == ["", "", "Skipped", "Skipped"]
    assert points[-1].work_items == 1 << 18


def test_the_fixed_part_is_what_does_not_shrink_with_the_share() -> None:
    launches = [Launched(share, 0, 0, 0, 0.010 + 0.040 * share) for share in (1.0, 0.5, 0.25)]
    assert line_of(medians_of(launches)) == pytest.approx((0.010, 0.040))
    assert line_of({1.0: 0.5}) == (0.0, 0.5)
    # A half that takes longer than the whole says that nothing shrinks.
    fixed, rate = line_of({1.0: 0.01, 0.5: 0.02})
    assert fixed == pytest.approx(0.01)
    assert 0 < rate < 1e-6


def test_a_line_that_a_kill_cut_off_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text(json.dumps({"key": "a"}) + "\n" + '{"key": "b", "sec')
    assert read_journal(tmp_path) == [{"key": "a"}]
    Journal(tmp_path / JOURNAL).add({"key": "c"})
    assert (tmp_path / JOURNAL).read_text() == '{"key": "a"}\n{"key": "c"}\n'


def test_a_folder_that_another_campaign_writes_to_is_refused(sources: list[Path], tmp_path: Path) -> None:
    with (
        Journal(tmp_path / JOURNAL).alone(),
        pytest.raises(AlreadyWritten, match="is being written by process"),
    ):
        _measure(tmp_path, sources[0])


def test_launches_of_a_visit_that_was_interrupted_count_when_it_is_taken_up_again(
    sources: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cpu, _ = _measure(out, sources[0])
    (out / JOURNAL).unlink()
    known = json.dumps({"key": cpu.key, **asdict(Launched(1.0, 0.0, 9.0, 0.0, 9.0))})
    (out / LAUNCHES).write_text(f"{known}\n" * 9 + known[:20])
    again, other = _measure(out, sources[0])
    assert (again.repeats, again.seconds) == (10, 9.0)
    assert other.seconds is not None
    assert other.seconds < 9
    assert (out / LAUNCHES).read_text() == ""


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("hello\n")
    with pytest.raises(MalformedInput, match="not a line of a journal"):
        read_journal(tmp_path)


def test_a_campaign_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="needs sizes and work-group sizes above 0"):
        Campaign(sizes=())
