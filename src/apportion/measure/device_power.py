"""What the devices of a machine draw while they work: measured once by its meters of energy, and kept.

A device runs two bundled kernels in turn, one that is bound by memory and one by arithmetic, while the meters
are read. The mean of the two, less what the idle machine draws, is what the device draws. A device counts as
metered where a meter is of its kind: Intel's counts processors, NVIDIA's cards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from apportion.coexecution.launch_memory import identity_of
from apportion.coexecution.objective import PowerModel
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.runtime.backend import Backend, info_of
from apportion.runtime.base import DeviceInfo
from apportion.runtime.observe import Observer, energy_meters
from apportion.runtime.power import drawn, idle
from apportion.settings import cache_folder, replace_file
from apportion.suite import problem_of

KERNELS = ("triad", "nbody")
"Bound by memory, and by arithmetic."
_SECONDS = 0.8
"Of each kernel, and of the idle machine: NVIDIA's meter moves about ten times a second."
_METER_OF = {"cpu": "package", "gpu": "card"}
"A device's kind → how the names of its meters begin."


def power_model(
    backend: Backend,
    devices: Sequence[DeviceInfo],
    given: Mapping[str, str | float] | None = None,
    *,
    meters: Sequence[Observer] | None = None,
    fresh: bool = False,
) -> PowerModel:
    """What these devices draw: as given, else as measured now or earlier.

    Args:
        given: device → watts while it works, beyond what it draws idle; or `120:30` with those it draws idle.
        meters: what is read; None: the meters of this machine.
        fresh: measure again.

    Raises:
        InvalidSetting: what a device draws is neither given nor can be measured.
    """
    said = {info_of(name, devices).id: _watts(name, watts) for name, watts in (given or {}).items()}
    readable = energy_meters() if meters is None else list(meters)
    wanted = [info for info in devices if info.id not in said]
    for info in wanted:
        if not any(meter.name.startswith(_METER_OF.get(info.kind, "?")) for meter in readable):
            raise InvalidSetting(
                f"What {info.id} draws cannot be measured: this machine offers no meter of it, or this "
                "process may not read it (Intel's /sys/class/powercap is for root on most machines). Say "
                f"what it draws while it works, and what idle: --watts {info.id}=120:30"
            )
    measured = {"idle": 0.0, **dict.fromkeys((info.id for info in wanted), 0.0)}
    if wanted:
        measured = _kept(backend, wanted, readable, fresh=fresh)
    active = {
        info.id: said[info.id][0] if info.id in said else max(0.0, measured[info.id]) for info in devices
    }
    origin = {info.id: "given" if info.id in said else "measured" for info in devices}
    return PowerModel(measured["idle"] + sum(rest for _, rest in said.values()), active, origin)


def measure_power(
    backend: Backend, devices: Sequence[DeviceInfo], meters: Sequence[Observer], *, seconds: float = _SECONDS
) -> dict[str, float]:
    """Watts of the idle machine under `idle`, and of each device beyond that while it works."""
    found = {"idle": sum(idle(meters, seconds=seconds).watts.values())}
    for info in devices:
        watts = [_working(backend, info, name, meters, seconds) for name in KERNELS]
        found[info.id] = fmean(watts) - found["idle"]
    return found


def _working(
    backend: Backend, info: DeviceInfo, name: str, meters: Sequence[Observer], seconds: float
) -> float:
    problem = problem_of(name)
    instance = problem.instance(problem.usual)
    stage = instance.stages[0]
    with Together(problem.source(), stage.kernel, [info.id], backend=backend, trust=True) as kernel:
        arrays = {name: kernel.array(values.shape, values.dtype) for name, values in instance.arrays.items()}
        for name, values in instance.arrays.items():
            arrays[name][...] = values
        bound = kernel.bind(
            *instance.values(stage, arrays), global_size=stage.global_size, local_size=stage.local_size
        )
        bound.run(info.id)  # drivers compile
        return sum(drawn(meters, lambda: bound.run(info.id), seconds=seconds).watts.values())


def _kept(
    backend: Backend, devices: Sequence[DeviceInfo], meters: Sequence[Observer], *, fresh: bool
) -> dict[str, float]:
    identity = repr((identity_of(devices), sorted(meter.name for meter in meters)))
    path = Path(cache_folder("power")) / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"
    if not fresh:
        with suppress(OSError, ValueError, TypeError):
            known = {str(name): float(watts) for name, watts in json.loads(path.read_bytes()).items()}
            if known.keys() >= {"idle", *(info.id for info in devices)}:
                return known
    found = measure_power(backend, devices, meters)
    with suppress(UnreadableFile, OSError):  # it is measured again next time
        replace_file(path, json.dumps(found))
    return found


def _watts(name: str, said: str | float) -> tuple[float, float]:
    """Watts while a device works, and idle ones."""
    active, _, rest = str(said).partition(":")
    try:
        found = float(active), float(rest or 0)
    except ValueError:
        raise InvalidSetting(f"Write the watts of {name} like 120 or 120:30, not {said!r}") from None
    if min(found) < 0:
        raise InvalidSetting(f"Watts must not be below 0, as those of {name} are: {said}")
    return found
