"""The suite's problems as workloads: each launch of each problem, with its arrays in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.program.kernel.bounds import NDRange
from apportion.runtime.base import LocalMemory
from apportion.runtime.workload import Case, Workload, from_json
from apportion.settings import replace_file
from apportion.suite import PROBLEMS
from apportion.suite.base import Instance, Problem, Stage

SUITE = "apportion"
SIZES = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)


def save_instance(problem: Problem, size: int, folder: Path, *, seed: int = 0) -> list[tuple[str, Case]]:
    """Make an instance and write its arrays; for each of its launches the kernel's name and the case.

    A launch that needs what an earlier one leaves gets the reference's result of it.
    """
    instance = problem.instance(size, seed=seed)
    found = []
    names: dict[str, Path] = {}
    for name, values in instance.arrays.items():
        names[name] = _save(values, folder / f"{problem.name}-{size}-{name}.npy")
    for number, stage in enumerate(instance.stages):
        found.append((stage.kernel, _case(instance, stage, names)))
        if number + 1 < len(instance.stages):
            for name, values in instance.expected.items():
                if name in stage.arguments:  # a later launch may read what this one wrote
                    names[name] = _save(values, folder / f"{problem.name}-{size}-{name}-after.npy")
    return found


def kept_instance(problem: Problem, size: int, folder: Path) -> list[tuple[str, Case]]:
    """As `save_instance`, once: what a folder holds already is read."""
    kept = folder / f"{problem.name}-{size}.json"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = save_instance(problem, size, folder)
        said = [
            [kernel, Workload("", "", "", kernel, (case,)).as_json()["cases"][0]] for kernel, case in made
        ]
        replace_file(kept, json.dumps(said).encode())  # another process may look for it
    return [
        (kernel, from_json({"name": "", "suite": "", "source": "", "kernel": "", "cases": [case]}).cases[0])
        for kernel, case in json.loads(kept.read_text())
    ]


def keep_instances(folder: Path, sizes: Sequence[int], problem: str) -> None:
    """Have instances of these sizes in a folder; a problem goes by its name, which can travel to a worker."""
    for size in sizes:
        kept_instance(PROBLEMS[problem], size, folder)


def workloads_of(problem: Problem, cases: Iterable[tuple[str, Case]]) -> list[Workload]:
    """A workload for each of a problem's kernels."""
    by_kernel: dict[str, list[Case]] = {}
    for kernel, case in cases:
        by_kernel.setdefault(kernel, []).append(case)
    text = str(problem.source().text)
    return [
        Workload(
            problem.name if len(by_kernel) == 1 else f"{problem.name}-{kernel}",
            SUITE,
            text,
            kernel,
            tuple(each),
        )
        for kernel, each in by_kernel.items()
    ]


def _case(instance: Instance, stage: Stage, names: dict[str, Path]) -> Case:
    words = []
    for value in stage.arguments:
        if isinstance(value, str):
            array = instance.arrays[value]
            words.append(f"{array.dtype.name}[{array.size}]=file:{names[value]}")
        elif isinstance(value, LocalMemory):
            words.append(f"local:{value.nbytes}")
        else:
            number = np.asarray(value)
            words.append(f"{number.dtype.name}:{number.item()}")
    return Case(NDRange(stage.global_size, stage.local_size), tuple(words))


def _save(values: NDArray[Any], path: Path) -> Path:
    np.save(path, np.ascontiguousarray(values), allow_pickle=False)
    return path
