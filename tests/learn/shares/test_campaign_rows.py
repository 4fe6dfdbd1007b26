"""A campaign's table becomes a model of its devices."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile
from apportion.learn.shares.campaign_rows import read_campaign
from apportion.learn.shares.kernel_model import KernelModel
from apportion.learn.shares.shipping import ship_pair
from apportion.learn.shares.trees import PooledSettings
from apportion.program.kernel.features import INPUTS, RANGE_INPUTS
from apportion.program.source import Source

pytest.importorskip("ziglang")


def kernel(number: int) -> Source:
    work = " + ".join(f"a[i] * {step}.0f" for step in range(1, number + 2))
    text = f"__kernel void k(__global float* a) {{ size_t i = get_global_id(0); a[i] = {work}; }}\n"
    return Source(text, "opencl", f"k{number}.cl")


KERNELS = [kernel(number) for number in range(6)]


def points() -> list[dict[str, object]]:
    """Six kernels at two sizes on two devices; the GPU gains with the work, and one launch failed."""
    rows = []
    for number, source in enumerate(KERNELS):
        for items in (1024, 65536):
            for device, name, seconds in (
                ("pocl:0", "Xeon", 1e-6 * items), ("cuda:0", "H200", 1e-3 + 1e-7 * items / (number + 1))
            ):  # fmt: skip
                rows.append(
                    {"source": source.name, "suite": "generated", "digest": source.digest, "kernel": "k",
                     "work_items": items, "group_items": 64, "local_size": "64", "device": device,
                     "device_name": name, "bytes_moved": 4 * items, "seconds": seconds, "agrees": None}
                )  # fmt: skip
    return [*rows, {**rows[0], "kernel": "k2", "seconds": None}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pl.DataFrame(points(), infer_schema_length=None).write_parquet(tmp_path / "measurements.parquet")
    return tmp_path


def test_launches_that_both_devices_ran_become_rows(folder: Path) -> None:
    table = read_campaign(folder, KERNELS, "xeon-h200", cpu="xeon", gpu="cuda:0", report=lambda _: None)
    assert len(table.examples) == 12
    assert table.columns[-8:] == (*INPUTS, *RANGE_INPUTS)
    first = table.examples[0]
    assert (first.suite, first.application, first.work_group) == ("generated", "generated-k0.cl", 64)
    assert first.cpu_time == pytest.approx(1024e-6)


def test_a_shipped_pair_is_loaded_and_asks_for_the_range(folder: Path) -> None:
    said: list[str] = []
    path, model, coverage = ship_pair(
        "xeon-h200", folder, KERNELS, cpu="Xeon", gpu="H200", out=folder / "weights",
        settings=PooledSettings(trees=6), report=said.append,
    )  # fmt: skip
    assert path == folder / "weights" / "xeon-h200"
    loaded = KernelModel.load(path)
    assert loaded.inputs == model.inputs == (*INPUTS, *RANGE_INPUTS)
    assert len(coverage) == 3
    assert "12 launches of 6 sources are used" in said[0]


def test_sources_that_are_not_here_are_named(folder: Path) -> None:
    said: list[str] = []
    read_campaign(folder, KERNELS[:5], "p", cpu="Xeon", gpu="H200", report=said.append)
    assert any("No source with the hash" in line for line in said)
    with pytest.raises(InvalidSetting, match="no launch that both devices ran and whose source is here"):
        read_campaign(folder, [], "p", cpu="Xeon", gpu="H200", report=said.append)


def test_devices_and_columns_must_be_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="No one device called 'A100'"):
        read_campaign(folder, KERNELS, "p", cpu="Xeon", gpu="A100", report=lambda _: None)
    with pytest.raises(InvalidSetting, match="must differ"):
        read_campaign(folder, KERNELS, "p", cpu="Xeon", gpu="pocl:0", report=lambda _: None)
    pl.DataFrame({"source": ["k"]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(MalformedInput, match="lacks the column 'digest'"):
        read_campaign(tmp_path / "other.parquet", KERNELS, "p", cpu="a", gpu="b", report=lambda _: None)
    with pytest.raises(UnreadableFile, match="Cannot read the measurements"):
        read_campaign(tmp_path / "none.parquet", KERNELS, "p", cpu="a", gpu="b", report=lambda _: None)
