"""Programs of many kernels, each with a NumPy reference: what sessions are tested and measured with."""

from __future__ import annotations

from apportion.errors import UnknownName
from apportion.suite.programs import algebra, grids, orders
from apportion.suite.programs.base import Program

PROGRAMS: dict[str, Program] = {
    program.name: program for program in (*grids.PROGRAMS, *algebra.PROGRAMS, *orders.PROGRAMS)
}
"Every program, by name."


def program_of(name: str) -> Program:
    """The program called `name`.

    Raises:
        UnknownName: there is none; the message lists those there are.
    """
    if name not in PROGRAMS:
        raise UnknownName("program", name, PROGRAMS)
    return PROGRAMS[name]
