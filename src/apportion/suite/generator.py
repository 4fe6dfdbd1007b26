"""Generated kernels: drawn from a seed, each different from the others as a graph, verified by running
them."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from apportion.errors import ApportionError, InvalidSetting
from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.features import fingerprint
from apportion.program.kernel.signature import signature_of
from apportion.program.llvm import graph_of_ir
from apportion.program.source import Source
from apportion.runtime.backend import Backend
from apportion.runtime.visit import Visit, plan_of
from apportion.runtime.workload import Workload, resolved
from apportion.settings import replace_file
from apportion.suite.expressions import Draw
from apportion.suite.kernelforms import FORMS, TURNS, Draft

SUITE = "generated"
_SIZES = 4
_WHOLE = {1: (256,), 2: (64, 16), 3: (16, 8, 4)}
"Sizes are multiples of these, so that every work-group size divides them."
_MOST_ITEMS, _MOST_BYTES, _MOST_OPERATIONS = 1 << 22, 1 << 27, 1 << 31
_LEAST_ITEMS = 1 << 10
_SECONDS = 60.0


@dataclass(frozen=True)
class Generated:
    """A kernel of the generator."""

    name: str
    source: str
    form: str
    arguments: Mapping[str, str]
    ranges: tuple[NDRange, ...]
    traits: Mapping[str, float | str]

    def workload(self) -> Workload:
        """How to measure it."""
        cases = tuple(resolved(self.arguments, span) for span in self.ranges)
        return Workload(self.name, SUITE, self.source, "generated", cases)

    def write(self, folder: Path) -> None:
        """Write the source, and what describes it beside it."""
        said = {
            "kernel": "generated", "suite": SUITE, "form": self.form, "arguments": dict(self.arguments),
            "ranges": [[span.global_size, span.local_size] for span in self.ranges],
            "traits": dict(self.traits),
        }  # fmt: skip
        replace_file(folder / f"{self.name}.cl", self.source)
        replace_file(folder / f"{self.name}.json", json.dumps(said) + "\n")


@dataclass(frozen=True)
class Rejected:
    """A draw that did not become a kernel."""

    name: str
    form: str
    reason: str


def drawn(seed: int, number: int) -> Generated:
    """Kernel `number` of a seed; the same on every machine, whatever was drawn before."""
    draw = Draw([seed, number])
    weights = np.array([weight for _, weight in FORMS])
    form = FORMS[int(np.searchsorted(np.cumsum(weights / weights.sum()), draw.between(0, 9999) / 1e4))][0]
    draft = _with_turns(form(draw))
    traits = {"work": draft.work, "bytes": draft.bytes, **draft.traits}
    return Generated(
        f"g{seed}_{number:05d}", draft.source, draft.form, draft.arguments, _ranges(draft, draw), traits
    )


def generate(
    count: int, seed: int, backend: Backend, *, verified: Container[str] = ()
) -> Iterator[Generated | Rejected]:
    """Kernels that compile, are like no other, write nothing outside their arguments, and give equal results
    on every device of the backend; what was drawn in vain comes with its reason.

    Args:
        verified: names of kernels that need not be run again.

    Raises:
        InvalidSetting: a count below 1, or a seed that gives too few kernels.
    """
    if count < 1:
        raise InvalidSetting(f"count must be at least 1, not {count}")
    seen: dict[str, str] = {}
    found = number = 0
    while found < count:
        if number > 20 * count + 100:
            raise InvalidSetting(
                f"The seed {seed} gives {found} different kernels in {number} draws, not {count}"
            )
        made = drawn(seed, number)
        number += 1
        try:
            graph = fingerprint(graph_of_ir(ir_of(_source(made)), name=made.name))
            if graph in seen:
                yield Rejected(made.name, made.form, f"the graph of {seen[graph]}")
                continue
            if made.name not in verified:
                verify(made, backend)
        except ApportionError as error:
            yield Rejected(made.name, made.form, f"{type(error).__name__}: {error}")
            continue
        seen[graph] = made.name
        found += 1
        yield made


def verify(made: Generated, backend: Backend) -> None:
    """Run a kernel at its smallest size, with each work-group size, on every device.

    Raises:
        ApportionError: it does not compile, ends badly, writes out of bounds, or gives different results.
    """
    ir = ir_of(_source(made))
    signature = signature_of(ir, "generated", made.source)
    access = accesses_of(ir, made.source)["generated"]
    devices = tuple(info.id for info in backend.devices())
    workload = made.workload()
    smallest: dict[tuple[int, ...], Any] = {}
    for case in workload.cases:
        kept = smallest.get(case.span.local_size)
        if kept is None or case.span.work_items < kept.span.work_items:
            smallest[case.span.local_size] = case
    for case in smallest.values():
        plan = plan_of(workload, case, signature, access)
        visit = Visit(plan, case.arrays, devices, None, compare=0)
        for seen in backend.measure(visit, _SECONDS):
            if seen.failure:
                raise InvalidSetting(f"on {seen.device}: {seen.failure}")
            if seen.said:
                raise InvalidSetting(f"{seen.device} and {devices[0]} give different results: {seen.said}")


def _source(made: Generated) -> Source:
    return Source(made.source, "opencl", f"{made.name}.cl")


def _with_turns(draft: Draft) -> Draft:
    """The draft with its trip count as an argument, where it has one."""
    match = re.search(rf"{TURNS}(\d+)", draft.body)
    if match is None:
        return draft
    return replace(
        draft,
        body=draft.body.replace(match[0], "turns"),
        parameters=(*draft.parameters, "int turns"),
        arguments={**draft.arguments, "turns": f"int32:{match[1]}"},
    )


def _ranges(draft: Draft, draw: Draw) -> tuple[NDRange, ...]:
    """Sizes from small to as large as is worth waiting for, with each work-group size."""
    dimensions = len(draft.locals[0])
    most = min(_MOST_ITEMS, _MOST_BYTES / max(draft.bytes, 1), _MOST_OPERATIONS / max(draft.work, 1))
    most = max(most, 16 * _LEAST_ITEMS)
    sizes: list[tuple[int, ...]] = []
    for step in range(_SIZES):
        items = max(_LEAST_ITEMS, most / 4 ** (_SIZES - 1 - step) * draw.one((0.5, 0.625, 0.75, 0.875, 1.0)))
        if draft.traits.get("power of two"):
            sizes.append((1 << max(10, round(np.log2(items))),))
        else:
            sizes.append(_shape(items, dimensions, draw))
    return tuple(NDRange(size, local) for size in dict.fromkeys(sizes) for local in draft.locals)


def _shape(items: float, dimensions: int, draw: Draw) -> tuple[int, ...]:
    whole = _WHOLE[dimensions]
    side = items ** (1 / dimensions)
    stretch = draw.one((1.0, 1.0, 2.0, 0.5)) if dimensions > 1 else 1.0
    wanted = [side * stretch, side / stretch, *([side] if dimensions == 3 else [])][:dimensions]
    return tuple(max(1, round(size / step)) * step for size, step in zip(wanted, whole, strict=True))
