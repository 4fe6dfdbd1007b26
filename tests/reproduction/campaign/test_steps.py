"""The steps of the measuring campaign, from a machine on which nothing was ever prepared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

from apportion import weights
from apportion.advise import launch_times as timing
from apportion.measure.campaign import Campaign, read_journal
from apportion.runtime.sampling import Repeats
from apportion.suite import problem_of

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
pytest.importorskip("sklearn")
steps = pytest.importorskip("reproduction.campaign.steps")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(steps, "ARRAYS", tmp_path / "arrays")
    monkeypatch.setattr(steps, "PROBLEMS", {"triad": problem_of("triad")})
    monkeypatch.setattr(steps, "SUITE_SIZES", (1024, 2048, 4096))
    quick = Campaign(repeats=Repeats(least=1, most=1, seconds=0.01), shares=(1.0, 0.5), visit_seconds=20.0)
    monkeypatch.setattr(steps, "CAMPAIGN", quick)
    monkeypatch.setattr(steps, "_cgo17", lambda folder: iter(()))
    monkeypatch.setattr(weights, "WEIGHTS", tmp_path / "weights")
    yield steps
    timing.timing_model.cache_clear()


def test_every_step_runs_where_nothing_was_prepared(tool: ModuleType, tmp_path: Path) -> None:
    kernels, results = tmp_path / "kernels", tmp_path / "results"
    tool.pack(kernels, tmp_path, 3)
    tool.prepare_all(kernels, results, 2, 120.0)
    lines = [json.loads(line) for line in (results / "prepared.jsonl").read_text().splitlines()]
    assert {line["suite"] for line in lines} == {"generated", "apportion"}
    assert len(lines) == 4
    assert not [line for line in lines if line["failure"]]
    tool.features(kernels, 1)
    tool.measure(kernels, results, 60.0)
    points = read_journal(results)
    assert {point["suite"] for point in points} == {"generated", "apportion"}
    assert {point["device"] for point in points} >= {"cpu"}
    assert len(pl.read_parquet(results / "measurements.parquet")) == len(points)
    measured = {point["key"] for point in points if not point["failure"]}
    tool.measure(kernels, results, 60.0, passes=2, sample=3)
    again = Counter(point["key"] for point in read_journal(results) if not point["failure"])
    assert set(again) >= measured
    assert {again[point["key"]] for point in points if point["suite"] == "apportion"} <= {0, 2}
    assert 0 < sum(again[key] == 2 for key in measured) < len(measured)  # the suite's, and three others
    tool.fit(kernels, results)
    assert (tmp_path / "weights" / "timing" / "weights.safetensors").exists()


def test_parts_are_apart_and_together_everything(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.pack(tmp_path, tmp_path, 8)
    whole = {workload.digest for workload in tool._packed(tmp_path)}
    found: list[set[str]] = []
    for part in ("1/2", "2/2"):
        monkeypatch.setenv("PART", part)
        found.append({workload.digest for workload in tool._packed(tmp_path)})
    assert found[0] | found[1] == whole
    assert not found[0] & found[1]


def test_first_every_kernel_at_two_sizes_then_at_more(tool: ModuleType, tmp_path: Path) -> None:
    tool.pack(tmp_path, tmp_path, 5)
    workloads = tool._packed(tmp_path)
    parts = tool.ordered(workloads)
    seen: dict[str, int] = {}
    for part in parts:
        seen[part.digest] = seen.get(part.digest, 0) + len(part.cases)
    assert seen == {workload.digest: len(workload.cases) for workload in workloads}
    first = parts[: len(workloads)]
    assert {part.digest for part in first} == set(seen)
    assert all(2 <= len(part.cases) <= 3 for part in first)
