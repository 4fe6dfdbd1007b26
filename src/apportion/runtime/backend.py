"""The contract of backends: the devices of one machine under one programming interface.

Co-execution, measuring and calibrating reach devices through a `Backend` alone. `apportion.runtime.backends`
lists those there are; packages add theirs as `apportion.backend` entry points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from apportion.errors import InvalidSetting, NoDevice, UnknownName
from apportion.jobs.cage import Confinement
from apportion.runtime import backends
from apportion.runtime.base import DeviceInfo, Limits
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.memory import Region
from apportion.runtime.plan import Build, LaunchOutcome, Plan
from apportion.runtime.stream import Stream
from apportion.runtime.visit import Launched, Seen, Visit


class Backend(ABC):
    """The devices of one machine: memory, builds, launches, calibration. Close it, or use it in a `with`."""

    computes: ClassVar[bool] = True
    "Whether arrays hold results after a launch; a recording has none, so that nothing can be verified."

    @classmethod
    def open(cls, place: str, drivers: DriverOptions, limits: Limits | None) -> Self:
        """The backend as a command line asks for it.

        Args:
            place: what follows the name and a colon: `FOLDER` of `replay:FOLDER`; empty where nothing does.
            drivers: which drivers to offer, for backends that load some.
            limits: what a launch may take.
        """
        return cls()

    def begin(self) -> None:
        """Begin what takes long before devices can be used, such as starting a process, and do not wait for
        it. Nobody has to call it."""
        return

    @abstractmethod
    def devices(self) -> list[DeviceInfo]:
        """Every device, CPUs first, with its calibration where one is kept."""

    @abstractmethod
    def build(self, build: Build, devices: Sequence[str]) -> dict[str, int]:
        """Compile a kernel for these devices; device → the most work-items that a work-group may have.

        Raises:
            CompileError, LaunchFailed: the source is at fault, or has no such kernel.
        """

    @abstractmethod
    def allocate(self, nbytes: int) -> Region:
        """Memory for one array, which this process and the devices see; it lives as long as something refers
        to it."""

    @abstractmethod
    def launch(self, plan: Plan) -> LaunchOutcome:
        """Run a plan on its devices and merge what they wrote; its arrays hold the results afterwards.

        Raises:
            DeadlineExceeded, LimitExceeded, WorkerCrashed, LaunchFailed: the launch came to a bad end.
        """

    @abstractmethod
    def calibrate(self, devices: Sequence[str] | None = None) -> list[DeviceInfo]:
        """Measure what devices do per second, all of them or those of these ids, and keep it."""

    @abstractmethod
    def measure(
        self, visit: Visit, seconds: float, report: Callable[[tuple[str, Launched]], None] | None = None
    ) -> list[Seen]:
        """Measure one case of a workload on several devices in turn, within a time.

        Args:
            report: is told every launch, with its device, as soon as it is measured.
        """

    def confinement(self) -> Confinement | None:
        """What confines the process that runs kernels; None where none are run."""
        return None

    def printed(self) -> str:
        """What kernels printed since this was asked last."""
        return ""

    def stream(self) -> Stream:
        """A stream of launches and copies, for programs of many kernels.

        Raises:
            InvalidSetting: this backend has none.
        """
        raise InvalidSetting(f"{type(self).__name__} runs single launches only: it has no streams")

    @abstractmethod
    def close(self) -> None:
        """Let go of what the backend holds; twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_backend(
    backend: str = "opencl", drivers: DriverOptions = DEFAULT_DRIVERS, limits: Limits | None = None
) -> Backend:
    """The backend of this name, such as `opencl`, or `replay:FOLDER` with what it is told.

    Raises:
        UnknownName: there is no such backend.
        InvalidSetting: what an entry point gives is no backend.
    """
    name, _, place = backend.partition(":")
    kind = backends.load(name)
    if not (isinstance(kind, type) and issubclass(kind, Backend)):
        raise InvalidSetting(f"The backend {name!r} is {kind!r}; make it a subclass of Backend")
    return kind.open(place, drivers, limits)


def info_of(device: str, known: Sequence[DeviceInfo]) -> DeviceInfo:
    """The device of this id.

    Raises:
        NoDevice: there is none at all.
        UnknownName: there is none of this id.
    """
    if not known:
        raise NoDevice("No device was found. Install one with: pip install 'apportion[opencl]'")
    for info in known:
        if info.id == device:
            return info
    raise UnknownName("device", device, [info.id for info in known])


def with_speeds(backend: Backend) -> list[DeviceInfo]:
    """A backend's devices with their calibrations; those that were never measured are measured now."""
    known = backend.devices()
    strangers = [info.id for info in known if info.calibration is None]
    measured = {info.id: info for info in backend.calibrate(strangers)} if strangers else {}
    return [measured.get(info.id, info) for info in known]
