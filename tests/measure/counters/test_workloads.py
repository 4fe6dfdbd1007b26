"""Counters of many kernels: a journal that only grows, and runs that times can be joined to."""

from __future__ import annotations

import json
import tarfile

import numpy as np
import polars as pl
import pytest

from apportion.data.counter_table import AIWC, CounterTable, Row
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.measure.counters.kernels import CountLimits
from apportion.measure.counters.workloads import (
    SuiteItem,
    count_all,
    counted,
    graphs_of,
    items_among,
    items_from,
    run_of,
    timed_everywhere,
    times_of,
)

pytest.importorskip("llvmlite")
pytest.importorskip("ziglang")

SCALE = "__kernel void scale(__global float* x, float a) { size_t i = get_global_id(0); x[i] *= a; }"
BROKEN = "__kernel void broken(__global float* x) { x[(size_t)(x[get_global_id(0)] * 1e9f)] = 1; }"


def test_what_is_counted_is_not_counted_again_and_failures_are_kept(tmp_path):
    (tmp_path / "scale.cl").write_text(SCALE)
    (tmp_path / "broken.cl").write_text(BROKEN)
    out = tmp_path / "counters.parquet"
    items = items_from([tmp_path], True, (64,), (64,))
    chosen = [item for item in items if not isinstance(item, SuiteItem) or item.problem == "triad"]
    found = list(count_all(chosen, out, limits=CountLimits(seconds=60)))
    assert len(found) == 3
    assert [bool(one.failure) for one in sorted(found, key=lambda one: one.name)] == [False, True, False]
    assert list(count_all(chosen, out, limits=CountLimits(seconds=60))) == []
    table = CounterTable.read(out)
    assert set(table.frame["program"]) == {"scale", "triad"}
    assert set(AIWC) <= set(table.frame["counter"])
    assert set(table.frame["system"]) == {""}
    # A line that a kill cut short is dropped, and its item counted again.
    journal = tmp_path / "counters.jsonl"
    journal.write_text(journal.read_text()[:-20])
    assert len(list(count_all(chosen, out, limits=CountLimits(seconds=60)))) == 1


def test_a_table_keeps_what_was_not_counted_here(tmp_path):
    (tmp_path / "scale.cl").write_text(SCALE)
    out = tmp_path / "counters.parquet"
    items = items_from([tmp_path / "scale.cl"], False, (64,), (64,))
    CounterTable.of([Row("bfs", "bfs", "", "", "a", 0, "seconds", 1.0, "clock", "exact")]).write(out)
    for _ in range(2):
        list(count_all(items, out, limits=CountLimits(seconds=60)))
        assert set(CounterTable.read(out).frame["program"]) == {"bfs", "scale"}
    out.write_text("mine")
    with pytest.raises(UnreadableFile):
        list(count_all(items, out, limits=CountLimits(seconds=60)))
    assert out.read_text() == "mine"


def test_times_of_a_campaign_name_the_same_runs(tmp_path):
    (tmp_path / "scale.cl").write_text(SCALE)
    (item,) = items_from([tmp_path / "scale.cl"], False, (64,), (64,))
    rows = counted(item, limits=CountLimits()).rows
    point = {
        "source": "scale.cl", "suite": "", "digest": item.workload.digest, "kernel": "scale", "global_size": "64",
        "local_size": "64", "device": "gpu", "device_name": "H200", "seconds": 2e-3, "kernel_seconds": 1e-3,
    }  # fmt: skip
    failed = {**point, "device": "cpu", "device_name": "Xeon", "seconds": None, "kernel_seconds": None}
    pl.DataFrame([point, failed]).write_parquet(tmp_path / "measurements.parquet")
    times = times_of(tmp_path / "measurements.parquet", {"gpu": "h200"})
    assert times.times().systems == ("h200",)
    assert times.times("kernel_seconds").seconds.tolist() == [[1e-3]]
    table = CounterTable.of(rows).joined(times)
    assert table.frame["run"].n_unique() == 1
    assert table.frame["run"][0] == run_of(item.workload.digest, "scale", "64", "64")
    assert table.systems["h200"].kind == "gpu"


def test_times_of_several_systems_keep_every_repeat(tmp_path):
    point = {
        "system": "1 core", "suite": "apportion", "name": "canny-canny_smooth", "kernel": "canny_smooth",
        "digest": "d", "global_size": "64x64", "local_size": "8x8", "repeat": 0, "seconds": 3.0,
        "kernel_seconds": 2.0,
    }  # fmt: skip
    points = [point, {**point, "repeat": 1, "seconds": 5.0}, {**point, "system": "gpu", "seconds": 1.0}]
    pl.DataFrame(points).write_parquet(tmp_path / "systems.parquet")
    table = times_of(tmp_path / "systems.parquet")
    assert table.times().systems == ("1 core", "gpu")
    assert table.times().seconds.tolist() == [[4.0, 1.0]]
    assert set(table.frame["program"]) == {"canny"}
    assert {name: system.kind for name, system in table.systems.items()} == {"1 core": "", "gpu": "gpu"}


POINT = {
    "source": "npb-3.3-CG-first", "suite": "npb-3.3", "digest": "d", "kernel": "A", "global_size": "64",
    "local_size": "64", "device": "cpu", "device_name": "Xeon", "driver": "5.0", "seconds": 2e-3,
    "kernel_seconds": 1e-3, "failure": "",
}  # fmt: skip


def test_a_time_of_a_launch_that_computed_something_else_is_none(tmp_path):
    wrong = {**POINT, "device": "gpu", "device_name": "H200", "failure": "Disagrees: c: 1 of 64 elements"}
    pl.DataFrame([POINT, wrong]).write_parquet(tmp_path / "measurements.parquet")
    table = times_of(tmp_path / "measurements.parquet", {"cpu": "xeon", "gpu": "h200"})
    assert table.times().systems == ("xeon",)
    assert table.systems["xeon"].kind == "cpu"
    assert table.systems["xeon"].description["name"] == "Xeon, 5.0"


def test_kernels_that_are_all_called_alike_go_by_their_names(tmp_path):
    second = {**POINT, "source": "npb-3.3-CG-second", "digest": "e"}
    pl.DataFrame([POINT, second]).write_parquet(tmp_path / "measurements.parquet")
    frame = times_of(tmp_path / "measurements.parquet").frame
    assert set(frame.select("program", "kernel").iter_rows()) == {
        ("npb-3.3-CG", "first"), ("npb-3.3-CG", "second")
    }  # fmt: skip


def test_only_launches_that_are_timed_everywhere_are_counted(tmp_path):
    (tmp_path / "scale.cl").write_text(SCALE)
    items = [*items_from([tmp_path / "scale.cl"], False, (64, 128), (64,)), SuiteItem("triad", 64)]
    digest = items[0].workload.digest
    point = {**POINT, "source": "scale.cl", "suite": "", "kernel": "scale", "digest": digest}
    points = [
        point, {**point, "device": "gpu", "device_name": "H200"},
        {**point, "global_size": "128"},  # on one system alone
    ]  # fmt: skip
    pl.DataFrame(points).write_parquet(tmp_path / "measurements.parquet")
    times = times_of(tmp_path / "measurements.parquet")
    wanted = timed_everywhere(times)
    assert wanted == {run_of(digest, "scale", "64", "64")}
    assert items_among(items, wanted) == [items[0]]
    assert set(times.about(runs=wanted).frame["size"]) == {"64/64"}


def test_a_graph_that_cannot_be_made_leaves_the_others(tmp_path):
    lost = SCALE.replace("x[i] *= a", "x[i] = lost(a)")
    cases = [[[64], [32], ["float32[64]=range", "float32:2"]]]
    words = {"name": "s", "suite": "", "kernel": "scale", "options": "", "cases": cases}
    path = tmp_path / "workloads.jsonl"
    path.write_text("".join(json.dumps({**words, "source": source}) + "\n" for source in (lost, SCALE)))
    items = items_from([], False, (64,), (64,), path)
    runs = {run_of(item.workload.digest, "scale", "64", "32") for item in items}
    assert len(runs) == 2
    assert set(graphs_of(items, runs).frame["run"]) == {run_of(items[1].workload.digest, "scale", "64", "32")}


def test_workloads_can_be_read_from_what_a_campaign_packed(tmp_path):
    path = tmp_path / "kernels.parquet"
    row = {"name": "npb-3.3-CG-first", "suite": "npb-3.3", "kernel": "scale", "options": "", "source": SCALE,
           "cases": json.dumps([[[64], [32], ["float32[64]=range", "float32:2"]]]), "ir": ""}  # fmt: skip
    pl.DataFrame([row]).write_parquet(path)
    (item,) = items_from([], False, (64,), (64,), path)
    found = counted(item, limits=CountLimits()).rows
    assert {(one.program, one.kernel, one.size) for one in found} == {("npb-3.3-CG", "first", "64/32")}
    pl.DataFrame([row, {**row, "cases": "nothing"}]).write_parquet(path)
    with pytest.raises(MalformedInput, match="row 2"):
        items_from([], False, (64,), (64,), path)
    pl.DataFrame([row]).drop("cases").write_parquet(path)
    with pytest.raises(MalformedInput, match="lacks the column 'cases'"):
        items_from([], False, (64,), (64,), path)


def test_a_table_without_the_columns_of_a_campaign_is_refused(tmp_path):
    pl.DataFrame({"seconds": [1.0]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(MalformedInput, match="lacks the column 'device'"):
        times_of(tmp_path / "other.parquet")


def test_workloads_can_be_read_from_a_file(tmp_path):
    path = tmp_path / "workloads.jsonl"
    workload = {"name": "s", "suite": "", "kernel": "scale", "options": "", "source": SCALE,
                "cases": [[[64], [32], ["float32[64]=range", "float32:2"]]]}  # fmt: skip
    path.write_text(json.dumps(workload) + "\n")
    (item,) = items_from([], False, (64,), (64,), path)
    (rows,) = [counted(item, limits=CountLimits()).rows]
    values = {row.counter: row.value for row in rows}
    assert values["workitems"] == 64
    assert values["work_group_size"] == 32
    path.write_text("{}\n")
    with pytest.raises(MalformedInput, match=r"workloads\.jsonl:1: "):
        items_from([], False, (64,), (64,), path)


def test_published_kernels_are_counted_with_deduced_arguments(tmp_path):
    counts = ("comp", "rational", "mem", "localmem", "coalesced", "atomic", "transfer", "wgsize")
    times = {"oracle": "CPU", "runtime_cpu": "1", "runtime_gpu": "2", "src": SCALE, "seq": "[1]"}
    row = {"benchmark": "npb-3.3-CG-scale", "dataset": "A", **dict.fromkeys(counts, "1"), **times}
    broken = row | {"benchmark": "npb-3.3-CG-lost", "src": SCALE.replace("x[i] *= a", "x[i] = lost(a)")}
    for name in ("nvidia.csv", "amd.csv"):
        pl.DataFrame([row, broken]).write_csv(tmp_path / name)
    with tarfile.open(tmp_path / "kernels_ir.tar.gz", "w:gz") as archive:
        for kernel in ("scale", "lost"):
            archive.addfile(tarfile.TarInfo(f"kernels_ir/npb-3.3-CG-{kernel}_A.ll"))
    (item,) = items_from([], False, (4096,), (64,), cgo17=tmp_path)
    found = counted(item, limits=CountLimits())
    assert {(row.program, row.kernel, row.size) for row in found.rows} == {
        ("npb-3.3-CG", "scale", "4096/64")
    }  # fmt: skip


def test_program_graphs_stand_beside_the_counters_of_the_same_runs(tmp_path):
    (tmp_path / "scale.cl").write_text(SCALE)
    items = items_from([tmp_path / "scale.cl"], False, (64, 128), (64,))
    items = [*items, SuiteItem("triad", 64)]
    tables = [CounterTable.of(counted(item, limits=CountLimits()).rows) for item in (items[0], items[2])]
    both = tables[0].joined(tables[1])
    graphs = graphs_of(items, set(both.frame["run"]))
    assert set(graphs.frame["run"]) == set(both.frame["run"])  # the second size was not counted
    assert set(graphs.frame["source"]) == {"program-graph"}
    wide = both.joined(graphs).wide()
    nodes, mask = wide.column("graph: nodes")
    assert mask.all()
    assert (nodes > 1).all()
    assert wide.column("graph: call barrier")[0].tolist() == [0, 0]


def test_a_problem_that_is_not_there_is_a_failure_of_its_own():
    assert "No problem called 'triode'" in counted(SuiteItem("triode", 64), limits=CountLimits()).failure


def test_nothing_to_count_is_said():
    with pytest.raises(InvalidSetting, match="There is nothing to count"):
        items_from([], False, (64,), (64,))


def test_random_contents_are_those_of_a_campaign():
    pytest.importorskip("pyopencl")
    from apportion.measure.counters.workloads import _value
    from apportion.runtime.opencl.visiting import ArrayPool
    from apportion.runtime.words import read_word

    words = (
        "float32[100]=random",
        "int32[50]=below:7",
        "uint8[9]=random",
        "float64[5]=ones",
        "int16[6]=range",
    )
    for position, word in enumerate(map(read_word, words)):
        held = ArrayPool().take(position, word, False).data.view(word.dtype)
        np.testing.assert_array_equal(_value(position, word), held)
