"""Every problem of the suite, for real, on two independent devices, one of which copies arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting, UnknownName
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.suite import PROBLEMS, problem_of
from apportion.suite.base import exactly
from apportion.suite.run import run_suite


@pytest.fixture(scope="module")
def pair() -> Iterator[OpenCLBackend]:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    options = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(options, Limits(seconds=20)) as backend:
        yield backend


@pytest.mark.parametrize("name", PROBLEMS)
def test_two_devices_compute_what_numpy_does(name: str, pair: OpenCLBackend) -> None:
    problem = PROBLEMS[name]
    instance = problem.instance(problem.small)
    arrays = instance.fresh()
    merges: dict[str, str] = {}
    for stage in instance.stages:
        with Together(problem.source(), stage.kernel, backend=pair, trust=True) as kernel:
            bound = kernel.bind(
                *instance.values(stage, arrays), global_size=stage.global_size, local_size=stage.local_size
            )
            merges |= bound.case.merges
            execution = bound.run("learned+feedback" if bound.case.obstacle else "even")
            bound.binding.give_back()
            shared = sum(share > 0 for share in execution.split.values()) == 2
            assert shared == ("refuse" not in merges.values())
    assert problem.verify(instance.expected, arrays) is None
    assert merges == dict(problem.merges)


def test_the_suite_covers_the_eight_problems_of_chai_and_more() -> None:
    after = {problem.chai for problem in PROBLEMS.values()} - {""}
    assert after == {"BS", "HSTI", "HSTO", "CEDD", "PAD", "SC", "RSCD", "TRNS"}
    assert len(PROBLEMS) - len(after) >= 12
    traits = frozenset().union(*(problem.traits for problem in PROBLEMS.values()))
    assert traits == {"memory", "compute", "stencil", "irregular", "atomic", "divergent", "local", "fp64"}


def test_a_verifier_finds_a_wrong_element() -> None:
    said = exactly({"c": np.array([1, 2, 3])}, {"c": np.array([1, 5, 3])})
    assert said == "c: 1 of 3 elements differ, first element 1: 5 against 2"


def test_candidates_may_come_in_any_order_but_must_be_those_of_the_reference() -> None:
    problem = problem_of("ransac")
    instance = problem.instance(problem.small)
    count = int(instance.expected["found"][0])
    assert 2 <= count < len(instance.arrays["candidates"])
    order = np.random.default_rng(1).permutation(count)
    found = {
        name: values[order] if len(values) == count else values for name, values in instance.expected.items()
    }
    assert problem.verify(instance.expected, found) is None
    wrong = dict(found, outliers=found["outliers"] + 1)
    assert problem.verify(instance.expected, wrong) == "outliers: not those of the reference"
    many = dict(found, found=np.array([64 * count]))
    assert problem.verify(instance.expected, many) == f"found: {64 * count} candidates instead of {count}"


def test_the_same_seed_makes_the_same_instance() -> None:
    problem = problem_of("sparse_matvec")
    one, other = problem.instance(256, seed=5), problem.instance(256, seed=5)
    assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)


def test_a_problem_that_is_too_small_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"A problem's size must be at least 64, not 8"):
        problem_of("triad").instance(8)


def test_an_unknown_problem_names_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"No problem called 'triadd'. Did you mean 'triad'"):
        problem_of("triadd")


def test_results_come_per_device_and_for_all_together(pair: OpenCLBackend) -> None:
    results = list(run_suite([problem_of("triad")], pair, size="small", repeats=1))
    assert [(r.device, r.verified) for r in results] == [("cpu", True), ("cpu2", True), ("together", True)]
    assert results[2].said == "c: slice"
    assert all(r.milliseconds is not None and r.milliseconds > 0 for r in results)


def test_a_problem_that_fails_is_reported_and_the_rest_goes_on(pair: OpenCLBackend) -> None:
    results = list(run_suite([problem_of("triad")], pair, devices=["gpu9"], size="small"))
    assert [(r.verified, r.milliseconds) for r in results] == [(False, None)]
    assert results[0].said.startswith("No device called 'gpu9'")
