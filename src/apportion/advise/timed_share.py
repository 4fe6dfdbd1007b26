"""The share of a launch by what each device will take: for pairs of devices whose times were learned.

A model of times needs to know what a kernel is given. Where only the number of bytes is known, arrays are
taken to be as long as the code reaches, integers to be sizes, and all of it is scaled to that number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from apportion.advise.launch_times import models, timing_model
from apportion.advise.queries import Query
from apportion.coexecution.cuts import CostModel, best_split
from apportion.errors import InvalidSetting
from apportion.learn.times.timing_model import Times
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.kernel.access import accesses_of
from apportion.program.kernel.bounds import NDRange, sizes_in_words
from apportion.program.kernel.launch import PlannedLaunch
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source
from apportion.runtime.default_arguments import OTHER_TRIPS, Assumption, Deduced, deduced
from apportion.runtime.workload import beside

HOST, OTHER = "cpu", "gpu"
_DRAWS = 400
_TRIED_GROUPS = 1 << 16
"Work-groups along each dimension; arrays that are no longer over so many do not grow with the range."
_MOST_GROUPS = 1 << 30
_DEFAULT = CompileOptions()


@dataclass(frozen=True)
class TimedShare:
    """Which share of a launch the CPU should take, and why."""

    share: float
    interval: tuple[float, float]
    cpu: Times
    gpu: Times
    agreement: float
    "1 where the trees behind the times agree, near 0 where they are at odds: a launch unlike those learned."
    milliseconds: dict[str, float]
    assumed: tuple[Assumption, ...] = ()
    "What was not given; where the answer may depend on one, the interval holds other values too."
    cpu_work_items: int | None = None
    "The share in whole work-groups."

    @property
    def faster(self) -> str:
        """The device that is expected to be faster alone."""
        return HOST if self.cpu.seconds < self.gpu.seconds else OTHER


def timed_pairs() -> list[str]:
    """The pairs of a CPU and a GPU whose times a shipped model learned."""
    return [
        name
        for name in models()
        if {device.device for device in timing_model(name).devices if device.name} >= {HOST, OTHER}
    ]


def timed_share(
    query: Query, pair: str | Path, *, confidence: float, compile: CompileOptions | None = None
) -> TimedShare:
    """The cut with which both devices end soonest; one of them alone is a candidate too.

    Raises:
        InvalidSetting: the launch has no range that follows from its bytes, or an argument that cannot be
            made up.
        UnknownName: no such pair or kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    model = timing_model(pair)
    planned = planned_launches(query, compile)
    began = time.perf_counter()
    rows = [(launch.row(), launch.totals()) for launch in planned.launches]
    times = [(said[HOST], said[OTHER]) for said in (model.predict_all(*row) for row in rows)]
    cpu, gpu = times[0]
    share = _share(cpu, gpu)
    ends = [end for pair_of_times in times for end in _interval(*pair_of_times, confidence)]
    spent = {**planned.milliseconds, "predict": 1e3 * (time.perf_counter() - began)}
    return TimedShare(
        share, (min(*ends, share), max(*ends, share)), cpu, gpu,
        model.agreement({HOST: cpu, OTHER: gpu}), spent, planned.assumed, planned.cut(share),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class PlannedLaunches:
    """A launch as models of times see it, with everything that had to be assumed."""

    span: NDRange
    launches: tuple[PlannedLaunch, ...]
    "The first is what is likeliest; the others guess other trip counts, where trip counts were guessed."
    assumed: tuple[Assumption, ...]
    milliseconds: dict[str, float]
    "compile, graph."

    def cut(self, share: float) -> int:
        """How many work-items a share is: whole work-groups."""
        group = math.prod(self.span.local_size)
        return round(share * (self.span.work_items // group)) * group


def planned_launches(query: Query, compile: CompileOptions | None = None) -> PlannedLaunches:
    """A launch whose arguments, and where it is not given whose range, are worked out from the code.

    Raises:
        InvalidSetting: the launch has no range that follows from its bytes, or an argument that cannot be
            made up.
        UnknownName: no such kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    began = time.perf_counter()
    source = query.source if isinstance(query.source, Source) else Source.read(query.source)
    ir = ir_of(source, compile or _DEFAULT)
    compiled = time.perf_counter()
    text = str(source.text) if source.language == "opencl" else ""
    signature = signature_of(ir, query.kernel, text)
    access = accesses_of(ir, text)[signature.name]
    given = beside(source, signature, query.arguments)
    span, assumed = _range_of(query, lambda span: deduced(signature, access, span, given).case.nbytes)
    found = deduced(signature, access, span, given)
    others = [deduced(signature, access, span, given, trips=trips) for trips in OTHER_TRIPS if found.guessed]
    launches = tuple(_launch(query, each, ir, signature.name, text) for each in (found, *others))
    described = time.perf_counter()
    spent = {"compile": 1e3 * (compiled - began), "graph": 1e3 * (described - compiled)}
    return PlannedLaunches(span, launches, (*assumed, *found.assumed), spent)


def _range_of(query: Query, nbytes: Callable[[NDRange], int]) -> tuple[NDRange, tuple[Assumption, ...]]:
    """The range that is given, or the largest whose arrays hold no more than the bytes that are moved.

    Args:
        nbytes: of the arrays that a kernel reaches over a range.
    """
    local = query.local_size if isinstance(query.local_size, tuple) else (query.local_size,)
    if query.global_size is not None:
        whole = query.global_size if isinstance(query.global_size, tuple) else (query.global_size,)
        return NDRange(whole, local), ()

    def of(groups: int) -> NDRange:
        return NDRange(tuple(groups * size for size in local), local)

    def fits(groups: int) -> bool:
        return nbytes(of(groups)) <= query.bytes

    if not query.bytes or nbytes(of(1)) == nbytes(of(_TRIED_GROUPS)) or not fits(1):
        raise InvalidSetting(
            f"How many work-items move {query.bytes} bytes does not follow from the code: give the global "
            "size (--global-size)"
        )
    low, high = 1, 2
    while fits(high) and high < _MOST_GROUPS:
        low, high = high, 2 * high
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    span = of(low)
    size = sizes_in_words(span.global_size)
    reason = f"over it the arrays that the code reaches hold {nbytes(span):,} bytes"
    return span, (Assumption("global_size", size, reason),)


def _interval(cpu: Times, gpu: Times, confidence: float) -> tuple[float, float]:
    """Between which shares the best one lies, as far as the times of this launch are known."""
    random = np.random.default_rng(0)
    off = np.exp(random.standard_normal((_DRAWS, 2)) * [cpu.spread, gpu.spread])
    drawn = [_share(_scaled(cpu, one), _scaled(gpu, other)) for one, other in off.tolist()]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return low, high


def _launch(query: Query, found: Deduced, ir: str, kernel: str, text: str) -> PlannedLaunch:
    launch: PlannedLaunch = found.case.launch(ir, kernel, text)
    # What is said to be moved goes for arrays whose lengths nobody gave.
    factor = query.bytes / found.case.nbytes if query.bytes and found.case.nbytes and found.assumed else 1.0
    scaled = {place: max(1, round(factor * nbytes)) for place, nbytes in launch.array_bytes.items()}
    # What arrays hold is made up here: loops that they end are better guessed.
    return replace(launch, array_bytes=scaled, contents={})


def _share(cpu: Times, gpu: Times) -> float:
    costs = {
        HOST: CostModel(cpu.fixed, max(cpu.rate, 1e-12)), OTHER: CostModel(gpu.fixed, max(gpu.rate, 1e-12))
    }  # fmt: skip
    return best_split(costs)[0].shares[HOST]


def _scaled(times: Times, factor: float) -> Times:
    return Times(factor * times.fixed, factor * times.rate, times.spread)
