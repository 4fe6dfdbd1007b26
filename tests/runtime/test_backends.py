"""Every backend passes the checks that are meant for anybody's, and one of another package is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, UnknownName
from apportion.runtime import backends
from apportion.runtime.backend import Backend, open_backend, with_speeds
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.replay import Recorder, Recording, ReplayBackend
from apportion.runtime.split import Split
from apportion.testing.backend_checks import BackendChecks, launches, run
from tests.conftest import Installer

DRIVERS = DriverOptions(pocl_instances=2, threads=1, vendors=False, copying=("cpu2",))


class _StaysOpen(OpenCLBackend):
    """Shares one worker between checks, since starting the drivers takes a second."""

    def __init__(self, opened: OpenCLBackend) -> None:
        vars(self).update(vars(opened))

    def close(self) -> None:
        pass


@pytest.mark.xdist_group("opencl")
class TestPoCL(BackendChecks):
    opened: OpenCLBackend

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _opened(cls):
        pytest.importorskip("pyopencl")
        with OpenCLBackend(DRIVERS, Limits(seconds=20)) as cls.opened:
            yield

    def backend(self) -> Backend:
        return _StaysOpen(self.opened)


class TestARecording(BackendChecks):
    folder: Path

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _recorded(cls, backend: OpenCLBackend, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.folder = tmp_path_factory.mktemp("recording")
        recorder = Recorder(backend)
        names = [info.id for info in recorder.devices()]
        for call, _, _ in launches().values():
            for split in (*map(Split.alone, names), Split.even(names)):
                run(recorder, call, split)
        recorder.save(cls.folder)

    def backend(self) -> Backend:
        return ReplayBackend(Recording.load(self.folder))


def test_backends_are_opened_by_name() -> None:
    assert backends.names() == ["opencl", "opencl-direct", "replay"]
    with pytest.raises(UnknownName, match=r"No backend called 'opncl'. Did you mean 'opencl'"):
        open_backend("opncl")


def test_a_backend_of_another_package_is_found_by_its_entry_point(
    installed: Installer,
) -> None:
    code = (
        "from apportion.runtime.replay import Recording, ReplayBackend\n"
        "class Empty(ReplayBackend):\n"
        "    @classmethod\n"
        "    def open(cls, place, drivers, limits):\n"
        "        return cls(Recording((), {}))\n"
    )
    installed({"theirs.py": code}, "[apportion.backend]\nempty = theirs:Empty\nwrong = theirs:Recording\n")
    with open_backend("empty") as backend:
        assert backend.devices() == []
        assert with_speeds(backend) == []
    with pytest.raises(InvalidSetting, match="make it a subclass of Backend"):
        open_backend("wrong")
