"""Tuning a function of the user's own."""

from __future__ import annotations

import json
import time
from xml.etree import ElementTree

import pytest

import apportion
from apportion.cli import main
from apportion.errors import InvalidSetting
from apportion.measure.space import Space

SPACE = {"tile": (4, 8, 16, 32, 64), "unroll": (1, 2, 4)}
SOURCE = """
import time
import apportion

def spin(*, tile, unroll):
    end = time.process_time() + 5e-4 * (1 + abs(tile - 16) / 16) * (1 + 4 * (unroll != 2))
    while time.process_time() < end:
        pass

def layer(x, w):
    return (x @ w).sum(0)

tunable = apportion.Tunable(spin, {"tile": (4, 8, 16, 32, 64), "unroll": (1, 2, 4)})
"""


def spin(start: float, *, tile: int, unroll: int) -> float:
    if tile == 64:
        raise ValueError("too large a tile")
    end = time.perf_counter() + 1e-4 * (1 + abs(tile - 16) / 8) * (1 + 2 * (unroll != 2))
    while time.perf_counter() < end:
        pass
    return start + (unroll == 4)


def test_a_function_is_tuned_in_one_call_and_wrong_or_failing_configurations_are_left_out():
    tuning = apportion.tune(
        spin, SPACE, arguments=(1.0,), budget=15, expected=1.0, default={"tile": 4, "unroll": 1}, repeats=7
    )
    assert dict(tuning.best) == {"tile": 16, "unroll": 2}
    assert tuning.speedup > 1.5
    assert tuning.gain.certain
    assert "times as fast as the default (between" in tuning.gain.in_words()
    failures = {one.configuration["tile"]: one.failure for one in tuning.measured if one.failure}
    assert failures[64] == "ValueError: too large a tile"
    assert "wrong result: the result is 2.0, not 1.0" in failures.values()
    assert len(tuning.predicted) == 15


def test_the_page_is_well_formed_and_says_what_is_best(tmp_path):
    tuning = apportion.tune(spin, SPACE, arguments=(1.0,), budget=8, repeats=2)
    tuning.write_page(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    ElementTree.fromstring(text.removeprefix("<!doctype html>"))
    assert "configurations measured" in text


def test_what_cannot_be_tuned_says_why():
    with pytest.raises(InvalidSetting, match="needs a space to be tuned in"):
        apportion.tune(spin, budget=8)
    with pytest.raises(InvalidSetting, match="repeats must be at least 1, not 0"):
        apportion.tune(spin, SPACE, budget=8, repeats=0)
    with pytest.raises(InvalidSetting, match=r"The default .* is no configuration of the space"):
        apportion.tune(spin, SPACE, budget=8, default={"tile": 5, "unroll": 1})
    with pytest.raises(InvalidSetting, match="No combination of tile, unroll is allowed"):
        apportion.tune(spin, Space(SPACE, lambda one: False), budget=8)


def test_a_function_of_jax_arrays_is_compiled_for_each_configuration():
    jax = pytest.importorskip("jax", reason="jax is not installed")

    def blocked_sum(x, *, block):
        return x.reshape(-1, block).sum(1).sum()

    x = jax.numpy.ones(4096)
    tuning = apportion.tune(
        blocked_sum,
        {"block": (16, 64, 256, 1000, 1024)},
        arguments=(x,),
        budget=5,
        expected=4096.0,
        repeats=2,
    )
    failed = [one.configuration["block"] for one in tuning.measured if one.failure]
    assert failed == [1000]


def test_the_command_tunes_what_a_file_declares_and_writes_a_page(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(SOURCE)
    words = ["rank", "tune", f"{tmp_path / 'mine.py'}:tunable", "--budget", "9"]
    with pytest.raises(SystemExit) as leaving:
        main([*words, "--out", str(tmp_path / "page.html"), "--json"])
    assert not leaving.value.code
    printed = json.loads(capsys.readouterr().out)
    assert printed["best"]["unroll"] == 2
    assert len(printed["measured"]) == 9
    assert len(printed["speedup_interval"]) == 2
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_the_command_tunes_the_layouts_of_a_jax_function(tmp_path, capsys):
    pytest.importorskip("jax", reason="jax is not installed")
    (tmp_path / "mine.py").write_text(SOURCE)
    words = ["rank", "tune", f"{tmp_path / 'mine.py'}:layer", "--budget", "4", "--repeats", "2", "--json"]
    with pytest.raises(SystemExit) as leaving:
        main([*words, "--shapes", "f32[16,32]", "f32[32,8]"])
    assert not leaving.value.code
    printed = json.loads(capsys.readouterr().out)
    assert (printed["configurations"], len(printed["measured"])) == (8, 4)
    assert set(printed["best"]) == {"dot.0.result", "dot.0.first", "dot.0.second"}
    assert set(printed["best"].values()) <= {"row-major", "column-major"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "Give either a program to tune, a --command, an --opencl file or a --recorded file"),
        (("math:pi",), "math:pi is neither an apportion.Tunable nor a function"),
        (("math:sqrt",), "math:sqrt is a function: say the --shapes that it is called with"),
    ],
)
def test_what_the_command_cannot_tune_says_why(words, problem, capsys):
    with pytest.raises(SystemExit):
        main(["rank", "tune", *words, "--budget", "4"])
    assert problem in capsys.readouterr().err
