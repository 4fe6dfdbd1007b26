"""Tiles of XLA's products: fresh processes, what they send back, and which tile XLA says it used.

Here on the CPU's backend, which knows no tiles; the options of the GPU's are accepted and ignored.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from apportion.errors import UnknownName
from apportion.learn.ranking.recorded_runs import GraphRuns
from apportion.program.hlo.jax import jax
from reproduction.collect import xla_gemm as xlagemm
from reproduction.collect.base import CollectOptions
from reproduction.collect.xla_programs import Compiled, compile_each, load_each
from reproduction.collect.xla_tiles import tiles_of, wrong_tile

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")

SPECS = (((64, 32), "float16"), ((32, 48), "float16"))
ODD = """
import os, pathlib, time

def dies_once(a, b):
    marker = pathlib.Path(__file__).with_suffix(".died")
    if not marker.exists():
        marker.touch()
        os.abort()
    return a @ b

def sleeps(a, b):
    time.sleep(60)
"""


@pytest.fixture
def odd(tmp_path: Path) -> str:
    path = tmp_path / "odd_functions.py"
    path.write_text(ODD)
    return str(path)


@needs_jax
def test_what_a_fresh_process_compiles_runs_here_with_the_same_result():
    device = jax().devices("cpu")[0]
    random = np.random.default_rng(0)
    arrays = [
        jax().device_put(random.standard_normal(dims).astype(element), device) for dims, element in SPECS
    ]
    every = [{"xla_cpu_enable_fast_math": True}, {}]
    made = dict(compile_each("xla_product", SPECS, every, platform="cpu", workers=2))
    assert sorted(made) == [0, 1]
    compiled = {index: one for index, one in made.items() if isinstance(one, Compiled)}
    assert all("ENTRY" in one.text for one in compiled.values())
    programs = load_each(compiled, device, arrays)
    wanted = np.asarray(arrays[0], np.float32) @ np.asarray(arrays[1], np.float32)
    for index in made:
        program = programs[index]
        assert not isinstance(program, str)
        result = np.asarray(program.result(program.start()), np.float32)
        assert np.linalg.norm(result - wanted) / np.linalg.norm(wanted) < 1e-3


@needs_jax
def test_bytes_that_are_no_program_cost_one_program():
    device = jax().devices("cpu")[0]
    programs = load_each({3: Compiled(b"nothing", "")}, device, [])
    assert isinstance(programs[3], str)
    assert "Error" in programs[3]


@needs_jax
def test_a_refused_option_costs_one_configuration_and_its_reason_is_kept():
    every = [{"xla_no_such_thing": 1}, {}]
    made = dict(compile_each("xla_product", SPECS, every, platform="cpu", workers=1))
    assert "No such compile option: 'xla_no_such_thing'" in str(made[0])
    assert isinstance(made[1], Compiled)


@needs_jax
def test_a_process_that_dies_and_one_that_hangs_cost_their_configurations(odd):
    made = dict(compile_each(f"{odd}:dies_once", SPECS, [{}, {}], platform="cpu", workers=1))
    assert made[0] == "WorkerCrashed: The worker was killed by SIGABRT"
    assert isinstance(made[1], Compiled)
    made = dict(compile_each(f"{odd}:sleeps", SPECS, [{}], platform="cpu", workers=1, item_seconds=4))
    assert made == {0: "DeadlineExceeded: It took longer than the 4 s it was given"}


@needs_jax
def test_what_is_not_compiled_in_time_is_left_out():
    made = dict(compile_each("xla_product", SPECS, [{}] * 9, platform="cpu", workers=1, seconds=1e-3))
    assert len(made) == 1


# Recognising tiles

ASKED = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}

BLOCKS = """HloModule jit_product, is_scheduled=true, entry_computation_layout={(f16[256,512]{1,0})->f16[256,128]{1,0}}

%gemm_fusion_dot_computation (parameter_0: f16[256,512], parameter_1: f16[512,128]) -> f16[256,128] {
  %parameter_0 = f16[256,512]{1,0} parameter(0)
  %parameter_1 = f16[512,128]{1,0} parameter(1)
  %dot.1 = f32[256,128]{1,0} dot(%parameter_0, %parameter_1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %convert.1 = f16[256,128]{1,0} convert(%dot.1)
}

ENTRY %main.5 (a: f16[256,512], b: f16[512,128]) -> f16[256,128] {
  %a = f16[256,512]{1,0} parameter(0), metadata={op_name="a"}
  %b = f16[512,128]{1,0} parameter(1), metadata={op_name="b"}
  ROOT %gemm_fusion_dot = f16[256,128]{1,0} fusion(%a, %b), kind=kCustom, calls=%gemm_fusion_dot_computation, backend_config={"operation_queue_id":"0","fusion_backend_config":{"kind":"__triton_gemm","triton_gemm_config":{"block_m":"128","block_n":"64","block_k":"32","split_k":"1","num_stages":"3","num_warps":"4","num_ctas":"1"}}}
}
"""

DEPTH_ON_THE_PRODUCT = (
    BLOCKS.replace(
        "rhs_contracting_dims={0}", 'rhs_contracting_dims={0}, backend_config={"sizes":["32"]}'
    ).partition('"kind":"__triton_gemm"')[0]
    + '"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"4","output_tiles":'
    '[{"sizes":["128","64"]}],"num_ctas":1,"num_stages":3,"is_tma_allowed":false}}}\n}\n'
)

OPERANDS_WITH_TILES = """HloModule jit_batched

%left (p: f16[8,256,512]) -> f16[8,256,512] {
  ROOT %p = f16[8,256,512]{2,1,0} parameter(0)
}

%right (p.1: f16[8,512,128]) -> f16[8,512,128] {
  ROOT %p.1 = f16[8,512,128]{2,1,0} parameter(0)
}

%product (parameter_0: f16[8,256,512], parameter_1: f16[8,512,128]) -> f16[8,256,128] {
  %parameter_0 = f16[8,256,512]{2,1,0} parameter(0)
  %block_fusion = f16[8,256,512]{2,1,0} fusion(%parameter_0), kind=kCustom, calls=%left, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"4","output_tiles":[{"sizes":["1","128","32"]}],"num_ctas":1,"num_stages":3}}}
  %parameter_1 = f16[8,512,128]{2,1,0} parameter(1)
  %block_fusion.1 = f16[8,512,128]{2,1,0} fusion(%parameter_1), kind=kCustom, calls=%right, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"4","output_tiles":[{"sizes":["1","32","64"]}],"num_ctas":1,"num_stages":3}}}
  ROOT %dot.2 = f16[8,256,128]{2,1,0} dot(f16[8,256,512]{2,1,0} %block_fusion, f16[8,512,128]{2,1,0} %block_fusion.1), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
}

ENTRY %main (a: f16[8,256,512], b: f16[8,512,128]) -> f16[8,256,128] {
  %a = f16[8,256,512]{2,1,0} parameter(0)
  %b = f16[8,512,128]{2,1,0} parameter(1)
  ROOT %fusion = f16[8,256,128]{2,1,0} fusion(%a, %b), kind=kCustom, calls=%product, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"4","output_tiles":[{"sizes":["1","128","64"]}],"num_ctas":1,"num_stages":3}}}
}
"""

LIBRARY = """HloModule jit_product

ENTRY %main.5 (a: f16[256,512], b: f16[512,128]) -> f16[256,128] {
  %a = f16[256,512]{1,0} parameter(0)
  %b = f16[512,128]{1,0} parameter(1)
  %cublas.1 = (f16[256,128]{1,0}, s8[4194304]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":1}}
  ROOT %get = f16[256,128]{1,0} get-tuple-element(%cublas.1), index=0
}
"""


def unquoted(text: str) -> str:
    """The same with numbers that are not in quotation marks."""
    for number in ("1", "3", "4", "32", "64", "128"):
        text = text.replace(f'"{number}"', number)
    return text


@pytest.mark.parametrize("text", [BLOCKS, DEPTH_ON_THE_PRODUCT, OPERANDS_WITH_TILES])
@pytest.mark.parametrize("spelling", [str, unquoted])
def test_a_tile_is_read_however_xla_writes_it(text, spelling):
    assert tiles_of(spelling(text)) == [ASKED]
    assert wrong_tile(spelling(text), ASKED, 300) == ""
    for name in ASKED:
        reason = wrong_tile(spelling(text), {**ASKED, name: 2 * ASKED[name]}, 300)
        assert reason.startswith(f"XLA used another tile: {ASKED} in ")
        assert "triton" in reason


def test_a_depth_that_xla_does_not_show_is_not_held_against_it():
    text = DEPTH_ON_THE_PRODUCT.replace(', backend_config={"sizes":["32"]}', "")
    assert tiles_of(text) == [{name: value for name, value in ASKED.items() if name != "BLOCK_K"}]
    assert wrong_tile(text, ASKED, 300) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LIBRARY, "__cublas$lt$matmul"),
        (BLOCKS.replace("triton_gemm_config", "a_new_config").replace("block_", "tile_"), "a_new_config"),
        ("", "nothing"),
    ],
)
def test_a_program_without_a_tile_says_what_it_has_instead(text, shown):
    reason = wrong_tile(text, ASKED, 300)
    assert reason.startswith("no tile in XLA's program: ")
    assert shown in reason
    assert len(reason) <= 300


# The whole of it

SMALL = {"xla_product.M64-N48-K32": SPECS, "xla_product_nt.M64-N48-K32": (SPECS[0], ((48, 32), "float16"))}


@needs_jax
def test_a_graph_for_which_xla_ignores_the_tiles_fails_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(xlagemm, "GRAPHS", SMALL)
    options = CollectOptions(("xla_product",), configurations=2, workers=2)
    (graph,) = xlagemm.collect(tmp_path, options, platform="cpu")
    assert (graph.configurations, graph.failed) == (0, 2)
    assert graph.failure.startswith("level 0: no tile in XLA's program: ")
    assert "; level 4: no tile in XLA's program: " in graph.failure
    assert not list(tmp_path.iterdir())


@needs_jax
def test_tiles_that_all_fail_alike_are_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr(xlagemm, "GRAPHS", SMALL)
    same = "XLA used another tile"
    monkeypatch.setattr(
        xlagemm, "wrong_tile", lambda text, one, characters: "" if one == xlagemm.DEFAULT else same
    )
    options = CollectOptions(("xla_product",), configurations=3, workers=2)
    (graph,) = xlagemm.collect(tmp_path, options, platform="cpu")
    assert graph.failure == f"2 of 2 failed alike: {same}"
    assert not list(tmp_path.iterdir())


@needs_jax
def test_graphs_are_written_one_by_one_and_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(xlagemm, "GRAPHS", SMALL)
    monkeypatch.setattr(
        xlagemm, "wrong_tile", lambda text, one, characters: "" if one["BLOCK_K"] == 64 else "other"
    )
    options = CollectOptions(configurations=6, rounds=4, seconds=1, workers=2)
    measuring = xlagemm.collect(tmp_path, options, platform="cpu")
    first = next(measuring)
    assert not first.failure
    assert [path.stem for path in (tmp_path / "runs").iterdir()] == [first.name]
    second = next(measuring)
    assert next(measuring, None) is None
    assert {first.name, second.name} == set(SMALL)
    runs = GraphRuns.read(tmp_path / "runs" / f"{second.name}.npz")
    assert runs.parameter_names == ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    assert runs.configurations + len(runs.failed_reasons) == 6
    assert set(runs.parameters[:, 2]) == {64}
    assert set(runs.failed_reasons) == {"other"}
    assert runs.default == 0
    assert runs.repeats.shape[1] == 4
    assert list(xlagemm.collect(tmp_path, options, platform="cpu")) == []


@needs_jax
def test_no_graph_is_begun_when_the_time_is_up(tmp_path, monkeypatch):
    monkeypatch.setattr(xlagemm, "GRAPHS", SMALL)
    options = CollectOptions(configurations=2, workers=2, measure_seconds=1e-3)
    assert len(list(xlagemm.collect(tmp_path, options, platform="cpu"))) <= 1
    monkeypatch.setattr(xlagemm, "wrong_tile", lambda text, one, characters: "")
    options = CollectOptions(configurations=9, workers=1, compile_seconds=1e-3)
    (graph,) = xlagemm.collect(tmp_path, options, platform="cpu")
    assert graph.failure == "there was no time to compile two configurations"


@needs_jax
def test_a_graph_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UnknownName, match="fourier"):
        next(xlagemm.collect(tmp_path, CollectOptions(("fourier",)), platform="cpu"))


def test_the_space_has_enough_tiles_for_a_collection():
    assert len(xlagemm.SPACE.configurations) >= 200
    assert xlagemm.DEFAULT in xlagemm.SPACE.configurations
    options = xlagemm.override(xlagemm.DEFAULT, 4)
    assert "block_m: 128 block_n: 128 block_k: 64 " in str(options["xla_gpu_override_gemm_autotuner"])
    assert options["xla_gpu_autotune_level"] == 4


def test_without_a_gpu_the_command_says_so(tmp_path: Path) -> None:
    code = "import sys; from reproduction.__main__ import main; main(sys.argv[1:])"
    words = ["collect", "measure", "xla-gemm", "--out", str(tmp_path)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode != 0
    assert "JAX finds no GPU" in done.stderr
    assert "Traceback" not in done.stderr
