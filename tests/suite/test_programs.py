"""Every bundled program computes what NumPy does, wherever its kernels run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apportion.coexecution.session import Session
from apportion.errors import InvalidSetting, UnknownName
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.suite.programs import PROGRAMS, program_of
from apportion.suite.programs.base import SessionCalls

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")
pytestmark = pytest.mark.xdist_group("opencl")


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenCLBackend]:
    drivers = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))
    with OpenCLBackend(drivers, Limits(seconds=30)) as backend:
        yield backend


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_numpy_does(name: str, opened: OpenCLBackend) -> None:
    program = PROGRAMS[name]
    instance = program.instance(program.small)
    for device in ("cpu", "cpu2", None):
        with Session(backend=opened) as session:
            calls = SessionCalls(session, program, instance.arrays, device)
            instance.steps(calls)
            found = {each: calls.read(each) for each in instance.expected}
            assert program.verify(instance.expected, found) is None, device


def test_there_are_thirteen_and_an_unknown_one_is_said_to_be_unknown() -> None:
    assert len(PROGRAMS) == 13
    with pytest.raises(UnknownName, match=r"No program called 'jacoby'. Did you mean 'jacobi'"):
        program_of("jacoby")
    with pytest.raises(InvalidSetting, match="needs a size of 1024 at least"):
        program_of("jacobi").instance(10)
