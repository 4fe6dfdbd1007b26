"""Configurations in their predicted order: shipped rankers answer without torch, XGBoost or a measurement."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from apportion import weights
from apportion.advise.program_ranking import (
    FAMILIAR,
    TiledKernel,
    predicted_start,
    rank_configurations,
)
from apportion.advise.tuning import Tunable, tune
from apportion.cli import main
from apportion.errors import InvalidSetting
from apportion.learn.base import open_predictor
from apportion.measure.space import Space

jax = pytest.importorskip("jax")

PRODUCT = """
ENTRY main {
  a = f16[1024,512] parameter(0)
  b = f16[512,2048] parameter(1)
  ROOT c = f32[1024,2048] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SPACE = Space(
    {
        "BLOCK_M": (16, 64, 128), "BLOCK_N": (16, 64, 128), "BLOCK_K": (32, 64), "num_warps": (1, 4),
        "num_stages": (2, 4),
    }
)  # fmt: skip


@pytest.fixture
def product(tmp_path: Path) -> TiledKernel:
    (tmp_path / "product.hlo").write_text("HloModule product\n" + PRODUCT)
    return TiledKernel.of(str(tmp_path / "product.hlo"))


def test_a_product_is_familiar_and_tiny_tiles_come_last(product: TiledKernel) -> None:
    found = rank_configurations(product, SPACE)
    assert found.model == "rank-h200-triton"
    assert found.familiarity > 0.5
    assert found.warnings == ()
    assert len(found.configurations) == len(SPACE.configurations)
    places = [one.place for one in found.configurations]
    assert places == sorted(places)
    assert all(one.interval[0] <= one.place <= one.interval[1] for one in found.configurations)
    tiny = {"BLOCK_M": 16, "BLOCK_N": 16}
    placed = [one.place for one in found.configurations if one.configuration.items() >= tiny.items()]
    assert np.mean(placed) > 0.7


def test_parameters_are_told_by_their_names_or_named(product: TiledKernel) -> None:
    renamed = Space(
        {
            "TILE_ROWS": (16, 64, 128), "TILE_COLUMNS": (16, 64, 128), "DEPTH": (32, 64), "num_warps": (1, 4),
            "num_stages": (2, 4),
        }
    )  # fmt: skip
    named = TiledKernel(product.graph, ("TILE_ROWS", "TILE_COLUMNS"), ("DEPTH",))
    same = rank_configurations(named, renamed)
    found = rank_configurations(product, SPACE)
    assert [tuple(one.configuration.values()) for one in same.configurations] == [
        tuple(one.configuration.values()) for one in found.configurations
    ]
    with pytest.raises(InvalidSetting, match="There is no parameter 'ROWS': there are BLOCK_M, BLOCK_N"):
        rank_configurations(TiledKernel(product.graph, ("ROWS",)), SPACE)
    with pytest.raises(InvalidSetting, match="layout is 'row': rankers know whole numbers alone"):
        rank_configurations(product, Space({"layout": ("row", "column")}))


def test_a_ranker_of_other_configurations_is_refused(product: TiledKernel) -> None:
    with pytest.raises(InvalidSetting, match="rank-cpu-layouts ranks no tiles: those that do are rank-h200"):
        rank_configurations(product, SPACE, model="rank-cpu-layouts")


def test_a_program_unlike_all_others_is_told_and_no_search_starts_from_its_order(tmp_path: Path) -> None:
    (tmp_path / "odd.hlo").write_text(
        "HloModule odd\nENTRY main {\n  a = f32[64] parameter(0)\n"
        + "".join(f"  s{n} = f32[64] sine({'a' if n == 0 else f's{n - 1}'})\n" for n in range(20))
        + "  ROOT t = f32[64] tan(s19)\n}\n"
    )
    odd = TiledKernel.of(str(tmp_path / "odd.hlo"))
    found = rank_configurations(odd, SPACE)
    assert found.familiarity < FAMILIAR
    assert "unlike all that rank-h200-triton learned from" in found.warnings[0]
    assert predicted_start(odd, SPACE) is None
    named = predicted_start(odd, SPACE, model="rank-h200-triton")
    assert named is not None
    assert named[1] == "rank-h200-triton"


def test_tuning_starts_from_the_predicted_order(product: TiledKernel) -> None:
    order = [one.configuration for one in rank_configurations(product, SPACE).configurations]

    def cost(**one: int) -> float:
        return 1.0 + order.index(one)

    tunable = Tunable(cost, SPACE, objective="returned", graph=product)
    found = tune(tunable, budget=3, progress=False)
    assert found.ranker == "rank-h200-triton"
    assert order.index(dict(found.best)) < 3
    without = tune(tunable, budget=3, ranker=None, progress=False)
    assert without.ranker is None
    assert cost(**without.best) > cost(**found.best)


def test_the_layouts_of_a_jax_function_are_ordered(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.py").write_text("import jax\ndef layers(x, w, v):\n    return jax.nn.relu(x @ w) @ v\n")
    words = ["rank", "predict", f"{tmp_path}/mine.py:layers"]
    with pytest.raises(SystemExit) as left:
        main([*words, "--shapes", "f32[32,64]", "f32[64,128]", "f32[128,16]", "--json"])
    assert not left.value.code
    said = json.loads(capsys.readouterr().out)
    assert said["model"] == "rank-cpu-layouts"
    assert len(said["configurations"]) == 64
    assert set(said["configurations"][0]["configuration"].values()) <= {"row-major", "column-major"}
    with pytest.raises(SystemExit):
        main(words)
    assert "is a function: say the --shapes that it is called with" in capsys.readouterr().err


def test_the_command_shows_the_first_and_says_what_they_share(tmp_path: Path, capsys) -> None:
    (tmp_path / "product.hlo").write_text("HloModule product\n" + PRODUCT)
    words = ["rank", "predict", str(tmp_path / "product.hlo")]
    parameters = [
        word for name, values in SPACE.values.items() for word in ("--param", f"{name}={','.join(map(str, values))}")
    ]  # fmt: skip
    with pytest.raises(SystemExit) as left:
        main([*words, *parameters, "--top", "3"])
    assert not left.value.code
    out, err = capsys.readouterr()
    assert "72 configurations by rank-h200-triton" in out
    assert "All of these have" in err
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 1
    assert (
        "alone has no configurations: give the parameters of a kernel with --param" in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", [one.name for one in weights.manifest().answering("ranking")])
def test_every_shipped_ranker_knows_its_kernels_and_how_far_it_is_off(name: str) -> None:
    shipped = weights.manifest().called(name)
    assert shipped.size < 400_000
    assert re.search(r"held out \((boosted trees: [\d., %]+; )?by chance", shipped.score)
    predictor = open_predictor(name, "ranking")
    assert 0.1 < predictor.trust.place_error(0.9) < 0.9
    assert len(predictor.trust.known) >= 1


def test_shipped_rankers_answer_without_torch_and_xgboost(tmp_path: Path) -> None:
    (tmp_path / "product.hlo").write_text("HloModule product\n" + PRODUCT)
    program = (
        "import sys\nsys.modules.update(dict.fromkeys(('torch', 'xgboost', 'sklearn', 'jax')))\n"
        "from apportion.cli import main\n"
        f"main(['rank', 'predict', {str(tmp_path / 'product.hlo')!r}, '--param', 'BLOCK_M=32,64', '--json'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["configurations"]) == 2


def test_a_tunable_without_a_graph_is_told_how_to_give_one(tmp_path: Path, capsys) -> None:
    (tmp_path / "plain.py").write_text(
        "import apportion\nblur = apportion.Tunable(lambda tile: tile, {'tile': (1, 2)})\n"
    )
    with pytest.raises(SystemExit):
        main(["rank", "predict", f"{tmp_path}/plain.py:blur"])
    assert "does not say its graph: give the Tunable graph=TiledKernel.of(" in capsys.readouterr().err
