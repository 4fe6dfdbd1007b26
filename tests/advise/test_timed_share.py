"""Shares by what devices will take: the cut that ends soonest, how sure it is, and what it needs to know."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from apportion import weights
from apportion.advise import launch_times as timing
from apportion.advise.export import export_onnx
from apportion.advise.predictor import _opened, predict, predict_all
from apportion.advise.queries import Query
from apportion.advise.timed_share import timed_pairs, timed_share
from apportion.cli import main
from apportion.errors import InvalidSetting, UnknownName
from apportion.learn.base import list_again
from apportion.learn.forest import Forest
from apportion.learn.times.timing_model import DeviceModel, TimingModel
from apportion.program.kernel.launch import LAUNCH, TOTALS
from apportion.program.source import Source

pytest.importorskip("ziglang")
SHIPPED = weights.WEIGHTS / "cgo17-amd-recall"
SOURCE = Source(
    "kernel void scale(global const float *x, global float *y, float a, int n) {"
    " int i = get_global_id(0); if (i < n) y[i] = a * x[i]; }",
    "opencl",
    "scale.cl",
)


def _constant(value: float) -> Forest:
    one = np.zeros(1, np.int32)
    return Forest(one.astype(np.int16), np.zeros(1), one, one, np.array([value]), one, 0)


def _device(kind: str, item: float, byte: float, spread: float) -> DeviceModel:
    coefficients = np.zeros(len(TOTALS))
    coefficients[TOTALS.index("work-items")] = item
    coefficients[TOTALS.index("bytes of arrays")] = byte
    return DeviceModel(kind, f"a {kind}", coefficients, _constant(0.0), _constant(0.0), spread, {})


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(weights, "WEIGHTS", tmp_path)
    timing.timing_model.cache_clear()
    _opened.cache_clear()
    for name, spread in (("sure", 0.01), ("unsure", 0.7)):
        # A work-item costs the GPU a third; a byte costs the GPU alone.
        devices = (_device("cpu", 3e-9, 0.0, spread), _device("gpu", 1e-9, 1e-10, spread))
        TimingModel(name, tuple(LAUNCH), devices, {}).save(tmp_path / name)
    shutil.copytree(SHIPPED, tmp_path / "cgo17-amd-recall")
    list_again(tmp_path)
    yield
    timing.timing_model.cache_clear()
    _opened.cache_clear()


def test_times_have_no_onnx_form(shipped: None, tmp_path: Path) -> None:
    said = "sure has a model of times, and ONNX forms are of models of shares: cgo17-amd"
    with pytest.raises(InvalidSetting, match=said):
        export_onnx(tmp_path / "sure.onnx", pair="sure")
    with pytest.raises(InvalidSetting, match=said):
        predict(SOURCE, local_size=64, bytes=0, global_size=1 << 20, pair="sure", engine="onnx")


def test_both_devices_end_together_and_doubt_widens_the_interval(shipped: None) -> None:
    assert timed_pairs() == ["sure", "unsure"]
    launch = Query(SOURCE, 64, 0, global_size=1 << 20)
    found = timed_share(launch, "sure", confidence=0.9)
    # 8 bytes per work-item: 3 against 1 + 0.8 nanoseconds.
    assert found.share == pytest.approx(1.8 / 4.8, abs=0.01)
    assert found.faster == "gpu"
    low, high = found.interval
    assert low < found.share < high < low + 0.05
    wide = timed_share(launch, "unsure", confidence=0.9).interval
    assert wide[1] - wide[0] > 0.3


def test_arrays_are_scaled_to_the_bytes_that_are_moved(shipped: None) -> None:
    shares = [
        timed_share(Query(SOURCE, 64, bytes, global_size=1 << 20), "sure", confidence=0.9).share
        for bytes in (1 << 20, 1 << 23, 1 << 26)
    ]
    assert shares == sorted(shares)
    assert shares[-1] > shares[0] + 0.2


def test_a_range_that_is_not_given_is_worked_out_from_the_bytes_or_needed(shipped: None) -> None:
    found = timed_share(Query(SOURCE, 64, 1 << 20), "sure", confidence=0.9)
    same = timed_share(Query(SOURCE, 64, 1 << 20, global_size=1 << 17), "sure", confidence=0.9)
    assert str(found.assumed[0]).startswith("global_size=131072 (")
    assert (found.share, found.cpu_work_items) == (same.share, same.cpu_work_items)
    with pytest.raises(InvalidSetting, match="How many work-items move 0 bytes does not follow"):
        timed_share(Query(SOURCE, 64, 0), "sure", confidence=0.9)


def test_the_predictor_answers_for_such_pairs(
    shipped: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = predict(SOURCE, local_size=64, bytes=1 << 22, global_size=1 << 20, pair="sure")
    assert (answer.device, answer.model, answer.share_class) == ("gpu", "sure", 25)
    assert answer.cpu_work_items is not None
    assert answer.cpu_work_items % 64 == 0
    mapped = predict(
        SOURCE, local_size=64, bytes=1 << 22, global_size=1 << 20, pair="sure", task="device-mapping"
    )
    assert mapped.cpu_share == 0.0
    wrong = Query(Source("kernel void f(", "opencl", "wrong.cl"), 64, 0, global_size=1 << 20)
    right = Query(SOURCE, 64, 0, global_size=1 << 20)
    good, bad = predict_all([right, wrong], pair="sure")
    assert isinstance(bad, Exception)
    assert not isinstance(good, Exception)
    with pytest.raises(UnknownName, match="unsure"):
        predict(SOURCE, local_size=64, bytes=0, pair="surer")
    (tmp_path / "scale.cl").write_text(str(SOURCE.text))
    with pytest.raises(SystemExit) as stopped:
        main(
            ["predict", str(tmp_path / "scale.cl"), "--local-size", "64", "--bytes", "4194304",
             "--global-size", "1048576", "--pair", "sure", "--json"]
        )  # fmt: skip
    assert not stopped.value.code
    assert json.loads(capsys.readouterr().out)["cpu_share"] == pytest.approx(answer.cpu_share, abs=1e-3)


NEAREST = Source(
    """
kernel void nearest(global float *x, global float *c, global int *y, int points, int clusters, int features) {
  int p = get_global_id(0), best = 0;
  float least = MAXFLOAT;
  if (p < points) {
    for (int i = 0; i < clusters; i++) {
      float d = 0;
      for (int l = 0; l < features; l++) {
        float e = x[l * points + p] - c[i * features + l];
        d += e * e;
      }
      if (d < least) { least = d; best = i; }
    }
    y[p] = best;
  }
}
""",
    "opencl",
    "nearest.cl",
)


def test_an_answer_that_hangs_on_what_was_assumed_says_so_in_its_interval() -> None:
    launch = {"local_size": 256, "global_size": 494080, "bytes": 69171200, "pair": "xeon-h200"}
    unknown = predict(NEAREST, **launch)  # type: ignore[arg-type]
    known = predict(NEAREST, **launch, arguments=("clusters=5", "features=34"))  # type: ignore[arg-type]
    assert unknown.interval[0] <= known.cpu_share <= unknown.interval[1]
    assert unknown.interval[1] - unknown.interval[0] > 0.5
    assert any("clusters=" in each and "trip count of a loop" in each for each in unknown.assumed)
    assert any("may depend on clusters, features, which were assumed" in each for each in unknown.warnings)
    assert unknown.as_json()["assumed"] == list(unknown.assumed)
    assert not any(each.startswith(("clusters", "features")) for each in known.assumed)
    assert known.warnings == ()
