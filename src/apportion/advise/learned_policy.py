"""The learned policy: what a launch will take on each device, by the shipped model that fits the devices.

Where none fits, the forecast comes from the devices' calibrated speeds and what the kernel is made of, with
an uncertainty that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from apportion.advise import launch_times as timing
from apportion.coexecution.forecast import Forecast, LaunchQuery, Predictor, from_speeds
from apportion.coexecution.launch_memory import IN_CACHE, LaunchMemory
from apportion.coexecution.objective import TIME, Objective, objective_of
from apportion.coexecution.policies.base import Policy
from apportion.coexecution.policies.objective_policy import ObjectivePolicy
from apportion.coexecution.session import USUAL, Session, SessionSettings
from apportion.coexecution.sharing import Together
from apportion.errors import ApportionError
from apportion.program.compile import CompileOptions
from apportion.program.source import Source
from apportion.runtime.backend import Backend
from apportion.runtime.base import DeviceInfo, Limits
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions

DEFAULT_COMPILE = CompileOptions()

_LEAST_KERNELS = 100
"What a model must have learned from: one that saw seven was far worse than calibrated speeds."


def learned(query: LaunchQuery, devices: Sequence[DeviceInfo]) -> Forecast:
    """What each device is expected to take: a `Predictor` for `Together`."""
    name = fitting_model(devices)
    if name is not None:
        try:
            return timing.forecast_of(query, devices, name)
        except ApportionError:  # a kernel that the model cannot read can be run all the same
            pass
    return from_speeds(query, devices)


def asking(model: str) -> Predictor:
    """A predictor of first launches that asks one timing model, by its name or its folder.

    Raises:
        UnknownName, InvalidSetting: there is no such model, or it predicts something else.
    """
    timing.timing_model(model)
    return partial(timing.forecast_of, model=model)


def fitting_model(devices: Sequence[DeviceInfo]) -> str | None:
    """The shipped model that learned from devices of these kinds, and says from which; None where none did.

    It knows how a CPU and a GPU differ; two CPUs differ in what calibrating measures better.
    """
    kinds = {device.kind for device in devices}
    for name in timing.models():
        model = timing.timing_model(name)
        if model.about.get("kernels", _LEAST_KERNELS) < _LEAST_KERNELS:
            continue
        known = {device.device: device.name for device in model.devices}
        if len(kinds) > 1 and kinds <= {kind for kind, learned_from in known.items() if learned_from}:
            return name
    return None


def share(
    source: str | Path | Source,
    kernel: str | None = None,
    devices: Sequence[str] | None = None,
    *,
    policy: str | float | Policy = "learned+feedback",
    predictor: Predictor = learned,
    merges: Mapping[str, str] | None = None,
    trust: bool = False,
    trust_source: bool = False,
    compile: CompileOptions = DEFAULT_COMPILE,
    limits: Limits | None = None,
    backend: Backend | str = "opencl",
    drivers: DriverOptions = DEFAULT_DRIVERS,
    memory: LaunchMemory | None = IN_CACHE,
    fresh: bool = False,
    objective: str | float | Objective = TIME,
    watts: Mapping[str, str | float] | None = None,
) -> Together:
    """Share one OpenCL kernel between several devices; learned models split its first launch.

        with apportion.share("saxpy.cl") as kernel:
            execution = kernel(x, y, 2.0, n, global_size=n)

    Close the result, or use it in a `with`: it holds the devices.

    Args:
        source: OpenCL C, or the path of a file of it.
        kernel: its name; needed only where the source has several.
        devices: ids of the devices that share the work, in the order of their parts; None: all of them.
        policy: who gets how much. `learned+feedback` corrects the prediction by what launches took; a number
            from 0 to 1 is the share of the first device; `apportion.coexecution.policies` has the others.
        predictor: predicts what each device takes at the first launch of a size.
        merges: argument → how the devices' results are put together, where you know better than the analysis.
        trust: do not compare the first launch of a size with one device's results.
        trust_source: run a source that has inline assembly, or code for some compilers only.
        compile: macros, include folders and the standard.
        limits: the deadline of a launch, and its memory.
        backend: what runs launches: one that is open and stays so, or the name of one (`replay:FOLDER`).
        drivers: how the drivers are started.
        memory: where what launches teach is kept for later processes; None: nowhere.
        fresh: begin without what earlier processes learned of these launches, and forget that.
        objective: what the cut is chosen for: `time`, `energy`, `edp` (energy × time), or a number of watts:
            time with no more than that. Any but time takes the place of `policy`.
        watts: device → watts that it draws while it works, where no meter of it can be read.

    Raises:
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
        UnknownName: no such kernel, device, policy or merge.
        NoDevice: this machine has no OpenCL device.
    """
    shared = Together(
        source,
        kernel,
        devices,
        policy=policy,
        predictor=predictor,
        merges=merges,
        trust=trust,
        trust_source=trust_source,
        compile=compile,
        limits=limits,
        backend=backend,
        drivers=drivers,
        memory=memory,
        fresh=fresh,
    )
    if objective_of(objective) != TIME:
        from apportion.measure.device_power import power_model  # the suite takes its time to load

        with _closed_if_it_fails(shared):
            power = power_model(shared.backend, shared.devices, watts)
            shared.policy = ObjectivePolicy(objective_of(objective), power)
    return shared


def session(
    devices: Sequence[str] | None = None,
    *,
    predictor: Predictor = learned,
    backend: Backend | str = "opencl",
    drivers: DriverOptions = DEFAULT_DRIVERS,
    limits: Limits | None = None,
    settings: SessionSettings = USUAL,
    memory: LaunchMemory | None = IN_CACHE,
    fresh: bool = False,
    objective: str | float | Objective = TIME,
    watts: Mapping[str, str | float] | None = None,
) -> Session:
    """Run a program of many kernels over arrays that stay on the device that needs them.

        with apportion.session() as s:
            x = s.array(values)
            s.kernel("scale.cl")(x, 2.0, global_size=len(values))
            result = x.numpy()

    Close the result, or use it in a `with`: it holds the devices.

    Args:
        devices: ids of the devices that may be used; None: all of them.
        predictor: predicts what each kernel takes before it ran.
        backend: what runs launches: one that is open and stays so, or the name of one (`opencl-direct`).
        drivers: how the drivers are started.
        limits: how long a queued launch may take, and its memory.
        settings: how far it looks ahead, and how much of a device's memory it takes.
        memory: where what launches teach is kept for later processes; None: nowhere.
        fresh: begin without what earlier processes learned of the kernels, and forget that.
        objective: what launches are placed for: `time`, `energy`, `edp` (energy × time), or a number of
            watts: time with no more than that.
        watts: device → watts that it draws while it works, where no meter of it can be read.

    Raises:
        NoDevice: this machine has no OpenCL device.
        UnknownName: no such device.
    """
    made = Session(
        devices, predictor=predictor, backend=backend, drivers=drivers, limits=limits, settings=settings,
        memory=memory, fresh=fresh,
    )  # fmt: skip
    if objective_of(objective) != TIME:
        from apportion.measure.device_power import power_model  # as above

        with _closed_if_it_fails(made):
            made.aim_for(objective_of(objective), power_model(made.backend, made.devices, watts))
    return made


@contextmanager
def _closed_if_it_fails(held: Together | Session) -> Iterator[None]:
    try:
        yield
    except BaseException:
        held.close()
        raise


together = share
"The former name of `share`."
