"""Campaign tables: best cuts, regrets, and tables that survive being written and read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from apportion.coexecution.cuts import best_shares, seconds_at
from apportion.errors import UnreadableFile
from apportion.learn.shares.trees import RowSettings
from apportion.learn.times.campaign_table import (
    CampaignTable,
    first_and_last,
    load_table,
    read_table,
    regrets,
    save_table,
)
from apportion.learn.times.fitting_times import TimingSettings, fit_timing, starting_of
from apportion.learn.times.timing_model import TimingModel, starting_seconds
from apportion.program.kernel.launch import LAUNCH, TOTALS
from reproduction.campaign.held_out import (
    OURS,
    SPEEDS,
    leave_kernels_out,
    leave_one_suite_out,
    often_measured,
    regret,
    share_error,
    spreads_of,
)
from reproduction.campaign.page import About, compared, figure_of, page

SETTINGS = TimingSettings(
    RowSettings("extra-trees", trees=8, max_features=0.3, leaf=2), RowSettings("extra-trees", trees=4, leaf=4)
)


def _table(rows: int = 240, seed: int = 0) -> CampaignTable:
    """Launches whose times are sums over operations and bytes, on a device for each."""
    random = np.random.default_rng(seed)
    totals = np.zeros((rows, len(TOTALS)))
    totals[:, 0] = 1
    totals[:, 1] = 2 ** random.integers(10, 21, rows)
    totals[:, 3] = totals[:, 1] * 2 ** random.integers(0, 9, rows)
    totals[:, TOTALS.index("bytes up")] = 8 * totals[:, 1]
    features = np.zeros((rows, len(LAUNCH)))
    features[:, : len(TOTALS)] = np.log1p(totals)
    fixed = np.stack([np.full(rows, 3e-5), 5e-5 + totals[:, TOTALS.index("bytes up")] * 5e-11], axis=1)
    rate = np.stack(
        [totals[:, 3] * 2e-11 + totals[:, 1] * 1e-10, totals[:, 3] * 5e-13 + totals[:, 1] * 1e-10], axis=1
    )
    suites = tuple(["a", "b", "c"][number % 3] for number in range(rows))
    digests = tuple(f"{number // 6 * 3 + number % 3}:f" for number in range(rows))
    names = tuple(f"k{digest}" for digest in digests)
    return CampaignTable(
        ("cpu", "gpu"), names, suites, digests, ("1/1",) * rows, features, totals, fixed, rate
    )


def test_the_best_cut_lets_both_end_together_or_one_do_everything() -> None:
    fixed = np.array([[0.0, 0.0], [0.0, 5.0], [1.0, 0.0]])
    rate = np.array([[1.0, 3.0], [1.0, 0.1], [9.0, 1.0]])
    assert best_shares(fixed, rate) == pytest.approx([0.75, 1.0, 0.0])
    assert seconds_at(np.array([0.75, 1.0, 0.0]), fixed, rate) == pytest.approx([0.75, 1.0, 1.0])


def test_no_cut_of_a_grid_is_better_than_the_best() -> None:
    table = _table()
    for share in np.linspace(0, 1, 41):
        assert (regrets(np.full(len(table), share), table) >= 1 - 1e-9).all()


def test_a_table_survives_being_written_and_read(tmp_path: Path) -> None:
    table = _table(30)
    save_table(table, tmp_path / "t.parquet")
    again = load_table(tmp_path / "t.parquet")
    assert again.names == table.names
    assert again.devices == table.devices
    assert again.rate == pytest.approx(table.rate, rel=1e-6)
    assert again.totals == pytest.approx(table.totals, rel=1e-6)
    with pytest.raises(UnreadableFile, match="Cannot read the table of measurements"):
        load_table(tmp_path / "other.parquet")


def test_what_was_measured_several_times_has_the_mean_of_its_times() -> None:
    def point(device: str, fixed: float, rate: float, failure: str = "") -> dict[str, object]:
        seconds = None if failure else fixed + rate
        return {
            "digest": "d", "kernel": "k", "global_size": "64", "local_size": "8", "arguments": "",
            "device": device, "source": "s", "suite": "a", "fixed": fixed, "rate": rate, "seconds": seconds,
            "failure": failure,
        }  # fmt: skip

    points = pl.DataFrame(
        [
            point("cpu", 0.25, 0.75), point("cpu", 2.0, 2.0), point("gpu", 1.0, 1.0),
            point("gpu", 0.0, 0.0, "LaunchFailed: once"),
        ]
    )  # fmt: skip
    table, left = read_table(points, lambda _: (np.zeros(2), np.zeros(2)), ("cpu", "gpu"))
    assert table.seconds == pytest.approx(np.array([[2.0, 2.0]]))
    assert table.fixed[0] == pytest.approx([2.0 * 0.375, 1.0])
    assert left == {}


def test_times_that_are_sums_are_predicted_for_a_suite_never_seen() -> None:
    table = _table()
    said: list[str] = []
    tests = leave_one_suite_out(table, settings=SETTINGS, report=said.append)
    assert [one.suite for one in tests] == ["a", "b", "c"]
    assert len(said) == 3
    assert share_error(tests, OURS).value < share_error(tests, "best constant").value / 2
    assert regret(tests, OURS).value < 1.1
    assert max(spreads_of(tests)) < 0.3
    about = About("a machine", "a day", "a command", 480, {"Skipped": 3}, {"CompileError": 1})
    folds = leave_kernels_out(table, 3, settings=SETTINGS)
    assert sum(len(one.table) for one in folds) == len(table)
    kernels = [set(one.table.digests) for one in folds]
    assert not kernels[0] & kernels[1]
    text = page(table, tests, about, "f.svg", {}, folds)
    assert "## Kernels that were not learned from" in text
    assert "| all | " in text
    assert "3 Skipped" in text
    assert "Always the faster device, known for certain" in text
    assert figure_of(table).startswith("<svg")


def test_speeds_predict_at_first_what_forests_then_correct() -> None:
    table = _table()
    speeds = {
        "arithmetic": 5e10,
        "memory": 1e11,
        "to_device": 2e10,
        "from_device": 2e10,
        "launch_seconds": 3e-5,
    }
    tests = leave_kernels_out(table, 4, settings=SETTINGS, speeds=(speeds, {**speeds, "arithmetic": 2e12}))
    assert regret(tests, OURS).value < min(1.3, regret(tests, SPEEDS).value)
    model = fit_timing(table, "fast", settings=SETTINGS, speeds=(speeds, speeds))
    slow = {"cpu": {**speeds, "arithmetic": 1e8, "memory": 1e8}}
    usual, slower = (model.times(table.rows[:5], table.totals[:5], each) for each in (None, slow))
    assert (slower[0] + slower[1] > usual[0] + usual[1])[:, 0].all()


def test_what_copies_take_at_their_start_is_found() -> None:
    table = _table()
    wanted = (0.8e-3, 1e7, 4e-5)
    random = np.random.default_rng(1)
    totals = table.totals.copy()
    totals[:, TOTALS.index("bytes up")] = 10 ** random.uniform(4, 8.5, len(table))
    totals[:, TOTALS.index("copies")] = random.integers(1, 7, len(table))
    first = 10 ** random.uniform(-4, -2.5, len(table))
    seconds = first + starting_seconds(totals, wanted)
    slow = replace(table, totals=totals, fixed=np.stack([seconds, seconds], 1), rate=0 * table.rate)
    assert starting_of(slow, 1, first) == pytest.approx(wanted)
    none = replace(slow, fixed=np.stack([first, first], 1))
    assert starting_of(none, 1, first)[0] == 0


def test_waiting_is_predicted_as_it_is_and_not_corrected() -> None:
    table = _table()
    speeds = {"arithmetic": 5e10, "memory": 1e11, "to_device": 2e10, "from_device": 2e10,
              "launch_seconds": 3e-5, "latency waits": 1e-6}  # fmt: skip
    model = fit_timing(table, "mine", settings=SETTINGS, speeds=(speeds, speeds))
    waiting = table.totals[:5].copy()
    waiting[:, TOTALS.index("all waits")] = 4000
    (_, rate, _), (_, longer, _) = (model.times(table.rows[:5], each) for each in (table.totals[:5], waiting))
    assert longer - rate == pytest.approx(4e-3)


def test_no_launch_is_taken_to_need_less_than_the_shortest_did() -> None:
    table = _table()
    model = fit_timing(table, "mine", settings=SETTINGS)
    nothing = np.zeros_like(table.totals[:1])
    for number, device in enumerate(model.devices):
        assert device.least == pytest.approx(np.quantile(table.seconds[:, number], 0.02))
        assert device.first(table.rows[:1], nothing).seconds[0] >= device.least


def test_a_kernel_counts_alike_at_however_many_ranges_it_was_measured() -> None:
    table = _table(60)
    often = np.concatenate([np.arange(len(table)), np.zeros(400, int)])
    one, other = (fit_timing(each, "mine", settings=SETTINGS) for each in (table, table.part(often)))
    here = slice(5, 30)
    times = [sum(each.times(table.rows[here], table.totals[here])[:2]) for each in (one, other)]
    assert np.abs(np.log(times[0] / times[1])).mean() < 0.25


def test_a_timing_model_survives_being_written_and_read(tmp_path: Path) -> None:
    table = _table(90)
    model = fit_timing(table, "mine", settings=SETTINGS, spreads=(0.1, 0.2))
    model.save(tmp_path)
    again = TimingModel.load(tmp_path)
    for kind in ("cpu", "gpu"):
        one, other = (each.predict(kind, table.rows[5], table.totals[5]) for each in (model, again))
        assert one.seconds == pytest.approx(other.seconds, rel=1e-4)
    rows, totals = table.rows[:9], table.totals[:9]
    assert again.doubt(rows, totals) == pytest.approx(model.doubt(rows, totals), rel=1e-4)
    for kind in ("cpu", "gpu"):
        one = model.predict(kind, table.rows[5], table.totals[5])
        assert one.seconds == pytest.approx(float(table.seconds[5, int(kind == "gpu")]), rel=0.5)


def test_launches_that_were_measured_often_stand_for_their_suites() -> None:
    table = _table()
    random = np.random.default_rng(0)
    often = replace(table, times=np.where(random.random(len(table)) < 0.4, 6, 1))
    tests = leave_one_suite_out(often, settings=SETTINGS, report=lambda _: None)
    some = often_measured(tests, 5)
    assert sum(len(one.table) for one in some) == (often.times == 6).sum()
    for all_of_it, part in zip(tests, some, strict=True):
        assert part.weights is not None
        assert part.weights.sum() == pytest.approx(len(all_of_it.table))
        assert len(part.shares[OURS]) == len(part.log_errors) == len(part.table)
    assert often_measured(tests, 7) == []
    assert regret(some, OURS).value == pytest.approx(regret(tests, OURS).value, abs=0.05)
    again = compared(table, replace(table, fixed=2 * table.fixed, rate=2 * table.rate))
    assert (again["cpu"], again["factor"]) == pytest.approx((0, 0), abs=1e-9)  # a slower machine is not noise
    assert again["regret"] == pytest.approx(1)
    about = About("a machine", "a day", "a command", 480, {}, {}, again=again)
    text = page(often, tests, about, "f.svg", {})
    assert "measured at least 5 times" in text
    assert "would be off by 0.0 points of the best share" in text


def test_of_launches_that_were_measured_again_the_first_time_and_the_last_are_compared() -> None:
    def point(key: str, device: str, rate: float, at: float) -> dict[str, object]:
        return {
            "key": f"{key} {device}", "digest": key, "kernel": "k", "global_size": "64", "local_size": "8",
            "arguments": "", "device": device, "source": "s", "suite": "a", "fixed": 1.0, "rate": rate,
            "seconds": 1.0 + rate, "failure": "", "measured_at": at,
        }  # fmt: skip

    once = [point("a", "cpu", 1.0, 1), point("a", "gpu", 1.0, 1)]
    thrice = [point("b", device, rate, rate) for rate in (1.0, 2.0, 3.0) for device in ("cpu", "gpu")]

    def features(_: object) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return np.zeros(2), np.zeros(2)

    pair = first_and_last(pl.DataFrame([*once, *thrice]), features, ("cpu", "gpu"))
    assert pair is not None
    first, last = pair
    assert (first.rate[:, 0].tolist(), last.rate[:, 0].tolist()) == ([1.0], [3.0])
    # Rows belong together in whatever order things were measured, also where arguments alone differ.
    others = [{**one, "arguments": "int32:1", "key": f"0 {one['key']}"} for one in reversed(thrice)]
    others = [
        {**one, "rate": 10 * float(str(one["rate"])), "measured_at": -at} for at, one in enumerate(others)
    ]
    both = first_and_last(pl.DataFrame([*thrice, *others]), features, ("cpu", "gpu"))
    assert both is not None
    pairs = sorted(zip(*(each.rate[:, 0].tolist() for each in both), strict=True))
    assert np.array(pairs) == pytest.approx(np.array([(1.0, 3.0), (10.0, 30.0)]))
    assert first_and_last(pl.DataFrame(once), features, ("cpu", "gpu")) is None
