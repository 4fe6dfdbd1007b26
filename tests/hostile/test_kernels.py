"""What a kernel tries costs its launch and no more: by system calls that no check of source sees, and without."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from apportion.jobs import landlock, seccomp
from apportion.runtime.opencl.platforms import intel_library
from apportion.runtime.opencl.worker import Worker
from tests.hostile.__main__ import attempts_on, page
from tests.hostile.kernels import ATTEMPTS, Attempt
from tests.hostile.plain import PLAIN_ATTEMPTS
from tests.hostile.trying import problem_of, target

pytest.importorskip("pyopencl")
pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="system calls have other numbers here"),
    pytest.mark.skipif(not landlock.version() or not seccomp.available(), reason="this kernel has no cage"),
    pytest.mark.xdist_group("opencl"),
]
CASES = [*ATTEMPTS, *PLAIN_ATTEMPTS]


@pytest.fixture(scope="module", params=["pocl", "intel"])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[str, Worker, str]]:
    """A driver, a worker that has it, and the name of its device."""
    if request.param == "intel" and intel_library() is None:
        pytest.skip("Intel's CPU runtime is not here: pip install 'apportion[intel]'")
    with target(request.param) as (started, device):
        assert started.confinement.whole
        yield request.param, started, device


@pytest.mark.parametrize("attempt", CASES, ids=[f"{one.category}: {one.name}" for one in CASES])
def test_a_kernel_that_tries_to_do_harm_costs_its_launch(
    attempt: Attempt, opened: tuple[str, Worker, str], tmp_path: Path
) -> None:
    driver, worker, device = opened
    assert problem_of(attempt, worker, device, tmp_path, driver) is None
    assert worker.confinement.whole  # started again where the attempt ended it


def test_the_page_counts_what_was_tried_and_names_what_was_not_survived() -> None:
    cases = [
        {"driver": "pocl", "category": "kill", "name": one.name, "problem": problem, "seconds": 1.0}
        for one, problem in zip(attempts_on("pocl")[:2], (None, "the harm was done"), strict=True)
    ]
    about = {"device": "cpu", "confinement": {"devices": ["/dev/nvidia0"]}}
    text = page(
        [
            {
                "command": "c",
                "date": "d",
                "system": "s",
                "hardware": "h",
                "drivers": {"pocl": about},
                "cases": cases,
            }
        ]
    )
    assert "| kill | 2 / 1 |" in text
    assert f"- PoCL 3, kill, {attempts_on('pocl')[1].name}: the harm was done" in text
    assert f"{attempts_on('pocl')[-1].category}: {attempts_on('pocl')[-1].name}" in text
    assert "Open to the process of PoCL 3: `/dev/nvidia0`." in text
