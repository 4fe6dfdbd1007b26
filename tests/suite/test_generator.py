"""Generated kernels: the same for the same seed, each different from the others, verified by running them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from apportion.errors import ApportionError
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.workload import described
from apportion.suite.coverage import Coverage, draw_coverage
from apportion.suite.expressions import Draw
from apportion.suite.generator import Generated, drawn, generate, verify
from apportion.suite.kernelforms import FORMS


@pytest.fixture(scope="module")
def backend() -> Iterator[OpenCLBackend]:
    pytest.importorskip("pyopencl")
    pytest.importorskip("ziglang")
    options = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(options, Limits(seconds=20)) as started:
        yield started


def test_a_seed_and_a_number_give_the_same_kernel_again() -> None:
    assert drawn(3, 17) == drawn(3, 17)
    assert drawn(3, 17).source != drawn(3, 18).source
    assert drawn(4, 17).source != drawn(3, 17).source


@pytest.mark.parametrize("form", [form for form, _ in FORMS], ids=lambda form: form.__name__)
def test_every_form_names_its_parameters_and_gives_each_an_argument(form: object) -> None:
    for seed in range(8):
        draft = form(Draw(seed))  # type: ignore[operator]
        names = [parameter.split("*")[-1].split(" ")[-1].strip() for parameter in draft.parameters]
        assert names == list(draft.arguments)
        assert draft.work > 0
        assert len({len(local) for local in draft.locals}) == 1


def test_every_range_is_made_of_whole_work_groups_and_of_some_size() -> None:
    for number in range(60):
        made = drawn(5, number)
        assert len(made.ranges) >= 3
        assert all(1 << 9 <= span.work_items <= 1 << 23 for span in made.ranges)
        assert all(case.nbytes <= 1 << 29 for case in made.workload().cases)


def test_kernels_that_come_out_are_verified_and_different(backend: OpenCLBackend) -> None:
    found = list(generate(4, 2, backend))
    made = [each for each in found if isinstance(each, Generated)]
    assert len(made) == 4
    assert len({each.source for each in made}) == 4
    assert all(isinstance(each, Generated) or each.reason for each in found)


def test_a_kernel_that_writes_out_of_bounds_is_not_verified(backend: OpenCLBackend) -> None:
    made = drawn(2, 0)
    bad = replace(
        made,
        source="kernel void generated(global int *a) { a[get_global_id(0) + 1] = 1; }",
        arguments={"a": "int32[N]=zeros"},
    )
    with pytest.raises(ApportionError, match="wrote out of bounds"):
        verify(bad, backend)


def test_a_kernel_is_written_with_what_drives_it(tmp_path: Path) -> None:
    made = drawn(2, 1)
    made.write(tmp_path)
    found = described(tmp_path / f"{made.name}.cl")
    assert found == made.workload()
    assert json.loads((tmp_path / f"{made.name}.json").read_text())["form"] == made.form


def test_coverage_counts_each_kernel_once_on_each_axis() -> None:
    kernels = [drawn(6, number) for number in range(40)]
    coverage = Coverage.of(kernels)
    assert sum(coverage.forms.values()) == 40
    assert all(
        sum(coverage.panels[axis].values()) == 40 for axis in ("type", "access", "atomics", "local memory")
    )
    assert sum(coverage.panels["work-items of a range"].values()) == sum(
        len(kernel.ranges) for kernel in kernels
    )
    drawing = draw_coverage(coverage)
    assert drawing.startswith("<svg")
    assert "operations per byte" in drawing
