"""A suite of our own: kernels with generator, reference and verifier, CHAI's eight problems among them."""

from __future__ import annotations

from apportion.errors import UnknownName
from apportion.suite import chai, more
from apportion.suite.base import Problem

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in (*chai.PROBLEMS, *more.PROBLEMS)}
"Every problem, by name."


def problem_of(name: str) -> Problem:
    """The problem called `name`.

    Raises:
        UnknownName: there is none; the message lists those there are.
    """
    if name not in PROBLEMS:
        raise UnknownName("problem", name, PROBLEMS)
    return PROBLEMS[name]
