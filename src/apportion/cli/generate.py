"""`apportion generate`: kernels that are made up, valid and verified, to be measured and learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table, progress
from apportion.jobs.holding import held
from apportion.runtime.backend import open_backend
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.settings import replace_file
from apportion.suite.coverage import Coverage, draw_coverage
from apportion.suite.generator import Generated, Rejected
from apportion.suite.generator import generate as kernels_of

_FLAG = Parameter(negative="")


def generate(
    what: Literal["kernels"],
    *,
    count: int = 100,
    seed: int = 0,
    out: Path,
    deadline: float = 20.0,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Generate OpenCL kernels: each compiles, is like no other as a graph, ends, writes nothing outside its
    arguments, and gives equal results on two devices.

    Args:
        what: What to generate; so far only `kernels`.
        count: How many kernels.
        seed: Seed of the random numbers. The same seed gives the same kernels; a larger count adds to them.
        out: The folder for the kernels. Beside each `NAME.cl` stands `NAME.json`, which tells `apportion
            measure` its arguments and sizes. Kernels that are there already are not verified again.
            `coverage.svg` shows which features the kernels have.
        deadline: How many seconds verifying one kernel may take.
        json: Print one line of JSON for each kernel, and for each that was rejected, with the reason.
    """
    there = {path.stem for path in out.glob("g*.json") if path.with_suffix(".cl").exists()}
    made: list[Generated] = []
    vain = 0
    options = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with (
        held(out, ("g*.cl",)),
        open_backend(drivers=options, limits=Limits(seconds=deadline)) as backend,
    ):
        found = kernels_of(count, seed, backend, verified=there)
        for kernel in progress(found, label="Generating", total=count, quiet=json):
            if isinstance(kernel, Rejected):
                vain += 1
                if json:
                    print_json(kernel)
                continue
            kernel.write(out)
            made.append(kernel)
            if json:
                print_json(
                    {"name": kernel.name, "form": kernel.form, "ranges": len(kernel.ranges), **kernel.traits}
                )
    coverage = Coverage.of(made)
    replace_file(out / "coverage.svg", draw_coverage(coverage))
    if not json:
        print_table(("form", "kernels"), sorted(coverage.forms.items()), right=("kernels",))
    ranges = sum(len(kernel.ranges) for kernel in made)
    note(f"{len(made)} kernels with {ranges} ranges are in {out}; {vain} drafts were rejected.")
