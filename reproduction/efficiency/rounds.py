"""How near a policy comes to the best possible cut: each kernel alone, at every cut, and as chosen.

What is compared is launched in turn, round after round, so that a change of the machine's state touches all
of it; the best cut is measured again in those rounds, since the least of many noisy times is too small. A
trial of the policy starts without memory: its first launch follows the forecast, later ones what was seen.

Each turn is some launches in a row, as a program makes them, and the policy's first launch is compared with
the first launch of a turn, its third with the third: right after a launch with another cut the same launch
takes longer (on 16 processors with an H200 by a tenth or a sixth, once), because processors' caches hold what
others are about to read or write.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from apportion.coexecution.bound import BoundKernel, Execution
from apportion.coexecution.forecast import Predictor, from_speeds
from apportion.coexecution.observations import Observations
from apportion.coexecution.sharing import Together
from apportion.errors import ApportionError
from apportion.runtime.observe import processor_time
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.sampling import Measured, summary
from apportion.suite.base import Instance, Problem, Stage

POLICY = "learned+feedback"
_STEPS = 10
IN_A_ROW = 8
"Launches of a turn."
SETTLED = 2
"Of these, the launches that come before what was learned shows."
_LEAST_ROUNDS = 5
_SLOW = 8.0
"A device or cut this many times slower than the best is measured a few times only."
_AGAIN = 0.3
"Seconds of a launch up to which that is tried twice."
_FEW = 2
STEAL_TIME = 0.02
"""The part of the processors' time that a hypervisor may give to other machines in a round that counts, if
`_UNDISTURBED` rounds are left; else those count in which it was least."""
_UNDISTURBED = 10
_TOLD_ROUNDS = 20
"Rounds whose launches by the policy are told one by one."
_NEAR = 1.6
"Cuts within this factor of the best are repeated whatever the budget: one of them is the oracle's."
_CURVE_SHARE = 0.4
"The part of a kernel's budget that the curve of cuts may take."


@dataclass(frozen=True)
class Budget:
    """How long one kernel may take, and how often things are repeated."""

    seconds: float = 6.0
    rounds: int = 100
    cut_repeats: int = 3


@dataclass(frozen=True)
class Row:
    """One kernel; times in milliseconds as the caller saw them, transfers included."""

    problem: str
    kernel: str
    work_items: int = 0
    bytes_moved: int = 0
    devices: Mapping[str, str] = field(default_factory=dict)
    "Id → name."
    failure: str = ""
    obstacle: str = ""
    "Why the work is not shared."
    merge: Mapping[str, str] = field(default_factory=dict)
    verified: bool = False
    alone: Mapping[str, Measured] = field(default_factory=dict)
    curve: Mapping[str, float] = field(default_factory=dict)
    "Share of the first device → median."
    oracle_share: float = 0.0
    oracle: Measured | None = None
    "The best of the cuts and the devices alone, measured again in the rounds."
    first_shares: Mapping[str, float] = field(default_factory=dict)
    first: Measured | None = None
    settled_shares: Mapping[str, float] = field(default_factory=dict)
    settled: Measured | None = None
    "The third launch."
    lasting: Measured | None = None
    "The mean of the third launch and those after it in a turn."
    first_efficiency: Measured | None = None
    "The oracle's time over the policy's, round by round: its first launch."
    efficiency: Measured | None = None
    "The same of its third launch."
    lasting_efficiency: Measured | None = None
    "The same of the third and those after it."
    against_best: Measured | None = None
    "The third launch's time over that of the best device alone, round by round."
    lasting_against_best: Measured | None = None
    "The same of the third and those after it."
    origin: str = ""
    "What the first launch was predicted from."
    tries: list[list[list[float]]] = field(default_factory=list)
    """The policy's launches in the first rounds, as it saw them: the first device's share, milliseconds of
    the launch, and of each device that had a part until it was done."""
    in_a_row: int = 5
    "Launches of a turn."
    rounds: int = 0
    disturbed: int = 0
    "Of these, those that do not count: other machines got too much of the processors."
    overheads: Sequence[tuple[float, float]] = ()
    "(milliseconds of a launch, those in which no device worked and nothing was merged)."

    def as_json(self) -> dict[str, Any]:
        """A plain object, which `row_from` reads."""
        return asdict(self)


_MEASURED = (
    "oracle", "first", "settled", "lasting", "first_efficiency", "efficiency", "lasting_efficiency",
    "against_best", "lasting_against_best",
)  # fmt: skip


def row_from(values: Mapping[str, Any]) -> Row:
    """The row that `as_json` gave."""
    found = dict(values)
    for name in _MEASURED:
        found[name] = Measured(**found[name]) if found.get(name) is not None else None
    found["alone"] = {device: Measured(**measured) for device, measured in found["alone"].items()}
    found["overheads"] = [(total, over) for total, over in found["overheads"]]
    return Row(**found)


def evaluate(
    problems: Iterable[Problem],
    backend: OpenCLBackend,
    *,
    devices: Sequence[str] | None = None,
    predictor: Predictor = from_speeds,
    size: str = "usual",
    budget: Budget | None = None,
    seed: int = 0,
    done: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[Row]:
    """A row for each kernel of the problems; one that fails is a row with its reason.

    Args:
        predictor: predicts first launches.
        size: `small`, `usual` or `large` instances.
        done: (problem, kernel) pairs that are left out, because they were measured before.
    """
    names = list(devices) if devices is not None else [info.id for info in backend.devices()]
    for problem in problems:
        instance = problem.instance(getattr(problem, size), seed=seed)
        stages = {stage.kernel: stage for stage in instance.stages}
        if all((problem.name, kernel) in done for kernel in stages):
            continue
        for stage in stages.values():
            try:
                with Together(
                    problem.source(), stage.kernel, names, backend=backend, predictor=predictor
                ) as kernel:
                    yield _row(problem, instance, stage, kernel, budget or Budget(), seed)
            except ApportionError as error:
                yield Row(problem.name, stage.kernel, failure=str(error))


def bound_stage(kernel: Together, instance: Instance, stage: Stage) -> BoundKernel:
    """A stage of an instance, in arrays that devices use in place: what is measured then is the launch, not
    copies into a session."""
    arrays = {name: kernel.array(values.shape, values.dtype) for name, values in instance.arrays.items()}
    for name, values in instance.arrays.items():
        arrays[name][...] = values
    return kernel.bind(
        *instance.values(stage, arrays), global_size=stage.global_size, local_size=stage.local_size
    )


def _row(
    problem: Problem, instance: Instance, stage: Stage, kernel: Together, budget: Budget, seed: int
) -> Row:
    started = time.monotonic()
    bound = bound_stage(kernel, instance, stage)
    bound.binding.remember()
    bench = Bench(bound)
    verified = bench.run(POLICY)  # compiles and verifies what the policy begins with
    first = bound.devices[0].id
    for info in bound.devices:
        bench.run(info.id)
    curve: dict[float, list[float]] = {}
    once = [bench.run(info.id).wall_seconds for info in bound.devices]
    best = min(once)
    for number, info in enumerate(bound.devices):
        if _SLOW * best < once[number] < _AGAIN:  # it may be a hiccup
            once[number] = min(once[number], bench.run(info.id).wall_seconds)
    if not bound.case.obstacle and len(bound.devices) == 2:
        curve = _curve(bench, once, budget, started)
    medians = {share: summary(seconds).median for share, seconds in curve.items()}
    share = min(medians, key=lambda cut: medians[cut]) if medians else 0.0
    slow = {info.id for info, seconds in zip(bound.devices, once, strict=True) if seconds > _SLOW * best}
    rounds = _rounds(bench, share if medians else None, slow, budget, started, random.Random(seed))
    turns = rounds.counting()
    alone = {info.id: _after(turns[info.id]) for info in bound.devices}
    # The cut, or the device alone that turns out to be better still.
    candidates = [name for name in ("oracle", *alone) if name in turns]
    ranked = {name: _milliseconds(_after(turns[name])).median for name in candidates}
    oracle = min(ranked, key=lambda name: ranked[name])
    single = min(alone, key=lambda name: ranked[name])
    best_turns, alone_turns, tried = turns[oracle], turns[single], turns[POLICY]
    if oracle != "oracle":
        share = float(oracle == first)
    if len(instance.stages) > 1:  # what the next kernel works on
        bench.run(POLICY)
        for place in bound.binding.written:
            instance.arrays[_name_of(stage, place.name, kernel)][...] = bound.binding.shared[place.name]
    instance_bytes = sum(values.nbytes for values in instance.arrays.values())
    return Row(
        problem.name, stage.kernel, bound.span.work_items, instance_bytes,
        {info.id: info.name for info in bound.devices},
        obstacle=bound.case.obstacle, merge=dict(bound.case.merges), verified=verified.verified,
        alone={name: _milliseconds(seconds) for name, seconds in alone.items()},
        curve={f"{cut:g}": 1e3 * seconds for cut, seconds in sorted(medians.items())},
        oracle_share=share, oracle=_milliseconds(_after(best_turns)),
        first_shares=rounds.first_shares, first=_milliseconds(_nth(tried, 0)),
        settled_shares=rounds.settled_shares(first), settled=_milliseconds(_nth(tried, SETTLED)),
        lasting=_milliseconds(_after(tried)),
        first_efficiency=_ratio(_nth(best_turns, 0), _nth(tried, 0)),
        efficiency=_ratio(_nth(best_turns, SETTLED), _nth(tried, SETTLED)),
        lasting_efficiency=_ratio(_after(best_turns), _after(tried)),
        against_best=_ratio(_nth(tried, SETTLED), _nth(alone_turns, SETTLED)),
        lasting_against_best=_ratio(_after(tried), _after(alone_turns)),
        origin=bound.case.forecast.origin if bound.case.forecast is not None else "", tries=rounds.tries,
        in_a_row=IN_A_ROW, rounds=len(rounds.steal_time), disturbed=len(rounds.steal_time) - len(tried),
        overheads=[(round(1e3 * total, 4), round(1e3 * over, 4)) for total, over in bench.overheads],
    )  # fmt: skip


def _name_of(stage: Stage, argument: str, kernel: Together) -> str:
    """The array that an argument of a stage is."""
    name = stage.arguments[kernel.signature.argument(argument).index]
    assert isinstance(name, str)
    return name


class Bench:
    """Launches of one bound kernel, each from the same contents of its arrays."""

    def __init__(self, bound: BoundKernel) -> None:
        self.bound = bound
        self.overheads: list[tuple[float, float]] = []
        # What is only written, in slices, takes the same time whatever it held.
        self._matter = [
            place.name
            for place in bound.binding.written
            if place.read_reach != () or bound.case.merges[place.name] != "slice"
        ]

    def run(self, policy: str | float) -> Execution:
        self.bound.binding.restore(self._matter)
        execution = self.bound.run(policy)
        working = max(d.upload + d.kernel + d.download for d in execution.outcome.devices)
        over = execution.wall_seconds - working - execution.outcome.merge_seconds
        self.overheads.append((execution.wall_seconds, over))
        return execution


def _curve(bench: Bench, alone: Sequence[float], budget: Budget, started: float) -> dict[float, list[float]]:
    """Share of the first device → seconds, on a grid and refined round its best; cuts in turn."""
    found: dict[float, list[float]] = {}
    best, first_is_slower = min(alone), alone[0] > alone[1]
    latest = 0.0
    end = started + _CURVE_SHARE * budget.seconds

    def once(share: float) -> None:
        found.setdefault(share, []).append(bench.run(share).wall_seconds)

    # From the quicker device's end: once a cut takes far too long, those beyond it take longer still.
    steps = list(range(_STEPS + 1)) if first_is_slower else list(range(_STEPS, -1, -1))
    for repeat in range(budget.cut_repeats):
        for step in steps:
            share = step / _STEPS
            least = min(best, *(min(seconds) for seconds in found.values())) if found else best
            if repeat and share in found:
                times = min(found[share]) / least
                if times > _SLOW or (times > _NEAR and time.monotonic() > end):
                    continue
            elif repeat or (found and min(max(alone), found[latest][0]) > _SLOW * least):
                break
            once(share)
            latest = share
    for width in (0.5 / _STEPS, 0.25 / _STEPS):
        medians = {share: summary(seconds).median for share, seconds in found.items()}
        middle = min(medians, key=lambda share: medians[share])
        for share in (middle - width, middle + width):
            if 0 < share < 1 and round(share, 4) not in found:
                for _ in range(budget.cut_repeats):
                    once(round(share, 4))
    return found


Turns = Mapping[int, list[float]]
"Round → seconds of the launches of a turn."


@dataclass
class _Rounds:
    turns: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    "A device, `oracle` or the policy → its turns."
    steal_time: list[float] = field(default_factory=list)
    "The part of the processors' time that other machines got in each round; 0 where that is not known."
    first_shares: dict[str, float] = field(default_factory=dict)
    settled: list[dict[str, float]] = field(default_factory=list)
    "Shares of the policy's third launches."
    tries: list[list[list[float]]] = field(default_factory=list)
    "As a row has them."

    def settled_shares(self, first: str) -> dict[str, float]:
        """The shares in the middle of those of third launches, by what the first device got."""
        return sorted(self.settled, key=lambda shares: shares.get(first, 0.0))[len(self.settled) // 2]

    def counting(self) -> dict[str, Turns]:
        """The turns of rounds in which other machines did not get much of the processors; of what is measured
        a few times only, all of them if there is none such."""
        least = sorted(self.steal_time)[
            : max(_UNDISTURBED, sum(part <= STEAL_TIME for part in self.steal_time))
        ][-1]
        return {
            name: {n: turn for n, turn in turns.items() if self.steal_time[n] <= least} or turns
            for name, turns in self.turns.items()
        }


def _rounds(
    bench: Bench,
    share: float | None,
    slow: set[str],
    budget: Budget,
    started: float,
    generator: random.Random,
) -> _Rounds:
    found = _Rounds()
    names = [info.id for info in bench.bound.devices]
    for number in range(budget.rounds):
        if number >= _LEAST_ROUNDS and time.monotonic() - started > budget.seconds:
            break
        before = processor_time()
        what = [name for name in names if name not in slow or number < _FEW]
        what += [POLICY] + (["oracle"] if share is not None else [])
        generator.shuffle(what)
        for name in what:
            if name == POLICY:
                bench.bound.case.seen = Observations()
            cut = share if name == "oracle" else None
            launches = [
                bench.run(name if cut is None else cut) for _ in range(1 if name in slow else IN_A_ROW)
            ]
            found.turns.setdefault(name, {})[number] = [launch.wall_seconds for launch in launches]
            if name == POLICY:
                found.first_shares = dict(launches[0].split)
                found.settled.append(dict(launches[SETTLED].split))
                if number < _TOLD_ROUNDS:
                    found.tries.append([_told(launch, names[0]) for launch in launches])
        after = processor_time()
        found.steal_time.append(after.steal_part_since(before) if before and after else 0.0)
    return found


def _told(launch: Execution, first: str) -> list[float]:
    """What `Row.tries` says of a launch."""
    devices = [each.seconds for each in launch.outcome.devices if each.groups]
    numbers = [launch.split.get(first, 0.0), *(1e3 * each for each in (launch.wall_seconds, *devices))]
    return [round(number, 4) for number in numbers]


def _nth(turns: Turns, number: int) -> dict[int, float]:
    """The launch of this number, from 0, of each turn; the last one of turns that are shorter."""
    return {n: turn[min(number, len(turn) - 1)] for n, turn in turns.items()}


def _after(turns: Turns) -> dict[int, float]:
    """The mean of each turn's third launch and those after it."""
    return {n: statistics.fmean(turn[SETTLED:] or turn) for n, turn in turns.items()}


def _milliseconds(seconds: Mapping[int, float]) -> Measured:
    return summary([1e3 * each for each in seconds.values()])


def _ratio(above: Mapping[int, float], below: Mapping[int, float]) -> Measured:
    """Round by round; where no round has both, in the order of rounds."""
    both = [n for n in above if n in below]
    pairs = [(above[n], below[n]) for n in both] or list(zip(above.values(), below.values(), strict=False))
    return summary([a / b for a, b in pairs])
