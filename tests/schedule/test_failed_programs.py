"""A linear program that the solver does not solve: the last shares are kept, and the result says so."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.schedule.beliefs import exact
from apportion.schedule.problem import SchedulingProblem
from apportion.schedule.programs import UnsolvedProgram, _capacity, _solved, said_of
from apportion.schedule.readers.synthetic import read
from apportion.schedule.readers.trace_source import TraceRequest
from apportion.schedule.rounds import ROUND_POLICIES, MaxMinFairnessPerf, RoundPolicy, run_in_rounds
from apportion.schedule.simulate import simulate
from apportion.schedule.trace import parse_systems


class GivesUp(MaxMinFairnessPerf):
    """Max-min fairness whose program, from the second call on, asks for more than all slots: HiGHS finds no
    solution."""

    asked = 0

    def shares(self, moment):
        self.asked += 1
        if self.asked == 1:
            return super().shares(moment)
        capacity = _capacity(moment.able, moment.width, moment.slots)
        cost = np.zeros(len(capacity.row))
        return _solved(cost, capacity.matrix, capacity.bound, least=float(moment.slots.sum()) + 1).x


class FirstShares(MaxMinFairnessPerf):
    """Each job keeps the shares of the first call; one that came later has an equal share."""

    def __init__(self, seed):
        super().__init__(seed)
        self.kept = None

    def shares(self, moment):
        found = super().shares(moment) if self.kept is None else moment.equal_share()
        active = moment.active.tolist()
        if self.kept is not None:
            found = np.array([self.kept.get(job, found[place]) for place, job in enumerate(active)])
        self.kept = dict(zip(active, found, strict=True))
        return found


@pytest.fixture
def trace():
    return read(TraceRequest(parse_systems(["a=4", "b=4", "c=4"]), jobs=60, load=0.9, seed=3))


def test_a_program_without_a_solution_is_an_error_of_its_own():
    able = np.ones((2, 2), bool)
    capacity = _capacity(able, np.array([1, 1]), np.array([1, 1]))
    assert said_of(0) == ()
    assert said_of(1) == ("the solver gave up once; the last shares were kept",)
    with pytest.raises(UnsolvedProgram, match="The solver gave up on a program of 4 rows"):
        _solved(np.zeros(4), capacity.matrix, capacity.bound, least=5.0)


def test_rounds_keep_the_last_shares_and_say_how_often(trace, monkeypatch):
    monkeypatch.setitem(ROUND_POLICIES, "gives_up", GivesUp)
    monkeypatch.setitem(ROUND_POLICIES, "first_shares", FirstShares)
    problem = SchedulingProblem(trace, exact(trace))
    failed, kept = run_in_rounds(problem, "gives_up"), run_in_rounds(problem, "first_shares")
    assert failed.notes == (f"the solver gave up {failed.allocations - 1} times; the last shares were kept",)
    assert kept.notes == ()
    assert np.array_equal(failed.end, kept.end)
    assert np.array_equal(failed.ran, kept.ran)
    assert not np.array_equal(failed.end, run_in_rounds(problem, "max_min_fairness_perf").end)


def test_every_job_ends_although_no_program_is_ever_solved(trace, monkeypatch):
    class Never(RoundPolicy):
        """Gives up always: equal shares."""

        knows_speeds = True

        def shares(self, moment):
            raise UnsolvedProgram("no program")

    monkeypatch.setitem(ROUND_POLICIES, "never", Never)
    (found,) = simulate(trace, ["never"], execution="rounds")
    assert found.summary.completed == len(trace)
    assert "the last shares were kept" in found.schedule.notes[0]
