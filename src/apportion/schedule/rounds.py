"""Gavel's execution model: rounds of six minutes, each job on one system or none, by shares that a policy
gives."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion import _native
from apportion.errors import ApportionError, InvalidSetting, JobError, UnknownName
from apportion.schedule.assignment import CANNOT, first_of_each_slot
from apportion.schedule.equal_systems import equal_systems
from apportion.schedule.problem import Schedule, SchedulingProblem
from apportion.schedule.programs import (
    UnsolvedProgram,
    largest_least,
    largest_sum,
    least_makespan,
    said_of,
    shortest_lateness,
    spare_share,
)
from apportion.schedule.trace import Floats, Integers

SHUFFLE_SEED = 5
"Added to the seed for the order of systems, so that it is not the one of the policy's own draws."
PARTS = 1_000_000
"Steps of a job whose source knows none: rounds then hand out millionths of it."


@dataclass(frozen=True, eq=False)
class Moment:
    """What a policy is told when it is asked for shares: the n active jobs, oldest first."""

    now: float
    active: Integers  # (n,): rows of the trace
    left: Floats  # (n,): steps
    rate: Floats  # (n, S): steps per second as believed; 0: cannot run
    width: Integers
    weight: Floats
    age: Floats  # (n,): seconds since arrival
    slots: Integers
    systems: tuple[str, ...]

    @property
    def able(self) -> NDArray[np.bool_]:
        return (self.rate > 0) & (self.width[:, None] <= self.slots)

    def equal_share(self) -> Floats:  # (n, S)
        """Each job's share of every system, were all treated alike."""
        share = self.slots / (len(self.active) * self.width[:, None])
        return np.asarray(share / np.maximum(1.0, share.sum(axis=1, keepdims=True)))


class RoundPolicy:
    """Shares for the active jobs. One is made for each simulation, so it may remember."""

    knows_speeds = False
    "Otherwise the order of systems is shuffled each round."
    fill = True
    "Whether jobs without a claim may use what is left."

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def shares(self, moment: Moment) -> Floats:
        raise InvalidSetting(f"{type(self).__name__} does not say how it shares")


class MaxMinFairness(RoundPolicy):
    """Every job as large a part as possible of what an equal share of time would give it."""

    def shares(self, moment: Moment) -> Floats:
        claim = moment.weight / moment.width
        return equal_systems(
            lambda level: np.minimum(1.0, level * claim), moment.width, moment.slots, falling=False
        )


class MaxMinFairnessPerf(RoundPolicy):
    """Every job as large a part as possible of the speed that an equal share would give it."""

    knows_speeds = True

    def shares(self, moment: Moment) -> Floats:
        rate = np.where(moment.able, moment.rate, 0)
        usual = (rate * moment.slots).sum(axis=1) / moment.slots.sum()
        factor = moment.width / (moment.weight * usual)
        return largest_least(rate * factor[:, None], moment.width, moment.slots).share


class MinTotalDuration(RoundPolicy):
    """The shortest time in which all could be done, as if every system were the first."""

    def shares(self, moment: Moment) -> Floats:
        seconds = moment.left / _first_speed(moment)
        shortest = max(float(seconds.max()), float(moment.width @ seconds) / float(moment.slots.sum()))
        # What the shortest time leaves over goes to those with the least part.
        return equal_systems(
            lambda level: np.clip(level, seconds / shortest, 1.0), moment.width, moment.slots, falling=False
        )


class MinTotalDurationPerf(RoundPolicy):
    """The shortest time in which all could be done."""

    knows_speeds = True

    def shares(self, moment: Moment) -> Floats:
        rate = np.where(moment.able, moment.rate, 0)
        with np.errstate(divide="ignore"):
            seconds = moment.left[:, None] / rate
        return least_makespan(seconds, moment.width, moment.slots, then=spare_share(rate)).share


def _first_speed(moment: Moment) -> Floats:  # (n,)
    """Each job's speed on the first system where it can run."""
    return np.take_along_axis(moment.rate, moment.able.argmax(axis=1)[:, None], axis=1)[:, 0]


class MaxSumThroughputPerf(RoundPolicy):
    """The most steps per second of all jobs together: jobs with many small steps win, the others starve."""

    knows_speeds = True

    def shares(self, moment: Moment) -> Floats:
        return largest_sum(np.where(moment.able, moment.rate, 0), moment.width, moment.slots).share


@dataclass
class _Alone:
    """How long a job would have taken so far, had it run by itself on an equal share."""

    seconds: float = 0.0
    left: float = 0.0
    speed: float = 0.0


class FinishTimeFairness(RoundPolicy):
    """The least of the largest ratios of a job's finish to what an equal share would have given it, as if
    every system were the first."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kept: dict[int, _Alone] = {}

    def shares(self, moment: Moment) -> Floats:
        speed = _first_speed(moment)
        alone = self.alone(moment, np.repeat(speed[:, None], len(moment.slots), axis=1))
        seconds = moment.left / speed
        return equal_systems(
            lambda ratio: seconds / np.maximum(seconds, ratio * alone - moment.age),
            moment.width, moment.slots, falling=True,
        )  # fmt: skip

    def alone(self, moment: Moment, rate: Floats) -> Floats:  # (n,)
        """What each job would take from arrival to end, had it an equal share all along."""
        speed = (rate * moment.equal_share()).sum(axis=1)
        seconds = np.zeros(len(moment.active))
        for place, job in enumerate(moment.active.tolist()):
            kept = self.kept.setdefault(job, _Alone())
            if kept.speed > 0:
                kept.seconds += (kept.left - moment.left[place]) / kept.speed
            kept.left, kept.speed = float(moment.left[place]), float(speed[place])
            seconds[place] = kept.seconds
        return np.asarray(seconds + moment.left / speed)


class FinishTimeFairnessPerf(FinishTimeFairness):
    """Finish-time fairness by each system's own speed."""

    knows_speeds = True

    def shares(self, moment: Moment) -> Floats:
        rate = np.where(moment.able, moment.rate, 0)
        alone = self.alone(moment, rate)
        return shortest_lateness(rate, moment.left, moment.age, alone, moment.width, moment.slots).share


class Isolated(RoundPolicy):
    """An equal share of every system for each job."""

    def shares(self, moment: Moment) -> Floats:
        return moment.equal_share()


class FifoPerf(RoundPolicy):
    """In order of arrival, each on the fastest system with room, until one fits nowhere."""

    knows_speeds = True
    fill = False

    def shares(self, moment: Moment) -> Floats:
        room, share = moment.slots.copy(), np.zeros(moment.rate.shape)
        for place, rate in enumerate(moment.rate):
            free = moment.width[place] <= room
            if not free.any():
                break
            if not (free & (rate > 0)).any():
                continue  # there is room, but only where the job cannot run: others may pass it
            at = int(np.where(free, moment.rate[place], 0).argmax())
            room[at] -= moment.width[place]
            share[place, at] = 1
        return share


class FifoFixed(RoundPolicy):
    """In order of arrival, each on a system with room that is drawn at random and kept, until one fits
    nowhere."""

    fill = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kept: dict[int, int] = {}

    def shares(self, moment: Moment) -> Floats:
        active = moment.active.tolist()
        self.kept = {job: at for job, at in self.kept.items() if job in set(active)}
        room, share = moment.slots.copy(), np.zeros(moment.rate.shape)
        for place, job in enumerate(active):
            if job in self.kept:
                room[self.kept[job]] -= moment.width[place]
                share[place, self.kept[job]] = 1
        alphabetical = sorted(range(len(moment.systems)), key=lambda at: moment.systems[at])
        for place, job in enumerate(active):
            if job in self.kept:
                continue
            free = [at for at in alphabetical if moment.able[place, at] and moment.width[place] <= room[at]]
            if not free:
                break
            at = self.random.choice(free)
            self.kept[job] = at
            room[at] -= moment.width[place]
            share[place, at] = 1
        return share


class AlloX(RoundPolicy):
    """The least sum of completions: jobs are assigned to places counted from the end of each slot's queue."""

    knows_speeds = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kept: dict[int, int] = {}

    def shares(self, moment: Moment) -> Floats:
        if (moment.width > 1).any():
            raise InvalidSetting("allox knows jobs of one slot only, and this trace has wider ones")
        active = moment.active.tolist()
        self.kept = {job: at for job, at in self.kept.items() if job in set(active)}
        room = moment.slots.copy()
        for at in self.kept.values():
            room[at] -= 1
        waiting = [place for place, job in enumerate(active) if job not in self.kept]
        alphabetical = sorted(range(len(moment.systems)), key=lambda at: moment.systems[at])
        slots = [at for at in alphabetical for _ in range(room[at])]
        if waiting and slots:
            with np.errstate(divide="ignore"):
                seconds = moment.left[waiting, None] / moment.rate[waiting][:, slots]
            seconds = np.where(np.isfinite(seconds), seconds, CANNOT)
            for place, at in first_of_each_slot(seconds, moment.age[waiting]):
                self.kept[active[waiting[place]]] = slots[at]
        share = np.zeros(moment.rate.shape)
        for place, job in enumerate(active):
            if job in self.kept:
                share[place, self.kept[job]] = 1
        return share


class ShortestLeft(RoundPolicy):
    """The job with the least work left first, on the fastest system with room: with preemption, `srpt`."""

    knows_speeds = True

    def shares(self, moment: Moment) -> Floats:
        room, share = moment.slots.copy(), np.zeros(moment.rate.shape)
        work = moment.left / moment.rate.max(axis=1) * moment.width
        for place in np.lexsort((moment.active, work)).tolist():
            free = moment.able[place] & (moment.width[place] <= room)
            if free.any():
                at = int(np.where(free, moment.rate[place], 0).argmax())
                room[at] -= moment.width[place]
                share[place, at] = 1
        return share


ROUND_POLICIES: dict[str, type[RoundPolicy]] = {
    "fifo": FifoFixed,  # Gavel's own draws a type and does not use the draw
    "fifo_fixed": FifoFixed,
    "fifo_perf": FifoPerf,
    "max_min_fairness": MaxMinFairness,
    "max_min_fairness_perf": MaxMinFairnessPerf,
    "min_total_duration": MinTotalDuration,
    "min_total_duration_perf": MinTotalDurationPerf,
    "max_sum_throughput_perf": MaxSumThroughputPerf,
    "finish_time_fairness": FinishTimeFairness,
    "finish_time_fairness_perf": FinishTimeFairnessPerf,
    "isolated": Isolated,
    "allox": AlloX,
    "srpt": ShortestLeft,
}
"Policies of rounds, by the names of Gavel."


@dataclass
class _Asking:
    """The calls of the simulator, answered by a policy; a program that is not solved keeps the last
    shares."""

    problem: SchedulingProblem
    policy: RoundPolicy
    rate: Floats
    kept: dict[int, Floats] = field(default_factory=dict)
    seconds: float = 0.0
    failures: int = 0

    def __call__(self, now: float, active: Integers, left: Integers) -> Floats:
        trace = self.problem.trace
        weight = np.ones(len(active)) if trace.weight is None else trace.weight[active]
        moment = Moment(
            now, active, left.astype(float), self.rate[active], trace.width[active], weight,
            now - trace.arrival[active], trace.slots, trace.names,
        )  # fmt: skip
        began = time.process_time()
        try:
            share = self.policy.shares(moment)
        except UnsolvedProgram:
            self.failures += 1
            equal = moment.equal_share()
            share = np.array([self.kept.get(job, equal[place]) for place, job in enumerate(active.tolist())])
        self.seconds += time.process_time() - began
        share = np.ascontiguousarray(share)
        self.kept = dict(zip(active.tolist(), share, strict=True))
        return share


def run_in_rounds(problem: SchedulingProblem, name: str) -> Schedule:
    """The trace in rounds, by a policy of `ROUND_POLICIES`."""
    if name not in ROUND_POLICIES:
        raise UnknownName("policy of rounds", name, ROUND_POLICIES)
    trace, settings = problem.trace, problem.settings
    if trace.limit is not None:
        raise InvalidSetting("Rounds have no time limits; use --execution run-to-end for this trace")
    steps = trace.steps if trace.steps is not None else np.full(len(trace), PARTS, np.int64)
    truth = trace.speed if trace.speed is not None else steps[:, None] / trace.seconds
    speed = np.ascontiguousarray(np.where(trace.eligible(), truth, 0.0))
    believed = trace.eligible() & np.isfinite(problem.beliefs.seconds)
    exact = np.array_equal(problem.beliefs.seconds, np.where(trace.eligible(), trace.seconds, np.inf))
    rate = speed if exact else np.where(believed, steps[:, None] / problem.beliefs.seconds, 0.0)
    policy = ROUND_POLICIES[name](settings.seed)
    asking = _Asking(problem, policy, rate)
    shuffler = random.Random(settings.seed + SHUFFLE_SEED)

    def shuffled(systems: list[int]) -> list[int]:
        shuffler.shuffle(systems)
        return systems

    order: Callable[[list[int]], list[int]] | None = None if policy.knows_speeds else shuffled
    try:
        start, end, ran, dropped, rounds, allocations, pieces = _native.run_rounds(
            trace.arrival, trace.width, steps, speed, trace.slots.tolist(), asking, order,
            fill=policy.fill, drop=settings.drop_short_steps,
        )  # fmt: skip
    except RuntimeError as error:
        raise error if isinstance(error, ApportionError) else JobError(f"{name}: {error}") from error
    ran = ran.reshape(len(trace), len(trace.systems))
    return Schedule(
        ran.argmax(axis=1).astype(np.int32), start, end, ran, np.full(len(trace), np.nan),
        dropped.astype(bool), np.zeros(len(trace), bool), policy_seconds=asking.seconds,
        allocations=allocations, rounds=rounds,
        pieces=pieces, notes=said_of(asking.failures),
    )  # fmt: skip
