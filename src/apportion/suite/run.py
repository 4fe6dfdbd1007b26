"""Running the suite: verified against NumPy and timed, on each device alone and on all together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from apportion.coexecution.bound import BoundKernel, Execution
from apportion.coexecution.compare import compare
from apportion.coexecution.forecast import Predictor, from_speeds
from apportion.coexecution.session import Session
from apportion.coexecution.sharing import Together
from apportion.errors import ApportionError
from apportion.runtime.backend import Backend
from apportion.suite.base import Instance, Problem
from apportion.suite.programs.base import Program, SessionCalls

TOGETHER = "together"
"The name under which all devices at once are reported."
SESSION = "session"
"The name under which a program is reported whose session chose the devices."


@dataclass(frozen=True)
class Result:
    """One problem on one device, or on all together."""

    problem: str
    device: str
    milliseconds: float | None
    "The median over repeats, of all launches of the problem; None when it failed."
    verified: bool | None
    "Whether the results are NumPy's; None where nothing was computed."
    said: str = ""
    "What went wrong; for all devices together, how results were merged."
    shares: tuple[tuple[str, float], ...] = ()


def run_suite(
    problems: Iterable[Problem],
    backend: Backend,
    *,
    devices: Sequence[str] | None = None,
    size: str = "usual",
    repeats: int = 3,
    seed: int = 0,
    predictor: Predictor = from_speeds,
) -> Iterator[Result]:
    """Verify and time problems; a problem that fails is reported, and the next one is run.

    Args:
        devices: ids of the devices; None for all.
        size: `small` (for tests, not for timing), `usual` or `large` instances.
        predictor: predicts first launches.
    """
    names = list(devices) if devices is not None else [info.id for info in backend.devices()]
    for problem in problems:
        instance = problem.instance(getattr(problem, size), seed=seed)
        for chosen in [*([name] for name in names), *([names] if len(names) > 1 else [])]:
            device = chosen[0] if len(chosen) == 1 else TOGETHER
            try:
                yield _result(problem, instance, backend, chosen, device, repeats, predictor)
            except ApportionError as error:
                yield Result(problem.name, device, None, verified=False, said=str(error))


def _result(
    problem: Problem,
    instance: Instance,
    backend: Backend,
    devices: list[str],
    device: str,
    repeats: int,
    predictor: Predictor,
) -> Result:
    arrays: dict[str, NDArray[Any]] = instance.fresh()
    milliseconds = 0.0
    merges: dict[str, str] = {}
    shares: tuple[tuple[str, float], ...] = ()
    for stage in instance.stages:
        # The reference below verifies more than another run could.
        with Together(
            problem.source(), stage.kernel, devices, backend=backend, trust=True, predictor=predictor
        ) as kernel:
            bound = kernel.bind(
                *instance.values(stage, arrays), global_size=stage.global_size, local_size=stage.local_size
            )
            comparison = compare(bound, "learned+feedback", repeats=repeats)
            milliseconds += comparison.execution.seconds * 1e3
            if len(devices) > 1:
                shares = tuple(comparison.execution.split.items())
                merges |= _shared(bound).merge
            bound.binding.give_back()
    if not backend.computes:
        return Result(problem.name, device, milliseconds, None, "replayed: nothing was computed", shares)
    wrong = problem.verify(instance.expected, arrays)
    said = wrong or ", ".join(f"{name}: {merge}" for name, merge in merges.items() if merge != "none")
    return Result(problem.name, device, milliseconds, wrong is None, said, shares)


def _shared(bound: BoundKernel) -> Execution:
    """Leave the result of a shared launch, also where one device is faster: it is what must be verified."""
    bound.binding.restore()
    return bound.run("learned+feedback" if bound.case.obstacle else "even")


def run_programs(
    programs: Iterable[Program],
    backend: Backend,
    *,
    devices: Sequence[str] | None = None,
    size: str = "usual",
    repeats: int = 3,
    seed: int = 0,
    predictor: Predictor = from_speeds,
) -> Iterator[Result]:
    """Verify and time programs in sessions; one that fails is reported, and the next one is run.

    Args:
        devices: ids of the devices; None for all.
        size: `small` (for tests, not for timing) or `usual` instances.
        repeats: rounds that are timed after the first one.
        predictor: predicts what kernels take that have not run yet.
    """
    names = list(devices) if devices is not None else [info.id for info in backend.devices()]
    for program in programs:
        for device in [*names, *([SESSION] if len(names) > 1 else [])]:
            try:
                with Session(names, backend=backend, predictor=predictor) as session:
                    yield _rounds(session, program, device, getattr(program, size), repeats, seed)
            except ApportionError as error:
                yield Result(program.name, device, None, verified=False, said=str(error))


def _rounds(session: Session, program: Program, device: str, size: int, repeats: int, seed: int) -> Result:
    instance = program.instance(size, seed=seed)
    calls = SessionCalls(session, program, instance.arrays, None if device == SESSION else device)
    milliseconds = []
    wrong = None
    for number in range(1 + repeats):
        began = time.perf_counter()
        instance.steps(calls)
        session.wait()
        milliseconds.append(1e3 * (time.perf_counter() - began))
        if number == 0:
            wrong = program.verify(instance.expected, {name: calls.read(name) for name in instance.expected})
    said = f"the first round took {milliseconds[0]:.3f} ms"
    if device == SESSION:
        places = dict.fromkeys(decision.device for decision in session.explain())
        said += f", kernels ran on {' and '.join(places)}"
    return Result(program.name, device, statistics.median(milliseconds[1:]), wrong is None, wrong or said)
