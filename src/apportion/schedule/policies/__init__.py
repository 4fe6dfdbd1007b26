"""Policies: where a job runs and when. A function for each, from a `SchedulingProblem` to a `Schedule`."""

from __future__ import annotations

from apportion.registry import Registry

_HOME = "apportion.schedule.policies"

policies = Registry(
    "scheduling policy",
    {
        "round_robin": f"{_HOME}.fixed:round_robin",
        "random": f"{_HOME}.fixed:at_random",
        "user": f"{_HOME}.fixed:user",
        "user_rr": f"{_HOME}.fixed:user_rr",
        "fastest": f"{_HOME}.fixed:fastest",
        "easy_fastest": f"{_HOME}.fixed:easy_fastest",
        "eft": f"{_HOME}.earliest:eft",
        "eft_late": f"{_HOME}.earliest:eft_late",
        "sjf": f"{_HOME}.earliest:sjf",
        "careful": f"{_HOME}.earliest:careful",
        "careful_short": f"{_HOME}.earliest:careful_short",
        "max_min": f"{_HOME}.shares:max_min",
        "sum_throughput": f"{_HOME}.shares:sum_throughput",
        "makespan": f"{_HOME}.makespan:makespan",
        "allox": f"{_HOME}.allox:allox",
    },
    extras={"max_min": "schedule", "sum_throughput": "schedule", "makespan": "schedule"},
)
"For jobs that run to their end. Before any of them, `oracle_` gives it the true times."

__all__ = ["policies"]
