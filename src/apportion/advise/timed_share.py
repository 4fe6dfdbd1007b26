"""The share of a launch by what each device will take: for pairs of devices whose times were learned.

A model of times needs to know what a kernel is given. Where only the number of bytes is known, arrays are
taken to be as long as the code reaches, integers to be sizes, and all of it is scaled to that number.
"""

from __future__ import annotations

import time
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
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.launch import PlannedLaunch
from apportion.program.kernel.signature import signature_of
from apportion.program.source import Source
from apportion.runtime.default_arguments import OTHER_TRIPS, Assumption, Deduced, deduced
from apportion.runtime.workload import beside

HOST, OTHER = "cpu", "gpu"
_DRAWS = 400
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
    "Arguments that were not given; where the answer may hang on one, the interval holds other values too."

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
        InvalidSetting: the launch has no range, or an argument that cannot be made up.
        UnknownName: no such pair or kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    if query.global_size is None:
        raise InvalidSetting(
            f"The models of {pair} know the range of a launch: give its global size (--global-size)"
        )
    model = timing_model(pair)
    began = time.perf_counter()
    source = query.source if isinstance(query.source, Source) else Source.read(query.source)
    ir = ir_of(source, compile or _DEFAULT)
    compiled = time.perf_counter()
    text = str(source.text) if source.language == "opencl" else ""
    signature = signature_of(ir, query.kernel, text)
    access = accesses_of(ir, text)[signature.name]
    span = NDRange(*(each if isinstance(each, tuple) else (each,) for each in _sizes(query)))
    given = beside(source, signature, query.arguments)
    found = deduced(signature, access, span, given)
    others = [deduced(signature, access, span, given, trips=trips) for trips in OTHER_TRIPS if found.guessed]
    launches = [_launch(query, each, ir, signature.name, text) for each in (found, *others)]
    rows = [(launch.row(), launch.totals()) for launch in launches]
    described = time.perf_counter()
    times = [(said[HOST], said[OTHER]) for said in (model.predict_all(*row) for row in rows)]
    cpu, gpu = times[0]
    share = _share(cpu, gpu)
    ends = [end for pair_of_times in times for end in _interval(*pair_of_times, confidence)]
    spent = {
        "compile": compiled - began,
        "graph": described - compiled,
        "predict": time.perf_counter() - described,
    }
    return TimedShare(
        share, (min(*ends, share), max(*ends, share)), cpu, gpu,
        model.agreement({HOST: cpu, OTHER: gpu}),
        {stage: 1e3 * seconds for stage, seconds in spent.items()}, found.assumed,
    )  # fmt: skip


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


def _sizes(query: Query) -> tuple[int | tuple[int, ...], int | tuple[int, ...]]:
    assert query.global_size is not None
    return query.global_size, query.local_size


def _share(cpu: Times, gpu: Times) -> float:
    costs = {
        HOST: CostModel(cpu.fixed, max(cpu.rate, 1e-12)), OTHER: CostModel(gpu.fixed, max(gpu.rate, 1e-12))
    }  # fmt: skip
    return best_split(costs)[0].shares[HOST]


def _scaled(times: Times, factor: float) -> Times:
    return Times(factor * times.fixed, factor * times.rate, times.spread)
