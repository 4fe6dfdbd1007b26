"""Policies replayed on a recording: one kernel of the Xeon with an H200."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.errors import MalformedInput, UnreadableFile
from apportion.runtime.replay import RecordedKernel
from reproduction.policies.replays import (
    BAYES,
    BEST_DEVICE,
    CONTENDERS,
    LAST_DEVICE,
    best_cut,
    noise_of,
    recording_of,
    replay,
    replays_from,
    rows_of,
    without_lucky_cuts,
)

RECORDED = Path(__file__).parents[3] / "docs" / "results" / "co-execution"
USUAL = RECORDED / "usual" / "efficiency.jsonl"


def _quiet(said: str) -> None:
    assert "left out" not in said


def test_every_policy_launches_a_recorded_kernel_and_what_is_stored_comes_back() -> None:
    found = replay(RECORDED, None, launches=12, seeds=2, problems=["triad"], report=_quiet)
    assert sorted({each.size for each in found.kernels}) == ["large", "usual"]
    for each in found.kernels:
        assert each.best_cut <= each.best_device
        assert list(each.lost) == list(CONTENDERS)
        assert {len(lost) for lost in each.lost.values()} == {12}
        assert each.over_best_device(BEST_DEVICE, 0, 12) == pytest.approx(1, abs=1e-6)
        assert each.over_best_device(LAST_DEVICE, 0, 12) > 1.5  # the CPU has the arrays already
        assert each.over_best_device(BAYES, 10, 12) < 1.15
    again = replays_from(json.loads(json.dumps(found.as_json())))
    assert again.about == found.about
    assert again.kernels[0].over_best_cut(BAYES, 12) == pytest.approx(
        found.kernels[0].over_best_cut(BAYES, 12), abs=1e-3
    )


def test_sizes_that_have_equally_many_work_items_are_not_mixed() -> None:
    times = {}
    for size in ("large", "usual"):
        path = RECORDED / size / "efficiency.jsonl"
        _, rows = rows_of(path)
        row = next(row for row in rows if row.kernel == "histogram_output")
        kernel = recording_of(path, RECORDED).kernels[(row.kernel, row.work_items)]
        times[size] = row.work_items, kernel.seconds({"cpu": 1.0})[0]
        assert times[size][1] == pytest.approx(1e-3 * row.alone["cpu"].median)
    assert times["large"][0] == times["usual"][0]
    assert times["large"][1] != times["usual"][1]


def test_no_cut_takes_less_than_the_best_one_did_when_it_was_measured_again() -> None:
    _, rows = rows_of(USUAL)
    row = next(row for row in rows if row.oracle is not None and row.curve)
    again = 1e-3 * row.oracle.median
    kernel = RecordedKernel(
        [({"cpu": 1.0}, 9 * again, {"cpu": 9 * again}), ({"gpu": 1.0}, 8 * again, {"gpu": 8 * again})],
        {0.0: 8 * again, 0.5: again / 2, 0.75: 2 * again, 1.0: 9 * again},
    )
    assert best_cut(kernel, ["cpu", "gpu"]) == again / 2
    assert best_cut(without_lucky_cuts(kernel, row), ["cpu", "gpu"]) == again


def test_how_much_launches_vary_follows_from_the_intervals_of_medians() -> None:
    _, rows = rows_of(USUAL)
    assert 0.01 < noise_of(rows) < 0.2
    assert noise_of([]) == 0


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="Nothing to replay"):
        replay(tmp_path, None, report=_quiet)
    (tmp_path / "efficiency.jsonl").write_text("{}\n")
    (tmp_path / "machine.json").write_text('{"instances": "usual"}')
    with pytest.raises(MalformedInput, match="is no recording of efficiencies"):
        replay(tmp_path, None, report=_quiet)
