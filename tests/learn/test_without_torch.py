"""No shipped model needs torch, scikit-learn or XGBoost to answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from apportion import weights

KERNEL = (
    "kernel void scale(global const float *x, global float *y, float a, int n) {"
    " int i = get_global_id(0); if (i < n) y[i] = a * x[i]; }"
)
PROGRAM = """
import json, sys
BLOCKED = ("torch", "torch_geometric", "sklearn", "xgboost", "jax")
sys.modules.update(dict.fromkeys(BLOCKED))  # whoever imports one of them gets an ImportError
from pathlib import Path
from apportion import weights
from apportion.advise.learned_analyses import run_learned
from apportion.advise.predictor import predict
from apportion.advise.relative_answers import predict as relative, relative_model
from apportion.learn.base import open_predictor
from apportion.learn.relative.profile import Profile
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.llvm import graph_of_ir
from apportion.program.source import Source
from apportion.testing.ranker_checks import layout_graph, tile_graph

kernel = Source.read(Path("scale.cl"))
graph = graph_of_ir(ir_of(kernel, CompileOptions()), name="scale")
for one in weights.manifest().models:
    if one.question in ("shares", "times"):
        said = predict(kernel, local_size=64, bytes=1 << 22, global_size=1 << 19, model=one.name).cpu_share
    elif one.question == "relative-performance":
        model = relative_model(one.name)
        run = dict(zip(model.reference.counters, model.reference.values[0].tolist()))
        said = len(relative(Profile("run", run), model=model, added={}).order)
    elif one.question == "ranking":
        asked = layout_graph(0) if one.about.startswith("layout") else tile_graph(0)
        said = len(open_predictor(one.name).answer([asked])[0].value)
    else:
        (found,) = run_learned(graph, one.about, graph.node_type.nonzero()[0][:1], model=one.name)
        said = int(found.labels.sum())
    print(json.dumps([one.name, said]))
assert not [name for name in BLOCKED if sys.modules[name] is not None]
"""


def test_every_shipped_model_answers_without_what_it_learned_with(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    (tmp_path / "scale.cl").write_text(KERNEL)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = dict(json.loads(line) for line in done.stdout.splitlines())
    assert set(said) == {one.name for one in weights.manifest().models}
    assert all(0 <= said[one.name] <= 1 for one in weights.manifest().answering("shares"))
    assert said["relative-aiwc-network"] >= 2
    assert said["rank-h200-triton"] > 10
    assert said["rank-h200-triton-network"] == said["rank-h200-triton"]
