"""What tuning claims, refuses and explains."""

from __future__ import annotations

import json
import math
import sys
import time

import numpy as np
import pytest

import apportion
from apportion.advise.tuning import Tunable
from apportion.advise.tuning_bench import gain_of
from apportion.cli import main
from apportion.errors import InvalidSetting
from apportion.measure.results import Tolerance, difference
from apportion.measure.space import Range, Space
from apportion.measure.tuning_table import read_table

ANY = Tolerance()


def bowl(*, x: float, y: float) -> float:
    return 1 + (x - 3) ** 2 + (y - 5) ** 2


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        ([1e6, 0, 0, 0, 0], [1e6, 1, 2, 3, 4], "element 1 is 0.0, not 1.0 (4 of 5 differ)"),
        (np.array([1 + 2j]), np.array([1 + 3j]), "the result is (1+2j), not (1+3j)"),
        (np.array([1.0, 2.0]), np.array([1, 2]), "the result holds real numbers (float64), not whole numbers (int64)"),
        (np.zeros(3), np.zeros((3, 1)), "the result has shape (3,), not (3, 1)"),
        ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 3.0}, "the result['b'] is 2.0, not 3.0"),
        ({"a": 1.0}, {"a": 1.0, "b": 3.0}, "the result differs in the keys b"),
        ((np.ones(2), 1.0), (np.ones(2), 1.0, 2.0), "the result has 2 parts, not 3"),
        ((np.ones(2), 1.0), (np.ones(2), 1.5), "the result[1] is 1.0, not 1.5"),
        ("abc", "abd", "the result is 'abc', not 'abd'"),
        ("abc", 1.0, "the result is a str, which cannot be compared"),
        (None, 1.0, "the result is a NoneType, which cannot be compared"),
        (1.0, {"a": 1.0}, "the result is a float, not a dict"),
        (float("nan"), 1.0, "the result is nan, not 1.0"),
        (True, np.array(1.0), "the result holds truths (bool), not real numbers (float64)"),
    ],
)  # fmt: skip
def test_a_wrong_result_is_told_by_its_place(found, expected, words):
    assert difference(found, expected, ANY).startswith(words)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (np.float32([1.0001, 2.0]), np.float32([1.0, 2.0])),
        ([1.0, float("nan")], [1.0, float("nan")]),
        ({"a": (np.ones(2), "x")}, {"a": (np.ones(2), "x")}),
        (np.float16([1.005]), [1.0]),
        (4096.0, 4096),
        (None, None),
    ],
)
def test_a_result_within_its_types_exactness_is_right(found, expected):
    assert difference(found, expected, ANY) == ""


def test_tolerances_can_be_given():
    assert difference(1.1, 1.0, ANY)
    assert not difference(1.1, 1.0, Tolerance(relative=0.2))
    assert difference(np.float32(1.0001), 1.0, Tolerance(0, 0))
    with pytest.raises(InvalidSetting, match="relative tolerance must be 0 or more, not -1"):
        Tolerance(-1)


def test_fifty_copies_of_one_function_are_not_faster_than_each_other():
    def same(*, which):
        end = time.perf_counter() + 1e-4
        while time.perf_counter() < end:
            pass

    tuning = apportion.tune(same, {"which": tuple(range(50))}, budget=30, repeats=1)
    assert tuning.gain is not None
    # The interval may miss 1 by chance, but what is claimed stays near it.
    assert tuning.speedup < 1.3
    if not tuning.gain.certain:
        assert tuning.gain.in_words().startswith("not faster than the median configuration measured")


def test_a_gain_is_claimed_only_where_the_whole_interval_lies_above_one():
    noise = np.random.default_rng(0).lognormal(0, 0.3, (2, 15))
    assert not gain_of(noise[0], noise[1], "the default").certain
    assert gain_of(noise[0], 5 * noise[1], "the default").certain


def test_all_configurations_failing_says_why():
    def fails(*, tile):
        if tile > 3:
            sys.exit("no more")
        raise ValueError(f"too small\nof {tile}")

    with pytest.raises(InvalidSetting) as told:
        apportion.tune(fails, {"tile": (1, 2, 4, 8, 16)}, budget=5)
    assert str(told.value).startswith("None of 5 configurations could be run: ")
    assert "3 × it called sys.exit('no more')" in str(told.value)
    assert "2 × ValueError: too small" in str(told.value)


def test_a_space_of_one_configuration_is_measured():
    tuning = apportion.tune(lambda *, tile: None, {"tile": (8,)}, budget=5, default={"tile": 8})
    assert tuning.best == {"tile": 8}
    assert math.isnan(tuning.speedup)
    tuning.in_words(tuning.best)


def test_a_budget_of_one_is_one_measurement():
    assert len(apportion.tune(lambda *, tile: None, {"tile": (8, 16)}, budget=1).measured) == 1


def test_what_a_function_returns_can_be_made_small():
    space = {"x": Range(0, 10), "y": Range(0.0, 10.0)}
    tuning = apportion.tune(bowl, space, budget=30, objective="returned", seed=1)
    assert tuning.fastest.value < 1.5
    assert tuning.best["x"] == 3
    assert tuning.gain is None
    assert [one.configuration for one in tuning.measured] == [
        one.configuration
        for one in apportion.tune(bowl, space, budget=30, objective="returned", seed=1).measured
    ]


def test_what_a_function_returns_may_be_below_zero():
    tuning = apportion.tune(lambda *, x: -float(x), {"x": Range(-20, 20)}, budget=15, objective="returned")
    assert tuning.best == {"x": 20}
    assert not any(one.failure for one in tuning.measured)


def test_the_default_is_the_first_measurement_and_is_kept(tmp_path):
    calls: list[int] = []

    def returns(*, x):
        calls.append(x)
        return 1.0 + abs(x - 3)

    def once():
        return apportion.tune(
            returns, {"x": tuple(range(9))}, budget=3, default={"x": 8}, objective="returned",
            study=tmp_path / "s.jsonl",
        )  # fmt: skip

    tuning = once()
    assert tuning.default is not None
    assert tuning.default.value == 6
    assert tuning.measured[0].configuration == {"x": 8}
    assert len(tuning.measured) == len(calls) == 3
    assert once().best == tuning.best
    assert len(calls) == 3


@pytest.mark.parametrize("format", ["t4", "kernel-tuner"])
def test_an_objective_that_is_no_time_is_written_and_read_as_what_it_is(tmp_path, format):
    tuning = apportion.tune(
        lambda *, x: {"energy": x - 2.5, "registers": 3.0}, {"x": (1, 2, 3)}, budget=3, objective="energy"
    )
    tuning.write(tmp_path / "found.json", format=format)
    table = read_table(tmp_path / "found.json")
    assert table.objective == "energy"
    assert {row.configuration["x"]: row.seconds for row in table.rows} == {1: -1.5, 2: -0.5, 3: 0.5}
    tuning.write_page(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "-1.5" in page
    assert " ms" not in page


def test_several_metrics_have_a_front():
    def both(*, x):
        return {"time": float(x), "energy": 10.0 / x}

    tuning = apportion.tune(both, {"x": (1, 2, 5, 10)}, budget=4, objective="energy")
    assert tuning.best == {"x": 10}
    assert {one.configuration["x"] for one in tuning.front} == {1, 2, 5, 10}
    by_time = apportion.tune(both, {"x": (1, 2, 5, 10)}, budget=4, objective="returned")
    assert by_time.best == {"x": 1}
    with pytest.raises(InvalidSetting, match="it returned no 'power', only time, energy"):
        apportion.tune(both, {"x": (1, 2)}, budget=2, objective="power")


def test_hopeless_configurations_are_not_repeated():
    calls: list[int] = []

    def spin(*, slow):
        calls.append(slow)
        end = time.perf_counter() + (2e-2 if slow else 1e-3)
        while time.perf_counter() < end:
            pass

    tuning = apportion.tune(spin, {"slow": (0, 1)}, budget=2, repeats=6, confirm=0)
    pruned = [one for one in tuning.measured if one.pruned]
    assert [one.configuration["slow"] for one in pruned] in ([], [1])  # [] where the slow one came first
    assert tuning.best == {"slow": 0}


def test_seconds_are_a_limit_too():
    start = time.monotonic()
    apportion.tune(
        lambda *, x: time.sleep(0.02), {"x": tuple(range(1000))}, seconds=0.5, repeats=1, confirm=0
    )
    assert time.monotonic() - start < 5
    with pytest.raises(InvalidSetting, match="Give a limit: a budget of measurements, or seconds"):
        apportion.tune(bowl, {"x": (1,)})


def test_options_of_a_tunable_are_not_given_twice():
    tunable = Tunable(bowl, {"x": (1, 2), "y": (1, 2)}, objective="returned")
    with pytest.raises(InvalidSetting, match="A Tunable says its expected itself; give it there"):
        apportion.tune(tunable, budget=2, expected=3)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prune": 2.0, "objective": "returned"}, "prune means nothing where what the function returns counts"),
        ({"confirm": 3, "objective": "returned"}, "confirm means nothing where what the function returns counts"),
        ({"tolerance": ANY}, "tolerance means nothing without what is expected; give expected, too"),
        ({"grid": lambda one: (1,)}, "grid means nothing for a function that is no Triton kernel"),
        ({"ranker": "mine"}, "The ranker 'mine' orders nothing without a graph of the program"),
    ],
)  # fmt: skip
def test_an_option_of_the_call_that_would_do_nothing_is_refused(options, problem):
    with pytest.raises(InvalidSetting, match=problem):
        apportion.tune(bowl, {"x": (1, 2), "y": (1, 2)}, budget=2, **options)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--ask", "--budget", "3"), "--budget means nothing for --ask and --tell"),
        (("--ask", "--tell", "{}"), "Either --ask or --tell: each is one step of the study"),
        (("--ask", "--model", "none"), "--model means nothing for --ask and --tell"),
        (("--command", "true {x}", "--budget", "2", "--results-format", "t4"), "name that file, too"),
        (
            ("--command", "true {x}", "--budget", "2", "--results", "r", "--results-format", "xml"),
            "--results-format is one of t4, kernel-tuner, t1, not 'xml'",
        ),
        (("--command", "true {x}", "--budget", "2", "--model", "mine"), "orders nothing without a graph"),
        (("--recorded", "t.csv", "--budget", "2", "--model", "mine"), "--model means nothing for a recorded table"),
    ],
)  # fmt: skip
def test_an_option_of_the_command_that_would_do_nothing_is_refused(tmp_path, capsys, words, problem):
    parameters = () if "--recorded" in words else ("--param", "x=1,2")
    study = ("--study", str(tmp_path / "s.jsonl")) if "--ask" in words else ()
    with pytest.raises(SystemExit) as ended:
        main(["tune", *parameters, *study, *words])
    assert ended.value.code == 1
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("--random-share", "7", "--check-share", "-3"),
            "--check-share means nothing for a program; leave it out",
        ),
        (("--param", "x=1,2"), "--param means nothing for a program; leave it out"),
        (("--seeds", "4"), "--seeds means nothing for a program; leave it out"),
        (("--shapes", "f32[2]"), "--shapes means nothing for a program; leave it out"),
    ],
)
def test_an_option_that_means_nothing_is_refused(tmp_path, capsys, words, problem):
    (tmp_path / "mine.py").write_text(
        "import apportion\nt = apportion.Tunable(lambda *, x: None, {'x': (1, 2)})\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["tune", f"{tmp_path / 'mine.py'}:t", "--budget", "2", *words])
    assert ended.value.code == 1
    assert problem in capsys.readouterr().err


def test_too_few_shapes_for_a_jax_function_are_told(tmp_path, capsys):
    pytest.importorskip("jax", reason="jax is not installed")
    (tmp_path / "mine.py").write_text("def attn(q, k, v):\n    return (q @ k.T) @ v\n")
    with pytest.raises(SystemExit) as ended:
        main(["rank", "tune", f"{tmp_path / 'mine.py'}:attn", "--shapes", "f32[8,8]", "--budget", "4"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "The function cannot be called with f32[8,8]: TypeError" in said
    assert len(said.splitlines()) == 1


def test_a_command_is_tuned(tmp_path, capsys):
    program = tmp_path / "prog.py"
    program.write_text(
        "import sys\nx, mode = int(sys.argv[1]), sys.argv[2]\n"
        "sys.exit('no such mode') if mode == 'bad' else print('took', 1 + (x - 6) ** 2 + (mode == 'b'))\n"
    )
    words = ["tune", "--command", f"{sys.executable} {program} {{x}} {{mode}}", "--param", "x=1..12"]
    words += ["--param", "mode=a,b,bad", "--objective", "returned", "--budget", "18", "--json"]
    words += ["--results", str(tmp_path / "t4.json"), "--default", "x=1", "--default", "mode=b"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["best"] == {"x": 6, "mode": "a"}
    assert said["value"] == 1
    assert said["how_to"] == f"To run it: {sys.executable} {program} 6 a"
    assert {one["failure"] for one in said["measured"] if one["failure"]} <= {
        "CommandFailed: exit status 1: no such mode"
    }
    written = json.loads((tmp_path / "t4.json").read_text())
    assert len(written["results"]) == 18


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--command", "true {x}"), "Give the parameters: --param tile=8,16,32"),
        (("--command", "true", "--param", "x=1,2"), "The command does not use the parameter 'x': write {x}"),
        (("--command", "true {y}", "--param", "x=1,2"), "The command names {y}, which is no parameter: x"),
        (("--command", "nosuchprogram {x}", "--param", "x=1,2"), "There is no program 'nosuchprogram'"),
        (("--command", "true {x}", "--param", "x=5..1"), "A range goes from a number to a larger one"),
        (("--command", "true {x}", "--param", "x=1,2", "--allowed", "x < z"), "names 'z', which is none of x"),
        (("--command", "true {x}", "--param", "x=1,2", "--allowed", "().__class__"), "only numbers, parameters and"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_tuned_says_why(words, problem, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words, "--budget", "2"])
    assert ended.value.code == 1
    assert problem in capsys.readouterr().err


def test_a_space_of_any_size_has_conditions(tmp_path):
    space = Space(
        {"mode": ("flat", "tree"), "depth": Range(1, 10**9), "rate": Range(1e-4, 1.0, log=True)},
        "rate < 0.5", conditions={"depth": "mode == 'tree'"},
    )  # fmt: skip

    def cost(*, mode, depth, rate):
        assert (depth is None) == (mode == "flat")
        return 1 + abs(math.log10(rate) + 2) + (0 if mode == "flat" else 1)

    tuning = apportion.tune(cost, space, budget=25, objective="returned")
    assert tuning.best["mode"] == "flat"
    assert tuning.fastest.value < 1.4
    assert all(one.configuration["rate"] < 0.5 for one in tuning.measured)
    tuning.write_page(tmp_path / "page.html")
    assert "Best" not in (tmp_path / "page.html").read_text()[:10]
