"""Measuring campaigns: nothing measured is lost, nothing is measured twice, failures are kept."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from apportion.device.base import Limits
from apportion.device.campaign import JOURNAL, TABLE, Campaign, Point, read_journal, run_campaign
from apportion.device.measure import Repeats
from apportion.device.platforms import DriverOptions
from apportion.errors import InvalidSetting, MalformedInput

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")

CAMPAIGN = Campaign(sizes=(256,), local_sizes=(32,), repeats=Repeats(least=1, most=2))


def _measure(folder: Path, *sources: Path, campaign: Campaign = CAMPAIGN) -> list[Point]:
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False)
    return list(run_campaign(sources, folder, campaign, limits=Limits(seconds=0.5), drivers=drivers))


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    texts = {
        "good.cl": "kernel void twice(global const float *x, global float *y) {"
        " y[get_global_id(0)] = 2 * x[get_global_id(0)]; }",
        "hangs.cl": "kernel void hangs(global int *y) { volatile int on = 1; while (on) {} y[0] = 1; }",
        "past.cl": "kernel void past(global int *y) { y[get_global_id(0) + 1] = 1; }",
        "wrong.cl": "kernel void wrong(global int *y) { y[0] = ; }",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "good again.cl").write_text(texts["good.cl"])
    return [tmp_path / name for name in [*texts, "good again.cl"]]


def test_every_point_is_kept_with_its_times_or_its_reason(sources: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    points = _measure(out, *sources)
    said = {(p.source, p.device): p.failure.split(":")[0] for p in points}
    assert said == {
        ("good.cl", "cpu"): "",
        ("good.cl", "cpu2"): "",
        ("hangs.cl", "cpu"): "DeadlineExceeded",
        ("hangs.cl", "cpu2"): "DeadlineExceeded",
        ("past.cl", "cpu"): "OutOfBoundsWrite",
        ("past.cl", "cpu2"): "OutOfBoundsWrite",
        ("wrong.cl", ""): "CompileError",
    }
    good = [p for p in points if p.source == "good.cl"]
    assert [p.agrees for p in good] == [None, True]
    assert all(p.seconds is not None and p.seconds > 0 and p.bytes_moved == 2 * 4 * 256 for p in good)
    table = pl.read_parquet(out / TABLE)
    assert table["key"].to_list() == [p.key for p in points]
    # A second run has nothing left to do; a wider one measures only what is new.
    assert _measure(out, *sources) == []
    wider = Campaign(sizes=(256, 512), local_sizes=(32,), repeats=Repeats(least=1, most=2))
    assert {p.work_items for p in _measure(out, sources[0], campaign=wider)} == {512}


def test_a_line_that_a_kill_cut_off_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text(json.dumps({"key": "a"}) + "\n" + '{"key": "b", "sec')
    assert read_journal(tmp_path) == [{"key": "a"}]
    assert (tmp_path / JOURNAL).read_text() == '{"key": "a"}\n'


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("hello\n")
    with pytest.raises(MalformedInput, match="not a journal of measurements"):
        read_journal(tmp_path)


def test_a_campaign_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="needs sizes and work-group sizes above 0"):
        Campaign(sizes=())
