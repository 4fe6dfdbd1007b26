"""Small collections on this CPU, measured for real."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from apportion.data.published.tpugraphs import read_layout, read_tile
from apportion.learn.ranking.recorded_runs import read_runs
from apportion.program.hlo.module import OPCODES
from reproduction.__main__ import main as reproduce

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


def collected(
    capsys: pytest.CaptureFixture[str], what: str, out: Path, *more: object
) -> list[dict[str, object]]:
    with pytest.raises(SystemExit) as leaving:
        reproduce(["collect", "measure", what, "--out", str(out), "--json", *map(str, more)])
    assert not leaving.value.code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@needs_jax
def test_tiles_of_blocked_kernels_are_measured_checked_and_published(tmp_path, capsys):
    words = ("--graphs", "blocked_transpose.M512-N2048", "--configurations", 6, "--rounds", 4, "--seconds", 2)
    (graph,) = collected(capsys, "blocked", tmp_path, *words)
    assert (graph["name"], graph["configurations"], graph["failed"]) == ("blocked_transpose.M512-N2048", 6, 0)
    tile = read_tile(tmp_path / "tile/xla/train/blocked_transpose.M512-N2048.npz")
    assert tile.config_feat.shape == (6, 24)
    assert [list(OPCODES)[number - 1] for number in tile.graph.node_opcode] == ["parameter", "transpose"]
    path = tmp_path / "runs/blocked_transpose.M512-N2048.npz"
    before = path.stat().st_mtime_ns
    collected(capsys, "blocked", tmp_path, *words)  # what is there is not measured again
    assert path.stat().st_mtime_ns == before
    shutil.rmtree(tmp_path / "tile")
    with pytest.raises(SystemExit):
        reproduce(["collect", "publish", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["configurations"] == 6
    assert np.array_equal(
        read_tile(tmp_path / "tile/xla/train/blocked_transpose.M512-N2048.npz").config_runtime,
        tile.config_runtime,
    )


@needs_jax
def test_layouts_of_a_jax_program_are_measured_with_the_nodes_they_belong_to(tmp_path, capsys):
    words = ("--graphs", "convolutions", "--configurations", 4, "--rounds", 4, "--seconds", 1)
    (graph,) = collected(capsys, "layout", tmp_path, *words)
    assert (graph["configurations"], graph["failed"]) == (4, 0)
    layout = read_layout(tmp_path / "layout/xla/random/train/convolutions.B4.npz")
    names = [list(OPCODES)[number - 1] for number in layout.graph.node_opcode[layout.node_config_ids]]
    assert names == ["convolution", "convolution", "reshape", "dot"]
    assert layout.node_config_feat.shape == (4, 4, 18)
    assert layout.node_config_feat[0, 0].tolist() == [3, 2, 1, 0, -1, -1] * 3
    assert set(layout.node_config_feat[:, 3, 4:6].ravel()) == {-1}
    (runs,) = read_runs(tmp_path)
    assert np.array_equal(runs.runtime, layout.config_runtime)


@pytest.mark.parametrize("what", ["blocked", pytest.param("layout", marks=needs_jax)])
def test_a_graph_that_is_not_there_is_refused_with_those_there_are(what, tmp_path, capsys):
    with pytest.raises(SystemExit):
        reproduce(["collect", "measure", what, "--out", str(tmp_path), "--graphs", "fourier"])
    assert "called 'fourier'" in capsys.readouterr().err


def test_a_gpu_collection_without_its_packages_says_what_to_install(tmp_path, capsys):
    if find_spec("triton") is not None:
        pytest.skip("triton is installed")
    with pytest.raises(SystemExit):
        reproduce(["collect", "measure", "triton", "--out", str(tmp_path)])
    assert "pip install 'apportion[triton]'" in capsys.readouterr().err


def test_publishing_where_nothing_was_collected_is_an_error(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        reproduce(["collect", "publish", str(tmp_path / "missing")])
    assert ended.value.code == 1
    assert "There are no runs in" in capsys.readouterr().err
